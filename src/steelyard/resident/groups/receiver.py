"""The receiver: reads the source as rows come, and closes each batch a little before its heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steelyard.partition.early_release import EarlyRelease
from steelyard.resident.channel import StoppedError
from steelyard.resident.groups.cutting import Cut, Cutter
from steelyard.resident.groups.plan import ExecutionPlan, Schedule
from steelyard.resident.groups.program import BatchProgram, Scheduling
from steelyard.resident.operator import BEFORE_ALL
from steelyard.resident.windows import as_micros

_LOOKS = 10
"""How often in an interval the source is looked at."""
_AGAIN = 0.01
"""Seconds before a source is asked again for rows that it gave before."""
_CHUNK = 1 << 20
"""Rows that are read at once."""


@dataclass(frozen=True)
class Position:
    """Behind the last rows that were read, split by split."""

    offsets: tuple[int, ...] = ()
    ended: tuple[bool, ...] = ()
    newest: tuple[int, ...] = ()
    """The latest event time that was read of each split."""
    rows: int = 0
    """Rows before it, in all splits."""

    @classmethod
    def start(cls, splits: int) -> Position:
        """Before the first row of so many splits."""
        return cls((0,) * splits, (False,) * splits, (BEFORE_ALL,) * splits)

    def after(self, split: int, offset: int, ended: bool, newest: int, rows: int) -> Position:
        """Some rows further in one split."""
        return Position(
            _with(self.offsets, split, offset),
            _with(self.ended, split, ended),
            _with(self.newest, split, max(self.newest[split], newest)),
            self.rows + rows,
        )

    @property
    def open(self) -> list[int]:
        """Splits that are not at their ends."""
        return [split for split, ended in enumerate(self.ended) if not ended]

    def watermark(self, together: bool) -> int:
        """How far event time has come: in the split that is furthest behind, where splits are read side by side."""
        if together:
            return min((self.newest[split] for split in self.open), default=max(self.newest, default=BEFORE_ALL))
        return max(self.newest, default=BEFORE_ALL)

    def to_list(self) -> list[Any]:
        """As plain values."""
        return [list(self.offsets), list(self.ended), list(self.newest), self.rows]

    @classmethod
    def of(cls, values: Any) -> Position:
        """From plain values."""
        offsets, ended, newest, rows = values
        return cls(tuple(offsets), tuple(ended), tuple(newest), int(rows))


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


@dataclass(frozen=True)
class Released:
    """A batch whose blocks are on their way."""

    batch: int
    cut: Cut
    plan: ExecutionPlan
    end: Position
    watermark: int
    last: bool
    partition_seconds: float
    wait_seconds: float
    """How long the receiver waited for the plan of the batch."""


class Receiver:
    """Makes batches, in a thread of its own.

    Parameters
    ----------
    program, scheduling
        What to read, and when.
    schedule
        Whose plans batches are cut by; `changed` guards it.
    first, position
        The first batch to make, and where its rows begin.
    replay
        Where batches ended that were made before, so that they are made again as they were.
    start
        The moment of `time.time()` at which batch 0 began.
    emit
        Called with each batch.
    """

    def __init__(
        self,
        program: BatchProgram,
        scheduling: Scheduling,
        schedule: Schedule,
        changed: threading.Condition,
        first: int,
        position: Position,
        replay: Mapping[int, Position],
        start: float,
        emit: Callable[[Released], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._program, self._scheduling = program, scheduling
        self._schedule, self._changed = schedule, changed
        self._batch, self._replay, self._start = first, replay, start
        self._emit, self._failed = emit, failed
        self._reader = program.source.fresh()
        self._splits = self._reader.splits(1)
        self._position = position if position.offsets else Position.start(len(self._splits))
        self._early = EarlyRelease(scheduling.interval)
        self._early.batch = first
        self._cutter = Cutter(program)
        self._stopping = self._ending = False
        self.done = first
        """Batches below this one are done; what is ahead of it by more than the backlog waits."""
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Close the open batch, and make no other."""
        self._ending = True

    def stop(self) -> None:
        """End at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            last = False
            while not last and not self._stopping:
                last = self._make()
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker must hear of it
            self._failed(error)
        finally:
            self._reader.close()

    def _make(self) -> bool:
        """One batch; whether it is the last."""
        batch = self._batch
        cut_off = self._early.cut_off(batch)
        self._cutter.open(cut_off - self._scheduling.interval, cut_off)
        until = self._replay.get(batch)
        if until is not None:
            self._read_to(until, cut_off)
        else:
            self._gather(cut_off)
        begun = time.perf_counter()
        plan = self._plan(batch)
        waited = time.perf_counter() - begun
        begun = time.perf_counter()
        cut = self._cutter.cut(plan.blocks)
        spent = time.perf_counter() - begun
        self._early.released(spent)
        limit = self._scheduling.batches
        last = self._ending or not self._position.open or (limit is not None and batch + 1 >= limit)
        last = last and batch + 1 not in self._replay
        newest = self._position.watermark(self._reader.together)
        watermark = BEFORE_ALL if newest == BEFORE_ALL else newest - self._program.delay_micros
        self._batch += 1
        self._emit(Released(batch, cut, plan, self._position, watermark, last, spent, waited))
        return last

    def _plan(self, batch: int) -> ExecutionPlan:
        """The plan of a batch, as soon as it is scheduled, and the backlog allows it."""
        with self._changed:
            while True:
                if self._stopping:
                    raise StoppedError("the receiver was stopped")
                plan = self._schedule.plan_of(batch)
                if plan is not None and batch - self.done < self._scheduling.backlog:
                    return plan
                self._changed.wait()

    def _gather(self, cut_off: float) -> None:
        """Read what comes until the cut-off."""
        if self._program.rate is None:
            self._sleep_until(cut_off)
            self._read(self._program.batch_rows, cut_off)
            return
        step = self._scheduling.interval / _LOOKS
        while not self._stopping:
            now = min(time.time() - self._start, cut_off)
            self._read(int(self._program.rate.rows_until(now)) - self._position.rows, now)
            if now >= cut_off or not self._position.open:
                return
            self._sleep_until(min(now + step, cut_off))

    def _sleep_until(self, moment: float) -> None:
        rest = moment - (time.time() - self._start)
        if rest > 0:
            time.sleep(rest)

    def _read_to(self, until: Position, moment: float) -> None:
        """The rows of a batch that was made before."""
        for split, offset in enumerate(until.offsets):
            while self._position.offsets[split] < offset:
                before = self._position.offsets[split]
                self._read_some(split, offset - before, moment)
                if self._position.offsets[split] == before:
                    time.sleep(_AGAIN)  # it was there once, so it will be again
        self._position = until

    def _read(self, rows: int, moment: float) -> None:
        """So many rows, or as many as there are."""
        wanted = self._position.rows + rows
        idle: set[int] = set()
        while (rows := wanted - self._position.rows) > 0:
            splits = [split for split in self._position.open if split not in idle]
            if not splits:
                return
            share = -(-rows // len(splits)) if self._reader.together else rows
            for split in splits if self._reader.together else splits[:1]:
                if not self._read_some(split, min(share, wanted - self._position.rows), moment):
                    idle.add(split)

    def _read_some(self, split: int, rows: int, moment: float) -> int:
        """Up to so many rows of a split; how many there were."""
        if rows <= 0:
            return 0
        found = self._reader.read(self._splits[split], self._position.offsets[split], min(rows, _CHUNK))
        count, newest = 0, BEFORE_ALL
        if found.batch is not None and found.batch.num_rows:
            count, newest = found.batch.num_rows, self._newest(found.batch)
            self._cutter.add(found.batch.replace_schema_metadata(None), moment)
        self._position = self._position.after(split, found.offset, found.ended, newest, count)
        return count

    def _newest(self, batch: pa.RecordBatch) -> int:
        if self._program.window is None or self._program.time not in batch.schema.names:
            return BEFORE_ALL
        times = batch.column(self._program.time)
        return int(as_micros(times.drop_null()).max()) if times.null_count < len(times) else BEFORE_ALL
