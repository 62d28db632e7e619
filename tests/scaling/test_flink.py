"""Flink's autoscaler: its page, its options, and what its users complain of."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, cos, pi, sin

import pytest

from steelyard.control import Controller, Cooldown
from steelyard.core import InstanceObservation, Observation, OperatorObservation, OptionError
from steelyard.core.needs import SHOWN
from steelyard.scaling import Flink

MINUTE, HOUR = 60.0, 3600.0
CAN = 1000.0
"""Rows per second of an instance that works all the time."""


def operator(name, instances, rows, senders=None, can=CAN, **of_log):
    """Instances that share so many rows per second."""
    busy = min(rows / instances / can, 1.0)
    each = [
        InstanceObservation(
            f"{name}#{number}",
            processed_per_second=rows / instances,
            busy=busy,
            idle=1.0 - busy,
            **{figure: value / instances for figure, value in of_log.items()},
        )
        for number in range(instances)
    ]
    return OperatorObservation.of(name, each, senders or {})


class Job:
    """A source and what follows it, which always keep up if they can; time passes in looks of a minute.

    Parameters
    ----------
    rate
        Rows that come to the log, per second, at a time.
    downtime
        Seconds of a restart; the looks that begin in it show a job at which nothing works.
    """

    what, shows = "a job", frozenset(SHOWN)

    def __init__(self, rate, downtime=0.0, instances=(4, 4), seconds=MINUTE, can=lambda name, count: CAN):
        self.rate, self.downtime, self.seconds, self.can = rate, downtime, seconds, can
        self.now, self.down_until, self.lag = 0.0, 0.0, 0.0
        self.instances = dict(zip(("log", "map"), instances, strict=True))

    def advance(self):
        self.now += self.seconds

    def observe(self):
        comes = self.rate(self.now)
        each = {name: self.can(name, count) for name, count in self.instances.items()}
        most = min(self.instances[name] * each[name] for name in each)
        most = 0.0 if self.now <= self.down_until else most
        reads = min(comes + self.lag / self.seconds, most)
        grows = comes - reads
        self.lag = max(self.lag + grows * self.seconds, 0.0)
        behind = {"arrived_per_second": comes, "lag": self.lag, "lag_per_second": grows}
        log = operator("log", self.instances["log"], reads, can=each["log"], **behind)
        mapped = operator("map", self.instances["map"], reads, {"log": reads}, each["map"])
        return Observation(self.now, self.seconds, (log, mapped))

    def apply(self, action):
        self.instances |= action.parallelism
        self.down_until = self.now + self.downtime
        return self.downtime


def run(job, policy, seconds, guards=()):
    controller = Controller(job, policy, guards, history=None)
    while job.now < seconds:
        job.advance()
        controller.look()
    return [one for one in controller.decisions if not one.done.is_nothing]


def test_fewer_than_twenty_restarts_a_day_where_traffic_rises_and_falls():
    """FLINK-36018: with every fall done at once, a job restarts all day. An hour's patience is what was asked for."""

    def traffic(time):
        day, hours = sin(2 * pi * time / (24 * HOUR)), sin(2 * pi * time / (100 * MINUTE))
        return 6000.0 * (1 + 0.4 * day + 0.5 * hours)

    hasty = run(Job(traffic), Flink(shrink_after=0.0, restart=60.0), 24 * HOUR)
    patient = run(Job(traffic), Flink(restart=60.0), 24 * HOUR)
    assert len(hasty) > 20
    assert 1 <= len(patient) <= 5
    assert all(one.parallelism["map"] * CAN >= traffic(one.time) for one in patient)


def test_the_wishes_of_an_hour_become_one_the_highest_of_them():
    """The mean over the window falls step by step; a fall is done at the first of them, an hour later."""

    def fell(**parameters):
        job = Job(lambda time: 9000.0 if time < 4 * HOUR else 3000.0, instances=(13, 13))
        return run(job, Flink(restart=0.0, **parameters), 8 * HOUR)

    hasty, patient = fell(shrink_after=0.0), fell()
    assert [one.parallelism["map"] for one in hasty] == [one.parallelism["map"] for one in patient] == [8, 5]
    assert patient[0].time == hasty[0].time + HOUR


def busy_job(rows_over_edge, map_busy=1.0):
    """A source whose rows to `map` are counted so, in front of a `map` that is at work all the time."""
    log = operator("log", 2, 1500.0, arrived_per_second=1800.0, lag=0.0)
    each = [
        InstanceObservation(f"map#{number}", processed_per_second=375.0, busy=map_busy, idle=1 - map_busy)
        for number in range(4)
    ]
    return log, OperatorObservation.of("map", each, {"log": rows_over_edge})


