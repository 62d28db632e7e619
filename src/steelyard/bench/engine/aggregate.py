"""One grouped aggregation, nine ways: plain Spark's and those of an expert in it, beside Steelyard's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.bench import Result, Run, Series, Table, Target, WrongAnswerError, charts, experiment, spark_for
from steelyard.bench.environment import cores
from steelyard.spark.aggregator import Aggregator
from steelyard.workloads.zipf import Zipf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
FILES = 4
WARM_UP_ROWS, WARM_UP_KEYS = 50_000, 100
KEYS = (20_000, 200_000)
EXPONENTS = (0.8, 1.2, 1.6)
HEADLINE = (20_000, 1.2)

LARGE = (200_000, 1.2)

PANDAS, ARROW, GROUPED = "applyInPandas", "applyInArrow", "grouped pandas UDF"
BY_HAND, OURS = "two stages by hand, Python", "Steelyard, Python"
BY_HAND_ARROW, OURS_BLOCK = "two stages by hand, Arrow", "Steelyard, Python blocks"
JVM, OURS_BUILTIN = "plain Spark, built-in", "Steelyard, built-in"
OFTEN = (ARROW, GROUPED, BY_HAND, OURS, BY_HAND_ARROW, OURS_BLOCK)
"""Ways that are compared with each other, and run equally often."""
REPETITIONS = {PANDAS: 1} | dict.fromkeys(OFTEN, 11) | {JVM: 15, OURS_BUILTIN: 15}
QUICK_REPETITIONS = {PANDAS: 1} | dict.fromkeys(OFTEN, 3) | {JVM: 9, OURS_BUILTIN: 9}
WARM_UPS = {PANDAS: 1} | dict.fromkeys(OFTEN, 2) | {JVM: 2, OURS_BUILTIN: 2}
QUICK_WARM_UPS = dict.fromkeys(WARM_UPS, 1)
RARELY = f"{PANDAS} runs once for each case, since it takes up to a hundred seconds: it is slower by tens of times"
SPREAD = "key bigint, spread bigint"
ENDS = "key bigint, low bigint, high bigint"
LARGEST = 2**63 - 1

Frame = Callable[["DataFrame"], "DataFrame"]


class Spread(Aggregator):
    """Largest minus smallest value."""

    state: ClassVar[str] = "low bigint, high bigint"
    result: ClassVar[str] = "bigint"

    def zero(self) -> tuple[int, int]:
        """No rows: nothing is smaller or larger."""
        return LARGEST, -LARGEST - 1

    def add(self, state: tuple[int, int], *columns: Any) -> tuple[int, int]:
        """Add a slice of rows."""
        return min(state[0], int(columns[0].min())), max(state[1], int(columns[0].max()))

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        """The wider of both."""
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, state: tuple[int, int]) -> int:
        """The width."""
        return state[1] - state[0]


class BlockSpread(Spread):
    """The same, in the form of all keys of a block too."""

    def add_block(self, columns: Any, offsets: Any) -> tuple[Any, Any]:
        """The ends of each key's values."""
        (values,) = columns
        return np.minimum.reduceat(values, offsets[:-1]), np.maximum.reduceat(values, offsets[:-1])

    def merge_block(self, states: Any, offsets: Any) -> tuple[Any, Any]:
        """The widest of each key's."""
        low, high = states
        return np.minimum.reduceat(low, offsets[:-1]), np.maximum.reduceat(high, offsets[:-1])

    def finish_block(self, states: Any) -> Any:
        """The widths."""
        return states[1] - states[0]


def in_pandas(rows: DataFrame) -> DataFrame:
    """Plain Spark: a function of each group, as pandas."""

    def spread(group: Any) -> Any:
        import pandas as pd  # noqa: PLC0415 - in the task

        values = group["value"]
        return pd.DataFrame({"key": [group["key"].iloc[0]], "spread": [values.max() - values.min()]})

    return rows.groupBy("key").applyInPandas(spread, SPREAD)


def in_arrow(rows: DataFrame) -> DataFrame:
    """Plain Spark: a function of each group, as Arrow."""

    def spread(group: pa.Table) -> pa.Table:
        import pyarrow.compute as pc  # noqa: PLC0415 - in the task

        ends = pc.min_max(group.column("value"))
        width = ends["max"].as_py() - ends["min"].as_py()
        return pa.table({"key": group.column("key").slice(0, 1), "spread": pa.array([width], pa.int64())})

    return rows.groupBy("key").applyInArrow(spread, SPREAD)


