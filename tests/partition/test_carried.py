"""A plan that holds until its cost is known: every row goes to a block that exists, and shares are the plan's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BatchObservation, KeyCounts, Observing, Router, RowRule
from steelyard.partition import Hash, Prompt, edge_policy
from steelyard.partition.auto import Auto
from steelyard.partition.carried import RoutedByCarriedPlan

KEYS = st.lists(st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1), max_size=60)


class Shown:
    """A partitioner that looks at costs and then follows another."""

    name, needs_counts = "shown", True

    def __init__(self, inner=None):
        self.inner, self.seen, self.counts = inner or Prompt(), [], []

    def plan(self, counts, blocks):
        self.counts.append(counts)
        return self.inner.plan(counts, blocks)

    def observe(self, observation):
        self.seen.append(observation)


def cost(rows, seconds):
    return BatchObservation.of_edge(0, rows, [1] * len(rows), seconds, beside=0.0).at()


def ids(keys):
    return np.array(keys, np.int64)


@settings(deadline=None, max_examples=80)
@given(rounds=st.lists(st.lists(KEYS, max_size=3), max_size=6), blocks=st.integers(1, 5), number=st.integers(0, 7))
def test_every_row_goes_to_a_block_that_exists_whatever_is_observed(rounds, blocks, number):
    router = edge_policy("auto").router(blocks, number)
    assert isinstance(router, Router)
    assert isinstance(router, Observing)
    for batches in rounds:
        sent = np.zeros(blocks, np.int64)
        for keys in batches:
            routed = router.route(ids(keys), np.arange(len(keys)))
            assert len(routed.block) == len(routed.split) == len(keys)
            assert routed.block.dtype == np.int32
            assert all(0 <= block < blocks for block in routed.block.tolist())
            sent += np.bincount(routed.block, minlength=blocks)
        twin = edge_policy("auto").router(blocks, number)
        router.observe(cost(sent.tolist(), (sent * 1e-3).tolist()))
        twin.restore(router.state())
        assert {name: part.tolist() for name, part in twin.state().items()} == {
            name: part.tolist() for name, part in router.state().items()
        }


@settings(deadline=None, max_examples=40)
@given(first=KEYS, second=KEYS, blocks=st.integers(1, 5))
def test_a_plan_is_made_of_all_keys_of_the_round_before_and_holds_for_one_round(first, second, blocks):
    router = RoutedByCarriedPlan(Shown()).router(blocks)
    for keys in (first, second):
        router.route(ids(keys), np.arange(len(keys)))
    router.observe(cost([len(first)], [1.0]))
    for keys in (first, first):
        router.route(ids(keys), np.arange(len(keys)))
    policy = router.partitioner
    wanted = KeyCounts.from_rows(pa.array(first + second, pa.int64())).to_dict()
    assert len(policy.counts) == (1 if first or second else 0) + (1 if first else 0)
    if first:
        assert policy.counts[-1].to_dict() == wanted
        plan = router.plan
        homes = {key: set(plan.block[plan.key == at].tolist()) for at, key in enumerate(plan.counts.keys.to_pylist())}
        routed = router.route(ids(first), np.arange(len(first)))
        assert all(block in homes[key] for key, block in zip(first, routed.block.tolist(), strict=True))


def test_rows_of_a_cut_key_are_shared_out_as_planned_and_unlisted_keys_go_by_hash():
    router = RoutedByCarriedPlan(Shown()).router(4)
    hot = np.r_[np.full(9_000, 7), np.arange(100, 1_100)]
    router.route(hot, hot)
    router.observe(cost([10_000], [1.0]))
    blocks = np.concatenate([router.route(part, part).block for part in np.array_split(hot, 300)])
    plan = router.plan
    sizes = np.bincount(blocks, minlength=4)
    assert len(plan.block[plan.key == 0]) > 2
    assert sizes == pytest.approx(plan.sizes, rel=0.02)
    unknown = ids([10**6, 10**6 + 1, -5])
    assert router.route(unknown, unknown).block.tolist() == [key % 4 for key in unknown.tolist()]


def test_each_router_learns_for_itself():
    policy = RoutedByCarriedPlan(Shown(Hash()))
    one, other = policy.router(2, 0), policy.router(2, 1)
    one.observe(cost([1], [1.0]))
    assert (len(one.partitioner.seen), len(other.partitioner.seen), len(policy.partitioner.seen)) == (1, 0, 0)


def test_auto_leaves_hash_where_one_key_is_most_of_the_stream():
    """Costs as instances would tell them that take 10 us a row: the one with the hot key is the slowest by far."""
    router = edge_policy("auto?candidates=hash,prompt").router(4)
    keys = np.r_[np.full(3_000, 7), np.arange(100, 1_100)]
    for _ in range(12):
        blocks = router.route(keys, keys).block
        sizes = np.bincount(blocks, minlength=4)
        router.observe(cost(sizes.tolist(), (sizes * 1e-5).tolist()))
    assert router.route(keys, keys) is not None
    assert router.plan.policy == "auto (prompt)"
    assert router.plan.rule is RowRule.HASH
    assert isinstance(router.partitioner, Auto)
