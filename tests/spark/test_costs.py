"""Rows spread by what the map function takes for them: the answers are plain Spark's, and what was learnt is kept."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import OptionError, Placer
from steelyard.core.hidden import ITEM
from steelyard.grouping import OSG, Matrices, TrackingOSG
from steelyard.grouping.batches import in_batches
from steelyard.kernels.xxhash import spark_hash
from steelyard.spark.costs import TaskMeter
from steelyard.spark.memory import identity
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.routing import unpacked
from tests.grouping.own import LeastWork

POLICY = "osg?cost_of=customer&epsilon=0.005"
SLOW, SLOW_SECONDS = "c1", 0.02


def known_of(seconds, policy):
    """The policy in batches, after tasks that executed each item once, and took so long."""
    placer = policy.in_batches()
    learner = placer.learner(1, 0)
    learner.executed(np.arange(len(seconds)), np.array(seconds, dtype=float))
    placer.learn({0: learner.state()})
    return placer


def blocks_of(placer, items, blocks, number):
    router = placer.router(blocks, number)
    return np.concatenate([router.route(part, part).block for part in np.array_split(items, 2)]).tolist()


@settings(max_examples=50)
@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(0, 5),
    st.lists(st.integers(0, 4), max_size=60),
)
def test_rows_go_to_the_block_with_the_least_estimated_time(seconds, blocks, number, drawn):
    policy = OSG(cost_of="customer", columns=4096)  # no two items share a cell in all rows
    items = np.array([item % len(seconds) for item in drawn], dtype=np.int64)
    load, wanted = np.zeros(blocks), []
    for row, item in enumerate(items):
        block = row if row < blocks else int(load.argmin())  # the first go in turn
        load[block] += seconds[item]
        wanted.append((block + number) % blocks)
    assert blocks_of(known_of(seconds, policy), items, blocks, number) == wanted


def test_without_costs_rows_go_in_turn():
    for policy in (OSG(cost_of="customer"), TrackingOSG(cost_of="customer")):
        placer = policy.in_batches()
        assert isinstance(placer, Placer)
        assert (placer.name, placer.cost_of) == (policy.name, "customer")
        assert blocks_of(placer, np.zeros(7, np.int64), 3, 1) == [1, 2, 0, 1, 2, 0, 1]


def test_a_task_counts_each_row_once_and_the_function_never_sees_the_items():
    meter = TaskMeter(OSG(cost_of="customer").in_batches(), 3)
    rows = pa.record_batch({"v": list(range(40)), ITEM: [n % 3 for n in range(40)]})
    seen = []
    for _ in range(5):
        for part in meter.slices(rows):
            assert part.schema.names == ["v"]
            seen += part["v"].to_pylist()
    assert seen == list(range(40)) * 5
    report = unpacked(meter.report())
    assert report["totals"][0] == 200
    assert report["cells"][:, :, 0].sum(axis=1).tolist() == [200.0] * 4
    assert report["cells"][:, :, 1].sum(axis=1) == pytest.approx(report["totals"][1])


def test_what_is_known_fits_only_the_same_sketch():
    first, second = (OSG(cost_of="customer").in_batches() for _ in range(2))
    first.cells += 2.5
    second.restore(first.state())
    assert np.array_equal(first.cells, second.cells)
    with pytest.raises(OptionError, match="cells"):
        OSG(cost_of="customer", columns=3).in_batches().restore(first.state())


def test_any_grouping_goes_on_from_batch_to_batch_and_hears_what_blocks_report():
    placer = in_batches(LeastWork(cost_of="customer", every=2))
    learner = placer.learner(2, 1)
    learner.executed(np.zeros(3, np.int64), np.array([0.5, 0.5, 2.0]))  # 1 s a row, reported
    learner.executed(np.zeros(1, np.int64), np.ones(1))  # kept for the next batch
    placer.learn({1: learner.state()})
    states = {number: placer.router(2, number).state() for number in (0, 3)}
    told = placer.synchronise(states, 2)
    assert told[0]["mean"].tolist() == [1.0, 1.0]
    assert [told[number]["heard"].tolist() for number in (0, 3)] == [1, 1]
    again = in_batches(LeastWork(cost_of="customer", every=2))
    again.restore(placer.state())
    more = again.learner(2, 1)
    more.executed(np.zeros(1, np.int64), np.array([9.0]))
    again.learn({1: more.state()})
    found = again.synchronise(told, 2)
    assert (found[0]["mean"].tolist(), found[3]["mean"].tolist()) == ([1.0, 5.0], [5.0, 1.0])


def test_a_grouping_without_words_is_known_again():
    class Silent:
        name = "silent"
        scheduler = instance = print

    assert identity(in_batches(Silent())) == identity(in_batches(Silent()))
    assert identity(in_batches(LeastWork("a"))) != identity(in_batches(LeastWork("b")))


def test_descriptions_are_checked_where_they_are_written(spark):
    rows = rows_of(spark)
    with pytest.raises(OptionError, match=r'partition_by\("osg\?cost_of=customer"\)'):
        sy.stream(rows).partition_by("osg")
    with pytest.raises(OptionError, match="must be told what each row costs"):
        sy.stream(rows).partition_by("full_knowledge")
    grouped = sy.stream(rows).group_by("k").agg(total=sy.sum("v"))
    with pytest.raises(OptionError, match=r"add \.map"):
        grouped.partition_by(POLICY).to_df()
    with pytest.raises(OptionError, match="did you mean 'customer'"):
        grouped.map(slow, SCHEMA).partition_by("osg?cost_of=custmer").to_df()


SCHEMA = "k bigint, v bigint"


def slow(batch):
    """A function that takes longer for one customer than for the others, and refuses one value."""
    customers, values = batch["customer"].to_pylist(), batch["v"].to_pylist()
    if 13 in values:
        raise ValueError("13")
    time.sleep(SLOW_SECONDS * customers.count(SLOW))
    return pa.record_batch({"k": batch["k"], "v": [2 * value for value in values]})


def rows_of(spark, rows=60, parts=2):
    return spark.range(0, rows, 1, parts).select(
        (F.col("id") % 7).alias("k"),
        F.col("id").alias("v"),
        F.when(F.col("id") % 5 > 0, F.concat(F.lit("c"), F.col("id") % 5)).alias("customer"),
    )


def truth(rows, batches=1):
    doubled = rows.where("v != 13").groupBy("k").agg(F.sum(F.col("v") * 2).alias("total"))
    return {row["k"]: batches * row["total"] for row in doubled.collect()}


class Kept:
    def __init__(self):
        self.newest = {}

    def write(self, results, batch):
        self.newest |= {row["k"]: row["total"] for row in results.collect()}
        return len(self.newest)


def engine(spark, rows, folder, sink, policy=POLICY):
    described = (
        sy.stream(rows)
        .map(slow, SCHEMA)
        .group_by("k")
        .agg(total=sy.sum("v"))
        .partition_by(policy, blocks=3, buckets=2)
        .on_bad_rows("drop")
    )
    return MicroBatch(spark, described._bound(), described._settings(), sink, str(folder))


@pytest.mark.spark
def test_answers_are_plain_sparks_and_costs_are_learnt_and_kept(spark, tmp_path):
    rows, sink = rows_of(spark), Kept()
    run = engine(spark, rows, tmp_path, sink)
    report = run.process(rows, 0)
    assert sink.newest == truth(rows)
    assert (report.policy, report.blocks, report.placement) == ("osg", 3, "blocks")
    assert sum(report.bad_rows.values()) == 1
    assert run.settings.partitioner.totals[0] == 60
    run.process(rows, 1)
    assert sink.newest == truth(rows, 2)
    scheduler = run.settings.partitioner.policy.scheduler(3)
    known = run.settings.partitioner.state()
    items = [spark_hash(pa.array([name]))[0] for name in (SLOW, "c2")]
    dear, cheap = (estimate_of(scheduler, known, item) for item in items)
    assert dear > 2 * cheap
    again = engine(spark, rows, tmp_path, Kept())
    assert np.array_equal(again.settings.partitioner.cells, run.settings.partitioner.cells)
    other = engine(spark, rows, tmp_path, Kept(), "osg?cost_of=k")
    assert not other.settings.partitioner.cells.any()


def estimate_of(scheduler, known, item):
    count, spent = known["totals"].tolist()
    scheduler.feedback([Matrices(block, known["cells"], count, spent) for block in range(3)])
    return scheduler.expected(int(item), 0)


@pytest.mark.spark
@pytest.mark.parametrize(
    "policy", [LeastWork(cost_of="customer", every=3), "round_robin"], ids=["a grouping of one's own", "round robin"]
)
def test_any_grouping_gives_plain_sparks_answers_and_what_it_has_learnt_is_kept(spark, tmp_path, policy):
    rows, sink = rows_of(spark), Kept()
    run = engine(spark, rows, tmp_path, sink, policy)
    for batch in range(2):
        report = run.process(rows, batch)
        assert sink.newest == truth(rows, batch + 1)
    name = getattr(policy, "name", policy)
    assert (report.policy, report.blocks, report.placement) == (name, 3, "blocks")
    again = engine(spark, rows, tmp_path, Kept(), policy)
    states = run.memory.partitioners.states
    assert sorted(states) == [0, 1]
    assert sorted(again.memory.partitioners.states) == [0, 1]
    if isinstance(policy, LeastWork):
        assert all(state["heard"] > 0 for state in states.values())
        known = run.settings.partitioner.state()
        assert sorted(known) == ["0/fit", "1/fit", "2/fit", "blocks"]
        assert {name: part.tolist() for name, part in again.settings.partitioner.state().items()} == {
            name: part.tolist() for name, part in known.items()
        }


@pytest.mark.spark
def test_a_static_dataframe_gives_the_same(spark):
    rows = rows_of(spark).where("v != 13")
    described = sy.stream(rows).map(slow, SCHEMA).group_by("k").agg(total=sy.sum("v")).partition_by(POLICY)
    assert {row["k"]: row["total"] for row in described.to_df().collect()} == truth(rows)


@pytest.mark.spark
def test_rows_that_were_shuffled_before_are_placed_too(spark, tmp_path):
    rows, sink = rows_of(spark).repartition(4, "k"), Kept()
    run = engine(spark, rows, tmp_path, sink)
    for batch in range(2):
        run.process(rows, batch)
    assert sink.newest == truth(rows, 2)
