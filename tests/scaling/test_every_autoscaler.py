"""What must hold for every autoscaler that is registered."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.control import Bounds, Cap, Controller, LargestStep
from steelyard.core import (
    BatchObservation,
    Learning,
    Observation,
    OperatorObservation,
    OptionError,
    ScalingPolicy,
)
from steelyard.core.control import InstanceObservation, WorkerObservation
from steelyard.core.needs import OF_BATCHES, OF_SCENARIOS, SHOWN
from steelyard.policies import spelled_out
from steelyard.scaling.registry import ELASTICITY
from tests.control.shown import shown_by

CASES = [
    *(spelled_out(entry).replace("...", "1") for entry in ELASTICITY.entries.values()),
    "ds2?overprovisioning=0",
    "zones?patience=1&increment=proportional",
    "zones?patience=1&careful=no&most_blocks=7&least_buckets=2",
    "zones?interval=2",
    "dhalion?every_bottleneck=yes&scale_down=0.5",
    "hpa_cpu?window=60",
    "hpa_varga?window=30&least_lag=0&grows=1",
    "flink?window=30&stabilisation=0&shrink_after=0&boundary=0.1",
    "foresight?price=50&outlook=300&workers=9",
    "foresight?price=0&spare=0.2&worthwhile=0",
    "together?budget=1&full=0.5&gap=0",
    "by_speed?busy=0.01&gap=0",
    "flink?window=20&stabilisation=20&effective=0.1&learn_restart=yes&busiest=no&most=9",
]
LOOKS = 12


def rate(draw: random.Random) -> float:
    """Nothing, a little or very much of it."""
    return draw.choice([0.0, draw.uniform(1e-3, 10), draw.uniform(10, 1e7)])


def share(draw: random.Random) -> float:
    return draw.choice([0.0, draw.random(), 1.0])


def of_batches(draw: random.Random) -> Observation:
    """What an engine of batches shows: empty batches and batches that nobody measured are among them."""
    rows = draw.choice([0, draw.randint(1, 10**6)])
    seen = BatchObservation(
        number=draw.randint(0, 1000),
        rows=rows,
        keys=draw.randint(0, rows),
        blocks=draw.randint(1, 40),
        buckets=draw.randint(1, 40),
        processing_seconds=draw.choice([0.0, draw.uniform(0, 2), draw.uniform(0, 50)]),
        interval_seconds=draw.uniform(0.1, 10),
        slots=draw.choice([0, 1, 6]),
        map_seconds=draw.choice([0.0, 0.3, 4.0]),
        reduce_seconds=draw.choice([0.0, 0.3, 4.0]),
    )
    return seen.at(draw.uniform(0, 1e6))


def spent(draw: random.Random) -> dict[str, float]:
    """How an instance spent its time; at times it does not say all of it."""
    busy, held = share(draw), draw.random()
    return {"busy": busy, "backpressured": (1 - busy) * held, "idle": (1 - busy) * (1 - held)} if held > 0.1 else {}


def of_scenarios(draw: random.Random) -> Observation:
    """What simulated tuples show of a source and what follows it: idle, blocked and overloaded operators."""
    operators, names = [], ["log", *(f"operator {number}" for number in range(draw.randint(0, 3)))]
    for number, name in enumerate(names):
        senders = draw.sample(names[:number], draw.randint(1, number)) if number else []
        each = [
            InstanceObservation(
                f"{name}#{instance}",
                processed_per_second=rate(draw),
                sent_per_second=rate(draw),
                cpu=share(draw),
                queue=rate(draw),
                queue_filled=share(draw),
                **spent(draw),
                **({} if number else of_log(draw)),
            )
            for instance in range(draw.randint(1, 4))
        ]
        operators.append(OperatorObservation.of(name, each, {sender: rate(draw) for sender in senders}))
    routes = {
        (sender, one.name): (1, *(draw.randint(0, 9) for _ in one.instances[1:]))
        for one in operators
        for sender in one.received_from
    }
    machines = draw.randint(1, 3)
    places = [one.name for operator in operators for one in operator.instances]
    return Observation(
        draw.uniform(0, 1e6),
        draw.uniform(0.1, 60),
        tuple(operators),
        placement={name: number % machines for number, name in enumerate(places)},
        workers=tuple(WorkerObservation(number, share(draw), 2.0) for number in range(machines)),
        latency={50.0: 0.1, 99.0: rate(draw)},
        weights=routes,
    )


def of_log(draw: random.Random) -> dict[str, float]:
    lag = rate(draw)
    return {"arrived_per_second": rate(draw), "lag": lag, "lag_per_second": lag - rate(draw), "lag_seconds": lag / 10}


ENGINES = ((OF_BATCHES, of_batches), (OF_SCENARIOS, of_scenarios))
"""What engines show that can change numbers, and looks at one."""


@pytest.fixture(params=CASES, name="fresh", scope="module")
def _fresh(request) -> Callable[[], ScalingPolicy]:
    """Makes the policy anew: some remember what they saw."""
    return lambda: ELASTICITY.named(request.param)


def looks(policy, draw: random.Random) -> list[Observation]:
    """Looks at an engine that shows what the policy needs."""
    fitting = [look for shows, look in ENGINES if shows.issuperset(getattr(policy, "needs", ()))]
    look = draw.choice(fitting)
    found = [look(draw) for _ in range(draw.randint(1, LOOKS))]
    if draw.random() < 0.5:  # the same job, again and again, as its clock goes on
        found = [replace(found[0], time=found[0].seconds * number) for number in range(1, LOOKS + 1)]
    return sorted(found, key=lambda one: one.time) if draw.random() < 0.8 else found


drawn = given(draw=st.integers(0, 1 << 30).map(random.Random))


class Job:
    """An engine that shows some looks, one after the other, and does what it is told."""

    what = "a job"

    def __init__(self, shows, seen=()):
        self.shows, self.seen, self.told = frozenset(shows), iter(seen), []

    def observe(self):
        return next(self.seen)

    def apply(self, action):
        self.told.append(action)
        return 0.0


def decided(policy, seen):
    return [policy.decide(one) for one in seen]


@settings(deadline=None, max_examples=30)
@drawn
def test_drawn_looks_show_what_their_engines_say(draw):
    assert shown_by(of_batches(draw)) == OF_BATCHES
    assert shown_by(of_scenarios(draw)) == OF_SCENARIOS


def test_it_says_what_it_needs_in_words_that_engines_know(fresh):
    needs = getattr(fresh(), "needs", ())
    assert set(needs) <= SHOWN.keys()
    assert any(shows.issuperset(needs) for shows, _ in ENGINES), "no engine could run it"


def test_it_is_refused_where_any_of_that_cannot_be_shown(fresh):
    needs = set(getattr(fresh(), "needs", ()))
    assert Controller(Job(needs), fresh()).policy.name == fresh().name
    for missing in needs:
        with pytest.raises(OptionError, match=f"{fresh().name} needs {SHOWN[missing]}, which a job cannot show"):
            Controller(Job(needs - {missing}), fresh())


@settings(deadline=None, max_examples=60)
@drawn
def test_it_names_only_what_is_there_with_whole_numbers(fresh, draw):
    policy = fresh()
    for one in looks(policy, draw):
        action = policy.decide(one)
        assert action.parallelism.keys() <= one.parallelism.keys()
        assert all(type(count) is int and count >= 1 for count in action.parallelism.values())
        assert action.placement.keys() <= one.placement.keys()
        assert set(action.placement.values()) <= {worker.number for worker in one.workers}
        assert not action.moves
        assert not action.cuts


@settings(deadline=None, max_examples=60)
@drawn
def test_a_change_has_its_reason_in_words(fresh, draw):
    policy = fresh()
    for one in looks(policy, draw):
        action = policy.decide(one)
        assert action.changes(one).is_nothing or len(action.reason.split()) > 2


@settings(deadline=None, max_examples=40)
@drawn
def test_the_same_looks_bring_the_same_decisions(fresh, draw):
    seen = looks(fresh(), draw)
    before = pickle.dumps(seen)
    assert decided(fresh(), seen) == decided(fresh(), pickle.loads(before))
    assert seen == pickle.loads(before), "what was seen is left as it was"


@settings(deadline=None, max_examples=40)
@drawn
def test_what_it_remembers_can_be_kept_and_it_goes_on_as_if_nothing_had_happened(fresh, draw):
    """From its state, where it has one to keep; a policy without one decides by what it sees alone."""
    seen = looks(fresh(), draw)
    cut = draw.randint(0, len(seen))
    policy, other = fresh(), fresh()
    decided(policy, seen[:cut])
    if isinstance(policy, Learning):
        other.restore({part: array.copy() for part, array in policy.state().items()})
    pickled = pickle.loads(pickle.dumps(policy))
    assert decided(policy, seen[cut:]) == decided(other, seen[cut:]) == decided(pickled, seen[cut:])


@settings(deadline=None, max_examples=40)
@drawn
def test_nothing_is_done_beyond_what_guards_allow(fresh, draw):
    seen = looks(fresh(), draw)
    least, up, down, workers = draw.randint(1, 4), draw.randint(1, 5), draw.randint(1, 5), draw.randint(8, 60)
    most = least + 9
    steps = Job(SHOWN, seen), [LargestStep(up, down)]
    bounds = Job(SHOWN, seen), [Bounds(least, most)]
    cap = Job(SHOWN, seen), [Cap(workers)]
    for job, guards in (steps, bounds, cap):
        controller = Controller(job, fresh(), guards)
        for one in seen:
            decision = controller.look()
            wanted, now = decision.done.parallelism, one.parallelism
            if job is steps[0]:
                assert all(now[name] - down <= count <= now[name] + up for name, count in wanted.items())
            if job is bounds[0]:
                assert all(least <= count <= most for count in wanted.values())
            if job is cap[0] and wanted:
                assert sum({**now, **wanted}.values()) <= workers


def quiet(operators, parallelism=3):
    """A look at operators that did nothing."""
    return tuple(
        OperatorObservation(name, parallelism, {"log": 0.0} if number else {}, arrived_per_second=None if number else 0)
        for number, name in enumerate(operators)
    )


@pytest.mark.parametrize("operators", [[], ["log"], ["log", "map"]], ids=["no operator", "a source alone", "two"])
def test_a_job_in_which_nothing_happens_is_no_error(fresh, operators):
    """Neither rates nor loads can be divided by: a number stays, or falls to what it may be at least."""
    batch = BatchObservation(0, 0, 0, 3, 3, 0.0, 1.0)
    policy = fresh()
    for number in range(LOOKS):
        seen = Observation(number * 15.0, 15.0, quiet(operators), batch)
        assert all(1 <= count <= 3 for count in {**seen.parallelism, **policy.decide(seen).parallelism}.values())


def overloaded(time: float, seconds: float = 15.0) -> Observation:
    """A job that needs more of everything, for those who look at operators and for those who look at batches."""
    log = [
        InstanceObservation(
            f"log#{number}",
            processed_per_second=5e4,
            sent_per_second=5e4,
            busy=0.5,
            backpressured=0.5,
            cpu=0.9,
            queue=0.0,
            arrived_per_second=2e5,
            lag=1.5e5 * time,
            lag_per_second=1.5e5,
            lag_seconds=10.0,
        )
        for number in range(2)
    ]
    full = {"processed_per_second": 5e4, "busy": 1.0, "cpu": 0.95, "queue": 9.0, "queue_filled": 0.9}
    parse = [InstanceObservation(f"map#{number}", **full) for number in range(2)]
    operators = OperatorObservation.of("log", log, {}), OperatorObservation.of("map", parse, {"log": 1e5})
    batch = BatchObservation(int(time // 15), int(1e6 + 9e3 * time), 100, 2, 2, 20.0, 15.0)
    return Observation(time, seconds, operators, batch, weights={("log", "map"): (3, 1)})


def told(seen: Observation, **of_map) -> Observation:
    """The same, with other figures of the second instance of `map`."""
    log, parse = seen.operators
    each = [parse.instances[0], replace(parse.instances[1], **of_map)]
    return replace(seen, operators=(log, OperatorObservation.of("map", each, {"log": 1e5})))


def did_nothing(seen: Observation) -> Observation:
    """Rows come to `map`, which says that it is busy and does none of them."""
    log, parse = seen.operators
    each = [replace(one, processed_per_second=0.0) for one in parse.instances]
    return replace(seen, operators=(log, OperatorObservation.of("map", each, {"log": 1e5})))


def absent(seen: Observation) -> Observation:
    log, parse = seen.operators
    return replace(seen, operators=(log, replace(parse, instances=parse.instances[:1])))


SILENT = {"processed_per_second": 0.0, "busy": 0.0, "cpu": None, "queue": None, "queue_filled": 0.0}
SPOILT = {
    "an instance is not there": (absent, "1 of 2 instances of map"),
    "an instance says nothing": (lambda seen: told(seen, **SILENT), "map#1 says nothing"),
    "an instance that is silent looks idle": (lambda seen: told(seen, **SILENT, idle=1.0), "map#1 says nothing"),
    "NaN rows": (lambda seen: told(seen, processed_per_second=nan), "processed_per_second of map"),
    "NaN of time": (lambda seen: told(seen, busy=nan), "busy of map"),
    "NaN of processors": (lambda seen: told(seen, cpu=nan), "cpu of map"),
    "rows without end": (lambda seen: told(seen, processed_per_second=inf), "is no number"),
    "less than no rows": (lambda seen: told(seen, processed_per_second=-9e4), "below 0"),
    "a rate of 0": (did_nothing, "rows came to map, and it says that it did nothing"),
    "a clock that stands still": (lambda seen: replace(seen, seconds=0.0), "the clock jumped"),
    "a clock that goes back": (lambda seen: replace(seen, time=seen.time - 60, seconds=-45.0), "the clock jumped"),
    "no clock": (lambda seen: replace(seen, time=nan), "the clock jumped"),
}
BATCHES = {
    "NaN seconds": nan,
    "a clock that goes back": -3.0,
    "a clock that jumps": inf,
}


def last_decision(policy, last, looks=100):
    """What is decided at the last of many looks at a job that needs more, if that is another one."""
    for number in range(1, looks):
        decision = Controller(Job(SHOWN, [overloaded(15.0 * number)]), policy).look()
        if not decision.done.is_nothing and number > LOOKS:
            break
    return Controller(Job(SHOWN, [last(overloaded(15.0 * (number + 1)))]), policy).look()


def those(choose: Callable[[ScalingPolicy], bool]) -> list[str]:
    return [case for case in CASES if choose(ELASTICITY.named(case))]


def looks_at(policy, what) -> bool:
    return any(needed.startswith(what) for needed in getattr(policy, "needs", ()))


OF_OPERATORS = those(lambda policy: looks_at(policy, "operators"))
OF_LOADS = those(lambda policy: looks_at(policy, "batch.load") or bool(getattr(policy, "interval", 0)))
"""Those that go by W: the interval is the engine's, or one that they were given."""


