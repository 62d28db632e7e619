"""The demonstration's streams: one skewed input on disk, read by plain Spark and by Steelyard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext

import steelyard as sy
from steelyard.bench.demo_work import Total
from steelyard.core import BatchReport
from steelyard.workloads.zipf import Zipf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 8
"""Tasks of every engine: blocks, buckets and Spark's shuffle partitions."""
WARM_UP_ROWS = 2_000
WINDOW_SECONDS = 10
"""Event time of a batch. Each batch is one window, so that plain Spark needs no state for the same answer."""
PLAIN, HASH, PROMPT = "plain Spark", "Steelyard, hash", "Steelyard, Prompt"
POLICIES = {HASH: "hash", PROMPT: "prompt"}
ENGINES = (PLAIN, HASH, PROMPT)
SCHEMA = "event_time timestamp, key bigint, value bigint"
MICROS = 1_000_000


@dataclass(frozen=True)
class Scenario:
    """One kind of work over a stream.

    Parameters
    ----------
    name, story
        What it is called, and what it stands for.
    work
        What is done with the rows of a key.
    rows, batches
        Rows of a batch, and batches that count.
    interval
        Seconds between two batches: a batch that takes longer makes the stream fall behind.
    waits
        Whether tasks wait rather than compute; then wall-clock time shows balance on any number of cores.
    warm_ups
        Batches before those that count: the first compiles the plan of a batch, the second that of a window.
    keys, exponent, seed
        Of Zipf's law, by which keys are drawn.
    """

    name: str
    story: str
    work: Total
    rows: int
    batches: int
    interval: float
    waits: bool
    warm_ups: int = 2
    keys: int = 1_000
    exponent: float = 1.3
    seed: int = 7


@dataclass(frozen=True)
class Measured:
    """One batch as one engine processed it."""

    engine: str
    batch: int
    seconds: float
    """From the batch's rows to its results on disk."""
    sizes: tuple[int, ...]
    """Rows of each task."""
    task_seconds: tuple[float, ...]
    """Time in each task's own code: on the processor, or with waits counted where the scenario waits."""
    counts: bool
    """False while the engine warms up."""

    @property
    def largest_over_mean(self) -> float:
        """Rows of the largest task over the mean of the slots."""
        return max(self.sizes, default=0) * SLOTS / max(1, sum(self.sizes))

    @property
    def critical_path(self) -> float:
        """Seconds of the longest task: with a core for each task, no batch ends sooner."""
        return max(self.task_seconds, default=0.0)


Watch = Callable[[Measured], None]


def write_input(folder: Path, scenario: Scenario) -> None:
    """One Parquet file for each batch: warm-ups, those that count, and one late row that closes the last window."""
    folder.mkdir(parents=True)
    law = Zipf(scenario.exponent, scenario.keys, seed=scenario.seed)
    sizes = [*[WARM_UP_ROWS] * scenario.warm_ups, *[scenario.rows] * scenario.batches, 1]
    first = 0
    for batch, rows in enumerate(sizes):
        offsets = np.arange(rows) * (WINDOW_SECONDS * MICROS) // rows
        drawn = law.rows(first, rows, offsets + batch * WINDOW_SECONDS * MICROS)
        first += rows
        whole = (drawn.column("value").to_numpy() * 10_000).astype(np.int64)
        path = folder / f"{batch:04d}.parquet"
        pq.write_table(pa.Table.from_batches([drawn.set_column(2, "value", pa.array(whole))]), path)
        os.utime(path, (batch, batch))  # the order in which Spark reads them


def read_input(spark: SparkSession, folder: Path) -> DataFrame:
    """The batches of a folder as a stream, one file each."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(engine: str, spark: SparkSession, scenario: Scenario, folder: Path, watch: Watch) -> pa.Table:
    """Stream a scenario's input through an engine; gives its answers, sorted, and calls `watch` after each batch."""
    rows = read_input(spark, folder / "input")
    place = folder / engine.replace(", ", "-").replace(" ", "-")
    (_run_plain if engine == PLAIN else _run_steelyard)(engine, rows, scenario, place, watch)
    return answers(place / "results", scenario)


def _counts(scenario: Scenario, batch: int) -> bool:
    return scenario.warm_ups <= batch < scenario.warm_ups + scenario.batches


