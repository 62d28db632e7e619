"""Policies on Spark, on the clock: how many rows a second each sustains where slots wait, not compute."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steelyard.bench import charts
from steelyard.bench.aggregate import WrongAnswerError, write_rows
from steelyard.bench.demo_work import LookUp
from steelyard.bench.registry import Run, benchmark
from steelyard.bench.result import Result, Series, Table, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

    from steelyard.spark.microbatch import MicroBatch

SLOTS = 8
WAIT_US = 800.0
"""What a row waits for, in microseconds: a call of a service nearby. Batches then take long beside Spark's jobs."""
KEYS = 2_000
SKEWED, UNIFORM = 1.5, 0.0
HASH = "hash"
POLICIES = (HASH, "prompt", "dalton", "auto", "shuffle", "in_place")
QUICK_POLICIES = (HASH, "prompt", "dalton")
ROWS, QUICK_ROWS = 80_000, 60_000
WARM_UPS = 3
"""Batches of a tenth of the rows: the first has no statistics yet, the second compiles what it did not need."""
BATCHES, QUICK_BATCHES = 5, 2


class Kept:
    """A sink that keeps the newest results, to compare them."""

    def __init__(self) -> None:
        self.newest: pa.Table | None = None

    def write(self, results: DataFrame, batch: int) -> int:
        """Fetch the results."""
        self.newest = results.toArrow()
        return int(self.newest.num_rows)


@dataclass
class Fed:
    """A query that is given the same rows at every batch, each time as a window of its own.

    Parameters
    ----------
    spark, rows
        A session, and the rows of a batch.
    policy
        The partitioner's name.
    checkpoint
        Where state lives.
    """

    spark: SparkSession
    rows: DataFrame
    policy: str
    checkpoint: Path
    batch: int = 0

    def __post_init__(self) -> None:
        self.sink = Kept()
        self.engine = self._engine()

    def _timed(self, every: int = 1) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

        rows = self.rows if every == 1 else self.rows.where(F.pmod("value", F.lit(every)) == 0)
        return rows.withColumn("event_time", F.timestamp_seconds(F.lit(10 * self.batch)))

    def _engine(self) -> MicroBatch:
        import steelyard as sy  # noqa: PLC0415 - loads Spark
        from steelyard.spark.microbatch import MicroBatch  # noqa: PLC0415

        described = (
            sy.stream(self._timed())
            .with_watermark("event_time", "0 seconds")
            .group_by("key")
            .window("10 seconds")
            .agg(total=LookUp(WAIT_US).of("value"))
            .partition_by(self.policy, blocks=SLOTS, buckets=SLOTS)
        )
        return MicroBatch(self.spark, described._bound(), described._settings(), self.sink, str(self.checkpoint))

    def next(self, every: int = 1) -> float:
        """Process a batch, or one row of `every`; gives its seconds, from rows to committed results."""
        report = self.engine.process(self._timed(every), self.batch)
        assert report is not None, "batch numbers go up"
        self.batch += 1
        return report.seconds["total"]

    @property
    def largest_over_mean(self) -> float:
        """Of the last batch that counts, in rows of a task."""
        return self.engine.reports[-2].largest_over_mean

    def answers(self) -> pa.Table:
        """Keys and totals of the newest window that closed."""
        assert self.sink.newest is not None, "a window closed"
        return self.sink.newest.select(["key", "total"]).sort_by("key").combine_chunks()


@dataclass(frozen=True)
class Sustained:
    """What one policy did with one kind of stream."""

    policy: str
    exponent: float
    rows: int
    seconds: Sequence[float]
    largest_over_mean: float

    @property
    def median(self) -> float:
        """Seconds of a batch."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Rows a second that batches of this size keep up with: a batch takes no longer than its rows to arrive."""
        return self.rows / self.median


