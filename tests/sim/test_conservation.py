"""What must hold in every run: nothing is lost, queues keep their bounds, times add up."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.sim import Edge, Exactly, Exponential, Operator, Scenario, Simulation, Source, simulate
from tests.sim.test_event_loop import scenarios


def finite(scenario, rows):
    log, *operators = scenario.operators
    source = Source(log.name, log.rate, log.parallelism, log.keys, rows=rows, service=log.service)
    return Scenario((source, *operators), scenario.edges, scenario.machines, scenario.network)


@st.composite
def finite_scenarios(draw):
    return finite(draw(scenarios()), draw(st.integers(1, 40)))


def drained(scenario, seed):
    simulation = Simulation(scenario, seed, trace=True)
    for _ in range(10_000):
        simulation.advance(5.0)
        simulation.sample()
        if simulation.drained:
            return simulation
    raise AssertionError("tuples are stuck")


def per_tuple(scenario, edge):
    """Tuples that the receiver gets for one that the sender puts out."""
    return scenario.operator(edge.receiver).parallelism if edge.grouping == "broadcast" else 1


@settings(max_examples=40)
@given(scenario=finite_scenarios(), seed=st.integers(0, 3))
def test_every_tuple_that_is_sent_is_processed_in_the_end(scenario, seed):
    result = drained(scenario, seed).result()
    totals = {vertex.name: result.total(vertex.name) for vertex in scenario.operators}
    assert totals["log"].processed == scenario.operators[0].rows
    assert result.sources["lag"].to_numpy()[-scenario.operators[0].parallelism :].sum() == 0
    for vertex in scenario.operators[1:]:
        assert totals[vertex.name].received == totals[vertex.name].processed
    edges = {edge.receiver: edge for edge in scenario.edges if edge.sender == "log"}
    for name, edge in edges.items():
        assert totals[name].received == totals["log"].processed * per_tuple(scenario, edge)
    assert totals["c"].received == sum(totals[name].sent for name in "ab")


@settings(max_examples=40)
@given(scenario=scenarios(), seed=st.integers(0, 3))
def test_queues_keep_their_bounds_and_the_times_of_a_thread_add_up(scenario, seed):
    result = simulate(scenario, 3.0, seed=seed, every=0.37)
    table = result.instances
    for vertex in scenario.operators[1:]:
        if vertex.capacity:
            of_operator = table.filter(pc.equal(table["operator"], vertex.name))
            assert max(of_operator["queue_peak"].to_pylist()) <= vertex.capacity
    parts = sum(table[f"{name}_seconds"].to_numpy() for name in ("busy", "idle", "backpressured"))
    assert parts == pytest.approx(table["threads"].to_numpy() * table["seconds"].to_numpy(), abs=1e-9)
    # an interval holds the end of a service that began before it, but work is never faster than the clock
    assert (table["useful_seconds"].to_numpy() <= table["busy_seconds"].to_numpy() + 1e-9).all()
    assert max(result.machines["cpu"].to_pylist()) <= 1 + 1e-9


@settings(max_examples=30)
@given(scenario=finite_scenarios(), seed=st.integers(0, 3))
def test_littles_law_holds_exactly_from_empty_to_empty(scenario, seed):
    """The integral of a queue's length over time is the sum of the waits."""
    table = drained(scenario, seed).result().instances
    for name in "abc":
        own = table.filter(pc.equal(table["operator"], name))
        area = (own["queue_mean"].to_numpy() * own["seconds"].to_numpy()).sum()
        assert area == pytest.approx(own["waited_seconds"].to_numpy().sum(), abs=1e-6)


def test_littles_law_holds_in_a_steady_state():
    scenario = Scenario.chain(Source("log", 800, arrivals="poisson"), Operator("map", Exponential(0.001)))
    total = simulate(scenario, 500, seed=1).total("map", after=50)
    assert total.mean_queue == pytest.approx(total.throughput * total.mean_wait, rel=0.01)


def test_back_pressure_reaches_the_source_whose_lag_grows_by_what_cannot_be_done():
    scenario = Scenario.chain(
        Source("log", rate=100),
        Operator("fast", Exactly(0.001), capacity=10),
        Operator("slow", Exactly(0.02), capacity=10),
    )
    result = simulate(scenario, 100.0)
    assert result.total("slow", after=5).throughput == pytest.approx(50, rel=0.01)
    lag = result.sources["lag"].to_numpy()
    assert lag[-1] == pytest.approx(50 * 100, rel=0.02)
    assert np.all(np.diff(lag) > 0)
    # the first row that is not read came when half of the rows had come
    assert result.sources["lag_seconds"].to_numpy()[-1] == pytest.approx(50, rel=0.02)
    assert result.total("fast", after=5).backpressured == pytest.approx(0.95, abs=0.01)


def test_a_sender_that_is_blocked_at_one_receiver_keeps_nothing_back_from_those_before():
    scenario = Scenario(
        (Source("log", 10, rows=4), Operator("slow", Exactly(1.0), capacity=1), Operator("quick", Exactly(0.01))),
        (Edge("log", "slow"), Edge("log", "quick")),
    )
    trace = simulate(scenario, 20, trace=True).trace
    quick = trace.filter(pc.equal(trace["operator"], "quick"))["done"].to_numpy()
    # rows 0 and 1 find a server and a place; row 2 waits for the end of the first service, row 3 for the second
    assert quick == pytest.approx([0.01, 0.11, 1.01, 2.01])


def test_round_robin_of_the_worked_example_of_osg_takes_29_seconds():
    """Rivetti and others 2016: costs of 10 s and 1 s, one tuple a second, two instances."""
    from steelyard.sim import PerItem

    scenario = Scenario.chain(
        Source("log", rate=1, keys=[0, 1, 0], rows=3),
        Operator("work", PerItem([10.0, 1.0]), parallelism=2),
        grouping="round_robin",
    )
    trace = simulate(scenario, 60, trace=True).trace
    ages = trace["done"].to_numpy() - trace["born"].to_numpy()
    assert sorted(ages.tolist()) == [1.0, 10.0, 18.0]


def test_two_runs_with_one_seed_are_the_same_and_another_seed_gives_another():
    scenario = Scenario.chain(Source("log", 50, arrivals="poisson"), Operator("map", Exponential(0.01)))
    first, again, other = (simulate(scenario, 5, seed=seed, trace=True).trace for seed in (1, 1, 2))
    assert first == again
    assert first != other
