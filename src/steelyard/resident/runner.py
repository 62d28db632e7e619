"""One instance at work: it takes messages, calls the operator, and sends what it gives.

It has a thread of its own, or follows another instance of its worker: whatever that one sends it works off at once, in
the thread of the other. To hand a small batch from thread to thread takes longer than most operators take for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import pyarrow as pa

from steelyard.core.dataflow import Channel, Instance
from steelyard.grouping.protocol import Requests
from steelyard.resident.channel import Mailbox, Message, StoppedError
from steelyard.resident.costs import CostMeter
from steelyard.resident.metrics import InstanceMetrics, ThreadTime
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK, State
from steelyard.resident.output import Output
from steelyard.resident.reports import unpacked_requests
from steelyard.resident.sources import SourceStep
from steelyard.resident.wire import Kind, WireError

log = logging.getLogger(__name__)

SOURCE_WAIT = 0.005
"""Seconds that a source without rows waits before it looks again."""
PROBE_SECONDS = 0.1
"""From one probe of how long rows take to the next."""
MAX_BATCH_BYTES = 16 << 20
"""Batches above this are cut before they are sent."""
TOGETHER_SECONDS, TOGETHER_ROWS = 0.005, 1_000
"""Small batches that wait are worked off together, as long as they have no more rows and that takes no longer."""
_RECENT = 0.1
"""The weight of the newest batch in what a row is taken to cost."""

Made = TypeVar("Made")


class Runner:
    """Runs one instance until it is stopped, also beyond its last row: it may still have to take a snapshot.

    Parameters
    ----------
    instance
        Which.
    step
        A `Step`, or a `SourceStep`.
    mailbox
        What comes in.
    channels
        The channels that lead here.
    outputs
        What goes out.
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
        mailbox: Mailbox,
        channels: Sequence[Channel],
        outputs: Sequence[Output],
        failed: Callable[[Instance, BaseException], None],
        ended: Callable[[Instance], None],
        meters: Mapping[int, CostMeter] | None = None,
    ) -> None:
        self.instance = instance
        self.metrics = InstanceMetrics()
        self._step, self._mailbox, self._outputs = step, mailbox, outputs
        self._failed, self._ended = failed, ended
        self._meters = meters or {}
        self._metering = list(dict.fromkeys(self._meters.values()))
        self._times = {channel.number: MIN_WATERMARK for channel in channels if not channel.feedback}
        self._open = {channel.number for channel in channels}
        self._loops = {channel.number for channel in channels if channel.feedback}
        self._came_to = dict(self._times)
        """Where event time is in each input, or was when it ended."""
        self._watermark = MIN_WATERMARK
        self._event_time = MIN_WATERMARK
        """The last watermark that is a time, and not the end."""
        self._commands: deque[tuple[Runner, Callable[[], Any], Future[Any]]] = deque()
        """What to do, and for which of the instances that run in this thread."""
        self._stopping = self._gone = False
        self._paused = False
        self._finished = False
        """Whether the end was told to the step, perhaps before the snapshot, and no row has come since."""
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
        try:
            follower._take_in(channel, message)
        finally:
            self._handed_on += time.perf_counter() - begun

    def _take_in(self, channel: int, message: Message) -> None:
        self.metrics.idle += time.perf_counter() - self._since
        self._mailbox.put(channel, message)
        taken = self._mailbox.take(0)
        assert taken is not None, "it was just put in"
        try:
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
        answer: Future[Made] = Future()
        self._head._commands.append((self, action, answer))
        if self._head._gone:  # or it ends just now, and cancels what it finds
            answer.cancel()
        self._head._mailbox.wake()
        return answer

    def pause(self, paused: bool = True) -> Future[None]:
        """Stop reading, or read again; for sources."""
        return self.call(lambda: setattr(self, "_paused", paused))

    def close_loops(self) -> Future[None]:
        """Nothing comes on feedback edges any more: where all else has ended, the instance ends."""

        def close() -> None:
            self._open -= self._loops
            self._end_if_all_ended()

        return self.call(close)

    def snapshot(self, epoch: int) -> Future[State]:
        """The instance's state, with that of its edges, between two messages."""

        def taken() -> State:
            routers = {f"edge {i}": output.distributor.state() for i, output in enumerate(self._outputs)}
            times = list(self._came_to.items())
            own = {"watermark": self._event_time, "done": self._finished, "times": times}
            learnt = {name: state for name, state in routers.items() if state}
            kept = {f"step {name}": value for name, value in self._step.snapshot(epoch).items()}
            costs = {f"costs {i}": meter.state() for i, meter in enumerate(self._metering)}
            return {"own": own, **learnt, **costs, **kept}

        return self.call(taken)

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
        self._finished = own.get("done", False)  # what the end gave is in the snapshot, or behind it
        self._watermark = self._event_time = own.get("watermark", MIN_WATERMARK)
        # An input that had ended is where it was then: it ends once more, or its source has got new rows meanwhile.
        known = {number: at for number, at in own.get("times", ()) if number in self._times and at < MAX_WATERMARK}
        self._times.update(known)
        self._came_to.update(known)

    def committed(self, epoch: int) -> Future[None]:
        """Tell the step that a snapshot is durable."""
        return self.call(lambda: self._step.committed(epoch))

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._obey()
                if self.is_source and not self._paused and not self.metrics.done:
                    self._read()
                else:
                    self._wait(None)
                self._time.look()
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
            self._failed(self.instance, error)
        finally:
            self._gone = True  # first: whoever calls from now on cancels what it asks for
            while self._commands:
                self._commands.popleft()[-1].cancel()
            for one in (self, *self._followers):
                one._close()

    def _close(self) -> None:
        try:
            self._step.close()
        except Exception:
            log.exception("%s could not be closed", self.instance)

    def _obey(self) -> None:
        while self._commands:
            whose, action, answer = self._commands.popleft()
            try:
                answer.set_result(action())
            except StoppedError as error:
                answer.set_exception(error)
                raise
            except BaseException as error:
                self._failed(whose.instance, error)  # first: who waits for the answer does not know whose fault it is
                answer.set_exception(error)
                raise StoppedError(f"{whose.instance} failed") from error

    def _wait(self, timeout: float | None) -> None:
        begun = time.perf_counter()
        taken = self._mailbox.take(timeout)
        self.metrics.idle += time.perf_counter() - begun
        if taken is not None:
            self._handle(*taken)

    def _read(self) -> None:
        begun, waited = time.perf_counter(), self._step.waited
        batch = self._step.read()
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
        if message.kind is Kind.DATA:
            self._process(channel, message)
            return
        if message.kind is Kind.WATERMARK:
            self._time_of(channel.number, message.value)
        elif message.kind is Kind.PROBE:
            self._probe(message.value)
        elif message.kind is Kind.END:
            self._time_of(channel.number, MAX_WATERMARK)
            self._open.discard(channel.number)
        else:
            raise WireError(
                f"{channel.sender} sent a {message.kind.name}, and no protocol here knows what to do with it"
            )
        self._mailbox.finished(channel.number, message.kind)
        if message.kind is Kind.END:
            self._end_if_all_ended()

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
        if not self._row_seconds:
            return [message]
        most = min(TOGETHER_ROWS, int(TOGETHER_SECONDS / self._row_seconds)) - message.value.num_rows
        return [message, *(self._mailbox.more(channel.number, most) if most > 0 else ())]

    def _process(self, channel: Channel, message: Message) -> None:
        self._finished = False  # a job that goes on from its end has got more rows: they have an end of their own
        together = self._together(channel, message)
        batch = message.value if len(together) == 1 else pa.concat_batches([one.value for one in together])
        self.metrics.batches_in += len(together)
        self.metrics.rows_in += batch.num_rows
        self.metrics.bytes_in += batch.nbytes
        meter = self._meters.get(channel.number)
        if meter is not None and (any(one.note for one in together) or meter.wants_more):
            asked = [unpacked_requests(one.note, one.value.num_rows) for one in together]
            requests = Requests.joined(asked, [one.value.num_rows for one in together])
            self._process_measured(channel, batch, requests, meter)
        else:
            seconds = self._emit(lambda: self._step.process(channel.port, batch), batch.num_rows)
            if meter is not None:
                meter.passed_over(channel.number, seconds)
        self._mailbox.finished(channel.number, Kind.DATA, len(together))

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
        size = batch.nbytes
        rows = batch.num_rows if size <= MAX_BATCH_BYTES else max(1, batch.num_rows * MAX_BATCH_BYTES // size)
        for start in range(0, batch.num_rows, rows or 1):
            part = batch.slice(start, rows)
            for output in self._outputs:
                output.send(part)
            self.metrics.batches_out += 1
        self.metrics.rows_out += batch.num_rows
        self.metrics.bytes_out += size
        blocked = self._waited() - waited
        self.metrics.blocked += blocked
        self.metrics.busy += time.perf_counter() - begun - blocked - (self._handed_on - handed_on)

    def _waited(self) -> float:
        return sum(output.waited for output in self._outputs)

    def _time_of(self, channel: int, time_reached: int) -> None:
        """Event time has come so far in a channel; what counts is the channel that is furthest behind."""
        if channel in self._times:
            self._times[channel] = max(self._times[channel], time_reached)
            if time_reached < MAX_WATERMARK:
                self._came_to[channel] = self._times[channel]
            reached = min(self._times.values())
            if reached == MAX_WATERMARK:  # nobody is behind any more: it first comes to where the furthest was
                self._reach(max(self._came_to.values()))
            self._reach(reached)

    def _reach(self, reached: int) -> None:
        if reached > self._watermark:
            self._finished = self._finished and reached == MAX_WATERMARK
            self._emit(lambda: self._step.on_watermark(reached), 0)
            self._advance(reached)

    def _advance(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            if watermark < MAX_WATERMARK:  # the end is no time that anybody wants to read, or to go on from
                self._event_time = self.metrics.watermark = watermark
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
        found.refused = self._step.refused
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
            done |= {~channel: count for channel, count in output.heard.items()}
        return sent, done
