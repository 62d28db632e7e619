"""Edges that lead back, and branches, of which a tuple takes one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.sim import (
    Checkpoints,
    Edge,
    Exactly,
    Failure,
    FluidSimulation,
    Operator,
    Scenario,
    Simulation,
    Source,
    Window,
    simulate,
)
from tests.sim.test_conservation import drained, finite
from tests.sim.test_event_loop import any_window, scenarios

LOG, MAP, OUT = Source("log", 100, rows=500), Operator("map", Exactly(0.001)), Operator("out", Exactly(0.0))
ON = Edge("map", "out", share=0.5)


def looped(share=0.5, operator=MAP, grouping="shuffle", source=LOG):
    back = Edge("map", "map", grouping, share=share, feedback=True)
    return Scenario((source, operator, OUT), (Edge("log", "map"), back, Edge("map", "out", share=1 - share)))


def copied_round(operator=MAP, share=0.5):
    """Each tuple goes on, and a copy of it comes round, through an operator that lets a part of them through."""
    again = Operator("again", Exactly(0.0), outputs=share)
    edges = (Edge("log", "map"), Edge("map", "again"), Edge("again", "map", feedback=True), Edge("map", "out"))
    return Scenario((LOG, operator, again, OUT), edges)


@settings(max_examples=40)
@given(
    scenario=scenarios(windows=any_window, cycles=True),
    rows=st.integers(1, 40),
    seed=st.integers(0, 3),
)
def test_every_tuple_comes_out_of_the_cycle_in_the_end(scenario, rows, seed):
    result = drained(finite(scenario, rows), seed).result()
    totals = {vertex.name: result.total(vertex.name) for vertex in scenario.operators}
    for vertex in scenario.operators[1:]:
        assert totals[vertex.name].received == totals[vertex.name].processed
    assert sum(totals[name].sent for name in ("log", *"abc")) == sum(totals[name].received for name in "abcd")


def test_each_time_round_costs_a_service():
    result = simulate(looped(), 60, seed=2, trace=True)
    assert sorted(result.trace["item"].to_pylist()) == list(range(500))
    # a tuple is served 1 / (1 - share) times on average
    assert result.total("map").processed == pytest.approx(1000, rel=0.1)
    trace = simulate(copied_round(), 60, seed=2, trace=True).trace.to_pandas()
    assert len(trace) == pytest.approx(1000, rel=0.1)
    assert set(trace["item"]) == set(range(500))


def test_a_policy_routes_what_comes_round():
    scenario = looped(operator=Operator("map", Exactly(0.001), parallelism=3), grouping="pk2")
    result = simulate(scenario, 60, seed=2)
    assert result.total("map").processed > 900
    assert result.total("out").processed == 500


def test_a_checkpoint_holds_what_is_in_the_cycle():
    slow = looped(operator=Operator("map", Exactly(0.008)), share=0.2)
    failed = simulate(slow, 100, seed=2, trace=True, checkpoints=Checkpoints(every=1.0), failures=[Failure(at=3.5)])
    assert set(failed.trace["item"].to_pylist()) == set(range(500))


def test_a_restart_lets_out_what_is_in_the_cycle():
    simulation = Simulation(looped(), trace=True)
    simulation.advance(2.0)
    simulation.restart(looped().rescaled({"map": 3}))
    simulation.advance(30.0)
    assert set(simulation.trace()["item"].to_pylist()) == set(range(500))


@pytest.mark.parametrize("grouping", ["hash", "dalton", "osg", "broadcast"])
def test_a_tuple_takes_exactly_one_branch_whatever_the_grouping(grouping):
    """With draws for each edge by itself, a quarter of the rows would be lost and a quarter would go both ways."""
    scenario = Scenario(
        (
            Source("log", 5_000, rows=20_000),
            *(Operator(name, Exactly(0.0001), parallelism=2) for name in "abc"),
            Operator("all", Exactly(0.0)),
        ),
        (
            Edge("log", "a", grouping, share=0.25),
            Edge("log", "all"),
            Edge("log", "b", grouping, share=0.5),
            Edge("log", "c", share=0.25),
        ),
    )
    trace = simulate(scenario, 10, seed=1, trace=True).trace.to_pandas()
    taken = {name: trace["item"][trace["operator"] == name].tolist() for name in ("a", "b", "c", "all")}
    if grouping == "broadcast":  # a copy to both instances is still one branch
        taken = {name: items if name in ("c", "all") else sorted(items)[::2] for name, items in taken.items()}
    assert sorted(taken["a"] + taken["b"] + taken["c"]) == list(range(20_000)) == sorted(taken["all"])
    for name, share in {"a": 0.25, "b": 0.5, "c": 0.25}.items():
        assert len(taken[name]) == pytest.approx(20_000 * share, abs=4 * (20_000 * share * (1 - share)) ** 0.5)


def test_results_of_a_window_and_several_outputs_take_a_branch_each():
    scenario = Scenario(
        (
            Source("log", 1_000, keys=range(50), rows=10_000),
            Operator("count", Exactly(0.0), window=Window(1.0)),
            Operator("twice", Exactly(0.0), outputs=2.0),
            *(Operator(name, Exactly(0.0)) for name in "abcd"),
        ),
        (
            Edge("log", "count"),
            Edge("log", "twice"),
            Edge("count", "a", share=0.3),
            Edge("count", "b", share=0.7),
            Edge("twice", "c", share=0.3),
            Edge("twice", "d", share=0.7),
        ),
    )
    result = simulate(scenario, 20, seed=1)
    got = {name: result.total(name).processed for name in "abcd"}
    assert got["a"] + got["b"] == 500
    assert got["c"] + got["d"] == 20_000
    assert got["a"] == pytest.approx(150, abs=40)
    assert got["c"] == pytest.approx(6_000, abs=260)


def test_branches_that_do_not_add_up_to_1_are_refused():
    def split(*shares):
        ends = [Operator(name, Exactly(0.0)) for name in "abc"[: len(shares)]]
        return Scenario(
            (LOG, *ends), tuple(Edge("log", one.name, share=s) for one, s in zip(ends, shares, strict=True))
        )

    assert "log -> a: shuffle, a branch with 0.1 of the tuples" in str(split(0.1, 0.2, 0.7))
    split(1 / 3, 1 / 3, 1 / 3)
    with pytest.raises(
        OptionError, match=r"branches of 'log' add up to 0.8 \(0.3 to 'a', 0.5 to 'b'\).*add the branch"
    ):
        split(0.3, 0.5)
    with pytest.raises(OptionError, match=r"add up to 0.25 .*drop them with outputs"):
        split(0.25)
    with pytest.raises(OptionError, match=r"add up to 1.2 .*leave share out"):
        split(0.6, 0.6, 1.0)


def test_the_same_edge_twice_is_refused():
    with pytest.raises(OptionError, match="edge log -> map is given twice"):
        Scenario((LOG, MAP), (Edge("log", "map"), Edge("log", "map", "hash")))


def test_what_cannot_be_a_cycle_is_said():
    with pytest.raises(OptionError, match="feedback=True"):
        Scenario((LOG, MAP, OUT), (Edge("log", "map"), Edge("map", "map"), ON))
    with pytest.raises(OptionError, match="closes no cycle"):
        Scenario((LOG, MAP, OUT), (Edge("log", "map"), Edge("map", "out"), Edge("log", "out", feedback=True)))
    with pytest.raises(OptionError, match="capacity=0"):
        looped(operator=Operator("map", Exactly(0.001), capacity=10))
    with pytest.raises(OptionError, match="never come out"):
        copied_round(share=1.0)
    with pytest.raises(OptionError, match="never come out"):
        looped(operator=Operator("map", Exactly(0.001), outputs=3.0))
    with pytest.raises(OptionError, match="leave the cluster nowhere"):
        Scenario((LOG, MAP), (Edge("log", "map"), Edge("map", "map", feedback=True)))
    with pytest.raises(OptionError, match="no edge leads to it"):
        Scenario((LOG, MAP, OUT), (ON, Edge("map", "map", share=0.5, feedback=True)))
    with pytest.raises(OptionError, match="at most 1"):
        Edge("a", "b", share=1.5)
    with pytest.raises(OptionError, match="flows know no cycles"):
        FluidSimulation(looped())
    with pytest.raises(OptionError, match="wait for its own"):
        simulate(looped(), 5, checkpoints=Checkpoints(every=1.0, markers=True))
