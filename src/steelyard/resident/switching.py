"""How an instance goes over to other channels, and hands on what it knows, while rows come.

**The cut.** The coordinator has all workers prepare the channels of the new dataflow, and then all sources cut: each
sends a CUT through its old channels, behind all it has sent, and goes on through its new ones. An instance that got a
CUT through each of its old channels has worked off all that was ever sent into them. It sends a CUT itself, and goes
over to its new channels, in which the rows of whoever was earlier wait. So nothing is lost, doubled, or out of order
within a key, and whatever is sent before the cut is worked off before it: the cut is a line at which nothing is under
way. Checkpoint protocols begin anew there. Whoever fails before the first line behind it goes back to the last one
before it, with the numbers of then.

**States.** An operator that is rescaled gets its rows from the same senders in all of its instances: at the cut these
are equally far, also in event time. Each gives away what is no longer its own, by a thread beside it, and goes on.
Whoever takes holds the rows of what has not come (`moving.py`), and works them off when all has.

**No deadlock.** That an instance comes to its cut depends on rows before the cut alone, and those behind it have
mailboxes and room of their own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steelyard.core.topology import Channel, Instance
from steelyard.core.weights import Weights
from steelyard.resident.channel import Mailbox, Message, StoppedError
from steelyard.resident.checkpointer import Checkpointer
from steelyard.resident.event_time import EventTime
from steelyard.resident.metrics import InstanceMetrics
from steelyard.resident.moving import Awaiting, Reassigned, Way, of_step
from steelyard.resident.operator import MIN_WATERMARK, State, Step, owned
from steelyard.resident.output import Output
from steelyard.resident.wire import Kind


@dataclass(frozen=True)
class Links:
    """Through what an instance gets and gives, between two cuts.

    Parameters
    ----------
    number
        How many cuts there were before, in this generation.
    mailbox, channels
        What comes in, and the channels that lead here.
    outputs
        What goes out, by edge.
    checkpointer
        Takes checkpoints of its chain, where it is the first of one and a protocol wants them.
    """

    number: int
    mailbox: Mailbox
    channels: Sequence[Channel]
    outputs: Mapping[str, Output]
    checkpointer: Checkpointer | None = None


@dataclass(frozen=True)
class Turn:
    """What an instance does at a cut.

    Parameters
    ----------
    links
        To what it goes over; None where it is gone behind the cut.
    reassigned
        Where its operator is rescaled: what moves.
    fresh
        Makes a step that has seen no row.
    give
        (instance, part): brings it there; may take long.
    settled
        Told that it has gone over and has all that it takes, and that it has given all that it gives.
    """

    links: Links | None
    reassigned: Reassigned | None
    fresh: Callable[[], Step]
    give: Callable[[int, State], None]
    settled: Callable[[Instance, str], None]


TAKEN, GIVEN = "taken", "given"
"""What an instance tells."""


class Switching(ABC):
    """The links of an instance, and how it gets others.

    Parameters
    ----------
    instance, step
        Which, and what it runs.
    links
        With which it begins.
    failed
        Called with what the instance raised.
    """

    def __init__(
        self, instance: Instance, step: Any, links: Links, failed: Callable[[Instance, BaseException], None]
    ) -> None:
        self.instance, self.metrics = instance, InstanceMetrics()
        self._step, self._failed = step, failed
        self.checkpoints = 0
        """How many were taken, those of earlier generations included: the number of the last."""
        self._finished = False
        """Whether the end was told to the step, perhaps before the snapshot, and no row has come since."""
        self._stopping = False
        self._refused = 0
        """Rows that steps before this one refused."""
        self._event_time = EventTime({})
        self._turn: Turn | None = None
        self._awaiting: Awaiting | None = None
        self._alone = False
        """Whether each message is worked off by itself."""
        self._came: dict[int, State] = {}
        """By instance: what it gave."""
        self._link(links)

    def _link(self, links: Links) -> None:
        """Go over to these."""
        self.links = links
        self._mailbox, self._outputs = links.mailbox, list(links.outputs.values())
        self.checkpointer: Checkpointer | None = links.checkpointer
        """Takes checkpoints of its chain, where it is the first of one and a protocol wants them."""
        inputs = {one.number: f"{one.sender} {one.port}" for one in links.channels if not one.feedback}
        self._event_time = self._event_time.among(inputs)
        self._uncut = {channel.number for channel in links.channels}
        """Channels through which no CUT has come."""
        self._open = {channel.number for channel in links.channels}
        self._loops = {channel.number for channel in links.channels if channel.feedback}

    def weigh(self, weights: Weights) -> None:
        """Deal rows out by these from now on; in its own thread."""
        for output in self._outputs:
            output.weigh(weights)

    @abstractmethod
    def call(self, action: Callable[[], Any]) -> Future[Any]:
        """Have the thread that the instance runs in do something between two messages."""

    @abstractmethod
    def _work(self, channel: Channel, message: Message) -> int:
        """Work a message off; gives how many were."""

    @abstractmethod
    def _emit(self, made: Callable[[], Iterable[pa.RecordBatch]], rows: int) -> float:
        """Call the operator and send what it gives."""

    @abstractmethod
    def _advance(self, watermark: int) -> None:
        """The instance has come so far in event time."""

    @abstractmethod
    def _end_if_all_ended(self) -> None:
        """End where nothing comes any more."""

    def prepare(self, turn: Turn) -> None:
        """What it is to do at the next cut; before anybody cuts."""
        self._turn = turn

    def cut(self) -> Future[None]:
        """Go over to the other links now; for sources."""
        return self.call(self._switch)

    def await_parts(self, turn: Turn) -> None:
        """It begins behind a cut, and gets from others what it is to know; called before `start`."""
        self._turn = turn
        assert turn.reassigned is not None, "else it would have been there"
        if turn.reassigned.way is not Way.NOTHING:
            alone = self.checkpointer is not None and self.checkpointer.alone
            self._awaiting = Awaiting(turn.reassigned, self.instance.number, everything=True, owes=alone)

    def take_part(self, giver: int, part: State) -> None:
        """What another instance of its operator gave; any thread may call it."""
        self.call(lambda: self._take(giver, part))

    def _cut_through(self, channel: Channel) -> None:
        """A CUT has come through a channel."""
        self._uncut.discard(channel.number)
        if not self._uncut:
            self._switch()

    def _switch(self) -> None:
        turn = self._turn
        assert turn is not None, "all workers have prepared before anybody cuts"
        for output in self._outputs:
            output.cut()
        self._give(turn)
        if turn.links is None:
            self._turn, self._stopping = None, True
            turn.settled(self.instance, TAKEN)
            return
        self._link(turn.links)
        if self._stopping:  # whoever stops wakes those that wait in what was linked then
            raise StoppedError(f"{self.instance} was stopped")
        self.metrics.done = False  # whoever has ended says so once more
        if self._event_time.newest > MIN_WATERMARK:
            for output in self._outputs:
                output.tell(Kind.WATERMARK, self._event_time.newest)
        moved, number = turn.reassigned, self.instance.number
        if moved is not None and (moved.way is Way.WHOLE or moved.givers(number)):
            alone = self.checkpointer is not None and self.checkpointer.alone
            self._awaiting = Awaiting(moved, number, moved.way is Way.WHOLE or alone, owes=alone)
            self._settle_if_all_came()
        else:
            self._settled()

    def _settled(self) -> None:
        turn, self._turn = self._turn, None
        assert turn is not None, "it is settled once"
        turn.settled(self.instance, TAKEN)

    def _give(self, turn: Turn) -> None:
        """Give away what is of others from now on, in a thread beside."""
        moved, me = turn.reassigned, self.instance.number
        if moved is None or moved.way is Way.NOTHING:
            return
        own = {"watermark": self._event_time.newest, "done": self._finished}
        takers = moved.takers(me)
        if moved.way is Way.GROUPS:
            parts = self._step.give(moved, me) if takers else {}
        else:
            self.checkpoints += 1
            state = self._step.snapshot(self.checkpoints)
            parts = dict.fromkeys(takers, state)
            self._came[me] = _with_own(own, state)
        if not takers:
            return
        gone = {taker: _with_own(own, parts[taker]) for taker in takers}
        threading.Thread(target=self._bring, args=(turn, gone), name=f"{self.instance} gives", daemon=True).start()

    def _bring(self, turn: Turn, parts: Mapping[int, State]) -> None:
        try:
            for taker, part in parts.items():
                turn.give(taker, part)
            turn.settled(self.instance, GIVEN)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
            self._failed(self.instance, error)

    def _take(self, giver: int, part: State) -> None:
        self._came[giver] = part
        self._settle_if_all_came()

    def _settle_if_all_came(self) -> None:
        awaiting, turn = self._awaiting, self._turn
        if awaiting is None or turn is None or turn.reassigned is None or not awaiting.missing <= set(self._came):
            return
        moved, me = turn.reassigned, self.instance.number
        came, self._came = self._came, {}
        is_new = me >= moved.before.parallelism
        own = [part["own"] for part in came.values()]
        if is_new:
            self._finished = all(one["done"] for one in own)
            self._event_time.restore({"watermark": min(one["watermark"] for one in own), "tell": True})
        states = {giver: of_step(part) for giver, part in came.items()}
        if moved.way is Way.GROUPS:
            self._step.take(states, moved, None if is_new else me)
        else:
            self._deal(turn, moved, states)
        if is_new:
            self._advance(self._event_time.newest)
        self._work_off_held(awaiting)
        self._settled()
        self._end_if_all_ended()

    def _deal(self, turn: Turn, moved: Reassigned, states: Mapping[int, State]) -> None:
        """Go on with a step that knows what is of this instance out of the states of all."""
        before, self._step = self._step, turn.fresh()
        self._refused += before.refused
        before.close()
        known = [states[one] for one in sorted(states)]
        self._step.restore(owned(moved.logic.dealt(known, moved.share(self.instance.number))))

    def _work_off_held(self, awaiting: Awaiting) -> None:
        self._awaiting, self._alone = None, True
        for channel, what, owed in awaiting.held:
            if channel is None:
                self._emit(lambda at=what: self._step.on_watermark(at), 0)  # type: ignore[misc]
                self._advance(what)
                continue
            done = self._work(channel, what)
            if owed:
                self._mailbox.finished(channel.number, what.kind, done)
        self._alone = False


def _with_own(own: Mapping[str, Any], state: State) -> State:
    return {"own": dict(own), **{f"step {name}": value for name, value in state.items()}}
