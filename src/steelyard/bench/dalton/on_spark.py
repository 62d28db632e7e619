"""Policies on Spark, on the clock: how many rows per second each sustains where slots wait, not compute."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Series, Table, Target, WrongAnswerError, charts, experiment, spark_for
from steelyard.bench.demo.work import LookUp
from steelyard.bench.engine.aggregate import write_rows
from steelyard.bench.prompt.plus_techniques import Waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from steelyard.spark.microbatch import MicroBatch

SLOTS = 8
WAIT_US = 800.0
"""What a row waits for, in microseconds: a call of a service nearby. Batches then take long beside Spark's jobs."""
SHORTER_US = (100.0, 250.0)
"""Waits that a full run also tries: the shorter, the more of a batch is Spark's jobs, which no policy changes."""
KEYS = 2_000
ROW = "key bigint, value bigint"
SKEWED, UNIFORM = 1.5, 0.0
HASH = "hash"
EXPERT, NEWCOMER = "expert", "newcomer"
PLAIN = (EXPERT, NEWCOMER)
"""Plain Spark's: rows spread by `repartition`, mapped, and summed in the JVM; and one function of each key's rows."""
POLICIES = (HASH, "prompt", "dalton", "auto", "shuffle", "in_place", *PLAIN)
SHORTER_POLICIES = (HASH, "prompt", "dalton")
QUICK_POLICIES = (HASH, "prompt", EXPERT)
ROWS, QUICK_ROWS = 80_000, 24_000
WARM_UPS, QUICK_WARM_UPS = 3, 2
"""Batches of a tenth of the rows: the first has no statistics yet, the second compiles what it did not need."""
BATCHES, QUICK_BATCHES = 3, 1
EXPONENTS, QUICK_EXPONENTS = (SKEWED, UNIFORM), (SKEWED,)
"""The small batches of a quick run are Spark's jobs for the most part: with uniform keys their ratio tells nothing."""


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
    """A query that is given new rows of the same law at every batch, each time as a window of its own."""

    spark: SparkSession
    folders: Sequence[Path]
    """A session, and where the rows of each batch are."""
    policy: str
    """The partitioner's name."""
    wait_us: float
    """What a row waits."""
    checkpoint: Path
    """Where state lives."""
    batch: int = 0

    def __post_init__(self) -> None:
        self.sink = Kept()
        self.engine = self._engine()

    def _rows(self) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

        rows = self.spark.read.schema(ROW).parquet(str(self.folders[self.batch]))
        return rows.withColumn("event_time", F.timestamp_seconds(F.lit(10 * self.batch)))

    def _engine(self) -> MicroBatch:
        import steelyard as sy  # noqa: PLC0415 - loads Spark
        from steelyard.spark.microbatch import MicroBatch  # noqa: PLC0415

        described = (
            sy.stream(self._rows())
            .with_watermark("event_time", "0 seconds")
            .group_by("key")
            .window("10 seconds")
            .agg(total=LookUp(self.wait_us).of("value"))
            .partition_by(self.policy, blocks=SLOTS, buckets=SLOTS)
        )
        return MicroBatch(self.spark, described._bound(), described._settings(), self.sink, str(self.checkpoint))

    def next(self) -> float:
        """Process the next batch; gives its seconds, from rows to committed results."""
        report = self.engine.process(self._rows(), self.batch)
        assert report is not None, "batch numbers go up"
        self.batch += 1
        return report.seconds["total"]

    @property
    def largest_over_mean(self) -> float:
        """Of the last batch that counts, in rows of a task."""
        return float(self.engine.feed.progress[-2].largest_over_mean)

    def answers(self) -> pa.Table:
        """Keys and totals of the newest window that closed."""
        assert self.sink.newest is not None, "a window closed"
        return self.sink.newest.select(["key", "total"]).sort_by("key").combine_chunks()


