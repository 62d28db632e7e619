"""Columns of any name and of awkward types give plain Spark's answers, or are refused with the remedy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import OptionError
from steelyard.core.hidden import PANE, ROWS
from steelyard.partition.allocator import PromptAllocator
from steelyard.spark.combine import _local_buckets
from steelyard.spark.microbatch import MicroBatch
from tests.spark.cases import Kept, Mean, same

SCHEMA = "key string, value bigint, at timestamp"
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ROWS_OF_A_BATCH = [("ab"[i % 3 % 2], i, ORIGIN + i * SECOND) for i in range(40)]


def process(spark, described, folder, batches):
    """Run static batches one after the other; gives the results of each."""
    kept = Kept()
    settings = replace(described._settings(), inverse_from=3)
    engine = MicroBatch(spark, described._bound(), settings, kept, str(folder))
    for number, rows in enumerate(batches):
        engine.process(rows, number)
    return kept.batches


def by_window(rows, *aggregates):
    window = F.window("at", "10 seconds", "5 seconds")
    spans = [F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")]
    return rows.withColumn("window", window).groupBy(*spans, "key").agg(*aggregates)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sign", "policy", "statistics"),
    [(".", "prompt", "exact"), (" ", "prompt", "carried"), ("`", "time", "carried"), (".` ``", "prompt", "exact")],
)
def test_dots_spaces_and_backticks_in_names_change_nothing(spark, tmp_path, sign, policy, statistics):
    plain = spark.createDataFrame(ROWS_OF_A_BATCH, SCHEMA)
    key, value, at = (f"the{sign}{name}" for name in plain.columns)
    odd = plain.toDF(key, value, at)
    described = (
        sy.stream(odd)
        .with_watermark(at, "0 seconds")
        .group_by(key)
        .window("10 seconds", slide="5 seconds")
        .agg(**{f"the{sign}total": sy.sum(value)}, newest=sy.max(at), first=sy.collect(value, 2), mean=Mean().of(value))
        .partition_by(policy, blocks=3, buckets=2)
        .statistics(statistics)
    )
    twice = process(spark, described.output_mode("complete"), tmp_path / "complete", [odd, odd])[1]
    changed = process(spark, described.output_mode("update"), tmp_path / "update", [odd, odd])[0]
    once = described.to_df().toArrow().to_pylist()
    first = F.expr("slice(array_sort(collect_list(value)), 1, 2)").alias("first")
    others = [F.sum("value").alias(f"the{sign}total"), F.max("at").alias("newest"), first, F.avg("value").alias("mean")]
    for found, rows in ((twice, plain.unionAll(plain)), (changed, plain), (once, plain)):
        expected = by_window(rows, *others).withColumnRenamed("key", key).toArrow().to_pylist()
        same(found, expected, ["window_start", key])


@pytest.mark.spark
@pytest.mark.parametrize("sign", [".", " ", "`"])
def test_bad_rows_are_found_in_columns_of_any_name(spark, tmp_path, sign):
    key, number = f"a{sign}key", f"a{sign}number"
    odd = spark.createDataFrame([("a", "1"), (None, "2"), ("a", "many")], "key string, number string")
    odd = odd.toDF(key, number)
    described = sy.stream(odd).group_by(key).agg(total=sy.sum(number)).partition_by("prompt", 2, 2)
    letters = str(tmp_path / "letters")
    described = described.on_bad_rows("dead_letter", path=letters)
    (results,) = process(spark, described, tmp_path / "state", [odd]).values()
    assert results == [{key: "a", "total": 1.0}]
    reasons = {row["reason"] for row in spark.read.parquet(letters).toArrow().to_pylist()}
    assert reasons == {f"null key in column {key!r}", f"not a number in column {number!r}"}


@pytest.mark.spark
@pytest.mark.parametrize("sign", [".", "`"])
def test_a_map_function_takes_and_gives_columns_of_any_name(spark, tmp_path, sign):
    key, value = f"a{sign}key", f"a{sign}value"
    odd = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "key string, value bigint").toDF(key, value)
    described = sy.stream(odd).map(lambda batch: batch, odd.schema).group_by(key).agg(total=sy.sum(value))
    (results,) = process(spark, described, tmp_path, [odd]).values()
    assert {row[key]: row["total"] for row in results} == {"a": 4, "b": 2}


@pytest.mark.spark
@pytest.mark.parametrize("policy", ["prompt", "in_place"])
def test_a_map_function_may_change_the_keys_type(spark, tmp_path, policy):
    def spelled(batch):
        names = pc.binary_join_element_wise("key", pc.cast(batch.column("key"), pa.string()), " ")
        return pa.RecordBatch.from_arrays([names, batch.column("value")], names=["key", "value"])

    rows = spark.createDataFrame([(i % 3 % 2, i) for i in range(30)], "key int, value bigint")
    described = (
        sy.stream(rows)
        .map(spelled, "key string, value bigint")
        .group_by("key")
        .agg(total=sy.sum("value"), mean=Mean().of("value"))
        .partition_by(policy, blocks=3, buckets=2)
    )
    results = process(spark, described, tmp_path / "state", [rows, rows])[1]
    both = rows.unionAll(rows).selectExpr("'key ' || key as key", "value").groupBy("key")
    expected = both.agg(F.sum("value").alias("total"), F.avg("value").alias("mean"))
    same(results, expected.toArrow().to_pylist(), ["key"])
    with pytest.raises(OptionError, match=r"counts keys before the map function runs.*use 'carried'"):
        process(spark, described.statistics("exact"), tmp_path / "exact", [rows])


@pytest.mark.spark
def test_a_mean_of_large_whole_numbers_does_not_overflow(spark, tmp_path):
    large = [(key, 2**62 + value, at) for key, value, at in ROWS_OF_A_BATCH]
    rows = spark.createDataFrame(large, SCHEMA)
    described = (
        sy.stream(rows)
        .with_watermark("at", "0 seconds")
        .group_by("key")
        .window("10 seconds", slide="5 seconds")
        .agg(mean=sy.mean("value"))
        .partition_by("prompt", blocks=3, buckets=2)
    )
    expected = by_window(rows, F.avg("value").alias("mean")).toArrow().to_pylist()
    same(described.to_df().toArrow().to_pylist(), expected, ["window_start", "key"])
    batches = [
        rows.where(F.col("at") < F.lit(ORIGIN + 20 * SECOND)),
        rows.where(F.col("at") >= F.lit(ORIGIN + 20 * SECOND)),
    ]
    closed = [row for part in process(spark, described, tmp_path, batches).values() for row in part]
    same(closed, [row for row in expected if row["window_end"] <= ORIGIN + 39 * SECOND], ["window_start", "key"])


@pytest.mark.spark
@pytest.mark.parametrize("policy", ["hash", "dalton"])
def test_arrays_are_keys_of_python_aggregates_too(spark, tmp_path, policy):
    drawn = [(["a", "b"], 1), (["a"], 2), (["a", "b"], 5), ([], 7), ([None], 8), (["a", None], 9)]
    rows = spark.createDataFrame(drawn, "key array<string>, value bigint")
    described = sy.stream(rows).group_by("key").agg(mean=Mean().of("value"), rows=sy.count())
    described = described.partition_by(policy, blocks=3, buckets=2)
    found = process(spark, described, tmp_path, [rows, rows])[1]
    expected = rows.unionAll(rows).groupBy("key").agg(F.avg("value").alias("mean"), F.count("*").alias("rows"))
    named = [{**row, "key": str(row["key"])} for row in found]
    same(named, [{**row, "key": str(row["key"])} for row in expected.toArrow().to_pylist()], ["key"])


def windowed(stream):
    return stream.with_watermark("at", "0 seconds").window("10 seconds")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda s: windowed(s).group_by("window_start").agg(n=sy.count()), "key column 'window_start' has the name of"),
        (lambda s: windowed(s).group_by("key").agg(Window_End=sy.count()), "'Window_End' has the name of a key or"),
        (lambda s: s.group_by("key").agg(n=sy.count(), N=sy.sum("value")), "aggregates 'n' and 'N' have one name"),
        (lambda s: s.group_by("key").agg(KEY=sy.count()), "aggregate 'KEY' has the name of a key"),
        (lambda s: s.group_by("twin").agg(n=sy.count()), "columns 'twin' and 'Twin' of the input have one name"),
        (lambda s: s.group_by("key").agg(n=sy.sum("twin")), "columns 'twin' and 'Twin' of the input have one name"),
    ],
)
def test_names_that_spark_cannot_tell_apart_are_refused_before_anything_runs(spark, mistake, said):
    rows = (
        spark.readStream.format("rate")
        .load()
        .selectExpr(
            "'a' as key", "value", "timestamp as at", "timestamp as window_start", "value as twin", "value as Twin"
        )
    )
    with pytest.raises(OptionError, match=said):
        mistake(sy.stream(rows)).sink("console").start()


@pytest.mark.spark
def test_names_that_differ_in_case_are_two_where_spark_is_told_so(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1), ("a", 2)], "key string, value bigint")
    described = sy.stream(rows).group_by("key").agg(n=sy.count(), N=sy.sum("value"))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert process(spark, described, tmp_path, [rows])[0] == [{"key": "a", "n": 2, "N": 3}]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.fixture
def new_york(spark):
    """The session in a time zone of its own."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.spark
