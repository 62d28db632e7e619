"""Small batches: what a batch takes here and in plain Structured Streaming, with few keys and with a million."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.bench import Result, Run, Series, Table, Target, WrongAnswerError, charts, experiment, spark_for
from steelyard.bench.environment import cores
from steelyard.core import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MICROS = 1_000_000
WINDOW_SECONDS, LONG_WINDOW_SECONDS = 10, 1_000_000
PLAIN, ROCKSDB, OURS = "plain Spark, default store", "plain Spark, RocksDB", "Steelyard"
WAYS = (PLAIN, ROCKSDB, OURS)
STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA = "key long, value long, at timestamp"
TURNS, QUICK_TURNS = 12, 3
BATCHES_PER_TURN, QUICK_BATCHES_PER_TURN = 10, 4
WARM_UP_TURNS, QUICK_WARM_UP_TURNS = 2, 1
QUICK_CASES = 2
"""Of `CASES`, the first ones: a million keys take most of a minute to begin with, three times."""
CONFIG = {
    "spark.driver.memory": "4g",
    # A batch without rows, which closes windows where no rows come: none here, so that every batch has its rows.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Queries that wait for their turn look for files at times, not all the time.
    "spark.sql.streaming.pollingDelay": "200ms",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}


@dataclass(frozen=True)
class Case:
    """A query and the batches that it is given."""

    name: str
    metric: str
    """What it is called, and the metric of its ratio."""
    rows: int
    keys: int
    """Of a batch: its keys are drawn from so many, each alike."""
    live: int = 0
    """Keys that the first batch brings, each once; 0 where there is no such batch."""
    window: int = 0
    """Seconds of a tumbling window; 0 without one. Every batch is as long as one."""
    mode: str = "append"
    """Output mode."""

    def write(self, folder: Path, batches: int, seed: int) -> Path:
        """The batches' files; one more is the first, where keys are to be live."""
        folder.mkdir(parents=True)
        rng = np.random.default_rng(seed)
        step = WINDOW_SECONDS * MICROS
        for number in range(batches + 1):
            first = number == 0 and self.live > 0
            keys = np.arange(self.live) if first else rng.integers(0, self.keys, self.rows)
            if self.live and not first:  # as many keys as rows, anywhere among all
                keys = rng.choice(self.live, self.rows, replace=False)
            at = number * step + np.sort(rng.integers(0, step, len(keys)))
            columns = {"key": keys, "value": rng.integers(0, 1000, len(keys))}
            table = pa.table({**columns, "at": pa.array(at, pa.timestamp("us", tz="UTC"))})
            file = folder / f"{number:05d}.parquet"
            pq.write_table(table, file)
            os.utime(file, (number + 1, number + 1))  # Spark takes files in the order of their times
        return folder


FEW, MANY, LIVE = 1_000, 100_000, 1_000_000
CASES = (
    Case("1,000 rows, windows", "batch_vs_plain", FEW, 100, window=WINDOW_SECONDS),
    Case("100,000 rows, windows", "batch_vs_plain_100k", MANY, 100, window=WINDOW_SECONDS),
    Case("1,000 of 1,000,000 keys", "batch_vs_plain_1m_keys", FEW, FEW, LIVE, mode="update"),
    Case(
        "1,000 of 1,000,000 keys, windows",
        "batch_vs_plain_1m_keys_windows",
        FEW,
        FEW,
        LIVE,
        window=LONG_WINDOW_SECONDS,
        mode="update",
    ),
)


