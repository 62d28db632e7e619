"""Slices make up their batch; costly rows are executed alone, cheap ones together, and calls that cost are few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.grouping.slicing import SLICE_SECONDS, Slicer


def executed(slicer, rows, seconds_of):
    """The sizes of the slices of a batch."""
    sizes = []
    while sum(sizes) < rows:
        sizes.append(slicer.size(rows - sum(sizes)))
        slicer.took(sizes[-1], seconds_of(sizes[-1]))
    return sizes


@given(st.lists(st.integers(0, 300), max_size=20), st.data())
def test_slices_make_up_their_batch(batches, data):
    slicer = Slicer()
    for rows in batches:
        sizes = executed(slicer, rows, lambda size: data.draw(st.floats(0, 0.1)))
        assert sum(sizes) == rows
        assert min(sizes, default=1) > 0


@given(st.floats(0, 0.1), st.floats(1e-6, 0.1))
def test_what_a_call_and_a_row_take_is_told_apart(call, row):
    slicer = Slicer()
    executed(slicer, 100, lambda size: call + row * size)
    assert slicer.line == pytest.approx((call, row), rel=1e-3, abs=1e-9 + 1e-3 * row)


def test_costly_rows_are_executed_alone_whatever_the_noise():
    rng = np.random.default_rng(3)
    slicer = Slicer()
    executed(slicer, 2000, lambda size: float(rng.uniform(0.001, 0.064, size).sum()))
    assert np.mean(executed(slicer, 500, lambda size: float(rng.uniform(0.001, 0.064, size).sum()))) < 1.5


def test_cheap_rows_are_executed_together():
    slicer = Slicer()
    executed(slicer, 100_000, lambda size: 1e-6 * size)
    assert set(executed(slicer, 6000, lambda size: 1e-6 * size)) <= {1000, 2000}
    assert round(SLICE_SECONDS / 1e-6) == 2000


def test_a_function_whose_calls_cost_more_than_its_rows_is_called_seldom():
    calls = executed(Slicer(), 10_000, lambda size: 0.02 + 1e-5 * size)
    assert len(calls) < 20  # they double
