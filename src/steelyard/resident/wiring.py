"""The channels of one worker's instances, from one cut to the next.

A generation begins with the channels of its dataflow. Where operators get other numbers of instances in place, all
channels are replaced by those of the new dataflow at a cut (`switching.py`): an instance goes over to its new ones
when a CUT has come through each of its old ones, and messages are counted from 1 again. Those of whoever is
further wait in the new mailbox meanwhile. On the wire the channels of all wirings have different numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from steelyard.checkpoint import CheckpointProtocol
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Channel, Instance, Placement
from steelyard.core.weights import Weights
from steelyard.resident.chains import Chains
from steelyard.resident.channel import CREDIT, Mailbox, Message, Outlet
from steelyard.resident.costs import CostMeter, learns_costs, observes_costs, schedulers_of
from steelyard.resident.output import Output
from steelyard.resident.rounds import RoundMeter
from steelyard.resident.routing import ByCost, Hearing, distributor
from steelyard.resident.runner import Meter, Runner
from steelyard.resident.wire import Frame, Kind, Packer, WireError, batch_from

Send = Callable[[int, Kind, int, int, Any, bytes], None]
"""(worker, kind, channel, number, payload, note): brings a frame to another worker."""
_NUMBER = 8
"""Bytes of a number in a frame."""
_MARK = struct.Struct("!H")
"""Bytes of a protocol's note, before it."""