@dataclass
class Way:
    """One query that runs over a folder of its own, into which files are put when it is its turn."""

    name: str
    case: Case
    folder: Path
    spark: SparkSession
    query: Any = None
    updates: dict[int, pa.Table] = field(default_factory=dict)
    reports: dict[int, Progress] = field(default_factory=dict)
    """Of our own batches."""

    def start(self) -> None:
        """Start the query; it waits for files."""
        (self.folder / "in").mkdir(parents=True)
        for option, value in CONFIG.items():
            if option.startswith("spark.sql.streaming."):
                self.spark.conf.set(option, value)
        if self.name == ROCKSDB:
            self.spark.conf.set(STORE, ROCKSDB_STORE)
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(self.folder / "in"))
        self.query = self._ours(rows) if self.name == OURS else self._plain(rows)

    def _plain(self, rows: DataFrame) -> Any:
        from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

        by: list[Any] = ["key"]
        if self.case.window:
            rows = rows.withWatermark("at", "0 seconds")
            by.append(F.window("at", f"{self.case.window} seconds"))
        found = rows.groupBy(*by).agg(
            F.count(F.lit(1)).alias("n"), F.sum("value").alias("total"), F.max("value").alias("high")
        )
        if self.case.window:
            found = found.select(
                F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), *_VALUES
            )
        writer = found.writeStream.outputMode(self.case.mode).option("checkpointLocation", str(self.folder / "state"))
        if self.case.mode == "append":
            return writer.format("parquet").option("path", str(self.folder / "out")).start()
        return writer.foreachBatch(self._take).start()

    def _ours(self, rows: DataFrame) -> Any:
        import steelyard as sy  # noqa: PLC0415 - loads Spark

        stream = sy.stream(rows).group_by("key")
        stream = stream.agg(n=sy.count(), total=sy.sum("value"), high=sy.max("value")).output_mode(self.case.mode)
        if self.case.window:
            stream = stream.with_watermark("at", "0 seconds").window(f"{self.case.window} seconds")
        if self.case.mode == "append":
            stream = stream.sink("parquet", path=str(self.folder / "out"))
        else:
            stream = stream.sink("foreach_batch", function=self._take)
        return stream.checkpoint(str(self.folder / "state")).start()

    def _take(self, results: DataFrame, batch: int) -> None:
        """What a user's function does with updates: it takes them out of Spark."""
        self.updates[batch] = results.toArrow()

    def give(self, files: Sequence[Path]) -> None:
        """Let the query do these files, one per batch."""
        for file in files:
            os.link(file, self.folder / "in" / file.name)
        if self.name != OURS:
            self.query.processAllAvailable()
            return
        self.query.process_all_available()
        self.reports |= {report.batch: report for report in self.query.recent_progress}

    def seconds(self) -> dict[int, float]:
        """What each batch took, from its trigger to its end, as Spark tells it."""
        query = self.query._query if self.name == OURS else self.query
        told = (one for one in query.recentProgress if one.numInputRows)
        return {one.batchId: one.durationMs["triggerExecution"] / 1000 for one in told}

    def answers(self) -> dict[int, pa.Table]:
        """What it gave: by batch in update mode, all at once where windows are given when they close."""
        if self.case.mode == "update":
            return {batch: _sorted(table) for batch, table in self.updates.items()}
        out = self.spark.read.parquet(str(self.folder / "out")).toArrow()
        return {0: _sorted(out.select(_columns(self.case)))}


_VALUES = ("key", "n", "total", "high")


def _columns(case: Case) -> list[str]:
    return [*(("window_start", "window_end") if case.window else ()), *_VALUES]


def _sorted(table: pa.Table) -> pa.Table:
    """Rows in an order of their own; without the schema, since Spark knows that its count is never null."""
    by = [(name, "ascending") for name in table.column_names if name in ("window_start", "key")]
    table = table.combine_chunks().sort_by(by)
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)))


def require_same(ways: Mapping[str, Way]) -> int:
    """The number of results that all ways gave; WrongAnswerError where they are not the same.

    Plain Spark gives the windows that a batch closes with the batch that follows: only what it gave is compared.
    """
    found = {name: way.answers() for name, way in ways.items()}
    for name, expected in found.items():
        if name == OURS:
            continue
        for batch, right in expected.items():
            given = found[OURS].get(batch)
            if given is not None and given.num_rows != right.num_rows and ways[name].case.mode == "append":
                last = right.column("window_start")[-1]
                given = given.filter(pa.compute.less_equal(given.column("window_start"), last))
            if given is None or not given.equals(right):
                raise WrongAnswerError(f"{OURS} and {name} gave different answers: {ways[name].case.name}")
    return sum(table.num_rows for table in found[PLAIN].values())


