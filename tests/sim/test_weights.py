"""Weights of a route in both simulators: tuple by tuple as they say, as flows in their shares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.control import Controller
from steelyard.core import Action, ActionRefusedError, OptionError
from steelyard.core.weights import dealt, lowest
from steelyard.sim import Edge, Exactly, FluidSimulation, Operator, Scenario, Simulation, Source

EDGE = ("log", "work")
drawn = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any).map(tuple)


def job(grouping="shuffle"):
    work = Operator("work", Exactly(0.0001), parallelism=3)
    return Scenario((Source("log", 100.0), work), (Edge(*EDGE, grouping),))


@settings(deadline=None, max_examples=15)
@given(weights=drawn, again=drawn, fails=st.booleans())
def test_tuples_are_dealt_out_in_proportion_also_behind_a_failure(weights, again, fails):
    simulation = Simulation(job("round_robin"), trace=True)
    simulation.advance(1.005)  # rows come every 0.01 s: none is under way
    for given_now in (weights, again):
        simulation.set_weights({EDGE: given_now})
        if fails:
            simulation.fail()
        before, each = simulation.trace().num_rows, lowest(given_now)
        simulation.advance(3.0)
        where = simulation.trace()["instance"].to_numpy()[before:]
        counts = np.bincount(where, minlength=3)
        whole = len(where) // sum(each)
        assert whole > 10
        for count, weight in zip(counts.tolist(), each, strict=True):
            assert whole * weight <= count <= (whole + 1) * weight
        assert simulation.observe().weights == {EDGE: given_now}


@settings(deadline=None, max_examples=10)
@given(weights=drawn, cut=st.integers(0, 80))
def test_from_the_very_next_tuple_on_the_order_is_that_of_a_cycle(weights, cut):
    simulation = Simulation(job(), trace=True)
    simulation.advance(0.01 * cut + 0.005)
    before = simulation.trace().num_rows
    simulation.set_weights({EDGE: weights})
    simulation.advance(2.0)
    where = simulation.trace()["instance"].to_pylist()
    assert where[:before] == [n % 3 for n in range(before)]
    if lowest(weights) != (1, 1, 1):
        cycle = dealt(lowest(weights)).tolist()
        assert where[before:] == [cycle[n % len(cycle)] for n in range(len(where) - before)]


@settings(deadline=None, max_examples=10)
@given(weights=drawn)
def test_flows_are_shared_out_in_proportion(weights):
    simulation = FluidSimulation(job())
    simulation.apply(Action(weights={EDGE: weights}))
    simulation.advance(5.0)
    simulation.observe()
    simulation.advance(10.0)
    rates = [one.processed_per_second for one in simulation.observe().operators[1].instances]
    assert rates == pytest.approx([100.0 * one / sum(weights) for one in weights], rel=0.01, abs=0.01)


@pytest.mark.parametrize("simulated", [Simulation, FluidSimulation])
def test_they_stay_until_the_receiver_has_another_number_of_instances(simulated):
    simulation = simulated(job())
    simulation.advance(1.0)
    simulation.apply(Action(weights={EDGE: (3, 1, 0)}))
    simulation.apply(Action({"work": 2}))
    simulation.advance(1.0)
    assert simulation.observe().weights == {EDGE: (1, 1)}
    simulation.apply(Action({"work": 4}, weights={EDGE: (4, 3, 2, 1)}))
    simulation.advance(1.0)
    assert simulation.observe().weights == {EDGE: (4, 3, 2, 1)}


@pytest.mark.parametrize("simulated", [Simulation, FluidSimulation])
@pytest.mark.parametrize("grouping", ["hash", "shortest", "osg", "assg", "broadcast"])
def test_a_grouping_without_weights_is_refused_and_nothing_else_is_done(simulated, grouping):
    if simulated is FluidSimulation and grouping == "osg":
        grouping = "full_knowledge"
    simulation = simulated(job(grouping))
    simulation.advance(1.0)
    with pytest.raises(ActionRefusedError, match=r"edge log -> work has no weights, since .* dealt out in turn"):
        simulation.apply(Action({"work": 5}, weights={EDGE: (1, 2, 3, 4, 5)}))
    assert simulation.observe().parallelism["work"] == 3
    assert simulation.observe().weights is None


def test_numbers_and_edges_that_do_not_fit_are_refused():
    simulation = Simulation(job())
    for weights, words in [
        ({EDGE: (1, 2)}, "leads to 3 instances, got 2 weights"),
        ({("log", "wirk"): (1, 2, 3)}, "no edge log -> wirk; those with weights: log -> work"),
        ({EDGE: (0, 0, 0)}, "not all 0"),
        ({EDGE: (9_999, 7, 5)}, "10,000 together at most"),
    ]:
        with pytest.raises(OptionError, match=words):
            simulation.set_weights(weights)
    with pytest.raises(ValueError, match="not all 0"):
        Action(weights={EDGE: (0, 0)})


def test_a_decision_and_its_event_name_them():
    class Uneven:
        def decide(self, observation):
            return Action(reason="so it is written", weights={EDGE: (2, 1, 1)})

    events = []
    simulation = Simulation(job())
    controller = Controller(simulation, Uneven(), tell=events.append)
    simulation.advance(1.0)
    assert "{'log -> work': '2:1:1'}, so it is written" in str(controller.look())
    assert events[0].details["done"] == {"log -> work": "2:1:1"}
    simulation.advance(1.0)
    assert controller.look().done.is_nothing, "it is so already"
