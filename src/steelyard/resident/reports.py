"""Requests and reports of groupings as bytes: numbers in a fixed layout, big-endian like everything on the wire."""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.core import OptionError
from steelyard.grouping.protocol import Matrices, Reply, Report, Requests
from steelyard.resident.wire import MAX_NOTE, WireError

_BEGAN = 1_767_225_600
"""2026-01-01: seconds are counted from here, since sums of microseconds would lose digits if counted from 1970."""
_REQUEST = np.dtype([("position", ">u4"), ("epoch", ">i8"), ("load", ">f8")])
MOST_REQUESTS = MAX_NOTE // 2 // _REQUEST.itemsize
"""That fit into the note of one batch."""
_REPLY = struct.Struct("!BIIqddddd")
"""Kind, sender, scheduler, epoch, difference, tuples, time, time on the scheduler's tuples, time on anything."""
_MATRICES = struct.Struct("!BIIIdd")
"""Kind, sender, rows, columns, tuples, time; the cells are behind it."""
_IS_REPLY, _IS_MATRICES = 1, 2


def now() -> float:
    """The clock of schedulers and instances: that of the machine, which those of a cluster agree on well enough."""
    return time.time() - _BEGAN


def packed_requests(requests: Requests) -> bytes:
    """Requests as the note of a batch.

    >>> requests = Requests(np.array([3]), np.array([1]), np.array([0.5]))
    >>> unpacked_requests(packed_requests(requests), rows=4)
    Requests(position=array([3]), epoch=array([1]), load=array([0.5]))
    """
    if not len(requests.position):
        return b""
    made = np.empty(len(requests.position), _REQUEST)
    made["position"], made["epoch"], made["load"] = requests
    return made.tobytes()


def unpacked_requests(note: bytes, rows: int) -> Requests:
    """The requests of a note; WireError where it has none that a batch of so many rows could carry."""
    if not note:
        return Requests.none()
    if len(note) % _REQUEST.itemsize:
        raise WireError(f"a note of {len(note)} bytes has no whole number of requests")
    found = np.frombuffer(note, _REQUEST)
    position = found["position"].astype(np.int64)
    if len(position) and (position[-1] >= rows or (np.diff(position) <= 0).any()):
        raise WireError(f"requests at rows {position.tolist()[:8]} do not fit a batch of {rows} rows")
    return Requests(position, found["epoch"].astype(np.int64), found["load"].astype(np.float64))


def packed_reports(reports: Sequence[Report]) -> bytes:
    """Reports as a payload.

    >>> reply = Reply(sender=1, scheduler=0, epoch=2, delta=-0.5, tuples=10.0, time=3.0, own=1.0, everything=2.0)
    >>> unpacked_reports(packed_reports([reply])) == [reply]
    True
    """
    parts = []
    for one in reports:
        if isinstance(one, Reply):
            numbers = (one.delta, one.tuples, one.time, one.own, one.everything)
            parts.append(_REPLY.pack(_IS_REPLY, one.sender, one.scheduler, one.epoch, *numbers))
        else:
            rows, columns, _ = one.cells.shape
            parts.append(_MATRICES.pack(_IS_MATRICES, one.sender, rows, columns, one.tuples, one.time))
            parts.append(one.cells.astype(">f8").tobytes())
    return b"".join(parts)


def unpacked_reports(payload: Any) -> list[Report]:
    """The reports of a payload; WireError where it has none."""
    data, at = memoryview(payload).cast("B"), 0
    reports: list[Report] = []
    try:
        while at < len(data):
            if data[at] == _IS_REPLY:
                _, sender, scheduler, *rest = _REPLY.unpack_from(data, at)
                reports.append(Reply(sender, scheduler, *rest))
                at += _REPLY.size
            elif data[at] == _IS_MATRICES:
                _, sender, rows, columns, tuples, spent = _MATRICES.unpack_from(data, at)
                at += _MATRICES.size
                cells = np.frombuffer(data, ">f8", rows * columns * 2, at).astype(np.float64)
                at += cells.nbytes
                reports.append(Matrices(sender, cells.reshape(rows, columns, 2), tuples, spent))
            else:
                raise WireError(f"there is no report of kind {data[at]}")
    except (struct.error, ValueError) as error:
        raise WireError(f"reports of {len(data)} bytes are cut off or damaged: {error}") from error
    return reports


def arrays_bytes(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Arrays by name, without pickles."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def bytes_arrays(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that `arrays_bytes` was given; OptionError where there are none."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, OSError) as error:
        raise OptionError(f"this is no state of a grouping: {error}") from error
