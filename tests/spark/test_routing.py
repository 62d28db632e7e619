"""Policies that decide row by row, in the tasks that read the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import Routed
from steelyard.partition import Hash, tuple_policy
from steelyard.spark import memory, routing
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.routing import Partitioners, packed

pytestmark = pytest.mark.spark


class TurnRouter:
    """Round robin that goes on where the batch before ended, so that its state can be told from its routes."""

    def __init__(self, blocks, partitioner):
        self.blocks = blocks
        self.partitioner = partitioner
        self.turn = 0
        self.last_time = -1

    def route(self, keys, times):
        block = (self.turn + np.arange(len(keys))) % self.blocks
        self.turn += len(keys)
        self.last_time = int(times[-1]) if len(times) else self.last_time
        return Routed(block.astype(np.int32), np.ones(len(keys), dtype=bool))

    def state(self):
        return {"turn": np.array(self.turn), "last_time": np.array(self.last_time)}

    def restore(self, state):
        self.turn = int(state["turn"])
        self.last_time = int(state["last_time"])


@dataclass(frozen=True)
class InTurn:
    name: ClassVar[str] = "in_turn"
    slide: int = 10

    def router(self, blocks, partitioner=0):
        return TurnRouter(blocks, partitioner)


class Adding(InTurn):
    """Partitioners that go on from the largest turn of all of them."""

    def synchronise(self, states, blocks):
        furthest = max(int(state["turn"]) for state in states.values())
        return {number: {**state, "turn": np.array(furthest)} for number, state in states.items()}


class Total(sy.Aggregator):
    state = "total bigint"
    result = "bigint"

    def zero(self):
        return 0

    def add(self, state, values):
        return state + int(values.sum())

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        return state


class Kept:
    def __init__(self):
        self.results = {}

    def write(self, results, batch):
        self.results[batch] = {row["k"]: row["total"] for row in results.collect()}
        return len(self.results[batch])


def engine(spark, rows, policy, folder, sink, blocks=3):
    described = sy.stream(rows).group_by("k").agg(total=Total().of("v")).partition_by(policy, blocks=blocks, buckets=2)
    return MicroBatch(spark, described._bound(), described._settings(), sink, str(folder))


def rows_of(spark, rows=100, parts=2):
    return spark.range(0, rows, 1, parts).select((F.col("id") % 7).alias("k"), F.col("id").alias("v"))


def truth(rows):
    return {row["k"]: row["total"] for row in rows.groupBy("k").agg(F.sum("v").alias("total")).collect()}


def test_each_source_partition_is_a_partitioner_that_carries_its_state(spark, tmp_path):
    rows, sink = rows_of(spark), Kept()
    run = engine(spark, rows, InTurn(), tmp_path, sink)
    report = run.process(rows, 0)
    assert sink.results[0] == truth(rows)
    assert (report.policy, report.blocks, report.placement) == ("in_turn", 3, "blocks")
    assert sorted(task.rows for task in report.tasks) == [32, 34, 34]  # two partitioners of 50 rows, both from 0
    assert {n: int(s["turn"]) for n, s in run.memory.partitioners.states.items()} == {0: 50, 1: 50}
    run.process(rows, 1)
    assert {n: int(s["turn"]) for n, s in run.memory.partitioners.states.items()} == {0: 100, 1: 100}
    assert {int(s["last_time"]) for s in run.memory.partitioners.states.values()} == {10}  # a batch is one slide


def test_what_partitioners_learnt_survives_a_restart(spark, tmp_path):
    rows = rows_of(spark)
    engine(spark, rows, InTurn(), tmp_path, Kept()).process(rows, 0)
    again = engine(spark, rows, InTurn(), tmp_path, Kept())
    assert {int(s["turn"]) for s in again.memory.partitioners.states.values()} == {50}


def test_another_policy_begins_anew_at_a_restart(spark, tmp_path):
    rows = rows_of(spark)
    engine(spark, rows, InTurn(), tmp_path, Kept()).process(rows, 0)
    assert engine(spark, rows, InTurn(slide=20), tmp_path, Kept()).memory.partitioners.states == {}
    assert engine(spark, rows, "prompt", tmp_path, Kept()).memory.partitioners is None


def test_partitioners_begin_anew_with_another_number_of_blocks(spark, tmp_path):
    rows, sink = rows_of(spark), Kept()
    run = engine(spark, rows, InTurn(), tmp_path, sink)
    run.process(rows, 0)
    run.blocks = 2
    report = run.process(rows, 1)
    assert {int(s["turn"]) for s in run.memory.partitioners.states.values()} == {50}
    assert sorted(task.rows for task in report.tasks) == [50, 50]
    assert sink.results[1] == {key: 2 * total for key, total in truth(rows).items()}


def test_cooperating_partitioners_are_synchronised_between_batches(spark, tmp_path):
    rows = rows_of(spark, rows=90, parts=2).where("v < 80")  # 45 and 35 rows
    run = engine(spark, rows, Adding(), tmp_path, Kept())
    run.process(rows, 0)
    assert {int(s["turn"]) for s in run.memory.partitioners.states.values()} == {45}


def test_an_empty_batch_teaches_nothing(spark, tmp_path):
    rows = rows_of(spark)
    run = engine(spark, rows, InTurn(), tmp_path, Kept())
    run.process(rows, 0)
    run.process(rows.where("v < 0"), 1)
    assert {int(s["turn"]) for s in run.memory.partitioners.states.values()} == {50}


def test_a_static_dataframe_is_routed_too(spark):
    rows = rows_of(spark)
    out = sy.stream(rows).group_by("k").agg(total=Total().of("v")).partition_by(InTurn(), blocks=3).to_df()
    assert {row["k"]: row["total"] for row in out.collect()} == truth(rows)


def test_rows_of_a_shuffled_source_are_routed_alike_whatever_their_order(spark, tmp_path):
    rows = rows_of(spark).repartition(2, "v")
    turned = rows.sortWithinPartitions(F.col("v").desc())
    first, other = (Partitioners(InTurn()) for _ in range(2))
    placed = [some.placed(frame, ("k",), 3, 0, None) for some, frame in ((first, rows), (other, turned))]
    where = [sorted(frame.select("v", F.spark_partition_id()).collect()) for frame in placed]
    assert where[0] == where[1]


def test_a_partition_that_no_longer_comes_is_forgotten(monkeypatch):
    monkeypatch.setattr(routing, "FORGET_AFTER", 2)
    partitioners = Partitioners(InTurn(), {0: {"turn": np.array(1)}, 1: {"turn": np.array(2)}}, blocks=2)
    said = {"batch": 5, "rows": 1, "state": packed({"turn": np.array(7)})}
    partitioners.learn({("route", 0): said}, 5)
    assert set(partitioners.states) == {0, 1}
    partitioners.learn({("route", 0): said | {"batch": 6}}, 6)
    assert set(partitioners.states) == {0}


def test_what_a_late_task_of_another_batch_says_is_not_learnt():
    partitioners = Partitioners(InTurn(), {0: {"turn": np.array(1)}}, blocks=2)
    partitioners.learn({("route", 0): {"batch": 4, "rows": 1, "state": packed({"turn": np.array(9)})}}, 5)
    assert int(partitioners.states[0]["turn"]) == 1


class Counting:
    """A policy of a plain class, without a `repr` of its own, that counts its plans."""

    name = "counting"
    needs_counts = False

    def __init__(self):
        self.plans = 0

    def plan(self, counts, blocks):
        self.plans += 1
        return Hash().plan(counts, blocks)

    def state(self):
        return {"plans": np.array(self.plans), "file": np.array(1)}

    def restore(self, state):
        self.plans = int(state["plans"])


def test_a_policy_of_a_plain_class_goes_on_after_a_restart_and_each_query_has_its_own(spark, tmp_path):
    rows, policy = rows_of(spark), Counting()
    engine(spark, rows, policy, tmp_path / "a", Kept()).process(rows, 0)
    assert policy.plans == 0  # the query learns in a copy
    again = engine(spark, rows, Counting(), tmp_path / "a", Kept())
    assert again.settings.partitioner.plans == 1
    assert engine(spark, rows, policy, tmp_path / "b", Kept()).settings.partitioner.plans == 0


def test_memory_that_cannot_be_read_is_begun_anew(spark, tmp_path, caplog):
    rows = rows_of(spark)
    first = engine(spark, rows, Counting(), tmp_path, Kept())
    first.process(rows, 0)
    kept = next((tmp_path / "steelyard" / "policy").glob("[0-9]*"))
    kept.write_text(kept.read_text().replace("known", "unknown"))
    again = engine(spark, rows, Counting(), tmp_path, Kept())
    assert again.settings.partitioner.plans == 0
    assert "begin anew" in caplog.text


def test_auto_remembers_prices_over_a_restart(spark, tmp_path):
    rows = rows_of(spark)
    first = engine(spark, rows, "auto", tmp_path, Kept())
    for batch in range(3):
        assert first.process(rows, batch).policy.startswith("auto (")
    again = engine(spark, rows, "auto", tmp_path, Kept())
    assert {k: v.tolist() for k, v in again.settings.partitioner.state().items()} == {
        k: v.tolist() for k, v in first.settings.partitioner.state().items()
    }


def test_a_source_partition_that_is_new_goes_on_from_what_another_learnt(spark, tmp_path):
    run = engine(spark, rows_of(spark), InTurn(), tmp_path, Kept())
    run.process(rows_of(spark, parts=1), 0)
    run.process(rows_of(spark, parts=2), 1)
    assert {n: int(s["turn"]) for n, s in run.memory.partitioners.states.items()} == {0: 150, 1: 150}


def test_a_policy_takes_the_defaults_of_a_micro_batch_engine(spark):
    assert Partitioners(tuple_policy("dalton")).policy.split_cap == "n"
    assert Partitioners(tuple_policy("dalton?split_cap=3")).policy.split_cap == "3"


def test_a_memory_of_another_format_is_not_read(spark, tmp_path, monkeypatch):
    rows = rows_of(spark)
    monkeypatch.setattr(memory, "FORMAT", 1)
    engine(spark, rows, InTurn(), tmp_path, Kept()).process(rows, 0)
    monkeypatch.undo()
    assert engine(spark, rows, InTurn(), tmp_path, Kept()).memory.partitioners.states == {}
