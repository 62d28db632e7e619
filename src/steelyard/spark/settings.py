"""How a query in micro-batches runs, whatever it computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from steelyard.control import Guard
from steelyard.core import BucketAllocator, Moves, Partitioner, ScalingPolicy, TuplePolicy
from steelyard.partition import PromptAllocator
from steelyard.spark.badrows import BadRows
from steelyard.spark.program import Bound


@dataclass(frozen=True)
class Settings:
    """How a query runs; none of it changes its answers, and all of it may change at a restart."""

    partitioner: Partitioner | TuplePolicy
    elastic: ScalingPolicy
    blocks: int
    buckets: int
    statistics: str = "carried"
    mode: str = "append"
    interval: float = 0.0
    """Seconds between triggers."""
    bad: BadRows = field(default_factory=BadRows)
    guards: tuple[Guard, ...] = ()
    """Between the elasticity policy and the engine."""
    is_planned: bool = True
    """Whether the user named the partitioner, or left the choice to us."""
    allocator: BucketAllocator = field(default_factory=PromptAllocator)
    """What sends the key clusters of a map task to buckets."""
    inverse_from: int = 8
    """Panes of a window from which on it is made from the one before, where that is exact: it takes a job more."""

    def moves_rows(self, bound: Bound) -> bool:
        """Whether rows go to planned blocks.

        A policy that the user names moves them, unless it says otherwise. Where only built-in aggregates run, the JVM
        combines a row for less than it costs to move it, so it pays only where Python will touch them.
        """
        if Moves.of(self.partitioner) is Moves.IF_IT_PAYS:
            return bound.program.map is not None or bool(bound.program.pythons)
        return Moves.of(self.partitioner) is Moves.ALWAYS

    @property
    def is_decided(self) -> bool:
        """Whether the user named a policy that needs no batches to find out whether moving rows pays."""
        return self.is_planned and Moves.of(self.partitioner) is not Moves.IF_IT_PAYS
