"""What this machine takes for the parts that a simulation is made of: `steelyard sim calibrate`."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from steelyard.bench.environment import machine
from steelyard.bench.prompt.cluster_model import measure_costs
from steelyard.sim.profiles import Figure, Profile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUND_TRIPS = 500
ROWS = 2_000
"""Of the record batch that stands for tuples on their way."""
TRANSFER_BYTES = 1 << 25
FEW_TASKS, MANY_TASKS = 1, 33
JOBS = 7
REPETITIONS = 9


def calibrate(spark: SparkSession | None = None, repetitions: int = REPETITIONS) -> Profile:
    """Measure this machine. With a session, also what Spark takes to schedule a job and a task."""
    figures = {**_hardware(), **_operators(repetitions), **_channel(repetitions)}
    if spark is not None:
        figures |= _scheduling(spark)
    return Profile("this-machine", "measured by `steelyard sim calibrate`", figures)


def _hardware() -> dict[str, Figure]:
    found = machine()
    return {
        "machines": Figure(1, "this machine"),
        "cores": Figure(float(len(os.sched_getaffinity(0))), "measured: cores that this process may use"),
        "memory_gb": Figure(float(found["memory_gib"]) * 1.073741824, "measured: physical memory"),
    }


def _operators(repetitions: int) -> dict[str, Figure]:
    """Costs of the very functions that map and reduce tasks run on Spark."""
    costs = measure_costs(repetitions=repetitions)
    source = "measured: tasks that parse a JSON event a row and sum by key, processor time of one core"
    names = ("map_task", "map_row", "map_key", "reduce_task", "reduce_record", "reduce_key")
    return {name: Figure(getattr(costs, name), source) for name in names}


def _channel(repetitions: int) -> dict[str, Figure]:
    """What it takes to send tuples from one process to another over a socket."""
    trips, seconds_a_byte = _over_a_socket()
    batch = pa.RecordBatch.from_pydict({"key": np.arange(ROWS), "value": np.random.default_rng(0).random(ROWS)})
    both_ends = statistics.median(_processor_seconds(lambda: _there_and_back(batch)) for _ in range(repetitions))
    return {
        "latency": Figure(trips / 2, "measured: half of a round trip of one byte over a local socket, median"),
        "bytes_per_second": Figure(1 / seconds_a_byte, "measured: 32 MB over a local socket"),
        "serialise": Figure(both_ends / ROWS / 2, f"measured: a record batch of {ROWS} rows as Arrow IPC, per row"),
    }


def _there_and_back(batch: pa.RecordBatch) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _over_a_socket() -> tuple[float, float]:
    """Seconds of a round trip, and of a byte where many are sent."""
    here, there = socket.socketpair()
    with here, there:
        echo = threading.Thread(target=_echo, args=(there,))
        echo.start()
        trips = []
        for _ in range(ROUND_TRIPS):
            clock = time.perf_counter()
            here.sendall(b"x")
            here.recv(1)
            trips.append(time.perf_counter() - clock)
        clock = time.perf_counter()
        here.sendall(bytes(TRANSFER_BYTES))
        here.recv(1)
        transfer = time.perf_counter() - clock
        echo.join()
    return statistics.median(trips), transfer / TRANSFER_BYTES


def _echo(end: socket.socket) -> None:
    """Send back every single byte; then take in all the others, and say so."""
    for _ in range(ROUND_TRIPS):
        end.sendall(end.recv(1))
    left = TRANSFER_BYTES
    while left:
        left -= len(end.recv(1 << 20))
    end.sendall(b"x")


def _scheduling(spark: SparkSession) -> dict[str, Figure]:
    """From jobs of tasks that do nothing: the line through the times of few and of many tasks."""
    few, many = _job_seconds(spark, FEW_TASKS), _job_seconds(spark, MANY_TASKS)
    per_task = max((many - few) / (MANY_TASKS - FEW_TASKS), 0.0)
    cores = spark.sparkContext.defaultParallelism
    source = f"measured: jobs of {FEW_TASKS} and {MANY_TASKS} empty tasks on {cores} slots, median of {JOBS}"
    return {"driver": Figure(max(few - per_task, 0.0), source), "driver_task": Figure(per_task, source)}


def _job_seconds(spark: SparkSession, tasks: int) -> float:
    def job() -> Any:
        return spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()

    job()  # the first compiles
    return statistics.median(_seconds(job) for _ in range(JOBS))


def _seconds(work: Callable[[], object]) -> float:
    clock = time.perf_counter()
    work()
    return time.perf_counter() - clock


def _processor_seconds(work: Callable[[], object]) -> float:
    clock = time.process_time()
    work()
    return time.process_time() - clock
