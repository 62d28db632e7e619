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
_CHUNK = 1 << 20
"""Rows that are read at once."""


@dataclass(frozen=True)
class Position:
    """Behind the last row that was read: in which split, and where in it."""

    split: int = 0
    offset: int = 0
    rows: int = 0
    """Rows before it, in all splits."""
    newest: int = BEFORE_ALL
    """The latest event time among them."""

    def to_list(self) -> list[int]:
        """As plain values."""
        return [self.split, self.offset, self.rows, self.newest]

    @classmethod
    def of(cls, values: Any) -> Position:
        """From plain values."""
        return cls(*(int(value) for value in values))


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
        self._batch, self._position, self._replay, self._start = first, position, replay, start
        self._emit, self._failed = emit, failed
        self._reader = program.source.fresh()
        self._splits = self._reader.splits(1)
        self._early = EarlyRelease(scheduling.interval)
        self._early.batch = first
        self._cutter = Cutter(program)
        self._ended = position.split >= len(self._splits)
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
        last = self._ending or self._ended or (limit is not None and batch + 1 >= limit)
        last = last and batch + 1 not in self._replay
        newest = self._position.newest
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
            if now >= cut_off or self._ended:
                return
            self._sleep_until(min(now + step, cut_off))

    def _sleep_until(self, moment: float) -> None:
        rest = moment - (time.time() - self._start)
        if rest > 0:
            time.sleep(rest)

    def _read_to(self, until: Position, cut_off: float) -> None:
        self._read(until.rows - self._position.rows, cut_off)
        if (self._position.split, self._position.offset) != (until.split, until.offset) and not self._ended:
            raise ValueError(f"batch {self._batch} ended at {until} before and now at {self._position}")

    def _read(self, rows: int, moment: float) -> None:
        """So many rows, or what is left of the source."""
        while rows > 0 and not self._ended:
            position = self._position
            found = self._reader.read(self._splits[position.split], position.offset, min(rows, _CHUNK))
            count, newest = 0, position.newest
            if found.batch is not None and found.batch.num_rows:
                count = found.batch.num_rows
                newest = max(newest, self._newest(found.batch))
                self._cutter.add(found.batch.replace_schema_metadata(None), moment)
            elif not found.ended:
                return
            split, offset = (position.split + 1, 0) if found.ended else (position.split, found.offset)
            self._position = Position(split, offset, position.rows + count, newest)
            self._ended = split >= len(self._splits)
            rows -= count

    def _newest(self, batch: pa.RecordBatch) -> int:
        if self._program.window is None or self._program.time not in batch.schema.names:
            return BEFORE_ALL
        times = batch.column(self._program.time)
        return int(as_micros(times.drop_null()).max()) if times.null_count < len(times) else BEFORE_ALL
