"""The demonstration's stream: one skewed input on disk, read by plain Spark in four ways and by Steelyard."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.bench.demo.work import LookUp
from steelyard.core import Progress
from steelyard.workloads.zipf import Zipf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 8
"""Tasks of every way: blocks, buckets and Spark's shuffle partitions."""
WARM_UP_ROWS = 1_500
WINDOW_SECONDS = 10
"""Event time of a batch. Each batch is one window, so that plain Spark needs no state for the same answer."""
NEWCOMER, SPREAD, BY_KEY, SALTED, OURS = (
    "newcomer: applyInPandas",
    "expert: spread",
    "expert: by key",
    "expert: salted",
    "Steelyard",
)
WAYS = (NEWCOMER, SPREAD, BY_KEY, SALTED, OURS)
EXPERT = (SPREAD, BY_KEY, SALTED)
SALTS = 2
"""Parts that a salted key is cut into: of 2, 4 and 8 the one that is best here."""
SCHEMA = "event_time timestamp, key bigint, value bigint"
RESULT = "window_start timestamp, key bigint, total bigint"
MICROS = 1_000_000


@dataclass(frozen=True)
class Scenario:
    """The work over a stream."""

    work: LookUp
    """What is done with the rows of a key."""
    rows: int
    batches: int
    """Rows of a batch, and batches that count."""
    warm_ups: int = 3
    """Small batches before those that count: they compile plans, and Steelyard learns from them what pays."""
    keys: int = 300
    exponent: float = 1.3
    seed: int = 7
    """Of Zipf's law, by which keys are drawn."""


@dataclass(frozen=True)
class Task:
    """What one task had to do: rows to score, keys to fetch something for, and the seconds it took."""

    rows: int
    keys: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """One batch as one way processed it."""

    way: str
    batch: int
    seconds: float
    """From the batch's rows to its results on disk."""
    tasks: tuple[Task, ...]
    counts: bool
    """False while the way warms up."""
    policy: str = ""
    """What Steelyard chose."""

    @property
    def largest_over_mean(self) -> float:
        """Rows of the largest task over the mean of the slots."""
        return (
            max((task.rows for task in self.tasks), default=0) * SLOTS / max(1, sum(task.rows for task in self.tasks))
        )

    @property
    def fetched(self) -> int:
        """How often something was fetched for a key."""
        return sum(task.keys for task in self.tasks)

    @property
    def longest(self) -> float:
        """Seconds of the longest task: no batch ends sooner."""
        return max((task.seconds for task in self.tasks), default=0.0)


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


def run(way: str, spark: SparkSession, scenario: Scenario, folder: Path, watch: Watch) -> pa.Table:
    """Stream a scenario's input one way; gives its answers, sorted, and calls `watch` after each batch."""
    rows = read_input(spark, folder / "input")
    place = folder / way.replace(": ", "-").replace(" ", "-")
    (_run_steelyard if way == OURS else _run_plain)(way, rows, scenario, place, watch)
    return answers(place / "results", scenario)


def _counts(scenario: Scenario, batch: int) -> bool:
    return scenario.warm_ups <= batch < scenario.warm_ups + scenario.batches


