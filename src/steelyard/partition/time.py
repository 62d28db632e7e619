"""Time-based blocks, Spark Streaming's own: the batch interval is cut into equal parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import BlockPlan, KeyCounts, RowRule
from steelyard.partition.shuffle import round_robin


@dataclass(frozen=True)
class TimeBased:
    """Put a row that arrives at offset t of an interval T into block `floor(t / (T / blocks))`.

    Blocks are equal only where the rate is constant. A plan made from counts alone cannot know arrival
    times, so it shows the case of a constant rate and of keys that are spread over the interval.

    Examples
    --------
    >>> TimeBased().plan(KeyCounts.of({"a": 4, "b": 4}), blocks=2).sizes.tolist()
    [4, 4]
    """

    name: ClassVar[str] = "time"
    paper: ClassVar[str] = "Abdelhamid 2021, section 2.6"
    needs_counts: ClassVar[bool] = False

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The blocks of a constant rate: equal sizes, every key everywhere."""
        return round_robin(counts, blocks, RowRule.ARRIVAL, self.name)
