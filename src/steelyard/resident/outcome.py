"""What a job gave, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from steelyard.core.shown import Shown
from steelyard.resident.gang import Recovery
from steelyard.resident.recovery_line import CheckpointTotals
from steelyard.resident.rescaling import Rescaling


@dataclass(repr=False)
class Outcome(Shown):
    """What a job gave."""

    results: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    """Batches of each memory sink."""
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last metrics of each instance."""
    traffic: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By worker: what went to and came from other workers."""
    epochs: int = 0
    """Snapshots that were committed, the last included."""
    restarts: int = 0
    """Generations that failed."""
    moves: int = 0
    """Generations that made room for one with another placement, other numbers, or another checkpoint protocol."""
    rescales: int = 0
    """How often operators got other numbers of instances, in place or with other workers."""
    rescalings: list[Rescaling] = field(default_factory=list)
    """Each time that operators got other numbers of instances: how, and what it took."""
    refused: str = ""
    """Why the newest wish for other numbers was not fulfilled, if one was not."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long it took to `join`, `deploy` and `run`."""
    checkpoints: CheckpointTotals = field(default_factory=CheckpointTotals)
    """What checkpoints that were taken while rows came have cost; not the last one of all."""
    recoveries: list[Recovery] = field(default_factory=list)
    """What each generation that failed took to be noticed, and to be followed by one that works."""

    def counted(self) -> dict[str, object]:
        """How it went, without what it gave."""
        counted = {"epochs": self.epochs, "restarts": self.restarts, "moves": self.moves, "seconds": self.seconds}
        rare = {"rescales": self.rescales, "recoveries": self.recoveries}
        return {**counted, **{what: many for what, many in rare.items() if many}}

    def _facts(self) -> Mapping[str, object]:
        return {"sinks": len(self.results), "instances": len(self.metrics), **self.counted()}


class Present(NamedTuple):
    """A worker that has come: the process that it is."""

    host: str
    pid: int
    generation: int
