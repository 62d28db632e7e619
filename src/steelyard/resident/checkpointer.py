"""Checkpoints of one chain of instances: what a protocol says, done between two messages in the chain's own thread.

The state of the instances is taken there, which is quick: tables of Arrow do not change. It is packed and written by
another thread, while the instances go on (`keeper.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from steelyard.checkpoint import FORCED, LOCAL, ROUND, CheckpointProtocol, Place, Reaction
from steelyard.core.topology import Channel, Instance
from steelyard.resident.channel import Mailbox, Message, Outlet
from steelyard.resident.metrics import InstanceMetrics
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK, State
from steelyard.resident.wire import Kind

LOG_BYTES = 64 << 20
"""A chain that has sent so many bytes since its last checkpoint takes another: logs are in memory until then."""
LOOK_SECONDS = 0.01
"""Seconds between two looks at a timer."""


@dataclass
class Taken:
    """A checkpoint of a chain that is not durable yet."""

    head: Instance
    number: int
    """Which of the chain's checkpoints in this generation, from 1."""
    kind: str
    round: int
    states: dict[Instance, State]
    sent: dict[int, int]
    received: dict[int, int]
    log: dict[int, list[Message]]
    """By channel: what was sent since the checkpoint before."""
    seconds: float
    """How long the instances stood still for it."""
    at: float
    unlogged: dict[int, int] = field(default_factory=dict)
    """By channel: the number of the last message that no log has."""
    rows: int = 0
    """That the first instance of the chain had processed."""
    waited: float = -1.0
    """What the half beside the chain waited for markers."""
    captured: dict[int, list[Message]] = field(default_factory=dict)
    """By channel: what a marker has overtaken, or what was under way before this generation and still is."""


class Member(Protocol):
    """An instance of a chain, as far as its checkpoints need it."""

    instance: Instance
    metrics: InstanceMetrics

    def flush_epoch(self) -> None:
        """Give what the end of an epoch gives."""
        ...

    def taken(self, at_rest: bool) -> State:
        """Its state, as that of its next checkpoint; `at_rest` where nothing is under way anywhere."""
        ...


