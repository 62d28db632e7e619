"""A dataflow in one worker: its instances, and the channels between them and to other workers."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from steelyard.checkpoint import CheckpointProtocol, Place
from steelyard.core import SteelyardError
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Instance, Placement
from steelyard.core.weights import Weights
from steelyard.resident.checkpointer import Checkpointer, Taken, counters_of
from steelyard.resident.keeper import Keeper, Replay
from steelyard.resident.moving import Reassigned, Way, state_bytes
from steelyard.resident.operator import ALONE, Attempt, InstanceContext, State, Step
from steelyard.resident.output import Output
from steelyard.resident.runner import Runner
from steelyard.resident.snapshot import packed, unpacked
from steelyard.resident.switching import GIVEN, TAKEN, Links, Turn
from steelyard.resident.wire import Frame, Kind, WireError
from steelyard.resident.wiring import Send, Wiring

_PIECE = struct.Struct("!IIII")
"""Beside a piece of a state: who gives and who takes, which piece it is, of how many."""
PIECE_BYTES = 1 << 20
"""Of a state that goes to another worker: rows go between two pieces."""
PIECES = 1 << 16
"""Most pieces of one state."""


class Settled(NamedTuple):
    """What a worker gave and took at a cut, when all of its instances have gone over."""

    cut: int
    parts: int
    bytes: int
    """Of the rows of states that went from one instance to another."""


@dataclass(frozen=True)
class Events:
    """What a deployment tells its worker."""

    failed: Callable[[Instance, BaseException], None]
    ended: Callable[[Instance], None]
    deliver: Callable[[Instance, pa.RecordBatch, int], None]
    """Results of a sink, and the number of the checkpoint that they will be in."""
    settled: Callable[[Settled], None] = lambda _: None


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
    weights
        By which rows are dealt out.
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
        weights: Weights | None = None,
    ) -> None:
        self._attempt, self._events, self._protocol, self._keeper = attempt, events, protocol, keeper
        self._weights: Weights = weights or {}
        self.dataflow, self.placement, self._worker, self._send = dataflow, placement, worker, send
        self.runners: dict[Instance, Runner] = {}
        self._before: list[Wiring] = []
        """Wirings of before, to whose channels credit may still come."""
        self._wiring = self._wired(0, 0, dataflow, placement)
        self._settling = threading.Lock()
        self._unsettled: set[tuple[Instance, str]] = set()
        self._given = [0, 0]
        """Parts and bytes that were given at this cut."""
        self._pieces: dict[tuple[int, int, int], list[bytes]] = {}
        """By operator, giver and taker: the pieces of a part that have come."""
        self._awaited: dict[tuple[int, int, int], int] = {}
        """By operator, giver and taker: the worker from which a part is to come."""
        for instance in self._wiring.hosted:
            self.runners[instance] = self._runner(instance, self._wiring)
        self._wiring.follow(self._wiring.hosted)
        self._checkpoint(self._wiring)

    @property
    def cuts(self) -> int:
        """How many there were, or are under way."""
        return self._wiring.number

    @property
    def hosted(self) -> list[Instance]:
        """The instances that are here when all have gone over."""
        return self._wiring.hosted

    def _wired(self, number: int, first: int, dataflow: Dataflow, placement: Placement) -> Wiring:
        return Wiring(
            number,
            first,
            dataflow,
            placement,
            self._worker,
            self._send,
            lambda one: self.runners[one],
            self._protocol,
            self._weights,
        )

    def _checkpointers(self, wiring: Wiring) -> dict[Instance, Checkpointer]:
        """The half of a protocol beside each chain that is here."""
        if self._protocol is None or self._keeper is None:
            return {}
        chains = wiring.chains
        found: dict[Instance, Checkpointer] = {}
        instances, wires = list(map(str, chains.heads)), chains.wires()
        for head in chains.heads:
            if head not in wiring.mailboxes:
                continue
            members = [self.runners[one] for one in chains.members(head)]
            outlets = {
                number: outlet
                for number, outlet in wiring.outlets.items()
                if outlet.channel.sender in {one.instance for one in members} and number not in wiring.followed
            }
            place = Place.of(str(head), instances, wires)
            keep = partial(_kept, self._keeper, self.runners[head])
            found[head] = Checkpointer(
                self._protocol, place, members, wiring.mailboxes[head], outlets, keep, wiring.number
            )
        return found

    def set_interval(self, seconds: float) -> None:
        """Take checkpoints so often from now on, behind cuts that follow too."""
        chosen: Any = self._protocol
        self._protocol = changed = replace(chosen, interval=seconds)
        for runner in self.runners.values():
            if runner.checkpointer is not None:
                runner.call(partial(runner.checkpointer.set_interval, changed))

    def weigh(self, weights: Weights) -> None:
        """Deal rows out by these from now on, behind cuts that follow too."""
        self._weights = weights
        for runner in self.runners.values():
            runner.call(partial(runner.weigh, weights))

    def _checkpoint(self, wiring: Wiring) -> None:
        for head, made in self._checkpointers(wiring).items():
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
        runner.weigh(self._weights)  # in the state are those of then
        if runner.checkpointer is not None:
            runner.checkpointer.restore(state.get("protocol"))
        if sent is None:
            return
        out, worked_off = counters_of(state)
        for outlet in runner.outlets:
            outlet.sent = out.get(outlet.channel.number, 0)
        for channel in self._wiring.into(instance):
            received = worked_off.get(channel.number, 0)
            came = max(sent.get(channel.number, received), received)
            schema = self.dataflow.schemas[channel.sender.operator]
            messages = (
                replay.messages(channel.number, received, came, state, schema) if replay and came > received else []
            )
            self._wiring.mailboxes[instance].restore(channel.number, came, messages)
            if messages and runner.checkpointer is not None:
                runner.checkpointer.inherit(channel.number, came)

    def _context(self, instance: Instance, dataflow: Dataflow) -> InstanceContext:
        operator = dataflow.by_name[instance.operator]
        inputs = [
            next(
                dataflow.schemas[edge.sender]
                for edge in dataflow.into(instance.operator)
                if edge.port == port and not edge.feedback
            )
            for port in range(operator.logic.ports)
        ]
        return InstanceContext(
            instance,
            operator.parallelism,
            inputs,
            dataflow.schemas[instance.operator],
            lambda batch: self._events.deliver(instance, batch, self.runners[instance].checkpoints + 1),
            self._attempt,
        )

    def _fresh(self, instance: Instance, dataflow: Dataflow) -> Step:
        logic: Any = dataflow.by_name[instance.operator].logic
        step: Step = logic.start(self._context(instance, dataflow))
        return step

    def _runner(self, instance: Instance, wiring: Wiring) -> Runner:
        links = self._links(instance, wiring)
        step = self._fresh(instance, wiring.dataflow)
        return Runner(instance, step, links, self._events.failed, self._events.ended, wiring.meters(instance))

    @staticmethod
    def _links(
        instance: Instance,
        wiring: Wiring,
        before: Mapping[str, Output] | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> Links:
        outputs = wiring.outputs(instance, before)
        return Links(wiring.number, wiring.mailboxes[instance], wiring.into(instance), outputs, checkpointer)

    def prepare(self, cut: int, dataflow: Dataflow, placement: Placement) -> None:
        """Make ready what all instances go over to at the next cut; those that are new begin, and wait."""
        old = self._wiring
        new = self._wired(cut, old.behind, dataflow, placement)
        was = {one.name: one.parallelism for one in self.dataflow.operators}
        changed = {one.name for one in dataflow.operators if one.parallelism != was[one.name]}
        moved = {name: Reassigned.of(dataflow, was[name], name) for name in changed}
        there, placed = dict(self.runners), self.placement
        made = {one: self._runner(one, new) for one in new.hosted if one not in there}
        self.runners = there | made
        new.follow(made)
        self._before, self._wiring = [*self._before[-1:], old], new
        self.dataflow, self.placement = dataflow, placement
        self._await(moved, placed)
        beside = self._checkpointers(new)
        for instance, runner in there.items():
            links = None
            if instance in new.mailboxes:
                kept = _kept_outputs(runner.links.outputs, instance, dataflow, changed)
                links = self._links(instance, new, kept, beside.get(instance))
            runner.prepare(self._turn(instance, links, moved.get(instance.operator)))
        for instance, runner in made.items():
            runner.checkpointer = beside.get(instance)
            runner.await_parts(self._turn(instance, None, moved[instance.operator]))
            runner.start()

    def _turn(self, instance: Instance, links: Links | None, moved: Reassigned | None) -> Turn:
        return Turn(
            links,
            moved,
            partial(self._fresh, instance, self.dataflow),
            partial(self._give, instance),
            self._has_settled,
        )

    def _await(self, moved: Mapping[str, Reassigned], before: Placement) -> None:
        """Who has to go over, give and take before all have settled."""
        hosted, was = set(self._wiring.hosted), set(before.hosted(self._worker))
        unsettled = {(one, TAKEN) for one in was}
        names = [one.name for one in self.dataflow.operators]
        self._awaited, self._pieces, self._given = {}, {}, [0, 0]
        for name, one in moved.items():
            mine = [other for other in hosted | was if other.operator == name]
            if one.way is not Way.NOTHING:
                unsettled |= {(other, TAKEN) for other in mine}
            unsettled |= {(other, GIVEN) for other in mine if other in was and one.takers(other.number)}
            for other in mine:
                for giver in one.givers(other.number) if other in hosted else ():
                    from_where = before.worker_of[Instance(name, giver)]
                    self._awaited[names.index(name), giver, other.number] = from_where
        self._unsettled = unsettled

    def cut(self) -> None:
        """Have the sources that are here go over; all others do so when they have worked off what comes before."""
        for answer in [one.cut() for one in list(self.runners.values()) if one.is_source]:
            answer.result()
        self._tell_if_settled()

    def _has_settled(self, instance: Instance, what: str) -> None:
        with self._settling:
            self._unsettled.discard((instance, what))
            if what == TAKEN and instance not in self._wiring.mailboxes:
                self.runners = {one: runner for one, runner in self.runners.items() if one != instance}
        self._tell_if_settled()

    def _tell_if_settled(self) -> None:
        with self._settling:
            if self._unsettled:
                return
            self._unsettled = {(Instance("", 0), "")}  # it is told once
            found = Settled(self.cuts, *self._given)
        self._events.settled(found)

    def _give(self, giver: Instance, taker: int, part: State) -> None:
        """Bring a part of a state to another instance of the same operator."""
        with self._settling:
            self._given[0] += 1
            self._given[1] += state_bytes(part)
        worker = self.placement.worker_of[Instance(giver.operator, taker)]
        if worker == self._worker:
            self.runners[Instance(giver.operator, taker)].take_part(giver.number, part)
            return
        operator = [one.name for one in self.dataflow.operators].index(giver.operator)
        data = memoryview(packed(part))
        many = max(-(-len(data) // PIECE_BYTES), 1)
        if many > PIECES:
            raise SteelyardError(f"the part of {giver} has {len(data)} bytes, and {PIECES * PIECE_BYTES} are the most")
        for number in range(many):
            note = _PIECE.pack(giver.number, taker, number, many)
            piece = bytes(data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES])
            self._send(worker, Kind.STATE, operator, self.cuts, piece, note)

    def _take_piece(self, worker: int, frame: Frame) -> None:
        """A piece of a state has come; WireError where it is not the next one that is awaited."""
        if frame.number != self.cuts or len(frame.note) != _PIECE.size:
            raise WireError(f"worker {worker} sent a state at cut {frame.number}, and this is cut {self.cuts}")
        giver, taker, number, many = _PIECE.unpack(frame.note)
        whose = (frame.channel, giver, taker)
        if self._awaited.get(whose) != worker or not 0 < many <= PIECES or len(frame.payload) > PIECE_BYTES:
            raise WireError(f"worker {worker} sent a state of instance {giver} for {taker}, which nobody awaits")
        pieces = self._pieces.setdefault(whose, [])
        if number != len(pieces):
            raise WireError(f"worker {worker} sent piece {number} of a state behind {len(pieces)} of {many}")
        pieces.append(bytes(frame.payload))
        if len(pieces) == many:
            del self._awaited[whose], self._pieces[whose]
            name = self.dataflow.operators[frame.channel].name
            self.runners[Instance(name, taker)].take_part(giver, _unpacked(pieces, worker))

    def receive(self, worker: int, frame: Frame) -> None:
        """A frame of another worker has come; WireError where it is none that this worker could send."""
        if frame.kind is Kind.STATE:
            self._take_piece(worker, frame)
            return
        for wiring in (self._wiring, *reversed(self._before)):
            if frame.channel >= wiring.first:
                wiring.receive(worker, frame)
                return
        raise WireError(f"worker {worker} sent a {frame.kind.name} through channel {frame.channel}, which is no more")

    def counters(self) -> Mapping[str, dict[int, int]]:
        """By channel: messages sent from here, and messages worked off here."""
        sent: dict[int, int] = {}
        done: dict[int, int] = {}
        for runner in list(self.runners.values()):
            runner_sent, runner_done = runner.counters()
            sent |= runner_sent
            done |= runner_done
        return {"sent": sent, "done": done}

    def stop(self, timeout: float) -> None:
        """End all instances, in the middle of their rows."""
        runners: Sequence[Runner] = list(self.runners.values())
        for runner in runners:
            runner.stop()
        for runner in runners:
            runner.join(timeout)


def _kept(keeper: Keeper, head: Runner, taken: Taken) -> None:
    assert head.checkpointer is not None, "it is the one who has taken it"
    keeper.put(head.checkpointer, taken)


def _kept_outputs(
    outputs: Mapping[str, Output], instance: Instance, dataflow: Dataflow, changed: set[str]
) -> dict[str, Output]:
    """Those whose edges lead to as many instances as before, from as many."""
    if instance.operator in changed:
        return {}
    same = [f"{number} {edge}" for number, edge in enumerate(dataflow.edges) if edge.receiver not in changed]
    return {name: outputs[name] for name in same if name in outputs}


def _unpacked(pieces: Sequence[bytes], worker: int) -> State:
    """A state that came from another worker, looked at in full."""
    try:
        state = unpacked(b"".join(pieces))
        for value in state.values():
            if isinstance(value, pa.Table):
                value.validate(full=True)
        if not isinstance(state["own"], dict):
            raise TypeError("it does not say how far event time is")
    except Exception as error:
        raise WireError(f"worker {worker} sent a state that is none: {error}") from error
    return state
