"""Residuals into holes: the compiled loop does what the plain one says, and what the listing promises."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.packing import place_residuals
from tests.kernels.twins.packing import place_residuals_plain


@st.composite
def holes_and_residuals(draw: Any) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    """Blocks filled below, at or above a capacity, and residuals with and without a home."""
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=8))
    residual = draw(st.lists(st.integers(1, 60), max_size=25))
    home = [draw(st.integers(-1, len(sizes) - 1)) for _ in residual]
    capacity = draw(st.integers(0, 80))
    return np.array(sizes, np.int64), capacity, np.array(home, np.int64), np.array(residual, np.int64)


def placed(loop: Any, sizes: np.ndarray, *rest: Any) -> tuple[list[list[int]], list[int]]:
    after = sizes.copy()
    return [list(map(int, column)) for column in loop(after, *rest)], after.tolist()


@settings(deadline=None, max_examples=200)
@given(case=holes_and_residuals())
def test_the_compiled_loop_equals_the_plain_one(case):
    assert placed(place_residuals, *case) == placed(place_residuals_plain, *case)


@settings(deadline=None, max_examples=200)
@given(case=holes_and_residuals())
def test_every_residual_is_placed_whole_and_sizes_are_kept_up_to_date(case):
    sizes, _, _, residual = case
    (which, block, rows), after = placed(place_residuals, *case)
    by_item, by_block = np.zeros(len(residual), np.int64), sizes.copy()
    np.add.at(by_item, which, rows)
    np.add.at(by_block, block, rows)
    assert by_item.tolist() == residual.tolist()
    assert by_block.tolist() == after
    assert all(amount > 0 for amount in rows)


@settings(deadline=None, max_examples=200)
@given(case=holes_and_residuals())
def test_no_block_passes_its_capacity_while_there_are_holes(case):
    sizes, _, home, residual = case
    enough = max(int(sizes.max()), -(-int(sizes.sum() + residual.sum()) // len(sizes)))
    _, after = placed(place_residuals, sizes, enough, home, residual)
    assert max(after) <= enough


def test_a_residual_goes_home_first_then_to_the_tightest_hole_that_holds_it():
    sizes, home, residual = np.array([8, 2, 5, 6]), np.array([0]), np.array([6])
    fragments, after = placed(place_residuals, sizes, 10, home, residual)
    assert fragments == [[0, 0], [0, 3], [2, 4]]
    assert after == [10, 2, 5, 10]


def test_a_residual_that_no_hole_holds_is_cut_at_the_widest():
    fragments, after = placed(place_residuals, np.array([7, 4, 5]), 10, np.array([-1]), np.array([13]))
    assert fragments == [[0, 0, 0], [1, 2, 0], [6, 5, 2]]
    assert after == [9, 10, 10]


def test_a_hot_residual_is_cut_over_hundreds_of_blocks():
    sizes = np.zeros(500, np.int64)
    (which, block, rows), after = placed(place_residuals, sizes, 10**12, np.array([3]), np.array([500 * 10**12]))
    assert sorted(block) == list(range(500))
    assert (set(which), set(rows), set(after)) == ({0}, {10**12}, {10**12})
