"""Rows in frames: those that are too many for one go in several."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from steelyard.resident.wire import MAX_PAYLOAD

LARGEST = MAX_PAYLOAD
"""Bytes of rows in a frame; one row alone may have more, and is refused where it is sent."""


def in_frames(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same rows, in as many parts as it takes; at least one, also where there are no rows.

    >>> [part.num_rows for part in in_frames(pa.record_batch({"x": [1, 2, 3]}))]
    [3]
    """
    if rows.num_rows <= 1 or pa.ipc.get_record_batch_size(rows) <= LARGEST:
        yield rows
        return
    half = rows.num_rows // 2
    yield from in_frames(rows.slice(0, half))
    yield from in_frames(rows.slice(half))


def together(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Parts of the same, as one; they are of one schema, and there is at least one."""
    if len(parts) == 1:
        return parts[0]
    whole = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return whole[0] if whole else parts[0]
