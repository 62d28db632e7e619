"""How checkpoints come about: markers and rounds, states that are copied, and when they are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steelyard.checkpoint import ROUND, Checkpoint, Reaction
from steelyard.sim.checkpoints.running import Instance, Marker, Order, Rows, Saved, Sends

if TYPE_CHECKING:
    from steelyard.sim.checkpoints.simulation import Simulation


class Taking:
    """Takes checkpoints, and does what the halves of a protocol say at markers.

    Parameters
    ----------
    run
        The simulation.
    """

    def __init__(self, run: Simulation) -> None:
        self._run = run

    def marker(self, marker: Marker, sends: Sends) -> float:
        """A marker, in its turn or before rows that wait."""
        one, wire, number, behind, plan = marker
        if wire in one.blocked:
            one.held.append(marker)
            return 0.0
        ahead = []
        if self._run.protocol.overtakes:
            ahead = [
                item for item in one.worker.queue if type(item) is Rows and item.wire == wire and item.number <= behind
            ]
        reaction = one.half.on_marker(wire, number, self._run.now - one.begun, plan)
        return self._run.costs.read_message + self._react(marker, reaction, sends, ahead)

    def order(self, order: Order, sends: Sends) -> float:
        """The beginning of a round, for a source."""
        one, number, plan = order
        reaction = one.half.on_round(number, self._run.now - one.begun, plan)
        return self._react(Marker(one, -1, number, 0, plan), reaction, sends)

    def late(self, one: Instance, sends: Sends) -> float:
        """A round whose markers are not waited for any more, if there is one."""
        late = one.half.overdue(self._run.now - one.begun)
        if late is None:
            return 0.0
        return self._react(Marker(one, -1, late[0], 0, late[1]), Reaction(checkpoint=True), sends)

    def _react(self, marker: Marker, reaction: Reaction, sends: Sends, ahead: Sequence[Rows] = ()) -> float:
        """Block, take a checkpoint, send markers on, unblock, capture: what a marker or a round asks for."""
        one, wire, number, _, plan = marker
        cost = 0.0
        if reaction.block:
            one.blocked.add(wire)
        if reaction.checkpoint:
            saved = self._taken(one, ROUND, number)
            cost += saved.pause
            for outlet in one.outlets:
                for place, out in enumerate(outlet.wires):
                    receiver = outlet.receivers[place]
                    local = receiver.worker is one.worker and not self._run.protocol.overtakes
                    sent_on = Marker(receiver, out, number, one.sent.get(out, 0), plan)
                    (sends.here if local else sends.train).append(sent_on)
                    sends.size += self._run.costs.frame_bytes + len(plan)
                    cost += self._run.costs.make_message
                    self._run.tally.marker_bytes += self._run.costs.frame_bytes + len(plan)
            one.blocked.clear()
            one.worker.queue.extendleft(reversed(one.held))
            one.held = []
            one.capturing = set(reaction.capture)
            one.waiting = saved
        one.capturing.discard(wire)
        if one.waiting is not None:
            one.waiting.captured += ahead
            one.waiting.captured_bytes += sum(map(self._run.rows.size_of, ahead))
            if not one.capturing:
                self._write(one.waiting)
                one.waiting = None
        return cost

    def _taken(self, one: Instance, kind: str, number: int = 0) -> Saved:
        """A checkpoint of an instance, in memory."""
        one.keep(0.0, self._run.now)
        one.number += 1
        one.half.took(kind)
        one.version += 1
        told = Checkpoint(
            one.name,
            one.number,
            dict(one.sent),
            dict(one.received),
            kind,
            number,
            dict(one.unlogged),
            one.rows,
            one.half.waited,
        )
        one.choose_logs()
        pause = self._run.costs.snapshot + self._run.costs.snapshot_byte * one.kept
        self._run.tally.took(kind, self._run.now, pause, number)
        wires = len(told.sent) + len(told.received)
        self._run.tally.report_bytes += self._run.costs.report_bytes + self._run.costs.report_wire_bytes * wires
        return Saved(
            told, one.rows, one.digest, one.kept, one.window, one.next_epoch, one.half.state(), self._run.now, pause
        )

    def checkpoint(self, one: Instance, kind: str, number: int = 0) -> float:
        """Take one and begin to write it; gives how long nobody works meanwhile."""
        saved = self._taken(one, kind, number)
        self._write(saved)
        return saved.pause

    def _write(self, saved: Saved) -> None:
        one = self._run.graph.instances[saved.told.instance]
        ready = max(self._run.now, saved.begun + saved.pause)
        size = saved.kept + saved.captured_bytes
        one.durable_at = max(one.durable_at, ready + self._run.costs.write + self._run.costs.write_byte * size)
        self._run.at(one.durable_at, self._durable, saved)

    def _durable(self, saved: Saved) -> None:
        self._run.recovery.keep(saved)
        self._run.central.reported(saved.told)
        self._run.tally.durable(
            saved.told.round, self._run.now, self._run.now - saved.begun, len(self._run.graph.names)
        )
