"""No partitioning at all: rows are combined in the partitions that the source gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.core import BlockPlan, KeyCounts, Moves, RowRule
from steelyard.partition.shuffle import round_robin


@dataclass(frozen=True)
class InPlace:
    """Leave rows where they are read: nothing moves, every key may be everywhere.

    Right where the source's partitions are even and combining is cheap beside moving. The plan shows rows as if
    the source dealt them evenly.

    Examples
    --------
    >>> InPlace().plan(KeyCounts.of({"a": 4, "b": 4}), blocks=2).ksr
    2.0
    """

    name: ClassVar[str] = "in_place"
    needs_counts: ClassVar[bool] = False
    moves: ClassVar[Moves] = Moves.NEVER

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Equal sizes, every key everywhere, and the rule that nothing moves."""
        return round_robin(counts, blocks, RowRule.IN_PLACE, self.name)