def sustained(
    spark: SparkSession, folder: Path, exponent: float, policies: Sequence[str], batches: int, run: Run
) -> dict[str, Sustained]:
    """Every policy over the same rows; they take turns, so that a slow moment of the machine hits all of them."""
    rows = spark.read.parquet(str(folder))
    count = rows.count()
    fed = {name: Fed(spark, rows, name, folder.parent / f"{folder.name}-{name}") for name in policies}
    seconds: dict[str, list[float]] = {name: [] for name in policies}
    for turn in run.progress.track(range(WARM_UPS + batches), f"Zipf {exponent:g}"):
        for name, query in fed.items():
            taken = query.next(every=10 if turn < WARM_UPS else 1)
            if turn >= WARM_UPS:
                seconds[name].append(taken)
    for query in fed.values():
        query.next(every=10)  # closes the window of the last batch that counts
    right = fed[policies[0]].answers()
    for name, query in fed.items():
        if not query.answers().equals(right):
            raise WrongAnswerError(f"{name} and {policies[0]} gave different answers over {folder.name}")
    return {n: Sustained(n, exponent, count, seconds[n], fed[n].largest_over_mean) for n in policies}


@benchmark("partition-spark", title="Policies on Spark: rows a second that 8 waiting slots sustain")
def partition_spark(run: Run) -> Result:
    """Rows a second by hash, Prompt, Dalton and others, on the clock, for skewed and for uniform keys."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    policies = QUICK_POLICIES if run.quick else POLICIES
    batches, rows = (QUICK_BATCHES, QUICK_ROWS) if run.quick else (BATCHES, ROWS)
    config = {"spark.driver.memory": "2g", "spark.sql.files.openCostInBytes": "0"}
    spark = sy.session("steelyard bench partition-spark", master=f"local[{SLOTS}]", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[float, dict[str, Sustained]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-partition-") as scratch:
            for exponent in (SKEWED, UNIFORM):
                folder = write_rows(Path(scratch) / f"zipf-{exponent:g}", rows, KEYS, exponent, run.seed)
                found[exponent] = sustained(spark, folder, exponent, policies, batches, run)
    finally:
        spark.stop()
    return result_of(found, batches)


def result_of(found: Mapping[float, Mapping[str, Sustained]], batches: int) -> Result:
    """Rates, and each policy's over hash's."""
    skewed, uniform = found[SKEWED], found[UNIFORM]
    metrics: dict[str, float] = {}
    for name in skewed:
        if name != HASH:
            metrics[f"{name}_vs_hash"] = skewed[name].rate / skewed[HASH].rate
            metrics[f"{name}_vs_hash_uniform"] = uniform[name].rate / uniform[HASH].rate
    metrics |= {f"{name}_rows_a_second": one.rate for name, one in skewed.items()}
    why = (
        f"the largest of {SLOTS} tasks had {skewed[HASH].largest_over_mean:.2f} times the mean rows by hash, so no "
        "policy can gain more than that; what a batch takes beside its tasks is the same for all"
    )
    noise = "both put the same rows into a task; the difference is the plan's join or the routing, and the clock"
    return Result(
        parameters={"slots": SLOTS, "wait_us": WAIT_US, "keys": KEYS, "rows": skewed[HASH].rows, "batches": batches},
        metrics=metrics,
        tables=[_table(found)],
        series=[Series(name, [UNIFORM, SKEWED], [uniform[name].rate, skewed[name].rate]) for name in skewed],
        targets=[
            *(Target(f"{name}_vs_hash", at_least=2.5, explanation=why) for name in ("prompt", "dalton")),
            *(Target(f"{name}_vs_hash_uniform", at_least=0.95, explanation=noise) for name in ("prompt", "dalton")),
        ],
        chart=lambda figure: _draw(figure, found),
        notes=[
            f"Every row waits {WAIT_US:g} microseconds, as for a remote service, in one of {SLOTS} slots: balance "
            "shows on the clock whatever the number of cores.",
            "The sustained rate is rows over the median time of a batch, from its rows to its committed results. All "
            "policies gave the same answers.",
        ],
    )


def _table(found: Mapping[float, Mapping[str, Sustained]]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (one.policy, exponent, one.rate, one.median, min(one.seconds), max(one.seconds), one.largest_over_mean)
        for exponent, policies in found.items()
        for one in policies.values()
    ]
    columns = ("policy", "exponent", "rows a second", "median s", "fastest s", "slowest s", "largest/mean")
    return Table("batches", columns, rows)


def _draw(figure: Figure, found: Mapping[float, Mapping[str, Sustained]]) -> None:
    figure.set_size_inches(12, 4.5)
    for axes, (exponent, policies) in zip(figure.subplots(1, 2), found.items(), strict=True):
        title = "uniform keys" if not exponent else f"Zipf {exponent:g}"
        charts.bars(axes, {n: one.rate for n, one in policies.items()}, title=f"{title}: rows a second sustained")
