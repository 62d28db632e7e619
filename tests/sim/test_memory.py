"""Memory of machines: what is held is counted, and a machine that needs more fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.sim import (
    Checkpoints,
    Edge,
    Exactly,
    Growing,
    Machine,
    Network,
    Operator,
    Scenario,
    Simulation,
    Source,
    Window,
    simulate,
)
from tests.sim.test_conservation import drained, finite
from tests.sim.test_event_loop import any_window, scenarios

GB = 1e9


def queueing(memory_gb, *, rate=1_000, seconds=0.01, size=1_000.0, capacity=0):
    return Scenario(
        (Source("log", rate), Operator("slow", Exactly(seconds), capacity=capacity)),
        (Edge("log", "slow", tuple_bytes=size),),
        (Machine(2, memory_gb=memory_gb),),
    )


@settings(max_examples=40)
@given(scenario=scenarios(windows=any_window), rows=st.integers(1, 40), seed=st.integers(0, 3))
def test_memory_is_given_back_by_every_tuple(scenario, rows, seed):
    machines = drained(finite(scenario, rows), seed).result().machines.to_pandas()
    assert machines.groupby("machine")["memory_bytes"].last().abs().max() == pytest.approx(0, abs=1e-6)
    assert machines["memory_peak"].max() >= 17.0 or not rows


def test_a_queue_that_outgrows_its_machine_ends_in_a_failure_and_a_return():
    memory = 1e6 / GB
    result = simulate(queueing(memory), 3.0)
    # 900 of 1,000 rows per second are too many, with a kilobyte each
    assert result.failures.to_pylist()[0] == {
        "time": pytest.approx(1.11, abs=0.02),
        "reason": "memory",
        "machine": 0,
        "downtime_seconds": 1.0,
    }
    assert result.machines["memory_peak"].to_pylist()[0] <= 1e6
    assert "machine 0 ran out of memory" in str(result)


def test_bounded_queues_need_no_more_memory_than_their_places():
    result = simulate(queueing(1e6 / GB, capacity=100), 30.0)
    assert result.failures.num_rows == 0
    assert max(result.machines["memory_peak"].to_pylist()) == pytest.approx(100_000.0)


def test_a_restore_comes_on_top_of_the_second_after_which_it_is_noticed():
    checkpoints = Checkpoints(every=0.5, restore=2.0)
    result = simulate(queueing(1e6 / GB), 10.0, checkpoints=checkpoints)
    assert set(result.failures["downtime_seconds"].to_pylist()) == {3.0}
    assert result.failures.num_rows == 3  # it goes back to where there was little room, again and again


def test_a_simulation_by_steps_fails_and_goes_on_too():
    simulation = Simulation(queueing(1e6 / GB))
    simulation.advance(1.5)
    assert simulation.exhausted is None
    assert simulation.now == pytest.approx(2.11, abs=0.02)  # the failure was at 1.11
    assert simulation.result().failures.num_rows == 1


def test_state_that_grows_is_held_until_its_window_ends():
    growing = Growing(0.0001, per_kept=0.0, window=10.0, bytes_per_kept=100.0)
    scenario = Scenario.chain(Source("log", 100), Operator("join", growing), machines=(Machine(2),))
    result = simulate(scenario, 40.0, every=5.0)
    held = result.machines["memory_bytes"].to_numpy()
    assert held[[0, 2, 4, 6]] == pytest.approx([50_000] * 4, rel=0.01)
    assert result.machines["memory_peak"].to_numpy().max() == pytest.approx(100_000, rel=0.01)


@pytest.mark.parametrize("markers", [False, True])
def test_state_that_was_saved_is_held_after_a_failure(markers):
    growing = Growing(0.0001, per_kept=0.0, bytes_per_kept=100.0)
    scenario = Scenario.chain(Source("log", 100), Operator("join", growing), machines=(Machine(2),))
    simulation = Simulation(scenario)
    simulation.advance(5.0)
    if markers:
        simulation.send_markers()
    else:
        simulation.checkpoint()
    simulation.advance(5.0)
    simulation.fail()
    simulation.advance(1e-6)
    simulation.sample()
    # 501 rows came by then; those of the five seconds since are read at once
    assert simulation.result().machines["memory_bytes"].to_numpy()[-1] == pytest.approx(50_100, abs=200)


def test_tuples_inside_a_machine_share_its_local_line():
    operators = (Operator("a", Exactly(0.0), capacity=5), Operator("b", Exactly(0.0), capacity=5))
    scenario = Scenario(
        (Source("log", 1_000), *operators),
        (Edge("log", "a", tuple_bytes=100.0), Edge("a", "b", tuple_bytes=300.0)),
        (Machine(4),),
        Network(local_bytes_per_second=200_000.0),
    )
    result = simulate(scenario, 30.0)
    # 400 bytes per row of 200,000 per second let 500 rows per second through
    assert result.total("b", after=5).throughput == pytest.approx(500, rel=0.01)
    assert result.machines["sent_bytes"].to_numpy().sum() == 0


def test_state_that_is_moved_to_a_machine_too_small_for_it_fails_and_time_goes_on():
    source = Source("log", 1_000, keys=list(range(500)))
    operator = Operator("count", Exactly(0.0001), window=Window(100.0, bytes_per_key=1_000.0))
    large = Scenario((source, operator), (Edge("log", "count"),), (Machine(2),))
    simulation = Simulation(large)
    simulation.advance(2.0)
    simulation.restart(replace(large, machines=(Machine(2, memory_gb=0.4e6 / GB),)))
    simulation.advance(5.0)
    assert simulation.exhausted is None
    assert simulation.now >= 7.0
    assert set(simulation.result().failures["reason"].to_pylist()) == {"memory"}
