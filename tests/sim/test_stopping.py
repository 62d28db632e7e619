"""Pauses, checkpoints and failures of a simulated cluster: what is done twice, and that nothing is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.sim import (
    Checkpoints,
    Exactly,
    Exponential,
    Failure,
    Growing,
    Operator,
    Scenario,
    Simulation,
    Source,
    simulate,
)
from tests.sim.test_conservation import drained, finite_scenarios
from tests.sim.test_event_loop import BY_COST, GROUPINGS, scenarios

NO_CLOCK = (*GROUPINGS, *(one for one in BY_COST if "assg" in one or "cumulated" in one))


def one_server(rows=0, grouping="shuffle", instances=1):
    source = Source("log", rate=10, rows=rows, keys=[3, 1, 4, 1, 5, 9, 2, 6])
    return Scenario.chain(source, Operator("map", Exactly(0.05), parallelism=instances), grouping=grouping)


def test_a_pause_makes_every_tuple_later_that_is_not_done():
    simulation = Simulation(one_server(rows=4), trace=True)
    simulation.advance(0.12)
    simulation.pause(1.0)
    simulation.advance(5.0)
    # row 1 was in service for 0.02 s, and rows 2 and 3 came while nobody worked
    assert simulation.trace()["done"].to_pylist() == pytest.approx([0.05, 1.15, 1.20, 1.25])
    simulation.sample()
    total = simulation.result().total("map")
    assert total.processed == 4
    assert total.utilisation == pytest.approx(0.2 / 6.12)


def test_who_is_slowed_down_takes_longer_from_the_next_tuple_on():
    simulation = Simulation(one_server(rows=4), trace=True)
    simulation.advance(0.12)
    simulation.slow_down("map", [1.5])
    simulation.advance(5.0)
    assert simulation.trace()["done"].to_pylist() == pytest.approx([0.05, 0.15, 0.275, 0.375])
    with pytest.raises(OptionError, match="needs 1 numbers above 0"):
        simulation.slow_down("map", [1.0, 2.0])


@settings(max_examples=30)
@given(scenario=scenarios(groupings=NO_CLOCK), first=st.floats(0.1, 1.5), pause=st.floats(0.0, 3.0))
def test_a_pause_moves_what_is_under_way_and_changes_nothing_else_before_the_next_row(scenario, first, pause):
    """With a log that has ended, a run with a pause is the run without one, but later."""
    source = scenario.operators[0]
    ended = Source("log", source.rate, source.parallelism, source.keys, rows=3, service=source.service)
    scenario = Scenario((ended, *scenario.operators[1:]), scenario.edges, scenario.machines, scenario.network)
    first += 1.0  # all rows have come
    plain, paused = Simulation(scenario, 1, trace=True), Simulation(scenario, 1, trace=True)
    for simulation in (plain, paused):
        simulation.advance(first)
    paused.pause(pause)
    for simulation in (plain, paused):
        simulation.advance(20.0)
    expected = [done + pause * (done > first) for done in plain.trace()["done"].to_pylist()]
    assert paused.trace()["done"].to_pylist() == pytest.approx(expected, abs=1e-7)
    assert paused.trace()["item"] == plain.trace()["item"]


@settings(max_examples=30)
@given(scenario=finite_scenarios(), saved=st.floats(0.05, 1.0), lost=st.floats(0.0, 1.0), seed=st.integers(0, 2))
def test_after_a_failure_everything_since_the_checkpoint_comes_out_again_and_nothing_is_missing(
    scenario, saved, lost, seed
):
    """The part before the checkpoint and the part after the recovery are the whole run."""
    # what a filter keeps at random depends on who comes to which server, which a failure may change
    whole = [replace(one, outputs=max(one.outputs, 1.0)) for one in scenario.operators[1:]]
    scenario = replace(scenario, operators=(scenario.operators[0], *whole))
    simulation = Simulation(scenario, seed, trace=True)
    simulation.advance(saved)
    before = simulation.trace().num_rows
    simulation.checkpoint()
    simulation.advance(lost)
    doomed = simulation.trace().num_rows
    simulation.fail()
    for _ in range(1000):
        simulation.advance(5.0)
        if simulation.drained:
            break
    found = simulation.trace()["item"].to_pylist()
    once = Counter(found[:before] + found[doomed:])
    assert once == Counter(drained(scenario, seed).trace()["item"].to_pylist())
    simulation.sample()
    assert simulation.result().sources["lag"].to_numpy().sum() == 0


def test_a_failure_without_a_checkpoint_goes_back_to_the_start():
    result = simulate(one_server(rows=20), 10, trace=True, failures=[Failure(at=1.01, detection=0.5)])
    found = Counter(np.round(result.trace["born"].to_numpy(), 6).tolist())
    assert sum(found.values()) == 20 + 10
    assert sorted(found) == pytest.approx(np.arange(20) / 10)


def test_policies_go_back_with_the_checkpoint():
    scenario = one_server(rows=40, grouping="pk2?window=0", instances=4)
    undisturbed = simulate(scenario, 10, trace=True).trace
    failing = simulate(scenario, 12, trace=True, checkpoints=Checkpoints(every=1.0), failures=[Failure(at=2.51)]).trace
    where = {(row["item"], round(row["born"], 6)): row["instance"] for row in undisturbed.to_pylist()}
    for row in failing.to_pylist():
        assert where[row["item"], round(row["born"], 6)] == row["instance"]


def test_checkpoints_cost_capacity_and_a_failure_costs_lag():
    scenario = Scenario.chain(Source("log", 95), Operator("map", Exactly(0.01), capacity=20))
    free = simulate(scenario, 100)
    assert free.sources["lag"].to_numpy()[-1] <= 1
    # each second of work is followed by 0.1 s of standing still: 91 tuples per second are done
    saved = simulate(scenario, 100, checkpoints=Checkpoints(every=1.0, snapshot=0.1))
    assert saved.total("map").throughput == pytest.approx(100 / 1.1, rel=0.01)
    assert saved.sources["lag"].to_numpy()[-1] == pytest.approx(100 * (95 - 100 / 1.1), rel=0.1)
    # 10 s since the checkpoint are done again, after 5 s in which nothing is done
    failed = simulate(
        scenario, 100, checkpoints=Checkpoints(every=60.0, restore=4.0), failures=[Failure(at=70.0, detection=1.0)]
    )
    assert failed.sources["lag"].to_numpy().max() == pytest.approx(15 * 95, rel=0.15)
    assert failed.total("map").processed == pytest.approx(60 * 95 + 10 * 95 + 25 * 100, rel=0.01)


def test_metrics_keep_their_meaning_over_a_failure():
    scenario = Scenario.chain(
        Source("log", 50, arrivals="poisson"),
        Operator("a", Exponential(0.01), capacity=5),
        Operator("b", Exponential(0.015), capacity=5),
    )
    result = simulate(
        scenario, 60, every=1.0, checkpoints=Checkpoints(every=7.0, snapshot=0.2), failures=[Failure(20), Failure(33.3)]
    )
    table = result.instances
    for column in ("received", "processed", "busy_seconds", "backpressured_seconds", "queue_mean", "waited_seconds"):
        assert table[column].to_numpy().min() >= -1e-9, column
    parts = sum(table[f"{name}_seconds"].to_numpy() for name in ("busy", "idle", "backpressured"))
    # a tuple in service at a checkpoint is counted again from its begin
    assert parts == pytest.approx(table["threads"].to_numpy() * table["seconds"].to_numpy(), abs=0.15)


@settings(max_examples=30)
@given(scenario=finite_scenarios(), first=st.floats(0.0, 1.5), pause=st.floats(0.0, 2.0), seed=st.integers(0, 2))
def test_a_restart_with_other_instances_and_places_loses_nothing(scenario, first, pause, seed):
    source, *operators = scenario.operators
    whole = [replace(one, outputs=max(one.outputs, 1.0)) for one in operators]
    edges = tuple(replace(edge, grouping="hash") for edge in scenario.edges)  # a broadcast would change the numbers
    before = replace(scenario, operators=(source, *whole), edges=edges)
    after = before.rescaled({"a": 4, "b": 1, "c": 2})
    simulation = Simulation(before, seed, trace=True)
    simulation.advance(first)
    stopped = simulation.restart(after, pause)
    assert stopped >= pause - 1e-9
    assert simulation.now == pytest.approx(first + stopped)
    for _ in range(1000):
        simulation.advance(5.0)
        if simulation.drained:
            break
    simulation.sample()
    assert Counter(simulation.trace()["item"].to_pylist()) == Counter(drained(before, seed).trace()["item"].to_pylist())
    result = simulation.result()
    assert result.total("log").processed == source.rows
    assert result.latency().tuples == simulation.trace().num_rows


def test_a_restart_with_twice_the_instances_lets_a_lag_go():
    scenario = Scenario.chain(Source("log", 150), Operator("map", Exactly(0.01), capacity=100))
    simulation = Simulation(scenario)
    simulation.advance(60)
    simulation.sample()
    assert simulation.result().sources["lag"].to_numpy()[-1] == pytest.approx(60 * 50, rel=0.05)
    stopped = simulation.restart(scenario.rescaled({"map": 2}), pause=5.0)
    # the queue of 100 takes a second to come out
    assert stopped == pytest.approx(6.0, abs=0.05)
    simulation.advance(100)
    simulation.sample()
    assert simulation.result().sources["lag"].to_numpy()[-1] < 5
    assert simulation.result().total("map", after=60).throughput == pytest.approx(3050 / 100 + 150, rel=0.1)


def test_a_join_gets_slower_as_its_state_grows_and_faster_where_windows_end():
    growing = Scenario.chain(Source("log", 10, rows=50), Operator("join", Growing(0.001, per_kept=0.001)))
    done = simulate(growing, 20, trace=True).trace["done"].to_numpy()
    born = np.arange(50) / 10
    assert done - born == pytest.approx(0.001 + 0.001 * np.arange(50))
    windowed = Scenario.chain(Source("log", 10, rows=50), Operator("join", Growing(0.001, per_kept=0.001, window=1)))
    done = simulate(windowed, 20, trace=True).trace["done"].to_numpy()
    assert done - born == pytest.approx(0.001 + 0.001 * (np.arange(50) % 10))


def test_state_goes_to_new_instances_and_makes_checkpoints_dearer():
    scenario = Scenario.chain(Source("log", 100), Operator("join", Growing(0.001, per_kept=1e-6)))
    simulation = Simulation(scenario)
    simulation.advance(10)
    assert simulation.kept == pytest.approx(1000, abs=2)
    simulation.restart(scenario.rescaled({"join": 4}))
    assert simulation.kept == pytest.approx(250, abs=1)
    slow = Scenario.chain(Source("log", 100), Operator("join", Growing(0.001, per_kept=1e-6), capacity=1))
    saved = simulate(slow, 60, every=0.05, checkpoints=Checkpoints(every=9.0, per_kept=0.001))
    # the checkpoint after 9 s holds 900 tuples, and stops everything for 0.9 s; later ones hold more
    lags = saved.sources["lag_seconds"].to_numpy()
    assert lags[saved.sources["time"].to_numpy() < 15].max() == pytest.approx(0.9, abs=0.1)
    assert lags.max() > 3


def test_a_restart_cannot_change_the_sources():
    scenario = one_server()
    with pytest.raises(OptionError, match="must keep the sources"):
        Simulation(scenario).restart(scenario.rescaled({"log": 3}))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Checkpoints(every=0), "every of Checkpoints must be above 0"),
        (lambda: Failure(at=-1), "a time above 0"),
        (lambda: Simulation(one_server()).pause(-1), "0 or more seconds long"),
    ],
)
def test_stops_that_cannot_be_are_refused(make, words):
    with pytest.raises(OptionError, match=words):
        make()