@pytest.mark.parametrize("fresh", OF_OPERATORS, indirect=True)
@pytest.mark.parametrize("spoilt", SPOILT)
def test_bad_metrics_of_operators_lead_to_no_action_and_the_decision_says_what_was_missing(fresh, spoilt):
    assert not last_decision(fresh(), lambda seen: seen).done.is_nothing, "the same look unspoilt leads to one"
    spoil, missing = SPOILT[spoilt]
    decision = last_decision(fresh(), spoil)
    assert decision.done.is_nothing
    assert missing in decision.wanted.reason


@pytest.mark.parametrize("fresh", OF_LOADS, indirect=True)
@pytest.mark.parametrize("spoilt", BATCHES)
def test_bad_metrics_of_batches_lead_to_no_action_and_the_decision_says_what_was_missing(fresh, spoilt):
    spoil = lambda seen: replace(seen, batch=replace(seen.batch, processing_seconds=BATCHES[spoilt]))  # noqa: E731
    decision = last_decision(fresh(), spoil)
    assert decision.done.is_nothing
    assert "W is not known" in decision.wanted.reason


MOMENTS = {
    "back": {"time": 30.0},
    "far ahead": {"time": 9e4, "seconds": 9e4},
    "over a longer time than there was": {"seconds": 9e4},
    "no number": {"time": nan},
    "still": {"seconds": -1.0},
}


