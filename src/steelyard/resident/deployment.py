"""A dataflow in one worker: its instances, and the channels between them and to other workers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from steelyard.checkpoint import CheckpointProtocol, Place
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Channel, Instance, Placement
from steelyard.resident.chains import Chains
from steelyard.resident.channel import CREDIT, Mailbox, Message, Outlet
from steelyard.resident.checkpointer import Checkpointer, Taken, counters_of
from steelyard.resident.costs import CostMeter, learns_costs, observes_costs, schedulers_of
from steelyard.resident.keeper import Keeper, Replay
from steelyard.resident.operator import ALONE, Attempt, InstanceContext, State
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


@dataclass(frozen=True)
class Events:
    """What a deployment tells its worker."""

    failed: Callable[[Instance, BaseException], None]
    ended: Callable[[Instance], None]
    deliver: Callable[[Instance, pa.RecordBatch, int], None]
    """Results of a sink, and the number of the checkpoint that they will be in."""


class Deployment:
    """The instances that a placement gives to one worker.

    Parameters
    ----------
    dataflow, placement, worker
        What is to run, where, and which worker this is.
    send
        Brings frames to other workers.
    events
        What the worker wants to hear of.
    attempt
        Which attempt of the job this is part of.
    protocol, keeper
        How checkpoints are taken while rows come, and who writes them; None where all stop for them.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        placement: Placement,
        worker: int,
        send: Send,
        events: Events,
        attempt: Attempt = ALONE,
        protocol: CheckpointProtocol | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._attempt = attempt
        self.dataflow, self._placement, self._worker, self._send = dataflow, placement, worker, send
        self._channels = dataflow.channels()
        self._mailboxes: dict[Instance, Mailbox] = {}
        self._outlets: dict[int, Outlet] = {}
        self._hearing: dict[int, Hearing] = {}
        self._observed = [number for number, edge in enumerate(dataflow.edges) if observes_costs(edge, dataflow)]
        """Edges whose routers observe what their rows cost."""
        hosted = placement.hosted(worker)
        self._chains = Chains(dataflow, placement)
        self._followed = self._chains.followed
        self._marked = protocol is not None and protocol.marks
        overtaking = protocol is not None and protocol.overtakes
        for instance in hosted:
            into = self._into(instance)
            metered = [one.number for one in into if learns_costs(one, dataflow)]
            self._mailboxes[instance] = Mailbox([(one, self._granting(one)) for one in into], metered, overtaking)
        for channel in self._channels:
            if channel.sender in self._mailboxes:
                credit = None if channel.feedback or channel.number in self._followed else CREDIT
                self._outlets[channel.number] = Outlet(channel, self._transmitting(channel), credit)
        self.runners = {instance: self._runner(instance, events) for instance in hosted}
        for number in self._followed:
            channel = self._channels[number]
            if channel.sender in self.runners:
                self.runners[channel.receiver].follow(self.runners[channel.sender])
        if protocol is not None and keeper is not None:
            self._checkpoint(protocol, keeper)

    def _checkpoint(self, protocol: CheckpointProtocol, keeper: Keeper) -> None:
        """Put the half of a protocol beside each chain that is here."""
        instances, wires = list(map(str, self._chains.heads)), self._chains.wires()
        for head in self._chains.heads:
            if head in self.runners:
                members = [self.runners[one] for one in self._chains.members(head)]
                leading = {outlet.channel.number: outlet for one in members for outlet in one.outlets}
                outlets = {number: outlet for number, outlet in leading.items() if number not in self._followed}
                place = Place.of(str(head), instances, wires)
                keep = partial(_kept, keeper, self.runners[head])
                made = Checkpointer(protocol, place, members, self._mailboxes[head], outlets, keep)
                self.runners[head].checkpointer = made

    def restore(
        self, instance: Instance, state: State, sent: Mapping[int, int] | None = None, replay: Replay | None = None
    ) -> None:
        """Have an instance go on from its state.

        `sent` is how much had been sent into each channel; None where messages are counted from 1 again, since nothing
        was under way, and channels may have other numbers by now.
        """
        runner = self.runners[instance]
        runner.restore(state)
        if runner.checkpointer is not None:
            runner.checkpointer.restore(state.get("protocol"))
        if sent is None:
            return
        out, worked_off = counters_of(state)
        for outlet in runner.outlets:
            outlet.sent = out.get(outlet.channel.number, 0)
        for channel in self._into(instance):
            received = worked_off.get(channel.number, 0)
            came = max(sent.get(channel.number, received), received)
            schema = self.dataflow.schemas[channel.sender.operator]
            messages = (
                replay.messages(channel.number, received, came, state, schema) if replay and came > received else []
            )
            self._mailboxes[instance].restore(channel.number, came, messages)
            if messages and runner.checkpointer is not None:
                runner.checkpointer.inherit(channel.number, came)

    def _into(self, instance: Instance) -> list[Channel]:
        return [channel for channel in self._channels if channel.receiver == instance]

    def _granting(self, channel: Channel) -> Callable[[int], None]:
        """Gives the sender credit: at once where it is here, by a frame where it is elsewhere."""
        sender = self._placement.worker_of[channel.sender]
        if sender == self._worker:
            return lambda batches: self._outlets[channel.number].grant(batches)  # noqa: PLW0108 - made later
        return lambda batches: self._send(sender, Kind.CREDIT, channel.number, batches, b"", b"")

    def _telling(self, channel: Channel) -> Callable[[int, bytes], None]:
        """Brings a report to the sender of a channel: at once where it is here, by a frame where it is elsewhere."""
        sender = self._placement.worker_of[channel.sender]
        if sender == self._worker:
            return lambda number, payload: self._hearing[channel.number].hear(channel.number, number, payload)
        return lambda number, payload: self._send(sender, Kind.REPORT, channel.number, number, payload, b"")

    def _transmitting(self, channel: Channel) -> Callable[[Message], None]:
        receiver = self._placement.worker_of[channel.receiver]
        if channel.number in self._followed:
            return lambda message: self.runners[channel.sender].hand(
                self.runners[channel.receiver], channel.number, message
            )
        if receiver == self._worker:
            mailbox = self._mailboxes[channel.receiver]
            return lambda message: mailbox.put(channel.number, message)

        packer = Packer(self.dataflow.schemas[channel.sender.operator])

        def transmit(message: Message) -> None:
            payload: Any = b""
            if message.kind is Kind.DATA:
                payload = packer.payload(message.value)
            elif message.value is not None:
                payload = int(message.value).to_bytes(_NUMBER, "big", signed=True)
            note = joined_notes(message.mark, message.note) if self._marked else message.note
            self._send(receiver, message.kind, channel.number, message.number, payload, note)

        return transmit

    def _runner(self, instance: Instance, events: Events) -> Runner:
        operator = self.dataflow.by_name[instance.operator]
        inputs = [
            next(
                self.dataflow.schemas[edge.sender]
                for edge in self.dataflow.into(instance.operator)
                if edge.port == port and not edge.feedback
            )
            for port in range(operator.logic.ports)
        ]
        context = InstanceContext(
            instance,
            operator.parallelism,
            inputs,
            self.dataflow.schemas[instance.operator],
            lambda batch: events.deliver(instance, batch, self.runners[instance].checkpoints + 1),
            self._attempt,
        )
        logic: Any = operator.logic
        outputs = []
        for number, edge in enumerate(self.dataflow.edges):
            if edge.sender == instance.operator:
                reached = {
                    channel.receiver.number: self._outlets[channel.number]
                    for channel in self._channels
                    if channel.edge == number and channel.sender == instance
                }
                receivers = self.dataflow.by_name[edge.receiver].parallelism
                first, several = schedulers_of(self.dataflow, number)
                chooses = distributor(
                    edge, instance, receivers, (first + instance.number, several), self.dataflow.groups
                )
                chooses.prepare(context.schema)
                if isinstance(chooses, Hearing):
                    self._listen(chooses, reached)
                outputs.append(Output(chooses, reached))
        mailbox, channels = self._mailboxes[instance], self._into(instance)
        meters = self._meters(instance, channels)
        return Runner(instance, logic.start(context), mailbox, channels, outputs, events.failed, events.ended, meters)

    def _listen(self, chooses: Hearing, reached: Mapping[int, Outlet]) -> None:
        """Have what instances report brought to what chooses between them."""
        channels = [outlet.channel for outlet in reached.values()]
        told = [one for one in channels if learns_costs(one, self.dataflow) or one.edge in self._observed]
        chooses.listen({one.number: one.receiver.number for one in told})
        self._hearing |= dict.fromkeys(chooses.received, chooses)
        if isinstance(chooses, ByCost) and told and not told[0].feedback:
            chooses.follow(reached)

    def _meters(self, instance: Instance, channels: list[Channel]) -> dict[int, Meter]:
        """By channel: what measures its rows; channels of edges that are grouped alike share it."""
        found: dict[int, Meter] = {}
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
        if frame.channel >= len(self._channels):
            raise WireError(f"there is no channel {frame.channel}, only {len(self._channels)}")
        channel = self._channels[frame.channel]
        if frame.kind is Kind.CREDIT:
            if channel.number not in self._outlets or self._placement.worker_of[channel.receiver] != worker:
                raise WireError(f"worker {worker} gave credit for channel {channel.number}, which is not between us")
            self._outlets[channel.number].grant(frame.number)
            return
        if frame.kind is Kind.REPORT:
            if channel.number not in self._hearing or self._placement.worker_of[channel.receiver] != worker:
                raise WireError(f"worker {worker} reported on channel {channel.number}, where nobody asked it to")
            self._hearing[channel.number].hear(channel.number, frame.number, frame.payload)
            return
        if channel.receiver not in self._mailboxes or self._placement.worker_of[channel.sender] != worker:
            raise WireError(f"worker {worker} sent into channel {channel.number}, which is not between us")
        value: Any = None
        if frame.kind is Kind.DATA:
            value = batch_from(frame.payload, self.dataflow.schemas[channel.sender.operator])
        elif frame.kind in (Kind.WATERMARK, Kind.MARKER, Kind.PROBE) and len(frame.payload) == _NUMBER:
            value = int.from_bytes(frame.payload, "big", signed=True)
        elif frame.kind is not Kind.END or len(frame.payload):
            raise WireError(f"a {frame.kind.name} frame of {len(frame.payload)} bytes does not belong into a channel")
        mark, note = parted_notes(frame.note) if self._marked and frame.note else (b"", frame.note)
        self._mailboxes[channel.receiver].put(channel.number, Message(frame.kind, frame.number, value, note, mark))

    def counters(self) -> Mapping[str, dict[int, int]]:
        """By channel: messages sent from here, and messages worked off here."""
        sent: dict[int, int] = {}
        done: dict[int, int] = {}
        for runner in self.runners.values():
            runner_sent, runner_done = runner.counters()
            sent |= runner_sent
            done |= runner_done
        return {"sent": sent, "done": done}

    def stop(self, timeout: float) -> None:
        """End all instances, in the middle of their rows."""
        for runner in self.runners.values():
            runner.stop()
        for runner in self.runners.values():
            runner.join(timeout)


def _kept(keeper: Keeper, head: Runner, taken: Taken) -> None:
    assert head.checkpointer is not None, "it is the one who has taken it"
    keeper.put(head.checkpointer, taken)


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
