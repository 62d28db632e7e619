"""What goes between workers: blocks to map tasks, partials to reduce tasks, merged partials to windows.

Each is a frame of rows whose note says what they are, in a few numbers; rows that are too many for a frame come in
several. What receivers settle for a batch is a note without rows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.wire import WireError

BLOCK, PARTIALS, MERGED, COUNTED, AGREED = range(5)
"""Channels: what the rows of a frame are, and what one receiver says to another."""

_HEAD = struct.Struct("!IIIIqBII")
"""Blocks, buckets, workers, number of the sender's task, watermark, flags, parts, how many numbers follow."""
_ALL_SPLIT, _LAST, _MORE = 1, 2, 4


class Note(NamedTuple):
    """What is said of a batch beside its rows."""

    plan: ExecutionPlan
    number: int
    """The block, or the bucket, that it is or comes from; of what receivers say, which of them does."""
    watermark: int
    last: bool
    """Whether no batch follows; of what a receiver counted, whether it has no more rows."""
    numbers: Ints
    """Of a block, ids of split keys; of partials, buckets and their rows in turn; of receivers, see `Agreement`."""
    all_split: bool = False
    """Whether any key of a block may be in another."""
    parts: int = 1
    """How many receivers add to a block."""
    more: bool = False
    """Whether other rows of the same follow."""


def packed(note: Note) -> bytes:
    """As bytes.

    >>> unpacked(packed(Note(ExecutionPlan(3, 2, 1), 1, -5, True, np.array([7])))).numbers.tolist()
    [7]
    """
    flags = _ALL_SPLIT * note.all_split | _LAST * note.last | _MORE * note.more
    plan, length = note.plan, len(note.numbers)
    start = _HEAD.pack(plan.blocks, plan.buckets, plan.workers, note.number, note.watermark, flags, note.parts, length)
    return start + np.ascontiguousarray(note.numbers, dtype=">i8").tobytes()


def unpacked(data: bytes) -> Note:
    """From bytes; WireError where they are no note."""
    try:
        blocks, buckets, workers, number, watermark, flags, parts, length = _HEAD.unpack_from(data)
    except struct.error as error:
        raise WireError(f"{len(data)} bytes are no note of a batch") from error
    if len(data) != _HEAD.size + 8 * length:
        raise WireError(f"a note of {len(data)} bytes says that {length} numbers follow")
    numbers = np.frombuffer(data, ">i8", length, _HEAD.size).astype(np.int64)
    plan = ExecutionPlan.from_dict({"blocks": blocks, "buckets": buckets, "workers": workers})
    last, all_split, more = (bool(flags & flag) for flag in (_LAST, _ALL_SPLIT, _MORE))
    return Note(plan, number, watermark, last, numbers, all_split, parts, more)


def require_due(note: Note, channel: int, sender: int, receiver: int, workers: int, rows: int, receivers: int) -> None:
    """WireError where what came is not what a worker has for another by the plan of its batch."""
    plan, numbers = note.plan, note.numbers
    if plan.workers != workers:
        raise WireError(f"it goes by a plan for {plan.workers} workers, and there are {workers}")
    if channel == BLOCK:
        fits = note.number < plan.blocks and plan.map_worker(note.number) == receiver
        fits = fits and sender < receivers and 1 <= note.parts <= receivers
    elif channel == PARTIALS:
        fits = note.number < plan.blocks and plan.map_worker(note.number) == sender
        sizes = numbers[1::2]
        fits = fits and numbers[::2].tolist() == plan.buckets_of(receiver) and len(sizes) == len(numbers) // 2
        fits = fits and bool((sizes >= 0).all()) and bool((sizes <= rows).all()) and int(sizes.sum()) == rows
    elif channel == MERGED:
        fits = note.number < plan.buckets and plan.reduce_worker(note.number) == sender
    elif channel == COUNTED:
        fits = note.number == sender < receivers and receiver == 0 and len(numbers) == 2
        fits = fits and bool((numbers >= 0).all())
    else:
        fits = channel == AGREED and note.number == sender == 0 and receiver < receivers
        fits = fits and len(numbers) == 2 * receivers and bool((numbers[:receivers] >= 0).all())
        fits = fits and bool((numbers[receivers:] >= -1).all())
    if not fits:
        raise WireError(f"part {note.number} of channel {channel} is not worker {sender}'s to send, or not to here")


def pairs(rows: Sequence[tuple[int, int]]) -> Ints:
    """(bucket, rows) as the numbers of a note."""
    return np.array(rows, dtype=np.int64).reshape(-1)