def _run_steelyard(way: str, rows: DataFrame, scenario: Scenario, place: Path, watch: Watch) -> None:
    query = (
        sy.stream(rows)
        .with_watermark("event_time", "0 seconds")
        .group_by("key")
        .window(f"{WINDOW_SECONDS} seconds")
        .agg(total=scenario.work.of("value"))
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
                watch(_of_report(way, report, scenario))
                shown += 1
    finally:
        query.stop()


def _of_report(way: str, report: Progress, scenario: Scenario) -> Measured:
    tasks = tuple(Task(task.rows, task.clusters, task.seconds) for task in report.tasks)
    return Measured(way, report.batch, report.seconds["total"], tasks, _counts(scenario, report.batch), report.policy)


Seen = dict[int, tuple[int, int, float]]
"""Rows, keys and seconds by task."""


class _Added(AccumulatorParam[Seen]):
    """Added up over the calls in a task."""

    def zero(self, value: Seen) -> Seen:
        return {}

    def addInPlace(self, value1: Seen, value2: Seen) -> Seen:  # noqa: N802 - PySpark's name
        for task, (rows, keys, seconds) in value2.items():
            before = value1.get(task, (0, 0, 0.0))
            value1[task] = (before[0] + rows, before[1] + keys, before[2] + seconds)
        return value1


def _noted(log: Accumulator[Seen], rows: int, keys: int, seconds: float) -> None:
    task = TaskContext.get()
    log.add({task.partitionId() if task else 0: (rows, keys, seconds)})


def newcomer(batch: DataFrame, work: LookUp, log: Accumulator[Seen]) -> DataFrame:
    """A function of each key's rows, as the first page of the documentation shows it."""

    def of_group(rows: Any) -> Any:
        import pandas as pd  # noqa: PLC0415 - in the task

        start = time.perf_counter()
        total = work.finish(work.add(work.zero(), rows["value"].to_numpy()))
        _noted(log, len(rows), 1, time.perf_counter() - start)
        began = rows["event_time"].iloc[0].floor(f"{WINDOW_SECONDS}s")
        return pd.DataFrame({"window_start": [began], "key": [rows["key"].iloc[0]], "total": [total]})

    return batch.groupBy("key").applyInPandas(of_group, RESULT)


def expert(way: str, batch: DataFrame, work: LookUp, log: Accumulator[Seen]) -> DataFrame:
    """Two stages by hand: rows spread, hashed or salted; Arrow in the tasks; Spark's own sum of what they give."""

    def of_task(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = [part for part in parts if part.num_rows]
        if not given:
            return
        rows = pa.concat_batches(given)
        start = time.perf_counter()
        codes = pc.dictionary_encode(rows.column("key"))
        order = np.argsort(codes.indices.to_numpy(), kind="stable")
        bounds = np.searchsorted(codes.indices.to_numpy()[order], np.arange(len(codes.dictionary) + 1))
        values = rows.column("value").to_numpy()[order]
        totals = [work.add(work.zero(), values[a:b]) for a, b in itertools.pairwise(bounds)]
        _noted(log, rows.num_rows, len(totals), time.perf_counter() - start)
        window = pa.repeat(rows.column("window_start")[0], len(totals))  # a batch is one window
        columns = [window, codes.dictionary, pa.array(totals, pa.int64())]
        yield pa.record_batch(columns, names=["window_start", "key", "total"])

    salted = batch.withColumn("salt", (F.rand(7) * SALTS).cast("int"))
    moved = {
        SPREAD: lambda: batch.repartition(SLOTS),
        BY_KEY: lambda: batch.repartition(SLOTS, "key"),
        SALTED: lambda: salted.repartition(SLOTS, "key", "salt"),
    }[way]()
    start = F.window("event_time", f"{WINDOW_SECONDS} seconds").start.alias("window_start")
    partial = moved.select(start, "key", "value").mapInArrow(of_task, RESULT)
    return partial.groupBy("window_start", "key").agg(F.sum("total").alias("total"))


def _run_plain(way: str, rows: DataFrame, scenario: Scenario, place: Path, watch: Watch) -> None:
    log: Accumulator[Seen] = rows.sparkSession.sparkContext.accumulator({}, _Added())

    def work(batch: DataFrame, number: int) -> None:
        log.value = {}
        start = time.perf_counter()
        results = newcomer(batch, scenario.work, log) if way == NEWCOMER else expert(way, batch, scenario.work, log)
        results.write.parquet(str(place / "results" / f"batch_id={number}"))
        seconds = time.perf_counter() - start
        tasks = tuple(Task(*log.value[task]) for task in sorted(log.value))
        watch(Measured(way, number, seconds, tasks, _counts(scenario, number)))

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
    """All results of one way: window, key and total, sorted. The window of the one late row is left out."""
    found = ds.dataset(folder, format="parquet").to_table(columns=["window_start", "key", "total"])
    last = (scenario.warm_ups + scenario.batches) * WINDOW_SECONDS * MICROS
    starts = found.column("window_start").cast(pa.timestamp("us", tz="UTC"))
    found = found.set_column(0, "window_start", starts.cast(pa.int64()))
    kept = found.filter(pc.less(found.column("window_start"), last))
    return kept.sort_by([("window_start", "ascending"), ("key", "ascending")]).combine_chunks()
