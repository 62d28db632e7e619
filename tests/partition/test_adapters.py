"""Policies in each other's place: no row is lost between counts and rows, in either direction."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import KeyCounts, Learning, OptionError, Partitioner, Routed, Router, TuplePolicy
from steelyard.kernels.fragments import follow, in_order, number_keys, tally
from steelyard.kernels.xxhash import spark_hash
from steelyard.partition import Hash, Prompt, Shuffle
from steelyard.partition.adapters import PlannedByRouting, RoutedByPlan, sampled
from steelyard.partition.first_fit import FirstFitDecreasing
from tests.kernels.twins.fragments import follow_plain, in_order_plain, number_keys_plain, tally_plain
from tests.partition.key_counts import key_counts, zipf_counts

LONGS = st.integers(-(2**63), 2**63 - 1)
KEY_LISTS = st.one_of(
    st.lists(LONGS, max_size=60),
    st.lists(st.sampled_from([5, -3, 2**63 - 1, 5, 5, 5]), max_size=200),
)
PLANNERS = [Prompt(), Prompt("insertion"), Hash(), Shuffle(), FirstFitDecreasing()]


@dataclass(frozen=True)
class InTurn:
    """Rows to blocks in turn, from where the last call ended."""

    first: int = 0
    name: ClassVar[str] = "in_turn"

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        return _InTurn(blocks, self.first + partitioner)


class _InTurn:
    def __init__(self, blocks: int, first: int) -> None:
        self.blocks = blocks
        self.next = first

    def route(self, keys: np.ndarray, times: np.ndarray) -> Routed:
        block = (self.next + np.arange(len(keys))) % self.blocks
        self.next += len(keys)
        return Routed(block.astype(np.int32), np.ones(len(keys), bool))

    def state(self) -> dict[str, np.ndarray]:
        return {"next": np.array(self.next)}

    def restore(self, state: Any) -> None:
        self.next = int(state["next"])


@dataclass(frozen=True)
class ByKey:
    """Rows to the hash blocks of their keys."""

    name: ClassVar[str] = "by_key"

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        return _ByKey(blocks, 0)


class _ByKey(_InTurn):
    def route(self, keys: np.ndarray, times: np.ndarray) -> Routed:
        return Routed(np.mod(keys, self.blocks).astype(np.int32), np.zeros(len(keys), bool))


def fragments(plan) -> list[tuple[int, int, int]]:
    return list(zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True))


@pytest.mark.parametrize("policy", [InTurn(), ByKey()], ids=repr)
@settings(deadline=None, max_examples=100)
@given(counts=key_counts(), blocks=st.integers(1, 70), sample=st.sampled_from([1, 7, 100, 5000]))
def test_a_plan_by_routing_places_every_row_once(policy, counts, blocks, sample):
    planner = PlannedByRouting(policy, sample=sample)
    for _ in range(2):
        plan = planner.plan(counts, blocks)
        plan.check()
        assert plan.counts is counts
        assert plan.policy == policy.name


@settings(deadline=None, max_examples=50)
@given(counts=key_counts(), blocks=st.integers(1, 70), sample=st.sampled_from([1, 20, 10_000]))
def test_a_policy_that_splits_no_key_plans_as_hashing_does(counts, blocks, sample):
    """Also for keys that a small sample leaves out: they go to their hash block."""
    plan = PlannedByRouting(ByKey(), sample=sample).plan(counts, blocks)
    assert fragments(plan) == fragments(Hash().plan(counts, blocks))


def test_rows_of_a_sample_are_routed_in_a_mixed_order():
    counts = KeyCounts.of({"a": 4000, "b": 4000})
    plan = PlannedByRouting(InTurn()).plan(counts, 4)
    assert plan.sizes.tolist() == [2000] * 4
    assert plan.rows.min() > 900, "every key is spread about evenly"
    assert len(set(plan.rows.tolist())) > 2, "and not in the pattern of its position"


def test_a_large_batch_is_planned_from_a_sample_of_it():
    counts = zipf_counts(500, 300_000, 1.0, seed=2)
    plan = PlannedByRouting(InTurn(), sample=20_000).plan(counts, 8)
    plan.check()
    assert plan.largest_over_mean < 1.02


def test_a_router_goes_on_where_the_last_batch_ended():
    counts = KeyCounts.of({"a": 1})
    planner = PlannedByRouting(InTurn())
    assert [int(planner.plan(counts, 3).block[0]) for _ in range(4)] == [0, 1, 2, 0]
    assert [int(planner.plan(counts, 2).block[0]) for _ in range(3)] == [0, 1, 0]


def test_one_that_does_not_remember_plans_equal_counts_alike():
    counts = zipf_counts(50, 3000, 1.0, seed=2)
    planner = PlannedByRouting(InTurn(), remember=False)
    assert fragments(planner.plan(counts, 3)) == fragments(planner.plan(counts, 3))


@settings(deadline=None, max_examples=30)
@given(before=st.lists(key_counts(), max_size=3), after=key_counts(), blocks=st.integers(1, 9))
def test_a_state_is_all_that_the_next_plan_depends_on(before, after, blocks):
    planner, other = PlannedByRouting(InTurn(1), seed=3), PlannedByRouting(InTurn(1), seed=3)
    for counts in before:
        planner.plan(counts, blocks)
    other.restore(pickle.loads(pickle.dumps(planner.state())))
    assert fragments(planner.plan(after, blocks)) == fragments(other.plan(after, blocks))
    assert {name: array.tolist() for name, array in planner.state().items()} == {
        name: array.tolist() for name, array in other.state().items()
    }


def test_the_seed_chooses_the_order_of_the_rows():
    counts = zipf_counts(50, 3000, 1.0, seed=2)
    plans = [fragments(PlannedByRouting(InTurn(), seed=seed).plan(counts, 3)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(st.one_of(st.integers(1, 30), st.integers(10**14, 10**15)), max_size=40).map(
        lambda rows: np.array(rows, np.int64)
    ),
    limit=st.integers(1, 300),
)
def test_a_sample_keeps_to_its_limit_and_to_what_there_is(rows, limit):
    laid = sampled(rows, limit)
    assert laid.sum() == min(limit, rows.sum())
    assert np.all((laid >= 0) & (laid <= rows))
    if len(rows) <= limit:
        assert np.all(laid >= 1)


@pytest.mark.parametrize("planner", PLANNERS, ids=repr)
@settings(deadline=None, max_examples=60)
@given(keys=KEY_LISTS, blocks=st.integers(1, 70))
def test_rows_routed_by_a_plan_are_the_plans_fragments(planner, keys, blocks):
    keys = np.array(keys, np.int64)
    routed = RoutedByPlan(planner).router(blocks).route(keys, np.zeros(len(keys), np.int64))
    assert (routed.block.dtype, routed.split.dtype) == (np.int32, np.bool_)
    ids, rows, numbers = number_keys(keys)
    plan = planner.plan(KeyCounts(pa.array(ids, pa.int64()), rows), blocks)
    cells, sent = np.unique(numbers.astype(np.int64) * blocks + routed.block, return_counts=True)
    assert list(zip((cells // blocks).tolist(), (cells % blocks).tolist(), sent.tolist(), strict=True)) == fragments(
        plan
    )
    assert np.array_equal(routed.split, plan.split[numbers])


def test_the_first_rows_of_a_key_go_to_its_first_fragment():
    keys = np.array([1, 1, 2, 1, 1, 1])
    routed = RoutedByPlan(FirstFitDecreasing()).router(2).route(keys, np.arange(6))
    assert routed.block.tolist() == [0, 0, 1, 0, 1, 1]
    assert routed.split.tolist() == [True, True, False, True, True, True]


def test_a_router_of_a_partitioner_that_learns_has_its_state():
    policy = RoutedByPlan(PlannedByRouting(InTurn()))
    router = policy.router(3)
    router.route(np.array([7]), np.array([0]))
    twin = RoutedByPlan(PlannedByRouting(InTurn())).router(3)
    twin.restore(router.state())
    assert twin.route(np.array([7]), np.array([0])).block.tolist() == [1]
    assert RoutedByPlan(Prompt()).router(3).state() == {}


@pytest.mark.parametrize("keys", [[], [4], [4] * 50, [1, 2]], ids=["none", "one", "equal", "fewer than blocks"])
def test_edges_of_routing_by_plan(keys):
    for planner in PLANNERS:
        routed = RoutedByPlan(planner).router(7).route(np.array(keys, np.int64), np.arange(len(keys)))
        assert len(routed.block) == len(routed.split) == len(keys)
        assert np.all((routed.block >= 0) & (routed.block < 7))


def test_a_million_keys_both_ways():
    rng = np.random.default_rng(0)
    counts = KeyCounts(pa.array(np.arange(1_000_000)), rng.integers(1, 4, 1_000_000))
    PlannedByRouting(InTurn(), sample=300_000).plan(counts, 16).check()
    keys = rng.integers(-(2**62), 2**62, 1_000_000)
    routed = RoutedByPlan(Prompt()).router(16).route(keys, np.arange(len(keys)))
    assert np.bincount(routed.block, minlength=16).tolist() == [62_500] * 16


def test_adapters_are_what_they_stand_for():
    planner, router = PlannedByRouting(InTurn()), RoutedByPlan(Prompt())
    assert isinstance(planner, Partitioner)
    assert isinstance(planner, Learning)
    assert not isinstance(planner, TuplePolicy)
    assert isinstance(router, TuplePolicy)
    assert not isinstance(router, Partitioner)
    assert isinstance(router.router(2), Router)
    assert (planner.name, router.name, planner.needs_counts) == ("in_turn", "prompt", True)
    assert pickle.loads(pickle.dumps(planner)) == planner
    assert pickle.loads(pickle.dumps(router)) == router
    assert repr(planner) == "PlannedByRouting(policy=InTurn(first=0), sample=1000000, seed=0, remember=True)"


def test_options_that_make_no_sense_are_refused_by_name():
    with pytest.raises(OptionError, match="sample must be 1 row or more, got 0"):
        PlannedByRouting(InTurn(), sample=0)
    with pytest.raises(OptionError, match="seed must be 0 or more, got -1"):
        PlannedByRouting(InTurn(), seed=-1)
    for adapter in (PlannedByRouting(InTurn()).plan, lambda _, blocks: RoutedByPlan(Prompt()).router(blocks)):
        with pytest.raises(ValueError, match="at least one block, got blocks=0"):
            adapter(KeyCounts.of({"a": 1}), 0)


@settings(deadline=None, max_examples=100)
@given(keys=KEY_LISTS)
def test_keys_are_numbered_as_the_plain_twin_does(keys):
    keys = np.array(keys, np.int64)
    for ours, plain in zip(number_keys(keys), number_keys_plain(keys), strict=True):
        assert ours.tolist() == plain.tolist()


def test_many_keys_are_numbered_in_order_of_appearance():
    keys = np.random.default_rng(1).integers(0, 5000, 20_000)
    for ours, plain in zip(number_keys(keys), number_keys_plain(keys), strict=True):
        assert np.array_equal(ours, plain)


@settings(deadline=None, max_examples=200)
@given(
    sent=st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=8),
    more=st.lists(st.one_of(st.integers(0, 100), st.integers(10**14, 10**15)), min_size=8, max_size=8),
)
def test_fragments_are_tallied_as_the_plain_twin_does(sent, more):
    laid = np.array([len(rows) for rows in sent], np.int64)
    rows = np.maximum(laid + np.array(more[: len(sent)], np.int64), 1)
    block = np.array([block for rows in sent for block in rows], np.int32)
    compiled = [column.tolist() for column in tally(block, laid, rows, 5)]
    assert sorted(zip(*compiled, strict=True)) == list(zip(*tally_plain(block, laid, rows, 5), strict=True))
    placed = np.zeros(len(laid), np.int64)
    np.add.at(placed, compiled[0], compiled[2])
    assert placed.tolist() == np.where(laid > 0, rows, 0).tolist()


@settings(deadline=None, max_examples=100)
@given(counts=key_counts(tail=False), blocks=st.integers(1, 9), seed=st.integers(0, 5))
def test_rows_follow_fragments_as_in_the_plain_twin(counts, blocks, seed):
    counts = KeyCounts(counts.keys, np.minimum(counts.rows, 30))
    plan = Prompt().plan(counts, blocks)
    numbers = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts.rows)).astype(np.int32)
    starts = np.r_[0, np.cumsum(plan.fragments_of_key)]
    expected = follow_plain(numbers, starts, plan.block, plan.rows)
    assert follow(numbers, starts, plan.block, plan.rows).tolist() == expected


def test_a_policy_that_sends_rows_to_no_block_is_named():
    class Beyond(_InTurn):
        def route(self, keys: np.ndarray, times: np.ndarray) -> Routed:
            return Routed(np.full(len(keys), self.blocks, np.int32), np.zeros(len(keys), bool))

    @dataclass(frozen=True)
    class Astray:
        name: ClassVar[str] = "astray"

        def router(self, blocks: int, partitioner: int = 0) -> Router:
            return Beyond(blocks, 0)

    with pytest.raises(ValueError, match="astray sent rows to blocks 3 to 3, and there are 3"):
        PlannedByRouting(Astray()).plan(KeyCounts.of({"a": 1}), 3)


def test_ids_of_a_plan_by_routing_are_sparks_hashes_of_its_keys():
    seen = []

    class Watching(_ByKey):
        def route(self, keys: np.ndarray, times: np.ndarray) -> Routed:
            seen.append(np.sort(keys).tolist())
            return super().route(keys, times)

    @dataclass(frozen=True)
    class Watched:
        name: ClassVar[str] = "watched"

        def router(self, blocks: int, partitioner: int = 0) -> Router:
            return Watching(blocks, 0)

    keys = pa.array(["x", "y"])
    PlannedByRouting(Watched()).plan(KeyCounts(keys, np.array([1, 1])), 3)
    assert seen == [np.sort(spark_hash(keys)).tolist()]


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), max_size=80))))
def test_rows_stand_block_after_block_as_in_the_plain_twin(drawn):
    blocks, chosen = drawn
    block = np.array(chosen, np.int32)
    rows, sizes = in_order(block, blocks)
    assert (rows.tolist(), sizes.tolist()) == in_order_plain(block, blocks)