class Wiring:
    """Mailboxes, outlets and what decides between them, of the instances that a placement gives to one worker.

    Parameters
    ----------
    number
        How many cuts there were before, in this generation.
    first
        What its channel 0 is called on the wire.
    dataflow, placement, worker
        What runs where, and which worker this is.
    send
        Brings frames to other workers.
    runner
        Who runs an instance that is here.
    protocol
        How checkpoints are taken while rows come; None where all stop for them.
    weights
        By which rows are dealt out.
    """

    def __init__(
        self,
        number: int,
        first: int,
        dataflow: Dataflow,
        placement: Placement,
        worker: int,
        send: Send,
        runner: Callable[[Instance], Runner],
        protocol: CheckpointProtocol | None,
        weights: Weights,
    ) -> None:
        self.number, self.first, self.dataflow, self._weights = number, first, dataflow, weights
        self._placement, self._worker, self._send, self._runner = placement, worker, send, runner
        self._channels = dataflow.channels()
        self.mailboxes: dict[Instance, Mailbox] = {}
        self.outlets: dict[int, Outlet] = {}
        self._hearing: dict[int, Hearing] = {}
        self._observed = [one for one, edge in enumerate(dataflow.edges) if observes_costs(edge, dataflow)]
        """Edges whose routers observe what their rows cost."""
        self.hosted = placement.hosted(worker)
        self.chains = Chains(dataflow, placement)
        self.followed = self.chains.followed
        self._marked = protocol is not None and protocol.marks
        overtaking = protocol is not None and protocol.overtakes
        for instance in self.hosted:
            into = self.into(instance)
            metered = [one.number for one in into if learns_costs(one, dataflow)]
            self.mailboxes[instance] = Mailbox([(one, self._granting(one)) for one in into], metered, overtaking)
        for channel in self._channels:
            if channel.sender in self.mailboxes:
                credit = None if channel.feedback or channel.number in self.followed else CREDIT
                self.outlets[channel.number] = Outlet(channel, self._transmitting(channel), credit)

    @property
    def behind(self) -> int:
        """The number on the wire behind its last channel."""
        return self.first + len(self._channels)

    def into(self, instance: Instance) -> list[Channel]:
        """The channels that lead to an instance."""
        return [channel for channel in self._channels if channel.receiver == instance]

    def follow(self, those: Collection[Instance]) -> None:
        """Have instances run in the threads of those before them; called once, before any of them starts."""
        for number in self.followed:
            channel = self._channels[number]
            if channel.sender in those:
                self._runner(channel.receiver).follow(self._runner(channel.sender))

    def _granting(self, channel: Channel) -> Callable[[int], None]:
        """Gives the sender credit: at once where it is here, by a frame where it is elsewhere."""
        sender = self._placement.worker_of[channel.sender]
        if sender == self._worker:
            return lambda batches: self.outlets[channel.number].grant(batches)  # noqa: PLW0108 - made later
        return lambda batches: self._send(sender, Kind.CREDIT, self.first + channel.number, batches, b"", b"")

    def _telling(self, channel: Channel) -> Callable[[int, bytes], None]:
        """Brings a report to the sender of a channel: at once where it is here, by a frame where it is elsewhere."""
        sender = self._placement.worker_of[channel.sender]
        if sender == self._worker:
            return lambda number, payload: self._hearing[channel.number].hear(channel.number, number, payload)
        return lambda number, payload: self._send(
            sender, Kind.REPORT, self.first + channel.number, number, payload, b""
        )

    def _transmitting(self, channel: Channel) -> Callable[[Message], None]:
        receiver = self._placement.worker_of[channel.receiver]
        if channel.number in self.followed:
            return lambda message: self._runner(channel.sender).hand(
                self._runner(channel.receiver), channel.number, message
            )
        if receiver == self._worker:
            mailbox = self.mailboxes[channel.receiver]
            return lambda message: mailbox.put(channel.number, message)

        packer, on_wire = Packer(self.dataflow.schemas[channel.sender.operator]), self.first + channel.number

        def transmit(message: Message) -> None:
            payload: Any = b""
            if message.kind is Kind.DATA:
                payload = packer.payload(message.value)
            elif message.value is not None:
                payload = int(message.value).to_bytes(_NUMBER, "big", signed=True)
            note = joined_notes(message.mark, message.note) if self._marked else message.note
            self._send(receiver, message.kind, on_wire, message.number, payload, note)

        return transmit

    def outputs(self, instance: Instance, before: Mapping[str, Output] | None = None) -> dict[str, Output]:
        """By edge: what goes out of an instance. What decides between instances is that of `before`, where given."""
        made: dict[str, Output] = {}
        for number, edge in enumerate(self.dataflow.edges):
            if edge.sender != instance.operator:
                continue
            reached = {
                channel.receiver.number: self.outlets[channel.number]
                for channel in self._channels
                if channel.edge == number and channel.sender == instance
            }
            name = f"{number} {edge}"
            if before is not None and name in before:
                made[name] = Output(before[name].distributor, reached)
                continue
            first, several = schedulers_of(self.dataflow, number)
            chooses = distributor(
                edge,
                instance,
                self.dataflow.by_name[edge.receiver].parallelism,
                (first + instance.number, several),
                self.dataflow.groups,
            )
            chooses.prepare(self.dataflow.schemas[instance.operator])
            if isinstance(chooses, Hearing):
                self._listen(chooses, reached)
            made[name] = Output(chooses, reached)
            made[name].weigh(self._weights)
        return made

    def _listen(self, chooses: Hearing, reached: Mapping[int, Outlet]) -> None:
        """Have what instances report brought to what chooses between them."""
        channels = [outlet.channel for outlet in reached.values()]
        told = [one for one in channels if learns_costs(one, self.dataflow) or one.edge in self._observed]
        chooses.listen({one.number: one.receiver.number for one in told})
        self._hearing |= dict.fromkeys(chooses.received, chooses)
        if isinstance(chooses, ByCost) and told and not told[0].feedback:
            chooses.follow(reached)

    def meters(self, instance: Instance) -> dict[int, Meter]:
        """By channel: what measures its rows; channels of edges that are grouped alike share it."""
        channels, found = self.into(instance), dict[int, Meter]()
        rounds = {one.number: self._telling(one) for one in channels if one.edge in self._observed}
        if rounds:
            found |= dict.fromkeys(rounds, RoundMeter(rounds))
        measured = [channel for channel in channels if learns_costs(channel, self.dataflow)]
        while measured:
            kind = (measured[0].port, self.dataflow.edges[measured[0].edge].grouping)
            alike = [one for one in measured if (one.port, self.dataflow.edges[one.edge].grouping) == kind]
            measured = [one for one in measured if one not in alike]
            places = {one.number: schedulers_of(self.dataflow, one.edge) for one in alike}
            numbers = {one.number: places[one.number][0] + one.sender.number for one in alike}
            several = places[alike[0].number][1]
            instances = self.dataflow.by_name[instance.operator].parallelism
            tell = {one.number: self._telling(one) for one in alike}
            meter = CostMeter(kind[1].policy, instance.number, instances, (numbers, several), tell)
            meter.prepare(self.dataflow.schemas[alike[0].sender.operator])
            found |= dict.fromkeys(tell, meter)
        return found

    def receive(self, worker: int, frame: Frame) -> None:
        """A frame of another worker has come; WireError where it is none that this worker could send."""
        number = frame.channel - self.first
        if number >= len(self._channels):
            raise WireError(f"there is no channel {number}, only {len(self._channels)}")
        channel = self._channels[number]
        if frame.kind is Kind.CREDIT:
            if number not in self.outlets or self._placement.worker_of[channel.receiver] != worker:
                raise WireError(f"worker {worker} gave credit for channel {number}, which is not between us")
            self.outlets[number].grant(frame.number)
            return
        if frame.kind is Kind.REPORT:
            if number not in self._hearing or self._placement.worker_of[channel.receiver] != worker:
                raise WireError(f"worker {worker} reported on channel {number}, where nobody asked it to")
            self._hearing[number].hear(number, frame.number, frame.payload)
            return
        if channel.receiver not in self.mailboxes or self._placement.worker_of[channel.sender] != worker:
            raise WireError(f"worker {worker} sent into channel {number}, which is not between us")
        value: Any = None
        if frame.kind is Kind.DATA:
            value = batch_from(frame.payload, self.dataflow.schemas[channel.sender.operator])
        elif frame.kind in (Kind.WATERMARK, Kind.MARKER, Kind.PROBE) and len(frame.payload) == _NUMBER:
            value = int.from_bytes(frame.payload, "big", signed=True)
        elif frame.kind not in (Kind.END, Kind.CUT) or len(frame.payload):
            raise WireError(f"a {frame.kind.name} frame of {len(frame.payload)} bytes does not belong into a channel")
        mark, note = parted_notes(frame.note) if self._marked and frame.note else (b"", frame.note)
        self.mailboxes[channel.receiver].put(number, Message(frame.kind, frame.number, value, note, mark))


def joined_notes(mark: bytes, note: bytes) -> bytes:
    """What a protocol and whoever chose the receiver add to a message, as one note of a frame.

    >>> parted_notes(joined_notes(b"clock", b"round"))
    (b'clock', b'round')
    """
    return _MARK.pack(len(mark)) + mark + note if mark or note else b""


def parted_notes(note: bytes) -> tuple[bytes, bytes]:
    """The two of which `joined_notes` made one; WireError where it did not."""
    if len(note) < _MARK.size or len(note) < _MARK.size + _MARK.unpack_from(note)[0]:
        raise WireError(f"a note of {len(note)} bytes is too short for what it says to have")
    end = _MARK.size + _MARK.unpack_from(note)[0]
    return note[_MARK.size : end], note[end:]
