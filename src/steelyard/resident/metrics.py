"""What an instance did with its time and its rows, for whoever decides about it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from steelyard.resident.lag import Behind

COST_SAMPLES, AGE_SAMPLES = 64, 128
"""Batches whose cost is remembered, and probes whose age is."""
LOOK_SECONDS = 0.05
"""From one look at the processor time of a thread to the next: the clock of a thread is slow to read."""


@dataclass
class InstanceMetrics:
    """Counts since the instance started; its own thread writes them, and any thread may read them.

    `busy`, `idle` and `blocked` add up to the time since the start, but for what is going on at the moment.
    """

    rows_in: int = 0
    """Of a source: those that it read, also those that it made nothing of."""
    rows_out: int = 0
    batches_in: int = 0
    batches_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy: float = 0.0
    """Seconds at work: the operator itself, and routing, packing and sending what it gave."""
    useful: float = 0.0
    """Seconds in the operator itself, which is what its true rate is measured by."""
    idle: float = 0.0
    """Seconds without input."""
    blocked: float = 0.0
    """Seconds with rows to send and no credit: back-pressured."""
    seconds: float = 0.0
    """Since the start."""
    cpu: float = 0.0
    """Seconds of processor time. Instances that share a thread share its time, by how long each is busy."""
    queue: int = 0
    """Messages that wait."""
    queue_rows: int = 0
    """Rows that wait."""
    queue_filled: float = 0.0
    """Share of the places for messages that are taken."""
    refused: int = 0
    """Rows that came late, or had no time."""
    reports: int = 0
    """Messages about what rows cost, to those who send them."""
    watermark: int | None = None
    done: bool = False
    behind: Behind | None = None
    """For a source: how far it is behind the end of what it reads, where that is known."""
    aged: int = 0
    """For a sink: probes that have come."""
    ages: deque[float] = field(default_factory=lambda: deque(maxlen=AGE_SAMPLES))
    """Seconds that the last of them took, from when the rows beside them came to their log."""
    costs: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=COST_SAMPLES))
    """(rows, seconds in the operator) of the last batches."""

    def age(self, came: int) -> None:
        """A probe has come; `came` are microseconds since 1970."""
        self.aged += 1
        self.ages.append(max(time.time() - came / 1e6, 0.0))

    @property
    def cost(self) -> float:
        """Seconds per row, over the last batches; 0 before the first."""
        samples = list(self.costs)
        rows = sum(count for count, _ in samples)
        return sum(seconds for _, seconds in samples) / rows if rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        # Not `asdict`: it would walk through the deques while the instance adds to them.
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        behind = self.behind._asdict() if self.behind is not None else None
        return plain | {"costs": list(self.costs), "ages": list(self.ages), "behind": behind, "cost": self.cost}


class ThreadTime:
    """The processor time of a thread, and what the instances that run in it have had of it."""

    def __init__(self) -> None:
        self._seconds = self._shared = self._looked = 0.0
        self._busy: dict[int, float] = {}

    def look(self) -> None:
        """Read the clock, if that was not done just before; in the thread itself, after a message."""
        now = time.perf_counter()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._seconds = now, time.thread_time()

    def share(self, metrics: Sequence[InstanceMetrics]) -> None:
        """Add what passed since the last time to those who were busy meanwhile; the first leads the thread."""
        passed = self._seconds - self._shared
        self._shared += passed
        busy = [one.busy for one in metrics]
        gained = [now - self._busy.get(at, 0.0) for at, now in enumerate(busy)]
        self._busy = dict(enumerate(busy))
        total = sum(gained)
        for one, more in zip(metrics, gained, strict=True):
            one.cpu += passed * (more / total if total else one is metrics[0])
