"""Foresight: what it forecasts, what it knows of work, what it pays for, and what it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.control import Cap, Controller, Cooldown, LargestStep
from steelyard.core import InstanceObservation, Observation, OperatorObservation, OptionError
from steelyard.scaling import Foresight
from steelyard.scaling.foresight_plan import STEPS, Outlook, best, capacity, keeping, needed
from steelyard.scaling.foresight_rate import Rates
from steelyard.scaling.foresight_restart import Rescales
from steelyard.scaling.foresight_work import Work
from steelyard.sim import Edge, Exactly, FluidSimulation, Growing, Operator, Scenario, Source, Window
from steelyard.workloads import Steps

LOOK = 15.0


def rates_of(levels, seconds=60.0, outlook=1200.0):
    found = Rates(outlook)
    for number, level in enumerate(levels):
        found.add(seconds * (number + 1), float(level))
    return found


def outlook_of(rate, now, curve, behind=0.0, standstill=30.0, price=20.0, workers=0):
    rates = np.full((7, STEPS), float(rate))
    return Outlook(
        rates, 1200.0, behind, float(rate), {"map": np.array(curve)}, {"map": now}, standstill, price, workers
    )


def looks_at(work, rows, busy, parallelism=1, state=0.0, sent=0.0, many=20):
    for _ in range(many):
        seen = OperatorObservation(
            "x", parallelism, {}, processed_per_second=rows, sent_per_second=sent, busy=busy, state_bytes=state
        )
        work.learn(seen, LOOK, rows, 1200.0)


# forecasts


def test_a_rate_that_stays_is_forecast_to_stay_and_one_that_rises_to_rise():
    ahead = np.array([300.0])
    assert rates_of([1000.0] * 40).forecast(ahead).middle[0] == pytest.approx(1000.0, rel=0.01)
    rising = rates_of(100.0 * np.arange(1, 41)).forecast(ahead)
    assert rising.middle[0] > 4200.0
    assert "goes" in rising.kind or "gone" in rising.kind


def test_what_comes_and_goes_is_known_after_one_turn():
    minutes = np.arange(150)
    wave = 1000.0 + 800.0 * np.cos(2 * np.pi * minutes / 60)
    found = rates_of(wave).forecast(np.array([300.0, 600.0, 1200.0]))
    came = 1000.0 + 800.0 * np.cos(2 * np.pi * (149 + np.array([5, 10, 20])) / 60)
    assert found.kind == "as one period before"
    assert found.middle == pytest.approx(came, abs=120.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=80))
def test_futures_are_numbers_in_order_and_no_rate_is_below_nothing(levels):
    found = rates_of(levels).forecast(np.linspace(10.0, 1200.0, 9))
    assert np.isfinite(found.rates).all()
    assert (found.rates >= 0).all()
    assert (np.diff(found.rates, axis=0) >= -1e-6 * max([*levels, 1.0])).all()


def test_a_rate_that_wanders_is_known_less_well_than_one_that_stays():
    draws = np.random.default_rng(3)
    wanders = rates_of(np.abs(5000.0 + np.cumsum(draws.uniform(-500, 500, 90)))).forecast(np.array([600.0]))
    stays = rates_of([5000.0] * 90).forecast(np.array([600.0]))
    assert np.ptp(wanders.rates[:, 0]) > 3 * np.ptp(stays.rates[:, 0])


# what work depends on


def test_a_window_that_fires_does_not_make_rows_dearer():
    """Ten rows in a second take a half of it; at a firing 100 results take all of it, and fewer rows are done."""
    work = Work()
    for _ in range(10):
        looks_at(work, 10.0, 0.5, many=3)
        looks_at(work, 2.0, 1.0, sent=90.0, many=1)
    row, result, _ = work.costs
    assert row == pytest.approx(0.05, rel=0.02)
    assert result == pytest.approx(0.01, rel=0.02)


def test_a_join_whose_state_grows_is_seen_to_get_dearer_and_with_more_instances_cheaper():
    work = Work()
    for state in np.linspace(0, 4e6, 9):  # 2 ms a row, and 1 ms more for each megabyte of an instance
        looks_at(work, 100.0, 100 * (0.002 + 1e-9 * state / 2) / 2, parallelism=2, state=float(state), many=4)
    row, _, kept = work.costs
    assert row == pytest.approx(0.002, rel=0.05)
    assert kept == pytest.approx(1e-9, rel=0.05)
    curve = work.curve(8, 4e6)
    assert curve[3] == pytest.approx(4 / (0.002 + 1e-9 * 1e6), rel=0.05)
    assert curve[3] / curve[1] > 2.2


def test_an_instance_with_a_hot_key_bounds_what_any_number_can_do():
    work = Work()
    shares = (0.7, 0.1, 0.1, 0.1)
    each = [
        InstanceObservation(f"c#{n}", processed_per_second=1000 * share, busy=share, idle=1 - share)
        for n, share in enumerate(shares)
    ]
    for _ in range(30):
        work.learn(OperatorObservation.of("c", each, {"log": 1000.0}), LOOK, 1000.0, 1200.0)
    assert work.hot == pytest.approx(0.6, abs=0.01)
    curve = work.curve(64, 0.0)
    assert curve[-1] < 1 / (0.6 * 0.001 * 0.99)
    assert curve[63] < 1.1 * curve[31]


# rescales


def test_a_rescale_is_timed_within_the_look_in_which_it_ends():
    learnt = Rescales(30.0, 0.0)
    learnt.ask(100.0, 2e9)
    source = OperatorObservation("log", 1, processed_per_second=9.0, busy=0.4, backpressured=0.0, idle=0.6)
    assert not learnt.watch(Observation(115.0, 15.0, (source,)), changed=False, working=True)
    assert learnt.watch(Observation(145.0, 15.0, (source,)), changed=True, working=True)
    assert learnt.took[0] == (2e9, pytest.approx(39.0))


@given(st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1e4)), max_size=12), st.floats(0, 1e12))
def test_no_rescale_is_expected_to_take_less_than_no_time(took, state):
    learnt = Rescales(30.0, 10.0)
    learnt.took.extend(took)
    assert 0 <= learnt.expected(state) < np.inf


# plans


def test_the_fewest_instances_that_carry_a_rate():
    curves = {"log": np.array([100.0, 200.0]), "map": np.array([50.0, 100.0, 150.0])}
    assert needed(curves, 120.0) == {"log": 2, "map": 3}
    assert capacity(curves, {"log": 2, "map": 3}) == 150.0


def test_nothing_changes_where_a_rescale_costs_more_than_it_saves():
    curve = 100.0 * np.arange(1, 31)
    slack = outlook_of(900.0, 11, curve)
    assert keeping(slack).cost < best(slack).cost


def test_a_job_that_falls_behind_gets_more_and_what_is_behind_is_worked_off():
    curve = 100.0 * np.arange(1, 61)
    late = outlook_of(1000.0, 5, curve, behind=60_000.0)
    plan = best(late)
    assert plan.begins == 0.0
    assert plan.capacity > 1000.0
    assert plan.caught_up < 600.0
    assert plan.cost < keeping(late).cost


@settings(max_examples=30, deadline=None)
@given(st.floats(1.0, 5000.0), st.integers(1, 40), st.integers(2, 40), st.floats(0, 1e6), st.floats(0, 200))
def test_plans_fit_the_workers_and_cost_is_a_number(rate, now, workers, behind, standstill):
    found = best(outlook_of(rate, now, 100.0 * np.arange(1, 61), behind, standstill, workers=workers))
    assert sum(found.parallelism.values()) <= workers
    assert np.isfinite(found.cost)


def test_a_higher_price_of_lag_buys_no_fewer_workers():
    curve = 100.0 * np.arange(1, 61)
    chosen = [best(outlook_of(1500.0, 8, curve, 30_000.0, price=price)).capacity for price in (0.1, 1.0, 10.0, 100.0)]
    assert chosen == sorted(chosen)


# in charge of a job


def run(scenario, seconds=3600.0, policy=None, guards=(), downtime=30.0):
    simulation = FluidSimulation(scenario, 1.0, downtime, 200e6, 0.03, 1)
    controller = Controller(simulation, policy or Foresight(), [LargestStep(15), *guards], history=None)
    controller.run(seconds, LOOK)
    return controller


def chain(rate, cost=0.001, parallelism=1, **more):
    work = Operator("work", Exactly(cost), parallelism=parallelism, capacity=100, **more)
    return Scenario.chain(Source("log", rate, service=Exactly(1e-5)), work)


def test_it_settles_after_a_step_and_says_what_it_expects_and_how_wrong_it_was():
    controller = run(chain(Steps(900.0, (2000.0, 8000.0, 8000.0, 8000.0)), parallelism=3), guards=[Cooldown(300.0)])
    done = [one for one in controller.decisions if not one.done.is_nothing]
    assert done
    assert done[-1].time < 2700.0
    assert controller.seen.operators[0].lag < 8000.0
    reasons = " / ".join(one.done.reason for one in done)
    for words in ("rows/s are expected in", "standstill", "so far wrong by", "the last rescale took"):
        assert words in reasons


def test_it_learns_how_long_rescales_take():
    policy = Foresight(restart=5.0)
    controller = run(chain(Steps(600.0, (1000.0, 9000.0, 500.0, 9000.0, 9000.0, 500.0))), policy=policy, downtime=60.0)
    assert len([one for one in controller.decisions if not one.done.is_nothing]) >= 2
    assert controller.policy.standstill(controller.seen) > 40.0


def test_windows_that_fire_in_bursts_do_not_make_it_grow():
    window = Window(300.0, 0.0002, 64.0, slide=60.0, new_keys=0.07)
    rate = Steps(60.0, (10_000.0,))
    scenario = Scenario.chain(
        Source("log", rate, service=Exactly(1e-5)),
        Operator("windows", Exactly(0.0006), parallelism=9, capacity=200, window=window),
        Operator("sink", Exactly(1e-6)),
    )
    controller = run(scenario, 1800.0, guards=[Cooldown(300.0)])
    assert controller.seen.parallelism["windows"] <= 13
    assert controller.seen.operators[0].lag < 100_000.0


def test_a_join_whose_state_grows_keeps_up():
    law = Growing(0.0002, 5e-8, bytes_per_kept=300.0, ttl=300.0)
    rate = Steps(600.0, (2000.0, 8000.0, 15_000.0, 15_000.0, 15_000.0, 15_000.0))
    scenario = Scenario(
        (Source("log", rate, service=Exactly(1e-5)), Operator("join", law, parallelism=2, capacity=500)),
        (Edge("log", "join"),),
    )
    controller = run(scenario, guards=[Cooldown(300.0)])
    assert controller.seen.operators[0].lag_seconds < 60.0


def test_it_wishes_for_no_more_than_there_are():
    controller = run(chain(Steps(60.0, (40_000.0,))), seconds=1800.0, policy=Foresight(workers=20))
    assert sum(controller.seen.parallelism.values()) <= 20
    assert len([one for one in controller.decisions if not one.done.is_nothing]) <= 4
    assert not run(chain(Steps(60.0, (40_000.0,))), 900.0, Foresight(workers=20), [Cap(20)]).last.refused


def test_it_asks_for_splitting_where_no_number_of_instances_carries_the_hottest():
    shares = (0.85, 0.05, 0.05, 0.05)
    each = [
        InstanceObservation(f"count#{n}", processed_per_second=2000 * share, busy=share, idle=1 - share, queue=0.0)
        for n, share in enumerate(shares)
    ]
    log = InstanceObservation(
        "log#0",
        processed_per_second=2000.0,
        sent_per_second=2000.0,
        busy=0.3,
        idle=0.7,
        queue=0.0,
        arrived_per_second=2600.0,
    )
    policy = Foresight()
    for number in range(1, 30):
        seen = Observation(
            LOOK * number,
            LOOK,
            (OperatorObservation.of("log", [log], {}), OperatorObservation.of("count", each, {"log": 2000.0})),
        )
        action = policy.decide(seen)
    assert "split its hottest key" in action.reason
    assert action.parallelism.get("count", 4) <= 6


def test_looks_in_a_cooldown_are_learnt_from():
    rate = Steps(60.0, tuple(1000.0 + 50 * minute for minute in range(60)))
    controller = run(chain(rate), seconds=1500.0, guards=[Cooldown(1200.0)])
    assert len(controller.policy._rates) > 90


def test_parameters_that_cannot_be_are_refused():
    for wrong in ({"price": -1.0}, {"outlook": 0.0}, {"spare": 1.0}, {"restart": float("nan")}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            Foresight(**wrong)
