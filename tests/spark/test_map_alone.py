"""A map function without aggregates: its rows reach the sink, each batch once, wherever rows are placed."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import steelyard as sy
from steelyard.core import BadRowError, OptionError
from steelyard.spark.map_engine import MapEngine
from steelyard.spark.sinks import FileSink
from tests.spark.cases import Kept

pytestmark = pytest.mark.spark
SCHEMA = "k string, x double, at timestamp"
MAPPED = "k string, y double"
POLICIES = ["in_place", "shuffle", "time", "osg?cost_of=k"]


def twice(part):
    """Two rows of every row; raises where a row says 3."""
    if pc.any(pc.equal(part.column("x"), 3.0)).as_py():
        raise ValueError("three is not allowed")
    one = pa.RecordBatch.from_arrays([part.column("k"), pc.multiply(part.column("x"), 2.0)], names=["k", "y"])
    return pa.Table.from_batches([one, one])


@pytest.fixture(scope="module")
def rows(spark):
    made = spark.range(40, numPartitions=3).selectExpr(
        "concat('k', id % 7) as k", "cast(id + 10 as double) as x", "timestamp_seconds(id) as at"
    )
    return made.persist()


def described(rows, policy=None):
    made = sy.stream(rows).map(twice, MAPPED)
    return made if policy is None else made.partition_by(policy, blocks=3)


def engine(spark, made, folder, sink=None):
    return MapEngine(spark, made._bound(), made._settings(), sink or Kept(), str(folder))


def pairs(some):
    return sorted((row["k"], row["y"]) for row in some)


def expected(rows):
    return pairs(rows.selectExpr("k", "explode(array(x * 2, x * 2)) as y").toArrow().to_pylist())


@pytest.mark.parametrize("policy", [None, *POLICIES])
def test_every_policy_that_needs_no_keys_gives_plain_sparks_rows(spark, rows, tmp_path, policy):
    kept = Kept()
    made = described(rows, policy)
    running = engine(spark, made, tmp_path, kept)
    halves = [rows.where("x < 30"), rows.where("x >= 30")]
    reports = [running.process(half, number) for number, half in enumerate(halves)]
    for number, half in enumerate(halves):
        assert pairs(kept.batches[number]) == expected(half)
    assert [report.results for report in reports] == [40, 40]
    assert reports[0].placement == ("blocks" if policy in POLICIES[1:] else "in_place")
    assert pairs(made.to_df().toArrow().to_pylist()) == expected(rows)


@pytest.mark.parametrize("policy", ["prompt", "hash", "dalton", "auto"])
def test_a_policy_that_goes_by_keys_is_refused_with_those_that_do_not(rows, policy):
    with pytest.raises(OptionError, match=f"'{policy}' goes by keys.*'in_place', 'shuffle', 'time' or 'osg"):
        described(rows, policy).to_df()


def test_what_needs_aggregates_is_refused_without_them(rows):
    for made, said in [
        (described(rows).output_mode("complete"), "output mode 'complete' is for aggregates"),
        (described(rows).with_watermark("at", "1 second").window("1 minute"), "say what to group by"),
        (sy.stream(rows).map(twice, "y double, Y double"), "columns 'y' and 'Y' of what the map function gives"),
    ]:
        with pytest.raises(OptionError, match=said):
            made.to_df()


def test_a_batch_that_comes_again_after_a_crash_is_written_once_and_dead_letters_too(
    spark, rows, tmp_path, monkeypatch
):
    out, letters = str(tmp_path / "out"), str(tmp_path / "letters")
    bad = spark.createDataFrame([("bad", 3.0, None), ("good", 4.0, None)], SCHEMA)
    batches = [rows.where("x < 30").unionByName(bad), rows.where("x >= 30")]
    made = described(rows, "osg?cost_of=k").on_bad_rows("dead_letter", path=letters)
    first = engine(spark, made, tmp_path / "state", FileSink(out))
    monkeypatch.setattr(first.state, "commit", lambda commit: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        first.process(batches[0], 0)
    second = engine(spark, made, tmp_path / "state", FileSink(out))
    report = second.process(batches[0], 0)
    assert report.bad_rows == {"the map function raised": 1}
    assert report.results == 42
    second.process(batches[1], 1)
    third = engine(spark, made, tmp_path / "state", FileSink(out))
    assert third.process(batches[1], 1) is None, "a batch that was committed"
    wanted = sorted([*expected(rows), ("good", 8.0), ("good", 8.0)])
    assert pairs(spark.read.parquet(out).toArrow().to_pylist()) == wanted
    (letter,) = spark.read.parquet(letters).toArrow().to_pylist()
    assert json.loads(letter["row"])["k"] == "bad"
    assert "three is not allowed" in letter["reason"]
    with pytest.raises(OptionError, match="belongs to another query: its rows"):
        engine(spark, sy.stream(rows).map(twice, "k string, y float"), tmp_path / "state")


def test_bad_rows_fail_a_batch_before_the_sink_has_any_of_it(spark, tmp_path):
    kept = Kept()
    bad = spark.createDataFrame([("bad", 3.0, None), ("good", 4.0, None)], SCHEMA)
    with pytest.raises(BadRowError, match=r"1 row: the map function raised.*three is not allowed"):
        engine(spark, described(bad), tmp_path, kept).process(bad, 0)
    assert kept.batches == {}


def test_a_query_over_files_goes_on_from_its_checkpoint(spark, rows, tmp_path):
    rows.coalesce(1).write.parquet(str(tmp_path / "aside"))
    (tmp_path / "in").mkdir()
    (file,) = (tmp_path / "aside").glob("*.parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    made = described(read).sink("parquet", path=str(tmp_path / "out")).checkpoint(str(tmp_path / "state"))
    for name in ("0", "1"):
        os.link(file, tmp_path / "in" / f"{name}.parquet")
        query = made.trigger(available_now=True).start()
        assert query.await_termination(60)
    assert query.last_progress.batch == 1
    assert pairs(spark.read.parquet(str(tmp_path / "out")).toArrow().to_pylist()) == sorted(2 * expected(rows))
