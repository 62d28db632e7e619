"""The simplest checkpoint: sources pause, everything comes to rest, all states are written, all go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from steelyard.checkpoint.history import Wire
from steelyard.checkpoint.protocol import CheckpointProtocol, Rounds, require_interval


@dataclass(frozen=True)
class StopTheWorld(CheckpointProtocol):
    """Stop all sources, wait until nothing is under way, and write all states at once.

    Parameters
    ----------
    interval
        Seconds between two stops.
    """

    interval: float = 5.0
    name: ClassVar[str] = "stop_the_world"

    def __post_init__(self) -> None:
        require_interval(self.name, self.interval)

    def central(self, instances: Sequence[str], wires: Sequence[Wire]) -> Rounds:
        """Begins rounds; between two messages of a dataflow at rest nobody needs a marker."""
        return Rounds(instances, wires, self.interval)
