"""Queries on workers that stay whose policy changes numbers of instances while rows come: plain Spark's answers."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import Action, OptionError

pytestmark = pytest.mark.spark
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
ROWS, FILES, PATIENCE = 400, 24, 120.0
SCHEMA = "k string, v bigint, at timestamp"
RESULT = ("window_start", "window_end", "k", "n", "total")


class Waves:
    """Other numbers at each look, and how many looks there were, which it remembers."""

    name = "waves"
    needs = ("operators", "arrivals")
    seen: ClassVar[list] = []
    """What was seen of the source at each look, by any copy."""

    def __init__(self, *waves):
        self.waves, self.looks = waves, 0

    def decide(self, observation):
        self.looks += 1
        self.seen.append(observation.operators[0])
        return Action(self.waves[self.looks % len(self.waves)], "another wave")

    def state(self):
        return {"looks": pa.array([self.looks]).to_numpy()}

    def restore(self, state):
        self.looks = int(state["looks"][0])


def write_file(folder, number):
    """Rows in the order of their times; some have no key."""
    draw = random.Random(number)
    first = number * ROWS
    columns = {
        "k": [draw.choice(["a", "b", "c", "ü", "hot", "hot", None]) for _ in range(ROWS)],
        "v": [draw.randint(-9, 9) for _ in range(ROWS)],
        "at": [ORIGIN + timedelta(milliseconds=10 * (first + row)) for row in range(ROWS)],
    }
    schema = pa.schema({"k": pa.string(), "v": pa.int64(), "at": pa.timestamp("us", "UTC")})
    pq.write_table(pa.table(columns, schema), folder / f".{number}")
    (folder / f".{number}").rename(folder / f"{number:02d}.parquet")


def described(spark, folder, policy, guards=(), format="parquet"):
    read = spark.readStream.schema(SCHEMA).format(format).load(str(folder / "in"))
    stream = sy.stream(read).with_watermark("at", "0 seconds").group_by("k").agg(n=sy.count(), total=sy.sum("v"))
    stream = stream.window("1 second", slide="500 milliseconds").partition_by("hash", blocks=1, buckets=2)
    stream = stream.on_bad_rows("dead_letter", str(folder / "letters")).checkpoint(str(folder / "checkpoint"))
    return stream.engine("resident", workers=1).elastic(policy, guards)


def plain(spark, folder):
    """Windows that the newest row has closed, and bad rows of all files, by Spark alone."""
    rows = spark.read.schema(SCHEMA).parquet(str(folder / "in"))
    newest = rows.where("k is not null").agg(F.max("at")).first()[0]
    good = rows.where("k is not null").groupBy(F.window("at", "1 second", "500 milliseconds"), "k")
    made = good.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    found = (
        made.where(F.col("window.end") <= newest)
        .select(F.col("window.start"), F.col("window.end"), "k", "n", "total")
        .collect()
    )
    return Counter(map(tuple, found)), rows.where("k is null").count()


@contextmanager
def running(stream):
    """A query, and what it tells; stopped in any case."""
    events = []
    query = stream.start()
    try:
        query.on_progress(events.append)
        yield query, events
    finally:
        query.stop()


def moved(query, events, times):
    """Until numbers have changed so many times."""

    def moves():
        return sum(one.kind == "moved" for one in events)

    until = time.monotonic() + PATIENCE
    while moves() < times and query.is_active and time.monotonic() < until:
        time.sleep(0.02)
    decided = [(one.decision, one.wanted, one.done) for one in events if one.kind == "decision"]
    assert moves() >= times, (query.exception(), decided)


WAVES = {
    "in place": ({"aggregate": 3}, {"aggregate": 1}, {"aggregate": 4}, {"aggregate": 2}),
    "by a snapshot": ({"source": 2, "aggregate": 3}, {"source": 1}, {"aggregate": 1}),
}


@pytest.mark.parametrize("way", WAVES)
def test_numbers_change_both_ways_over_a_restart_and_answers_are_plain_sparks(spark, tmp_path, way):
    (tmp_path / "in").mkdir()
    policy, given = Waves(*WAVES[way]), []

    def take(results, epoch):
        given.append((epoch, [tuple(row) for row in results.select(*RESULT).collect()]))

    stream = described(spark, tmp_path, policy).sink("foreach_batch", function=take)
    if way == "by a snapshot":
        stream = stream.sink("parquet", path=str(tmp_path / "out"))
    changed = []
    Waves.seen.clear()
    for first in (0, FILES // 2):
        with running(stream.trigger(processing_time="300 milliseconds")) as (query, events):
            for number in range(first, first + FILES // 2):
                write_file(tmp_path / "in", number)
                time.sleep(0.1)
            moved(query, events, 3)
        assert query.await_termination(PATIENCE)
        assert query.exception() is None
        changed += [one for one in events if one.kind == "moved"]
        assert {"decision", "brought"} <= {one.kind for one in events}
        assert all(one.batch >= 0 and one.run_id == query.run_id for one in events)
    with running(stream.trigger(available_now=True)) as (query, _):
        assert query.await_termination(PATIENCE)
    assert any(one.name == "source" and one.arrived_per_second and one.lag is not None for one in Waves.seen)
    if way == "in place":
        found = Counter(row for _, rows in given for row in rows)
        assert {one.in_place for one in changed} == {True}
    else:
        found = Counter(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).select(*RESULT).collect())
        assert {one.in_place for one in changed} == {False}
    windows, letters = plain(spark, tmp_path)
    assert found == windows
    assert spark.read.parquet(str(tmp_path / "letters")).count() == letters > 0


def test_what_a_policy_needs_and_is_not_shown_is_refused_before_anything_is_written(spark, tmp_path):
    (tmp_path / "in").mkdir()
    write_file(tmp_path / "in", 0)
    for policy, format, missing, others in (
        ("zones?interval=1", "parquet", "batches", "'dhalion' or 'ds2' or .*'hpa_cpu' or"),
        ("ds2", "json", "what comes to sources", "'hpa_cpu'$"),
    ):
        stream = described(spark, tmp_path, policy, format=format).sink("parquet", path=str(tmp_path / "out"))
        said = rf"needs to see {missing}, which engine\('resident'\) cannot show .*\. Take {others}"
        with pytest.raises(OptionError, match=said):
            stream.start()
    assert not (tmp_path / "checkpoint" / "resident.json").exists()


def test_numbers_that_cannot_be_had_are_told_and_a_policy_that_raises_fails_the_query(spark, tmp_path):
    class Raises:
        """Wants blocks, which are no operator here, and then breaks."""

        looks = 0

        def decide(self, observation):
            self.looks += 1
            if self.looks > 2:
                raise ValueError("no more")
            return Action({"blocks": 3}, "more readers")

    (tmp_path / "in").mkdir()
    write_file(tmp_path / "in", 0)
    stream = described(spark, tmp_path, Raises()).sink("parquet", path=str(tmp_path / "out"))
    failed = pytest.raises(sy.SteelyardError, match="its elasticity policy failed: ValueError: no more")
    with running(stream.trigger(processing_time="400 milliseconds")) as (query, events), failed:
        query.await_termination(PATIENCE)
    refused = [one for one in events if one.kind == "decision"]
    assert refused
    assert all("'blocks'" in one.decision and not one.done for one in refused)
