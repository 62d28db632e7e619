"""Rows in frames: those that are too many for one go in several."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from steelyard.core.arrow import in_one_batch
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
    return in_one_batch(parts, "give a smaller batch_rows= or interval=, or more blocks= and buckets=")


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch, also where it has no rows."""
    return together(table.to_batches() or [_empty(table.schema)])


def table_in_frames(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The same as `in_frames`, for a table that need not fit into one batch."""
    for batch in table.to_batches() or [_empty(table.schema)]:
        yield from in_frames(batch)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
