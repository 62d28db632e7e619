"""Worst fit in rounds: whole rounds at a time choose what the listing chooses one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.rounds import worst_fit_rounds
from tests.kernels.twins.rounds import worst_fit_rounds_plain


@st.composite
def a_tasks_clusters(draw: Any) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Capacities as split keys leave them, and descending weights with many ties."""
    weights = sorted(draw(st.lists(st.one_of(st.integers(0, 4), st.integers(0, 1000)), max_size=50)), reverse=True)
    if draw(st.booleans()):
        weights = [draw(st.integers(0, 9))] * len(weights)
    taken = draw(st.lists(st.one_of(st.just(0), st.integers(0, 500)), min_size=1, max_size=9))
    capacity = (sum(weights) + sum(taken)) / len(taken) - np.array(taken, np.float64)
    return capacity, np.array(weights, np.int64), draw(st.integers(0, 30)), draw(st.booleans())


@settings(deadline=None, max_examples=200)
@given(case=a_tasks_clusters())
def test_whole_rounds_equal_the_plain_listing(case):
    before = case[0].copy()
    assert worst_fit_rounds(*case).tolist() == worst_fit_rounds_plain(*case).tolist()
    assert np.array_equal(case[0], before), "the capacities were changed"


@settings(deadline=None, max_examples=100)
@given(case=a_tasks_clusters())
def test_with_rotation_every_round_uses_every_bucket_once(case):
    capacity, weights, task, _ = case
    chosen = worst_fit_rounds(capacity, weights, task, rotate=True)
    buckets = len(capacity)
    for first in range(0, len(weights), buckets):
        part = chosen[first : first + buckets].tolist()
        assert len(set(part)) == len(part)


@pytest.mark.parametrize("loop", [worst_fit_rounds, worst_fit_rounds_plain])
def test_ties_are_counted_from_the_task(loop):
    even = np.full(4, 10.0)
    assert loop(even, np.array([3, 2, 1, 1, 1]), 2, True).tolist() == [2, 3, 0, 1, 0]


@pytest.mark.parametrize("loop", [worst_fit_rounds, worst_fit_rounds_plain])
def test_without_rotation_the_emptiest_bucket_takes_several(loop):
    assert loop(np.array([9.0, 2.0]), np.array([3, 3, 3]), 0, False).tolist() == [0, 0, 0]
