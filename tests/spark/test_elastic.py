"""Elasticity policies in the micro-batch engine: what they see, and whose state they are."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.control import Bounds, LargestStep
from steelyard.core import BLOCKS, Action, OptionError
from steelyard.scaling import Zones
from steelyard.spark.microbatch import MicroBatch

pytestmark = pytest.mark.spark

NEVER_ENOUGH = 1e-6
"""Seconds that no batch keeps to."""


class Discarded:
    def write(self, results, batch):
        return results.count()


class Noting:
    """Adds a block after every batch, and notes what it saw."""

    def __init__(self):
        self.seen = []

    def decide(self, observation):
        self.seen.append(observation.batch)
        return Action({BLOCKS: observation.batch.blocks + 1}, "one more")


def described(rows, policy):
    stream = sy.stream(rows).partition_by("prompt").group_by("k").agg(total=sy.sum("v"), rows=sy.count())
    return stream.partition_by("shuffle", blocks=2, buckets=2).elastic(policy)


def engine(spark, stream, folder):
    return MicroBatch(spark, stream._bound(), stream._settings(), Discarded(), str(folder))


def rows_of(spark, rows=60, keys=7):
    return spark.range(0, rows, 1, 2).select((F.col("id") % keys).alias("k"), F.col("id").alias("v"))


def test_zones_go_on_after_a_restart_where_they_stopped(spark, tmp_path):
    rows = rows_of(spark)
    stream = described(rows, f"zones?patience=2&interval={NEVER_ENOUGH}&most_blocks=9&most_buckets=9")
    engine(spark, stream, tmp_path).process(rows, 0)
    report = engine(spark, stream, tmp_path).process(rows, 1)  # the second batch in a row that takes too long
    assert "above 0.9 for 2 batches; rows and keys as before: blocks 2 -> 3, buckets 2 -> 3" in report.decision
    third = engine(spark, stream, tmp_path)
    assert (third.blocks, third.buckets) == (3, 3)
    assert third.settings.elastic.state()["counters"].tolist() == [0, 0, 3, 0]


def test_zones_with_another_parameter_begin_anew(spark, tmp_path):
    rows = rows_of(spark)
    engine(spark, described(rows, Zones(patience=2, interval=NEVER_ENOUGH)), tmp_path).process(rows, 0)
    other = engine(spark, described(rows, Zones(patience=3, interval=NEVER_ENOUGH)), tmp_path)
    assert other.settings.elastic.state()["counters"].tolist() == [0, 0, 0, -1]


def test_queries_of_one_description_do_not_share_a_policy(spark, tmp_path):
    rows, policy = rows_of(spark), Zones(interval=NEVER_ENOUGH)
    stream = described(rows, policy)
    one, two = engine(spark, stream, tmp_path / "one"), engine(spark, stream, tmp_path / "two")
    one.process(rows, 0)
    counters = [some.state()["counters"][0] for some in (one.settings.elastic, two.settings.elastic, policy)]
    assert counters == [1, 0, 0]


def test_a_policy_sees_slots_and_keys_whatever_the_blocks(spark, tmp_path):
    rows = rows_of(spark, keys=7)
    run = engine(spark, described(rows, Noting()), tmp_path)
    for batch in range(2):
        assert run.process(rows, batch).keys == 7
    seen = run.settings.elastic.seen
    assert [(one.rows, one.keys, one.blocks) for one in seen] == [(60, 7, 2), (60, 7, 3)]
    assert {one.slots for one in seen} == {spark.sparkContext.defaultParallelism}


def test_zones_need_an_interval_to_compare_with(spark):
    rows = spark.readStream.format("rate").load().select((F.col("value") % 7).alias("k"), F.col("value").alias("v"))
    with pytest.raises(OptionError, match=r"elastic: Zones\(.*add \.trigger\(processing_time='1 second'\)"):
        described(rows, "zones").sink("console").start()
    timed = described(rows, "zones").trigger(processing_time="2 seconds")
    assert timed._settings().interval == 2.0


def test_a_name_that_is_no_policy_is_refused(spark):
    with pytest.raises(OptionError, match="unknown elasticity policy 'zone': did you mean 'zones'"):
        described(rows_of(spark), "zone")


def test_guards_bound_what_a_policy_may_do(spark, tmp_path):
    rows = rows_of(spark)
    policy = f"zones?patience=1&increment=proportional&interval={NEVER_ENOUGH}&most_blocks=9&most_buckets=9"
    stream = described(rows, policy).elastic(policy, guards=[LargestStep(up=2), Bounds(own={"buckets": (1, 3)})])
    report = engine(spark, stream, tmp_path).process(rows, 0)
    assert report.decision.endswith("no more than 2 at once; kept within its bounds")
    then = engine(spark, stream, tmp_path)
    assert (then.blocks, then.buckets) == (4, 3)
