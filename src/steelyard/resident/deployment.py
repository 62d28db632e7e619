"""A dataflow in one worker: its instances, and the channels between them and to other workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steelyard.core.dataflow import Channel, Dataflow, Instance, Placement, Route
from steelyard.resident.channel import CREDIT, Mailbox, Message, Outlet
from steelyard.resident.costs import CostMeter, learns_costs, schedulers_of
from steelyard.resident.operator import ALONE, Attempt, InstanceContext
from steelyard.resident.output import Output
from steelyard.resident.routing import ByCost, distributor
from steelyard.resident.runner import Runner
from steelyard.resident.wire import Frame, Kind, Packer, WireError, batch_from

Send = Callable[[int, Kind, int, int, Any, bytes], None]
"""(worker, kind, channel, number, payload, note): brings a frame to another worker."""
_NUMBER = 8
"""Bytes of a number in a frame."""
DEEPEST = 32
"""Instances that follow each other in one thread: each calls the next, and Python's stack has an end."""


@dataclass(frozen=True)
class Events:
    """What a deployment tells its worker."""

    failed: Callable[[Instance, BaseException], None]
    ended: Callable[[Instance], None]
    deliver: Callable[[Instance, pa.RecordBatch], None]


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
    """

    def __init__(
        self,
        dataflow: Dataflow,
        placement: Placement,
        worker: int,
        send: Send,
        events: Events,
        attempt: Attempt = ALONE,
    ) -> None:
        self._attempt = attempt
        self.dataflow, self._placement, self._worker, self._send = dataflow, placement, worker, send
        self._channels = dataflow.channels()
        self._mailboxes: dict[Instance, Mailbox] = {}
        self._outlets: dict[int, Outlet] = {}
        self._hearing: dict[int, ByCost] = {}
        hosted = placement.hosted(worker)
        self._followed = self._followed_channels()
        for instance in hosted:
            into = self._into(instance)
            metered = [one.number for one in into if learns_costs(one, dataflow)]
            self._mailboxes[instance] = Mailbox([(one, self._granting(one)) for one in into], metered)
        for channel in self._channels:
            if channel.sender in self._mailboxes:
                credit = None if channel.feedback or channel.number in self._followed else CREDIT
                self._outlets[channel.number] = Outlet(channel, self._transmitting(channel), credit)
        self.runners = {instance: self._runner(instance, events) for instance in hosted}
        for number in self._followed:
            channel = self._channels[number]
            self.runners[channel.receiver].follow(self.runners[channel.sender])

    def _followed_channels(self) -> set[int]:
        """The channels whose receiver runs in the thread of the sender: where a chain is long, not all that could."""
        behind: dict[Instance, list[Channel]] = {}
        for channel in self._channels:
            if self._may_follow(channel):
                behind.setdefault(channel.sender, []).append(channel)
        led = {channel.receiver for channels in behind.values() for channel in channels}
        walked = [(instance, 1) for instance in behind if instance not in led]
        followed = set()
        for instance, depth in walked:  # grows while it is walked
            for channel in behind.get(instance, ()):
                if depth < DEEPEST:
                    followed.add(channel.number)
                walked.append((channel.receiver, depth % DEEPEST + 1))
        return followed

    def _may_follow(self, channel: Channel) -> bool:
        """Whether the receiver could run in the thread of the sender, who is here and the only one that sends to it."""
        here = all(self._placement.worker_of[one] == self._worker for one in (channel.sender, channel.receiver))
        forward = self.dataflow.edges[channel.edge].grouping.route is Route.FORWARD
        return here and forward and not channel.feedback and self._into(channel.receiver) == [channel]

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
            self._send(receiver, message.kind, channel.number, message.number, payload, message.note)

        return transmit

    def _runner(self, instance: Instance, events: Events) -> Runner:
        operator = self.dataflow.by_name[instance.operator]
        inputs = [
            next(
                self.dataflow.schemas[edge.source]
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
            lambda batch: events.deliver(instance, batch),
            self._attempt,
        )
        logic: Any = operator.logic
        outputs = []
        for number, edge in enumerate(self.dataflow.edges):
            if edge.source == instance.operator:
                reached = {
                    channel.receiver.number: self._outlets[channel.number]
                    for channel in self._channels
                    if channel.edge == number and channel.sender == instance
                }
                receivers = self.dataflow.by_name[edge.target].parallelism
                first, several = schedulers_of(self.dataflow, number)
                chooses = distributor(edge, instance, receivers, (first + instance.number, several))
                chooses.prepare(context.schema)
                if isinstance(chooses, ByCost):
                    reporting = [outlet.channel for outlet in reached.values()]
                    chooses.received = {one.number: 0 for one in reporting if learns_costs(one, self.dataflow)}
                    self._hearing |= dict.fromkeys(chooses.received, chooses)
                    if chooses.received and not edge.feedback:
                        chooses.follow(reached)
                outputs.append(Output(chooses, reached))
        mailbox, channels = self._mailboxes[instance], self._into(instance)
        meters = self._meters(instance, channels)
        return Runner(instance, logic.start(context), mailbox, channels, outputs, events.failed, events.ended, meters)

    def _meters(self, instance: Instance, channels: list[Channel]) -> dict[int, CostMeter]:
        """By channel: what measures its rows; channels of edges that are grouped alike share it."""
        found: dict[int, CostMeter] = {}
        measured = [channel for channel in channels if learns_costs(channel, self.dataflow)]
        for kind in dict.fromkeys((one.port, self.dataflow.edges[one.edge].grouping) for one in measured):
            alike = [one for one in measured if (one.port, self.dataflow.edges[one.edge].grouping) == kind]
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
        self._mailboxes[channel.receiver].put(channel.number, Message(frame.kind, frame.number, value, frame.note))

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
