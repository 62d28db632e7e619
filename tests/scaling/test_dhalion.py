"""Dhalion: the published formulas, who is to blame, and who has too much."""

from __future__ import annotations

import pytest

from steelyard.core import Observation, OperatorObservation, OptionError
from steelyard.scaling import Dhalion


def of(name, parallelism=1, senders=(), busy=0.5, held=0.0, **figures):
    return OperatorObservation(
        name,
        parallelism,
        dict.fromkeys(senders, 100.0),
        busy=busy,
        backpressured=held,
        idle=1 - busy - held,
        processed_per_second=figures.pop("processed_per_second", 100.0),
        **figures,
    )


def asked(*operators, **parameters):
    return dict(Dhalion(**parameters).decide(Observation(15.0, 15.0, operators)).parallelism)


@pytest.mark.parametrize(("held", "instances", "expected"), [(0.4, 5, 9), (0.95, 5, 50), (0.9, 3, 30), (0.5, 4, 8)])
def test_who_holds_others_back_gets_as_many_more_as_they_waited(held, instances, expected):
    """Eq 4.1, with no more than ten times the instances: 0.9 / (1 - 0.9) is 9, whatever the last digit says."""
    log = of("log", 2, busy=1 - held, held=held)
    assert asked(log, of("map", instances, ["log"], busy=1.0, queue_filled=1.0)) == {"map": expected}


def test_a_source_gets_as_many_more_as_its_lag_grows():
    """Eq 4.2."""
    log = of("log", 4, busy=1.0, processed_per_second=20_000.0, lag=50_000.0, lag_per_second=5_000.0)
    assert asked(log, of("map", 3, ["log"])) == {"log": 5}


def test_a_source_that_is_held_back_is_not_to_blame_for_its_lag():
    log = of("log", 4, busy=0.5, held=0.5, lag=1e6, lag_per_second=5_000.0)
    assert asked(log, of("map", 3, ["log"], busy=1.0, queue_filled=1.0)) == {"map": 6}


def test_step_by_step_who_has_nothing_to_do_gets_fewer_until_one_is_left():
    seen, instances = [], 10
    while len(seen) < 8:
        seen.append(instances)
        instances = asked(of("log", instances, lag=0.0))["log"]
    assert seen == [10, 8, 6, 4, 3, 2, 1, 1]


def test_only_whose_input_is_nearly_empty_gets_fewer_and_nobody_while_anybody_is_held_back():
    log, left, right = of("log", 10, lag=20_000.0), of("left", 10, ["log"]), of("right", 10, ["log"], queue_filled=0.3)
    assert asked(log, left, right) == {"left": 8}
    assert asked(of("log", 10, held=0.2), left, of("right", 10, ["log"], held=0.2)) == {"left": 13}
    assert asked(log, of("alone", 10, held=0.2)) == {}, "held back by somebody who is not to be seen"


def test_the_worst_bottleneck_is_cured_alone_or_all_at_once():
    """The text cures one of them, the published program all."""
    log, other = of("log", 1, held=0.2), of("other", 1, busy=0.3, held=0.6)
    few, many = of("few", 4, ["log"], busy=1.0), of("many", 4, ["other"], busy=1.0)
    assert asked(log, other, few, many) == {"many": 10}
    assert asked(log, other, few, many, every_bottleneck=True) == {"few": 5, "many": 10}


def test_it_looks_at_what_is_held_back_most_of_all_that_send_to_an_operator():
    log, other = of("log", 1, held=0.2), of("other", 1, busy=0.3, held=0.6)
    assert asked(log, other, of("join", 4, ["log", "other"], busy=1.0)) == {"join": 10}


@pytest.mark.parametrize("parameters", [{"scale_down": 0.0}, {"scale_down": 1.0}, {"held": 1.0}])
def test_shares_that_are_none_are_refused(parameters):
    with pytest.raises(OptionError, match=r"Dhalion must be"):
        Dhalion(**parameters)
