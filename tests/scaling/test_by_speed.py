"""A slow instance gets fewer rows, and the operator does more."""

import pytest

from steelyard.control import Controller
from steelyard.core import InstanceObservation, Observation, OperatorObservation, OptionError
from steelyard.scaling import BySpeed
from steelyard.sim import Edge, Exactly, FluidSimulation, Operator, Scenario, Simulation, Source


def uneven(grouping="shuffle"):
    """Three instances that do 200, 200 and 50 rows per second, and a log of 400: dealt alike, they do 150."""
    work = Operator("work", Exactly(0.005), parallelism=3, capacity=10, slowdown=(1.0, 1.0, 4.0))
    return Scenario((Source("log", 400.0), work), (Edge("log", "work", grouping),))


@pytest.mark.parametrize("simulated", [Simulation, FluidSimulation])
def test_an_operator_with_a_slow_instance_does_what_comes_once_rows_go_by_speed(simulated):
    simulation = simulated(uneven())
    controller = Controller(simulation, BySpeed())
    simulation.advance(10.0)
    decision = controller.look()
    before = decision.seen.operators[1].processed_per_second
    assert before == pytest.approx(150.0, rel=0.05)
    assert decision.done.weights == {("log", "work"): (4, 4, 1)}
    simulation.advance(10.0)
    controller.look()
    simulation.advance(10.0)
    decision = controller.look()
    assert decision.done.is_nothing
    assert decision.seen.operators[1].processed_per_second == pytest.approx(450.0, rel=0.05)
    assert decision.seen.weights == {("log", "work"): (4, 4, 1)}


def test_where_a_grouping_has_no_weights_nothing_is_done():
    simulation = Simulation(uneven("assg"))
    simulation.advance(10.0)
    assert BySpeed().decide(simulation.observe()).is_nothing


def seen_of(*speeds, busy=0.9, weights=(1, 1)):
    did = [{"processed_per_second": busy * one, "busy": busy} for one in speeds]
    each = [InstanceObservation(f"work#{number}", **one) for number, one in enumerate(did)]
    operator = OperatorObservation.of("work", each, {"log": 1.0})
    return Observation(1.0, 1.0, (operator,), weights={("log", "work"): weights})


def test_little_is_left_as_it_is_and_so_is_whoever_has_time_or_was_not_measured():
    policy = BySpeed(busy=0.5, gap=0.2)
    assert policy.decide(seen_of(100.0, 50.0)).weights == {("log", "work"): (2, 1)}
    assert policy.decide(seen_of(100.0, 50.0, weights=(2, 1))).is_nothing
    assert policy.decide(seen_of(100.0, 90.0)).is_nothing
    assert policy.decide(seen_of(100.0, 50.0, busy=0.4)).is_nothing
    assert policy.decide(seen_of(100.0, 0.0)).is_nothing
    assert policy.decide(seen_of(1e9, 1.0)).weights == {("log", "work"): (20, 1)}, "nobody is left out"


@pytest.mark.parametrize("how", [{"busy": 0.0}, {"busy": 1.5}, {"gap": -0.1}, {"gap": 1.0}])
def test_parameters_that_cannot_be_are_refused(how):
    with pytest.raises(OptionError, match=f"{next(iter(how))} of BySpeed"):
        BySpeed(**how)
