"""What goes between workers: blocks to map tasks, partials to reduce tasks, merged partials to windows.

Each is a frame of rows whose note says what they are, in a few numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.wire import WireError

BLOCK, PARTIALS, MERGED = range(3)
"""Channels: what the rows of a frame are."""

_HEAD = struct.Struct("!IIIIqBI")
"""Blocks, buckets, workers, number of the sender's task, watermark, flags, how many numbers follow."""
_ALL_SPLIT, _LAST = 1, 2


class Note(NamedTuple):
    """What is said of a batch beside its rows."""

    plan: ExecutionPlan
    number: int
    """The block, or the bucket, that it is or comes from."""
    watermark: int
    last: bool
    """Whether no batch follows."""
    numbers: Ints
    """Of a block, ids of split keys; of partials, buckets and their rows in turn."""
    all_split: bool = False
    """Whether any key of a block may be in another."""


def packed(note: Note) -> bytes:
    """As bytes.

    >>> unpacked(packed(Note(ExecutionPlan(3, 2, 1), 1, -5, True, np.array([7])))).numbers.tolist()
    [7]
    """
    flags = _ALL_SPLIT * note.all_split | _LAST * note.last
    plan = note.plan
    start = _HEAD.pack(plan.blocks, plan.buckets, plan.workers, note.number, note.watermark, flags, len(note.numbers))
    return start + np.ascontiguousarray(note.numbers, dtype=">i8").tobytes()


def unpacked(data: bytes) -> Note:
    """From bytes; WireError where they are no note."""
    try:
        blocks, buckets, workers, number, watermark, flags, length = _HEAD.unpack_from(data)
    except struct.error as error:
        raise WireError(f"{len(data)} bytes are no note of a batch") from error
    if len(data) != _HEAD.size + 8 * length or 0 in (blocks, buckets, workers):
        raise WireError(f"a note of {len(data)} bytes says that {length} numbers follow, or a plan without tasks")
    numbers = np.frombuffer(data, ">i8", length, _HEAD.size).astype(np.int64)
    plan = ExecutionPlan(blocks, buckets, workers)
    return Note(plan, number, watermark, bool(flags & _LAST), numbers, bool(flags & _ALL_SPLIT))


def pairs(rows: Sequence[tuple[int, int]]) -> Ints:
    """(bucket, rows) as the numbers of a note."""
    return np.array(rows, dtype=np.int64).reshape(-1)
