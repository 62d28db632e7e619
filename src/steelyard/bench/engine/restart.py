"""From `kill -9` of a process to the first rows of those that follow: a worker's, its supervisor's, its executor's."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pyarrow as pa

from steelyard.bench import Cell, Result, Run, Table, Target, charts, experiment
from steelyard.bench.registry import spark_for
from steelyard.core.aggregates import count
from steelyard.core.dataflow import Dataflow
from steelyard.core.errors import SteelyardError
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Generated, Settings
from steelyard.resident.gang import Recovery
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import SupervisedLauncher
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant

SLOTS, WORKERS = 4, 2
ROWS_A_SECOND = 2500
SNAPSHOT_SECONDS = 0.2
KILLS, QUICK_KILLS = 15, 5
CALM_SECONDS = 0.5
"""Between the first rows of a generation and the next kill, and a part of it that is different each time."""
PATIENCE = 60.0
CHILD, RESUBMIT = "worker", "supervisor"
"""Whose process is killed: the second costs a new Spark job."""
EXECUTORS, EXECUTOR_CONFIG = "local-cluster[3,2,1024]", {"spark.executor.memory": "512m"}
"""Where executors are lost: there is room on the two that are left."""
SLOW_EXECUTORS = (
    "the loss is noticed in milliseconds; the rest is from there until a worker of Spark's next job works, beside an "
    "executor that Spark starts anew"
)
"""Why a lost executor takes longer than a lost task, which leaves the JVM and its Python as they were."""
EXECUTOR, BESIDE = "executor", "supervisor, same executors"
"""What is killed there: a JVM with all that it started, or a task alone, which is the way before for any loss."""
EXECUTOR_KILLS, QUICK_EXECUTOR_KILLS = 5, 2


class RestartError(SteelyardError):
    """Workers that did not go on."""


def endless(seen: Path) -> Dataflow:
    """Words counted without an end; whoever takes a count writes down which process it is, and when."""

    def note(batch: pa.RecordBatch) -> None:
        with seen.open("a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\n")

    flow = Flow("restart", parallelism=WORKERS)
    reader = Generated(Zipf(keys=20, seed=3), rows=1 << 40, pace=Constant(ROWS_A_SECOND), pieces=WORKERS, block_rows=64)
    read = flow.source(reader, time="event_time", batch_rows=64, name="read")
    read.key_by("key").aggregate(n=count(), emit="updates", name="count").sink(Callback(note), name="out")
    return flow.dataflow()


def rows_of(seen: Path) -> list[tuple[int, float]]:
    """(process, moment) of each batch so far; a line that is being written is left out."""
    whole = seen.read_text().rpartition("\n")[0]
    return [(int(pid), float(at)) for pid, at in (line.split() for line in whole.splitlines())]


def until(found: Callable[[], Any], what: str) -> Any:
    """What is found, as soon as it is; RestartError where that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not (got := found()):
        if time.monotonic() > deadline:
            raise RestartError(f"{what} did not come within {PATIENCE:g} s")
        time.sleep(0.002)
    return got


def restart_ms(job: Job, seen: Path, victim: Callable[[int], int], turn: int) -> float:
    """Kill a process of a worker while rows come; milliseconds until the first rows of a new process."""

    def running() -> set[int]:
        """The workers that are there, when all of them have come and one has given rows."""
        there = {one.pid for one in job.workers.values()}
        return there if len(there) == WORKERS and there & {pid for pid, _ in rows_of(seen)} else set()

    old = until(running, "the rows of all workers")
    time.sleep(CALM_SECONDS + SNAPSHOT_SECONDS * (turn % 5) / 5)
    killed = time.monotonic()
    os.kill(victim(turn % WORKERS), signal.SIGKILL)

    def first() -> float:
        """When a process that was not there before had its first rows."""
        return min((at for pid, at in rows_of(seen) if at > killed and pid not in old), default=0.0)

    return 1000 * (float(until(first, "new rows")) - killed)


@contextmanager
def _running(job: Job) -> Iterator[None]:
    thread = Thread(target=job.run, name="restart", daemon=True)
    thread.start()
    try:
        yield
    finally:
        job.stop()
        thread.join(PATIENCE)


def executor_of(supervisor: int) -> int:
    """The JVM of a supervisor: it started Python's daemon, which forked the supervisor."""
    for _ in range(2):
        asked = subprocess.run(["ps", "-o", "ppid=", "-p", str(supervisor)], capture_output=True, text=True, check=True)
        supervisor = int(asked.stdout)
    return supervisor


class Restarts(NamedTuple):
    """What the kills of one kind came to."""

    taken: Sequence[float]
    """Milliseconds of each."""
    told: Sequence[Recovery]
    """What the job itself says of them."""
    gangs: int
    """Gangs of supervisors that there were, the first one among them."""


