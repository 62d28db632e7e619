"""Hashes of keys inside tasks, in NumPy: equal keys have one hash in every task. Spark's own is not needed for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.counts import one_zero

Ints = np.ndarray[Any, np.dtype[np.int64]]
UInts = np.ndarray[Any, np.dtype[np.uint64]]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def key_hashes(columns: list[pa.Array]) -> Ints:
    """int64[rows]: a hash of each row, from 0 on; rows that are equal in all columns have the same one.

    >>> one, two, three = key_hashes([pa.array(["a", "b", "a"]), pa.array([1, 1, 1])]).tolist()
    >>> one == three != two
    True
    """
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = _mixed(hashes ^ _words(one_zero(column)))
    return (hashes >> np.uint64(1)).astype(np.int64)


def _mixed(words: UInts) -> UInts:
    """Every bit of a word in every bit of the result (the finalizer of SplitMix64)."""
    words = words + _STEP
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return np.asarray(words ^ (words >> np.uint64(31)))


def _words(column: pa.Array) -> UInts:
    """A word for each value, the same for equal ones."""
    kind = column.type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.decimal128(38, kind.scale))
        halves = np.frombuffer(pc.fill_null(column, 0).buffers()[1] or b"", dtype=np.uint64).reshape(-1, 2)
        halves = halves[column.offset : column.offset + len(column)]
        return np.asarray(halves[:, 0] ^ _mixed(halves[:, 1]))
    if pa.types.is_floating(kind):
        values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        return np.asarray(values.view(np.uint64))
    if pa.types.is_primitive(kind):
        whole = column.view(pa.int64()) if kind.bit_width == 64 else column.cast(pa.int32()).cast(pa.int64())
        return np.asarray(pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).view(np.uint64))
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        column = pa.array([str(value) for value in column.to_pylist()])
    return _of_bytes(column)


def _of_bytes(column: pa.Array) -> UInts:
    """Polynomials of the bytes of each value, and of its length."""
    texts = pc.fill_null(column.cast(pa.large_binary()), b"")
    _, starts, data = texts.buffers()
    bounds = np.frombuffer(starts, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(bounds)
    found = lengths.astype(np.uint64)
    longest = int(lengths.max(initial=0))
    if not longest:
        return found
    values = np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]].astype(np.uint64)
    powers = np.multiply.accumulate(np.full(longest, _STEP))
    places = np.arange(len(values)) - np.repeat(bounds[:-1] - bounds[0], lengths)
    filled = lengths > 0
    sums = np.add.reduceat((values + np.uint64(1)) * powers[places], (bounds[:-1] - bounds[0])[filled])
    found[filled] += sums
    return found
