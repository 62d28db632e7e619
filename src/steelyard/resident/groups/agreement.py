"""What receivers settle for each batch: by which plan it is cut, how far event time has come, whether it is the last.

Each tells the first how many rows it has; the first, when it has heard of all and the batch may be made, tells all
what holds. The driver is not asked: it hears of a batch when that is cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from steelyard.resident.channel import StoppedError
from steelyard.resident.groups.messages import AGREED, COUNTED, Note
from steelyard.resident.groups.plan import ExecutionPlan, Schedule
from steelyard.resident.groups.program import Scheduling
from steelyard.resident.operator import MIN_WATERMARK

LEAD = 0
"""The receiver that settles what holds, and the worker that it runs in."""
OPEN = -1
"""In place of the rows of a receiver that is not at its end."""


class Counted(NamedTuple):
    """What a receiver has of a batch."""

    rows: int
    total: int
    """Its rows so far, those of the batches before included."""
    ended: bool
    watermark: int


class Agreed(NamedTuple):
    """What holds for a batch."""

    plan: ExecutionPlan
    rows: tuple[int, ...]
    """Of each receiver."""
    totals: tuple[int, ...]
    """Rows of each receiver that is at its end, and `OPEN` for the others."""
    watermark: int
    last: bool


class Agreement:
    """Between the receivers of all workers.

    Parameters
    ----------
    number, receivers, workers
        Which receiver this is, of how many; and how many workers there are.
    scheduling, schedule
        The backlog, and the plans of batches.
    changed
        Guards all of it, and wakes who waits.
    send
        Called with a receiver, a channel, a batch and a note.
    delay
        How late rows may be, in microseconds.
    first
        The first batch that there will be.
    """

    def __init__(
        self,
        number: int,
        receivers: int,
        workers: int,
        scheduling: Scheduling,
        schedule: Schedule,
        changed: threading.Condition,
        send: Callable[[int, int, int, Note], None],
        delay: int = 0,
        first: int = 0,
    ) -> None:
        self.number, self.receivers, self._workers = number, receivers, workers
        self._scheduling, self._schedule, self._changed, self._send = scheduling, schedule, changed, send
        self._delay = delay
        self._counted: dict[int, dict[int, Counted]] = {}
        self._agreed: dict[int, Agreed] = {}
        self._stopped = False
        self.done = first
        """Batches below this one are done; what is ahead of it by more than the backlog waits."""

    def settle(self, batch: int, counted: Counted, final: Callable[[bool], bool]) -> Agreed:
        """What holds for a batch of which this receiver has so many rows; `final(ended)` says whether it is the last.

        StoppedError where it was stopped meanwhile.
        """
        if self.number != LEAD:
            nobody = ExecutionPlan(1, 1, self._workers)
            numbers = np.array([counted.rows, counted.total], np.int64)
            self._send(LEAD, COUNTED, batch, Note(nobody, self.number, counted.watermark, counted.ended, numbers))
            return self._await(lambda: self._agreed.pop(batch, None))
        with self._changed:
            self._counted.setdefault(batch, {})[LEAD] = counted
        agreed = self._await(lambda: self._ready(batch, final))
        numbers = np.array([*agreed.rows, *agreed.totals], np.int64)
        for receiver in range(1, self.receivers):
            self._send(receiver, AGREED, batch, Note(agreed.plan, LEAD, agreed.watermark, agreed.last, numbers))
        return agreed

    def _ready(self, batch: int, final: Callable[[bool], bool]) -> Agreed | None:
        plan, heard = self._schedule.plan_of(batch), self._counted[batch]
        if plan is None or batch - self.done >= self._scheduling.backlog or len(heard) < self.receivers:
            return None
        found = [heard[receiver] for receiver in range(self.receivers)]
        del self._counted[batch]
        ended = all(one.ended for one in found)
        totals = tuple(one.total if one.ended else OPEN for one in found)
        return Agreed(plan, tuple(one.rows for one in found), totals, self._watermark(found), final(ended))

    def _watermark(self, found: Sequence[Counted]) -> int:
        """How far event time has come at the receiver that is furthest behind; in the end, at the furthest one."""
        behind = [one.watermark for one in found if not one.ended]
        newest = min(behind) if behind else max(one.watermark for one in found)
        return MIN_WATERMARK if newest == MIN_WATERMARK else newest - self._delay

    def _await(self, found: Callable[[], Agreed | None]) -> Agreed:
        with self._changed:
            while True:
                if self._stopped:
                    raise StoppedError("the receiver was stopped")
                if (agreed := found()) is not None:
                    return agreed
                self._changed.wait()

    def hear(self, channel: int, batch: int, note: Note) -> None:
        """Another receiver has said something."""
        with self._changed:
            if channel == COUNTED:
                rows, total = note.numbers.tolist()
                self._counted.setdefault(batch, {})[note.number] = Counted(rows, total, note.last, note.watermark)
            else:
                rows, totals = (tuple(part) for part in note.numbers.reshape(2, -1).tolist())
                self._agreed[batch] = Agreed(note.plan, rows, totals, note.watermark, note.last)
            self._changed.notify_all()

    def progress(self, below: int) -> None:
        """Batches below this one are done."""
        with self._changed:
            self.done = below
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake who waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
