"""The policy of similarity joins: what a trigger and a balancer say, over loads that add up from plan to plan."""

import copy
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.control import Controller, Cooldown, Guard
from steelyard.core import Action, Learning, Observation, OptionError, ScalingPolicy
from steelyard.core.worksets import JoinObservation, WorksetLoad
from steelyard.similarity import Balancing, Bandit, EveryWindow, Greedy, ImbalanceAbove, balancing

WORKERS = 3
batches = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.integers(0, 9), st.integers(1, 50), max_size=8)), max_size=8
)


def seen(worksets, number=0, **more):
    loads = [sum(one.load for one in worksets if one.worker == worker) for worker in range(WORKERS)]
    return Observation(float(number), 1.0, join=JoinObservation(loads, worksets=worksets, batch=number, **more))


def observed(batches, where):
    """Batches as a join shows them, of which worksets are where they are now."""
    for number, (started, loads) in enumerate(batches):
        worksets = [WorksetLoad(0, key, where.get(key, 0), float(load)) for key, load in loads.items()]
        yield seen(worksets, number, window_started=started)


@settings(deadline=None)
@given(batches, st.sampled_from([EveryWindow(), ImbalanceAbove(0.4)]), st.booleans())
def test_it_says_what_trigger_and_balancer_say_of_the_sum_since_the_last_plan(batches, trigger, learns):
    """Against the plain rule: add up, ask the trigger, ask the balancer, begin anew."""
    policy = Balancing(trigger, Bandit(seed=1) if learns else Greedy())
    balancer = copy.deepcopy(policy.balancer)
    where, total = {}, {}
    for observation in observed(batches, where):
        action = policy.decide(observation)
        for one in observation.join.worksets:
            total[one.workset] = total.get(one.workset, 0.0) + one.load
        now = [WorksetLoad(0, key, where.get(key, 0), load) for key, load in total.items()]
        expected = {}
        if now and trigger.should(JoinObservation(seen(now).join.loads, (), observation.join.window_started)):
            expected = {move.id: move.target for move in balancer.moves(now, WORKERS)}
            total = {}
        assert (action.moves, action.cuts) == (expected, {})
        assert bool(action.reason) == bool(now)
        where |= {key: worker for (_, key), worker in action.moves.items()}


class Join:
    """Two new worksets at every look, all on the first worker."""

    what, shows, number = "a join", frozenset({"worksets"}), -1

    def observe(self):
        self.number += 1
        return seen([WorksetLoad(0, 2 * self.number + one, 0, 10.0) for one in range(2)], self.number)

    def apply(self, action):
        return 0.0


class FromTheThird(Guard):
    """Allows nothing at the first two looks."""

    def allowed(self, action, seen):
        return action if seen.time >= 2 else Action(reason="not now")


def test_loads_of_a_plan_that_was_refused_are_in_the_next_one():
    class Noting(Greedy):
        asked: ClassVar[list[int]] = []

        def moves(self, loads, workers):
            self.asked.append(len(loads))
            return super().moves(loads, workers)

    controller = Controller(Join(), Balancing(ImbalanceAbove(0.0), Noting()), [FromTheThird()])
    assert [controller.look().came_to_nothing for _ in range(4)] == [True, True, False, False]
    assert Noting.asked == [2, 4, 6, 2]


def test_of_a_plan_that_was_refused_a_balancer_learns_nothing():
    policy = Balancing(EveryWindow(), Bandit(seed=1))
    for number in range(3):
        loads = seen([WorksetLoad(0, n, 0, 4.0 - n) for n in range(4)], number, window_started=True)
        before = {name: array.tolist() for name, array in policy.state().items()}
        assert policy.decide(loads).moves
        if number % 2 == 0:
            policy.refused()
        after = {name: array.tolist() for name, array in policy.state().items()}
        assert (before == after) == (number % 2 == 0)