@dataclass
class Plain:
    """The same rows and waits on plain Spark, a job for each batch: no state, no window that must close."""

    spark: SparkSession
    folders: Sequence[Path]
    way: str
    """`EXPERT` or `NEWCOMER`."""
    wait_us: float
    batch: int = 0
    largest_over_mean: float = float("nan")
    """Spark does not say."""

    def __post_init__(self) -> None:
        self.found: list[pa.Table] = []

    def _sums(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

        seconds = self.wait_us / 1e6
        if self.way == EXPERT:
            waited = Waiting(seconds)
            spread = rows.repartition(SLOTS).mapInArrow(lambda parts: map(waited, parts), ROW)
            return spread.groupBy("key").agg(F.sum("value").alias("total"))

        def total(group: Any) -> Any:
            time.sleep(len(group) * seconds)
            return group.groupby("key", as_index=False).agg(total=("value", "sum"))

        return rows.groupBy("key").applyInPandas(total, "key bigint, total bigint")

    def next(self) -> float:
        """Process the next batch; gives its seconds, from rows to results."""
        begun = time.perf_counter()
        found = self._sums(self.spark.read.schema(ROW).parquet(str(self.folders[self.batch]))).toArrow()
        taken = time.perf_counter() - begun
        self.found.append(pa.table(dict(zip(found.column_names, found.columns, strict=True))))
        self.batch += 1
        return taken

    def answers(self) -> pa.Table:
        """Keys and totals of the batch before the newest."""
        return self.found[-2].select(["key", "total"]).sort_by("key").combine_chunks()


@dataclass(frozen=True)
class Sustained:
    """What one policy did with one kind of stream."""

    policy: str
    exponent: float
    wait_us: float
    rows: int
    seconds: Sequence[float]
    largest_over_mean: float

    @property
    def median(self) -> float:
        """Seconds of a batch."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Rows per second that batches of this size keep up with: a batch takes no longer than its rows to arrive."""
        return self.rows / self.median


class Shape(NamedTuple):
    """What a stream is like: its skew, what a row waits, the rows of a batch, and how many small ones come first."""

    exponent: float
    wait_us: float
    rows: int
    warm_ups: int = WARM_UPS


def write_batches(folder: Path, shape: Shape, batches: int, seed: int) -> list[Path]:
    """Rows of each batch: a few small ones to warm up, those that count, and a small one that closes their window."""
    few = shape.rows // 10
    sizes = [few] * shape.warm_ups + [shape.rows] * batches + [few]
    firsts = np.r_[0, np.cumsum(sizes)]
    return [
        write_rows(folder / str(number), size, KEYS, shape.exponent, seed, first=int(first), files=SLOTS)
        for number, (size, first) in enumerate(zip(sizes, firsts, strict=False))
    ]


def sustained(
    spark: SparkSession, folder: Path, folders: Sequence[Path], shape: Shape, policies: Sequence[str], run: Run
) -> dict[str, Sustained]:
    """Every policy over the same rows; they take turns, so that a slow moment of the machine hits all of them."""
    exponent, wait_us, count, warm_ups = shape
    fed: dict[str, Fed | Plain] = {
        name: Plain(spark, folders, name, wait_us)
        if name in PLAIN
        else Fed(spark, folders, name, wait_us, folder / f"{name}-{wait_us:g}")
        for name in policies
    }
    seconds: dict[str, list[float]] = {name: [] for name in policies}
    last = len(folders) - 1
    for turn in run.progress.track(range(last), f"Zipf {exponent:g}, {wait_us:g} us per row"):
        for name, query in fed.items():
            taken = query.next()
            if turn >= warm_ups:
                seconds[name].append(taken)
    for query in fed.values():
        query.next()  # closes the window of the last batch that counts
    right = fed[policies[0]].answers()
    for name, query in fed.items():
        if not query.answers().cast(right.schema).equals(right):
            raise WrongAnswerError(f"{name} and {policies[0]} gave different answers over {folder.name}")
    return {n: Sustained(n, exponent, wait_us, count, seconds[n], fed[n].largest_over_mean) for n in policies}


@experiment("partition-spark", title="Policies on Spark: rows per second that 8 waiting slots sustain")
def partition_spark(run: Run) -> Result:
    """Rows per second by hash, Prompt, Dalton and others, on the clock, for skewed and for uniform keys."""

    policies = QUICK_POLICIES if run.quick else POLICIES
    batches, rows = (QUICK_BATCHES, QUICK_ROWS) if run.quick else (BATCHES, ROWS)
    warm_ups = QUICK_WARM_UPS if run.quick else WARM_UPS
    # Partitions may have 8/6 of a file: none is cut, none joins another, and rows in place keep every slot busy.
    files = {"spark.sql.files.openCostInBytes": "0", "spark.sql.files.minPartitionNum": str(SLOTS - 2)}
    # Plain Spark would put what is few bytes into one task, and its newcomer's way would have no slots beside it.
    shuffle = {
        "spark.sql.shuffle.partitions": str(SLOTS),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    config = {"spark.driver.memory": "2g", **files, **shuffle}
    found: dict[float, dict[str, Sustained]] = {}
    shorter: list[dict[str, Sustained]] = []
    with spark_for("partition-spark", SLOTS, config) as (spark, scratch):
        for exponent in QUICK_EXPONENTS if run.quick else EXPONENTS:
            folder = scratch / f"zipf-{exponent:g}"
            shape = Shape(exponent, WAIT_US, rows, warm_ups)
            folders = write_batches(folder, shape, batches, run.seed)
            if exponent == SKEWED and not run.quick:
                shorter = [
                    sustained(spark, folder, folders, shape._replace(wait_us=wait), SHORTER_POLICIES, run)
                    for wait in SHORTER_US
                ]
            found[exponent] = sustained(spark, folder, folders, shape, policies, run)
    return result_of(found, shorter, batches)


def result_of(
    found: Mapping[float, Mapping[str, Sustained]], shorter: Sequence[Mapping[str, Sustained]], batches: int
) -> Result:
    """Rates, and each policy's over hash's, for the exponents that were tried."""
    skewed = found[SKEWED]
    metrics: dict[str, float] = {}
    for name in skewed:
        for ending, one in (("", skewed), ("_uniform", found.get(UNIFORM))):
            if one and name != HASH:
                metrics[f"{name}_vs_hash{ending}"] = one[name].rate / one[HASH].rate
            if one and name not in PLAIN and EXPERT in one:
                metrics[f"{name}_vs_expert{ending}"] = one[name].rate / one[EXPERT].rate
    for one in shorter:
        for name in [name for name in one if name != HASH]:
            metrics[f"{name}_vs_hash_{one[name].wait_us:g}us"] = one[name].rate / one[HASH].rate
    metrics |= {f"{name}_rows_a_second": one.rate for name, one in skewed.items()}
    why = (
        f"the largest of {SLOTS} tasks had {skewed[HASH].largest_over_mean:.2f} times the mean rows by hash, so no "
        "policy can gain more than that; what a batch takes beside its tasks is the same for all"
    )
    beside = (
        "both spread rows evenly, but an expert's way keeps no state and commits nothing, and moves rows without "
        "counts of keys: what a batch takes beside its waits"
    )
    noise = "both put about as many rows into a task; the difference is the plan's join or the routing, and the clock"
    targets = [
        *(Target(f"{name}_vs_hash", at_least=2.5, explanation=why) for name in ("prompt", "dalton")),
        Target("prompt_vs_expert", at_least=0.95, explanation=beside),
        *(Target(f"{name}_vs_hash_uniform", at_least=0.95, explanation=noise) for name in ("prompt", "dalton")),
    ]
    return Result(
        parameters={"slots": SLOTS, "wait_us": WAIT_US, "keys": KEYS, "rows": skewed[HASH].rows, "batches": batches},
        metrics=metrics,
        tables=[_table([*shorter, *found.values()])],
        series=[Series(name, sorted(found), [found[one][name].rate for one in sorted(found)]) for name in skewed],
        targets=[target for target in targets if target.metric in metrics],
        notes=[
            f"Every row waits {WAIT_US:g} microseconds, as for a remote service, in one of {SLOTS} slots: balance "
            "shows on the clock whatever the number of cores.",
            "Every batch has new rows of the same law. The sustained rate is rows over the median time of a batch, "
            "from its rows to its committed results. All policies gave the same answers.",
            f"{EXPERT}: plain Spark with repartition({SLOTS}), mapInArrow and Spark's own sum; {NEWCOMER}: groupBy and "
            "applyInPandas. Both are a job for each batch, with results collected, no state and no commit. The expert "
            "can spread rows because waiting asks nothing of a key: a function of all rows of a key would need them "
            "together.",
        ],
    )


def _table(found: Sequence[Mapping[str, Sustained]]) -> Table:
    return Table.of(
        "batches",
        [
            {
                "policy": one.policy,
                "exponent": one.exponent,
                "wait us": one.wait_us,
                "rows a second": one.rate,
                "median s": one.median,
                "fastest s": min(one.seconds),
                "slowest s": max(one.seconds),
                "largest/mean": one.largest_over_mean,
            }
            for policies in found
            for one in policies.values()
        ],
    )


@partition_spark.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Rates that are sustained, with uniform and with skewed keys."""
    batches = [one for one in result.tables[0].records() if one["wait us"] == WAIT_US]
    exponents = sorted({one["exponent"] for one in batches}, reverse=True)
    for axes, exponent in zip(charts.panels(figure, len(exponents), (12, 4.5)), exponents, strict=True):
        rates = {one["policy"]: one["rows a second"] for one in batches if one["exponent"] == exponent}
        title = f"Zipf {exponent:g}" if exponent else "Uniform keys"
        charts.bars(axes, rates, title=title, x="rows per second, sustained", y="policy")