def restarts(launcher: SupervisedLauncher, scratch: Path, whose: str, kills: int) -> Restarts:
    """Restarts after so many kills. Where an executor is lost, Spark may need more than one gang for one kill."""
    scratch.mkdir()
    seen = scratch / "seen"
    seen.touch()
    settings = Settings(store=str(scratch / "store"), interval=SNAPSHOT_SECONDS, heartbeat=0.1, restarts=4 * kills)
    dataflow, before = endless(seen), launcher.gangs
    job = Job(dataflow, Placement.spread(dataflow, WORKERS), launcher, settings)

    def victim(worker: int) -> int:
        if whose == CHILD:
            return job.workers[worker].pid
        supervisor = launcher.supervisors[worker]
        return executor_of(supervisor) if whose == EXECUTOR else supervisor

    with _running(job):
        taken = [restart_ms(job, seen, victim, turn) for turn in range(kills)]
    gangs = launcher.gangs - before
    if gangs != (1 if whose == CHILD else kills + 1) and not (whose == EXECUTOR and gangs > kills):
        raise RestartError(f"{kills} kills of a {whose} took {gangs} gangs of supervisors")
    return Restarts(taken, job.outcome.recoveries, gangs)


@experiment("resident-restart", title="From the death of a worker to the first new rows")
def restart(run: Run) -> Result:
    """Milliseconds from `kill -9` to the first rows of those that follow, in the same Spark job and in a new one."""
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark

    kills, lost = run.pick((KILLS, EXECUTOR_KILLS), (QUICK_KILLS, QUICK_EXECUTOR_KILLS))
    found = {}
    for where, config, victims, times in (
        (SLOTS, {}, (CHILD, RESUBMIT), kills),
        (EXECUTORS, EXECUTOR_CONFIG, (BESIDE, EXECUTOR), lost),
    ):
        with spark_for("restart", where, config) as (spark, scratch):
            spark.sparkContext.setLogLevel("OFF")  # Spark tells of every task that was killed
            launcher = SparkLauncher(spark)
            for whose in run.progress.track(victims, str(where)):
                found[whose] = restarts(launcher, scratch / whose.replace(", ", "-"), whose, times)
            launcher.release()
    return result_of(found)


def result_of(found: Mapping[str, Restarts]) -> Result:
    """Medians, and the share of the one in the other."""
    median = {whose: statistics.median(taken) for whose, (taken, *_) in found.items()}
    rows: list[list[Cell]] = [
        [
            whose,
            min(taken),
            median[whose],
            max(taken),
            1000 * statistics.median(one.detected for one in told),
            1000 * statistics.median(one.restarted for one in told),
            gangs,
        ]
        for whose, (taken, told, gangs) in found.items()
    ]
    return Result(
        parameters={
            "slots": SLOTS,
            "workers": WORKERS,
            "kills": {whose: len(taken) for whose, (taken, *_) in found.items()},
            "executors": EXECUTORS,
            "snapshot_seconds": SNAPSHOT_SECONDS,
        },
        metrics={
            "restart_ms_child": median[CHILD],
            "restart_ms_resubmit": median[RESUBMIT],
            "restart_vs_resubmit": median[CHILD] / median[RESUBMIT],
            "restart_ms_lost_executor": median[EXECUTOR],
            "lost_executor_vs_resubmit": median[EXECUTOR] / median[BESIDE],
        },
        tables=[Table("milliseconds", ("killed", "least", "median", "most", "to notice", "to start", "gangs"), rows)],
        targets=[
            Target("restart_vs_resubmit", at_most=0.25),
            Target("lost_executor_vs_resubmit", at_most=1.0, explanation=SLOW_EXECUTORS),
        ],
        notes=[
            "From the signal to the first batch that a new process takes from a count of words. To notice and to start "
            "are medians of what the job says itself: until it is decided to go on without this generation, and from "
            "there until the first worker of the next one works.",
            "A worker is forked again by its supervisor. The death of a supervisor, which is a task of Spark, fails "
            "the barrier stage, and costs a new Spark job: the way before for whatever was lost.",
            f"Executors are those of {EXECUTORS}: the JVM of one is killed, with the daemon, supervisors and workers "
            "in it, and `lost_executor_vs_resubmit` has that over the death of a supervisor among the same executors. "
            "Where there were more gangs of supervisors than the first one and one per kill, some times have several "
            "starts in them.",
        ],
    )


@restart.picture
def _picture(figure: charts.Figure, result: Result) -> None:
    times = {name: result.metrics[f"restart_ms_{name}"] for name in ("child", "resubmit", "lost_executor")}
    charts.bars(figure.add_subplot(), times, title="From kill -9 to new rows", x="milliseconds", y="who is killed")
