"""Random streams and queries, and plain Spark's answer to them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import steelyard as sy
from steelyard.core import BLOCKS, BUCKETS, Action, Observation
from steelyard.spark.microbatch import MicroBatch

SCHEMA = "n int, x double, text string, at timestamp"
CASELESS = "string collate UTF8_LCASE"
COLUMNS = ["k", "n", "x", "text", "at"]
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
KEYS = ["a", "b", "c", "ü", "", "hot", "hot", "hot", "hot", None]
SPELT = {"a": "A", "hot": "Hot", "ü": "Ü"}
"""Other spellings of some keys: the same ones for a collation that ignores case."""


class Mean(sy.Aggregator):
    """A mean, with an inverse that is exact for small whole numbers."""

    state = "n bigint, total double"
    result = "double"

    def zero(self):
        return (0, 0.0)

    def add(self, state, values):
        known = values[~np.isnan(values)]
        return (state[0] + len(known), state[1] + float(known.sum()))

    def merge(self, left, right):
        return (left[0] + right[0], left[1] + right[1])

    def subtract(self, whole, part):
        return (whole[0] - part[0], whole[1] - part[1])

    def finish(self, state):
        return state[1] / state[0] if state[0] else None


class BlockMean(sy.Aggregator):
    """The same for all keys of a block at once, and in no other form."""

    state = "n bigint, total double"
    result = "double"

    def add_block(self, columns, offsets):
        (values,) = columns
        known = ~np.isnan(values)
        starts = offsets[:-1]
        return np.add.reduceat(known, starts, dtype=np.int64), np.add.reduceat(np.where(known, values, 0.0), starts)

    def merge_block(self, states, offsets):
        return tuple(np.add.reduceat(part, offsets[:-1]) for part in states)

    def subtract_block(self, whole, part):
        return tuple(left - right for left, right in zip(whole, part, strict=True))

    def finish_block(self, states):
        n, total = states
        return pa.array(total / np.maximum(n, 1), mask=n == 0)


class EitherMean(BlockMean, Mean):
    """The same in both forms."""

    zero, add, merge, subtract, finish = Mean.zero, Mean.add, Mean.merge, Mean.subtract, Mean.finish


class TheirMean:
    """As PySpark 4.4 has it."""

    bufferSchema = T.StructType().add("sum", T.DoubleType()).add("a count", T.LongType())  # noqa: N815 - PySpark's name
    outputType = T.DoubleType()  # noqa: N815 - PySpark's name

    def zero(self):
        return (0.0, 0)

    def reduce(self, buffer, value):
        (v,) = value
        return buffer if v is None else (buffer[0] + v, buffer[1] + 1)

    def merge(self, one, other):
        return (one[0] + other[0], one[1] + other[1])

    def finish(self, buffer):
        return buffer[0] / buffer[1] if buffer[1] else None


MEANS = (Mean, BlockMean, EitherMean)


class Longest(sy.Aggregator):
    """The longest text, the first in the alphabet of equally long ones; has no inverse, and a state of one field."""

    state = "longest string"
    result = "string"

    def zero(self):
        return None

    def add(self, state, texts):
        return self._best([state, *texts.to_pylist()])

    def merge(self, left, right):
        return self._best([left, right])

    def finish(self, state):
        return state

    @staticmethod
    def _best(texts):
        return min((text for text in texts if text is not None), key=lambda t: (-len(t), t), default=None)


@dataclass
class Redraw:
    """An elasticity policy that draws new numbers of tasks at every batch."""

    seed: int

    def decide(self, seen: Observation) -> Action:
        draw = random.Random(f"{self.seed} {seen.batch.number}")
        return Action({BLOCKS: draw.randint(1, 5), BUCKETS: draw.randint(1, 4)}, "a draw")


class Kept:
    """A sink that keeps each batch's results."""

    def __init__(self) -> None:
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def write(self, results: DataFrame, batch: int) -> int:
        self.batches[batch] = results.toArrow().to_pylist()
        return len(self.batches[batch])