def in_grouped_udf(rows: DataFrame) -> DataFrame:
    """Plain Spark: an aggregate function over each group's values, as pandas."""
    import pandas as pd  # noqa: PLC0415
    from pyspark.sql.pandas.functions import pandas_udf  # noqa: PLC0415

    def spread(values: Any) -> Any:
        return int(values.max() - values.min())

    spread.__annotations__ = {"values": pd.Series, "return": int}
    made: Any = pandas_udf
    return rows.groupBy("key").agg(made(spread, "bigint")("value").alias("spread"))


def by_hand(rows: DataFrame) -> DataFrame:
    """An expert's own two stages on plain Spark: partitions are sorted by key, and each key is a Python call."""

    def groups(table: pa.Table) -> tuple[Any, Any, list[tuple[int, int]]]:
        key = table.column("key").to_numpy()
        order = np.argsort(key, kind="stable")
        key = key[order]
        starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        bounds = [*starts.tolist(), len(key)]
        return key[starts], order, list(pairwise(bounds))

    def ends_of(values: Any) -> tuple[int, int]:
        return int(values.min()), int(values.max())

    def width_of(low: Any, high: Any) -> int:
        return int(high.max() - low.min())

    def first(parts: Any) -> Any:
        table = pa.Table.from_batches(list(parts))
        key, order, bounds = groups(table)
        values = table.column("value").to_numpy()[order]
        found = [ends_of(values[start:end]) for start, end in bounds]
        low, high = zip(*found, strict=True)
        yield pa.RecordBatch.from_pydict({"key": key, "low": low, "high": high})

    def second(parts: Any) -> Any:
        table = pa.Table.from_batches(list(parts))
        key, order, bounds = groups(table)
        low, high = (table.column(name).to_numpy()[order] for name in ("low", "high"))
        yield pa.RecordBatch.from_pydict({"key": key, "spread": [width_of(low[a:b], high[a:b]) for a, b in bounds]})

    return rows.mapInArrow(first, ENDS).repartition(cores(), "key").mapInArrow(second, SPREAD)


def by_hand_in_arrow(rows: DataFrame) -> DataFrame:
    """The same with Arrow's own grouped kernels in both stages: no Python call per key."""

    def grouped(parts: Any, *asked: tuple[str, str]) -> pa.Table:
        return pa.Table.from_batches(list(parts)).group_by("key", use_threads=False).aggregate(list(asked))

    def first(parts: Any) -> Any:
        found = grouped(parts, ("value", "min"), ("value", "max"))
        yield from found.select(["key", "value_min", "value_max"]).rename_columns(["key", "low", "high"]).to_batches()

    def second(parts: Any) -> Any:
        import pyarrow.compute as pc  # noqa: PLC0415 - in the task

        found = grouped(parts, ("low", "min"), ("high", "max"))
        width = pc.subtract(found.column("high_max"), found.column("low_min"))
        yield from pa.table({"key": found.column("key"), "spread": width}).to_batches()

    return rows.mapInArrow(first, ENDS).repartition(cores(), "key").mapInArrow(second, SPREAD)


def in_steelyard(rows: DataFrame, spread: Aggregator | None = None) -> DataFrame:
    """Steelyard: the same as an aggregate of two stages."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    return sy.stream(rows).group_by("key").agg(spread=(spread or Spread()).of("value")).to_df()


def in_steelyard_blocks(rows: DataFrame) -> DataFrame:
    """Steelyard: the same, all keys of a block at once."""
    return in_steelyard(rows, BlockSpread())


def in_jvm(rows: DataFrame) -> DataFrame:
    """Plain Spark: four of its own aggregates."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    return rows.groupBy("key").agg(
        F.count("*").alias("n"),
        F.sum("value").alias("total"),
        F.min("value").alias("low"),
        F.max("value").alias("high"),
    )


def in_steelyard_builtin(rows: DataFrame) -> DataFrame:
    """Steelyard: the same four."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    stream = sy.stream(rows).group_by("key")
    return stream.agg(n=sy.count(), total=sy.sum("value"), low=sy.min("value"), high=sy.max("value")).to_df()


WAYS: Mapping[str, Frame] = {
    PANDAS: in_pandas,
    ARROW: in_arrow,
    GROUPED: in_grouped_udf,
    BY_HAND: by_hand,
    OURS: in_steelyard,
    BY_HAND_ARROW: by_hand_in_arrow,
    OURS_BLOCK: in_steelyard_blocks,
    JVM: in_jvm,
    OURS_BUILTIN: in_steelyard_builtin,
}


@dataclass(frozen=True)
class Case:
    """Median seconds of each way, for one number of keys and one skew."""

    keys: int
    exponent: float
    distinct: int
    seconds: Mapping[str, float]
    tasks: int
    """In which the rows are read, by all ways."""


def write_rows(
    folder: Path, rows: int, keys: int, exponent: float, seed: int, *, first: int = 0, files: int = FILES
) -> Path:
    """Rows by Zipf's law from row `first` of the stream on, with whole-number values, in a few Parquet files."""
    folder.mkdir(parents=True)
    law = Zipf(exponent, keys, seed=seed)
    bounds = first + np.linspace(0, rows, files + 1).astype(int)
    for number, (start, end) in enumerate(pairwise(bounds)):
        drawn = law.rows(int(start), int(end - start), np.zeros(end - start, np.int64))
        values = (drawn.column("value").to_numpy() * 1e9).astype(np.int64)
        pq.write_table(pa.table({"key": drawn.column("key"), "value": values}), folder / f"{number}.parquet")
    return folder


