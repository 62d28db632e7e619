"""What an instance did with its time and its rows, for whoever decides about it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any

COST_SAMPLES = 64
"""Batches whose cost is remembered."""


@dataclass
class InstanceMetrics:
    """Counts since the instance started; its own thread writes them, and any thread may read them.

    `busy`, `idle` and `blocked` add up to the time since the start, but for what is going on at the moment.
    """

    rows_in: int = 0
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
    queue: int = 0
    """Messages that wait."""
    refused: int = 0
    """Rows that came late, or had no time."""
    reports: int = 0
    """Messages about what rows cost, to those who send them."""
    watermark: int | None = None
    done: bool = False
    costs: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=COST_SAMPLES))
    """(rows, seconds in the operator) of the last batches."""

    @property
    def cost(self) -> float:
        """Seconds per row, over the last batches; 0 before the first."""
        samples = list(self.costs)
        rows = sum(count for count, _ in samples)
        return sum(seconds for _, seconds in samples) / rows if rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        # Not `asdict`: it would walk through the deque while the instance adds to it.
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "costs"}
        return plain | {"costs": list(self.costs), "cost": self.cost}
