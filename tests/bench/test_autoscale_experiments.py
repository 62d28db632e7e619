"""The contest of autoscalers: its rates, its figures, its verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steelyard.bench.autoscale.by_pattern import result_of
from steelyard.bench.autoscale.cells import beaten_by, near
from steelyard.bench.autoscale.contest import CONTESTANTS, CPU, DS2, EXACT, FLINK, FORESIGHT, GUARDS, PUBLISHED, observe
from steelyard.bench.autoscale.convergence import result_of as convergence_result
from steelyard.bench.autoscale.findings import after_actions
from steelyard.bench.autoscale.live import CONTESTANTS as LIVE
from steelyard.bench.autoscale.live import RESTART, WAYS, simulated
from steelyard.bench.autoscale.live import result_of as live_result
from steelyard.bench.autoscale.outcome import Outcome, outcome_of
from steelyard.bench.autoscale.patterns import COSINE, DECREASING, INCREASING, PATTERNS, RANDOM, STEPS, rate_of
from steelyard.bench.autoscale.queries import QUERIES, WORKERS
from steelyard.bench.autoscale.report import panels_of
from steelyard.bench.autoscale.verdicts import TABLE
from steelyard.core import Action
from steelyard.scaling import elasticity
from steelyard.sim import Exactly, FluidSimulation, Operator, Scenario, Source
from steelyard.workloads import Steps

EVERY_TEN_MINUTES = {
    INCREASING: [0.04, 0.09, 0.41, 0.78, 1.07, 1.02, 0.92, 0.97, 1.34, 1.27, 1.57, 1.89, 2.20, 2.39],
    DECREASING: [2.52, 2.23, 2.26, 2.34, 2.34, 1.98, 1.56, 1.31, 1.39, 1.00, 1.01, 1.04, 1.06, 0.96],
    RANDOM: [1.25, 2.45, 0.16, 0.68, 0.67, 0.00, 0.96, 0.62, 1.73, 2.20, 0.54, 1.76, 2.50, 1.91],
}
"""Of the published program's formulas with its seeds, in million rows per second."""


@pytest.mark.parametrize("pattern", EVERY_TEN_MINUTES)
def test_rates_of_published_seeds_are_those_of_the_published_program(pattern):
    rate = rate_of(pattern, 7, (0.0, 0.0, 0.0))
    assert len(rate.levels) == 140
    assert np.array(rate.levels[::10]) / 1e6 == pytest.approx(EVERY_TEN_MINUTES[pattern], abs=0.0051)
    assert rate.levels != rate_of(pattern, 8, (0.0, 0.0, 0.0)).levels


def test_a_cosine_has_its_mean_its_swing_and_its_noise_and_steps_have_none():
    levels = np.array(rate_of(COSINE, 7, (3e4, 2.5e4, 250.0)).levels)
    wave = 3e4 + 2.5e4 * np.cos(2 * np.pi * np.arange(140) / 60)
    assert np.abs(levels - wave).max() <= 250.0
    assert np.abs(levels - wave).max() > 200.0
    steps = rate_of(STEPS, 7, (0.0, 0.0, 0.0))
    assert [float(steps.rate(60.0 * minute)) for minute in (0, 9, 10, 49, 50, 89)] == [0, 0, 2e6, 2e6, 1e6, 1e6]


def test_the_peak_of_map_needs_most_workers_and_that_of_sessions_more_than_there_are():
    def needed(query, rate):
        return sum(rate * seconds for seconds in QUERIES[query].seconds.values())

    assert 40 <= needed("Map", 2.5e6) <= 60
    assert needed("SWA", 2.5e6) > WORKERS
    for query in QUERIES.values():
        assert needed(query.name, sum(query.wave[:2])) < 0.65 * WORKERS
        assert sum(query.fitting(sum(query.wave[:2])).values()) <= WORKERS
        scenario = query.build(rate_of(COSINE, 7, query.wave))
        assert {one.name for one in scenario.operators} == set(query.seconds)


