"""The two forms of an aggregator, of one key and of all keys of a block: one answer, or a sentence of both."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import functions as F
from pyspark.sql import types as T

import steelyard as sy
from steelyard.core import OptionError
from steelyard.core.hidden import PANE, ROWS
from steelyard.kernels.radix import stable_order
from steelyard.partition import PromptAllocator
from steelyard.spark import oneshot, parcels, reduce
from steelyard.spark.combine import combiner
from steelyard.spark.keyhash import key_hashes
from steelyard.spark.reduce import Reducer
from tests.spark.cases import BlockMean, EitherMean, Mean, TheirMean, same

# Aggregators of several shapes, each in both forms


class Range(sy.Aggregator):
    """Largest less smallest whole number, every digit kept; null where all are null. States with nulls in them."""

    state = "low bigint, high bigint"
    result = "bigint"

    def zero(self):
        return (None, None)

    def add(self, state, values):
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        return self.merge(state, (int(known.min()), int(known.max())) if len(known) else (None, None))

    def merge(self, left, right):
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        return (min(left[0], right[0]), max(left[1], right[1]))

    def finish(self, state):
        return None if state[0] is None else state[1] - state[0]


class BlockRange(sy.Aggregator):
    state = "low bigint, high bigint"
    result = "bigint"

    def add_block(self, columns, offsets):
        (values,) = columns
        starts = offsets[:-1]
        if values.dtype.kind != "f":
            return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
        nothing = np.isnan(low)
        return tuple(pa.array(np.where(nothing, 0, part).astype(np.int64), mask=nothing) for part in (low, high))

    def merge_block(self, states, offsets):
        groups = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        table = pa.table({"g": groups, "low": pa.array(states[0]), "high": pa.array(states[1])})
        found = table.group_by("g", use_threads=False).aggregate([("low", "min"), ("high", "max")]).sort_by("g")
        return found.column("low_min"), found.column("high_max")

    def finish_block(self, states):
        return pc.subtract(pa.array(states[1]), pa.array(states[0]))


class EitherRange(BlockRange, Range):
    zero, add, merge, finish = Range.zero, Range.add, Range.merge, Range.finish


class Words(sy.Aggregator):
    """Texts in the order of the alphabet: columns and states that NumPy has no type for, of two columns."""

    state = "words array<string>"
    result = "array<string>"

    def zero(self):
        return []

    def add(self, state, texts, numbers):
        assert len(texts) == len(numbers)
        return sorted([*state, *(text for text in texts.to_pylist() if text is not None)])

    def merge(self, left, right):
        return sorted([*left, *right])

    def finish(self, state):
        return state


class BlockWords(sy.Aggregator):
    state = "words array<string>"
    result = "array<string>"

    def add_block(self, columns, offsets):
        texts = columns[0].to_pylist()
        parts = [texts[a:b] for a, b in pairwise(offsets)]
        return (pa.array([sorted(t for t in part if t is not None) for part in parts], pa.list_(pa.string())),)

    def merge_block(self, states, offsets):
        lists = states[0].to_pylist()
        parts = [lists[a:b] for a, b in pairwise(offsets)]
        return ([sorted(word for words in part for word in words) for part in parts],)

    def finish_block(self, states):
        return states[0]


class EitherWords(BlockWords, Words):
    zero, add, merge, finish = Words.zero, Words.add, Words.merge, Words.finish


MEAN = pa.struct({"n": pa.int64(), "total": pa.float64()})
RANGE = pa.struct({"low": pa.int64(), "high": pa.int64()})
WORDS = pa.struct({"words": pa.list_(pa.string())})
SHAPES = {
    "mean": ((Mean, BlockMean, EitherMean), ("x",), MEAN, pa.float64()),
    "range": ((Range, BlockRange, EitherRange), ("n",), RANGE, pa.int64()),
    "words": ((Words, BlockWords, EitherWords), ("text", "n"), WORDS, pa.list_(pa.string())),
}
KEYS = {
    "string": (pa.string(), ["", "a", "b", "ü", "a long key of many letters"]),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), 1.5, -2.0]),
    "decimal": (pa.decimal128(20, 2), None),
    "bigint": (pa.int64(), [0, -1, 2**62, 7, 8]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [datetime(2024, 5, day, tzinfo=UTC).date() for day in range(1, 6)]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"ab"]),
}


def drawn_block(rng, kind, rows, distinct):
    type_, some = KEYS[kind]
    some = some or [f"{number}.25" for number in range(5)]
    keys = pa.array(some[:distinct]).cast(type_)
    whole = [rng.choice([None, 1, -7, 2**53 - 1, 2**53]) for _ in range(rows)]
    return pa.record_batch(
        {
            "key": keys.take(pa.array([rng.randrange(len(keys)) for _ in range(rows)], pa.int64())),
            PANE: pa.array([rng.randint(0, 2) for _ in range(rows)], pa.int64()),
            "x": pa.array([rng.choice([None, float(rng.randint(-9, 9))]) for _ in range(rows)], pa.float64()),
            "n": pa.array(whole, pa.int64()),
            "text": pa.array([rng.choice([None, "x", "yy", ""]) for _ in range(rows)], pa.string()),
        }
    )


def states_schema(key, kinds):
    return pa.schema([(parcels.BUCKET, pa.int32()), ("key", key), (PANE, pa.int64()), (ROWS, pa.int64()), *kinds])


def run_tasks(blocks, form, buckets, ends=True):
    """What the tasks of Spark give, called one after the other: results by key and pane."""
    shapes = {name: (shape[0][form]().of(*shape[1]), *shape[2:]) for name, shape in SHAPES.items()}
    uses = {name: one[0] for name, one in shapes.items()}
    results = {name: one[2] for name, one in shapes.items()}
    key = blocks[0].schema.field("key").type
    combine = combiner(
        ("key",),
        uses,
        states_schema(key, [(n, one[1]) for n, one in shapes.items()]),
        buckets,
        PromptAllocator(),
        None,
        1,
        results,
    )
    sent = [part for block in blocks for part in parcels.parcelled(combine)(iter([block]))]
    out = pa.schema([("key", key), (PANE, pa.int64()), *results.items()])
    made = []
    for bucket in range(buckets):
        mine = [part for part in sent if part.column(parcels.BUCKET)[0].as_py() == bucket]
        made += Reducer(("key",), uses, out, results, ends)(iter(mine))
    return [row for part in made for row in part.to_pylist()]


def by_hand(blocks):
    """The same by plain Python over all rows."""
    found = {}
    for row in (row for block in blocks for row in block.to_pylist()):
        key = "NaN" if row["key"] != row["key"] else 0.0 if row["key"] == 0.0 else row["key"]
        found.setdefault((repr(key), row[PANE]), []).append(row)
    answers = {}
    for at, rows in found.items():
        x = [row["x"] for row in rows if row["x"] is not None]
        n = [row["n"] for row in rows if row["n"] is not None]
        answers[at] = {
            "mean": sum(x) / len(x) if x else None,
            "range": max(n) - min(n) if n else None,
            "words": sorted(row["text"] for row in rows if row["text"] is not None),
        }
    return answers


@given(st.integers(0, 10_000), st.sampled_from(sorted(KEYS)), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60)
def test_all_forms_give_one_answer_over_drawn_keys_nulls_and_blocks(seed, kind, distinct, buckets):
    rng = random.Random(seed)
    blocks = [drawn_block(rng, kind, rng.choice([1, 2, 30]), distinct) for _ in range(rng.randint(1, 3))]

    def keyed(rows):
        made = {}
        for row in rows:
            key = "NaN" if row["key"] != row["key"] else 0.0 if row["key"] == 0.0 else row["key"]
            at = (repr(key), row[PANE])
            assert at not in made, "a key is merged by one reducer"
            made[at] = row
        return made

    alone, block, either = (keyed(run_tasks(blocks, form, buckets)) for form in range(3))
    expected = by_hand(blocks)
    assert alone.keys() == block.keys() == either.keys() == expected.keys()
    for at, answer in expected.items():
        for found in (alone, block, either):
            assert found[at]["mean"] == pytest.approx(answer["mean"])
            assert found[at]["words"] == answer["words"]
            assert found[at]["range"] == answer["range"]


def test_whole_numbers_keep_their_digits_in_keys_without_nulls():
    big = 2**60
    block = pa.record_batch(
        {
            "key": ["a", "a", "b", "b"],
            PANE: [0] * 4,
            "x": [0.0] * 4,
            "n": pa.array([big + 1, big, 3, None]),
            "text": ["t"] * 4,
        }
    )
    for form in range(3):
        found = {row["key"]: row["range"] for row in run_tasks([block], form, 1)}
        assert found == {"a": 1, "b": 0}


def test_a_reduce_task_that_folds_on_its_way_gives_the_same(monkeypatch):
    rng = random.Random(3)
    blocks = [drawn_block(rng, "string", 30, 5) for _ in range(6)]
    whole = [sorted(map(repr, run_tasks(blocks, form, 1))) for form in range(3)]
    monkeypatch.setattr(reduce, "FOLD_FROM", 8)
    monkeypatch.setattr(parcels, "LARGEST", 200)
    assert [sorted(map(repr, run_tasks(blocks, form, 1))) for form in range(3)] == whole


@given(st.lists(st.integers(0, 200_000), max_size=300), st.sampled_from([1, 300, 65_536, 70_000, 200_001, 2**62]))
def test_an_order_by_counting_is_that_of_a_stable_sort(codes, count):
    values = np.array(codes, dtype=np.int64) % count
    assert stable_order(values, count).tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_equal_keys_have_one_hash_wherever_they_stand(kind):
    block = drawn_block(random.Random(1), kind, 60, 5)
    column = block.column("key")
    whole = key_hashes([column, block.column(PANE)])
    apart = [key_hashes([column.slice(i, 1), block.column(PANE).slice(i, 1)])[0] for i in range(len(column))]
    assert whole.tolist() == apart
    assert (whole >= 0).all()
    again = key_hashes([pa.concat_arrays([column.slice(40), column.slice(0, 40)])])
    assert again.tolist() == np.roll(key_hashes([column]), 20).tolist()


def test_hashes_of_many_keys_spread_over_buckets():
    for keys in (
        pa.array(np.arange(10_000)),
        pa.array([f"key {i}" for i in range(10_000)]),
        pa.array(np.arange(10_000) / 8),
    ):
        loads = np.bincount(key_hashes([keys]) % 16)
        assert loads.min() > 500
        assert loads.max() < 750


# What is told of a class

ROWS_OF_MEANS = [("a", 1.0, 1), ("a", None, 2), ("b", 4.0, None), ("a", 5.0, 4), ("b", None, 3)] * 4


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame(ROWS_OF_MEANS, "k string, x double, n bigint").repartition(3).cache()


def made(base=EitherMean, **methods):
    return type("Mine", (base,), methods)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (made(sy.Aggregator), "needs a method `add`, or `add_block` for all keys of a block at once"),
        (made(sy.Aggregator, add=Mean.add), "needs a method `merge`, or `merge_block`"),
        (made(sy.Aggregator, add=Mean.add, merge=Mean.merge, finish=Mean.finish), "needs a method `zero`"),
    ],
)
def test_a_class_without_a_step_is_refused_by_name(kind, told):
    kind.state, kind.result = "n bigint, total double", "double"
    with pytest.raises(OptionError, match=f"^Mine {told}"):
        kind().of("x")


def doubled(self, columns, offsets):
    n, total = BlockMean.add_block(self, columns, offsets)
    return n, total * 2


def last_only(self, states, offsets):
    return tuple(part[offsets[1:] - 1] for part in states)


def raising(self, columns, offsets):
    raise KeyError("x")


def doubled_beyond(self, columns, offsets):
    n, total = BlockMean.add_block(self, columns, offsets)
    return n, np.where(total > 900, total * 2, total)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"add_block": doubled}, r"disagree: add_block\(\) gives 6.0, add\(\) gives 3.0, for x \[3.0\]; mend"),
        ({"merge_block": last_only}, r"disagree: merge_block\(\) gives .*, merge\(\) gives .*, for states \["),
        ({"finish_block": lambda self, states: states[1]}, r"disagree: finish_block\(\) gives 15.0, finish\(\)"),
        ({"add_block": raising}, "the form of a block of Mine raises KeyError: 'x'"),
        ({"add_block": lambda self, columns, offsets: columns[0]}, "must give a tuple with a column for each"),
    ],
)
def test_forms_that_disagree_are_refused_at_the_start(rows, wrong, told):
    described = sy.stream(rows).group_by("k").agg(m=made(**wrong)().of("x"))
    with pytest.raises(OptionError, match=f"^aggregate 'm': .*{told}"):
        described.to_df()


@pytest.mark.spark
def test_forms_that_disagree_about_real_values_fail_the_query_and_name_them(spark):
    rows = spark.createDataFrame([("a", 1.0), ("b", 1000.0)], "k string, x double")
    described = sy.stream(rows).group_by("k").agg(m=made(add_block=doubled_beyond)().of("x"))
    found = described.to_df()  # small values, as they are drawn at the start, agree
    with pytest.raises(PythonException, match=r"add_block\(\) gives 2000.0, add\(\) gives 1000.0, for x \[1000.0\]"):
        found.collect()


def picky(self, columns, offsets):
    if (columns[0] == 4.0).any():
        raise ValueError("four is not allowed")
    return BlockMean.add_block(self, columns, offsets)


def picky_one(self, state, values):
    if (values == 4.0).any():
        raise ValueError("four is not allowed")
    return Mean.add(self, state, values)


@pytest.mark.spark
def test_rows_that_make_a_block_raise_are_found_in_either_form(spark, rows):
    alone = made(BlockMean, add_block=picky)().of("x")
    either = made(add_block=picky, add=picky_one)().of("x")
    described = sy.stream(rows).group_by("k").agg(alone=alone, either=either, words=EitherWords().of("k", "x"))
    found = {row.k: row for row in described.on_bad_rows("drop").to_df().collect()}
    assert (found["a"].alone, found["a"].either, found["a"].words) == (3.0, 3.0, ["a"] * 12)
    assert (found["b"].alone, found["b"].either, found["b"].words) == (None, None, ["b"] * 4)
    with pytest.raises(
        Exception, match="a row cannot be processed: aggregate 'alone': ValueError: four is not allowed"
    ):
        described.to_df().collect()


@pytest.mark.spark
def test_a_block_that_raises_where_no_row_does_fails_the_query(rows):
    def never_many(self, columns, offsets):
        if len(columns[0]) > 1:
            raise ValueError("too many")
        return BlockMean.add_block(self, columns, offsets)

    described = sy.stream(rows).group_by("k").agg(m=made(BlockMean, add_block=never_many)().of("x"))
    with pytest.raises(
        PythonException, match=r"Mine.add_block\(\) raised ValueError: too many; but for no row by itself"
    ):
        described.to_df().collect()


# Plain Spark's answers


@pytest.mark.spark
@pytest.mark.parametrize("window", [None, (10, 10), (20, 5)])
def test_all_forms_give_plain_sparks_answers_over_static_rows(spark, window):
    rng = random.Random(5)
    begin = datetime(2024, 5, 1, tzinfo=UTC)
    drawn = [
        (
            rng.choice(["a", "b", "", "hot", "hot"]),
            rng.choice([None, float(rng.randint(-9, 9))]),
            rng.choice([None, rng.randint(-(2**53), 2**53)]),
            rng.choice([None, "x", "yy"]),
            begin + timedelta(seconds=rng.randint(0, 60)),
        )
        for _ in range(400)
    ]
    frame = spark.createDataFrame(drawn, "k string, x double, n bigint, text string, at timestamp").repartition(3)
    described = sy.stream(frame).with_watermark("at", "1 minute").group_by("k")
    by = ["k"]
    if window:
        size, slide = (f"{part} seconds" for part in window)
        described = described.window(size, slide=slide)
        by = ["window_start", "window_end", "k"]
        frame = frame.withColumn("w", F.window("at", size, slide))
        frame = frame.withColumns({"window_start": F.col("w.start"), "window_end": F.col("w.end")})
    uses = {f"mean{i}": one().of("x") for i, one in enumerate((Mean, BlockMean, EitherMean))}
    uses |= {f"range{i}": one().of("n") for i, one in enumerate((Range, BlockRange, EitherRange))}
    uses |= {f"words{i}": one().of("text", "n") for i, one in enumerate((Words, BlockWords, EitherWords))}
    got = described.agg(**uses).to_df()
    plain = frame.groupBy(*by).agg(
        F.avg("x").alias("mean"),
        (F.max("n") - F.min("n")).alias("range"),
        F.array_sort(F.collect_list("text")).alias("words"),
    )
    shown = [F.col(name.rstrip("012")).alias(name) for name in uses]
    same(got.toArrow().to_pylist(), plain.select(*by, *shown).toArrow().to_pylist(), by)


class TheirNulls:
    """Rows with a null in either of two columns; a buffer of one field."""

    bufferSchema = T.StructType().add("nulls", T.LongType())  # noqa: N815 - PySpark's name
    outputType = T.LongType()  # noqa: N815 - PySpark's name

    def zero(self):
        return (0,)

    def reduce(self, buffer, value):
        x, n = value
        return (buffer[0] + (x is None or n is None),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, buffer):
        return buffer[0]


@pytest.mark.spark
def test_a_class_of_pysparks_shape_runs_row_by_row(rows):
    described = (
        sy.stream(rows)
        .group_by("k")
        .agg(mean=sy.udaf(TheirMean()).of("x"), nulls=sy.udaf(TheirNulls()).of("x", "n"), rows=sy.count())
    )
    found = {row.k: (row["mean"], row.nulls, row.rows) for row in described.to_df().collect()}
    assert found == {"a": (3.0, 4, 12), "b": (4.0, 8, 8)}


def test_what_is_no_class_of_pysparks_shape_is_refused_by_name():
    with pytest.raises(OptionError, match=r"write sy.udaf\(TheirMean\(\)\).of"):
        sy.udaf(TheirMean)
    with pytest.raises(OptionError, match=r"BlockMean is an Aggregator of ours already"):
        sy.udaf(BlockMean())
    with pytest.raises(OptionError, match="object needs a method `zero`"):
        sy.udaf(object())
    with pytest.raises(OptionError, match="`bufferSchema` of Mine must be a StructType"):
        sy.udaf(type("Mine", (TheirMean,), {"bufferSchema": "n bigint"})())
    with pytest.raises(OptionError, match="`outputType` of Mine must be a DataType"):
        sy.udaf(type("Mine", (TheirMean,), {"outputType": "double"})())


@pytest.mark.spark
def test_an_aggregator_of_pysparks_shape_alone_is_told_how_to_be_used(rows):
    with pytest.raises(OptionError, match=r"aggregate 'm': write sy.udaf\(TheirMean\(\)\).of\('column'\)"):
        sy.stream(rows).group_by("k").agg(m=TheirMean())


def test_small_partitions_are_read_together_and_large_ones_are_not(spark, monkeypatch):
    rows = spark.range(0, 1000, 1, 8)
    assert oneshot._together(rows, 3).rdd.getNumPartitions() == 3
    assert oneshot._together(rows, 16) is rows
    monkeypatch.setattr(oneshot, "TOGETHER_BYTES", 100)
    assert oneshot._together(rows, 3) is rows