@pytest.mark.parametrize("moment", [*MOMENTS, None])
def test_where_the_clock_jumps_nobody_acts_though_the_look_would_do(fresh, moment):
    """Whoever decides: rates over a time that was not so are no rates."""
    made = [overloaded(15.0 * number) for number in range(1, 100)]
    job = Job(SHOWN, made)
    controller = Controller(job, fresh())
    before = [controller.look() for _ in made]
    assert not any("the clock" in one.wanted.reason for one in before)
    told = len(job.told)
    job.seen = iter([replace(overloaded(15.0 * 100), **MOMENTS[moment] if moment else {})])
    decision = controller.look()
    if moment is None:
        assert "the clock" not in decision.wanted.reason
        assert told or fresh().name == "fixed"
        return
    assert decision.done.is_nothing
    assert len(job.told) == told
    assert "the clock jumped" in decision.wanted.reason


@settings(deadline=None, max_examples=40)
@drawn
def test_where_the_clock_goes_back_nobody_acts_and_looks_that_follow_count_again(fresh, draw):
    """Drawn looks of any engine, in any order of their moments."""
    seen, newest = looks(fresh(), draw), -inf
    controller = Controller(Job(SHOWN, seen), fresh())
    for one in seen:
        decision = controller.look()
        assert one.time >= newest or (decision.done.is_nothing and "the clock jumped" in decision.wanted.reason)
        newest = one.time


def test_its_name_makes_it_and_its_repr_says_its_parameters(fresh):
    policy = fresh()
    assert isinstance(policy, ScalingPolicy)
    assert ELASTICITY.entries[policy.name].kind is type(policy)
    assert all(f"{field.name}=" in repr(policy) for field in fields(policy))
    assert repr(eval(repr(policy), {type(policy).__name__: type(policy)})) == repr(policy)
    assert repr(pickle.loads(pickle.dumps(policy))) == repr(policy)
