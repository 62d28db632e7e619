"""The receiver: reads the source as rows come, and closes each batch a little before its heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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

    splits: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    """Rows that were read of each; an offset need not count them."""
    ended: tuple[bool, ...] = ()
    newest: tuple[int, ...] = ()
    """The latest event time that was read of each split."""

    def among(self, splits: Sequence[str]) -> Position:
        """The same among the splits that there are now; new ones begin. ValueError where one is gone."""
        gone = [split for split in self.splits if split not in splits]
        if gone:
            raise ValueError(f"the source is to go on with split {gone[0]!r}, and has none of that name any more")
        new = [split for split in splits if split not in self.splits]
        return Position(
            (*self.splits, *new),
            (*self.offsets, *(0 for _ in new)),
            (*self.rows, *(0 for _ in new)),
            (*self.ended, *(False for _ in new)),
            (*self.newest, *(BEFORE_ALL for _ in new)),
        )

    def after(self, split: int, offset: int, rows: int, ended: bool, newest: int) -> Position:
        """Some rows further in one split."""
        return Position(
            self.splits,
            _with(self.offsets, split, offset),
            _with(self.rows, split, self.rows[split] + rows),
            _with(self.ended, split, ended),
            _with(self.newest, split, max(self.newest[split], newest)),
        )

    @property
    def open(self) -> list[int]:
        """Splits that are not at their ends."""
        return [split for split, ended in enumerate(self.ended) if not ended]

    @property
    def total(self) -> int:
        """Rows before it, in all splits."""
        return sum(self.rows)

    @property
    def watermark(self) -> int:
        """How far event time has come in the split that is furthest behind: one that was not begun holds all back."""
        return min((self.newest[split] for split in self.open), default=max(self.newest, default=BEFORE_ALL))

    def to_list(self) -> list[Any]:
        """As plain values."""
        return [list(self.splits), list(self.offsets), list(self.rows), list(self.ended), list(self.newest)]

    @classmethod
    def of(cls, values: Any) -> Position:
        """From plain values."""
        return cls(*(tuple(part) for part in values))


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
    ending
        Whether no more than one batch is to be made beside those that are made again.
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
        ending: bool,
        emit: Callable[[Released], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._program, self._scheduling = program, scheduling
        self._schedule, self._changed = schedule, changed
        self._batch, self._replay, self._start = first, replay, start
        self._emit, self._failed = emit, failed
        self._reader = program.source.fresh()
        self._position = position.among(self._reader.splits(1))
        self._splits = self._position.splits
        self._early = EarlyRelease(scheduling.interval)
        self._early.batch = first
        self._cutter = Cutter(program)
        self._ending = ending
        self._stop = threading.Event()
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
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            last = False
            while not last and not self._stop.is_set():
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
        newest = self._position.watermark
        watermark = BEFORE_ALL if newest == BEFORE_ALL else newest - self._program.delay_micros
        self._batch += 1
        self._emit(Released(batch, cut, plan, self._position, watermark, last, spent, waited))
        return last

    def _plan(self, batch: int) -> ExecutionPlan:
        """The plan of a batch, as soon as it is scheduled, and the backlog allows it."""
        with self._changed:
            while True:
                if self._stop.is_set():
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
        while not self._stop.is_set():
            now = min(time.time() - self._start, cut_off)
            self._read(int(self._program.rate.rows_until(now)) - self._position.total, now)
            if now >= cut_off or not self._position.open:
                return
            self._sleep_until(min(now + step, cut_off))

    def _sleep_until(self, moment: float) -> None:
        self._stop.wait(max(0.0, moment - (time.time() - self._start)))

    def _read_to(self, until: Position, moment: float) -> None:
        """The rows of a batch that was made before."""
        for split, rows in enumerate(until.rows):
            waited = 0.0
            while (missing := rows - self._position.rows[split]) > 0:
                if self._stop.is_set():
                    raise StoppedError("the receiver was stopped")
                if not self._read_some(split, missing, moment):
                    name = self._splits[split]
                    if self._position.ended[split] or waited > self._scheduling.silence:
                        raise ValueError(f"{missing} rows of split {name!r} were read before, and are gone")
                    self._stop.wait(_AGAIN)
                    waited += _AGAIN
            if self._position.offsets[split] != until.offsets[split]:
                was, now = until.offsets[split], self._position.offsets[split]
                raise ValueError(f"split {self._splits[split]!r} came to offset {was} before, and to {now} now")
        self._position = until

    def _read(self, rows: int, moment: float) -> None:
        """So many rows, or as many as there are."""
        wanted = self._position.total + rows
        idle: set[int] = set()
        while (rows := wanted - self._position.total) > 0:
            splits = [split for split in self._position.open if split not in idle]
            if not splits:
                return
            share = -(-rows // len(splits)) if self._reader.together else rows
            for split in splits if self._reader.together else splits[:1]:
                if not self._read_some(split, min(share, wanted - self._position.total), moment):
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
        self._position = self._position.after(split, found.offset, count, found.ended, newest)
        return count

    def _newest(self, batch: pa.RecordBatch) -> int:
        if self._program.window is None or self._program.time not in batch.schema.names:
            return BEFORE_ALL
        times = batch.column(self._program.time)
        return int(as_micros(times.drop_null()).max()) if times.null_count < len(times) else BEFORE_ALL
