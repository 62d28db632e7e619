"""Rows of Arrow in one piece, and types of keys."""

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


def has_hash(kind: pa.DataType) -> bool:
    """Whether keys of a type can be hashed as Spark hashes them, which `steelyard.kernels.xxhash` does.

    >>> has_hash(pa.int64()), has_hash(pa.uint64()), has_hash(pa.struct({"a": pa.time64("us")}))
    (True, False, False)
    """
    if pa.types.is_struct(kind):
        return all(has_hash(field.type) for field in kind)
    if pa.types.is_dictionary(kind):
        return has_hash(kind.value_type)
    known = (
        pa.types.is_null,
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_duration,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return not pa.types.is_uint64(kind) and any(is_one(kind) for is_one in known)
