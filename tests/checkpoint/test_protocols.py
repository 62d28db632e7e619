"""Every checkpoint protocol where anything may happen next: nothing is lost, and nothing counts twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.checkpoint import (
    FORCED,
    LOCAL,
    PROTOCOLS,
    ROUND,
    Checkpoint,
    CommunicationInduced,
    Coordinated,
    History,
    Hybrid,
    NoCheckpoints,
    Place,
    StopTheWorld,
    Unaligned,
    Uncoordinated,
    Wire,
    is_useless,
    recovery_line,
)
from steelyard.core import OptionError
from tests.checkpoint.model import World, run

EXACT = [
    StopTheWorld(interval=6.0),
    Coordinated(interval=6.0),
    Unaligned(interval=6.0),
    Uncoordinated(interval=6.0),
    CommunicationInduced(interval=6.0),
    CommunicationInduced(interval=6.0, rule="bcs"),
    Hybrid(interval=6.0),
    Hybrid(interval=6.0, begins="coordinated", adaptive=False),
    Hybrid(interval=6.0, begins="coordinated", patience=0.5, calm=1),
    NoCheckpoints(),
]
SPREAD = (
    [f"{one}#{number}" for one in "sab" for number in (0, 1)],
    [(f"s#{i}", f"a#{j}") for i in (0, 1) for j in (0, 1)],
)
SHUFFLED = (SPREAD[0], SPREAD[1] + [(f"a#{i}", f"b#{j}") for i in (0, 1) for j in (0, 1)])
CYCLE = (["s", "a", "b", "c"], [("s", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")])
GRAPHS = {"shuffled": SHUFFLED, "cycle": CYCLE}


def by_offsets(history):
    """The line once more, without a graph: who has processed what was not sent steps back."""
    line = history.newest()
    moved = True
    while moved:
        moved = False
        for wire, sender, receiver in history.wires:
            while line[receiver].received.get(wire, 0) > line[sender].sent.get(wire, 0):
                line[receiver] = history.before(line[receiver])
                moved = True
    return line


TRIED = [
    (protocol, graph)
    for protocol in EXACT
    for graph in GRAPHS
    if graph != "cycle" or type(protocol) is not Coordinated  # refused there, where it would wait for ever: see below
]


@pytest.mark.parametrize(("protocol", "graph"), TRIED, ids=str)
@given(st.integers(0, 2**32), st.sets(st.integers(0, 180), max_size=4))
@settings(max_examples=30)
@example(0, {0, 1, 2})
def test_after_failures_at_any_moment_every_item_has_counted_once(protocol, graph, seed, failures):
    undisturbed = World(*GRAPHS[graph], NoCheckpoints(), seed=seed)
    assert run(undisturbed)
    world = World(*GRAPHS[graph], protocol, seed=seed)
    assert run(world, failures)
    assert world.failures == len(failures)
    assert world.seen() == undisturbed.seen()


def test_a_protocol_in_the_registry_is_among_those_tried():
    assert {type(one) for one in EXACT} == {entry.kind for entry in PROTOCOLS.entries.values()}


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_without_a_log_rows_are_lost_at_most_and_without_numbers_doubled_at_most(seed):
    right = World(*SHUFFLED, NoCheckpoints(), seed=seed)
    run(right)
    lossy = World(*SHUFFLED, Uncoordinated(interval=6.0, logged=False), seed=seed)
    repeating = World(*SHUFFLED, Uncoordinated(interval=6.0, deduplicates=False), seed=seed)
    for world in (lossy, repeating):
        run(world, {60, 90})
    for name, seen in right.seen().items():
        assert lossy.seen()[name] <= seen <= repeating.seen()[name]


def test_without_a_log_rows_are_lost_and_without_numbers_some_count_twice():
    def lost(protocol):
        total = 0
        for seed in range(10):
            right, world = (World(*SHUFFLED, one, seed=seed) for one in (NoCheckpoints(), protocol))
            run(right)
            run(world, {60, 90})
            counted, expected = (sum(map(Counter.total, one.seen().values())) for one in (world, right))
            total += expected - counted
        return total

    assert lost(Uncoordinated(interval=6.0, logged=False)) > 0
    assert lost(Uncoordinated(interval=6.0, deduplicates=False)) < 0
    assert lost(Uncoordinated(interval=6.0)) == 0


def drawn(protocol, seed, instances=4, events=300):
    """Traffic from everybody to everybody: far more hostile than a dataflow."""
    names = [f"p{i}" for i in range(instances)]
    edges = [(a, b) for a in names for b in names if a != b]
    world = World(["s", *names], [("s", names[0]), *edges], protocol, items=10, seed=seed, hops=60)
    world.forgets = False
    for _ in range(events):
        world.step()
    return world


@pytest.mark.parametrize("seeds", [range(first, first + 250) for first in range(0, 1_000, 250)], ids=str)
def test_the_graph_and_the_offsets_give_the_same_line(seeds):
    for seed in seeds:
        history = drawn(Uncoordinated(interval=10.0), seed, instances=2 + seed % 4, events=150).central.history
        assert recovery_line(history) == by_offsets(history), seed


@pytest.mark.parametrize("rule", ["hmnr", "bcs"])
def test_forced_checkpoints_leave_none_that_is_useless(rule):
    forced = 0
    for seed in range(300):
        world = drawn(CommunicationInduced(interval=10.0, rule=rule), seed, 2 + seed % 4, 200)
        assert not useless(world), seed
        forced += world.taken[FORCED]
    assert forced > 100


def test_without_forced_ones_some_checkpoints_are_useless():
    assert sum(len(useless(drawn(Uncoordinated(interval=10.0), seed, 4, 200))) for seed in range(20)) > 20


def useless(world):
    """Checkpoints that no line has, where everybody takes one at the end."""
    for one in world.instances.values():
        world._durable(world._checkpoint(one, LOCAL))
    history = world.central.history
    return [one for kept in history.checkpoints.values() for one in kept if is_useless(history, one)]


def test_the_domino_effect_of_the_document():
    """Fig 3.5 of Siachamis 2025, as far as it can be told from the text: a ring of three slides to its beginning."""
    wires = [Wire(0, "1", "2"), Wire(1, "2", "3"), Wire(2, "3", "1")]
    history = History("123", wires)
    # m2 (1 to 2) is sent after (1,1) and received before (2,2); m3 (3 to 1) after (3,1), before (1,2); m4 (1 to 2)
    # after (1,2), before (2,3); m5 (2 to 3) after (2,2), before (3,2); m6 (3 to 1) after (3,2), before (1,3)
    for instance, sent, received in (
        ("1", [{0: 0}, {0: 1}, {0: 2}], [{2: 0}, {2: 1}, {2: 2}]),
        ("2", [{1: 0}, {1: 0}, {1: 1}], [{0: 0}, {0: 1}, {0: 2}]),
        ("3", [{2: 0}, {2: 1}], [{1: 0}, {1: 1}]),
    ):
        for number, (out, into) in enumerate(zip(sent, received, strict=True), 1):
            history.add(Checkpoint(instance, number, out, into))
    line = recovery_line(history)
    assert {one: checkpoint.number for one, checkpoint in line.items()} == {"1": 1, "2": 1, "3": 1}
    assert line == by_offsets(history)


def test_aligned_markers_on_a_cycle_wait_for_ever_and_are_refused():
    world = World(*CYCLE, Coordinated(interval=3.0))
    assert run(world)  # nothing can happen any more …
    assert world.central.complete == 0 < world.central.begun
    assert any(one.blocked for one in world.instances.values())  # … but for what waits behind a marker
    with pytest.raises(OptionError, match="for ever: take 'unaligned'"):
        Coordinated().require(cyclic=True)
    Coordinated().require(cyclic=False)
    Unaligned().require(cyclic=True)


@pytest.mark.parametrize(
    "protocol", [Coordinated(interval=4.0), Unaligned(interval=4.0), StopTheWorld(interval=4.0)], ids=repr
)
def test_a_round_has_a_checkpoint_of_every_instance_and_none_is_wasted(protocol):
    world = World(*SHUFFLED, protocol, items=60)
    assert run(world)
    assert world.central.complete > 3
    assert world.taken == {ROUND: len(SHUFFLED[0]) * world.central.begun}
    assert world.central.begun == world.central.complete


@pytest.mark.parametrize("protocol", [Uncoordinated(interval=3.0), Unaligned(interval=3.0)], ids=repr)
def test_logs_and_histories_stay_short(protocol):
    world = World(*SHUFFLED, protocol, items=400)
    longest = 0
    for _ in range(3_000):
        world.step()
        longest = max(longest, *(len(kept) for kept in world.central.history.checkpoints.values()))
    assert max(world.instances["a#0"].sent.values()) > 100
    assert longest < 40
    world.truncate()
    assert max(map(len, world.log.values())) < 60


def test_operators_may_have_intervals_of_their_own():
    protocol = Uncoordinated(interval=5.0, intervals="join:1")
    wires = [Wire(0, "read#0", "join#0")]
    places = [Place.of(name, ["read#0", "join#0"], wires) for name in ("read#0", "join#0")]
    assert [protocol.interval_of(place) for place in places] == [5.0, 1.0]
    with pytest.raises(OptionError, match="by operator"):
        PROTOCOLS.named("uncoordinated?intervals=join")


class PlainHmnr:
    """The rule as it is written down, with lists."""

    def __init__(self, i, n):
        self.i, self.n, self.lc, self.ckpt = i, n, 0, [0] * n
        self.begin()

    def begin(self):
        self.sent_to = [False] * self.n
        self.taken = [k != self.i for k in range(self.n)]
        self.greater = list(self.taken)

    def took(self):
        self.begin()
        self.lc += 1
        self.ckpt[self.i] += 1

    def send(self, k):
        self.sent_to[k] = True
        return self.lc, list(self.ckpt), list(self.taken), list(self.greater)

    def forces(self, m):
        lc, ckpt, taken, greater = m
        first = any(self.sent_to[k] and greater[k] for k in range(self.n)) and lc > self.lc
        return first or (ckpt[self.i] == self.ckpt[self.i] and taken[self.i])

    def learn(self, m):
        lc, ckpt, taken, greater = m
        if lc > self.lc:
            self.lc = lc
            self.greater = [k != self.i and greater[k] for k in range(self.n)]
        elif lc == self.lc:
            self.greater = [mine and theirs for mine, theirs in zip(self.greater, greater, strict=True)]
        for k in range(self.n):
            if k != self.i and ckpt[k] > self.ckpt[k]:
                self.ckpt[k], self.taken[k] = ckpt[k], taken[k]
            elif k != self.i and ckpt[k] == self.ckpt[k]:
                self.taken[k] = self.taken[k] or taken[k]


@given(st.integers(2, 5), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.booleans()), max_size=80))
def test_hmnr_does_what_is_written_message_by_message(several, events):
    names = [f"p{i}" for i in range(several)]
    wires = [Wire(i, a, b) for i, (a, b) in enumerate((a, b) for a in names for b in names if a != b)]
    number = {(one.sender, one.receiver): one.number for one in wires}
    halves = [CommunicationInduced().beside(Place.of(name, names, wires)) for name in names]
    plain = [PlainHmnr(i, several) for i in range(several)]
    for sender, receiver, takes in events:
        a, b = sender % several, receiver % several
        if takes or a == b:
            halves[a].took(LOCAL)
            plain[a].took()
            halves[a].restore(halves[a].state())  # right behind a checkpoint nothing else is known
            continue
        wire = number[names[a], names[b]]
        note, told = halves[a].note(wire), plain[a].send(b)
        forced = halves[b].before_message(wire, note)
        assert forced == plain[b].forces(told)
        if forced:
            halves[b].took(FORCED)
            plain[b].took()
        halves[b].learn(wire, note)
        plain[b].learn(told)
        for half, twin in zip(halves, plain, strict=True):
            assert (half.clock, half.ckpt.tolist()) == (twin.lc, twin.ckpt)
            assert half.taken.tolist() == twin.taken
            assert half.greater.tolist() == twin.greater


@pytest.mark.parametrize("wrong", ["interval=0", "interval=-1", "rule=best", "interval=soon"])
def test_a_wrong_parameter_is_told(wrong):
    with pytest.raises(OptionError):
        PROTOCOLS.named(f"communication_induced?{wrong}")