@dataclass(frozen=True)
class Measured:
    """What one way's batches took, in seconds; `phases` are ours alone."""

    case: Case
    way: str
    seconds: tuple[float, ...]
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Of a batch."""
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        """Of a batch, with those in which state is put together."""
        return statistics.fmean(self.seconds)


@dataclass(frozen=True)
class Plan:
    """How many batches each way gets, and how many of them warm it up."""

    turns: int
    per_turn: int
    warm_ups: int


def measure(
    spark: SparkSession, case: Case, scratch: Path, plan: Plan, seed: int, names: Sequence[str] = WAYS
) -> dict[str, Measured]:
    """What a batch takes in each way; they take turns, and each turn another begins."""
    files = sorted(case.write(scratch / "files", plan.turns * plan.per_turn, seed).iterdir())
    ways = {name: Way(name, case, scratch / str(number), spark.newSession()) for number, name in enumerate(names)}
    try:
        for way in ways.values():
            way.start()
            way.give(files[:1])
        for turn in range(plan.turns):
            ahead = turn % len(ways)
            for name in [*names[ahead:], *names[:ahead]]:
                ways[name].give(files[1 + turn * plan.per_turn :][: plan.per_turn])
        require_same(ways)
        first = 1 + plan.warm_ups * plan.per_turn
        return {name: _measured(way, first) for name, way in ways.items()}
    finally:
        for way in ways.values():
            if way.query is not None:
                way.query.stop()
        shutil.rmtree(scratch)


def _measured(way: Way, first: int) -> Measured:
    seconds = tuple(taken for batch, taken in sorted(way.seconds().items()) if batch >= first)
    reports = [report for batch, report in way.reports.items() if batch >= first]
    names = dict.fromkeys(name for report in reports for name in report.seconds)
    phases = {name: statistics.median(report.seconds.get(name, 0.0) for report in reports) for name in names}
    return Measured(way.case, way.name, seconds, phases)


@experiment("small-batches", title="What a small batch takes, beside plain Structured Streaming")
def small_batches(run: Run) -> Result:
    """Seconds of batches of 1,000 and 100,000 rows, and of updates of 1,000 among a million keys."""

    full, quick = (TURNS, BATCHES_PER_TURN, WARM_UP_TURNS), (QUICK_TURNS, QUICK_BATCHES_PER_TURN, QUICK_WARM_UP_TURNS)
    plan = Plan(*run.pick(full, quick))
    slots = cores()
    config = {**CONFIG, "spark.sql.shuffle.partitions": str(slots)}
    found: list[Measured] = []
    with spark_for("small-batches", slots, config) as (spark, scratch):
        for number, case in enumerate(run.progress.track(CASES[:QUICK_CASES] if run.quick else CASES, "cases")):
            run.progress.say(case.name)
            found += measure(spark, case, scratch / str(number), plan, run.seed).values()
    return result_of(found, plan, slots)


def result_of(found: Sequence[Measured], plan: Plan, slots: int) -> Result:
    """Ratios of times, each against the faster of plain Spark's two stores."""
    metrics: dict[str, float] = {}
    targets = []
    for case in dict.fromkeys(one.case for one in found):
        ways = {one.way: one for one in found if one.case == case}
        ours, theirs = ways[OURS], min((ways[PLAIN], ways[ROCKSDB]), key=lambda one: one.median)
        metrics[case.metric] = ours.median / theirs.median
        metrics[f"{case.metric}_mean"] = ours.mean / min(ways[PLAIN].mean, ways[ROCKSDB].mean)
        shown = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in ours.phases.items())
        why = f"a batch took {ours.median:.3f} s and {theirs.median:.3f} s in {theirs.way}; our phases: {shown}"
        targets.append(Target(case.metric, at_most=1.1, explanation=why))
    columns = ("case", "way", "batches", "median s", "mean s", "longest s")
    rows = [(m.case.name, m.way, len(m.seconds), m.median, m.mean, max(m.seconds)) for m in found]
    phases = [(m.case.name, name, taken) for m in found if m.way == OURS for name, taken in m.phases.items()]
    return Result(
        parameters={
            "batches": plan.turns * plan.per_turn,
            "warm_up_batches": plan.warm_ups * plan.per_turn,
            "slots": slots,
            "shuffle_partitions": slots,
            "window_s": WINDOW_SECONDS,
            "live_keys": LIVE,
        },
        metrics=metrics,
        tables=[
            Table("seconds of a batch", columns, rows),
            Table("our phases, median", ("case", "phase", "s"), phases),
        ],
        series=[Series(f"{m.case.name}: {m.way}", list(range(len(m.seconds))), list(m.seconds)) for m in found],
        targets=targets,
        notes=[
            "batch_vs_plain… is time here over time in plain Spark, with the faster of its two state stores: below 1 "
            "we are faster. …_mean is the same of means, in which the batches are that put state together.",
            "A batch is one file, and its time is that of Spark's trigger, from looking for files to the commit. The "
            "ways take turns, and their answers are compared.",
            "Windows are given to Parquet files when they close, one for each batch; updates go to a function that "
            "takes them as Arrow.",
        ],
    )


@small_batches.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The median time of a batch in each way, by case."""
    rows = result.tables[0].records()
    cases = list(dict.fromkeys(row["case"] for row in rows))
    for axes, case in zip(charts.panels(figure, len(cases), (6.5 * len(cases), 4.5)), cases, strict=True):
        taken = {row["way"]: row["median s"] for row in rows if row["case"] == case}
        charts.bars(axes, taken, title=case, x="median time of a batch, s", y="engine and its store", ours=(OURS,))
