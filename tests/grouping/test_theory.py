"""What the paper proves, against brute force and against the sketches and the scheduler themselves."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.grouping import FullKnowledge
from steelyard.kernels.osg_sketch import add, coefficients, estimate
from tests.grouping import theory

times_of_tuples = st.lists(st.integers(1, 20).map(float), min_size=1, max_size=8)


def best_makespan(times, instances):
    """By trying every assignment."""
    best = sum(times)
    for assigned in product(range(instances), repeat=len(times)):
        loads = np.bincount(assigned, weights=times, minlength=instances)
        best = min(best, float(loads.max()))
    return best


@settings(deadline=None, max_examples=40)
@given(times_of_tuples, st.integers(1, 3))
def test_the_greedy_scheduler_stays_within_its_bound_of_the_best(times, instances):
    greedy, best = theory.greedy_makespan(times, instances), best_makespan(times, instances)
    assert best <= greedy <= theory.greedy_ratio(instances) * best + 1e-9
    assert greedy <= theory.greedy_bound(times, instances) + 1e-9
    assert theory.least_makespan(times, instances) <= best + 1e-9


@settings(deadline=None, max_examples=40)
@given(times_of_tuples, st.integers(1, 4))
def test_full_knowledge_is_the_greedy_scheduler(times, instances):
    to = FullKnowledge().scheduler(instances).choose(np.zeros(len(times), np.int64), costs=np.array(times)).to
    assert np.bincount(to, weights=times).max() == theory.greedy_makespan(times, instances)


@pytest.mark.parametrize("instances", [2, 3, 4, 7])
def test_the_bound_is_reached(instances):
    times = theory.worst_case(instances, longest=instances)
    assert theory.greedy_makespan(times, instances) == pytest.approx(theory.greedy_ratio(instances) * instances)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 64).map(float), min_size=2, max_size=9), st.integers(1, 6), st.data())
def test_the_closed_form_of_equal_frequencies_is_the_sum_over_all_collisions(times, columns, data):
    item = data.draw(st.integers(0, len(times) - 1))
    closed = theory.expected_estimate_of_equals(times, item, columns)
    assert closed == pytest.approx(theory.expected_estimate([3.0] * len(times), times, item, columns))
    assert min(times) - 1e-9 <= closed <= max(times) + 1e-9


def test_with_flat_frequencies_a_sketch_tells_next_to_nothing():
    times = [1.0 + i % 64 for i in range(4096)]
    assert theory.expected_estimate_of_equals(times, item=63, columns=55) == pytest.approx(32.92, abs=0.01)
    assert theory.expected_estimate_of_equals(times, item=0, columns=55) == pytest.approx(32.08, abs=0.01)


@pytest.mark.parametrize("frequencies", [[1] * 6, [20, 1, 5, 3, 1, 1]])
def test_the_mean_estimate_of_real_sketches_is_the_expected_one(frequencies):
    times, columns, item, draws = [1.0, 5.0, 2.0, 9.0, 4.0, 7.0], 3, 1, 3000
    found = []
    for seed in range(draws):
        cells, hashes = np.zeros((1, 1, 1, columns, 2)), coefficients(1, seed)
        for other, count in enumerate(frequencies):
            for _ in range(count):
                add(cells[0], 0, hashes, columns, other, times[other], False)
        found.append(estimate(cells, 0, 0, hashes, columns, item, 0.0))
    noise = np.std(found) / draws**0.5
    assert np.mean(found) == pytest.approx(theory.expected_estimate(frequencies, times, item, columns), abs=4 * noise)


def test_more_items_than_sets_can_be_looked_at_are_refused():
    with pytest.raises(ValueError, match="at most 20"):
        theory.expected_estimate([1] * 21, [1.0] * 21, 0, 4)
