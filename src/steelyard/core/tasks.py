"""What the tasks of a batch did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskObservation:
    """What one map task did with its block, measured inside the task."""

    block: int
    rows: int
    clusters: int
    seconds: float
    """Wall-clock time in the task's own code."""
    cpu_seconds: float
    """Processor time of the task's process, which does not count waiting."""


@dataclass(frozen=True)
class ReduceObservation:
    """What one reduce task did with its bucket, measured inside the task."""

    bucket: int
    seconds: float
    """Wall-clock time in the task's own code."""
    records: int = 0
    """What map tasks sent it, one for each of their key clusters; 0 where nobody counted."""
    keys: int = 0
    """Distinct keys; where a batch has several panes of windows, a key counts once in each. 0 where nobody counted."""
    cpu_seconds: float = 0.0
    """Processor time of the task's process; 0 where nobody measured."""
