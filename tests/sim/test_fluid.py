"""Flows: equal to their plain twin, and to the tuple-exact simulation where both can tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.control import Cap, Cooldown, LargestStep
from steelyard.core import Action, OptionError
from steelyard.kernels.fluid import run_steps
from steelyard.scaling import DS2
from steelyard.sim import (
    Edge,
    Exactly,
    Exponential,
    FluidSimulation,
    Growing,
    Machine,
    Operator,
    PerItem,
    Scenario,
    Source,
    Window,
    autoscale,
    simulate,
)
from steelyard.sim.flows import flow_of
from steelyard.sim.layout import layout_of
from steelyard.workloads import Sinusoid, Steps, Zipf
from tests.sim.plain_fluid import step_plain
from tests.sim.test_event_loop import scenarios, some_branches

SKEWED = Zipf(exponent=1.1, keys=500, seed=3)
SIXTY = np.random.default_rng(1).integers(0, 60, 997).tolist()
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


some_windows = st.sampled_from(
    [
        Window(0.1),
        Window(0.05, per_result=0.00513),
        Window(0.15, per_result=0.0017, slide=0.05),
        Window(0.2, per_result=0.03, slide=0.1, new_keys=0.3),
    ]
)
joins = st.sampled_from(
    [Growing(0.0013, 0.00031), Growing(0.0013, 0.0031, window=0.1), Growing(0.0, 0.00131, ttl=1.5), Growing(0.001, 0.0)]
)


@st.composite
def stateful(draw):
    """Operators with windows, joins, and some for which a processor is used for part of the time."""
    scenario = draw(scenarios(branches=some_branches, groupings=("shuffle", "hash", "forward", "broadcast")))
    changed = []
    for one in scenario.operators:
        if isinstance(one, Operator):
            window = draw(st.one_of(st.none(), some_windows))
            service = draw(st.one_of(st.just(one.service), joins))
            outputs = 1.0 if window else one.outputs
            cpu = draw(st.sampled_from([1.0, 0.4]))
            one = replace(one, window=window, service=service, outputs=outputs, cpu=cpu)  # noqa: PLW2901
        changed.append(one)
    return replace(scenario, operators=tuple(changed))


@settings(max_examples=60)
@given(
    scenario=stateful(),
    queues=st.lists(st.sampled_from([0.0, 0.5, 2.0, 7.0]), min_size=14, max_size=14),
    arrivals=st.lists(st.floats(0, 5), min_size=2, max_size=2),
)
def test_a_step_with_state_is_that_of_the_plain_twin(scenario, queues, arrivals):
    layout = layout_of(scenario)
    compiled, plain = flow_of(layout), flow_of(layout)
    for flow in (compiled, plain):
        flow.instances["queue"] = queues[: len(flow.instances)]
    for _ in range(9):
        given_rows = np.array(arrivals)
        run_steps(compiled, given_rows[None, :], 0.05, True)
        step_plain(plain, given_rows, 0.05)
    for field in ("queue", "kept", "results", "processed", "received", "sent", "busy", "worked", "blocked", "area"):
        assert compiled.instances[field] == pytest.approx(plain.instances[field], abs=1e-9), field
    assert compiled.panes == pytest.approx(plain.panes, abs=1e-9)
    if not scenario.machines:  # where cores are shared, work takes longer than its own time
        assert compiled.instances["worked"] == pytest.approx(compiled.instances["busy"] * compiled.instances["cpu"])


def joined(law, rate=100.0, **of_operator):
    return Scenario.chain(Source("log", rate), Operator("join", law, **of_operator))


def test_a_join_gets_dearer_with_what_it_keeps_until_its_window_ends():
    """As tuple by tuple: a sawtooth."""
    scenario = joined(Growing(0.0002, per_kept=1e-5, window=10.0, bytes_per_kept=50.0))
    exact = simulate(scenario, 40.0, seed=1, every=1.0).instances.filter(pc.field("operator") == "join")
    flows = FluidSimulation(scenario, step=0.02)
    for _ in range(40):
        flows.advance(1.0)
        flows.sample()
    found = flows.result().instances.filter(pc.field("operator") == "join")
    for column in ("busy_seconds", "useful_seconds", "processed"):
        assert found[column].to_numpy() == pytest.approx(exact[column].to_numpy(), abs=0.02, rel=0.02), column
    kept = found["state_bytes"].to_numpy()
    assert kept[8] == pytest.approx(900 * 50.0, rel=0.02)
    assert kept.max() == pytest.approx(1000 * 50.0, rel=0.02)


def test_a_time_to_live_forgets_each_tuple_at_its_time():
    flows = FluidSimulation(joined(Growing(0.001, per_kept=1e-6, ttl=30.0, bytes_per_kept=10.0)))
    flows.advance(20.0)
    assert flows.state_bytes == pytest.approx(20.0 * 100 * 10.0, rel=0.01)
    flows.advance(60.0)
    assert flows.state_bytes == pytest.approx(30.0 * 100 * 10.0, rel=0.05)
    flows.observe()
    flows.advance(10.0)
    join = flows.observe().operators[1]
    assert join.busy == pytest.approx(100 * (0.001 + 1e-6 * 3000), rel=0.05)
    assert join.state_bytes == pytest.approx(30_000, rel=0.05)


@pytest.mark.parametrize("grouping", ["hash", "shuffle"])
@pytest.mark.parametrize("keys", [None, SIXTY], ids=["ever new keys", "60 keys"])
def test_results_of_windows_come_in_bursts_as_tuple_by_tuple(grouping, keys):
    window = Window(5.0, per_result=0.002)
    operators = (
        Source("log", 90.0, keys=keys, arrivals="poisson"),
        Operator("count", Exactly(0.001), parallelism=2, window=window),
        Operator("sink", Exactly(0.0005)),
    )
    scenario = Scenario(operators, (Edge("log", "count", grouping), Edge("count", "sink")))
    exact = simulate(scenario, 60.0, seed=3, every=2.5)
    flows = FluidSimulation(scenario, step=0.02)
    for _ in range(24):
        flows.advance(2.5)
        flows.sample()
    fluid = flows.result()
    for name, column in (("count", "sent"), ("count", "useful_seconds"), ("sink", "processed")):
        one, other = (
            result.instances.filter(pc.field("operator") == name)
            .group_by("time")
            .aggregate([(column, "sum")])
            .sort_by("time")[f"{column}_sum"]
            .to_numpy()
            for result in (exact, fluid)
        )
        assert other[2::2].sum() == pytest.approx(one[2::2].sum(), rel=0.05), (name, column)
        assert other[3::2].sum() == pytest.approx(one[3::2].sum(), rel=0.05, abs=1.0), (name, column)


def test_a_window_that_slides_gives_the_keys_of_its_whole_length_at_each_slide():
    scenario = Scenario.chain(
        Source("log", 100.0),
        Operator("count", Exactly(0.0001), window=Window(30.0, slide=10.0, new_keys=0.5, bytes_per_key=8.0)),
        Operator("sink", Exactly(0.0001)),
    )
    flows, gave = FluidSimulation(scenario), []
    flows.advance(5.0)
    for _ in range(6):
        flows.advance(10.0)
        gave.append(flows.observe().operators[1].sent_per_second * flows.observe().seconds)
    assert gave == pytest.approx([500.0, 1000.0, 1500.0, 1500.0, 1500.0, 1500.0], rel=0.01)


def test_an_operator_that_waits_for_memory_uses_less_of_a_processor_than_of_its_time():
    scenario = Scenario.chain(Source("log", 100.0), Operator("count", Exactly(0.009), cpu=0.5))
    flows = FluidSimulation(scenario)
    flows.advance(10.0)
    flows.observe()
    flows.advance(10.0)
    count = flows.observe().operators[1]
    assert (count.busy, count.cpu) == pytest.approx((0.9, 0.45))
    shared = replace(
        scenario,
        operators=(*scenario.operators, Operator("more", Exactly(0.009), cpu=0.5)),
        edges=(*scenario.edges, Edge("log", "more")),
        machines=(Machine(cores=1),),
    )
    flows = FluidSimulation(shared)
    flows.advance(20.0)
    assert [one.lag for one in flows.observe().operators[:1]] == [pytest.approx(0.0, abs=20.0)], "one core is enough"


def test_work_that_varies_is_by_chance_dearer_or_cheaper_and_on_average_as_it_is():
    def busy(noise, seed):
        flows, found = FluidSimulation(joined(Exactly(0.005), parallelism=4), noise=noise, seed=seed), []
        for _ in range(40):
            flows.advance(15.0)
            found += [one.busy for one in flows.observe().operators[1].instances]
        return np.array(found)

    assert np.ptp(busy(0.0, 1)) < 1e-6
    found = busy(0.2, 1)
    assert found.tolist() == busy(0.2, 1).tolist() != busy(0.2, 2).tolist()
    assert found.mean() == pytest.approx(0.125, rel=0.05)
    assert 0.125 * 0.799 <= found.min() < 0.125 * 0.85
    assert 0.125 * 1.15 < found.max() <= 0.125 * 1.201


def test_a_restart_takes_longer_the_more_state_there_is_and_keeps_all_of_it():
    scenario = Scenario(
        (
            Source("log", 100.0),
            Operator("join", Growing(0.0001, 1e-7, ttl=600.0, bytes_per_kept=1000.0), parallelism=2),
            Operator("count", Exactly(0.0001), window=Window(45.0, new_keys=0.1, bytes_per_key=500.0)),
            Operator("sink", Exactly(0.0)),
        ),
        (Edge("log", "join"), Edge("join", "count"), Edge("count", "sink")),
    )
    flows = FluidSimulation(scenario, downtime=10.0, state_bandwidth=1e6)
    flows.advance(100.0)
    kept = 100.0 * 100 * 1000.0 + 10.0 * 100 * 0.1 * 500.0
    assert flows.state_bytes == pytest.approx(kept, rel=0.01)
    took = flows.apply(Action({"join": 5, "count": 3}))
    assert took == pytest.approx(10.0 + kept / 1e6, rel=0.01)
    assert flows.state_bytes == pytest.approx(kept, rel=0.01)
    flows.advance(took - 0.5)
    assert flows.observe().operators[1].processed_per_second == 0.0
    flows.advance(30.5)
    assert flows.observe().operators[2].sent_per_second == 0
    flows.advance(10.0)
    gave = flows.observe().operators[2].sent_per_second * 10.0
    assert gave == pytest.approx((45.0 + took) * 100 * 0.1, rel=0.02), "45 s of work, and rows that came in the pause"


@pytest.mark.parametrize(
    "operator",
    [
        Operator("a", Exactly(0.001), window=Window(2.0, slide=1.0)),
        Operator("a", Exactly(0.001), window=Window(2.0, new_keys=0.1)),
        Operator("a", Growing(0.001, 0.0, ttl=3.0)),
        Operator("a", Exactly(0.001), cpu=0.5),
    ],
)
def test_what_only_flows_know_is_refused_tuple_by_tuple(operator):
    with pytest.raises(OptionError, match="run it as flows"):
        simulate(Scenario.chain(Source("log", 10.0), operator), 1.0)


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