def map_tasks(spark: SparkSession, folder: Path) -> int:
    """In how many tasks Spark reads the files of a folder, whatever comes behind."""
    return int(spark.read.parquet(str(folder)).rdd.getNumPartitions())


def time_case(spark: SparkSession, folder: Path, repetitions: Mapping[str, int]) -> tuple[dict[str, float], int]:
    """Median seconds of each way over the rows of a folder, and the number of distinct keys.

    The ways take turns, so that a slow moment of the machine hits all of them, and each turn another begins, so
    that none always has the same one before it. Every run of every way is compared.
    """
    rows = spark.read.parquet(str(folder))
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    right: dict[tuple[str, ...], tuple[str, pa.Table]] = {}
    for turn in range(max(repetitions.values())):
        running = [name for name in WAYS if turn < repetitions[name]]
        ahead = turn % len(running)
        for name in running[ahead:] + running[:ahead]:
            frame = WAYS[name]
            clock = time.perf_counter()
            answer = frame(rows).toArrow()
            taken[name].append(time.perf_counter() - clock)
            # Without the schema: Spark knows that its count is never null, which is no part of the answer.
            answer = pa.table(dict(zip(answer.column_names, answer.sort_by("key").columns, strict=True)))
            first, expected = right.setdefault(tuple(answer.column_names), (name, answer))
            if not answer.equals(expected):
                raise WrongAnswerError(f"{name} and {first} gave different answers over {folder.name}")
    distinct = next(iter(right.values()))[1].num_rows
    return {name: statistics.median(times) for name, times in taken.items()}, distinct


@experiment("aggregate", title="One grouped aggregation: plain Spark's ways beside Steelyard's")
def aggregate(run: Run) -> Result:
    """Seconds of plain Spark's ways, and of two stages by hand, over a million rows, beside ours."""

    repetitions = QUICK_REPETITIONS if run.quick else REPETITIONS
    sizes = [HEADLINE] if run.quick else [(keys, exponent) for keys in KEYS for exponent in EXPONENTS]
    slots = cores()
    config = {"spark.sql.shuffle.partitions": str(slots), "spark.driver.memory": "2g"}
    cases = {}
    with spark_for("aggregate", slots, config) as (spark, scratch):
        run.progress.say("warming up")
        few = write_rows(scratch / "few", WARM_UP_ROWS, WARM_UP_KEYS, 1.2, run.seed)
        time_case(spark, few, QUICK_WARM_UPS if run.quick else WARM_UPS)
        for keys, exponent in run.progress.track(sizes, "aggregate"):
            run.progress.say(f"{keys:,} keys, exponent {exponent}")
            folder = write_rows(scratch / f"{keys}-{exponent}", ROWS, keys, exponent, run.seed)
            seconds, distinct = time_case(spark, folder, repetitions)
            cases[keys, exponent] = Case(keys, exponent, distinct, seconds, map_tasks(spark, folder))
    return result_of(cases, repetitions, slots)


