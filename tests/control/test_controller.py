"""The loop: what is seen, decided, guarded and done, whatever the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control import Bounds, Budget, Controller, Cooldown, Dwell, LargestStep
from steelyard.core import (
    BLOCKS,
    BUCKETS,
    Action,
    ActionRefusedError,
    BatchObservation,
    Observation,
    OperatorObservation,
    OptionError,
)
from steelyard.core.worksets import JoinObservation, WorksetLoad
from steelyard.scaling import DS2, Zones


class Job:
    """An engine that does what it is told, and says so."""

    what, shows = "a job", frozenset({"operators", "arrivals"})

    def __init__(self, **tasks):
        self.tasks, self.time, self.done = tasks, 0.0, []

    def observe(self):
        self.time += 10.0
        return Observation(self.time, 10.0, tuple(OperatorObservation(*one) for one in self.tasks.items()))

    def apply(self, action):
        self.tasks |= action.parallelism
        self.done.append(action)
        return 5.0


class Wishes:
    """Wants these numbers, one after the other, and notes when it was asked."""

    def __init__(self, *wanted):
        self.wanted, self.asked = iter(wanted), []

    def decide(self, observation):
        self.asked.append(observation.time)
        return Action(next(self.wanted), "wanted")


def test_only_changes_are_done_and_what_came_of_them_is_written_down():
    job = Job(a=2, b=1)
    controller = Controller(job, Wishes({"a": 2}, {"a": 4, "b": 1}, {}, {"b": 2}))
    decisions = [controller.look() for _ in range(4)]
    assert job.done == [Action({"a": 4}, "wanted"), Action({"b": 2}, "wanted")]
    assert job.tasks == {"a": 4, "b": 2}
    assert list(controller.decisions) == [decisions[1], decisions[3]]
    assert decisions[1].came.parallelism == {"a": 4, "b": 1}
    assert (decisions[1].time, decisions[1].ends, decisions[1].came.time) == (20.0, 25.0, 30.0)
    assert decisions[3].came is None
    assert controller.last is decisions[3]


def test_guards_are_asked_in_order_and_a_refused_change_is_written_down_too():
    job = Job(a=2)
    controller = Controller(job, Wishes({"a": 9}, {"a": 9}), [LargestStep(up=3), Bounds(most=4)])
    first, second = controller.look(), controller.look()
    assert job.done == [Action({"a": 4}, "wanted; no more than 3 at once; kept within its bounds")]
    assert first.wanted == second.wanted == Action({"a": 9}, "wanted")
    assert not second.done.parallelism
    assert list(controller.decisions) == [first, second]


def test_in_a_cooldown_the_policy_is_not_asked_and_guards_remember_one_run_only():
    guards = [Cooldown(20.0)]
    for _ in range(2):
        policy = Wishes({"a": 3}, {"a": 4}, {"a": 5})
        controller = Controller(Job(a=2), policy, guards)
        looks = [controller.look() for _ in range(5)]
        assert policy.asked == [10.0, 40.0]  # 10 + 5 of disturbance + 20
        assert [look is None for look in looks] == [False, True, True, False, True]


def test_decisions_are_events_those_that_were_refused_too_and_so_is_what_they_brought():
    told = []
    controller = Controller(Job(a=2), Wishes({"a": 9}, {}, {"a": 9}), [Bounds(most=4)], told.append)
    for _ in range(3):
        controller.look()
    assert [(one.kind, one.done, one.wanted) for one in told] == [
        ("decision", {"a": 4}, {"a": 9}),
        ("brought", {"a": 4}, {"a": 9}),
        ("decision", {}, {"a": 9}),
    ]
    assert told[0].decision == "wanted; kept within its bounds"
    assert (told[0].disturbed_seconds, told[1].after.keys()) == (5.0, {"busy"})  # the job tells no more
    assert str(told[0]) == "decision: 10 s: {'a': 4}, wanted; kept within its bounds"


def test_what_an_engine_cannot_do_is_written_down_with_its_reason_and_the_controller_goes_on():
    class Fixed(Job):
        def apply(self, action):
            raise ActionRefusedError("a job keeps its tasks")

    told = []
    controller = Controller(Fixed(a=2), Wishes({"a": 4}, {"a": 2}, {"a": 5}), [Cooldown(60.0)], told.append)
    shadowed = [controller.look() for _ in range(3)]
    assert [one.refused for one in shadowed] == ["a job keeps its tasks", "", "a job keeps its tasks"]
    assert [one.wanted.parallelism["a"] for one in controller.decisions] == [4, 5]
    assert controller.last is None  # nothing was done, so nobody waits for what it brings
    assert [(one.kind, one.decision, one.done, one.wanted) for one in told] == [
        ("decision", "a job keeps its tasks", {}, {"a": 4}),
        ("decision", "a job keeps its tasks", {}, {"a": 5}),
    ]
    assert str(shadowed[0]) == "10 s: {'a': 2}, wanted; refused: a job keeps its tasks"


def test_figures_have_what_is_known():
    source = OperatorObservation("log", 1, arrived_per_second=5.0, lag=7.0, busy=0.5)
    seen = Observation(1.0, 1.0, (source, OperatorObservation("map", 1, {"log": 5.0})), latency={50.0: 0.1, 99.0: 0.4})
    assert seen.figures == {"arrived_per_second": 5.0, "lag": 7.0, "busy": 0.5, "latency": 0.4}


def test_a_policy_that_needs_what_an_engine_cannot_show_is_refused():
    with pytest.raises(OptionError, match="zones needs to see how long a batch may take, which a job cannot show"):
        Controller(Job(a=1), Zones())
    Controller(Job(a=1), DS2())
    with pytest.raises(OptionError, match="policy is an object"):
        Controller(Job(a=1), "ds2")  # type: ignore[arg-type]


class Looked:
    """An engine that tells how long it was since anybody looked, as all do; time passes when it is let."""

    what, shows = "a job", frozenset({"operators"})

    def __init__(self):
        self.now, self.ended, self._before = 0.0, False, 0.0

    def advance(self, seconds):
        self.now += seconds

    def observe(self):
        seconds, self._before = self.now - self._before, self.now
        return Observation(self.now, seconds, (OperatorObservation("a", 2),))

    def apply(self, action):
        return 0.0


class Counts:
    """Wants nothing, and counts how often it was asked."""

    asked = 0

    def decide(self, observation):
        self.asked += 1
        return Action()


runs_and_others = st.lists(st.tuples(st.floats(1.0, 200.0), st.floats(0.0, 0.99)), min_size=1, max_size=4)


@given(runs_and_others, st.sampled_from([1.0, 15.0, 60.0]))
def test_runs_of_any_length_and_looks_of_others_are_no_jumps_of_the_clock(runs, every):
    engine, policy = Looked(), Counts()
    controller = Controller(engine, policy)
    for seconds, of_others in runs:
        begun, asked = engine.now, policy.asked
        controller.run(begun + seconds, every)
        assert seconds // every <= policy.asked - asked <= seconds // every + 1
        engine.advance(of_others * every)
        engine.observe()
    assert not controller.decisions


def test_a_clock_that_jumps_ahead_is_a_decision_and_an_event_and_one_look_alone_is_lost():
    engine, policy, told = Looked(), Counts(), []
    controller = Controller(engine, policy, tell=told.append)
    controller.run(60.0, 15.0)
    engine.now += 9000.0
    controller.run(9120.0, 15.0)
    assert policy.asked == 7
    (jump,) = controller.decisions
    assert jump.wanted.reason == "nothing is done: the clock jumped from 60 s to 9075 s: looks came every 15 s"
    assert [(one.kind, one.decision) for one in told] == [("decision", jump.wanted.reason)]


class Batches:
    """A query whose batches take too long, one every ten seconds, until it has six blocks."""

    what, shows = "batches", frozenset({"batch", "batch.load"})

    def __init__(self):
        self.tasks, self.number = {BLOCKS: 4, BUCKETS: 4}, -1

    def observe(self):
        self.number += 1
        seconds = 12.0 if self.tasks[BLOCKS] < 6 else 8.5
        return BatchObservation(self.number, 1000, 50, *self.tasks.values(), seconds, 10.0).at(10.0 * self.number)

    def apply(self, action):
        self.tasks |= action.parallelism
        return 0.0


@pytest.mark.parametrize(("dwell", "done"), [(0.0, [2, 5]), (40.0, [6, 13])])
def test_zones_go_on_wanting_what_was_refused_and_count_anew_when_it_is_done(dwell, done):
    controller = Controller(Batches(), Zones(patience=3), [Dwell(dwell)])
    decisions = [controller.look() for _ in range(14)]
    assert [one.seen.number for one in decisions if not one.done.is_nothing] == done
    assert controller.engine.tasks == {BLOCKS: 6, BUCKETS: 6}


@pytest.mark.parametrize("refuses", [Bounds(most=4), Budget(1.0, per=1e9, each=1.0)])
def test_what_asked_for_a_wish_that_is_refused_still_counts(refuses):
    policy = Zones(patience=2)
    controller = Controller(Batches(), policy, [refuses])
    refused = 0
    for _ in range(9):
        above, below, grace, last = policy.state()["counters"].tolist()
        if controller.look().came_to_nothing:
            refused += 1
            assert policy.state()["counters"].tolist() == [above + 1, below, max(0, grace - 1), last]
    assert refused > 2


class Join:
    """A join of two workers of which the first has all worksets, and does what it is told."""

    what, shows = "a join", frozenset({"worksets"})

    def __init__(self):
        self.where, self.time = dict.fromkeys(range(4), 0), 0.0

    def observe(self):
        self.time += 10.0
        worksets = [WorksetLoad(0, key, worker, 4.0 - key) for key, worker in self.where.items()]
        loads = [sum(one.load for one in worksets if one.worker == worker) for worker in range(2)]
        return Observation(self.time, 10.0, join=JoinObservation(loads, worksets=worksets, batch=int(self.time) // 10))

    def apply(self, action):
        self.where |= {key: worker for (_, key), worker in action.moves.items()}
        return 2.0


class Over:
    """Wants the first two worksets on the second worker."""

    needs = ("worksets",)

    def decide(self, observation):
        return Action(moves={(0, 0): 1, (0, 1): 1}, reason="two over")


def test_moves_of_worksets_are_decisions_as_all_others_are_and_end_when_they_are_done():
    told = []
    controller = Controller(Join(), Over(), [LargestStep(moves=1), Budget(seconds=3.0)], told.append)
    for _ in range(3):
        controller.look()
    assert controller.engine.where == {0: 1, 1: 0, 2: 0, 3: 0}
    assert [(one.kind, one.batch, one.wanted, one.done) for one in told] == [
        ("decision", 1, {"moves": 2}, {"moves": 1}),
        ("brought", 1, {"moves": 2}, {"moves": 1}),
        ("decision", 2, {"moves": 1}, {}),
        ("decision", 3, {"moves": 1}, {}),
    ]
    assert str(told[0]) == "decision: 10 s: 1 workset moved, two over; 1 at once may move"
    assert told[2].decision.startswith("two over; 2 s of the 3 s are spent")
    assert (told[1].before["imbalance"], told[1].after["imbalance"]) == (2.0, pytest.approx(0.4))
    controller = Controller(Join(), Over())
    decisions = [controller.look() for _ in range(2)]
    assert [len(one.done.moves) for one in decisions] == [2, 0]
    assert not decisions[1].came_to_nothing


def test_what_an_engine_cannot_do_is_told():
    with pytest.raises(OptionError, match="a job keeps its state where it is"):
        Action(moves={(0, 1): 1}).require_only("a job", "parallelism")
    with pytest.raises(OptionError, match="Over needs to see worksets of a similarity join, which a job cannot show"):
        Controller(Job(a=1), Over())
