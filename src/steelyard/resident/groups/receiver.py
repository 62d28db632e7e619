"""A receiver: reads its splits as rows come, and closes each batch a little before its heartbeat.

One thread reads, and another cuts what was read, so that rows of the next batch come in while one is cut.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from steelyard.partition.early_release import EarlyRelease
from steelyard.resident.channel import StoppedError
from steelyard.resident.groups.agreement import OPEN, Agreed, Agreement, Counted
from steelyard.resident.groups.cutting import Closed, Cut, Cutter
from steelyard.resident.groups.dealing import shares
from steelyard.resident.groups.position import Position
from steelyard.resident.groups.program import BatchProgram, Scheduling
from steelyard.resident.operator import MIN_WATERMARK
from steelyard.resident.sources import Reader
from steelyard.resident.windows import as_micros

_LOOKS = 10
"""How often in an interval the source is looked at."""
_AGAIN = 0.01
"""Seconds before a source is asked again for rows that it gave before."""
_LOOK_SECONDS = 0.2
"""How often a thread that waits for the other looks whether it is to stop."""
_CHUNK = 1 << 20
"""Rows that are read at once."""


@dataclass(frozen=True)
class Beginning:
    """Where a receiver begins.

    Parameters
    ----------
    first, position
        The first batch to make, and where its rows begin.
    replay
        What changed in batches that were made before, so that they are made again as they were.
    start
        The moment of `time.monotonic()` at which batch 0 began.
    ending
        Whether no more than one batch is to be made beside those that are made again.
    counting
        Whether somebody wants to know how many keys a batch has.
    """

    first: int
    position: Position
    replay: Mapping[int, Position]
    start: float
    ending: bool
    counting: bool


@dataclass(frozen=True)
class Released:
    """What a receiver has of a batch, cut into blocks."""

    batch: int
    cut: Cut
    agreed: Agreed
    moved: Position
    """Where splits are behind it, of which it has rows or anything else that moves them."""
    parts: Sequence[int]
    """How many receivers add to each block."""
    partition_seconds: float
    wait_seconds: float
    """How long the receiver waited for the plan of the batch."""
    refused: int
    """Rows that were left out where they were read."""


@dataclass(frozen=True)
class _Read:
    """Rows of a batch that are not cut yet."""

    batch: int
    closed: Closed
    end: Position
    refused: int


class Receiver:
    """Makes one worker's part of all batches, in two threads.

    Parameters
    ----------
    program, scheduling
        What to read, and when.
    agreement
        What it settles with the other receivers.
    beginning
        Where it begins.
    emit
        Called with its part of each batch.
    failed
        Called with what went wrong.
    """

    def __init__(
        self,
        program: BatchProgram,
        scheduling: Scheduling,
        agreement: Agreement,
        beginning: Beginning,
        emit: Callable[[Released], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._program, self._scheduling, self._agreement = program, scheduling, agreement
        self._first, self._replay, self._start = beginning.first, beginning.replay, beginning.start
        self._emit, self._failed = emit, failed
        self._reader: Reader = program.source.fresh()
        number, receivers = agreement.number, agreement.receivers
        splits = self._reader.splits(receivers)
        self._position = beginning.position.among(splits[number::receivers])
        self._splits, self._told = self._position.splits, self._position
        self._totals = tuple(OPEN if other < len(splits) else 0 for other in range(receivers))
        """As far as it was heard: rows of receivers that are at their ends."""
        self._early = EarlyRelease(scheduling.interval)
        self._early.batch = beginning.first
        self._cutter = Cutter(program, beginning.counting, -(-scheduling.blocks // receivers))
        self._ending, self._stop = threading.Event(), threading.Event()
        if beginning.ending:
            self._ending.set()
        self._read_ahead: queue.Queue[_Read] = queue.Queue(1)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"receiver, {name}", daemon=True)
            for name, work in (("reading", self._fill), ("cutting", self._release))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Close the open batch at once, and make no other."""
        self._ending.set()

    def stop(self) -> None:
        """End at once."""
        self._stop.set()
        self._agreement.stop()  # before it looks as if the batch that is settled were the last
        self._ending.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
            if not self._stop.is_set():
                self._failed(error)

    # -- reading

    def _fill(self) -> None:
        """One batch behind the other, and not more than one beside that which is cut."""
        batch, limit, refused = self._first, self._scheduling.batches, 0
        try:
            while limit is None or batch < limit:
                cut_off = self._early.cut_off(batch)
                self._cutter.open(cut_off - self._scheduling.interval, cut_off)
                until = self._replay.get(batch)
                if until is not None:
                    self._read_to(self._position.then(until).among(self._splits), cut_off)
                else:
                    self._gather(batch, cut_off)
                self._hand_over(_Read(batch, self._cutter.close(), self._position, self._reader.refused - refused))
                batch, refused = batch + 1, self._reader.refused
        finally:
            self._reader.close()

    def _hand_over(self, read: _Read) -> None:
        while True:
            self._go_on()
            try:
                self._read_ahead.put(read, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise StoppedError("the receiver was stopped")

    def _gather(self, batch: int, cut_off: float) -> None:
        """Read what comes until the cut-off."""
        if self._program.rate is None:
            self._sleep_until(cut_off)
            self._read(self._share(self._program.batch_rows, batch), cut_off)
            return
        step = self._scheduling.interval / _LOOKS
        while not self._stop.is_set():
            now = min(time.monotonic() - self._start, cut_off)
            # what receivers do not read that are at their ends, the others do
            rest = int(self._program.rate.rows_until(now)) - sum(rows for rows in self._totals if rows != OPEN)
            self._read(self._share(rest, 0) - self._position.total, now)
            if now >= cut_off or self._ending.is_set() or not self._position.open:
                return
            self._sleep_until(min(now + step, cut_off))

    def _share(self, rows: int, turn: int) -> int:
        """This receiver's share of so many rows, of which those that have more read equal parts."""
        reading = [receiver for receiver, rows in enumerate(self._totals) if rows == OPEN]
        if self._agreement.number not in reading:
            return 0
        place = (reading.index(self._agreement.number) + turn) % len(reading)
        return rows * (place + 1) // len(reading) - rows * place // len(reading)

    def _sleep_until(self, moment: float) -> None:
        """Until then, or until it is to end."""
        self._ending.wait(max(0.0, moment - (time.monotonic() - self._start)))

    def _read_to(self, until: Position, moment: float) -> None:
        """The rows of a batch that was made before, up to where splits were behind it."""
        for split, rows in enumerate(until.rows):
            waited = 0.0
            while (missing := rows - self._position.rows[split]) > 0:
                self._go_on()
                if not self._read_some(split, missing, moment):
                    name = self._splits[split]
                    if self._position.ended[split] or waited > self._scheduling.silence:
                        raise ValueError(f"{missing} rows of split {name!r} were read before, and are gone")
                    self._stop.wait(_AGAIN)
                    waited += _AGAIN
            # it may be before: offsets also move without rows, as over the marks of transactions
            if self._position.offsets[split] > until.offsets[split]:
                was, now = until.offsets[split], self._position.offsets[split]
                raise ValueError(f"split {self._splits[split]!r} came to offset {was} before, and to {now} now")
        self._position = until

    def _read(self, rows: int, moment: float) -> None:
        """So many rows, or as many as there are."""
        wanted = self._position.total + rows
        idle: set[int] = set()
        while (rows := wanted - self._position.total) > 0:
            self._go_on()
            splits = [split for split in self._position.open if split not in idle]
            if not splits:
                return
            share = -(-rows // len(splits)) if self._reader.together else rows
            for split in splits if self._reader.together else splits[:1]:
                if not self._read_some(split, min(share, wanted - self._position.total), moment):
                    idle.add(split)

    def _read_some(self, split: int, rows: int, moment: float) -> int:
        """Up to so many rows of a split; how many there were, before a function that makes more or fewer of them."""
        if rows <= 0:
            return 0
        added = self._reader.added
        found = self._reader.read(self._splits[split], self._position.offsets[split], min(rows, _CHUNK))
        count, newest = 0, MIN_WATERMARK
        if found.batch is not None and found.batch.num_rows:
            count, newest = found.batch.num_rows, self._newest(found.batch)
            self._cutter.add(found.batch.replace_schema_metadata(None), moment)
        count -= self._reader.added - added
        self._position = self._position.after(split, found.offset, count, found.ended, newest)
        return count

    def _newest(self, batch: pa.RecordBatch) -> int:
        if self._program.window is None or self._program.time not in batch.schema.names:
            return MIN_WATERMARK
        times = batch.column(self._program.time)
        if times.null_count == len(times):
            return MIN_WATERMARK
        newest = int(as_micros(times.drop_null()).max())
        return newest - newest % self._program.step

    # -- cutting

    def _release(self) -> None:
        """Settle with the others what holds for each batch, cut it, and pass it on."""
        last = False
        while not last:
            read = self._next_read()
            begun = time.perf_counter()
            counted = Counted(read.closed.rows, read.end.total, not read.end.open, read.end.watermark)
            agreed = self._agreement.settle(read.batch, counted, partial(self._final, read.batch))
            self._totals = agreed.totals
            waited = time.perf_counter() - begun
            begun = time.perf_counter()
            dealt, parts = shares(agreed.rows, agreed.plan)
            cut = self._cutter.cut(read.closed, dealt[self._agreement.number])
            spent = time.perf_counter() - begun
            self._early.released(spent)
            last = agreed.last
            moved = read.end.since(self._told)
            self._emit(Released(read.batch, cut, agreed, moved, parts, spent, waited, read.refused))
            self._told = read.end
        self._stop.set()  # nobody reads behind the last batch
        self._ending.set()

    def _next_read(self) -> _Read:
        while True:
            self._go_on()
            try:
                return self._read_ahead.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue

    def _final(self, batch: int, ended: bool) -> bool:
        """Whether no batch follows, where all splits of all receivers are at their ends, or are not."""
        limit = self._scheduling.batches
        # a batch that is made again may have been handed on before, and what the end adds to it would not be
        last = (
            (self._ending.is_set() and batch not in self._replay) or ended or (limit is not None and batch + 1 >= limit)
        )
        return last and batch + 1 not in self._replay
