"""What an instance does with rows: a source reads an epoch, an operator processes a message, both send."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from steelyard.checkpoint import FORCED, Beside
from steelyard.sim.checkpoints.costs import padded
from steelyard.sim.checkpoints.job import Feed
from steelyard.sim.checkpoints.running import Instance, Outlet, Rows, Sends, mixed, part_of_one

if TYPE_CHECKING:
    from steelyard.sim.checkpoints.simulation import Simulation


class RowWork:
    """Reads, processes and sends rows; every method that works gives the processor seconds that it takes.

    Parameters
    ----------
    run
        The simulation.
    half
        One of the protocol's halves: all of them have notes, or none has.
    """

    def __init__(self, run: Simulation, half: Beside) -> None:
        self._run, self._costs, self._most = run, run.costs, run.job.rows_per_message
        self._logged, self._deduplicates = run.protocol.logged, run.protocol.deduplicates
        self._charges = run.graph.charges_of
        self._notes = type(half).note is not Beside.note
        if self._notes:
            self._note = run.costs.of_notes(half)
        self._note_byte = run.costs.note_byte / 2
        """At each end."""
        self._send_note_byte = self._note_byte + (run.costs.log_byte if self._logged else 0.0)

    def read(self, one: Instance, sends: Sends) -> float:
        """One epoch of a source."""
        one.reading = False
        if self._run.paused:
            return 0.0
        feed = one.operator
        assert isinstance(feed, Feed)
        epoch, worker = one.next_epoch, one.worker.number
        one.next_epoch += 1
        available = self._run.epochs.time(worker, epoch)
        rows = self._run.epochs.rows(feed, worker, epoch)
        self._run.tally.read_rows += rows
        cost = rows * feed.row_seconds
        seed = mixed(epoch * 1_000_003 + worker, one.salt)
        one.rows += rows
        one.digest += seed * rows
        for outlet in one.outlets:
            if not outlet.hop.keyed:
                cost += self._send(one, outlet, 0, rows, available, mixed(seed, outlet.salt), sends)
                continue
            for receiver, some in enumerate(self._run.epochs.by_receiver(feed, worker, epoch, len(outlet.wires))):
                if some:
                    digest = mixed(seed + receiver, outlet.salt)
                    cost += self._send(one, outlet, receiver, some, available, digest, sends)
        return cost

    def _send(
        self, one: Instance, outlet: Outlet, place: int, rows: int, available: float, digest: int, sends: Sends
    ) -> float:
        """Rows over one of the wires of an outlet; gives what that costs the sender."""
        if not rows:
            return 0.0
        wire = outlet.wires[place]
        charges = outlet.unkept if wire in one.unkept else outlet.charges
        number = one.sent[wire] = one.sent.get(wire, 0) + 1
        messages = -(-rows // self._most)
        charges.messages += messages
        charges.rows += rows
        cost = messages * charges.make_message + rows * charges.make_row
        note, padding = b"", 0
        if self._notes:
            note = one.note(wire)
            padding = padded(note)
            self._run.tally.note_bytes += messages * padding
            cost += messages * (self._note.make + len(note) * self._note.make_byte + padding * self._send_note_byte)
        receiver = outlet.receivers[place]
        item = Rows(receiver, wire, number, rows, available, digest, note)
        if wire in one.unkept:
            one.unlogged[wire] = number
        elif self._run.logs.kept:
            self._run.logs.add(item)
        if receiver.worker is one.worker:
            sends.here.append(item)
        else:
            sends.train.append(item)
            sends.size += messages * (charges.message_bytes + padding) + rows * charges.row_bytes
        return cost

    def process(self, item: Rows, sends: Sends) -> float:
        """Rows of a message: the protocol first, then the operator."""
        one, wire, number, rows, available, digest, note = item
        if wire in one.blocked:
            one.held.append(item)
            return 0.0
        charges = self._charges[wire]
        messages = -(-rows // self._most)
        cost = messages * charges.read_message + rows * charges.read_row
        if self._notes:
            each = self._note.read + len(note) * self._note.read_byte + padded(note) * self._note_byte
            cost += messages * each
        if self._deduplicates and number <= one.received.get(wire, 0):
            self._run.tally.dropped_rows += rows
            return cost
        if wire in one.capturing and one.waiting is not None:
            one.waiting.captured.append(item)
            one.waiting.captured_bytes += self.size_of(item)
        if self._notes and one.learnt_from.get(wire) is not note:
            if one.half.before_message(wire, note):
                cost += self._run.taking.checkpoint(one, FORCED)
            one.half.learn(wire, note)
            one.learnt_from[wire] = note
            one.version += 1
        one.received[wire] = number
        one.rows += rows
        one.digest += digest * rows
        if charges.kept_bytes:
            one.keep(rows * charges.kept_bytes, self._run.now)
        cost += messages * charges.work_message + rows * charges.work_row
        if one.outlets:
            for outlet in one.outlets:
                cost += self._pass_on(one, outlet, rows * charges.gives, available, mixed(digest, outlet.salt), sends)
        else:
            self._run.tally.done(self._run.now + cost, rows, available, one.operator.name)
        return cost

    def _pass_on(
        self, one: Instance, outlet: Outlet, expected: float, available: float, digest: int, sends: Sends
    ) -> float:
        """What rows give; where that is no whole number, the rows themselves decide about the last one."""
        rows = int(expected + part_of_one(digest))
        if not outlet.hop.keyed:
            return self._send(one, outlet, 0, rows, available, digest, sends)
        by_worker: dict[int, int] = defaultdict(int)
        for place in range(rows):
            by_worker[mixed(digest, place) % len(outlet.wires)] += 1
        return sum(
            self._send(one, outlet, receiver, some, available, mixed(digest, ~receiver), sends)
            for receiver, some in by_worker.items()
        )

    def size_of(self, item: Rows) -> float:
        """The bytes of rows on the wire."""
        charges = self._charges[item.wire]
        messages = -(-item.rows // self._most)
        return messages * (charges.message_bytes + padded(item.note)) + item.rows * charges.row_bytes
