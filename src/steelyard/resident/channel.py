"""Channels between instances: what one end sends, the other gets, in order, each batch once, and never too many.

The receiver gives credit for as many batches as it has room for, and gives it back as it works them off. A
sender without credit waits: that is back-pressure, and it goes on from there to the source. Watermarks, markers
and ends are few and small, and need no credit. Nor do batches on a feedback edge, which the receiver takes
before all others: in a cycle, waiting for room in one's own input would be waiting for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from steelyard.core import SteelyardError
from steelyard.core.topology import Channel
from steelyard.resident.wire import DATA, Kind, WireError

CREDIT = 16
"""Batches that a receiver has room for, in each channel."""


class StoppedError(SteelyardError):
    """The worker ends before its rows do; whoever waited is woken by this."""


class Message(NamedTuple):
    """What goes through a channel."""

    kind: Kind
    number: int
    """Its place in the channel, from 1."""
    value: Any
    """A record batch (`DATA`), microseconds (`WATERMARK`, `PROBE`) or a round (`MARKER`)."""
    note: bytes = b""
    """What whoever chose the receiver adds; of a marker, the plan of its round."""
    mark: bytes = b""
    """What a checkpoint protocol adds."""


class Outlet:
    """The sending end of a channel. One thread sends; another may bring credit.

    Parameters
    ----------
    channel
        Which.
    transmit
        Brings a message to the other end.
    credit
        Room at the other end; None where there is always room.
    """

    def __init__(self, channel: Channel, transmit: Callable[[Message], None], credit: int | None = CREDIT) -> None:
        self.channel = channel
        self.sent = 0
        """Messages so far: the number of the last."""
        self.waited = 0.0
        """Seconds without credit."""
        self._transmit = transmit
        self._bounded = credit is not None
        # Each is written by one thread alone, so that a sender who has credit needs no lock.
        self._granted, self._spent = credit or 0, 0
        self._changed = threading.Condition(threading.Lock())
        self._stopped = False
        self.worked_off: Callable[[int], None] | None = None
        """Wants to hear how many more batches the other end has worked off."""
        self.marking: Callable[[], bytes] | None = None
        """What a checkpoint protocol adds to the next message."""
        self.log: list[Message] | None = None
        """What was sent since the last checkpoint of the sender, where that is kept."""
        self.logged = 0
        """Bytes of the rows in it."""

    @property
    def has_credit(self) -> bool:
        """Whether a batch could be sent now."""
        return not self._bounded or self._granted > self._spent

    def send(self, kind: Kind, value: Any, note: bytes = b"") -> None:
        """Send the next message; a batch waits for credit. StoppedError where the worker ends meanwhile."""
        if kind is DATA and self._bounded:
            if self._granted <= self._spent:
                self._wait()
            if self._stopped:
                raise StoppedError(f"channel to {self.channel.receiver} was stopped")
            self._spent += 1
        self.sent += 1
        message = Message(kind, self.sent, value, note, self.marking() if self.marking is not None else b"")
        if self.log is not None:
            self.log.append(message)
            self.logged += value.nbytes if kind is DATA else 0
        self._transmit(message)

    def cut(self, number: int, plan: str) -> None:
        """Send the marker of a round. It stands between two messages, and is none of them: it has no number."""
        self._transmit(Message(Kind.MARKER, self.sent, number, plan.encode()))

    def close(self) -> None:
        """Say that nothing comes behind what was sent: from here on rows go through another channel."""
        self._transmit(Message(Kind.CUT, self.sent, None))

    def taken_log(self) -> list[Message]:
        """What was sent since the last time."""
        taken = self.log or []
        if self.log is not None:
            self.log, self.logged = [], 0
        return taken

    def _wait(self) -> None:
        """Until there is credit, or none will come."""
        begun = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self._granted > self._spent or self._stopped)
        self.waited += time.perf_counter() - begun

    def grant(self, batches: int) -> None:
        """The other end has room for so many more; WireError where it cannot, since it never had so much."""
        if not self._bounded:
            return
        if batches < 1 or self._granted + batches - self._spent > CREDIT:
            raise WireError(f"{self.channel.receiver} gave {batches} more credit than it has room for")
        with self._changed:
            self._granted += batches
            self._changed.notify_all()
        if self.worked_off is not None:
            self.worked_off(batches)

    def stop(self) -> None:
        """Wake a sender that waits; it gets a StoppedError."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class _Inlet:
    """The receiving end of one channel."""

    def __init__(self, channel: Channel, grant: Callable[[int], None]) -> None:
        self.channel, self.number = channel, channel.number
        self.waiting: deque[Message] = deque()
        self.arrived = 0
        self.done = 0
        self.owed = 0
        # Each is written by one thread alone, so that neither end needs a lock for them.
        self.batches, self.granted = 0, CREDIT
        self.ended = self.closed = False
        self.grant = grant


