"""A dataflow without rows, sockets or time, in which anything may happen next: protocols are tried on it.

Items of sources go from instance to instance, by a hash; every instance counts what it has processed. A run is a
sequence of events that are drawn: a message is processed, a source sends, a timer fires, a round begins, all fail.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from steelyard.checkpoint import (
    FORCED,
    LOCAL,
    ROUND,
    Checkpoint,
    Place,
    Reaction,
    Wire,
    in_flight,
    lost,
    orphans,
    truncation,
)

HOPS = 4
"""Instances that an item goes through at most, where the graph is a cycle and nobody says otherwise."""


@dataclass
class Saved:
    """What a checkpoint has kept."""

    told: Checkpoint
    seen: Counter[Any]
    next_item: int
    half: dict[str, Any]
    captured: list[tuple[int, int, Any]] = field(default_factory=list)
    """(wire, number, item): what markers have overtaken."""


class Instance:
    """One instance, with the half of the protocol beside it."""

    def __init__(self, name, place, protocol, items):
        self.name, self.place, self.protocol, self.items = name, place, protocol, items
        self.seen, self.next_item = Counter(), 0
        self.sent, self.received, self.unlogged = Counter(), Counter(), Counter()
        self.blocked, self.capturing = set(), set()
        self.half = protocol.beside(place)
        self.number, self.begun = 0, 0.0

    def restore(self, saved, now):
        self.seen, self.next_item = Counter(saved.seen), saved.next_item
        self.sent, self.received = Counter(saved.told.sent), Counter(saved.told.received)
        self.unlogged = Counter(saved.told.unlogged)
        self.blocked, self.capturing = set(), set()
        self.number, self.begun = saved.told.number, now
        self.half = self.protocol.beside(self.place)
        self.half.restore(saved.half)


class World:
    """A graph, a protocol, and what is under way."""

    def __init__(self, names, edges, protocol, items=20, seed=0, hops=HOPS, room=10**9):
        self.draws, self.hops, self.room = random.Random(seed), hops, room
        self.wires = [Wire(number, a, b) for number, (a, b) in enumerate(edges)]
        self.protocol = protocol
        self.instances = {}
        for name in names:
            place = Place.of(name, names, self.wires)
            self.instances[name] = Instance(name, place, protocol, items if place.is_source else 0)
        self.central = protocol.central(list(names), self.wires)
        self.channels = {wire.number: deque() for wire in self.wires}
        self.log = {wire.number: [] for wire in self.wires}
        self.saved = {}
        for one in self.instances.values():
            told = Checkpoint(one.name, 0)
            self.saved[one.name, 0] = Saved(told, Counter(), 0, one.half.state())
        self.orders = {name: deque() for name in names}
        """Rounds that sources have not begun yet, since they wait for room."""
        self.waiting = {}
        """Checkpoints that are not whole before all markers have come, by instance."""
        self.clock = 0.0
        self.taken, self.failures = Counter(), 0
        self.forgets = True
        """Whether what no line can ask for is thrown away now and then."""

    # -- what instances do -------------------------------------------------------------------------------------------
    def _send(self, one, wire, item):
        one.sent[wire] += 1
        message = ("item", one.sent[wire], item, one.half.note(wire))
        self.channels[wire].append(message)
        if self.protocol.logged and one.half.logs(wire):
            self.log[wire].append(message)
        elif self.protocol.logged:
            one.unlogged[wire] = one.sent[wire]

    def _forward(self, one, item, hops):
        """To one receiver of each operator behind, the same every time."""
        outputs = [wire.number for wire in one.place.outputs]
        if outputs and hops < self.hops:
            self._send(one, outputs[zlib.crc32(repr((item, hops, one.name)).encode()) % len(outputs)], (item, hops + 1))

    def _checkpoint(self, one, kind, round_number=0):
        one.number += 1
        rows, waited = one.seen.total(), one.half.waited
        of = (dict(one.sent), dict(one.received), kind, round_number, dict(one.unlogged), rows, waited)
        told = Checkpoint(one.name, one.number, *of)
        one.half.took(kind)
        self.taken[kind] += 1
        return Saved(told, Counter(one.seen), one.next_item, one.half.state())

    def _durable(self, saved):
        self.saved[saved.told.instance, saved.told.number] = saved
        self.central.reported(saved.told)

    def _react(self, one, wire, round_number, plan, reaction, ahead=()):
        """`ahead`: what waits in front of the marker, which carries `plan`."""
        if reaction.block:
            one.blocked.add(wire)
        if reaction.checkpoint:
            saved = self._checkpoint(one, ROUND, round_number)
            for output in one.place.outputs:
                self.channels[output.number].append(("marker", round_number, plan, b""))
            one.blocked.clear()
            one.capturing = set(reaction.capture)
            self.waiting[one.name] = saved
        one.capturing.discard(wire)
        if one.name in self.waiting:
            self.waiting[one.name].captured += ahead
            if not one.capturing:
                self._durable(self.waiting.pop(one.name))

    # -- what may happen next ----------------------------------------------------------------------------------------
    def enabled(self):
        found = []
        for wire in self.wires:
            one, channel = self.instances[wire.receiver], self.channels[wire.number]
            if channel and wire.number not in one.blocked and (channel[0][0] == "marker" or self.has_room(one)):
                found.append((self.process, wire))
        for one in self.instances.values():
            if one.next_item < one.items and self.has_room(one):
                found.append((self.read, one))
        return found

    def has_room(self, one):
        """Whether whatever it sends next would find room."""
        return all(len(self.channels[wire.number]) < self.room for wire in one.place.outputs)

    def step(self):
        """One event; whether anything could happen."""
        self.clock += self.draws.random()
        number = self.central.next_round(self.clock)
        if number is not None:
            self.begin_round(number)
        for one in self.instances.values():
            if self.orders[one.name] and self.has_room(one):
                number, plan = self.orders[one.name].popleft()
                self._react(one, -1, number, plan, one.half.on_round(number, self.clock - one.begun, plan))
            late = one.half.overdue(self.clock - one.begun)
            if late is not None:
                self._react(one, -1, *late, Reaction(checkpoint=True))
            if one.half.due(self.clock - one.begun):
                self._durable(self._checkpoint(one, LOCAL))
        events = self.enabled()
        if events:
            act, what = self.draws.choice(events)
            act(what)
        if self.forgets and self.draws.random() < 0.1:
            self.truncate()
        return bool(events)

    def begin_round(self, number):
        if self.protocol.markers:
            for one in self.instances.values():
                if one.place.is_source:
                    self.orders[one.name].append((number, self.central.plan))
            return
        while (events := self.enabled()) and any(act == self.process for act, _ in events):  # all comes to rest
            act, wire = self.draws.choice([event for event in events if event[0] == self.process])
            act(wire)
        for one in self.instances.values():
            self._durable(self._checkpoint(one, ROUND, number))

    def read(self, one):
        item = (one.name, one.next_item)
        one.next_item += 1
        self._forward(one, item, 0)

    def process(self, wire):
        one, channel = self.instances[wire.receiver], self.channels[wire.number]
        if self.protocol.overtakes:
            for place, message in enumerate(channel):
                if message[0] == "marker":
                    del channel[place]
                    ahead = [(wire.number, number, item) for _, number, item, _ in list(channel)[:place]]
                    self._marker(one, wire.number, message, ahead)
                    return
        kind, number, value, note = channel.popleft()
        if kind == "marker":
            self._marker(one, wire.number, (kind, number, value, note))
            return
        if self.protocol.deduplicates and number <= one.received[wire.number]:
            return
        if wire.number in one.capturing:
            self.waiting[one.name].captured.append((wire.number, number, value))
        if one.half.before_message(wire.number, note):
            self._durable(self._checkpoint(one, FORCED))
        one.half.learn(wire.number, note)
        one.received[wire.number] = max(number, one.received[wire.number])
        item, hops = value
        one.seen[value] += 1
        self._forward(one, item, hops)

    def _marker(self, one, wire, message, ahead=()):
        _, number, plan, _ = message
        reaction = one.half.on_marker(wire, number, self.clock - one.begun, plan)
        self._react(one, wire, number, plan, reaction, ahead)

    # -- failures ----------------------------------------------------------------------------------------------------
    def truncate(self):
        """Forget what no line can ask for any more."""
        line = self.central.line()
        self.central.forget()
        for wire, last in truncation(self.central.history, line).items():
            self.log[wire] = [message for message in self.log[wire] if message[1] > last]

    def fail(self):
        """All lose what they have in memory, and go back to a line."""
        self.failures += 1
        line = self.central.line()
        history = self.central.history
        assert not list(orphans(history, line)), "a line has no orphans"
        assert not list(lost(history, line)), "and loses nothing"
        under_way = in_flight(history, line)
        self.central.went_back()
        self.waiting.clear()
        for orders in self.orders.values():
            orders.clear()
        for channel in self.channels.values():
            channel.clear()
        for name, told in line.items():
            saved = self.saved[name, told.number]
            self.instances[name].restore(saved, self.clock)
            for wire, number, item in saved.captured:
                self.channels[wire].append(("item", number, item, b""))
        if self.protocol.logged:
            self._replay(line, under_way)
        elif self.protocol.markers or not any(self.instances[name].number for name in self.instances):
            held = {wire: [m[1] for m in channel] for wire, channel in self.channels.items() if channel}
            wanted = {wire: list(range(first, last + 1)) for wire, (first, last) in under_way.items()}
            assert held == wanted, "what is under way is in the checkpoints, all of it and nothing else"

    def _replay(self, line, under_way):
        for wire, sender, _ in self.wires:
            kept = [message for message in self.log[wire] if message[1] <= line[sender].sent.get(wire, 0)]
            self.log[wire] = kept
            self.channels[wire].extend(kept)
            if wire in under_way:
                first, last = under_way[wire]
                assert {message[1] for message in kept} >= set(range(first, last + 1)), "the log has all of it"

    def seen(self):
        return {name: one.seen for name, one in self.instances.items()}


def run(world, failures=(), most=5_000):
    """To the end, with failures before these events; whether it came to an end."""
    for event in range(most):
        if event in failures:
            world.fail()
        if not world.step() and event > max(failures, default=0):
            return True
    return False