def test_times_without_a_zone_are_refused_where_the_sessions_zone_would_move_them(new_york):
    rows = new_york.createDataFrame(ROWS_OF_A_BATCH, SCHEMA).withColumn("at", F.expr("cast(at as timestamp_ntz)"))

    def windowed(frame):
        stream = sy.stream(frame).with_watermark("at", "0 seconds").group_by("key")
        return stream.window("10 seconds", slide="5 seconds").agg(total=sy.sum("value"))

    with pytest.raises(OptionError, match="'at' has no time zone and the session's is America/New_York: cast it"):
        windowed(rows).to_df()
    cast = rows.withColumn("at", F.expr("cast(at as timestamp)"))
    expected = by_window(cast, F.sum("value").alias("total"))
    same(windowed(cast).to_df().toArrow().to_pylist(), expected.toArrow().to_pylist(), ["window_start", "key"])


@pytest.mark.spark
def test_times_without_a_zone_give_plain_sparks_windows_in_utc(spark):
    rows = spark.createDataFrame(ROWS_OF_A_BATCH, SCHEMA).withColumn("at", F.expr("cast(at as timestamp_ntz)"))
    stream = sy.stream(rows).with_watermark("at", "0 seconds").group_by("key").window("10 seconds", slide="5 seconds")
    found = stream.agg(total=sy.sum("value")).to_df()
    expected = by_window(rows.withColumn("at", F.expr("cast(at as timestamp)")), F.sum("value").alias("total"))
    same(found.toArrow().to_pylist(), expected.toArrow().to_pylist(), ["window_start", "key"])


clusters = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 5), st.booleans()), unique_by=lambda one: one[:2])


@given(clusters, st.randoms(use_true_random=False), st.integers(1, 5))
def test_clusters_go_to_the_same_buckets_in_whatever_order_they_are_met(drawn, rng, buckets):
    def dealt(some):
        keys, panes, split = (list(part) for part in zip(*some, strict=True)) if some else ([], [], [])
        columns = {"key": pa.array(keys, pa.string()), PANE: pa.array(panes, pa.int64())}
        columns[ROWS] = pa.array([rng.randint(1, 9) for _ in some], pa.int64())
        flags = pa.array(split, pa.bool_()).to_numpy(zero_copy_only=False)
        found = _local_buckets(columns, flags, lambda *given: PromptAllocator().allot(*given, buckets, 0))
        return dict(zip(((key, pane) for key, pane, _ in some), found.to_pylist(), strict=True))

    again = list(drawn)
    rng.shuffle(again)
    buckets_of = dealt(drawn)
    assert dealt(again) == buckets_of
    for one in (one for one in drawn if one[2]):  # a split key goes where its hash says, whatever is beside it
        assert dealt([one]) == {one[:2]: buckets_of[one[:2]]}
