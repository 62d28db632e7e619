"""What must hold for every partitioner that is registered."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BlockPlan, KeyCounts, OptionError, Partitioner, TuplePolicy
from steelyard.partition import Hash, Prompt, PromptAllocator, partitioner, partitioner_names, policy, tuple_policy
from tests.partition.key_counts import key_counts, keys_of

CASES = [
    *partitioner_names(),
    "prompt?residual_order=insertion",
    "prompt?zigzag_start=continue",
    "prompt?residual_order=insertion&zigzag_start=continue",
]
BLOCKS = st.one_of(st.integers(1, 9), st.integers(50, 100))  # the latter more than there are keys


@pytest.fixture(params=CASES, name="fresh", scope="module")
def _fresh(request) -> Callable[[], Partitioner]:
    """Makes the policy anew: some learn from every plan that they make."""
    return lambda: partitioner(request.param)


def fragments(plan: BlockPlan) -> list[tuple[int, int, int]]:
    return list(zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True))


@settings(deadline=None, max_examples=60)
@given(counts=key_counts(), blocks=BLOCKS)
def test_no_row_is_lost_none_is_doubled_and_metrics_are_never_better_than_best(fresh, counts, blocks):
    plan = fresh().plan(counts, blocks)
    plan.check()
    assert plan.sizes.sum() == counts.total
    assert (plan.blocks, len(plan.sizes), len(plan.cardinalities)) == (blocks, blocks, blocks)
    assert plan.bsi >= 0
    assert plan.bci >= plan.bci_literal - 1e-9
    assert plan.bci_literal >= -1e-9
    assert plan.largest_over_mean >= 1
    assert 1 <= plan.ksr <= blocks
    assert (plan.ksr == 1) == (not plan.split.any())


@settings(deadline=None, max_examples=20)
@given(counts=key_counts(), blocks=BLOCKS)
def test_the_same_counts_give_the_same_plan_and_are_left_as_they_were(fresh, counts, blocks):
    again = KeyCounts(counts.keys, counts.rows.copy(), counts.tail_rows, counts.tail_keys)
    assert fragments(fresh().plan(counts, blocks)) == fragments(fresh().plan(again, blocks))
    assert np.array_equal(counts.rows, again.rows)


@settings(deadline=None, max_examples=20)
@given(counts=key_counts(), blocks=BLOCKS)
def test_the_tail_is_carried_and_does_not_move_listed_keys(fresh, counts, blocks):
    plan = fresh().plan(counts, blocks)
    assert plan.counts is counts
    listed = fresh().plan(KeyCounts(counts.keys, counts.rows), blocks)
    assert fragments(listed) == fragments(plan)
    assert plan.sizes.sum() - listed.sizes.sum() == counts.tail_rows


@settings(deadline=None, max_examples=20)
@given(counts=key_counts())
def test_one_block_takes_every_key_whole(fresh, counts):
    plan = fresh().plan(counts, 1)
    assert fragments(plan) == [(key, 0, rows) for key, rows in enumerate(counts.rows.tolist())]


@pytest.mark.parametrize("kind", ["strings", "longs", "structs"])
def test_no_keys_make_a_plan_without_fragments(fresh, kind):
    plan = fresh().plan(KeyCounts(keys_of(kind, 0), np.empty(0, np.int64)), 3)
    plan.check()
    assert (fragments(plan), plan.sizes.tolist(), plan.bsi, plan.ksr) == ([], [0, 0, 0], 0, 1)
    fresh().plan(KeyCounts.of({}), 3).check()


def test_no_block_is_refused(fresh):
    with pytest.raises(ValueError, match="at least one block, got blocks=0"):
        fresh().plan(KeyCounts.of({"a": 2}), 0)


def test_it_pickles_and_decides_the_same_afterwards(fresh):
    counts = KeyCounts.of({"a": 50, "b": 20, "c": 20, "d": 3})
    copy = pickle.loads(pickle.dumps(fresh()))
    assert repr(copy) == repr(fresh())
    assert fragments(copy.plan(counts, 3)) == fragments(fresh().plan(counts, 3))
    plan = pickle.loads(pickle.dumps(fresh().plan(counts, 3)))
    assert fragments(plan) == fragments(fresh().plan(counts, 3))


def test_the_plan_says_who_made_it(fresh):
    assert repr(fresh().plan(KeyCounts.of({"a": 2}), 2)).startswith(f"BlockPlan({fresh().name}")


@pytest.mark.parametrize("name", partitioner_names())
def test_it_is_known_by_its_name_and_its_repr_says_its_parameters(name):
    made = policy(name)
    assert made.name == name
    assert policy(made) is made
    assert repr(eval(repr(made), {type(made).__name__: type(made)})) == repr(made)
    assert isinstance(partitioner(name), Partitioner)
    assert isinstance(tuple_policy(name), TuplePolicy)
    assert partitioner(name).name == tuple_policy(name).name == name


def test_names_are_sorted():
    assert partitioner_names() == sorted(partitioner_names())
    assert {"auto", "dalton", "hash", "prompt", "pk2", "shuffle", "time"} <= set(partitioner_names())


@pytest.mark.parametrize("name", ["promt", "", "Prompt", "steelyard", "?residual_order=insertion"])
def test_a_wrong_name_is_answered_with_the_right_ones(name):
    with pytest.raises(OptionError, match="unknown partitioner") as raised:
        partitioner(name)
    assert ", ".join(partitioner_names()) in str(raised.value)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("prompt?residual=insertion", r"unknown parameter of prompt 'residual': did you mean 'residual_order'\?"),
        ("prompt?residual_order=ascendig", r"unknown residual_order of prompt 'ascendig': did you mean 'ascending'\?"),
        ("prompt?residual_order", "unknown residual_order of prompt ''.*ascending, insertion"),
        ("prompt?zigzag_start=middle", "unknown zigzag_start of prompt 'middle'.*continue, restart"),
        ("hash?seed=3", "unknown parameter of hash 'seed'.*none"),
        ("prompt?zigzag_start=continue&zigzag_start=restart", "'zigzag_start' of prompt is given twice"),
    ],
)
def test_a_wrong_parameter_is_answered_with_the_right_ones(named, told):
    with pytest.raises(OptionError, match=told):
        partitioner(named)


def test_parameters_stand_behind_a_question_mark():
    assert partitioner("prompt?") == partitioner("prompt") == Prompt()
    assert partitioner("prompt?residual_order=insertion&zigzag_start=continue") == Prompt("insertion", "continue")


@pytest.mark.parametrize("thing", [None, 3, Hash, Prompt, object()])
def test_what_is_no_partitioner_is_refused(thing):
    with pytest.raises(OptionError, match="a name or an object with `plan`"):
        partitioner(thing)


def test_keys_of_any_hashable_type_can_be_planned(fresh):
    for keys in (
        pa.array([True, False]),
        pa.array([1.5, -0.0]),
        pa.array([b"\xff", b""], pa.large_binary()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([1, 2], pa.timestamp("us", "UTC")),
    ):
        fresh().plan(KeyCounts(keys, np.array([5, 3])), 3).check()


@pytest.mark.parametrize("name", partitioner_names())
class TestRoutingRowByRow:
    """Every policy as a router: its own, or by plans of what it is given."""

    @settings(deadline=None, max_examples=25)
    @given(keys=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5), max_size=60), blocks=BLOCKS)
    def test_every_row_goes_to_one_block_that_exists(self, name, keys, blocks):
        routed = tuple_policy(name).router(blocks).route(np.array(keys, np.int64), np.arange(len(keys)))
        assert len(routed.block) == len(routed.split) == len(keys)
        assert routed.block.dtype == np.int32
        assert all(0 <= block < blocks for block in routed.block.tolist())

    @settings(deadline=None, max_examples=15)
    @given(keys=st.lists(st.integers(0, 9), min_size=1, max_size=80), blocks=st.integers(1, 9))
    def test_a_key_that_is_not_split_is_in_one_block(self, name, keys, blocks):
        ids = np.array(keys, np.int64)
        routed = tuple_policy(name).router(blocks).route(ids, np.arange(len(keys)))
        for key in set(keys):
            rows = ids == key
            if not routed.split[rows].any():
                assert len(set(routed.block[rows].tolist())) == 1

    @settings(deadline=None, max_examples=15)
    @given(keys=st.lists(st.integers(0, 9), max_size=80), first=st.integers(0, 80))
    def test_a_router_goes_on_from_its_state_as_if_nothing_had_happened(self, name, keys, first):
        ids, times = np.array(keys, np.int64), np.arange(len(keys)) * 40
        one, other = tuple_policy(name).router(4, 1), tuple_policy(name).router(4, 1)
        one.route(ids[:first], times[:first])
        other.restore({part: array.copy() for part, array in one.state().items()})
        assert one.route(ids[first:], times[first:]).block.tolist() == (
            other.route(ids[first:], times[first:]).block.tolist()
        )

    def test_a_million_keys_and_one_key_alone(self, name):
        for ids in (np.arange(1_000_000, dtype=np.int64), np.zeros(100_000, np.int64)):
            routed = tuple_policy(name).router(16).route(ids, np.arange(len(ids)))
            assert routed.block.min() >= 0
            assert routed.block.max() < 16


@pytest.mark.parametrize("name", partitioner_names())
def test_a_million_keys_can_be_planned(name):
    counts = KeyCounts(pa.array(np.arange(1_000_000)), np.ones(1_000_000, np.int64))
    partitioner(name).plan(counts, 16).check()


@pytest.mark.parametrize("name", partitioner_names())
def test_a_key_has_one_bucket_over_all_map_tasks(name):
    """Clusters as map tasks see them, from a routing, allotted in each task without talking to the others."""
    rng = np.random.default_rng(5)
    ids = rng.zipf(1.5, 5_000).astype(np.int64) % 300
    routed = tuple_policy(name).router(4).route(ids, np.arange(len(ids)))
    split = {key for key in set(ids.tolist()) if routed.split[ids == key].any()}
    where: dict[int, set[int]] = {}
    for task in range(4):
        keys, rows = np.unique(ids[routed.block == task], return_counts=True)
        flags = np.array([key in split for key in keys.tolist()], dtype=bool)
        dealt = PromptAllocator().allot(rows, flags, keys, 3, task)
        for key, bucket in zip(keys.tolist(), dealt.bucket.tolist(), strict=True):
            where.setdefault(key, set()).add(bucket)
    assert all(len(buckets) == 1 for buckets in where.values())
