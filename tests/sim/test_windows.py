"""Windows with results, against a count by hand over the same tuples without windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.sim import (
    Checkpoints,
    Edge,
    Exactly,
    Failure,
    Machine,
    Operator,
    Scenario,
    Simulation,
    Source,
    Window,
    simulate,
)
from steelyard.workloads import Zipf

SERVICE = 0.000317
"""No service ends when a window does."""


def counting(window, *, keys=500, rows=20_000, instances=3, rate=5_000, grouping="hash", machines=()):
    source = Source("log", rate, keys=Zipf(exponent=1.0, keys=keys, seed=3), rows=rows)
    operator = Operator("count", Exactly(SERVICE), parallelism=instances, window=window)
    return Scenario((source, operator), (Edge("log", "count", grouping),), machines)


@pytest.mark.parametrize("grouping", ["hash", "shuffle"])
@pytest.mark.parametrize("seconds", [0.05, 0.7, 100.0])
def test_a_result_comes_out_for_each_key_of_each_window_with_the_age_of_its_last_tuple(seconds, grouping):
    tuples = simulate(counting(None, grouping=grouping), 200, trace=True).trace.to_pandas()
    results = simulate(counting(Window(seconds), grouping=grouping), 200, trace=True).trace.to_pandas()
    tuples["window"] = np.floor(tuples["done"] / seconds)
    expected = tuples.groupby(["instance", "window", "item"], as_index=False)["born"].max()
    results["window"] = np.floor(results["done"] / seconds + 1e-9) - 1
    found = results[["instance", "window", "item", "born"]].sort_values(
        ["instance", "window", "item"], ignore_index=True
    )
    assert found.equals(expected)
    # the thread ends what it is at first
    late = results["done"] - (results["window"] + 1) * seconds
    assert late.between(-1e-9, SERVICE + 1e-9).all()


def test_results_take_time_and_hold_up_the_tuples_behind_them():
    window = Window(0.995, per_result=0.01)
    scenario = Scenario.chain(
        Source("log", rate=100, keys=list(range(20)), rows=101), Operator("count", Exactly(0.001), window=window)
    )
    simulation = Simulation(scenario, trace=True)
    simulation.advance(10.0)
    simulation.sample()
    # rows at 0, 0.01 … 0.99 are in the first window; that at 1.0 waits for the 20 results of it
    assert simulation.trace()["done"].to_pylist() == pytest.approx([1.195] * 20 + [2.0])
    total = simulation.result().total("count")
    assert total.processed == 101
    assert total.mean_wait * 101 == pytest.approx(0.195)
    assert total.utilisation * 10.0 == pytest.approx(101 * 0.001 + 21 * 0.01)


def test_results_go_on_by_their_keys():
    scenario = Scenario(
        (*counting(Window(0.5), grouping="shuffle").operators, Operator("sum", Exactly(0.0001), parallelism=4)),
        (Edge("log", "count", "shuffle"), Edge("count", "sum", "hash")),
    )
    result = simulate(scenario, 60, trace=True)
    assert result.total("sum").processed == result.total("count").sent > 500
    assert result.trace.to_pandas().groupby("item")["instance"].nunique().max() == 1


def test_a_failure_loses_no_key_of_a_window_that_is_in_the_checkpoint():
    scenario = counting(Window(100.0))
    whole = simulate(scenario, 200, trace=True).trace.to_pandas()
    checkpoints = Checkpoints(every=1.0, snapshot=0.1)
    broken = simulate(scenario, 200, trace=True, checkpoints=checkpoints, failures=[Failure(at=2.7)])
    assert broken.failures.num_rows == 1
    assert sorted(broken.trace["item"].to_pylist()) == sorted(whole["item"])


@pytest.mark.parametrize("instances", [1, 2, 7])
def test_keys_move_with_a_restart_and_windows_end_when_they_would(instances):
    scenario = counting(Window(100.0), rows=30_000, rate=5_000)
    whole = simulate(scenario, 200, trace=True).trace.to_pandas()
    simulation = Simulation(scenario, trace=True)
    simulation.advance(3.0)
    down = simulation.restart(scenario.rescaled({"count": instances}), pause=1.0)
    assert down < 1.5  # nobody waits for the end of a window
    simulation.advance(150.0)
    trace = simulation.trace().to_pandas()
    assert sorted(trace["item"]) == sorted(whole["item"])
    assert trace["instance"].nunique() == instances
    assert trace["done"].min() == pytest.approx(100.0)


@settings(max_examples=20)
@given(keys=st.integers(1, 5_000), threads=st.integers(1, 3), seconds=st.sampled_from([0.01, 0.3]))
def test_memory_is_given_back_when_results_are_sent(keys, threads, seconds):
    source = Source("log", 20_000, keys=Zipf(exponent=0.5, keys=keys, seed=1), rows=4_000)
    operator = Operator("count", Exactly(0.0001), threads=threads, window=Window(seconds, bytes_per_key=100.0))
    scenario = Scenario((source, operator), (Edge("log", "count", tuple_bytes=50.0),), (Machine(4),))
    simulation = Simulation(scenario)
    while not simulation.drained:
        simulation.advance(1.0)
        simulation.sample()
    machines = simulation.result().machines
    assert machines["memory_bytes"].to_pylist()[-1] == pytest.approx(0, abs=1e-6)
    assert max(machines["memory_peak"].to_pylist()) >= 150.0


def test_what_windows_cannot_do_is_said():
    scenario = counting(Window(1.0))
    with pytest.raises(OptionError, match="without markers"):
        simulate(scenario, 5, checkpoints=Checkpoints(every=1.0, markers=True))
    with pytest.raises(OptionError, match="'count' has none any more"):
        Simulation(scenario).restart(counting(None))
    with pytest.raises(OptionError, match="must be above 0"):
        Window(0.0)
    with pytest.raises(OptionError, match="no multiple of its slide"):
        Window(10.0, slide=3.0)
    with pytest.raises(OptionError, match="leave outputs"):
        Operator("count", Exactly(0.1), outputs=2.0, window=Window(1.0))
    with pytest.raises(OptionError, match=r"as Window\(10.0\)"):
        Operator("count", Exactly(0.1), window=10.0)
