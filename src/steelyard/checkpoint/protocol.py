"""What a checkpoint protocol is: a half beside each instance, and a half beside the coordinator.

Neither half knows sockets, files or Spark. An engine calls the half beside an instance in the instance's own thread,
between two messages: before it sends one (`note`), before it processes one (`before_message`), when a marker comes
(`on_marker`), now and then (`due`), and when a checkpoint was taken (`took`). It calls the other half when a
checkpoint is durable (`reported`), now and then (`next_round`), and when something failed (`line`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from steelyard.checkpoint.history import Checkpoint, History, Line, Wire
from steelyard.checkpoint.lines import recovery_line
from steelyard.core import OptionError


@dataclass(frozen=True)
class Place:
    """Where the half beside an instance is.

    Parameters
    ----------
    instance
        Beside whom.
    instances
        All of them, in an order that everybody has.
    inputs, outputs
        The wires that lead here, and those that lead away.
    """

    instance: str
    instances: tuple[str, ...]
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]

    @property
    def is_source(self) -> bool:
        """Whether it reads rather than gets."""
        return not self.inputs

    @classmethod
    def of(cls, instance: str, instances: Sequence[str], wires: Sequence[Wire]) -> Place:
        """The place of an instance in a graph."""
        into = tuple(wire for wire in wires if wire.receiver == instance)
        away = tuple(wire for wire in wires if wire.sender == instance)
        return cls(instance, tuple(instances), into, away)


@dataclass(frozen=True)
class Reaction:
    """What an instance does at a marker, in this order."""

    block: bool = False
    """Take nothing more of the marker's wire, until `checkpoint`."""
    checkpoint: bool = False
    """Take a checkpoint now, send the marker on, and unblock all wires."""
    capture: tuple[int, ...] = ()
    """Keep a copy of what comes over these wires until their markers do: it belongs to the checkpoint."""


NOTHING = Reaction()


class Change(NamedTuple):
    """A protocol treats an operator in another way from a round on."""

    round: int
    operator: str
    region: str
    why: str


class Beside:
    """The half beside an instance. This one does nothing of itself: protocols write what they need.

    Parameters
    ----------
    place
        Where it is.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.waited = -1.0
        """Seconds between the first and the last marker of the newest round of which all came; below 0 without one."""

    def due(self, now: float) -> bool:
        """Whether to take a checkpoint of one's own at `now`, in seconds since the instance began."""
        return False

    def set_interval(self, interval: float) -> None:
        """From now on there are so many seconds between two checkpoints; the next one is so long behind the last."""

    def overdue(self, now: float) -> tuple[int, str] | None:
        """A round, and its plan, that is taken now, though markers are missing; asked where `due` is.

        Nobody waits any more; that the round fits together is then not said.
        """
        return None

    def note(self, wire: int) -> bytes:
        """What a message carries that is about to be sent."""
        return b""

    def before_message(self, wire: int, note: bytes) -> bool:
        """Whether a checkpoint must be taken before a message that has come is processed."""
        return False

    def learn(self, wire: int, note: bytes) -> None:
        """A message is about to be processed; called behind `before_message`, and behind the checkpoint if any."""

    def on_round(self, number: int, now: float, plan: str) -> Reaction:
        """The coordinator begins a round; called beside sources, with seconds as in `due`, and what `Central` plans."""
        return NOTHING

    def on_marker(self, wire: int, number: int, now: float, plan: str) -> Reaction:
        """A marker of a round has come, with the plan with which the round began."""
        return NOTHING

    def logs(self, wire: int) -> bool:
        """Whether a protocol that keeps what is sent keeps it on this wire; asked behind every checkpoint."""
        return True

    def took(self, kind: str) -> None:
        """A checkpoint is taken, of this kind: called before `state`, which is part of it."""

    def state(self) -> dict[str, Any]:
        """What it knows right behind the checkpoint that was just taken, as plain values: part of that checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Called once, on a new half: what an old one knew is of no use any more."""


