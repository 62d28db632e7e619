"""The experiment on agents: its scenarios, and its verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.bench import Result, charts
from steelyard.bench.claims import FAILS, HOLDS
from steelyard.bench.prompt import agents
from steelyard.bench.prompt.agents import AGENTS, FAULTY, JUDGED, RIVALS, SWING, Swing, Taught, claims_of, result_of
from steelyard.bench.prompt.plus_model import PATTERNS, Course
from steelyard.bench.registry import choose
from steelyard.learning import Curve
from steelyard.sim.agents import ALL_AT_ONCE, ONE_AT_A_TIME, TrainedTeam, Training
from steelyard.sim.agents.learner import drawn

TEAM = drawn(Training())


def course(late: float, tasks: int) -> Course:
    """A hundred batches, this share of which is late."""
    counts = np.full(100, 1000)
    load = np.where(np.arange(100) < 100 * late, 1.5, 0.8)
    return Course(counts, counts, np.full(100, tasks - 2), np.full(100, 2), load, load)


def outcome(agents_late: float, agents_tasks: int):
    """Zones are late with a tenth of the batches, and have ten tasks."""
    scenarios = [*PATTERNS, SWING]
    zones = {(scenario, rival): course(0.1, 10) for scenario in scenarios for rival in RIVALS}
    return zones | {(scenario, AGENTS): course(agents_late, agents_tasks) for scenario in scenarios}


def taught(*trained: bool) -> Taught:
    curves = Curve("scheduler", np.array([-2.0, -1.0])), Curve("partitioners", np.array([-0.2, -0.1]))
    modes = {mode: TrainedTeam(TEAM, curves, 60.0, (True,) * 4) for mode in (ALL_AT_ONCE, ONE_AT_A_TIME)}
    rewards = {mode: [-1.0, -0.1] for mode in modes}
    return Taught(modes, rewards, trained, trained, [(0.4 if place == FAULTY else 0.01, 0.01) for place in range(3)])


def test_agents_with_fewer_late_batches_and_fewer_tasks_are_no_worse_anywhere():
    result = result_of([outcome(0.05, 9)] * 3, taught(False, True, False), quick=True)
    assert result.metrics["agents_vs_zones"] == 1
    assert result.tables[2].records() == [{"exception": "none"}]
    assert {claim.verdict for claim in claims_of([outcome(0.05, 9)] * 3, taught(False, True, False))} == {HOLDS}


def test_every_exception_is_named():
    found = [outcome(0.05, 12)] * 3
    result = result_of(found, taught(True, True, False), quick=True)
    pairs = sum(map(len, JUDGED.values()))
    assert result.metrics["agents_vs_zones"] == 0
    assert len(result.tables[2].rows) == pairs
    assert all("20.0 % more tasks" in row["exception"] for row in result.tables[2].records())
    claims = claims_of(found, taught(True, True, False))
    assert [claim.verdict for claim in claims].count(FAILS) == pairs + 1
    assert all(claim.reason for claim in claims)


def test_the_rate_swings_around_more_than_the_first_plan_does():
    rows, keys = Swing(SWING, (1, 1), (1, 1), (4, 2)).batches(1.0)
    assert rows.mean() == pytest.approx(agents.MEAN * agents.ROWS, rel=0.1)
    assert rows.max() > 1.3 * rows.mean()
    assert set(keys.tolist()) == {agents.KEYS}


def test_what_is_saved_is_drawn():
    result = result_of([outcome(0.05, 9)] * 3, taught(False, True, False), quick=True)
    figure = charts.new_figure()
    choose(["partly-agents"])[0].draw(figure, Result.from_dict(result.to_dict()))
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == ["Late batches", "Tasks in use", "Both rise: tasks, one seed", "Learning"]
