"""One instance at work: it takes messages, calls the operator, and sends what it gives.

It has a thread of its own, or follows another instance of its worker: whatever that one sends it works off at once, in
the thread of the other. To hand a small batch from thread to thread takes longer than most operators take for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from steelyard.core.topology import Channel, Instance
from steelyard.grouping.protocol import Requests
from steelyard.resident.channel import Message, Outlet, StoppedError
from steelyard.resident.commands import Commands, Made
from steelyard.resident.costs import CostMeter
from steelyard.resident.metrics import ThreadTime
from steelyard.resident.operator import MAX_WATERMARK, State
from steelyard.resident.output import parts_of
from steelyard.resident.reports import unpacked_requests
from steelyard.resident.rounds import RoundMeter
from steelyard.resident.sources import SourceStep
from steelyard.resident.switching import Links, Switching
from steelyard.resident.wire import Kind, WireError

log = logging.getLogger(__name__)

SOURCE_WAIT = 0.005
"""Seconds that a source without rows waits before it looks again."""
PROBE_SECONDS = 0.1
"""From one probe of how long rows take to the next."""
TOGETHER_SECONDS, TOGETHER_ROWS = 0.005, 1_000
"""Small batches that wait are worked off together, as long as they have no more rows and that takes no longer."""
_RECENT = 0.1
"""The weight of the newest batch in what a row is taken to cost."""

Meter = CostMeter | RoundMeter


class Runner(Switching):
    """Runs one instance until it is stopped, also beyond its last row: it may still have to take a snapshot.

    Parameters
    ----------
    instance
        Which.
    step
        A `Step`, or a `SourceStep`.
    links
        What comes in, and what goes out.
    failed
        Called with what the instance raised.
    ended
        Called when the instance has given its last row.
    meters
        By channel: what measures the costs of its rows, where its sender wants to know them.
    """

    def __init__(
        self,
        instance: Instance,
        step: Any,
        links: Links,
        failed: Callable[[Instance, BaseException], None],
        ended: Callable[[Instance], None],
        meters: Mapping[int, Meter] | None = None,
    ) -> None:
        super().__init__(instance, step, links, failed)
        self._ended = ended
        self._meters = meters or {}
        self._metering = list(dict.fromkeys(self._meters.values()))
        self._commands: Commands[Runner] = Commands(lambda: self._mailbox.wake())  # noqa: PLW0108 - of what is linked
        self._paused = False
        self._row_seconds = 0.0
        """What a row of a batch took of late, its share of what any batch takes included."""
        self._head = self
        """Whose thread it runs in."""
        self._followers: list[Runner] = []
        self._handed_on = 0.0
        """Seconds in which followers worked off what this one sent."""
        self._since = self._begun = self._probed = time.perf_counter()
        self._time = ThreadTime()
        self._thread = threading.Thread(target=self._run, name=str(instance), daemon=True)
        self.is_source = isinstance(step, SourceStep)
        """Whether it reads rather than gets."""

    @property
    def outlets(self) -> list[Outlet]:
        """The channels that lead away, of all of its edges."""
        return [outlet for output in self._outputs for outlet in output.outlets.values()]

    def follow(self, leader: Runner) -> None:
        """Run in the thread of another instance, the only one that sends to this one; called before `start`."""
        self._head = leader._head
        self._head._followers.append(self)
        for one in self._followers:
            one._head = self._head
        self._head._followers += self._followers
        self._followers = []

    def hand(self, follower: Runner, channel: int, message: Message) -> None:
        """Give a message to a follower, which works it off before this returns."""
        begun = time.perf_counter()
        follower._mailbox.put(channel, message)
        follower._catch_up()
        self._handed_on += time.perf_counter() - begun

    def _catch_up(self) -> None:
        """Work off all that waits for a follower: what was handed on, or was under way when it had its own thread."""
        self.metrics.idle += time.perf_counter() - self._since
        try:
            while (taken := self._mailbox.take(0)) is not None:
                self._handle(*taken)
        except StoppedError:
            raise
        except BaseException as error:
            self._failed(self.instance, error)
            raise StoppedError(f"{self.instance} failed") from error
        finally:
            self._since = time.perf_counter()

    def start(self) -> None:
        """Begin."""
        if self._head is self:
            self._thread.start()

    def stop(self) -> None:
        """End as soon as possible, in the middle of the rows."""
        self._stopping = True
        self._mailbox.stop()
        for output in self._outputs:
            output.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def call(self, action: Callable[[], Made]) -> Future[Made]:
        """Have the thread that the instance runs in do something between two messages."""
        return self._head._commands.ask(self, action)

    def pause(self, paused: bool = True) -> Future[None]:
        """Stop reading, or read again; for sources."""
        return self.call(lambda: setattr(self, "_paused", paused))

    def close_loops(self) -> Future[None]:
        """Nothing comes on feedback edges any more: where all else has ended, the instance ends."""

        def close() -> None:
            self._open -= self._loops
            self._end_if_all_ended()

        return self.call(close)

    def snapshot(self) -> Future[State]:
        """The instance's state, with that of its edges, between two messages; nothing is under way anywhere."""
        return self.call(lambda: self.taken(at_rest=True))

    def taken(self, at_rest: bool) -> State:
        """The state of its next checkpoint, in its own thread.

        What cost schedulers and their instances have learnt is kept only at rest: else they would wait for reports that
        were under way, and never come to those who go on.
        """
        self.checkpoints += 1
        sent = [pair for output in self._outputs for pair in output.sent.items()]
        counted = {"checkpoints": self.checkpoints, "sent": sent, "received": list(self._mailbox.worked_off().items())}
        own = {**self._event_time.state(), "done": self._finished, **counted}
        kept = {f"step {name}": value for name, value in self._step.snapshot(self.checkpoints).items()}
        edges = [(f"edge {i}", one.distributor) for i, one in enumerate(self._outputs) if at_rest or not one.by_cost]
        learning = [*edges, *((f"costs {i}", one) for i, one in enumerate(self._metering) if at_rest)]
        learnt = {name: one.state() for name, one in learning}
        return {"own": own, **{name: state for name, state in learnt.items() if state}, **kept}

    def restore(self, state: State) -> None:
        """Go on from a snapshot, or from nothing; called before `start`."""
        self._step.restore(
            {name.removeprefix("step "): value for name, value in state.items() if name.startswith("step ")}
        )
        for i, output in enumerate(self._outputs):
            if f"edge {i}" in state:
                output.distributor.restore(state[f"edge {i}"])
        for i, meter in enumerate(self._metering):
            if f"costs {i}" in state:
                meter.restore(state[f"costs {i}"])
        own = state.get("own", {})
        self.checkpoints = own.get("checkpoints", self.checkpoints)
        self._finished = own.get("done", False)  # what the end gave is in the snapshot, or behind it
        self._event_time.restore(own)
        if own.get("tell"):  # those behind it are others than before, and do not know how far event time is
            self.call(lambda: self._advance(self._event_time.newest))

    def flush(self) -> Future[None]:
        """Give what the end of an epoch gives."""
        return self.call(self.flush_epoch)

    def flush_epoch(self) -> None:
        """The same, in its own thread."""
        if not self.is_source:
            self._emit(self._step.flush, 0)

    def committed(self, number: int) -> Future[None]:
        """Tell the step that nobody goes back behind a checkpoint of it any more."""
        return self.call(lambda: self._step.committed(number))

    def begin_round(self, number: int, plan: str) -> Future[None]:
        """A round of checkpoints begins; for sources."""
        assert self.checkpointer is not None, "rounds are of a protocol"
        beside = self.checkpointer
        return self.call(lambda: beside.begin_round(number, plan))

    def _run(self) -> None:
        try:
            for one in self._followers:
                one._catch_up()
            while not self._stopping:
                self._commands.obey(lambda whose, error: self._failed(whose.instance, error))
                if any(one._awaiting is not None for one in self._followers):
                    self._mailbox.rest()  # nothing comes to a follower that awaits its state: senders wait
                    continue
                if self.checkpointer is not None and self._awaiting is None:
                    self.checkpointer.look()
                if self.is_source and not self._paused and not self.metrics.done:
                    self._read()
                else:
                    self._wait(self.checkpointer.wait if self.checkpointer is not None else None)
                self._time.look()
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
            self._failed(self.instance, error)
        finally:
            self._commands.close()
            for one in (self, *self._followers):
                one._close()

    def _close(self) -> None:
        try:
            self._step.close()
        except Exception:
            log.exception("%s could not be closed", self.instance)

    def _wait(self, timeout: float | None) -> None:
        begun = time.perf_counter()
        taken = self._mailbox.take(timeout)
        self.metrics.idle += time.perf_counter() - begun
        if taken is not None:
            self._handle(*taken)

    def _read(self) -> None:
        begun, waited, added = time.perf_counter(), self._step.waited, self._step.added
        batch = self._step.read()
        self.metrics.rows_in += (batch.num_rows if batch is not None else 0) - (self._step.added - added)
        waited = self._step.waited - waited
        spent = time.perf_counter() - begun - waited
        self.metrics.idle += waited if batch is not None else waited + spent
        if batch is not None:
            self._spend(spent, batch.num_rows)
            self._send(batch)
            if begun - self._probed >= PROBE_SECONDS:
                self._probed, behind = begun, self.metrics.behind
                self._probe(int(1e6 * (time.time() - (behind.seconds if behind else 0.0))))
        self._advance(self._step.watermark)
        if self._step.ended:
            self._end()
        elif batch is None:
            self._wait(SOURCE_WAIT)

    def _handle(self, channel: Channel, message: Message) -> None:
        if message.kind is Kind.CUT:
            self._cut_through(channel)
            return
        if self.checkpointer is not None and message.kind is Kind.MARKER:
            self.checkpointer.on_marker(channel, message)
            return
        now: Message | None = message
        gives_back = True
        if self._awaiting is not None:
            now, gives_back = self._awaiting.let_through(channel, message)
        done = self._work(channel, now) if now is not None else 1
        if gives_back:
            self._mailbox.finished(channel.number, message.kind, done)
        if message.kind is Kind.END and self._awaiting is None:
            self._end_if_all_ended()

    def _work(self, channel: Channel, message: Message) -> int:
        """Work a message off, perhaps with some that wait behind it; gives how many."""
        if self.checkpointer is not None:
            self.checkpointer.before(channel, message)
        if message.kind is Kind.DATA:
            return self._process(channel, message)
        if message.kind is Kind.WATERMARK:
            self._time_of(channel.number, message.value)
        elif message.kind is Kind.PROBE:
            self._probe(message.value)
        elif message.kind is Kind.END:
            self._time_of(channel.number, MAX_WATERMARK)
            self._open.discard(channel.number)
        else:
            raise WireError(f"{channel.sender} sent a {message.kind.name}, and nobody here knows what to do with it")
        return 1

    def _probe(self, came: int) -> None:
        """Rows came at this moment, in microseconds since 1970: pass it on, or note how long it took."""
        for output in self._outputs:
            output.probe(came)
        if not self._outputs:
            self.metrics.age(came)

    def _together(self, channel: Channel, message: Message) -> list[Message]:
        """A batch and those that wait behind it in its channel, where all of them take little.

        Where rows come one by one, most of what they cost is that of a batch, however small: who is behind catches up.
        """
        alone = self._alone or self._awaiting is not None or not self._row_seconds
        if alone or (self.checkpointer is not None and self.checkpointer.alone):
            return [message]
        most = min(TOGETHER_ROWS, int(TOGETHER_SECONDS / self._row_seconds)) - message.value.num_rows
        return [message, *(self._mailbox.more(channel.number, most) if most > 0 else ())]

    def _process(self, channel: Channel, message: Message) -> int:
        self._finished = False  # a job that goes on from its end has got more rows: they have an end of their own
        together = self._together(channel, message)
        batch = message.value if len(together) == 1 else pa.concat_batches([one.value for one in together])
        self.metrics.batches_in += len(together)
        self.metrics.rows_in += batch.num_rows
        self.metrics.bytes_in += batch.nbytes
        meter = self._meters.get(channel.number)
        if isinstance(meter, CostMeter) and (any(one.note for one in together) or meter.wants_more):
            asked = [unpacked_requests(one.note, one.value.num_rows) for one in together]
            requests = Requests.joined(asked, [one.value.num_rows for one in together])
            self._process_measured(channel, batch, requests, meter)
        else:
            seconds = self._emit(lambda: self._step.process(channel.port, batch), batch.num_rows)
            if isinstance(meter, CostMeter):
                meter.passed_over(channel.number, seconds)
            elif meter is not None:
                meter.executed(channel.number, together, seconds)
        return len(together)

    def _process_measured(self, channel: Channel, batch: pa.RecordBatch, requests: Requests, meter: CostMeter) -> None:
        """The same in slices, each of which is measured."""
        start = 0
        while start < batch.num_rows:
            size = meter.slicer.size(batch.num_rows - start)
            part, end = batch.slice(start, size), start + size
            seconds = self._emit(lambda rows=part: self._step.process(channel.port, rows), size)  # type: ignore[misc]
            begun = time.perf_counter()
            meter.executed(channel.number, part, seconds, requests.between(start, end))
            self.metrics.busy += time.perf_counter() - begun
            meter.slicer.took(size, seconds)
            start = end

    def _emit(self, made: Callable[[], Iterable[pa.RecordBatch]], rows: int) -> float:
        """Call the operator and send what it gives; its own time, which is given, is what passes between two sends."""
        begun = time.perf_counter()
        useful = 0.0
        for batch in made():
            useful += time.perf_counter() - begun
            self._send(batch)
            begun = time.perf_counter()
        useful += time.perf_counter() - begun
        self._spend(useful, rows)
        return useful

    def _spend(self, seconds: float, rows: int) -> None:
        self.metrics.useful += seconds
        self.metrics.busy += seconds
        if rows:
            self.metrics.costs.append((rows, seconds))
            weight = _RECENT if self._row_seconds else 1.0
            self._row_seconds += weight * (seconds / rows - self._row_seconds)

    def _send(self, batch: pa.RecordBatch) -> None:
        begun = time.perf_counter()
        waited, handed_on = self._waited(), self._handed_on
        for part in parts_of(batch):
            for output in self._outputs:
                output.send(part)
            self.metrics.batches_out += 1
        self.metrics.rows_out += batch.num_rows
        self.metrics.bytes_out += batch.nbytes
        blocked = self._waited() - waited
        self.metrics.blocked += blocked
        self.metrics.busy += time.perf_counter() - begun - blocked - (self._handed_on - handed_on)

    def _waited(self) -> float:
        return sum(output.waited for output in self._outputs)

    def _time_of(self, channel: int, time_reached: int) -> None:
        """Event time has come so far in a channel."""
        for reached in self._event_time.input_reached(channel, time_reached):
            self._finished = self._finished and reached == MAX_WATERMARK
            self._emit(lambda at=reached: self._step.on_watermark(at), 0)  # type: ignore[misc]
            if self._awaiting is None:
                self._advance(reached)
            else:
                self._awaiting.hold_time(reached)

    def _advance(self, watermark: int) -> None:
        if self._event_time.advance(watermark):
            if watermark < MAX_WATERMARK:
                self.metrics.watermark = watermark
            for output in self._outputs:
                output.tell(Kind.WATERMARK, watermark)

    def _end_if_all_ended(self) -> None:
        if not self._open and not self.metrics.done:
            if not self._finished:
                self._emit(self._step.finish, 0)
            self._end()

    def _end(self) -> None:
        for output in self._outputs:
            output.tell(Kind.END, None)
        self.metrics.done = self._finished = True
        self._ended(self.instance)

    def report(self) -> dict[str, Any]:
        """Its metrics, as plain values."""
        found = self.metrics
        if self._head is self:
            self._time.share([one.metrics for one in (self, *self._followers)])
        found.seconds = time.perf_counter() - self._begun
        found.queue = self._mailbox.length
        found.queue_rows, found.queue_filled = self._mailbox.waiting()
        found.refused = self._refused + self._step.refused
        found.reports = sum(sum(meter.reported.values()) for meter in self._metering)
        found.behind = self._step.behind() if self.is_source else None
        return found.to_dict()

    def counters(self) -> tuple[dict[int, int], dict[int, int]]:
        """By channel: messages sent, and messages worked off."""
        sent: dict[int, int] = {}
        done = self._mailbox.worked_off()
        for meter in self._metering:  # reports go against the direction of their channels, and have numbers below 0
            sent |= {~channel: count for channel, count in meter.reported.items()}
        for output in self._outputs:
            sent |= output.sent
            done |= {~channel: count for channel, count in output.reports.items()}
        return sent, done