def test_what_a_query_says_that_rows_cost_is_what_its_operators_cost():
    """At a constant rate, each operator works for as many seconds in a second as its share of the costs."""
    for query in QUERIES.values():
        mean = query.wave[0]
        scenario = query.build(Steps(60.0, (mean,))).rescaled(query.fitting(sum(query.wave[:2])))
        flows = FluidSimulation(scenario, step=0.5)
        flows.advance(600.0)
        flows.observe()
        flows.advance(300.0)
        for one in flows.observe().operators:
            expected = mean * query.seconds[one.name]
            loose = 0.35 if one.name == "join" else 0.02  # which gets dearer with what it keeps
            assert one.busy * one.parallelism == pytest.approx(expected, rel=loose, abs=1e-3), (query.name, one.name)


def test_the_wait_of_rows_is_what_they_waited_in_the_log():
    """Rows come for a minute while half of them are read: the last waits until the rest is read."""
    scenario = Scenario.chain(
        Source("log", Steps(60.0, (1000.0, 1.0, 1.0))), Operator("map", Exactly(0.002), capacity=10)
    )
    flows = FluidSimulation(scenario)
    for _ in range(10):
        flows.advance(15.0)
        flows.observe()
    flows.apply(Action({"map": 3}))
    found = outcome_of(flows.result(), [150.0])
    assert found.rate[:4].tolist() == pytest.approx([1000.0] * 4)
    assert found.read[:7].tolist() == pytest.approx([500.0] * 7, rel=0.01)
    assert found.waits[3] == pytest.approx(30.0, rel=0.02)
    assert found.waits.max() == pytest.approx(60.0, rel=0.15)
    assert found.p50 == pytest.approx(30.0, abs=8.0)
    assert found.p95 == pytest.approx(57.0, abs=8.0)
    assert found.workers.tolist() == [2.0] * 10
    assert found.worker_hours == pytest.approx(2 * 150 / 3600)
    assert found.kept_up == pytest.approx(1.0, abs=0.01)


def outcome(workers=(2.0, 2.0), actions=(), waits=None, rate=None):
    time = 15.0 * np.arange(1, len(workers) + 1)
    flat = np.ones(len(workers))
    rate = flat if rate is None else np.array(rate)
    waits = 0 * flat if waits is None else np.array(waits)
    return Outcome(time, rate, rate, np.array(workers), waits, 0.0, 0.0, actions)


def test_numbers_settle_where_none_changes_for_ten_minutes_and_latency_does_not_grow():
    looks = 160  # 40 minutes
    assert outcome([2.0] * looks, actions=[100.0, 1700.0]).converges(0.0, 2400.0) == (True, 2, 1700.0)
    assert outcome([2.0] * looks, actions=[100.0, 1900.0]).converges(0.0, 2400.0) == (False, 2, 1900.0)
    assert outcome([2.0] * looks).converges(0.0, 2400.0) == (True, 0, 0.0)
    grows = np.arange(looks) / 10
    assert not outcome([2.0] * looks, actions=[100.0], waits=grows).converges(0.0, 2400.0)[0]


def test_workers_follow_where_they_go_with_the_rate():
    assert outcome([1.0, 2.0, 3.0], rate=[10.0, 20.0, 30.0]).follows == pytest.approx(1.0)
    assert outcome([3.0, 2.0, 1.0], rate=[10.0, 20.0, 30.0]).follows == pytest.approx(-1.0)
    assert outcome([2.0, 2.0, 2.0], rate=[10.0, 20.0, 30.0]).follows == 0.0


def test_what_a_restart_leaves_is_the_longest_wait_behind_it():
    waits = [0, 0, 10, 30, 20, 0, 0, 0, 0, 0, 50, 0]
    assert after_actions(outcome([2.0] * 12, actions=[30.0], waits=waits)) == 30.0
    assert after_actions(outcome([2.0] * 12, actions=[30.0, 150.0], waits=waits)) == 40.0


def test_the_published_table_is_there_cell_by_cell():
    cells = {(row.pattern, row.query, row.who) for row in TABLE}
    cases = {(pattern, query) for pattern in PATTERNS for query in ("Map", "SWA")}
    cases |= {(COSINE, query) for query in ("FQ", "IJ", "SA")}
    assert cells == {(*case, who) for case in cases for who in PUBLISHED}
    assert len(TABLE) == len(cells) == 44
    assert all(row.checks and row.published for row in TABLE)