@pytest.mark.parametrize("misread", [0.0, 1.0, 150.0])
def test_an_operator_that_is_always_busy_never_gets_fewer_because_an_edge_was_misread(misread):
    """FLINK-38538: the rows of an edge were misread. What an operator processed is known to have come to it."""
    policy = Flink(shrink_after=0.0, stabilisation=0.0)
    wanted = [policy.decide(Observation(MINUTE * n, MINUTE, busy_job(misread))) for n in range(1, 60)]
    assert all(one.parallelism.get("map", 4) >= 4 for one in wanted)
    assert wanted[-1].parallelism == {"map": ceil(4 * (1800 / 0.7 + 300) / 1500)}, (
        "what it processed is known to have come to it"
    )


def test_with_several_senders_nobody_guesses_whose_rows_were_not_counted():
    log, parse = busy_job(0.0)
    both = OperatorObservation.of("both", parse.instances, {"log": 0.0, "map": 0.0})
    policy = Flink(shrink_after=0.0, stabilisation=0.0)
    decided = [policy.decide(Observation(MINUTE * n, MINUTE, (log, parse, both))) for n in range(1, 60)]
    assert all(one.is_nothing for one in decided)
    assert "both worked on rows, and none are said to have come to it" in decided[-1].reason


def test_a_busy_operator_stays_while_it_works_off_rows_that_no_longer_come():
    """The target is what comes, a fifth of what it does now; its time is its own witness."""

    def wants(map_busy):
        log, parse = busy_job(1500.0, map_busy)
        log = replace(log, arrived_per_second=300.0)
        policy = Flink(shrink_after=0.0, stabilisation=0.0)
        return [policy.decide(Observation(MINUTE * n, MINUTE, (log, parse))) for n in range(1, 90)]

    assert all(one.is_nothing for one in wants(map_busy=1.0))
    assert wants(map_busy=0.6)[-1].parallelism == {"map": 2}


def steady(policy, minutes, **of_log):
    """What is decided at last, on a source with four instances that are busy for as long as its rate says."""
    of_log = {"arrived_per_second": 2000.0, **of_log}
    for number in range(1, minutes + 1):
        log = operator("log", 4, of_log["arrived_per_second"], **of_log)
        action = policy.decide(Observation(MINUTE * number, MINUTE, (log,)))
    return action.parallelism.get("log", 4)


def test_nothing_is_decided_before_the_window_is_full_and_nothing_seen_while_it_settles():
    assert [steady(Flink(restart=0.0), minutes, arrived_per_second=4500.0) for minutes in (19, 20)] == [4, 4]
    job = Job(lambda time: 6000.0)
    first = run(job, Flink(), 30 * MINUTE)[0]
    assert first.time == 20 * MINUTE, "5 minutes to settle and 15 of metrics"


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(1500.0, 3), (1700.0, 4), (2800.0, 4), (3900.0, 4), (4000.0, 4), (4001.0, 6)],
)
def test_within_its_bounds_nothing_changes_and_outside_it_goes_to_the_target(rate, expected):
    """Four instances can do 4,000: between 40 and 100 % of that nothing happens, otherwise it goes to 70 %."""
    job = Job(lambda time: rate, instances=(4, 40))
    policy = Flink(catch_up=0.0, shrink_after=0.0, stabilisation=0.0)
    changes = run(job, policy, 25 * MINUTE)
    assert job.instances["log"] == expected == (ceil(rate / 700) if expected != 4 else 4)
    assert (not any("log" in one.done.parallelism for one in changes)) == (expected == 4)


def test_what_is_behind_and_what_comes_during_a_restart_is_caught_up_with():
    """capacity = rate / 0.7 + lag / 30 min + rate * restart / 30 min."""

    def wants(**parameters):
        policy = Flink(stabilisation=0.0, **parameters)
        for number in range(1, 16):
            log = operator("log", 5, 5000.0, arrived_per_second=5000.0, lag=3.6e6, lag_seconds=720.0)
            action = policy.decide(Observation(MINUTE * number, MINUTE, (log,)))
        return action.parallelism["log"]

    assert wants(restart=0.0) == ceil(5 / 0.7 + 2)
    assert wants(restart=600.0) == ceil(5 / 0.7 + 2 + 5 / 3)
    assert wants(restart=600.0, catch_up=600.0) == ceil(5 / 0.7 + 6 + 5)


def test_a_job_that_is_catching_up_and_keeps_up_is_left_alone():
    """Fewer instances would make the lag larger, and more are not needed."""

    def wants(lag_minutes):
        policy = Flink(stabilisation=0.0, shrink_after=0.0)
        for number in range(1, 20):
            log = operator("log", 8, 3000.0, arrived_per_second=2000.0, lag=1.0, lag_seconds=lag_minutes * MINUTE * 8)
            action = policy.decide(Observation(MINUTE * number, MINUTE, (log,)))
        return action.parallelism.get("log", 8)

    assert wants(lag_minutes=6) == 8
    assert wants(lag_minutes=0) < 8


