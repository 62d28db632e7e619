"""Both simulators under one loop: they show the same things, and the same policy decides the same for them."""

import pytest

from steelyard.control import Bounds, Cap, Controller, Cooldown, LargestStep
from steelyard.core import Action, OptionError
from steelyard.scaling import DS2
from steelyard.sim import Edge, Exactly, FluidSimulation, Operator, Scenario, Simulation, Source, autoscale
from steelyard.workloads import Steps
from tests.control.shown import shown_by


def fork(rate=200.0, **instances):
    """A source that reads 500 rows per second and instance, in front of a fork, a branch and a broadcast."""
    return Scenario(
        (
            Source("log", rate, service=Exactly(0.002)),
            Operator("left", Exactly(0.004), capacity=50),
            Operator("right", Exactly(0.002), capacity=50, outputs=2.0),
            Operator("all", Exactly(0.001), capacity=50, instances=3),
            Operator("some", Exactly(0.001), capacity=50),
        ),
        (
            Edge("log", "left"),
            Edge("log", "right"),
            Edge("right", "all", "broadcast"),
            Edge("left", "some", share=0.25),
            Edge("left", "all", share=0.75),
        ),
    ).with_instances(**instances)


@pytest.mark.parametrize("rate", [100.0, 200.0, 400.0])
def test_tuples_and_flows_show_the_same(rate):
    seen = []
    for simulation in (Simulation(fork(rate), seed=3), FluidSimulation(fork(rate), step=0.05)):
        simulation.advance(40.0)
        simulation.observe()
        simulation.advance(60.0)
        seen.append(simulation.observe())
    tuples, flows = seen
    assert (tuples.time, tuples.seconds) == pytest.approx((100.0, 60.0))
    assert tuples.parallelism == flows.parallelism == {"log": 1, "left": 1, "right": 1, "all": 3, "some": 1}
    for one, other in zip(tuples.operators, flows.operators, strict=True):
        assert one.received_from == pytest.approx(other.received_from, rel=0.03, abs=0.5)
        for name in ("processed_per_second", "arrived_per_second", "lag", "lag_per_second"):
            here, there = getattr(one, name), getattr(other, name)
            assert here is there is None or here == pytest.approx(there, rel=0.03, abs=2.0), (one.name, name)
        for name in ("busy", "backpressured", "idle", "cpu"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=0.03), (one.name, name)
        assert sum((one.busy, one.backpressured, one.idle)) == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("simulated", [Simulation, FluidSimulation])
def test_an_interval_is_closed_by_a_look_and_the_same_look_shows_the_same(simulated):
    simulation = simulated(fork())
    with pytest.raises(OptionError, match="did not advance"):
        simulation.observe()
    simulation.advance(5.0)
    first = simulation.observe()
    assert simulation.observe() == first
    simulation.advance(2.0)
    assert simulation.observe().seconds == pytest.approx(2.0)


def test_the_same_policy_decides_the_same_for_both_and_both_do_it():
    class Noting:
        """DS2, and all that it was asked and answered."""

        needs = DS2.needs

        def __init__(self):
            self.policy, self.answers = DS2(), []

        def decide(self, observation):
            self.answers.append((observation, self.policy.decide(observation)))
            return self.answers[-1][1]

    policy, changes = Noting(), []
    for simulation in (Simulation(fork(400.0), seed=1), FluidSimulation(fork(400.0))):
        controller = Controller(simulation, policy, [Cooldown(20.0), LargestStep(1), Bounds(own={"log": (1, 1)})])
        for _ in range(12):
            simulation.advance(10.0)
            controller.look()
        changes.append([one.done for one in controller.decisions])
        assert simulation.scenario.vertex("left").instances == 3  # ceil(400 * 0.004) and a fifth more
    assert changes[0] == changes[1]
    assert all(DS2().decide(seen) == answer for seen, answer in policy.answers)


def test_tuple_by_tuple_an_autoscaler_follows_the_load_too_and_leaves_sources_alone():
    scenario = Scenario.chain(
        Source("log", Steps(100, (100.0, 900.0, 200.0)), instances=2),
        Operator("map", Exactly(0.005), capacity=100),
        Operator("sink", Exactly(0.001), capacity=100),
    )
    runs = [
        autoscale(scenario, "ds2", 300.0, every=5.0, guards=[Cap(12), Cooldown(20.0)], downtime=2.0, seed=seed)
        for seed in (None, 7)
    ]
    for run in runs:
        maps = [one.parallelism["map"] for one in run.changes]
        assert max(maps) >= 5
        assert maps[-1] <= 3
        assert run.result.total("sink").processed > 0.9 * 100 * 1200
    assert {one.parallelism["log"] for one in runs[1].changes} == {2}
    assert "cut to fit" not in str(runs[1])


def test_all_decisions_of_a_long_run_are_kept_and_cycles_can_be_scaled():
    scenario = Scenario(
        (
            Source("log", 100.0),
            Operator("again", Exactly(0.004)),
            Operator("end", Exactly(0.001)),
        ),
        (Edge("log", "again"), Edge("again", "again", share=0.5, feedback=True), Edge("again", "end", share=0.5)),
    )
    run = autoscale(scenario, "ds2", 30.0, every=5.0, guards=[], seed=1)
    assert run.changes
    day = Scenario.chain(Source("log", 900.0), Operator("map", Exactly(0.01), capacity=100))
    run = autoscale(day, "ds2", 1500.0, every=1.0, guards=[Cap(3)], downtime=0.0)
    assert len(run.decisions) > 1000
    assert len(run.changes) == 1


def test_tuple_by_tuple_a_policy_that_wants_other_sources_is_told_how_to_bound_it():
    class More:
        def decide(self, observation):
            return Action({"log": 5})

    simulation = Simulation(fork(), seed=1)
    simulation.advance(1.0)
    with pytest.raises(OptionError, match=r"Bounds\(own="):
        Controller(simulation, More()).look()


@pytest.mark.parametrize("simulated", [Simulation, FluidSimulation])
def test_what_a_simulation_shows_is_there_for_all_and_for_each(simulated):
    simulation = simulated(fork(400.0))
    for _ in range(3):
        simulation.advance(5.0)
        seen = simulation.observe()
        assert shown_by(seen) == simulation.shows
    for one in seen.operators:
        assert [each.name for each in one.each] == [f"{one.name}#{number}" for number in range(one.instances)]
        assert sum(each.processed_per_second for each in one.each) == pytest.approx(one.processed_per_second)
        assert sum(each.queue for each in one.each) == pytest.approx(one.queue)
    log = seen.operators[0]
    assert log.end_offset == pytest.approx(400.0 * 15, rel=0.01)
    assert log.lag == pytest.approx(400.0 * log.lag_seconds, rel=0.05, abs=2)
    assert set(seen.placement.values()) == {one.number for one in seen.workers}
    assert all(0 <= one.load <= 1 for one in seen.workers)


def test_a_rescaled_source_has_other_partitions_and_the_same_rows_come():
    simulation = FluidSimulation(Scenario.chain(Source("log", 100.0), Operator("map", Exactly(0.001))))
    simulation.advance(10.0)
    assert simulation.observe().operators[0].arrived_per_second == pytest.approx(100.0)
    simulation.rescale({"log": 4})
    simulation.advance(10.0)
    log = simulation.observe().operators[0]
    assert (log.arrived_per_second, log.end_offset) == pytest.approx((100.0, 2000.0))
    assert [one.arrived_per_second for one in log.each] == pytest.approx([25.0] * 4)
