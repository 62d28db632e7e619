"""What an engine shows of its checkpoints, and what a policy may have changed of them."""

from __future__ import annotations

from dataclasses import dataclass

CHECKPOINT_INTERVAL, CHECKPOINT_PROTOCOL = "checkpoint interval", "checkpoint protocol"
"""Settings that an action may name; the interval is in seconds."""


@dataclass(frozen=True)
class CheckpointObservation:
    """How a job makes its state durable, and how often it needs that."""

    interval: float
    """Seconds between two checkpoints."""
    costs: float
    """Seconds for which one holds rows up: for which a chain of instances stands still for it, in the mean, and for
    those that others force it to take meanwhile."""
    failures_per_hour: float
    """So far."""
    protocol: str = ""
    """How they are taken."""
    seconds: float = 0.0
    """Until one is durable, in the mean: they cannot come faster."""
    bytes: float = 0.0
    """Of all states in the newest that was committed."""
    failed_at: tuple[float, ...] = ()
    """When workers failed, in the engine's time."""

    @property
    def settings(self) -> dict[str, str]:
        """As an action would set them."""
        return {CHECKPOINT_INTERVAL: f"{self.interval:g}", CHECKPOINT_PROTOCOL: self.protocol}