@dataclass
class Case:
    """One stream and one query, drawn from a seed."""

    seed: int
    batches: list[list[tuple]]
    window: tuple[int, int] | None
    delay: int
    mode: str
    aggregates: str
    policy: str
    statistics: str
    keys: tuple[str, ...]
    mean: type[sy.Aggregator]
    """Which form the mean of our own has."""
    restarts: list[bool]
    """Whether the engine is made anew from its checkpoint before each batch, or goes on."""
    expected_partials: int = 0
    """How many the first batch after a start is taken to have; 0: tasks write them."""
    kind: str = "string"
    """The type of key `k`."""

    @classmethod
    def draw(cls, seed: int) -> Case:
        rng = random.Random(seed)
        window = rng.choice([(10, 10), (10, 10), (20, 5), (12, 4), (15, 10), (30, 5), None])
        mode = (
            rng.choice(["append", "append", "append", "update", "complete"])
            if window
            else rng.choice(["update", "complete"])
        )
        batches, clock = [], 0
        for _ in range(rng.randint(1, 4)):
            clock += rng.choice([0, 5, 12, 40])
            rows = [_row(rng, clock) for _ in range(rng.choice([0, 1, 10, 40]))]
            batches.append(rows)
        kind = "string"
        if (apart := random.Random(f"the type of the key, {seed}")).random() < 0.25:
            kind = CASELESS
            batches = [[(_spelt(apart, row[0]), *row[1:]) for row in rows] for rows in batches]
        return cls(
            seed,
            batches,
            window,
            rng.choice([0, 3, 10]),
            mode,
            rng.choice(["jvm", "python", "both", "counts"]),
            rng.choice(sy.partitioner_names()),
            rng.choice(["carried", "exact"]),
            rng.choice([("k",), ("k",), ("k", "n")]),
            MEANS[seed % len(MEANS)],
            [True, *(rng.random() < 0.5 for _ in batches[1:])],
            rng.choice([0, 1, 1_000]),
            kind,
        )

    @property
    def schema(self) -> str:
        return f"k {self.kind}, {SCHEMA}"

    def as_one_spelling(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows by keys that are equal, where any spelling of one may be shown."""
        return [row | {"k": row["k"].lower()} for row in rows] if self.kind == CASELESS else rows

    def aggregated(self) -> dict[str, Any]:
        jvm = {
            "rows": sy.count(),
            "known": sy.count("x"),
            "total": sy.sum("n"),
            "mean": sy.mean("x"),
            "low": sy.min("x"),
            "high": sy.max("text"),
            "spread": sy.variance("x"),
            "first": sy.collect("x", 2),
            "top": sy.top_k("x", 2),
        }
        python = {"own_mean": self.mean().of("x"), "longest": Longest().of("text")}
        if self.aggregates == "counts":  # all of these have an exact inverse
            return {"rows": sy.count(), "total": sy.sum("n"), "own_mean": self.mean().of("x")}
        return {"jvm": jvm, "python": python, "both": jvm | python}[self.aggregates]

    def stream(self, rows: DataFrame) -> sy.Stream:
        built = sy.stream(rows).with_watermark("at", f"{self.delay} seconds").group_by(*self.keys)
        if self.window:
            built = built.window(f"{self.window[0]} seconds", f"{self.window[1]} seconds")
        return (
            built.agg(**self.aggregated())
            .partition_by(self.policy, blocks=3, buckets=2)
            .statistics(self.statistics)
            .elastic(Redraw(self.seed))
            .on_bad_rows("drop")
            .output_mode(self.mode)
        )

    def run(self, spark: SparkSession, checkpoint: str) -> Kept:
        """The engine's answer, batch by batch."""
        kept = Kept()
        for number, rows in enumerate(self.batches):
            frame = spark.createDataFrame(rows, self.schema)
            if self.restarts[number]:
                described = self.stream(frame)
                settings = replace(described._settings(), inverse_from=3)
                engine = MicroBatch(spark, described._bound(), settings, kept, checkpoint)
                engine.partial_log._expected = self.expected_partials
            report = engine.process(frame, number)
            assert report is not None
            assert report.rows == len(rows)
        return kept

    def watermarks(self) -> list[int]:
        """The watermark, in microseconds, at the start of each batch; and one more for the end."""
        marks, newest = [0], None
        for rows in self.batches:
            good = [row for row in rows if all(row[COLUMNS.index(key)] is not None for key in self.keys)]
            times = [micros(row[4]) for row in good if row[4] is not None]
            newest = max([*times, *([newest] if newest is not None else [])], default=None)
            floor = newest // 1000 * 1000 - self.delay * 1_000_000 if newest is not None else 0
            marks.append(max(marks[-1], floor))
        return marks

    def expected(self, spark: SparkSession) -> DataFrame:
        """Plain Spark's groupBy over the rows that were not late."""
        marks = self.watermarks()
        rows = [(*row, marks[i]) for i, batch in enumerate(self.batches) for row in batch]
        frame = spark.createDataFrame(rows, self.schema + ", mark bigint").where(
            " and ".join(f"{key} is not null" for key in self.keys) + " and at is not null"
        )
        by: list[Any] = list(self.keys)
        if self.window:
            size, slide = (f"{part} seconds" for part in self.window)
            frame = frame.withColumn("window", F.window("at", size, slide))
            if self.mode != "complete":
                frame = frame.where(F.unix_micros("window.end") > F.col("mark"))
            by = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), *by]
        timed = "array_sort(collect_list(if(x is null, null, struct(at, x))))"
        ranked = "array_sort(collect_list(if(text is null, null, struct(-length(text) as l, text))))"
        frame = frame.groupBy(*by).agg(
            F.count("*").alias("rows"),
            F.count("x").alias("known"),
            F.sum("n").alias("total"),
            F.avg("x").alias("mean"),
            F.min("x").alias("low"),
            F.max("text").alias("high"),
            F.variance("x").alias("spread"),
            F.expr(f"transform(slice({timed}, 1, 2), s -> s.x)").alias("first"),
            F.expr("slice(sort_array(collect_list(x), false), 1, 2)").alias("top"),
            F.avg("x").alias("own_mean"),
            F.expr(f"get({ranked}, 0).text").alias("longest"),
        )
        if self.window and self.mode == "append":
            frame = frame.where(F.unix_micros("window_end") <= marks[-1])
        spans = ["window_start", "window_end"] if self.window else []
        return frame.select(*spans, *self.keys, *self.aggregated())