def result_of(cases: Mapping[tuple[int, float], Case], repetitions: Mapping[str, int], slots: int) -> Result:
    """The figures of the headline's case, with the others behind them."""
    headline = cases[HEADLINE]
    seconds = headline.seconds
    metrics = {
        "block_vs_two_stages": seconds[BY_HAND_ARROW] / seconds[OURS_BLOCK],
        "python_vs_two_stages": seconds[BY_HAND] / seconds[OURS],
        "python_vs_grouped_udf": seconds[GROUPED] / seconds[OURS],
        "python_vs_apply_in_pandas": seconds[PANDAS] / seconds[OURS],
        "python_vs_apply_in_arrow": seconds[ARROW] / seconds[OURS],
        "builtin_slowdown": seconds[OURS_BUILTIN] / seconds[JVM],
        "apply_in_pandas_s": seconds[PANDAS],
        "apply_in_arrow_s": seconds[ARROW],
        "grouped_udf_s": seconds[GROUPED],
        "two_stages_python_s": seconds[BY_HAND],
        "python_s": seconds[OURS],
        "two_stages_arrow_s": seconds[BY_HAND_ARROW],
        "block_s": seconds[OURS_BLOCK],
        "plain_builtin_s": seconds[JVM],
        "builtin_s": seconds[OURS_BUILTIN],
    }
    if LARGE in cases:
        large = cases[LARGE].seconds
        metrics["block_vs_two_stages_200k"] = large[BY_HAND_ARROW] / large[OURS_BLOCK]
    return Result(
        parameters={
            "rows": ROWS,
            "keys": headline.keys,
            "zipf_exponent": headline.exponent,
            "distinct_keys": headline.distinct,
            "slots": slots,
            "map_tasks": headline.tasks,
            "repetitions": dict(repetitions),
        },
        metrics=metrics,
        tables=[_table(cases)],
        series=_series(cases),
        targets=_targets(headline, LARGE in cases),
        notes=[
            "python_vs_... is the speed of a Python aggregate here, one call per key, over that of another way; "
            "block_vs_two_stages is the speed of the form of all keys of a block over two stages with Arrow's kernels; "
            "builtin_slowdown is time here over time in plain Spark for count, sum, min and max.",
            "All ways gave the same answers. After a warm-up of all they took turns, as often as the parameters say; "
            f"times are medians, with results collected as Arrow. {RARELY}.",
            f"Rows stay where they are read: Spark reads the {FILES} files in {headline.tasks} tasks for every way, "
            "which are even blocks already, and keys combine in each.",
        ],
    )


def _targets(headline: Case, large: bool) -> list[Target]:
    """What is aimed at, with the words for a miss."""
    seconds = headline.seconds
    floor = (
        f"one Python call for each of {headline.distinct:,} keys in each partition, on top of a job that takes plain "
        f"Spark {seconds[JVM]:.2f} s in the JVM, is what is left of {seconds[OURS]:.2f} s"
    )
    alike = (
        f"the plan is plain Spark's with a test for null keys before it: {seconds[OURS_BUILTIN]:.2f} s against "
        f"{seconds[JVM]:.2f} s; a difference of hundredths of a second between jobs this short varies from run to run"
    )
    close = (
        f"both ways read the same rows into Python, which takes most of their {seconds[OURS_BLOCK]:.2f} s and "
        f"{seconds[BY_HAND_ARROW]:.2f} s; ours checks keys for null, and plans a job of more columns"
    )
    blocks = ["block_vs_two_stages", *(["block_vs_two_stages_200k"] if large else [])]
    return [
        *(Target(name, at_least=1.0, explanation=close) for name in blocks),
        Target("python_vs_two_stages", at_least=1.2, explanation=floor),
        Target("python_vs_grouped_udf", at_least=3, explanation=floor),
        Target("python_vs_apply_in_pandas", at_least=10, explanation=floor),
        Target("python_vs_apply_in_arrow", at_least=3, explanation=floor),
        Target("builtin_slowdown", at_most=1.15, explanation=alike),
    ]


PAIRS = (
    (PANDAS, OURS),
    (ARROW, OURS),
    (GROUPED, OURS),
    (BY_HAND, OURS),
    (BY_HAND_ARROW, OURS_BLOCK),
    (JVM, OURS_BUILTIN),
)
"""Each way of others, and ours beside it."""


def _table(cases: Mapping[tuple[int, float], Case]) -> Table:
    rows = [(c.keys, c.exponent, c.distinct, *(c.seconds[name] for name in WAYS)) for c in cases.values()]
    return Table("median seconds", ("keys", "exponent", "distinct", *WAYS), rows)


def _series(cases: Mapping[tuple[int, float], Case]) -> list[Series]:
    found = []
    for keys in dict.fromkeys(keys for keys, _ in cases):
        chosen = [case for case in cases.values() if case.keys == keys]
        skews = [case.exponent for case in chosen]
        for other, ours in PAIRS:
            speed = [case.seconds[other] / case.seconds[ours] for case in chosen]
            found.append(Series(f"vs {other}, {keys:,} keys", skews, speed))
    return found


@aggregate.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Seconds of every way on the headline's stream, and how much faster it is here on all streams."""
    cases = result.tables[0].records()
    headline = next(case for case in cases if (case["keys"], case["exponent"]) == HEADLINE)
    left = figure.add_subplot(1, 2 if len(cases) > 1 else 1, 1)
    title = f"{ROWS:,} rows, {headline['keys']:,} keys, Zipf {headline['exponent']:g}"
    seconds = {name: headline[name] for name in WAYS if name in headline}
    charts.dots(left, seconds, title=title, x="median time, s", y="way", ours=(OURS, OURS_BLOCK, OURS_BUILTIN))
    if len(cases) > 1:
        figure.set_size_inches(13, 4.5)
        right = figure.add_subplot(1, 2, 2)
        title = "How much faster Steelyard is"
        charts.lines(right, result.series, title=title, x="Zipf exponent", y="their time / ours", log="y")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
