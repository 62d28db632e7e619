"""Kubernetes' horizontal autoscaler: by processor time, and by time at work and lag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core import Observation, OperatorObservation, OptionError
from steelyard.scaling import HpaCpu, HpaVarga


def seen(time, *operators):
    return Observation(time, 15.0, operators)


def of(name, parallelism, senders=(), used=0.5, held=0.0, **figures):
    figures = {"processed_per_second": 100.0, "lag": 0.0, "lag_per_second": 0.0, **figures}
    spent = {"busy": used - held, "backpressured": held, "idle": 1 - used}
    return OperatorObservation(name, parallelism, dict.fromkeys(senders, 100.0), **spent, **figures)


def by_cpu(policy, time, share, parallelism=4):
    return policy.decide(seen(time, of("map", parallelism, cpu=share))).parallelism["map"]


def test_as_many_instances_as_bring_the_processors_to_their_target():
    assert by_cpu(HpaCpu(), 15.0, 0.9) == 6
    assert by_cpu(HpaCpu(), 15.0, 0.7) == 4
    assert by_cpu(HpaCpu(target=0.5), 15.0, 0.9) == 8
    assert by_cpu(HpaCpu(), 15.0, 0.0) == 1


def test_a_fall_waits_until_nobody_wished_for_more_in_five_minutes():
    """Wishes for 6, 3 and 3 within five minutes: it stays at 6."""
    for last, expected in ((300.0, 6), (301.0, 3)):
        policy = HpaCpu()
        wishes = [by_cpu(policy, time, share) for time, share in [(0.0, 0.9), (150.0, 0.5), (last, 0.5)]]
        assert wishes == [6, 6, expected]


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=40), st.sampled_from([0.0, 60.0, 300.0]))
def test_what_is_wished_is_the_highest_wish_of_the_window(shares, window):
    policy = HpaCpu(window=window)
    fresh = [by_cpu(HpaCpu(), 15.0, share) for share in shares]
    for number, share in enumerate(shares):
        young = [wish for then, wish in enumerate(fresh[: number + 1]) if 15.0 * (number - then) <= window]
        assert by_cpu(policy, 15.0 * (number + 1), share) == max(young)


def test_operators_have_numbers_of_their_own():
    found = HpaCpu().decide(seen(15.0, of("log", 2, cpu=0.1), of("map", 10, ["log"], cpu=0.84))).parallelism
    assert found == {"log": 1, "map": 12}


def varga(lag_change=None, used=0.84, lag=1e6, **parameters):
    """A source that is held back by four instances of `map`, and whose lag grows."""
    rows = 20_000.0
    growth = {"lag": lag, "lag_per_second": (lag_change - 1) * rows} if lag_change else {"lag": lag}
    log = of("log", 3, used=0.9, held=0.6, processed_per_second=rows, **growth)
    parse = of("map", 4, ["log"], used=used, processed_per_second=rows)
    return HpaVarga(**parameters).decide(seen(15.0, log, parse)).parallelism["map"]


def test_the_higher_of_what_work_and_lag_ask_for():
    assert varga(lag_change=1.25) == 5
    assert varga(lag_change=1.0) == 5
    assert varga(lag_change=2.1) == 9
    assert varga(lag_change=1.25, used=1.0) == 6


def test_below_the_users_threshold_lag_counts_for_nothing():
    assert varga(lag_change=1.25, used=0.35, lag=9_999.0) == 2
    assert varga(lag_change=1.25, used=0.35, lag=10_000.0) == 5


def test_lag_is_charged_to_the_bottleneck_for_all_sources_that_feed_it():
    def log(name, growth):
        return of(name, 2, used=0.8, held=0.6, processed_per_second=10_000.0, lag=1e6, lag_per_second=growth)

    join = of("join", 10, ["left", "right"], used=0.3)
    after = of("after", 10, ["join"], used=0.3)
    found = HpaVarga().decide(seen(15.0, log("left", 6_000.0), log("right", -1_000.0), join, after)).parallelism
    assert found["join"] == 13, "a lag that grows by 5,000 while 20,000 are read"
    assert found["after"] == found["left"] + 2 == 5, "who is no bottleneck goes by his time at work"


def test_a_source_that_nothing_holds_back_is_a_bottleneck_where_its_lag_grows_fast():
    log = of("log", 4, used=1.0, processed_per_second=100_000.0, lag=1e6, lag_per_second=60_000.0)
    assert HpaVarga().decide(seen(15.0, log)).parallelism == {"log": 7}
    assert HpaVarga(grows=70_000.0).decide(seen(15.0, log)).parallelism == {"log": 6}


def test_the_growth_of_a_lag_is_taken_over_a_minute():
    """It stood still for 45 s and then rose for 15: a quarter of the rate at which it rises now."""
    policy = HpaVarga()
    lags = [(15.0, 1e6, 0.0), (30.0, 1e6, 0.0), (45.0, 1e6, 0.0), (60.0, 1e6, 0.0), (75.0, 1.6e6, 4e4)]
    for time, lag, growth in lags:
        log = of("log", 4, used=0.35, processed_per_second=20_000.0, lag=lag, lag_per_second=growth)
        wished = policy.decide(seen(time, log)).parallelism["log"]
    assert wished == 6, "1 + 10,000 / 20,000 times as many"


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [(HpaCpu, {"target": 0.0}), (HpaCpu, {"window": -1.0}), (HpaVarga, {"target": 1.1}), (HpaVarga, {"lag_target": 0})],
)
def test_targets_that_nobody_can_reach_are_refused(policy, parameters):
    with pytest.raises(OptionError, match=r"must be"):
        policy(**parameters)
