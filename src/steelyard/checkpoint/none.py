"""No checkpoints at all: what all others are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steelyard.checkpoint.protocol import CheckpointProtocol


@dataclass(frozen=True)
class NoCheckpoints(CheckpointProtocol):
    """Take no checkpoints: after a failure everything begins anew."""

    name: ClassVar[str] = "none"