def micros(at: datetime) -> int:
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def _spelt(rng: random.Random, key: str | None) -> str | None:
    return SPELT.get(key, key) if key is not None and rng.random() < 0.5 else key


def _row(rng: random.Random, clock: int) -> tuple:
    late = rng.choice([0, 0, 0, 0, 30, 200])
    at = ORIGIN + timedelta(seconds=clock + rng.uniform(-8, 8) - late) if rng.random() > 0.03 else None
    text = rng.choice([None, "", "x", "yy", "zzz", "zzy"])
    whole = rng.choice([None, 1, 2, 3]) if rng.random() < 0.2 else rng.randint(-5, 5)
    return (rng.choice(KEYS), whole, rng.choice([None, float(rng.randint(-100, 100))]), text, at)


def same(got: list[dict], expected: list[dict], by: list[str]) -> None:
    """Assert that two lists of rows are equal, whatever their order; doubles to the last few bits."""

    def ranked(rows: list[dict]) -> list[dict]:
        return sorted(rows, key=lambda row: tuple(str(row[name]) for name in by))

    assert len(got) == len(expected), f"{len(got)} rows, {len(expected)} expected"
    for ours, theirs in zip(ranked(got), ranked(expected), strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            if isinstance(value, float) and ours[name] is not None:
                assert abs(ours[name] - value) <= 1e-9 * max(1.0, abs(value)), (name, ours, theirs)
            else:
                assert ours[name] == value, (name, ours, theirs)
