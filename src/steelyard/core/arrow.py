"""Rows of Arrow in one piece."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from steelyard.core.errors import BatchError


def in_one_batch(parts: Iterable[pa.RecordBatch], remedy: str) -> pa.RecordBatch:
    """Batches as one, of which there is at least one.

    BatchError with a remedy where a column of text has more bytes than Arrow can count.

    >>> in_one_batch([pa.record_batch({"x": [1]}), pa.record_batch({"x": [2]})], "take less").num_rows
    2
    """
    found = list(parts)
    if len(found) == 1:
        return found[0]
    try:
        return pa.concat_batches(found)
    except pa.ArrowInvalid as error:
        raise BatchError(f"a task cannot hold more than 2 GB of one column: {remedy} ({error})") from error
