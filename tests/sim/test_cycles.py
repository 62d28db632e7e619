"""Edges that lead back, and edges that only a share of the tuples takes."""

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
    simulate,
)
from tests.sim.test_conservation import drained, finite
from tests.sim.test_event_loop import any_window, scenarios, some_shares

LOG, MAP, OUT = Source("log", 100, rows=500), Operator("map", Exactly(0.001)), Operator("out", Exactly(0.0))
ON = Edge("map", "out")


def looped(share=0.5, operator=MAP, grouping="shuffle", source=LOG):
    back = Edge("map", "map", grouping, share=share, feedback=True)
    return Scenario((source, operator, OUT), (Edge("log", "map"), back, ON))


@settings(max_examples=40)
@given(
    scenario=scenarios(windows=any_window, shares=some_shares, cycles=True),
    rows=st.integers(1, 40),
    seed=st.integers(0, 3),
)
def test_every_tuple_comes_out_of_the_cycle_in_the_end(scenario, rows, seed):
    result = drained(finite(scenario, rows), seed).result()
    totals = {vertex.name: result.total(vertex.name) for vertex in scenario.vertices}
    for vertex in scenario.vertices[1:]:
        assert totals[vertex.name].received == totals[vertex.name].processed
    assert sum(totals[name].sent for name in ("log", *"abc")) == sum(totals[name].received for name in "abcd")


def test_each_time_round_costs_a_service():
    trace = simulate(looped(), 60, seed=2, trace=True).trace.to_pandas()
    # what comes out is a copy for each time that a tuple was served: 1 / (1 - share) of them on average
    assert len(trace) == pytest.approx(1000, rel=0.1)
    assert set(trace["item"]) == set(range(500))


def test_a_policy_routes_what_comes_round():
    scenario = looped(operator=Operator("map", Exactly(0.001), instances=3), grouping="pk2")
    result = simulate(scenario, 60, seed=2)
    assert result.total("map").processed == result.total("out").processed > 900


def test_a_checkpoint_holds_what_is_in_the_cycle():
    slow = looped(operator=Operator("map", Exactly(0.008)), share=0.2)
    failed = simulate(slow, 100, seed=2, trace=True, checkpoints=Checkpoints(every=1.0), failures=[Failure(at=3.5)])
    assert set(failed.trace["item"].to_pylist()) == set(range(500))


def test_a_restart_lets_out_what_is_in_the_cycle():
    simulation = Simulation(looped(), trace=True)
    simulation.advance(2.0)
    simulation.restart(looped().with_instances(map=3))
    simulation.advance(30.0)
    assert set(simulation.trace()["item"].to_pylist()) == set(range(500))


def test_a_share_of_the_tuples_goes_over_an_edge_for_any_grouping():
    for grouping in ("hash", "dalton", "osg", "broadcast"):
        scenario = Scenario(
            (Source("log", 5_000, keys=range(100), rows=20_000), Operator("map", Exactly(0.0001), instances=2)),
            (Edge("log", "map", grouping, share=0.25),),
        )
        copies = 2 if grouping == "broadcast" else 1
        assert simulate(scenario, 10, seed=1).total("map").processed == pytest.approx(5_000 * copies, rel=0.03)


def test_what_cannot_be_a_cycle_is_said():
    with pytest.raises(OptionError, match="feedback=True"):
        Scenario((LOG, MAP, OUT), (Edge("log", "map"), Edge("map", "map"), ON))
    with pytest.raises(OptionError, match="leads on, not back"):
        Scenario((LOG, MAP), (Edge("log", "map", feedback=True),))
    with pytest.raises(OptionError, match="capacity=0"):
        looped(operator=Operator("map", Exactly(0.001), capacity=10))
    with pytest.raises(OptionError, match="never come out"):
        looped(share=1.0)
    with pytest.raises(OptionError, match="never come out"):
        looped(operator=Operator("map", Exactly(0.001), outputs=3.0))
    with pytest.raises(OptionError, match="leave the cluster nowhere"):
        Scenario((LOG, MAP), (Edge("log", "map"), Edge("map", "map", share=0.5, feedback=True)))
    with pytest.raises(OptionError, match="nobody sends"):
        Scenario((LOG, MAP, OUT), (ON, Edge("map", "map", share=0.5, feedback=True)))
    with pytest.raises(OptionError, match="at most 1"):
        Edge("a", "b", share=1.5)
    with pytest.raises(OptionError, match="flows know no cycles"):
        FluidSimulation(looped())
    with pytest.raises(OptionError, match="wait for its own"):
        simulate(looped(), 5, checkpoints=Checkpoints(every=1.0, markers=True))
