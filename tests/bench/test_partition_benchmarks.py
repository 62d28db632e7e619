"""The benchmarks of policies: speed of loops, rates on Spark, and the regret of `auto`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from steelyard.bench.dalton import kernels as partition_kernels
from steelyard.bench.dalton import on_spark as partition_spark
from steelyard.bench.dalton.kernels import Speeds
from steelyard.bench.dalton.on_spark import Sustained
from steelyard.bench.prompt import auto as partition_auto
from steelyard.bench.prompt.auto import Case, Chosen, Workload
from steelyard.bench.registry import Run, choose
from steelyard.core import KeyCounts
from steelyard.partition import Prompt
from steelyard.sim.task_times import TaskCosts

COSTS = TaskCosts(0.001, 1e-6, 2e-6, 0.001, 1e-6, 1e-6)


def sustained(policy: str, exponent: float, seconds: float) -> Sustained:
    return Sustained(policy, exponent, 800.0, 1_000, [seconds, seconds, 9.0 * seconds], 1.0)


def test_every_policy_is_timed_over_the_same_tuples():
    found = partition_kernels.speeds(1.2, 5_000, ("hash", "pk2", "dalton"), 1, Run(quick=True))
    assert set(found.seconds) == {"hash", "pk2", "dalton"}
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert found.against_hash("hash") == 1


def test_key_ids_are_hashes_of_the_keys_that_were_drawn():
    ids = partition_kernels.key_ids(2_000, 1.2, seed=3)
    assert ids.dtype == np.int64
    assert len(np.unique(ids)) < 2_000
    assert np.abs(ids).max() > 2**40


def test_ratios_are_speeds_over_the_speed_of_hash():
    turns = {"hash": [2.0, 1.0, 3.0], "pk2": [2.0, 9.0], "dalton": [5.0, 8.0, 8.0], "cm": [8.0]}
    found = {1.2: Speeds(1.2, 1_000_000, turns), 0.0: Speeds(0.0, 1_000_000, turns)}
    result = partition_kernels.result_of(found, planning=0.02, routing=0.03, repetitions=1)
    assert result.metrics["two_choices_vs_hash"] == 0.5
    assert result.metrics["dalton_vs_hash"] == 0.2
    assert result.metrics["dalton_vs_hash_at_the_median"] == 0.25
    assert result.metrics["two_choices_vs_hash_at_the_median"] == pytest.approx(2 / 5.5)
    assert [row[-1] for row in result.tables[0].rows[:4]] == pytest.approx([1.0, 2 / 5.5, 0.25, 0.25])
    assert result.metrics["cm_vs_hash"] == 0.125
    assert result.metrics["prompt_vs_dalton"] == pytest.approx(1.5)
    assert not result.missed


def test_rates_are_rows_over_the_median_time_of_a_batch(tmp_path):
    found = {
        1.5: {name: sustained(name, 1.5, s) for name, s in (("hash", 3.0), ("prompt", 1.0), ("dalton", 1.5))},
        0.0: {name: sustained(name, 0.0, 1.0) for name in ("hash", "prompt", "dalton")},
    }
    shorter = [{name: replace(one, wait_us=100.0) for name, one in found[0.0].items()}]
    result = partition_spark.result_of(found, shorter, batches=3)
    assert result.metrics["prompt_vs_hash_100us"] == 1.0
    assert result.metrics["prompt_vs_hash"] == pytest.approx(3.0)
    assert result.metrics["dalton_vs_hash"] == pytest.approx(2.0)
    assert result.metrics["prompt_vs_hash_uniform"] == 1.0
    assert [target.metric for target in result.missed] == ["dalton_vs_hash"]
    assert choose(["partition-spark"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


def test_policies_stand_beside_plain_spark_as_an_expert_writes_it(tmp_path):
    seconds = (("hash", 3.0), ("prompt", 1.0), ("expert", 0.8), ("newcomer", 4.0))
    result = partition_spark.result_of({1.5: {name: sustained(name, 1.5, s) for name, s in seconds}}, [], batches=1)
    assert result.metrics["prompt_vs_expert"] == pytest.approx(0.8)
    assert result.metrics["newcomer_vs_hash"] == pytest.approx(0.75)
    assert not {"expert_vs_expert", "newcomer_vs_expert"} & set(result.metrics)
    assert [target.metric for target in result.missed] == ["prompt_vs_expert"]
    assert choose(["partition-spark"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


def test_a_stream_that_was_not_tried_has_no_ratio_and_no_aim(tmp_path):
    found = {1.5: {name: sustained(name, 1.5, s) for name, s in (("hash", 3.0), ("prompt", 1.0), ("dalton", 1.0))}}
    result = partition_spark.result_of(found, [], batches=2)
    assert {name: value for name, value in result.metrics.items() if "_vs_" in name} == {
        "prompt_vs_hash": 3.0,
        "dalton_vs_hash": 3.0,
    }
    assert [target.metric for target in result.targets] == ["prompt_vs_hash", "dalton_vs_hash"]
    assert choose(["partition-spark"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.spark
def test_policies_are_fed_the_same_rows_and_compared(spark, tmp_path):
    shape = partition_spark.Shape(1.5, 1.0, 3_000)
    folders = partition_spark.write_batches(tmp_path / "rows", shape, batches=1, seed=1)
    sizes = [pq.read_table(folder).num_rows for folder in folders]
    assert sizes == [300, 300, 300, 3_000, 300]
    assert pq.read_table(folders[0]) != pq.read_table(folders[1])
    ways = ("hash", "dalton", *partition_spark.PLAIN)
    found = partition_spark.sustained(spark, tmp_path, folders, shape, ways, Run(quick=True))
    assert {name: one.rows for name, one in found.items()} == dict.fromkeys(ways, 3_000)
    assert found["hash"].largest_over_mean > 1.5


def test_regret_is_the_time_beyond_the_best_fixed_policy():
    case = Case("any", "sum", 1.0, {"auto": 1.2, "hash": 2.0, "prompt": 1.0})
    assert case.best == "prompt"
    assert case.regret == pytest.approx(0.2)


def test_the_worst_regret_counts_and_a_miss_says_where(tmp_path):
    fixed = dict.fromkeys(partition_auto.FIXED, 1.0)
    cases = [Case("calm", "sum", 1.0, {"auto": 1.01, **fixed}), Case("wild", "sum", 5.0, {"auto": 1.3, **fixed})]
    result = partition_auto.result_of(cases, batches=10, seeds=1)
    assert result.metrics["worst_regret"] == pytest.approx(0.3)
    assert [target.metric for target in result.missed] == ["worst_regret"]
    assert "wild" in result.missed[0].explanation
    assert result.kind_of("worst_regret") == "simulated"
    assert choose(["partition-auto"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["in_place", "hash", "prompt", "shuffle", "pk2", "dalton", "auto"])
def test_a_layout_holds_every_row_and_key(name, monkeypatch):
    monkeypatch.setattr(partition_auto, "ROWS", 2_000)
    chosen = Chosen(name, source=2.0)
    for keys in Workload("any", (1.2,), source=2.0).batches(3, seed=1):
        rows, distinct, moved = chosen.blocks(keys)
        assert rows.sum() == 2_000
        assert distinct.sum() >= partition_auto.distinct_of(keys)
        assert moved or name in ("in_place", "auto")
        assert partition_auto.priced((rows, distinct, moved), 100, COSTS, 1e-6) > 0


def test_rows_of_a_plan_go_along_its_fragments():
    keys = np.repeat([3, 5, 9], [4_000, 500, 300])
    plan = Prompt().plan(KeyCounts.of({3: 4_000, 5: 500}), partition_auto.BLOCKS)
    block = partition_auto.follow(plan, keys)
    sizes = np.bincount(block[keys != 9], minlength=partition_auto.BLOCKS)
    assert np.abs(sizes - plan.sizes).max() < 0.2 * plan.sizes.max()
    assert len(set(block[keys == 9].tolist())) == 1