class Mailbox:
    """What has come for one instance, from all of its channels, and which message is next.

    Threads that read connections put messages in, those of one channel always the same thread; the instance's own
    thread takes them out, says when it has `finished` with one, and may close a channel for a while (`block`).

    Parameters
    ----------
    channels
        The channels that lead here, and for each what tells its sender of new room.
    prompt
        Channels whose senders are told at once, rather than half a window at a time.
    overtaking
        Whether markers are taken before all rows that came earlier.
    """

    def __init__(
        self,
        channels: Sequence[tuple[Channel, Callable[[int], None]]],
        prompt: Collection[int] = (),
        overtaking: bool = False,
    ) -> None:
        self._inlets = {channel.number: _Inlet(channel, grant) for channel, grant in channels}
        self._prompt = frozenset(prompt)
        self._turn = deque(inlet for inlet in self._inlets.values() if not inlet.channel.feedback)
        self._feedback = [inlet for inlet in self._inlets.values() if inlet.channel.feedback]
        self._single = self._turn[0] if len(self._turn) == 1 and not self._feedback else None
        self._blocked: set[int] = set()
        self._overtaking = overtaking
        self._markers: deque[tuple[Channel, Message]] = deque()
        """Markers that overtake rows."""
        self._changed = threading.Condition(threading.Lock())
        self._stopped = False
        self._woken = False
        self._taking = False

    def put(self, number: int, message: Message) -> None:
        """A message of a channel has come; WireError where it is not the next one, or has no room."""
        inlet = self._inlets.get(number)
        if inlet is None:
            raise WireError(f"a message came for channel {number}, which does not end here")
        if message.kind is Kind.MARKER:
            self._put_marker(inlet, message)
            return
        if inlet.closed:
            raise WireError(f"a {message.kind.name} of {inlet.channel.sender} came behind the cut of its channel")
        if message.kind is Kind.CUT and message.number == inlet.arrived:
            inlet.closed = True
            self._append(inlet, message)
            return
        if message.number != inlet.arrived + 1:
            raise WireError(
                f"message {message.number} of channel {inlet.channel.sender} -> {inlet.channel.receiver} came "
                f"behind message {inlet.arrived}: one was lost or repeated"
            )
        if inlet.ended:
            raise WireError(f"a {message.kind.name} of {inlet.channel.sender} came behind the end of its channel")
        if message.kind is DATA:
            if not inlet.channel.feedback:
                if inlet.batches >= inlet.granted:
                    raise WireError(f"{inlet.channel.sender} sent a batch to {inlet.channel.receiver} without credit")
                inlet.batches += 1
        elif message.kind is Kind.END:
            inlet.ended = True
        inlet.arrived += 1
        self._append(inlet, message)

    def _append(self, inlet: _Inlet, message: Message) -> None:
        inlet.waiting.append(message)
        if self._taking:  # it looks once more after it has said so: none is overlooked
            with self._changed:
                self._changed.notify()

    def _put_marker(self, inlet: _Inlet, message: Message) -> None:
        """A marker has come, perhaps behind the end: whoever has given his last row still takes part in rounds."""
        if message.number != inlet.arrived:
            raise WireError(
                f"a marker of {inlet.channel.sender} stands behind message {message.number}, and {inlet.arrived} came"
            )
        self._append(inlet, message)
        if self._overtaking:  # it may be taken twice, out of its place and here: a round begins once all the same
            self._markers.append((inlet.channel, message))
            with self._changed:
                self._changed.notify()

    def restore(self, number: int, sent: int, messages: Sequence[Message]) -> None:
        """Go on in a channel into which so many messages were sent; called before all else.

        `messages` are the last of those, which are to be worked off. Nobody awaits room for them.
        """
        inlet = self._inlets[number]
        inlet.done, inlet.arrived = sent - len(messages), sent
        inlet.waiting.extend(messages)
        inlet.owed = -sum(one.kind is DATA for one in messages)

    def ahead_of(self, number: int, marker: Message) -> list[Message]:
        """What waits in a channel before a marker that has overtaken it; the marker leaves its place."""
        waiting = self._inlets[number].waiting
        found = list(waiting)
        place = next((i for i, one in enumerate(found) if one is marker), 0)
        if found and found[place] is marker:
            del waiting[place]
        return found[:place]

    def up_to(self, number: int, last: int) -> list[Message]:
        """What waits in a channel, up to a message."""
        return [one for one in list(self._inlets[number].waiting) if one.number <= last]

    def take(self, timeout: float | None = None) -> tuple[Channel, Message] | None:
        """The next message; None where none came in time, or the instance was woken. StoppedError at the end."""
        if self._stopped:
            raise StoppedError("the mailbox was stopped")
        found = self._next()
        if found is None and timeout == 0:
            self._woken = False
            return None
        return found or self._wait(timeout)

    def _wait(self, timeout: float | None) -> tuple[Channel, Message] | None:
        with self._changed:
            self._taking = True
            try:
                while (found := self._next()) is None:
                    if self._stopped:
                        raise StoppedError("the mailbox was stopped")
                    if self._woken or not self._changed.wait(timeout):
                        self._woken = False
                        return None
                return found
            finally:
                self._taking = False

    def _next(self) -> tuple[Channel, Message] | None:
        """A message of the channel whose turn it is: feedback first, then one after the other."""
        if self._markers:
            return self._markers.popleft()
        if self._single is not None:
            waiting = self._single.waiting
            if not waiting or (self._blocked and self._single.number in self._blocked):
                return None
            return self._single.channel, waiting.popleft()
        for inlet in self._feedback:
            if inlet.waiting and inlet.number not in self._blocked:
                return inlet.channel, inlet.waiting.popleft()
        turn = self._turn
        for _ in range(len(turn)):
            inlet = turn[0]
            turn.rotate(-1)
            if inlet.waiting and inlet.number not in self._blocked:
                return inlet.channel, inlet.waiting.popleft()
        return None

    def more(self, number: int, rows: int) -> list[Message]:
        """Batches that wait right behind the one just taken from a channel, of at most `rows` rows in all."""
        waiting, found = self._inlets[number].waiting, []
        while waiting and waiting[0].kind is DATA and waiting[0].value.num_rows <= rows:
            found.append(waiting.popleft())
            rows -= found[-1].value.num_rows
        return found

    def finished(self, number: int, kind: Kind, messages: int = 1) -> None:
        """Messages that were taken have been worked off; their room is given back, mostly half a window at a time."""
        inlet = self._inlets[number]
        inlet.done += messages
        if kind is DATA:
            inlet.owed += messages
            if inlet.owed >= CREDIT // 2 or (number in self._prompt and inlet.owed > 0):
                owed, inlet.owed = inlet.owed, 0
                inlet.granted += owed
                inlet.grant(owed)

    def block(self, number: int) -> None:
        """Take nothing of this channel until it is unblocked; what comes is kept, in order."""
        self._blocked.add(number)

    def unblock(self) -> None:
        """Take from all channels again."""
        with self._changed:
            self._blocked.clear()
            self._changed.notify()

    def wake(self) -> None:
        """Let a `take` that waits return without a message."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def rest(self) -> None:
        """Take nothing until woken; StoppedError at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._stopped)
            self._woken = False
            if self._stopped:
                raise StoppedError("the mailbox was stopped")

    def stop(self) -> None:
        """Wake whoever waits; it gets a StoppedError."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def length(self) -> int:
        """Messages that wait."""
        return sum(len(inlet.waiting) for inlet in self._inlets.values())

    def waiting(self) -> tuple[int, float]:
        """Rows that wait, and the share of the places for batches that are taken; any thread may ask."""
        bounded = [inlet for inlet in self._inlets.values() if not inlet.channel.feedback]
        there = [list(inlet.waiting) for inlet in (*bounded, *self._feedback)]
        rows = [[one.value.num_rows for one in some if one.kind is DATA] for some in there]
        taken = sum(map(len, rows[: len(bounded)]))
        return sum(map(sum, rows)), taken / (CREDIT * len(bounded)) if bounded else 0.0

    def worked_off(self) -> dict[int, int]:
        """By channel: how many messages have been worked off."""
        return {number: inlet.done for number, inlet in self._inlets.items()}
