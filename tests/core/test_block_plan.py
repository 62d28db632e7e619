"""Block plans: how fragments are joined, what the metrics say, and what `check` finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BlockPlan, KeyCounts
from steelyard.core.plans import spread

#: a: 6 rows in blocks 0 and 1; b: 4 rows in block 1; c, d: 1 row each in block 2.
COUNTS = KeyCounts.of({"a": 6, "b": 4, "c": 1, "d": 1})
BY_HAND = BlockPlan.of(COUNTS, 3, key=[0, 0, 1, 2, 3], block=[0, 1, 1, 2, 2], rows=[4, 2, 4, 1, 1], policy="by hand")


def test_the_hand_example_holds_every_row_once():
    BY_HAND.check()
    assert BY_HAND.sizes.tolist() == [4, 6, 2]
    assert BY_HAND.cardinalities.tolist() == [1, 2, 2]


def test_bsi_is_the_largest_block_above_the_mean():
    assert BY_HAND.bsi == 6 - 12 / 3
    assert BY_HAND.largest_over_mean == 1.5


def test_bci_compares_with_keys_over_blocks_and_its_literal_reading_with_the_mean_over_blocks():
    assert BY_HAND.bci == pytest.approx(2 - 4 / 3)
    assert BY_HAND.bci_literal == pytest.approx(2 - 5 / 3)


def test_shuffling_looks_excellent_only_in_the_literal_reading_of_bci():
    everywhere = BlockPlan.of(
        KeyCounts.of({"a": 2, "b": 2}), 2, key=[0, 0, 1, 1], block=[0, 1, 0, 1], rows=[1, 1, 1, 1]
    )
    assert (everywhere.bci_literal, everywhere.bci) == (0.0, 1.0)


def test_ksr_is_fragments_over_keys():
    assert BY_HAND.ksr == 5 / 4
    assert BY_HAND.split.tolist() == [True, False, False, False]
    assert BY_HAND.fragments_of_key.tolist() == [2, 1, 1, 1]


def test_mpi_weighs_the_three_metrics_as_printed():
    assert BY_HAND.mpi() == pytest.approx((2 + 2 / 3 + 5 / 4) / 3)
    assert BY_HAND.mpi(1, 0, 0) == BY_HAND.bsi
    assert BY_HAND.mpi(0, 1, 0) == BY_HAND.bci
    assert BY_HAND.mpi(0, 0, 1) == BY_HAND.ksr


def test_normalised_mpi_weighs_shares_of_a_block():
    bsi, bci, ksr = 2 / 4, (2 / 3) / (4 / 3), 1 / 4
    assert BY_HAND.mpi_normalised() == pytest.approx((bsi + bci + ksr) / 3)
    assert BY_HAND.mpi_normalised(0.5, 0.25, 0.25) == pytest.approx(bsi / 2 + bci / 4 + ksr / 4)


@pytest.mark.parametrize("weights", [(1, 1, 1), (0.5, 0.5, 0.5), (1.5, -0.5, 0)])
def test_weights_of_mpi_must_add_up(weights):
    for metric in (BY_HAND.mpi, BY_HAND.mpi_normalised):
        with pytest.raises(ValueError, match="add up to 1"):
            metric(*weights)


def test_the_tail_counts_as_spread_evenly():
    counts = KeyCounts(pa.array(["a"]), np.array([3]), tail_rows=7, tail_keys=4)
    plan = BlockPlan.of(counts, 3, key=[0], block=[2], rows=[3])
    plan.check()
    assert plan.sizes.tolist() == [3, 2, 5]
    assert plan.cardinalities.tolist() == [2, 1, 2]
    assert plan.ksr == 1.0
    assert plan.sizes.sum() == counts.total


@pytest.mark.parametrize("tail_rows", [0, 5])
def test_metrics_of_a_plan_without_keys_are_the_best(tail_rows):
    counts = KeyCounts(pa.array([], pa.string()), np.empty(0, np.int64), tail_rows=tail_rows)
    plan = BlockPlan.of(counts, 1, key=[], block=[], rows=[])
    plan.check()
    assert (plan.bsi, plan.bci, plan.bci_literal, plan.ksr, plan.mpi_normalised()) == (0, 0, 0, 1, 0)
    assert plan.largest_over_mean == 1.0
    assert "0 keys" in repr(plan)


def test_sizes_are_exact_where_floats_are_not():
    rows = [2**53 + 1, 2**53 + 3]
    plan = BlockPlan.of(KeyCounts.of(dict(enumerate(rows))), 2, key=[0, 1], block=[1, 1], rows=rows)
    plan.check()
    assert plan.sizes.tolist() == [0, sum(rows)]


@settings(deadline=None, max_examples=100)
@given(
    fragments=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 5)), max_size=30),
    order=st.randoms(use_true_random=False),
)
def test_fragments_of_a_key_in_a_block_are_joined_in_any_order(fragments, order):
    expected: dict[tuple[int, int], int] = {}
    for key, block, rows in fragments:
        expected[key, block] = expected.get((key, block), 0) + rows
    expected = {where: rows for where, rows in expected.items() if rows}
    order.shuffle(fragments)
    counts = KeyCounts.of(dict.fromkeys(range(5), 1))
    columns = [list(column) for column in zip(*fragments, strict=True)] or [[], [], []]
    plan = BlockPlan.of(counts, 3, key=columns[0], block=columns[1], rows=columns[2])
    shown = list(zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True))
    assert shown == [(*where, rows) for where, rows in sorted(expected.items())]


@pytest.mark.parametrize(
    ("blocks", "key", "block", "rows", "told"),
    [
        (0, [0], [0], [6], "at least one block, got blocks=0"),
        (3, [4], [0], [1], "no key 4 among 4"),
        (3, [-1], [0], [1], "no key -1"),
        (3, [0], [3], [6], "no block 3 among 3"),
        (3, [0], [-1], [6], "no block -1"),
        (3, [0, 0], [0, 0], [7, -1], "cannot have -1 rows"),
    ],
)
def test_fragments_that_cannot_be_are_refused(blocks, key, block, rows, told):
    with pytest.raises(ValueError, match=told):
        BlockPlan.of(COUNTS, blocks, key=key, block=block, rows=rows)


@pytest.mark.parametrize(
    ("key", "block", "rows", "told"),
    [
        ([], [], [], "4 keys are listed and none is placed"),
        ([0, 1, 2], [0, 0, 0], [6, 4, 1], "key 3: 0 of 1 rows"),
        ([0, 1, 2, 3], [0, 0, 0, 0], [6, 5, 1, 1], "key 1: 5 of 4 rows"),
        ([0, 0, 1, 2, 3], [0, 0, 0, 0, 0], [3, 3, 4, 1, 1], "stands twice"),
        ([1, 0, 2, 3], [0, 0, 0, 0], [4, 6, 1, 1], "not sorted"),
        ([0, 0, 1, 2, 3], [0, 1, 0, 0, 0], [6, 0, 4, 1, 1], "empty fragment"),
        ([0, 1, 2, 3], [0, 0, 0, 3], [6, 4, 1, 1], "in no block"),
        ([0, 1, 2, 3], [-1, 0, 0, 0], [6, 4, 1, 1], "in no block"),
        ([0, 1, 2, 3, 4], [0, 0, 0, 0, 0], [6, 4, 1, 1, 1], "of no key"),
        ([-1, 0, 1, 2, 3], [0, 0, 0, 0, 0], [1, 6, 4, 1, 1], "of no key"),
        ([0, 1, 2, 3], [0, 0, 0], [6, 4, 1, 1], "differ in length"),
    ],
)
def test_check_finds_what_is_wrong(key, block, rows, told):
    plan = BlockPlan(COUNTS, 3, np.array(key, np.int32), np.array(block, np.int32), np.array(rows, np.int64))
    with pytest.raises(AssertionError, match=told):
        plan.check()


@given(amount=st.integers(0, 10**13), parts=st.integers(1, 50))
def test_spread_parts_differ_by_one_at_most(amount, parts):
    cut = spread(amount, parts)
    assert (cut.sum(), len(cut)) == (amount, parts)
    assert cut.max() - cut.min() <= 1