def test_a_source_under_lag_shows_what_it_can_do_whatever_its_busy_time_says():
    """It says that it is busy for half of the time, and yet its lag grows: it cannot read more."""
    policy = Flink(stabilisation=0.0, restart=0.0, catch_up=0.0)
    for number in range(1, 20):
        each = InstanceObservation(
            "log#0",
            processed_per_second=500.0,
            busy=0.5,
            idle=0.5,
            arrived_per_second=900.0,
            lag=4e5,
            lag_seconds=100.0,
        )
        action = policy.decide(Observation(MINUTE * number, MINUTE, (OperatorObservation.of("log", [each], {}),)))
    assert action.parallelism == {"log": ceil(900 / 0.7 / 500)}


def test_the_busiest_instance_stands_for_all_or_the_mean_does():
    def wants(**parameters):
        policy = Flink(stabilisation=0.0, catch_up=0.0, **parameters)
        for number in range(1, 20):
            busy = [(0.95, 950.0), (0.45, 450.0)]
            each = [
                InstanceObservation(
                    f"log#{n}", processed_per_second=rows, busy=share, idle=1 - share, arrived_per_second=800.0
                )
                for n, (share, rows) in enumerate(busy)
            ]
            action = policy.decide(Observation(MINUTE * number, MINUTE, (OperatorObservation.of("log", each, {}),)))
        return action.parallelism.get("log", 2)

    assert wants() == ceil(2 * 1600 / 0.7 / (1400 / 0.95))
    assert wants(busiest=False) == 2


@pytest.mark.parametrize("hidden", [False, True], ids=["it sees the restart", "a guard hides the restart"])
def test_it_learns_how_long_a_restart_takes_where_it_can_see_it(hidden):
    policy = Flink(window=5 * MINUTE, stabilisation=MINUTE, learn_restart=True, restart=0.0, boundary=0.1)
    rates = lambda time: 3000.0 if time < 20 * MINUTE else 8000.0  # noqa: E731
    job = Job(rates, downtime=4 * MINUTE)
    changes = run(job, policy, 60 * MINUTE, [Cooldown(300.0)] if hidden else [])
    assert changes
    learnt = list(policy._restarts.took)
    assert learnt == ([] if hidden else [5 * MINUTE] * len(learnt))
    assert bool(learnt) != hidden


def test_more_instances_that_bring_nothing_are_not_followed_by_more():
    """The rate of all together stays what it is, as behind a database that is full."""

    def full(name, count):
        return 4000.0 / count if name == "map" else 1e5

    def most(**parameters):
        policy = Flink(window=5 * MINUTE, stabilisation=MINUTE, restart=0.0, most_up=1.0, **parameters)
        job = Job(lambda time: 9000.0, can=full)
        run(job, policy, 3 * HOUR)
        return job.instances["map"]

    assert most() == 200
    assert most(effective=0.1) == 8


def test_every_edge_has_a_ratio_of_its_own():
    """`left` gets all rows and `right` a tenth of them: what a sender puts out in all is more than either gets."""
    policy = Flink(stabilisation=0.0, catch_up=0.0)
    for number in range(1, 20):
        log = operator("log", 2, 1000.0, arrived_per_second=3000.0)
        left, right = operator("left", 1, 1000.0, {"log": 1000.0}), operator("right", 1, 100.0, {"log": 100.0})
        both = operator("both", 1, 900.0, {"left": 800.0, "right": 100.0})
        action = policy.decide(Observation(MINUTE * number, MINUTE, (log, left, right, both)))
    assert action.parallelism == {"log": 5, "left": 5, "both": 4}


def test_its_numbers_have_least_and_most():
    job = Job(lambda time: 50_000.0, instances=(60, 4))
    run(job, Flink(most=20, least=3, stabilisation=0.0), HOUR)
    assert job.instances["map"] == 20
    job = Job(lambda time: 100.0 * (2 + cos(time)), instances=(9, 9))
    run(job, Flink(least=3, stabilisation=0.0, shrink_after=0.0, most_down=1.0), 2 * HOUR)
    assert job.instances == {"log": 3, "map": 3}


@pytest.mark.parametrize(
    "parameters", [{"utilisation": 0.0}, {"boundary": 0.7}, {"least": 3, "most": 2}, {"most_down": 0.0}, {"window": -1}]
)
def test_parameters_that_make_no_sense_are_refused(parameters):
    with pytest.raises(OptionError):
        Flink(**parameters)
