"""The benchmark of the simulator: its scenarios, and where its figures come from."""

import pytest
from rich.console import Console

from steelyard.bench import Run
from steelyard.bench.progress import Reporter
from steelyard.bench.simulator import speed as sim_speed
from steelyard.sim import simulate


def test_the_large_topology_has_100_executors_and_keeps_up_with_its_rate():
    scenario = sim_speed.executors()
    assert len(scenario.instances) == 100
    result = simulate(scenario, 5.0, seed=1)
    assert result.total("file", after=1.0).throughput == pytest.approx(sim_speed.EXECUTORS_RATE, rel=0.02)


def test_the_autoscaled_run_uses_most_of_its_workers_and_no_more():
    run = sim_speed.scaled(3600.0)
    workers = [sum(one.parallelism.values()) for one in run.changes]
    assert 50 < max(workers) <= sim_speed.WORKERS
    assert len(workers) >= 3


def test_every_figure_with_a_target_is_measured(monkeypatch):
    monkeypatch.setattr(sim_speed, "QUICK_TUPLES", 2_000)
    monkeypatch.setattr(sim_speed, "QUICK_REPETITIONS", 1)
    monkeypatch.setattr(sim_speed, "EXECUTORS_MINUTES", 1 / 30)
    monkeypatch.setattr(sim_speed, "AUTOSCALING_HOURS", 0.05)
    result = sim_speed.sim_speed(Run(quick=True, progress=Reporter(Console(quiet=True))))
    assert {target.metric for target in result.targets} == {
        "events_per_second",
        "executors_20_min_seconds",
        "autoscaling_2_h_seconds",
    }
    assert min(result.metrics.values()) > 0
    assert [row[0] for row in result.tables[0].rows] == list(sim_speed.GROUPINGS)
