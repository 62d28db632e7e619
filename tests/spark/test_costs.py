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
from steelyard.core import OptionError
from steelyard.grouping import OSG, Matrices, TrackingOSG
from steelyard.kernels.xxhash import spark_hash
from steelyard.spark.costs import ITEM, CostPartitioners, TaskMeter, chosen_blocks
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.routing import unpacked

POLICY = "osg?cost_of=customer&epsilon=0.005"
SLOW, SLOW_SECONDS = "c1", 0.02


def known_of(seconds, policy):
    """What tasks would report that executed each item once, and took so long."""
    learner = policy.instance(1, 0)
    items = np.arange(len(seconds))
    learner.executed(items, np.array(seconds, dtype=float), np.zeros(len(seconds)))
    state = learner.state()
    return {"cells": state["cells"][0], "totals": state["totals"][0]}


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
    parts = iter(np.array_split(items, 2))
    found = list(chosen_blocks(policy, known_of(seconds, policy), parts, blocks, number))
    load, wanted = np.zeros(blocks), []
    for row, item in enumerate(items):
        block = row if row < blocks else int(load.argmin())  # the first go in turn
        load[block] += seconds[item]
        wanted.append((block + number) % blocks)
    assert np.concatenate(found).tolist() == wanted


def test_without_costs_rows_go_in_turn():
    policy = OSG(cost_of="customer")
    nothing = CostPartitioners(policy).state()
    found = next(chosen_blocks(policy, nothing, iter([np.zeros(7, np.int64)]), 3, 1))
    assert found.tolist() == [1, 2, 0, 1, 2, 0, 1]


def test_a_task_counts_each_row_once_and_the_function_never_sees_the_items():
    policy = OSG(cost_of="customer")
    meter = TaskMeter(CostPartitioners(policy).policy)
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


def test_what_is_known_survives_as_text_and_fits_only_the_same_sketch():
    first, second = (CostPartitioners(OSG(cost_of="customer")) for _ in range(2))
    first.cells += 2.5
    second.restore(first.to_text())
    assert np.array_equal(first.cells, second.cells)
    with pytest.raises(OptionError, match="cells"):
        CostPartitioners(OSG(cost_of="customer", columns=3)).restore(first.to_text())


def test_descriptions_are_checked_where_they_are_written(spark):
    rows = rows_of(spark)
    with pytest.raises(OptionError, match="'osg\\?cost_of=customer'"):
        sy.stream(rows).partition_by("osg")
    with pytest.raises(OptionError, match="'tracking_osg' is a grouping of resident workers"):
        sy.stream(rows).partition_by(TrackingOSG(cost_of="customer"))
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
    assert run.memory.costs.totals[0] == 60
    run.process(rows, 1)
    assert sink.newest == truth(rows, 2)
    scheduler = run.memory.costs.policy.scheduler(3)
    known = run.memory.costs.state()
    items = [spark_hash(pa.array([name]))[0] for name in (SLOW, "c2")]
    dear, cheap = (estimate_of(scheduler, known, item) for item in items)
    assert dear > 2 * cheap
    again = engine(spark, rows, tmp_path, Kept())
    assert np.array_equal(again.memory.costs.cells, run.memory.costs.cells)
    other = engine(spark, rows, tmp_path, Kept(), "osg?cost_of=k")
    assert not other.memory.costs.cells.any()


def estimate_of(scheduler, known, item):
    count, spent = known["totals"].tolist()
    scheduler.feedback([Matrices(block, known["cells"], count, spent) for block in range(3)])
    return scheduler.expected(int(item), 0)


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
