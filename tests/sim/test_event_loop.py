"""The compiled event loop does what its plain twin does, tuple by tuple."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.sim import (
    Edge,
    Exactly,
    Exponential,
    Growing,
    Machine,
    Network,
    Operator,
    PerItem,
    Samples,
    Scenario,
    Simulation,
    Source,
    Window,
)
from steelyard.sim.build import build
from steelyard.sim.grouped import Grouped
from steelyard.sim.layout import layout_of
from steelyard.sim.logs import Log
from tests.sim.plain_cluster import PlainCluster

SECONDS = 3.0
GROUPINGS = ("forward", "hash", "shuffle", "round_robin", "shortest", "broadcast", "global")
BY_COST = (
    "assg",
    "osg?window=3&tolerance=0.7",
    "osg?window=2&tolerance=0.9&clock=cumulated&rows=2&columns=3&resync=0",
    "tracking_osg?window=3&tolerance=0.7&resync=2",
    "tracking_osg?window=2&tolerance=0.9&items=each&idle_aware=false&rows=3&columns=7",
)

# Numbers without common measure, so that no two events fall on one moment by chance: what comes first of two that do
# depends on the last digit, and the loop and its twin do not add in the same order.
times = st.integers(1, 200).map(lambda n: 0.00131713 * n**1.01371)
PACE = {"a": 1.0, "b": 1.0327, "c": 0.9711}
laws = st.one_of(
    times.map(Exactly),
    times.map(Exponential),
    st.lists(times, min_size=1, max_size=5).map(PerItem),
    st.lists(times, min_size=1, max_size=5).map(Samples),
)
growing = st.tuples(times, times, st.sampled_from([0.0, 0.731])).map(lambda given: Growing(*given))


some_windows = st.tuples(st.sampled_from([0.2137, 0.7919]), st.sampled_from([0.0, 0.00711])).map(
    lambda two: Window(*two)
)
no_window = st.none()
any_window = st.one_of(no_window, no_window, some_windows)
no_branches = st.just(())
some_branches = st.sampled_from([(), ("log",), ("log", "a")])
"""Whose edges are branches."""


@st.composite
def operators(draw, name, laws_of_operators=laws, windows=no_window):
    instances = draw(st.integers(1, 3))
    window, service, threads = draw(windows), draw(laws_of_operators), draw(st.integers(1, 2))
    if windows is not no_window and threads > 1:
        # results of a window come at one moment: threads that took as long as each other would end together
        service = Exponential(service.mean)
    return Operator(
        name,
        service,
        parallelism=instances,
        threads=threads,
        capacity=draw(st.integers(0, 3)),
        outputs=1.0 if window else draw(st.sampled_from([0.5, 1.0, 1.0, 2.0])),
        window=window,
        slowdown=tuple(PACE[name] * one for one in draw(st.permutations([1.0, 1.0917, 0.9413]))[:instances]),
    )


@st.composite
def scenarios(
    draw,
    laws_of_operators=laws,
    groupings=(*GROUPINGS, *BY_COST),
    windows=no_window,
    branches=no_branches,
    cycles=False,
):
    """A source that feeds two operators, which both feed a third; anything else at random.

    With branches, the source feeds one of the two and the third, or the first feeds one of the others, or both. In a
    cycle, what comes out of the third goes back to the first or to itself, or on to a fourth.
    """
    source = Source(
        "log",
        rate=draw(st.sampled_from([3.7, 11.3, 23.9])),
        parallelism=draw(st.integers(1, 2)),
        keys=draw(st.one_of(st.none(), st.lists(st.integers(0, 50), min_size=1, max_size=9))),
        arrivals=draw(st.sampled_from(["even", "poisson"])),
        service=draw(st.one_of(st.just(Exactly(0.0)), laws)),
    )
    ends = [("log", "a"), ("log", "b"), ("a", "c"), ("b", "c")]
    machines = tuple(
        Machine(draw(st.integers(1, 3)), draw(st.sampled_from([1.0, 1.7]))) for _ in range(draw(st.integers(0, 3)))
    )
    network = Network(
        latency=draw(st.sampled_from([0.0, 0.0313])),
        local_latency=draw(st.sampled_from([0.0, 0.0017])),
        bytes_per_second=draw(st.sampled_from([0.0, 1013.0])),
        serialise=draw(st.sampled_from([0.0, 0.0071])),
        local_bytes_per_second=draw(st.sampled_from([0.0, 0.0, 7013.0])),
    )
    vertices = [source, *(draw(operators(name, laws_of_operators, windows)) for name in "abc")]
    if any(one.window for one in vertices[1:]):
        # windows of all instances end at one moment: with so much to serialise for each, so would what follows
        network = replace(network, serialise=0.0)
    branching = draw(branches)
    if branching:
        ends += [("log", "c"), ("a", "b")]
    edges = [Edge(*pair, draw(st.sampled_from(groupings)), tuple_bytes=17.0) for pair in ends]
    for sender, shares in (("log", {"a": 0.7, "b": 0.3}), ("a", {"b": 0.2, "c": 0.8})):
        if sender in branching:
            edges = [
                replace(one, share=shares.get(one.receiver, 1.0)) if one.sender == sender else one for one in edges
            ]
    if cycles:
        vertices, edges = draw(with_a_cycle(vertices, edges, groupings))
    return Scenario(operators=tuple(vertices), edges=tuple(edges), machines=machines, network=network)


@st.composite
def with_a_cycle(draw, vertices, edges, groupings):
    back_to = draw(st.sampled_from(["a", "c"]))
    vertices = [replace(one, capacity=0) if one.name == back_to else one for one in vertices]
    vertices = [replace(one, outputs=min(one.outputs, 1.0)) if isinstance(one, Operator) else one for one in vertices]
    # nothing is multiplied on its way round
    narrow = [name for name in groupings if name != "broadcast"]
    on = replace(vertices[-1], name="d", window=None)
    edges = [
        replace(one, grouping="hash") if one.grouping == "broadcast" and one.receiver == "c" else one for one in edges
    ]
    back = Edge("c", back_to, draw(st.sampled_from(narrow)), tuple_bytes=17.0, share=0.4, feedback=True)
    return [*vertices, on], [*edges, back, Edge("c", "d", draw(st.sampled_from(groupings)), share=0.6)]


def plain_run(scenario, seed):
    cluster = build(layout_of(scenario), seed, trace=False)
    source = scenario.operators[0]
    log = Log(source, int(np.random.SeedSequence(seed).generate_state(1)[0]), chunk=256)
    chunks = [log.next_rows(partition) for partition in range(source.parallelism)]
    rows = [list(zip(*(part.tolist() for part in chunk), strict=True)) for chunk in chunks]
    return PlainCluster(cluster, rows, Grouped(layout_of(scenario), cluster.edges).state()).run_until(SECONDS)


def check_beside_the_plain_twin(scenario, seed):
    simulation = Simulation(scenario, seed, trace=True)
    simulation.advance(SECONDS)
    trace = simulation.trace()
    firsts = layout_of(scenario).first_instance
    where = [
        firsts[name] + n for name, n in zip(*(trace[c].to_pylist() for c in ("operator", "instance")), strict=True)
    ]
    found = sorted(zip(where, trace["item"].to_pylist(), trace["done"].to_pylist(), strict=True))
    expected = sorted((left.instance, left.item, left.done) for left in plain_run(scenario, seed))
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], abs=1e-7)


@settings(max_examples=60)
@given(scenario=scenarios(st.one_of(laws, growing)), seed=st.integers(0, 5))
def test_every_tuple_leaves_where_and_when_it_does_in_the_plain_twin(scenario, seed):
    check_beside_the_plain_twin(scenario, seed)


@settings(max_examples=60)
@given(scenario=scenarios(windows=any_window), seed=st.integers(0, 5))
def test_results_of_windows_leave_where_and_when_they_do_in_the_plain_twin(scenario, seed):
    check_beside_the_plain_twin(scenario, seed)


@settings(max_examples=60)
@given(scenario=scenarios(windows=any_window, branches=some_branches), seed=st.integers(0, 5))
def test_tuples_take_the_branches_that_they_take_in_the_plain_twin(scenario, seed):
    check_beside_the_plain_twin(scenario, seed)


@settings(max_examples=60)
@given(scenario=scenarios(windows=any_window, cycles=True), seed=st.integers(0, 5))
def test_tuples_that_go_round_leave_where_and_when_they_do_in_the_plain_twin(scenario, seed):
    check_beside_the_plain_twin(scenario, seed)


@settings(max_examples=20)
@given(scenario=scenarios(), cuts=st.lists(st.floats(0.01, 0.9), max_size=4), seed=st.integers(0, 5))
def test_a_run_in_pieces_is_the_run(scenario, cuts, seed):
    whole, pieces = Simulation(scenario, seed, trace=True), Simulation(scenario, seed, trace=True)
    whole.advance(sum(cuts) + 0.1)
    for seconds in [*cuts, 0.1]:
        pieces.advance(seconds)
        pieces.sample()
    assert pieces.trace().drop_columns("done") == whole.trace().drop_columns("done")
