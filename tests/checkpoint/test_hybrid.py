"""Regions of a graph, each with its own protocol, that change while anything may happen next."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.checkpoint import (
    LOCAL,
    PROTOCOLS,
    ROUND,
    Checkpoint,
    Coordinated,
    History,
    Hybrid,
    NoCheckpoints,
    Place,
    Wire,
    lost,
    orphans,
    recovery_line,
)
from steelyard.checkpoint.hybrid import COORDINATED, UNCOORDINATED, Regions
from steelyard.checkpoint.joining import Joining
from steelyard.core import OptionError
from tests.checkpoint.model import World, run
from tests.checkpoint.test_protocols import CYCLE, GRAPHS, SHUFFLED


class DrawnRegions(Regions):
    """Puts every operator that may move anywhere, before every round."""

    def decide(self):
        draws = random.Random(f"{self.begun} {self._protocol.seed}")
        for one in self.operators.values():
            if not one.fixed:
                one.region = draws.choice([COORDINATED, UNCOORDINATED])


@dataclass(frozen=True)
class Drawn(Hybrid):
    seed: int = 0
    name: ClassVar[str] = "drawn"

    def central(self, instances, wires):
        return DrawnRegions(instances, wires, self)


SIDES = (  # a source that feeds two branches, which meet: with every choice of regions some boundary is crossed twice
    [f"{one}#{number}" for one in "sabj" for number in (0, 1)],
    [(f"{x}#{i}", f"{y}#{j}") for x, y in ("sa", "sb", "aj", "bj") for i in (0, 1) for j in (0, 1)],
)
BESIDE_A_CYCLE = (
    ["s", "a", "b", "c", "d#0", "d#1", "e#0", "e#1"],
    CYCLE[1] + [("c", "d#0"), ("c", "d#1"), ("s", "d#0")] + [(f"d#{i}", f"e#{j}") for i in (0, 1) for j in (0, 1)],
)
TRIED = GRAPHS | {"sides": SIDES, "beside a cycle": BESIDE_A_CYCLE}


@pytest.mark.parametrize("graph", TRIED)
@given(st.integers(0, 2**32), st.sets(st.integers(0, 180), max_size=4))
@settings(max_examples=60)
@example(0, {40, 41, 90})
def test_while_regions_change_with_every_round_every_item_counts_once(graph, seed, failures):
    undisturbed = World(*TRIED[graph], NoCheckpoints(), seed=seed)
    assert run(undisturbed)
    world = World(*TRIED[graph], Drawn(interval=8.0, seed=seed), seed=seed)
    assert run(world, failures)
    assert world.seen() == undisturbed.seen()


@pytest.mark.parametrize("graph", ["shuffled", "sides"])
@given(st.integers(0, 2**32), st.sets(st.integers(0, 180), max_size=2))
@settings(max_examples=40)
@example(0, set())
def test_with_little_room_nobody_waits_for_a_marker_that_waits_for_him(graph, seed, failures):
    undisturbed = World(*TRIED[graph], NoCheckpoints(), seed=seed)
    assert run(undisturbed)
    world = World(*TRIED[graph], Drawn(interval=8.0, seed=seed), seed=seed, room=1)
    for event in range(3_000):
        if event in failures:
            world.fail()
        world.step()
    assert world.seen() == undisturbed.seen()


def stuck():
    """How many of some runs come to no end, where a is behind a boundary and every channel has room for one message."""
    boundary = Hybrid(interval=8.0, regions="a:uncoordinated", begins=COORDINATED, adaptive=False)
    found = 0
    for seed in range(12):
        world = World(*SIDES, boundary, items=40, seed=seed, room=1)
        for _ in range(1_000):
            world.step()
        found += any(one.next_item < one.items for one in world.instances.values())
    return found


def test_a_round_at_a_boundary_is_given_up_where_it_would_stop_the_job(monkeypatch):
    assert stuck() == 0
    monkeypatch.setattr(Joining, "overdue", lambda half, now: None)
    assert stuck() > 0


def stepped_back(history):
    """The line once more, without a graph: who has an orphan steps back, and who sent what is lost."""
    line = history.newest()
    moved = True
    while moved:
        moved = False
        for wire, sender, receiver in history.wires:
            if line[receiver].received.get(wire, 0) > line[sender].sent.get(wire, 0):
                line[receiver] = history.before(line[receiver])
                moved = True
            elif line[sender].unlogged.get(wire, 0) > line[receiver].received.get(wire, 0):
                line[sender] = history.before(line[sender])
                moved = True
    return line


@pytest.mark.parametrize("graph", TRIED)
def test_the_graph_and_the_numbers_give_the_same_line(graph):
    behind = 0
    for seed in range(60):
        world = World(*TRIED[graph], Drawn(interval=8.0, seed=seed), seed=seed, items=40)
        world.forgets = False
        for _ in range(60 + seed):
            world.step()
        history = world.central.history
        line = recovery_line(history)
        assert line == stepped_back(history), seed
        assert not [*orphans(history, line), *lost(history, line)]
        behind += line != history.newest()
    assert behind


def test_a_sender_goes_back_before_what_no_log_has():
    history = History("ab", [Wire(0, "a", "b")])
    history.add(Checkpoint("a", 1, {0: 3}, unlogged={0: 2}))
    assert [one.number for one in recovery_line(history).values()] == [0, 0]
    history.add(Checkpoint("b", 1, received={0: 2}))  # the third is in the log
    assert [one.number for one in recovery_line(history).values()] == [1, 1]


def test_with_everything_coordinated_it_is_the_coordinated_protocol():
    hybrid, coordinated = (
        World(*SHUFFLED, protocol, items=60)
        for protocol in (Hybrid(interval=4.0, begins=COORDINATED, adaptive=False), Coordinated(interval=4.0))
    )
    assert run(hybrid)
    assert run(coordinated)
    assert coordinated.central.complete > 3
    assert hybrid.taken == coordinated.taken
    line = {one: (told.sent, told.received) for one, told in hybrid.central.line().items()}
    assert line == {one: (told.sent, told.received) for one, told in coordinated.central.line().items()}
    hybrid.truncate()
    assert not any(hybrid.log.values())  # what was sent before the first round is all that a log ever had
    assert all(hybrid.instances[wire.sender].unlogged[wire.number] for wire in hybrid.wires)


@pytest.mark.parametrize("graph", TRIED)
def test_with_everything_uncoordinated_nobody_is_ever_held_back(graph):
    world = World(*TRIED[graph], Hybrid(interval=8.0, adaptive=False), items=60)
    for _ in range(400):
        world.step()
        assert not any(one.blocked for one in world.instances.values())
    assert world.central.begun > 3
    assert not any(one.unlogged for one in world.instances.values())


@pytest.mark.parametrize("graph", TRIED)
@pytest.mark.parametrize("kind", [Drawn, Hybrid])
def test_a_round_that_all_have_taken_is_a_line_also_where_regions_changed_in_it(graph, kind, monkeypatch):
    """So that there is no domino effect on a cycle, and no change makes the line wait for the next round."""
    monkeypatch.setattr(Joining, "overdue", lambda half, now: None)  # one that was given up need not be
    for seed in range(30):
        world = World(*TRIED[graph], kind(interval=8.0), items=60, seed=seed, hops=12)
        world.forgets = False
        for _ in range(300):
            world.step()
        history = world.central.history
        rounds = {one: {told.round: told for told in kept} for one, kept in history.checkpoints.items()}
        whole = max(set.intersection(*map(set, rounds.values())))
        chosen = {one: of[whole] for one, of in rounds.items()}
        assert whole > 2
        assert not [*orphans(history, chosen), *lost(history, chosen)]
        assert all(world.central.line()[one].number >= told.number for one, told in chosen.items())


WIRES = [Wire(i, a, b) for i, (a, b) in enumerate(SHUFFLED[1])]


def told(central, number, rows, waited):
    """All instances take part in a round; `rows` of the instances of a, which wait so long for markers."""
    for name in SHUFFLED[0]:
        own = rows[int(name[-1])] if name[0] == "a" else 100 * number
        last = central.history.newest()[name].number
        central.reported(
            Checkpoint(name, last + 1, kind=ROUND, round=number, rows=own, waited=waited if name[0] == "a" else 0.0)
        )


def planned(central, *rounds):
    """The plans of rounds behind which this is told: rows of both instances since the last one, seconds waited."""
    plans, total = [], [0, 0]
    for now, (*rows, waited) in enumerate([*rounds, (0, 0, 0.0)], 1):
        number = central.next_round(10.0 * now)
        plans.append("a" in central.uncoordinated)
        total = [had + new for had, new in zip(total, rows, strict=True)]
        told(central, number, total, waited)
    return plans


EVEN, SLOW, HOT, BETWEEN = (100, 100, 0.0), (100, 100, 1.0), (300, 10, 0.0), (100, 100, 0.2)


def test_even_operators_become_coordinated_and_hot_or_slow_ones_do_not():
    def regions(*rounds, **more):
        return planned(Hybrid(interval=5.0, **more).central(SHUFFLED[0], WIRES), *rounds)

    assert regions(EVEN, EVEN, EVEN) == [True, True, False, False]
    assert regions(HOT, HOT, HOT) == [True] * 4
    assert regions(SLOW, SLOW, SLOW) == [True] * 4
    assert regions(EVEN, BETWEEN, EVEN, EVEN) == [True, True, True, True, False]
    assert regions(EVEN, EVEN, EVEN, regions="a:uncoordinated") == [True] * 4
    assert regions(HOT, SLOW, begins=COORDINATED, adaptive=False) == [False] * 3


def test_coordinated_operators_leave_at_once_and_come_back_later_each_time():
    def regions(*rounds):
        return planned(Hybrid(interval=5.0, begins=COORDINATED).central(SHUFFLED[0], WIRES), *rounds)

    assert regions(BETWEEN, BETWEEN) == [False] * 3  # between the two thresholds everything stays as it is
    assert regions(EVEN, HOT, *[EVEN] * 5) == [False, False, True, True, True, True, False, False]
    assert regions(SLOW, *[EVEN] * 4, SLOW, *[EVEN] * 8) == [False, *[True] * 4, False, *[True] * 8, False]


def test_changes_say_why():
    central = Hybrid(interval=5.0, begins=COORDINATED).central(SHUFFLED[0], WIRES)
    planned(central, HOT)
    (change,) = central.changes
    assert change[:3] == (2, "a", UNCOORDINATED)
    assert "1.94 times its share" in change.why


def test_who_has_not_waited_yet_is_not_judged():
    central = Hybrid(interval=5.0, calm=1).central(SHUFFLED[0], WIRES)
    assert planned(central, (100, 100, -1.0), (100, 100, -1.0), EVEN) == [True, True, True, False]


def half_of(plan, instance="a#0"):
    half = Hybrid(interval=5.0).beside(Place.of(instance, SHUFFLED[0], WIRES))
    half.restore({"plan": plan})
    return half


def test_an_instance_waits_for_the_markers_of_aligned_inputs_only():
    def reactions(before, after):
        half = half_of(before)
        first, second = (half.on_marker(wire.number, 1, float(wire.number), after) for wire in half.place.inputs)
        half.took(ROUND)
        return first.block, first.checkpoint, second.checkpoint, half.logs(half.place.inputs[0].number)

    assert reactions([], "") == (True, False, True, False)
    assert reactions(["a"], "a") == (False, True, False, True)
    assert reactions([], "a") == (True, False, True, True)  # its senders have no log before this round
    assert reactions(["a"], "") == (True, False, True, False)
    assert reactions(None, "a") == (False, True, False, True)  # before the first round everything is logged
    assert reactions(["s"], "s,b") == (False, True, False, True)  # one end is enough


def test_a_clock_of_its_own_fires_where_no_marker_comes():
    half = half_of(["a"])
    assert not half.due(5.0)
    assert half.due(8.0)
    half.took(LOCAL)
    assert not half.due(8.1)
    assert half.due(16.0)
    assert not half_of([]).due(100.0)
    assert not half_of(None).due(100.0)  # before the first round nobody knows where he is


@pytest.mark.parametrize(
    "wrong", ["interval=0", "regions=count:often", "begins=there", "patience=0", "even=3", "calm=0", "hot=1"]
)
def test_a_wrong_parameter_is_told(wrong):
    with pytest.raises(OptionError):
        PROTOCOLS.named(f"hybrid?{wrong}")


def test_regions_that_cannot_be_are_told_with_the_graph():
    wires = [Wire(i, a, b) for i, (a, b) in enumerate(CYCLE[1])]
    with pytest.raises(OptionError, match="on a cycle"):
        Hybrid(regions="b:coordinated").central(CYCLE[0], wires)
    with pytest.raises(OptionError, match="did you mean 'a'"):
        Hybrid(regions="aa:uncoordinated").central(CYCLE[0], wires)
