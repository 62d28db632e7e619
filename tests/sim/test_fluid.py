"""Flows: equal to their plain twin, and to the tuple-exact simulation where both can tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.control import Cap, Cooldown, LargestStep
from steelyard.kernels.fluid import run_steps
from steelyard.scaling import DS2
from steelyard.sim import (
    Edge,
    Exactly,
    Exponential,
    FluidSimulation,
    Machine,
    Operator,
    PerItem,
    Scenario,
    Source,
    autoscale,
    simulate,
)
from steelyard.sim.flows import flow_of
from steelyard.sim.layout import layout_of
from steelyard.workloads import Sinusoid, Steps, Zipf
from tests.sim.plain_fluid import step_plain
from tests.sim.test_event_loop import scenarios, some_branches

SKEWED = Zipf(exponent=1.1, keys=500, seed=3)
COSTS = np.random.default_rng(5).uniform(0.0005, 0.003, 500)


@settings(max_examples=60)
@given(
    scenario=scenarios(branches=some_branches),
    queues=st.lists(st.sampled_from([0.0, 0.5, 2.0, 7.0]), min_size=14, max_size=14),
    arrivals=st.lists(st.floats(0, 5), min_size=2, max_size=2),
)
def test_a_step_is_that_of_the_plain_twin(scenario, queues, arrivals):
    layout = layout_of(scenario)
    compiled, plain = flow_of(layout), flow_of(layout)
    for flow in (compiled, plain):
        flow.instances["queue"] = queues[: len(flow.instances)]
    for _ in range(4):
        given_rows = np.array(arrivals)
        run_steps(compiled, given_rows[None, :], 0.05, True)
        step_plain(plain, given_rows, 0.05)
    for field in ("queue", "processed", "received", "sent", "busy", "blocked", "area", "peak"):
        assert compiled.instances[field] == pytest.approx(plain.instances[field], abs=1e-9), field


CASES = {
    "with room to spare": Scenario.chain(
        Source("log", 500, parallelism=2), Operator("a", Exactly(0.002), parallelism=3), Operator("b", Exactly(0.001))
    ),
    "a slow end and full queues": Scenario.chain(
        Source("log", 300),
        Operator("a", Exponential(0.001), capacity=50),
        Operator("b", Exponential(0.005), capacity=50),
    ),
    "hot keys": Scenario.chain(
        Source("log", 2000, keys=SKEWED), Operator("b", Exactly(0.001), parallelism=4, capacity=100), grouping="hash"
    ),
    "costs by key": Scenario.chain(
        Source("log", 1000, keys=SKEWED),
        Operator("b", PerItem(COSTS), parallelism=4, capacity=100),
        grouping="d_choices",
    ),
    "too few cores": Scenario.chain(
        Source("log", 400),
        Operator("a", Exactly(0.002), capacity=20),
        Operator("b", Exactly(0.002), capacity=20),
        machines=(Machine(cores=1, speed=1.25),),
    ),
    "a filter": Scenario.chain(
        Source("log", 1000), Operator("a", Exactly(0.0005), outputs=0.3), Operator("b", Exactly(0.004), capacity=40)
    ),
    "two sources that meet": Scenario(
        (
            Source("log", 400),
            Source("other", 200),
            Operator("a", Exactly(0.001), capacity=40),
            Operator("b", Exactly(0.002), capacity=40),
        ),
        (Edge("log", "a"), Edge("a", "b"), Edge("other", "b")),
    ),
    "a fork": Scenario(
        (
            Source("log", 700),
            Operator("a", Exactly(0.001), capacity=40),
            Operator("b", Exactly(0.002), capacity=40),
            Operator("c", Exactly(0.004), capacity=40, parallelism=2),
        ),
        (
            Edge("log", "a"),
            Edge("a", "b"),
            Edge("a", "c", "broadcast"),
        ),
    ),
    "branches": Scenario(
        (
            Source("log", 700),
            Operator("a", Exactly(0.001), capacity=40),
            Operator("b", Exactly(0.002), capacity=40),
            Operator("c", Exactly(0.004), capacity=40, parallelism=2),
            Operator("d", Exactly(0.0005), capacity=40),
        ),
        (
            Edge("log", "a"),
            Edge("a", "b", share=0.6),
            Edge("log", "d"),
            Edge("a", "c", "broadcast", share=0.3),
            Edge("a", "d", share=0.1),
        ),
    ),
    "a wave": Scenario.chain(
        Source("log", Sinusoid(mean=500, amplitude=0.8, period=40)), Operator("b", Exponential(0.0018), capacity=60)
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_throughput_lag_and_utilisation_are_those_of_the_tuple_exact_run(case):
    scenario = CASES[case]
    exact = simulate(scenario, 120.0, seed=1, every=10.0)
    flows = FluidSimulation(scenario, step=0.02)
    for _ in range(12):
        flows.advance(10.0)
        flows.sample()
    fluid = flows.result()
    for vertex in scenario.operators:
        one, other = exact.total(vertex.name, after=10.0), fluid.total(vertex.name, after=10.0)
        assert other.throughput == pytest.approx(one.throughput, rel=0.03), vertex.name
        assert other.utilisation == pytest.approx(one.utilisation, abs=0.03), vertex.name
        if case != "two sources that meet":  # who waits how long for its turn is no matter of rates
            assert other.backpressured == pytest.approx(one.backpressured, abs=0.04), vertex.name
    for column in ("lag", "lag_seconds"):
        scale = max(exact.sources[column].to_numpy().max(), 20.0 if column == "lag" else 0.5)
        assert fluid.sources[column].to_numpy() == pytest.approx(exact.sources[column].to_numpy(), abs=0.05 * scale)


UNLIKE = Scenario(
    (
        Source("log", 23.9),
        Operator("a", Exactly(0.00131713), outputs=0.5),
        Operator("b", Exactly(0.00131713), parallelism=3, capacity=1, slowdown=(1.0327, 0.97208051, 1.12739859)),
        Operator("c", Exactly(0.03023123835740257), capacity=1, outputs=0.5, slowdown=(1.06014987,)),
    ),
    (Edge("log", "a"), Edge("log", "b", "osg?window=3&tolerance=0.7"), Edge("a", "c"), Edge("b", "c")),
    machines=(Machine(cores=1),) * 3,
)
"""Instances of unlike speed that are held back: the fast one has less to do than it could."""


@settings(max_examples=30)
@given(scenario=scenarios(), seconds=st.floats(0.5, 5.0))
@example(scenario=UNLIKE, seconds=3.0)
def test_no_flow_is_lost_and_no_queue_is_overfull(scenario, seconds):
    simulation = FluidSimulation(scenario, step=0.05)
    simulation.advance(seconds)
    rows = simulation._flow.instances
    assert rows["received"] == pytest.approx(rows["processed"] + rows["queue"], abs=1e-6)
    assert (rows["queue"] <= rows["capacity"] + 1e-6).all()
    assert (rows["queue"] >= 0).all()
    sums = rows["busy"] + rows["blocked"]
    assert (sums <= rows["threads"] * simulation.now + 1e-6).all()


def test_a_rescaling_stops_everything_but_the_logs_and_loses_nothing():
    scenario = Scenario.chain(
        Source("log", 1000), Operator("map", Exactly(0.001)), Operator("sink", Exactly(0.0001), capacity=50)
    )
    simulation = FluidSimulation(scenario)
    simulation.advance(60)
    simulation.rescale({"map": 4}, pause=20)
    simulation.advance(20)
    assert simulation.observe().operators[0].lag == pytest.approx(20_000, rel=0.01)
    assert simulation.observe().operators[1].processed_per_second == 0
    simulation.advance(60)
    simulation.sample()
    result = simulation.result()
    assert simulation.observe().operators[0].lag == pytest.approx(0, abs=1)
    assert result.total("sink").processed == pytest.approx(140_000, rel=0.001)
    assert simulation.scenario.operator("map").parallelism == 4


def test_an_autoscaler_follows_the_load_within_its_bounds():
    scenario = Scenario.chain(
        Source("log", Steps(1200, (1000.0, 20_000.0, 4000.0)), service=Exactly(0.0002)),
        Operator("map", Exactly(0.001), capacity=1000),
        Operator("sink", Exactly(0.0002), capacity=1000),
    )
    guards = (LargestStep(15), Cap(30), Cooldown(300.0))
    run = autoscale(scenario, "ds2", seconds=3600, guards=guards, downtime=10)
    workers = [sum(one.parallelism.values()) for one in run.changes]
    assert max(workers) == 30
    assert workers[-1] < 12
    assert run.result.total("sink").processed > 0.8 * 1200 * 25_000
    # the rescalings left a lag, which the instances beyond what the rate needs work off
    lags = run.result.sources.group_by("time").aggregate([("lag", "sum")]).sort_by("time")["lag_sum"].to_numpy()
    assert np.all(np.diff(lags[-20:]) < 0)


def test_an_autoscaler_asks_behind_a_fork_for_what_comes_over_each_edge():
    scenario = Scenario(
        (
            Source("log", 1000),
            Operator("a", Exactly(0.001), capacity=100, parallelism=2),
            Operator("b", Exactly(0.001), capacity=100, parallelism=2),
            Operator("c", Exactly(0.001), capacity=100, parallelism=2),
        ),
        (Edge("log", "a"), Edge("log", "b", share=0.5), Edge("log", "c", "broadcast", share=0.5)),
    )
    flows = FluidSimulation(scenario)
    flows.advance(10.0)
    seen = {one.name: one.received_from for one in flows.observe().operators}
    assert {name: pytest.approx(came) for name, came in seen.items()} == {
        "log": {},
        "a": {"log": 1000.0},
        "b": {"log": 500.0},
        "c": {"log": 1000.0},
    }
    asked = DS2(overprovisioning=0).decide(flows.observe()).parallelism
    assert (asked["a"], asked["b"], asked["c"]) == (1, 1, 1)
