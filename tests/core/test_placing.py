"""Setups, assignments and counts of threads, and how many threads a deployment moves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.control import Action
from steelyard.core.errors import OptionError
from steelyard.core.placing import Component, Host, Setup, Stream, together
from steelyard.placement.draws import drawn


def chain(*threads: int, machines: int = 3, slots: int = 10) -> Setup:
    names = [f"c{number}" for number in range(len(threads))]
    parts = [Component(name, count, source=not at) for at, (name, count) in enumerate(zip(names, threads, strict=True))]
    edges = [Stream(a, b) for a, b in pairwise(names)]
    return Setup(tuple(parts), tuple(edges), machines * (Host(slots=slots),))


setups = st.builds(
    lambda threads, machines, times: (
        together([(f"a{number}", chain(*threads, machines=machines)) for number in range(times)])
        if times > 1
        else chain(*threads, machines=machines)
    ),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 3),
)


@settings(deadline=None, max_examples=50)
@given(setups)
def test_round_robin_spreads_each_application_to_within_one_thread(setup):
    dealt = setup.round_robin()
    owner = setup.application_of[setup.component_of]
    for number in range(len(setup.applications)):
        there = np.bincount(dealt[owner == number], minlength=setup.machines)
        assert there.max() - there.min() <= 1
    assert len(setup.processes(dealt)) == sum(len(set(dealt[owner == n])) for n in range(len(setup.applications)))


@settings(deadline=None, max_examples=50)
@given(setups, st.integers(0, 10**6))
def test_threads_moved_are_those_whose_machine_differs(setup, seed):
    before, after = drawn(setup, 2, seed)
    assert setup.moved(before, after) == int((before != after).sum())
    action = setup.action(after, "because", before)
    assert len(action.placement) == setup.moved(before, after)
    assert not action.parallelism
    assert (setup.assignment(action, before) == after).all()
    assert (setup.located(setup.where(after)) == after).all()


@settings(deadline=None, max_examples=50)
@given(setups, st.integers(0, 10**6))
def test_counts_become_the_assignment_that_moves_fewest_threads(setup, seed):
    before, other = drawn(setup, 2, seed, vary=True)
    counts = setup.counts(other)
    after = setup.from_counts(counts, before)
    assert (setup.counts(after) == counts).all()
    was = setup.counts(before)
    # each component keeps as many threads in place as both have on a machine: no deployment can do with fewer
    fewest = sum(max(old.sum(), new.sum()) - np.minimum(old, new).sum() for old, new in zip(was, counts, strict=True))
    assert setup.moved(before, after) == fewest
    action = setup.action(after, "because", before)
    assert (setup.assignment(action, before) == after).all()


def test_many_assignments_are_counted_at_once():
    setup = chain(2, 5, 3)
    many = drawn(setup, 7, 1, vary=True)
    assert (setup.counts(many) == np.stack([setup.counts(one) for one in many])).all()


def test_paths_lead_from_sources_to_ends():
    parts = (Component("s", source=True), *(Component(name) for name in "abcd"))
    edges = (Stream("s", "a"), Stream("a", "b"), Stream("a", "c"), Stream("b", "d"))
    assert Setup(parts, edges, (Host(),)).paths() == [(0, 1, 2, 4), (0, 1, 3)]


WRONG = {
    "too short": ([0, 0], "for each of 5 threads"),
    "no such machine": ([0, 0, 3, 0, 0], "machine 3: there are 3"),
    "floats": ([0.5] * 5, "whole number"),
    "a component without threads": ([0, 0, -1, -1, -1], "'c1' has no thread"),
    "a hole": ([0, 0, 0, -1, 1], "must be its first"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_assignment_is_refused_with_what_is_wrong(case):
    given_, words = WRONG[case]
    with pytest.raises(OptionError, match=words):
        chain(2, 3).checked(given_)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_feasible_are_those_that_are_not_refused(seed, slots):
    rng = np.random.default_rng(seed)
    one = Setup((Component("s", 1, most=2, source=True),), (), 3 * (Host(slots=slots),))
    setup = together([(name, one) for name in "abc"])
    many = rng.integers(0, 3, (12, setup.threads))
    many[:, 1::2] = np.where(rng.random((12, 3)) < 0.5, -1, many[:, 1::2])
    for assignment, right in zip(many, setup.feasible(many), strict=True):
        if right:
            setup.checked(assignment)
        else:
            with pytest.raises(OptionError, match="slots and would have"):
                setup.checked(assignment)
    assert setup.feasible(many[:0]).shape == (0,)


def test_a_machine_has_no_more_processes_than_slots():
    setup = together([(name, chain(1, 1, machines=2, slots=1)) for name in "ab"])
    assert (setup.checked([0, 0, 1, 1]) == [0, 0, 1, 1]).all()
    with pytest.raises(OptionError, match="machine 0 has 1 slots and would have 2 processes"):
        setup.checked([0, 0, 0, 1])


@pytest.mark.parametrize("counts", [[[1, 0, 0], [0, 0, 0]], [[3, 0, 0], [1, 0, 0]], [[1, -1, 1], [1, 1, 1]], [[1, 1]]])
def test_counts_that_cannot_be_are_refused(counts):
    with pytest.raises(OptionError):
        chain(2, 3).from_counts(np.array(counts))


def test_actions_that_name_what_is_not_there_are_refused():
    setup = chain(2, 3)
    before = setup.round_robin()
    for action in (Action(placement={"c9#0": 0}), Action(placement={"c1#3": 0}), Action({"c7": 1})):
        with pytest.raises(OptionError):
            setup.assignment(action, before)
    with pytest.raises(OptionError):
        setup.assignment(Action({"c1": 2}, placement={"c1#2": 0}), before)  # three run, and one of them has no number


def test_setups_that_make_no_sense_are_refused():
    source = Component("s", source=True)
    with pytest.raises(OptionError, match="at least one machine"):
        Setup((source,), (), ())
    with pytest.raises(OptionError, match="goes backwards"):
        Setup((Component("a"), source), (Stream("s", "a"),), (Host(),))
    with pytest.raises(OptionError, match="more than its most"):
        Component("a", 3, most=2)
    with pytest.raises(OptionError, match="grouping"):
        Stream("s", "a", "shufle")
