"""A fast source in front of a slow consumer, for minutes: the memory of resident workers must not grow."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.engine.overhead import growth, resident_mib
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Settings
from steelyard.resident.channel import CREDIT
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ProcessLauncher
from steelyard.resident.sources import Read, Reader

BATCH_ROWS = 1 << 16
BATCH_SECONDS = 0.02
"""What the consumer needs for a batch: far more than the source needs to make one."""
SECONDS, QUICK_SECONDS = 600.0, 50.0
SAMPLES_A_SECOND = 4.0
IN_HANDS = 2
"""Batches that no channel has room for: one that the source holds while it waits, one that the consumer works on."""
START_SECONDS = 60.0
MOST_GROWTH = 1.1


@dataclass(frozen=True)
class Counted(Reader):
    """The same batch for ever; a shared number says how many were read."""

    batch: pa.RecordBatch
    read_batches: Any = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The batch's."""
        return self.batch.schema

    def splits(self, parallelism: int) -> list[str]:
        """One."""
        return ["0"]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """A copy, so that each batch has memory of its own."""
        self.read_batches.value += 1
        copied = pa.RecordBatch.from_arrays(
            [pa.array(np.array(column)) for column in self.batch.columns], schema=self.schema
        )
        return Read(copied, offset + copied.num_rows, False)


@dataclass
class Soaked:
    """What was seen while it ran."""

    seconds: list[float] = field(default_factory=list)
    """When each sample was taken, from the first on."""
    source_mib: list[float] = field(default_factory=list)
    consumer_mib: list[float] = field(default_factory=list)
    """Memory of the two workers."""
    most_ahead: int = 0
    """The most batches that the source was ever ahead of the consumer."""
    batches: int = 0
    """How many went through."""


@contextmanager
def _running(job: Job) -> Iterator[threading.Thread]:
    """A job while it runs, in a thread of its own; it is stopped in the end, and what it raised is raised here."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=work, name="soak", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        job.stop()
        thread.join()
        if raised:
            raise raised[0]


def soak(seconds: float, batch_rows: int = BATCH_ROWS, batch_seconds: float = BATCH_SECONDS) -> Soaked:
    """Run the two for so long in two processes, over a connection."""
    context = multiprocessing.get_context("fork")
    read, taken, ahead = (context.Value("q", 0, lock=False) for _ in range(3))

    def consume(batch: pa.RecordBatch) -> None:
        taken.value += 1
        ahead.value = max(ahead.value, read.value - taken.value + 1)
        time.sleep(batch_seconds)

    flow = Flow("soak")
    batch = pa.record_batch({"value": np.arange(batch_rows), "other": np.arange(batch_rows)})
    source = flow.source(Counted(batch, read), batch_rows=batch_rows, name="source")
    source.shuffle().sink(Callback(consume), name="consumer")
    dataflow = flow.dataflow()
    apart = Placement({one: number for number, one in enumerate(dataflow.instances)}, 2)
    job = Job(dataflow, apart, ProcessLauncher(), Settings(restarts=0))
    found = Soaked()
    with _running(job) as thread:
        deadline = time.monotonic() + START_SECONDS
        while taken.value <= 2 * CREDIT:  # all that there is room for has been full once
            if time.monotonic() > deadline or not thread.is_alive():
                raise TimeoutError(f"the consumer got {taken.value} batches in {START_SECONDS:g} s")
            time.sleep(0.01)
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            found.seconds.append(passed)
            for sizes, worker in ((found.source_mib, 0), (found.consumer_mib, 1)):
                sizes.append(resident_mib(job.workers[worker].pid))
            time.sleep(1 / SAMPLES_A_SECOND)
    found.most_ahead, found.batches = ahead.value, taken.value
    return found


@experiment("resident-soak", title="Memory of resident workers while a source is faster than what takes its rows")
def resident_soak(run: Run) -> Result:
    """Memory of both workers, from the first fifth of the time to the last, and how far the source was ahead."""
    seconds = run.pick(SECONDS, QUICK_SECONDS)
    run.progress.say(f"a slow consumer for {seconds:g} s")
    return result_of(soak(seconds), seconds)


def result_of(seen: Soaked, seconds: float) -> Result:
    """The figures from what was seen."""
    grown = {"source": growth(seen.source_mib), "consumer": growth(seen.consumer_mib)}
    worst = max(grown, key=lambda worker: grown[worker])
    return Result(
        parameters={
            "seconds": seconds,
            "batch_rows": BATCH_ROWS,
            "consumer_ms_per_batch": BATCH_SECONDS * 1000,
            "credit": CREDIT,
        },
        metrics={
            "rss_growth": grown[worst],
            "batches_ahead": seen.most_ahead,
            "batches": seen.batches,
            "source_mib": seen.source_mib[-1],
            "consumer_mib": seen.consumer_mib[-1],
        },
        tables=[
            Table(
                "memory of the workers",
                ("worker", "first MiB", "last MiB", "most MiB", "last fifth over first"),
                [
                    (worker, sizes[0], sizes[-1], max(sizes), grown[worker])
                    for worker, sizes in (("source", seen.source_mib), ("consumer", seen.consumer_mib))
                ],
            )
        ],
        series=[
            Series("worker of the source, MiB", seen.seconds, seen.source_mib),
            Series("worker of the consumer, MiB", seen.seconds, seen.consumer_mib),
        ],
        targets=[
            Target(
                "rss_growth", at_most=MOST_GROWTH, explanation=f"the memory of the {worst}'s worker was still growing"
            ),
            Target(
                "batches_ahead",
                at_most=CREDIT + IN_HANDS,
                explanation="the source read more than its credit, and what both ends have in hand",
            ),
        ],
        notes=[
            "Two processes on one machine; memory is what the system counts as theirs (RSS), with what they share.",
            "rss_growth: mean of the last fifth of the samples over mean of the first, of the worker that grew more.",
        ],
    )


@resident_soak.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Memory of both workers over time."""
    named = [Series(one.name.removesuffix(", MiB"), one.x, one.y) for one in result.series]
    charts.lines(figure.add_subplot(), named, title="Memory of resident workers", x="time, s", y="memory (RSS), MiB")