def test_every_contestant_is_a_policy_and_the_scale_manager_is_the_published_one():
    assert all(elasticity(named) for named in CONTESTANTS.values())
    assert [type(one).__name__ for one in GUARDS] == ["LargestStep", "Bounds", "Cap", "Cooldown"]


@pytest.fixture(scope="module")
def short():
    """Twenty minutes of everybody, who stays within the cap and lets five minutes pass behind an action."""
    return {who: observe(QUERIES["SWA"], COSINE, who, 7, 20.0) for who in CONTESTANTS}


def test_runs_keep_to_the_cap_and_to_the_cooldown(short):
    for one in short.values():
        assert one.workers.max() <= WORKERS
        assert all(np.diff([*one.actions]) >= 300.0)
        assert one.time[-1] == pytest.approx(20 * 60.0)
    assert len(short[DS2].actions) >= 2
    assert short[FLINK].actions in ((), (1200.0,)), "five minutes to settle and a window of fifteen"
    again = observe(QUERIES["SWA"], COSINE, CPU, 7, 20.0)
    assert again.actions == short[CPU].actions
    assert again.p95 == short[CPU].p95 != observe(QUERIES["SWA"], COSINE, CPU, 8, 20.0).p95


def test_results_have_verdicts_tables_and_a_panel_for_each_case(short):
    found = {("SWA", COSINE): [short, short], ("Map", COSINE): [short, short]}
    result = result_of(found, quick=False)
    verdicts = result.table("claims").records()
    assert {one["verdict"] for one in verdicts} <= {"holds", "does not hold", "undecided"}
    assert sum(one["claim"].startswith("F") for one in verdicts) == 7
    assert panels_of(result) == ["SWA, cosine", "Map, cosine"]
    assert len(result.panel("SWA, cosine, rows")) == len(result.panel("SWA, cosine, workers")) + 1
    assert result.kind == "simulated"


def test_a_cell_is_won_by_the_lowest_latency_where_nobody_near_it_is_cheaper():
    def run(p95, hours):
        one = outcome([1.0] * 240)
        return replace(one, p95=p95, workers=np.full(240, float(hours)))

    def lost(own, **rivals):
        return set(beaten_by([{FORESIGHT: run(*own), **{who: run(*figures) for who, figures in rivals.items()}}]))

    assert lost((10.0, 5.0), dear=(15.0, 6.0), far=(25.0, 1.0)) == set()
    assert lost((10.0, 5.0), cheap=(15.0, 4.0), fast=(8.0, 9.0)) == {"cheap", "fast"}
    assert lost((0.0, 5.0), alike=(0.9, 6.0)) == set(), "less than a second is not told apart"
    assert near(10.0, 21.0)
    assert not near(10.0, 21.1)


def test_live_runs_show_whether_order_and_latency_agree():
    scenario = Steps(1.0, (150.0,) * 5 + (1200.0,) * 30)
    traces = {
        (who, way): simulated(elasticity(named), scenario, 20.0, 300.0, 0.5)
        for who, named in LIVE.items()
        for way in WAYS
    }
    assert all(one.actions for one in traces.values())
    assert all(max(one.instances) <= 14 for one in traces.values())
    result = live_result(traces, traces, {RESTART: (300.0, 0.5)}, 20.0)
    assert result.metrics["order_agrees"] == 1.0
    assert result.metrics["latency_error"] == 0.0
    assert result.panel("measured, restart")[0].x == result.panel("simulated, restart")[0].x


def test_convergence_stands_beside_the_published_numbers_of_actions(short):
    longer = {
        who: replace(one, time=one.time * 4.5, actions=tuple(4.5 * at for at in one.actions))
        for who, one in short.items()
    }
    result = convergence_result({("Map", STEPS): [longer], ("SWA", STEPS): [longer]})
    assert [one.value for one in result.published] == [2, 3, 2]
    assert {one.metric for one in result.published} == {"actions_ds2", "actions_ds2_none_spare", "actions_hpa_cpu"}
    assert EXACT in {one["autoscaler"] for one in result.table("steps").records()}
