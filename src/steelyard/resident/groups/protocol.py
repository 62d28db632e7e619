"""What the driver and workers of the group-ahead engine say to each other."""

from __future__ import annotations

from typing import Any

from steelyard.resident.control import Maybe
from steelyard.resident.groups.program import Scheduling
from steelyard.resident.peers import ADDRESS
from steelyard.resident.pulse import Pulse

RESULTS, STATE = 0, 1
"""Channels to the driver: results of a batch, and windows of a snapshot."""
_HEARTBEAT = 0.5
_POSITION = ([str], [int], [int], [bool], [int])
_PLAN = {"blocks": int, "buckets": int, "workers": int}
ORDERS: dict[str, dict[str, Any]] = {
    "begin": {
        "peers": [ADDRESS],
        "first": int,
        "made": int,
        "places": int,
        "elapsed": float,
        "ending": bool,
        "counting": bool,
        "windows": Maybe(int),
        "frames": int,
    },
    "group": {"first": int, "batches": int, "plan": _PLAN, "below": int},
    "update": {"first": int, "plan": _PLAN},
    "done": {"below": int},
    "end": {},
    "stop": {"why": Maybe(str)},
}
"""What a driver may say."""
EVENTS: dict[str, dict[str, Any]] = {
    "hello": {"address": ADDRESS, "pid": int},
    "begun": {},
    "released": {
        "batch": int,
        "rows": int,
        "keys": int,
        "plan": _PLAN,
        "end": _POSITION,
        "last": bool,
        "partition_seconds": float,
        "wait_seconds": float,
        "refused": int,
        "sizes": [int],
    },
    "task": {"batch": int, "stage": str, "number": int, "seconds": float, "refused": int},
    "windows": {"batch": int, "watermark": int},
    "failed": {"why": str, "final": bool, "ago": Maybe(float)},
}
"""What a worker may say."""


def pulse_of(scheduling: Scheduling) -> Pulse:
    """Signs of life, often enough for what counts as silence."""
    return Pulse(min(_HEARTBEAT, scheduling.silence / 4), scheduling.silence)
