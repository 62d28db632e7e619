"""What must hold for every partitioner that is registered."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BlockPlan, KeyCounts, OptionError, Partitioner
from steelyard.partition import Hash, Prompt, partitioner, partitioner_names
from tests.partition.key_counts import key_counts, keys_of

CASES = [
    *partitioner_names(),
    "prompt?residual_order=insertion",
    "prompt?zigzag_start=continue",
    "prompt?residual_order=insertion&zigzag_start=continue",
]
BLOCKS = st.one_of(st.integers(1, 9), st.integers(50, 100))  # the latter more than there are keys


@pytest.fixture(params=CASES, name="policy", scope="module")
def _policy(request) -> Partitioner:
    return partitioner(request.param)


def fragments(plan: BlockPlan) -> list[tuple[int, int, int]]:
    return list(zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True))


@settings(deadline=None, max_examples=60)
@given(counts=key_counts(), blocks=BLOCKS)
def test_no_row_is_lost_and_none_is_doubled(policy, counts, blocks):
    plan = policy.plan(counts, blocks)
    plan.check()
    assert plan.sizes.sum() == counts.total
    assert (plan.blocks, len(plan.sizes), len(plan.cardinalities)) == (blocks, blocks, blocks)


@settings(deadline=None, max_examples=60)
@given(counts=key_counts(), blocks=BLOCKS)
def test_metrics_are_never_better_than_best(policy, counts, blocks):
    plan = policy.plan(counts, blocks)
    assert plan.bsi >= 0
    assert plan.bci >= plan.bci_literal - 1e-9
    assert plan.bci_literal >= -1e-9
    assert plan.largest_over_mean >= 1
    assert 1 <= plan.ksr <= blocks
    assert (plan.ksr == 1) == (not plan.split.any())


@settings(deadline=None, max_examples=30)
@given(counts=key_counts(), blocks=BLOCKS)
def test_the_same_counts_give_the_same_plan(policy, counts, blocks):
    again = KeyCounts(counts.keys, counts.rows.copy(), counts.tail_rows, counts.tail_keys)
    assert fragments(policy.plan(counts, blocks)) == fragments(policy.plan(again, blocks))


@settings(deadline=None, max_examples=30)
@given(counts=key_counts())
def test_counts_are_left_as_they_were(policy, counts):
    before = counts.rows.copy()
    policy.plan(counts, 4)
    assert np.array_equal(counts.rows, before)


@settings(deadline=None, max_examples=30)
@given(counts=key_counts(), blocks=BLOCKS)
def test_the_tail_is_carried_and_does_not_move_listed_keys(policy, counts, blocks):
    plan = policy.plan(counts, blocks)
    assert plan.counts is counts
    listed = KeyCounts(counts.keys, counts.rows)
    assert fragments(policy.plan(listed, blocks)) == fragments(plan)
    assert plan.sizes.sum() - policy.plan(listed, blocks).sizes.sum() == counts.tail_rows


@settings(deadline=None, max_examples=30)
@given(counts=key_counts())
def test_one_block_takes_every_key_whole(policy, counts):
    plan = policy.plan(counts, 1)
    assert fragments(plan) == [(key, 0, rows) for key, rows in enumerate(counts.rows.tolist())]


@pytest.mark.parametrize("kind", ["strings", "longs", "structs"])
def test_no_keys_make_a_plan_without_fragments(policy, kind):
    plan = policy.plan(KeyCounts(keys_of(kind, 0), np.empty(0, np.int64)), 3)
    plan.check()
    assert (fragments(plan), plan.sizes.tolist(), plan.bsi, plan.ksr) == ([], [0, 0, 0], 0, 1)
    policy.plan(KeyCounts.of({}), 3).check()


def test_no_block_is_refused(policy):
    with pytest.raises(ValueError, match="at least one block, got blocks=0"):
        policy.plan(KeyCounts.of({"a": 2}), 0)


def test_it_pickles_and_decides_the_same_afterwards(policy):
    counts = KeyCounts.of({"a": 50, "b": 20, "c": 20, "d": 3})
    copy = pickle.loads(pickle.dumps(policy))
    assert copy == policy
    assert fragments(copy.plan(counts, 3)) == fragments(policy.plan(counts, 3))
    plan = pickle.loads(pickle.dumps(policy.plan(counts, 3)))
    assert fragments(plan) == fragments(policy.plan(counts, 3))


def test_its_repr_says_its_parameters_and_the_plans_says_who_made_it(policy):
    assert eval(repr(policy), {kind.__name__: kind for kind in (type(policy),)}) == policy
    assert repr(policy.plan(KeyCounts.of({"a": 2}), 2)).startswith(f"BlockPlan({policy.name}: 1 keys, 2 rows in 2 ")


def test_it_is_a_partitioner_known_by_its_name(policy):
    assert isinstance(policy, Partitioner)
    assert policy.name in partitioner_names()
    assert type(partitioner(policy.name)) is type(policy)
    assert partitioner(policy) is policy


def test_names_are_sorted():
    assert partitioner_names() == sorted(partitioner_names())
    assert {"hash", "prompt", "shuffle", "time"} <= set(partitioner_names())


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


def test_keys_of_any_hashable_type_can_be_planned(policy):
    for keys in (
        pa.array([True, False]),
        pa.array([1.5, -0.0]),
        pa.array([b"\xff", b""], pa.large_binary()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([1, 2], pa.timestamp("us", "UTC")),
    ):
        policy.plan(KeyCounts(keys, np.array([5, 3])), 3).check()