class Checkpointer:
    """The half of a protocol beside a chain.

    Parameters
    ----------
    protocol, place
        Which protocol, and where this is.
    members
        The instances of the chain, each behind the one that leads to it.
    mailbox
        What comes to the first of them.
    outlets
        What leads out of the chain, by channel.
    keep
        Makes a checkpoint durable; called in the chain's thread, and is quick.
    cut
        Behind how many cuts of this generation it takes them.
    """

    def __init__(
        self,
        protocol: CheckpointProtocol,
        place: Place,
        members: Sequence[Member],
        mailbox: Mailbox,
        outlets: Mapping[int, Outlet],
        keep: Callable[[Taken], None],
        cut: int = 0,
    ) -> None:
        self.cut = cut
        self._place, self._half = place, protocol.beside(place)
        self._of = [protocol.name, getattr(protocol, "rule", ""), len(place.instances)]
        self._marks, self._timers, self._logs = protocol.marks, protocol.timers, protocol.logged
        self._overtakes = protocol.overtakes
        self._members, self._mailbox, self._outlets, self._keep = members, mailbox, outlets, keep
        self._inputs = [wire.number for wire in place.inputs]
        self._inherited: dict[int, int] = {}
        """By channel: the last message that was under way when all went on from a line."""
        self._number = 0
        self._begun = self._looked = time.monotonic()
        self._before: tuple[dict[int, int], dict[int, int]] | None = None
        """Messages sent and received at the last checkpoint."""
        self._unlogged: dict[int, int] = {}
        """By channel: the last message that no log has."""
        self._open: Taken | None = None
        """The checkpoint that markers still capture rows for."""
        self._capturing: set[int] = set()
        self._blocked_at = 0.0
        self.blocked = 0.0
        """Seconds in which inputs were held back for the markers of others."""
        self._handed = 0
        self.durable = 0
        """Checkpoints that are durable; the thread that makes them so counts."""
        self._choose_logs()
        for number, outlet in outlets.items():
            if protocol.marks:
                outlet.marking = partial(self._half.note, number)

    @property
    def wait(self) -> float | None:
        """How long the chain may wait for messages before it looks at its timer."""
        return LOOK_SECONDS if self._timers else None

    @property
    def alone(self) -> bool:
        """Whether every message is looked at by itself."""
        return self._marks or bool(self._capturing)

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from what the half beside the chain knew, if it was of the same protocol and the same chains."""
        if state is not None and state["of"] == self._of:
            self._half.restore(state["half"])
            self._choose_logs()

    def set_interval(self, protocol: CheckpointProtocol) -> None:
        """The same protocol has another interval from now on."""
        self._half.set_interval(protocol.interval_of(self._place))

    def _choose_logs(self) -> None:
        """Keep what is sent from now on where the half says so."""
        for number, outlet in self._outlets.items():
            outlet.log = [] if self._logs and self._half.logs(number) else None

    def inherit(self, channel: int, last: int) -> None:
        """Messages up to `last` were under way when all went on, and wait: nobody sends them again."""
        self._inherited[channel] = last

    def look(self) -> None:
        """Take a checkpoint, if it is time for one; between two messages."""
        if not self._timers:
            return
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        late = self._half.overdue(now - self._begun)
        if late is not None:
            self._react(Reaction(checkpoint=True), *late)
            self._close_if_whole()
        due = self._half.due(now - self._begun) or sum(one.logged for one in self._outlets.values()) > LOG_BYTES
        # While the last one is not durable another would only make the disk slower.
        if due and self._handed == self.durable and self._counters() != self._before:
            self._take(LOCAL)

    def before(self, channel: Channel, message: Message) -> None:
        """A message is about to be worked off."""
        number = channel.number
        if number in self._capturing and self._open is not None:
            self._open.captured.setdefault(number, []).append(message)
        if self._marks and message.mark:
            if self._half.before_message(number, message.mark):
                self._take(FORCED)
            self._half.learn(number, message.mark)

    def begin_round(self, number: int, plan: str) -> None:
        """The coordinator begins a round; for a chain that reads."""
        self._react(self._half.on_round(number, time.monotonic() - self._begun, plan), number, plan)

    def on_marker(self, channel: Channel, message: Message) -> None:
        """A marker has come, in its place or before it."""
        plan = message.note.decode()
        reaction = self._half.on_marker(channel.number, message.value, time.monotonic() - self._begun, plan)
        ahead = self._mailbox.ahead_of(channel.number, message)
        if reaction.block:
            self._blocked_at = self._blocked_at or time.monotonic()
            self._mailbox.block(channel.number)
        self._react(reaction, message.value, plan)
        ends = channel.number in self._capturing or reaction.checkpoint
        if self._open is not None and self._open.round == message.value and ends:
            if ahead:
                self._open.captured.setdefault(channel.number, []).extend(ahead)
            self._capturing.discard(channel.number)
            self._close_if_whole()

    def _react(self, reaction: Reaction, number: int, plan: str) -> None:
        if not reaction.checkpoint:
            return
        self._open, self._capturing = None, set(reaction.capture)  # a round before that did not end is given up
        taken = self._take(ROUND, number, keep=False)
        for outlet in self._outlets.values():
            outlet.cut(number, plan)
        self._mailbox.unblock()
        if self._blocked_at:
            self.blocked += time.monotonic() - self._blocked_at
            self._blocked_at = 0.0
        self._open = taken
        if not self._inputs:
            self._close_if_whole()

    def _close_if_whole(self) -> None:
        if self._open is not None and not self._capturing:
            whole, self._open = self._open, None
            self._handed += 1
            self._keep(whole)

    def _counters(self) -> tuple[dict[int, int], dict[int, int]]:
        done = self._mailbox.worked_off()
        sent = {number: outlet.sent for number, outlet in self._outlets.items()}
        return sent, {number: done[number] for number in self._inputs}

    def _take(self, kind: str, round_number: int = 0, keep: bool = True) -> Taken:
        begun = time.perf_counter()
        for one in self._members:
            one.flush_epoch()
        before = self._before[0] if self._before is not None else {}
        sent, received = self._before = self._counters()
        for number, outlet in self._outlets.items():
            if self._logs and outlet.log is None and sent[number] > before.get(number, 0):
                self._unlogged[number] = sent[number]
        self._half.took(kind)
        states = {one.instance: one.taken(at_rest=False) for one in self._members}
        states[self._members[0].instance]["protocol"] = {"of": self._of, "half": self._half.state()}
        log = {number: outlet.taken_log() for number, outlet in self._outlets.items()}
        self._choose_logs()
        self._number += 1
        took = time.perf_counter() - begun
        first = self._members[0]
        taken = Taken(
            first.instance,
            self._number,
            kind,
            round_number,
            states,
            sent,
            received,
            log,
            took,
            time.monotonic(),
            dict(self._unlogged),
            first.metrics.rows_in,
            self._half.waited,
        )
        if kind != ROUND or not self._overtakes:  # else markers say what is captured
            self._inherited = {one: last for one, last in self._inherited.items() if received[one] < last}
            taken.captured |= {one: self._mailbox.up_to(one, last) for one, last in self._inherited.items()}
        if keep:
            self._handed += 1
            self._keep(taken)
        return taken


def counters_of(state: State) -> tuple[dict[int, int], dict[int, int]]:
    """Messages sent and received by an instance when its state was taken, by channel."""
    own = state.get("own", {})
    return dict(map(tuple, own.get("sent", ()))), dict(map(tuple, own.get("received", ())))


def undone(message: Message) -> Message:
    """A message that is worked off after a failure, as it comes then: whoever asked for reports of it is gone.

    Ends come again: whoever has given his last row says so once more when he goes on, and event time with him. What its
    sender knew of checkpoints is of no use any more: it was sent before the line, and all before that is forgotten; nor
    could a half of another protocol, or of other chains, read it.
    """
    ended = message.kind is Kind.END or (message.kind is Kind.WATERMARK and message.value == MAX_WATERMARK)
    if ended:
        return Message(Kind.WATERMARK, message.number, MIN_WATERMARK)
    return message._replace(note=b"", mark=b"")
