"""What guards leave of what a policy wants, and when nobody is asked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control import Bounds, Budget, Cap, Cooldown, Dwell, LargestStep
from steelyard.control.guards import squeezed
from steelyard.core import Action, Observation, OperatorObservation, OptionError

numbers = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 200), min_size=1)


def seen(time=0.0, **instances):
    return Observation(time, 15.0, tuple(OperatorObservation(name, count) for name, count in instances.items()))


@given(numbers, st.integers(6, 100))
def test_a_squeeze_fits_and_leaves_everybody_one(instances, workers):
    cut = squeezed(instances, workers)
    assert sum(cut.values()) == min(workers, sum(instances.values()))
    assert min(cut.values()) >= 1
    assert all(cut[name] <= count + 1 for name, count in instances.items())


def test_a_squeeze_to_less_than_an_instance_each_is_refused():
    with pytest.raises(OptionError, match="allow more"):
        squeezed({"a": 3, "b": 3}, 1)


@given(now=numbers, wanted=numbers, least=st.integers(1, 50), more=st.integers(0, 50), up=st.integers(1, 30))
def test_what_is_left_is_within_bounds_and_steps_and_the_reason_says_what_was_cut(now, wanted, least, more, up):
    before = seen(**now)
    bounded = Bounds(least, least + more).allowed(Action(wanted, "why"), before)
    assert all(least <= count <= least + more for count in bounded.parallelism.values())
    stepped = LargestStep(up, up).allowed(Action(wanted, "why"), before)
    assert all(abs(count - now[name]) <= up for name, count in stepped.parallelism.items() if name in now)
    for left in (bounded, stepped):
        assert (left.reason == "why") == (dict(left.parallelism) == wanted)
        assert left.parallelism.keys() == wanted.keys()


@given(
    now=st.integers(1, 20),
    wanted=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=1),
    own=st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(1, 9), st.integers(9, 20)), max_size=3),
)
def test_what_is_joined_changes_together_and_what_bounds_one_bounds_all(now, wanted, own):
    group = "abc"
    before = replace(seen(a=now, b=now, c=now, d=now), joined=(tuple(group),))
    left = Bounds(own=own).allowed(Action(wanted), before).changes(before)
    then = {**before.parallelism, **left.parallelism}
    least, most = max((low for low, _ in own.values()), default=1), min((high for _, high in own.values()), default=99)
    wish = max((wanted[name] for name in group if name in wanted), default=None)
    expected = now if wish is None else min(max(wish, least), most)
    assert then == {**dict.fromkeys(group, expected), "d": wanted.get("d", now)}


@given(now=numbers, wanted=numbers, workers=st.integers(12, 300))
def test_a_cap_counts_operators_too_that_nobody_wants_to_change(now, wanted, workers):
    left = Cap(workers).allowed(Action(wanted), seen(**now))
    together = {**now, **left.parallelism}
    assert sum(together.values()) <= max(workers, len(together))


def test_a_cap_leaves_alone_what_cannot_change_and_what_another_guard_has_refused():
    left = Cap(40, frozenset({"bids"})).allowed(Action({"bids": 4, "map": 60}), seen(bids=10, map=8))
    assert left.parallelism == {"bids": 10, "map": 30}
    assert Cap(5).allowed(Action(reason="refused"), seen(a=4, b=9)).is_nothing


def test_nobody_decides_for_a_while_after_a_change():
    guard = Cooldown(300.0)
    assert not guard.waits(seen(0.0))
    guard.acted(100.0, 30.0)
    assert guard.waits(seen(429.0))
    assert not guard.waits(seen(430.0))


def test_a_wish_must_last_and_the_smallest_of_the_wishes_is_done():
    guard = Dwell(60.0)
    assert [
        guard.allowed(Action({"a": wanted}), seen(time, a=4)).parallelism["a"]
        for time, wanted in [(0, 8), (30, 6), (60, 7), (90, 9), (120, 3), (150, 3), (180, 3), (210, 2)]
    ] == [4, 4, 6, 6, 4, 4, 3, 3]
    guard.acted(210.0, 5.0)
    assert guard.allowed(Action({"a": 9}), seen(211, a=3)).parallelism["a"] == 3


def test_an_operator_that_nobody_named_for_a_moment_was_not_wished_for():
    guard = Dwell(10.0)
    guard.allowed(Action({"a": 8}), seen(0, a=4))
    guard.allowed(Action(), seen(10, a=4))
    assert guard.allowed(Action({"a": 8}), seen(20, a=4)).parallelism["a"] == 4
    assert guard.allowed(Action({"a": 8}), seen(30, a=4)).parallelism["a"] == 8


def test_changes_disturb_only_for_so_long_in_a_while():
    guard = Budget(seconds=60.0, per=1000.0)
    for time, allowed in [(0.0, True), (100.0, True), (200.0, False), (999.0, False), (1000.0, True)]:
        left = guard.allowed(Action({"a": 5}), seen(time, a=4))
        assert bool(left.parallelism) == allowed, time
        if allowed:
            guard.acted(time, 30.0)
        else:
            assert "60 s of the 60 s are spent" in left.reason


def placed(time=0.0, **workers):
    return Observation(time, 15.0, placement=workers)


def test_only_so_many_instances_or_worksets_move_at_once_the_first_ones():
    guard = LargestStep(moves=2)
    left = guard.allowed(Action(placement={"a": 0, "b": 1, "c": 1, "d": 1}, reason="why"), placed(a=0, b=0, c=0, d=0))
    assert (left.placement, left.reason) == ({"b": 1, "c": 1}, "why; 2 at once may move")
    plan = Action(moves={(0, 3): 1, (0, 1): 2}, cuts={(0, 2): 4}, reason="why")
    left = guard.allowed(plan, placed())
    assert (left.cuts, left.moves) == ({(0, 2): 4}, {(0, 3): 1})
    assert LargestStep(moves=3).allowed(plan, placed()) is plan
    assert LargestStep().allowed(plan, placed()) is plan


def test_an_instance_moves_that_was_always_to_go_to_the_same_worker():
    guard = Dwell(20.0)
    there = {"a": 0, "b": 0, "c": 1}
    wishes = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 0}]
    done = [guard.allowed(Action(placement=one), placed(10.0 * at, **there)).placement for at, one in enumerate(wishes)]
    assert done == [{}, {}, {"a": 1}]
    guard.acted(20.0, 0.0)
    assert not guard.allowed(Action(placement={"b": 2}), placed(30.0, **there)).placement
    plan = Action(moves={(0, 1): 1})
    assert guard.allowed(plan, placed(31.0)) is plan


def test_a_change_of_which_nobody_knows_what_it_takes_counts_as_it_is_told_to():
    guard = Budget(seconds=60.0, per=1000.0, each=30.0)
    for time, allowed in [(0.0, True), (100.0, True), (200.0, False), (1000.0, True)]:
        left = guard.allowed(Action(placement={"a": 1}), placed(time, a=0))
        assert bool(left.placement) == allowed, time
        if allowed:
            guard.acted(time, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Bounds(0),
        lambda: Bounds(3, 2),
        lambda: Bounds(own={"a": (2, 1)}),
        lambda: LargestStep(0),
        lambda: LargestStep(down=0),
        lambda: LargestStep(moves=0),
        lambda: Cap(0),
        lambda: Cooldown(-1.0),
        lambda: Dwell(float("nan")),
        lambda: Budget(-1.0),
        lambda: Budget(10.0, each=20.0),
    ],
)
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(OptionError):
        wrong()


def test_the_guards_of_the_contest_are_the_published_scale_manager():
    """Siachamis 2024, section 4: no more than 15 more of each at once, one at least, 70 in all; then five minutes."""
    guards = LargestStep(up=15), Bounds(least=1), Cap(70), Cooldown(300.0)

    def allowed(wanted, **now):
        action = Action(wanted, "why")
        for guard in guards:
            action = guard.allowed(action, seen(**now))
        return dict(action.parallelism)

    assert allowed({"a": 40, "b": 30, "c": 20}, a=40, b=30, c=20) == {"a": 31, "b": 23, "c": 16}
    assert allowed({"a": 40, "b": 2}, a=5, b=2) == {"a": 20, "b": 2}
    assert allowed({"a": 60, "b": 60, "c": 10}, a=30, b=30, c=10) == {"a": 32, "b": 31, "c": 7}, (
        "45, 45 and 10 squeezed"
    )
    assert allowed({"a": 1}, a=50, b=3) == {"a": 1}, "there is no largest step down"
