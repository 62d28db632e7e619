"""The policy: its net, its fallbacks, what it learns from batches, and what ships with the package."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from steelyard.core import BatchObservation, KeyCounts, StateError
from steelyard.core.tasks import TaskObservation
from steelyard.learning import Trained
from steelyard.partition import Prompt, partitioner
from steelyard.partition.learned.weights import SHIPPED
from steelyard.partition.partly import ENOUGH, PartLy


def zipf(keys, exponent, seed=0, rows=20):
    weights = np.arange(1.0, keys + 1) ** -exponent
    drawn = np.random.default_rng(seed).multinomial(rows * keys, weights / weights.sum())
    return KeyCounts(pa.array(range(int((drawn > 0).sum()))), drawn[drawn > 0])


CASES = [(zipf(keys, z), p) for keys in (30, 300, 5_000) for z in (0.3, 1.0, 1.6) for p in (3, 12, 32)]


def test_with_the_net_no_plan_is_worse_than_prompts_and_uses_of_it_are_counted():
    policy = PartLy()
    for counts, blocks in CASES:
        plan = policy.plan(counts, blocks)
        plan.check()
        assert plan.mpi_normalised() <= Prompt().plan(counts, blocks).mpi_normalised()
    assert policy.plans == len(CASES)
    assert policy.fallbacks == 0
    assert policy.netted < len(CASES) / 2


def test_the_shipped_network_alone_is_better_than_prompt_on_average():
    own, other = PartLy(net=False), Prompt()
    ratios = [own.plan(*case).mpi_normalised() / other.plan(*case).mpi_normalised() for case in CASES]
    assert np.mean(ratios) < 1


def test_one_pass_and_key_by_key_are_both_plans():
    for counts, blocks in CASES[:18]:
        for mode in ("sequential", "one_shot"):
            partitioner(f"partly?mode={mode}&net=false").plan(counts, blocks).check()


def test_the_shipped_file_is_small_and_says_how_it_was_trained():
    found = Trained.load(SHIPPED, "partly")
    assert SHIPPED.stat().st_size < 300_000
    assert found.options["keys"] > 0
    assert "mpi_vs_prompt" in found.metrics


@pytest.mark.parametrize("kind", ["missing", "damaged", "foreign", "other features"])
def test_without_a_usable_network_it_plans_as_prompt_and_says_and_counts_it(tmp_path, caplog, kind):
    path = tmp_path / "own.npz"
    shipped = Trained.load(SHIPPED)
    if kind == "damaged":
        path.write_bytes(SHIPPED.read_bytes()[:500])
    elif kind == "foreign":
        Trained("dqn", shipped.arrays, shipped.shapes).save(path)
    elif kind == "other features":
        Trained("partly", shipped.arrays, {"features": 0, "actions": 3}).save(path)
    with caplog.at_level(logging.WARNING):
        policy = PartLy(weights=str(path))
    assert len(caplog.records) == 1
    assert "partly plans as prompt does" in caplog.text
    counts, blocks = CASES[4]
    plan, expected = policy.plan(counts, blocks), Prompt().plan(counts, blocks)
    assert plan.block.tolist() == expected.block.tolist()
    assert (policy.plans, policy.fallbacks) == (1, 1)
    assert "partly (prompt)" in repr(plan)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 2.5])
def test_counts_that_are_none_never_reach_a_plan(wrong):
    policy = PartLy()
    with pytest.raises(ValueError, match=r"key 'a' has .* rows, which is no count"):
        policy.plan(KeyCounts.of({"a": wrong, "b": 4}), 4)
    assert (policy.plans, policy.fallbacks) == (0, 0)


def batch(plan, row, key):
    tasks = tuple(
        TaskObservation(number, rows, keys, row * rows + key * keys, 0.0)
        for number, (rows, keys) in enumerate(zip(plan.sizes.tolist(), plan.cardinalities.tolist(), strict=True))
    )
    return BatchObservation(0, int(plan.sizes.sum()), 0, plan.blocks, 1, 1.0, 1.0, tasks=tasks).at()


def test_it_learns_what_rows_and_keys_take_and_a_checkpoint_keeps_it():
    policy = PartLy()
    for seed in range(ENOUGH + 15):
        plan = policy.plan(zipf(100 + 50 * (seed % 5), 1.2, seed, rows=3 + 7 * (seed % 4)), 8)
        policy.observe(batch(plan, row=1e-6, key=1e-4))
    prices = policy._prices.prices
    assert prices == pytest.approx([1e-6, 1e-4], rel=0.3)
    again = PartLy()
    again.restore(policy.state())
    counts, blocks = CASES[7]
    assert again._prices.prices.tolist() == prices.tolist()
    assert (again.plans, again.netted) == (policy.plans, policy.netted)
    assert again.plan(counts, blocks).block.tolist() == policy.plan(counts, blocks).block.tolist()


def test_reports_without_times_change_nothing_and_foreign_memory_is_refused():
    policy = PartLy()
    plan = policy.plan(*CASES[0])
    for times in (0.0, float("nan"), -1.0):
        policy.observe(batch(plan, row=times, key=0.0))
    assert not policy._prices.prices.any()
    with pytest.raises(StateError, match="another form"):
        policy.restore({"prices": np.zeros((2, 2)), "counted": np.zeros(4, np.int64)})