class Central:
    """The half beside the coordinator, of a protocol whose checkpoints may be of any time.

    Parameters
    ----------
    instances, wires
        The graph.
    """

    def __init__(self, instances: Sequence[str], wires: Sequence[Wire]) -> None:
        self.history = History(instances, wires)
        self.changes: list[Change] = []
        """What a protocol has changed while the job ran, where it can."""

    def begin_at(self, line: Line) -> None:
        """All instances begin where these checkpoints are, of workers that are gone; called before all else."""
        self.history.begin_at(line)

    @property
    def plan(self) -> str:
        """What the markers of the round carry that has just begun: how it is taken, where that may change."""
        return ""

    def next_round(self, now: float) -> int | None:
        """The round that begins at `now`, in seconds since the job began; None where none does."""
        return None

    def set_interval(self, interval: float) -> None:
        """From now on there are so many seconds between two rounds; the next one is so long behind the last."""

    def reported(self, checkpoint: Checkpoint) -> None:
        """A checkpoint is durable."""
        self.history.add(checkpoint)

    def line(self) -> dict[str, Checkpoint]:
        """Where all instances would go back to now."""
        return recovery_line(self.history)

    def went_back(self) -> list[Checkpoint]:
        """All instances go on from `line`; gives the checkpoints that came behind it, which never happened."""
        return self.history.go_back(self.line())

    def forget(self) -> list[Checkpoint]:
        """Gives the checkpoints before `line`, which nobody needs any more, and knows of them no more."""
        return self.history.forget_before(self.line())


class Rounds(Central):
    """The same, of a protocol in which all instances take part in rounds.

    A line is that of the last round in which all have; the next round begins when one is complete. No number of a round
    is used twice: what is left of one that was given up belongs to no other.

    Parameters
    ----------
    instances, wires
        The graph.
    interval
        Seconds between the beginnings of two rounds.
    """

    def __init__(self, instances: Sequence[str], wires: Sequence[Wire], interval: float) -> None:
        super().__init__(instances, wires)
        self.interval = interval
        self.begun = self.complete = 0
        self._under_way = False
        self._next = interval
        self._reported: dict[int, dict[str, Checkpoint]] = {0: self.history.newest()}

    def begin_at(self, line: Line) -> None:
        """That is the round before the first."""
        super().begin_at(line)
        self._reported = {0: self.history.newest()}

    def next_round(self, now: float) -> int | None:
        """The next one, where it is time and the one before is complete."""
        if now < self._next or self._under_way:
            return None
        self._next = now + self.interval
        self._under_way = True
        self.begun += 1
        return self.begun

    def set_interval(self, interval: float) -> None:
        """Also of the round that is awaited."""
        self._next += interval - self.interval
        self.interval = interval

    def reported(self, checkpoint: Checkpoint) -> None:
        """One more of the round."""
        super().reported(checkpoint)
        parts = self._reported.setdefault(checkpoint.round, {})
        parts[checkpoint.instance] = checkpoint
        if len(parts) == len(self.history.checkpoints):
            self.complete = checkpoint.round
            self._under_way = False
            self._reported = {number: one for number, one in self._reported.items() if number >= self.complete}

    def line(self) -> dict[str, Checkpoint]:
        """The checkpoints of the last complete round."""
        return dict(self._reported[self.complete])

    def went_back(self) -> list[Checkpoint]:
        """All instances go on from `line`; a round that was begun will not be complete."""
        self._under_way = False
        self._reported = {self.complete: self._reported[self.complete]}
        return super().went_back()


class CheckpointProtocol:
    """A way to make the state of a dataflow durable while it runs."""

    name: ClassVar[str]
    interval: float
    """Seconds between two checkpoints, where there are any."""
    markers: ClassVar[bool] = False
    """Whether rounds go through the dataflow as markers, in order with rows."""
    overtakes: ClassVar[bool] = False
    """Whether markers are taken before rows that came earlier; those are captured."""
    logged: bool = False
    """Whether senders keep what they sent until no line can ask for it."""
    deduplicates: bool = False
    """Whether a receiver drops what it has processed before, by its number."""
    marks: ClassVar[bool] = False
    """Whether messages carry what `Beside.note` gives."""
    timers: ClassVar[bool] = False
    """Whether instances take checkpoints by clocks of their own."""

    def beside(self, place: Place) -> Beside:
        """The half beside an instance."""
        return Beside(place)

    def interval_of(self, place: Place) -> float:
        """Seconds between two checkpoints of an instance."""
        return self.interval

    def central(self, instances: Sequence[str], wires: Sequence[Wire]) -> Central:
        """The half beside the coordinator."""
        return Central(instances, wires)

    def require(self, cyclic: bool) -> None:
        """OptionError where a dataflow cannot be checkpointed in this way."""


def require_interval(name: str, interval: float) -> float:
    """An interval in seconds; OptionError where it is none."""
    if not interval > 0:
        raise OptionError(f"{name}: interval must be above 0 seconds, got {interval!r}")
    return interval