def _run_steelyard(engine: str, rows: DataFrame, scenario: Scenario, place: Path, watch: Watch) -> None:
    query = (
        sy.stream(rows)
        .with_watermark("event_time", "0 seconds")
        .group_by("key")
        .window(f"{WINDOW_SECONDS} seconds")
        .agg(total=scenario.work.of("value"))
        .partition_by(POLICIES[engine], blocks=SLOTS, buckets=SLOTS)
        .sink("parquet", path=str(place / "results"))
        .checkpoint(str(place / "checkpoint"))
        .trigger(available_now=True)
        .start()
    )
    shown, ended = 0, False
    try:
        while not ended:
            ended = query.await_termination(0.1)
            for report in query.recent_progress[shown:]:
                watch(_of_report(engine, report, scenario))
                shown += 1
    finally:
        query.stop()


def _of_report(engine: str, report: BatchReport, scenario: Scenario) -> Measured:
    return Measured(
        engine,
        report.batch,
        report.seconds["total"],
        tuple(task.rows for task in report.tasks),
        tuple(task.seconds if scenario.waits else task.cpu_seconds for task in report.tasks),
        _counts(scenario, report.batch),
    )


class _Added(AccumulatorParam[dict[int, tuple[int, float]]]):
    """Rows and seconds by task, added up over the calls in a task."""

    def zero(self, value: dict[int, tuple[int, float]]) -> dict[int, tuple[int, float]]:
        return {}

    def addInPlace(  # noqa: N802 - PySpark's name
        self, value1: dict[int, tuple[int, float]], value2: dict[int, tuple[int, float]]
    ) -> dict[int, tuple[int, float]]:
        for task, (rows, seconds) in value2.items():
            before = value1.get(task, (0, 0.0))
            value1[task] = (before[0] + rows, before[1] + seconds)
        return value1


def _grouped(work: Total, waits: bool, log: Accumulator[dict[int, tuple[int, float]]]) -> Callable[[Any], Any]:
    """What plain Spark calls with all rows of a key."""
    clock = time.perf_counter if waits else time.process_time
    window = WINDOW_SECONDS

    def of_group(rows: Any) -> Any:
        import pandas as pd  # noqa: PLC0415 - in the task

        start = clock()
        total = work.finish(work.add(work.zero(), rows["value"].to_numpy()))
        task = TaskContext.get()
        log.add({task.partitionId() if task else 0: (len(rows), clock() - start)})
        began = rows["event_time"].iloc[0].floor(f"{window}s")
        return pd.DataFrame({"window_start": [began], "key": [rows["key"].iloc[0]], "total": [total]})

    return of_group


def _run_plain(engine: str, rows: DataFrame, scenario: Scenario, place: Path, watch: Watch) -> None:
    context: SparkContext = rows.sparkSession.sparkContext
    log: Accumulator[dict[int, tuple[int, float]]] = context.accumulator({}, _Added())
    function = _grouped(scenario.work, scenario.waits, log)

    def work(batch: DataFrame, number: int) -> None:
        log.value = {}
        start = time.perf_counter()
        results = batch.groupBy("key").applyInPandas(function, "window_start timestamp, key bigint, total bigint")
        results.write.parquet(str(place / "results" / f"batch_id={number}"))
        seconds = time.perf_counter() - start
        sizes, taken = zip(*log.value.values(), strict=True) if log.value else ((), ())
        watch(Measured(engine, number, seconds, sizes, taken, _counts(scenario, number)))

    query = (
        rows.writeStream.foreachBatch(work)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


def answers(folder: Path, scenario: Scenario) -> pa.Table:
    """All results of an engine: window, key and total, sorted. The window of the one late row is left out."""
    found = ds.dataset(folder, format="parquet").to_table(columns=["window_start", "key", "total"])
    last = (scenario.warm_ups + scenario.batches) * WINDOW_SECONDS * MICROS
    starts = found.column("window_start").cast(pa.timestamp("us", tz="UTC"))
    found = found.set_column(0, "window_start", starts.cast(pa.int64()))
    kept = found.filter(pa.compute.less(found.column("window_start"), last))
    return kept.sort_by([("window_start", "ascending"), ("key", "ascending")]).combine_chunks()
