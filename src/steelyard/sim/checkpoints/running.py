"""Instances and workers of a run, and what a checkpoint of an instance has kept."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from steelyard.checkpoint import Beside, Checkpoint, CheckpointProtocol, Place
from steelyard.sim.checkpoints.costs import ProtocolCosts
from steelyard.sim.checkpoints.job import Feed, Hop, Stage

_MASK = (1 << 61) - 1


def mixed(digest: int, salt: int) -> int:
    """Another number, as good as drawn, from a number and a salt.

    >>> mixed(1, 2) == mixed(1, 2) != mixed(1, 3)
    True
    """
    digest = ((digest ^ (salt * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9) & _MASK
    return (digest ^ (digest >> 29)) * 0x94D049BB133111EB & _MASK


def part_of_one(digest: int) -> float:
    """A number from 0 to below 1 by a digest."""
    return digest / (_MASK + 1)


class Rows(NamedTuple):
    """Rows that go over a channel together: one message of the protocol, which is one or several on the wire."""

    receiver: Instance
    wire: int
    number: int
    rows: int
    available: float
    """When they became available at their source."""
    digest: int
    """What they are, in a number: the same where they are made again from the same rows."""
    note: bytes


class Marker(NamedTuple):
    """A marker of a round, behind so many messages of its channel."""

    receiver: Instance
    wire: int
    round: int
    behind: int
    plan: str


class Order(NamedTuple):
    """The coordinator begins a round: for a source."""

    receiver: Instance
    round: int
    plan: str


class Sends:
    """What a worker sends when it is done: to its own queue, and in a train over the network, of so many bytes."""

    __slots__ = ("here", "size", "train")

    def __init__(self) -> None:
        self.here: list[Item] = []
        self.train: list[Item] = []
        self.size = 0.0


class Read(NamedTuple):
    """A source reads its next epoch."""

    receiver: Instance


Item = Rows | Marker | Order | Read


@dataclass
class Saved:
    """What a checkpoint has kept."""

    told: Checkpoint
    rows: int
    digest: int
    kept: float
    window: int
    next_epoch: int
    half: dict[str, Any]
    begun: float
    """When it was begun, and how long nobody worked meanwhile."""
    pause: float
    captured: list[Rows] = field(default_factory=list)
    """What markers have overtaken."""
    captured_bytes: float = 0.0


class Charges:
    """What rows over a hop cost, added up once: so much for a message, and so much for a row in it.

    Parameters
    ----------
    hop
        The hop.
    costs
        Of everything beside operators.
    logged
        Whether senders keep what they send.
    """

    def __init__(self, hop: Hop, costs: ProtocolCosts, logged: bool) -> None:
        make_byte = costs.make_byte + (costs.log_byte if logged else 0.0)
        self.make_message = costs.make_message + (costs.log_message if logged else 0.0) + hop.message_bytes * make_byte
        self.make_row = hop.row_bytes * make_byte
        self.read_message = costs.read_message + hop.message_bytes * costs.read_byte
        self.read_row = hop.row_bytes * costs.read_byte
        self.work_message, self.work_row = hop.message_seconds, hop.row_seconds
        self.message_bytes, self.row_bytes = hop.message_bytes + costs.frame_bytes, hop.row_bytes
        self.gives, self.kept_bytes = hop.gives, hop.kept_bytes
        self.messages = self.rows = 0
        """That were sent."""

    @property
    def sent_bytes(self) -> float:
        """Of all messages, without notes."""
        return self.messages * self.message_bytes + self.rows * self.row_bytes


@dataclass(frozen=True)
class Outlet:
    """A hop of an instance: the wires over which it sends, and who is at their other ends, by worker."""

    hop: Hop
    charges: Charges
    wires: tuple[int, ...]
    receivers: tuple[Instance, ...]
    salt: int
    unkept: Charges
    """Of wires that no log is kept of."""


class Instance:
    """One instance, with the half of the protocol beside it.

    Parameters
    ----------
    place
        Where it is in the graph.
    operator
        What it is one of.
    worker
        Where it runs.
    protocol
        Whose half is beside it.
    """

    def __init__(self, place: Place, operator: Feed | Stage, worker: Worker, protocol: CheckpointProtocol) -> None:
        self.place, self.operator, self.worker, self.protocol = place, operator, worker, protocol
        self.name = place.instance
        self.salt = place.instances.index(place.instance) + 1
        self.outlets: tuple[Outlet, ...] = ()
        self.window_seconds = operator.window if isinstance(operator, Stage) else None
        self.first_kept = operator.base_bytes if isinstance(operator, Stage) else 0.0
        self.durable_at = 0.0
        """When the last of its checkpoints was, or will be, durable."""
        self.restore(None, 0.0)

    @property
    def is_source(self) -> bool:
        """Whether it reads."""
        return isinstance(self.operator, Feed)

    def restore(self, saved: Saved | None, now: float) -> None:
        """As it was at a checkpoint, or in the beginning."""
        self.half: Beside = self.protocol.beside(self.place)
        self.rows, self.digest, self.next_epoch, self.number = 0, 0, 0, 0
        self.kept, self.window = self.first_kept, 0
        self.sent: dict[int, int] = {}
        self.received: dict[int, int] = {}
        self.unlogged: dict[int, int] = {}
        if saved is not None:
            told = saved.told
            self.rows, self.digest, self.next_epoch, self.number = (
                saved.rows,
                saved.digest,
                saved.next_epoch,
                told.number,
            )
            self.kept, self.window = saved.kept, saved.window
            self.sent, self.received, self.unlogged = dict(told.sent), dict(told.received), dict(told.unlogged)
            self.half.restore(saved.half)
        self.choose_logs()
        self.begun = now
        self.blocked: set[int] = set()
        self.held: list[Item] = []
        self.capturing: set[int] = set()
        self.waiting: Saved | None = None
        """A checkpoint that is not whole before all markers have come."""
        self.version = 0
        """Goes up whenever the half may have another note."""
        self.notes: dict[int, tuple[int, bytes]] = {}
        self.learnt_from: dict[int, bytes] = {}
        """By wire: the last note that was learnt from. To learn from it again would change nothing."""
        self.reading = False

    def choose_logs(self) -> None:
        """Keep what is sent from now on where the half says so."""
        wires = (one.number for one in self.place.outputs) if self.protocol.logged else ()
        self.unkept = frozenset(wire for wire in wires if not self.half.logs(wire))
        """Wires that no log is kept of, of a protocol that keeps logs."""

    def keep(self, kept: float, now: float) -> None:
        """So many bytes more; those of a window that is over are gone."""
        if self.window_seconds is not None:
            window = int(now / self.window_seconds)
            if window != self.window:
                self.window, self.kept = window, self.first_kept
        self.kept += kept

    def note(self, wire: int) -> bytes:
        """What the half gives a message over this wire; it is asked again when it may have another answer."""
        known = self.notes.get(wire)
        if known is not None and known[0] == self.version:
            return known[1]
        note = self.half.note(wire)
        self.notes[wire] = self.version, note
        return note


class Worker:
    """A machine with one core, which does one thing after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instances: list[Instance] = []
        self.queue: deque[Item] = deque()
        self.overtaking: deque[Marker] = deque()
        """Markers that are taken before rows."""
        self.looks = False
        """Whether timers are looked at before the next item."""
        self.busy = self.dead = False
        self.line_free = 0.0
        """When all bytes that were sent have left."""

    def forget(self) -> None:
        """Everything that was in memory."""
        self.queue.clear()
        self.overtaking.clear()
        self.busy = self.dead = self.looks = False
