"""Small batches: few partials go through the driver, and the answers are those of partials that tasks write."""

from __future__ import annotations

import pytest

import steelyard as sy
from steelyard.spark import emission, partial_log
from steelyard.spark.arrow import comes_back, in_driver
from steelyard.spark.columns import changing
from steelyard.spark.kept import kept
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.partial_log import PartialLog
from tests.spark.cases import Kept

pytestmark = pytest.mark.spark
SCHEMA = "k string, v long"


def frame(spark, *keys):
    return spark.createDataFrame([(key, 1) for key in keys], SCHEMA)


def engine_of(spark, folder, sink):
    described = sy.stream(frame(spark, "a")).group_by("k").agg(total=sy.sum("v"))
    return MicroBatch(spark, described._bound(), described._settings(), sink, str(folder))


def updates(spark, folder, batches):
    """What each batch gave, and its entry of the log."""
    sink, entries = Kept(), []
    engine = engine_of(spark, folder, sink)
    for number, keys in enumerate(batches):
        engine.process(frame(spark, *keys), number)
        entries.append(engine.last.log[-1])
    shown = [{row["k"]: row["total"] for row in sink.batches[number]} for number in range(len(batches))]
    return shown, entries


MANY = [f"key{number}" for number in range(300)]
BATCHES = [MANY, ["a", "key7", "key7"], ["a", "b"]]
RIGHT = [dict.fromkeys(MANY, 1), {"a": 1, "key7": 3}, {"a": 2, "b": 1}]


def test_an_update_takes_only_what_the_log_knows_of_its_keys(spark, tmp_path, monkeypatch):
    given = []
    original = PartialLog._local

    def told(self, session, tables):
        given.append(sum(table.num_rows for table in tables))
        return original(self, session, tables)

    monkeypatch.setattr(PartialLog, "_local", told)
    shown, entries = updates(spark, tmp_path, BATCHES)
    assert shown == RIGHT
    assert [entry.is_small for entry in entries] == [False, True, True]
    assert [entry.rows for entry in entries] == [300, 2, 2]
    assert given == [3, 3]  # two new partials and one old one; two and one


def test_a_log_that_is_too_large_for_memory_gives_the_same_updates(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(partial_log, "HELD_BYTES", 0)
    shown, entries = updates(spark, tmp_path, BATCHES)
    assert shown == RIGHT
    assert [entry.is_small for entry in entries] == [False, True, True]


def test_a_batch_with_far_more_keys_than_the_one_before_is_written_by_tasks(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(partial_log, "LEAST", 1)
    batches = [["a"], ["a", "b"], MANY, ["a", "key7"]]
    shown, entries = updates(spark, tmp_path, batches)
    assert shown == [{"a": 1}, {"a": 2, "b": 1}, dict.fromkeys(MANY, 1), {"a": 3, "key7": 2}]
    assert [entry.is_small for entry in entries] == [False, True, False, True]


def test_a_large_entry_is_not_merged_again_for_a_few_that_are_new(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(emission, "COMPACT_AFTER", 4)
    monkeypatch.setattr(emission, "ALIKE", 1)
    sink = Kept()
    engine = engine_of(spark, tmp_path, sink)
    engine.process(frame(spark, *MANY), 0)
    (large,) = engine.last.log
    for number in range(1, 9):
        engine.process(frame(spark, "a", "key7"), number)
        assert engine.last.log[0] == large
        assert len(engine.last.log) <= 4
    assert {row["k"]: row["total"] for row in sink.batches[8]} == {"a": 8, "key7": 9}
    # a restart finds the rest of the log in its files
    engine = engine_of(spark, tmp_path, sink)
    engine.process(frame(spark, "key7"), 9)
    engine.process(frame(spark, "key7", "key8"), 10)
    assert {row["k"]: row["total"] for row in sink.batches[10]} == {"key7": 11, "key8": 2}


def test_a_number_of_the_batch_is_no_part_of_the_code_that_spark_compiles(spark):
    plan = spark.range(1).selectExpr(f"id <= {changing(7, 'id')} as late")._jdf.queryExecution().optimizedPlan()
    assert "<= [7][" in plan.toString(), plan.toString()  # an array, which Spark has not looked into


def test_few_rows_are_the_same_through_arrow(spark):
    whole = "1Y as b, 2.5D as d, -0.0D as z, 1.20BD as n, 'ü' as s, X'00ff' as y, cast(null as string) as e"
    times = "date'2024-01-01' as t, timestamp'2024-01-01 10:00:00.000001' as m, timestamp_ntz'2024-01-01 10:00:00' as w"
    inner = """from_json('{"a": 1, "b": "x"}', 'a int, b string')"""
    rows = spark.sql(f"select {whole}, {times}, array({inner}, null) as l, {inner} as r")
    assert comes_back(rows.schema)
    again = in_driver(spark, rows.toArrow(), rows.schema)
    assert again.schema == rows.schema
    assert again.collect() == rows.collect()
    assert again.rdd.getNumPartitions() == 1


@pytest.mark.parametrize(
    "rows", ["select 1 as a, 'x' as b", "select interval '1' month as a", "select 1 as a where false"]
)
def test_results_that_are_kept_can_be_read_twice(spark, rows):
    results = spark.sql(rows)
    with kept(results) as (again, number):
        assert again.schema.names == results.schema.names
        assert again.count() == number == results.count()
        assert again.count() == number


@pytest.mark.parametrize(
    ("kind", "batches"),
    [
        ("string collate UTF8_LCASE", ["A", "a", "A"]),
        ("struct<s: string collate UTF8_LCASE>", [("A",), ("a",), ("A",)]),
        ("double", [0.0, -0.0, 0.0]),
        ("double", [float("nan")] * 3),
    ],
)
def test_keys_that_spark_takes_for_one_are_updated_as_one(spark, tmp_path, kind, batches):
    frames = [spark.createDataFrame([(key, 1)], f"k {kind}, v long") for key in batches]
    described = sy.stream(frames[0]).group_by("k").agg(total=sy.sum("v"))
    sink = Kept()
    engine = MicroBatch(spark, described._bound(), described._settings(), sink, str(tmp_path))
    engine.partial_log._expected = 1_000
    for number, rows in enumerate(frames):
        engine.process(rows, number)
    assert [[row["total"] for row in sink.batches[number]] for number in range(3)] == [[1], [2], [3]]