def test_worksets_that_are_no_more_are_forgotten():
    policy = Balancing(EveryWindow())
    assert policy.decide(seen([WorksetLoad(0, n, 0, 5.0) for n in range(4)])).is_nothing
    action = policy.decide(seen([WorksetLoad(9, n, 0, 5.0) for n in range(4)], 1, window_started=True, dealt_anew=True))
    assert action.moves
    assert {partition for partition, _ in action.moves} == {9}
    assert policy.decide(seen([], 2, window_started=True)) == Action()


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), max_size=12))
def test_what_a_guard_hides_of_worksets_that_changed_is_seen_at_the_next_look(looks):
    """(whether a guard waits, whether worksets are dealt anew, how many moved) of each look."""

    class Changing(Join):
        def observe(self):
            self.number += 1
            _, anew, moved = looks[self.number]
            return seen([], self.number, dealt_anew=anew, moved=moved, moved_bytes=10 * moved)

    class Waiting(Guard):
        def waits(self, observation):
            return looks[observation.number][0]

    class Noting:
        needs = ("worksets",)

        def __init__(self):
            self.heard = []

        def decide(self, observation):
            self.heard.append((observation.join.dealt_anew, observation.join.moved, observation.join.moved_bytes))
            return Action()

    policy = Noting()
    controller = Controller(Changing(), policy, [Waiting()])
    for _ in looks:
        controller.look()
    expected, anew, moved = [], False, 0
    for waits, dealt, more in looks:
        anew, moved = anew or dealt, moved + more
        if not waits:
            expected.append((anew, moved, 10 * moved))
            anew, moved = False, 0
    assert policy.heard == expected


def test_a_plan_behind_a_cooldown_has_no_workset_that_is_no_more():
    class Dealing(Join):
        """Other worksets from the third look on, while a cooldown hides it."""

        def observe(self):
            self.number += 1
            worksets = [WorksetLoad(0 if self.number < 2 else 9, n, 0, 5.0) for n in range(4)]
            return seen(worksets, self.number, window_started=self.number in (0, 4), dealt_anew=self.number == 2)

    class Late(Cooldown):
        """Waits at the looks 2 and 3: what was seen at 1 was not planned with."""

        def waits(self, observation):
            return observation.number in (2, 3)

    controller = Controller(Dealing(), Balancing(EveryWindow()), [Late(0.0)])
    for _ in range(4):
        controller.look()
    decision = controller.look()
    assert {partition for partition, _ in decision.wanted.moves} == {9}


def test_a_workset_with_more_than_a_share_is_cut_once_and_does_not_move():
    heavy, light = WorksetLoad(0, 1, 0, 90.0), WorksetLoad(0, 2, 0, 5.0)
    observation = seen([heavy, light], window_started=True)
    assert Balancing(EveryWindow(), split=True).decide(observation).cuts == {(0, 1): WORKERS}
    assert not Balancing(EveryWindow()).decide(observation).cuts
    cut = seen([WorksetLoad(0, 1, 0, 90.0, whole=False), light], window_started=True)
    assert not Balancing(EveryWindow(), split=True).decide(cut).cuts


def test_what_the_balancer_has_learnt_is_its_state():
    policy = balancing("every_window", "bandit?seed=3")
    assert isinstance(policy, Learning)
    policy.decide(seen([WorksetLoad(0, n, 0, 5.0) for n in range(4)], window_started=True))
    again = balancing("every_window", "bandit?seed=3")
    again.restore(policy.state())
    assert again.balancer.state()["plans"].tolist() == [1]
    plain = balancing("every_window")
    plain.restore(policy.state())
    assert plain.state() == {}


def test_an_object_that_decides_is_a_policy_and_takes_no_balancer():
    class Mine:
        def decide(self, observation):
            return Action()

    mine = Mine()
    assert isinstance(balancing("every_window"), ScalingPolicy)
    assert balancing(mine) is mine
    with pytest.raises(OptionError, match="Mine decides by itself"):
        balancing(mine, "bandit")
    with pytest.raises(OptionError, match="did you mean 'every_window'"):
        balancing("every_windo")
