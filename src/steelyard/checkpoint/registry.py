"""Checkpoint protocols by name, with parameters: `"uncoordinated?interval=2"`."""

from __future__ import annotations

from steelyard.checkpoint.protocol import CheckpointProtocol
from steelyard.core.registry import Family

PROTOCOLS: Family[CheckpointProtocol] = Family(
    "steelyard.checkpoint",
    "checkpoint protocol",
    "When and how state is made durable, and where all go back to: `.engine('resident', protocol='unaligned')`",
    ("beside",),
    lambda kind: ("resident", "simulator"),
)


def protocol(named: str | CheckpointProtocol) -> CheckpointProtocol:
    """A protocol from its name, with parameters behind a question mark; an object is given back as it is.

    >>> protocol("coordinated?interval=1").interval
    1.0
    """
    return PROTOCOLS.named(named)
