"""The local scheduler of a worker: which of its tasks may run, and which is next. It decides; others run and send.

A map task may run when its block is there, its batch is scheduled, and no map task of an earlier batch still runs
here: batches are worked off one behind the other, so that what runs at once is what a plan says. A reduce task may
run when all map tasks of its batch have sent it their part. Windows take in a batch when all reduce tasks have sent
them theirs, and take batches in their order. Nobody asks the driver.
"""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import NamedTuple


class Stage(IntEnum):
    """What a task does. Within a batch the last stage goes first: it frees what the others hold."""

    WINDOWS = 0
    REDUCE = 1
    MAP = 2


class Task(NamedTuple):
    """One task of a batch; tasks sort by urgency."""

    batch: int
    stage: Stage
    number: int
    """The block or the bucket; 0 for windows."""


class LocalScheduler:
    """Tasks of one worker.

    Parameters
    ----------
    first
        The first batch that there will be.

    Examples
    --------
    >>> local = LocalScheduler()
    >>> local.block(0, 0)
    >>> print(local.next())  # its batch is not scheduled
    None
    >>> local.schedule(10)
    >>> local.next()
    Task(batch=0, stage=<Stage.MAP: 2>, number=0)
    >>> local.finished(_)
    >>> local.contribution(0, bucket=1, of=2), local.next()
    (None, None)
    >>> local.contribution(0, bucket=1, of=2)
    >>> local.next()
    Task(batch=0, stage=<Stage.REDUCE: 1>, number=1)
    """

    def __init__(self, first: int = 0) -> None:
        self._until = first
        self._window_turn = first
        self._ready: list[Task] = []
        """Reduce tasks and windows."""
        self._maps: list[Task] = []
        self._mapping: dict[int, int] = {}
        """By batch: map tasks that run."""
        self._unscheduled: dict[int, list[Task]] = {}
        self._blocks: dict[Task, int] = {}
        """By map task whose block is not whole: parts of it that are here."""
        self._came: dict[tuple[int, int], int] = {}
        self._for_windows: dict[int, int] = {}
        self._complete: set[int] = set()

    def schedule(self, until: int) -> None:
        """Batches below `until` may run."""
        self._until = max(self._until, until)
        for batch in [batch for batch in self._unscheduled if batch < self._until]:
            for task in self._unscheduled.pop(batch):
                heapq.heappush(self._maps, task)

    def block(self, batch: int, number: int, of: int = 1) -> None:
        """The block of a map task is here, or one of the `of` parts that receivers add to it."""
        task = Task(batch, Stage.MAP, number)
        came = self._blocks.pop(task, 0) + 1
        if came < of:
            self._blocks[task] = came
            return
        if batch < self._until:
            heapq.heappush(self._maps, task)
        else:
            self._unscheduled.setdefault(batch, []).append(task)

    def contribution(self, batch: int, bucket: int, of: int) -> None:
        """One of the `of` map tasks of a batch has sent what it has for a bucket."""
        came = self._came.pop((batch, bucket), 0) + 1
        if came < of:
            self._came[batch, bucket] = came
        else:
            heapq.heappush(self._ready, Task(batch, Stage.REDUCE, bucket))

    def reduced(self, batch: int, of: int) -> None:
        """One of the `of` reduce tasks of a batch has sent what it has for the windows here."""
        came = self._for_windows.pop(batch, 0) + 1
        if came < of:
            self._for_windows[batch] = came
        else:
            self._complete.add(batch)
            self._offer_windows()

    def _offer_windows(self) -> None:
        if self._window_turn in self._complete:
            self._complete.discard(self._window_turn)
            heapq.heappush(self._ready, Task(self._window_turn, Stage.WINDOWS, 0))

    def next(self) -> Task | None:
        """The most urgent task that may run; it is given once, and `finished` is awaited."""
        found = min([*self._ready[:1], *(self._maps[:1] if self._may_map() else [])], default=None)
        if found is None:
            return None
        if found.stage is not Stage.MAP:
            return heapq.heappop(self._ready)
        self._mapping[found.batch] = self._mapping.get(found.batch, 0) + 1
        return heapq.heappop(self._maps)

    def _may_map(self) -> bool:
        """Whether the next map task is of the batch whose map tasks run, if any do."""
        return bool(self._maps) and all(batch >= self._maps[0].batch for batch in self._mapping)

    def finished(self, task: Task) -> None:
        """A task is done; behind windows the next batch's may follow, and behind the last map task its map tasks."""
        if task.stage is Stage.MAP:
            self._mapping[task.batch] -= 1
            if not self._mapping[task.batch]:
                del self._mapping[task.batch]
        if task.stage is Stage.WINDOWS:
            self._window_turn = task.batch + 1
            self._offer_windows()
