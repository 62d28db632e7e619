"""Spark's `xxhash64` over Arrow columns, so that a policy off Spark sends a key where Spark would send it.

The algorithm is XXH64; Spark hashes a row by hashing its columns one after the other, each with the hash so
far as its seed, starting from 42. Integers up to 32 bits, dates, booleans and floats are hashed as 4 bytes;
longs, timestamps, durations, doubles and decimals of up to 18 digits as 8; strings, binaries and wider decimals
by their bytes. Nulls leave the hash as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.kernels.compiled import njit

SPARK_SEED = 42
_LONG_DIGITS = 18
"""Digits of a decimal that always fit a long (Spark's `Decimal.MAX_LONG_DIGITS`)."""

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

UInts = np.ndarray[Any, np.dtype[np.uint64]]


def spark_hash(keys: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """int64[len(keys)]: what Spark's `xxhash64` gives; a struct is hashed as its fields, one after the other.

    >>> spark_hash(pa.array([1, 2], pa.int64())).tolist()
    [-7001672635703045582, -3341702809300393011]
    """
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if pa.types.is_dictionary(column.type):  # each value once, then its code
        of_value = np.append(spark_hash(column.dictionary), SPARK_SEED)
        codes = pc.fill_null(column.indices.cast(pa.int64()), len(of_value) - 1)
        return np.asarray(of_value[codes.to_numpy(zero_copy_only=False)])
    hashes = np.full(len(column), SPARK_SEED, dtype=np.uint64)
    _hash_column(column, hashes)
    return hashes.view(np.int64)


def _hash_column(column: pa.Array, hashes: UInts) -> None:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_struct(kind):
        for field in column.flatten():
            _hash_column(field, hashes)
        return
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(kind):
        column = _unscaled(column)
        kind = column.type
    if _is_text(kind):
        wide = column.cast(pa.large_binary())
        _, offsets, data = wide.buffers()
        starts = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
        hash_bytes(np.frombuffer(data or b"", dtype=np.uint8), starts, valid, hashes)
        return
    if pa.types.is_floating(kind):
        hash_longs(_float_bits(column, kind), valid, hashes, not pa.types.is_float32(kind))
        return
    plain = _integers(column, kind)
    values = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False)
    hash_longs(values.astype(np.int64).view(np.uint64), valid, hashes, pa.types.is_int64(plain.type))


def _integers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as Spark keeps it: in 4 bytes (int32) or 8 (int64), times in microseconds."""
    is_a = pa.types
    if is_a.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if is_a.is_duration(kind):
        return column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    if is_a.is_int64(kind) or is_a.is_uint32(kind):
        return column.cast(pa.int64())
    if is_a.is_date64(kind):
        return column.cast(pa.date32()).cast(pa.int32())
    if is_a.is_date32(kind) or is_a.is_boolean(kind) or is_a.is_null(kind):
        return column.cast(pa.int32())
    if is_a.is_integer(kind) and not is_a.is_uint64(kind):
        return column.cast(pa.int32())
    raise TypeError(
        f"keys of Arrow type {kind} cannot be hashed as Spark hashes them: use numbers, strings, binaries, "
        "booleans, dates, timestamps, or structs of these"
    )


def _unscaled(column: pa.Array) -> pa.Array:
    """Decimals as Spark hashes them: their digits as a long, or as big-endian bytes where there are more than 18."""
    wide = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    words = np.frombuffer(wide.buffers()[1] or b"", dtype="<i8").reshape(-1, 2)[wide.offset : wide.offset + len(wide)]
    valid = wide.is_valid().to_numpy(zero_copy_only=False)
    if column.type.precision <= _LONG_DIGITS:
        return pa.array(words[:, 0], pa.int64(), mask=~valid)
    digits = [int.from_bytes(pair.tobytes(), "little", signed=True) for pair in words]
    # as Java's BigInteger.toByteArray: the fewest bytes that hold the number and its sign
    text = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in digits]
    return pa.array([part if known else None for part, known in zip(text, valid, strict=True)], pa.binary())


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )


def _float_bits(column: pa.Array, kind: pa.DataType) -> UInts:
    values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 and 0.0 are one key
    values[np.isnan(values)] = np.nan  # so are all NaNs, whatever their sign and payload
    if pa.types.is_float32(kind):
        return np.asarray(values.astype(np.float32).view(np.uint32).astype(np.uint64))
    return np.asarray(values.astype(np.float64).view(np.uint64))


@njit(inline="always")
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    left = np.uint64(bits)
    return np.uint64((value << left) | (value >> (np.uint64(64) - left)))


@njit(inline="always")
def _avalanche(value: np.uint64) -> np.uint64:
    value ^= value >> np.uint64(33)
    value *= _P2
    value ^= value >> np.uint64(29)
    value *= _P3
    return np.uint64(value ^ (value >> np.uint64(32)))


@njit(nogil=True)
def hash_longs(values: UInts, valid: Any, hashes: UInts, eight: bool) -> None:
    """Mix one 8-byte (or, where not `eight`, 4-byte) value into each hash, in place."""
    for i in range(len(values)):
        if not valid[i]:
            continue
        if eight:
            mixed = hashes[i] + _P5 + np.uint64(8)
            mixed ^= _rotate(values[i] * _P2, 31) * _P1
            mixed = _rotate(mixed, 27) * _P1 + _P4
        else:
            mixed = hashes[i] + _P5 + np.uint64(4)
            mixed ^= (values[i] & np.uint64(0xFFFFFFFF)) * _P1
            mixed = _rotate(mixed, 23) * _P2 + _P3
        hashes[i] = _avalanche(mixed)


@njit(inline="always")
def _word(data: Any, at: int, width: int) -> np.uint64:
    value = np.uint64(0)
    for j in range(width):
        value |= np.uint64(data[at + j]) << np.uint64(8 * j)
    return value


@njit(nogil=True)
def hash_bytes(data: Any, starts: Any, valid: Any, hashes: UInts) -> None:
    """Mix the bytes `data[starts[i]:starts[i+1]]` into each hash, in place."""
    for i in range(len(starts) - 1):
        if not valid[i]:
            continue
        at, end, seed = starts[i], starts[i + 1], hashes[i]
        length = end - at
        if length >= 32:
            a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while at <= end - 32:
                a = _rotate(a + _word(data, at, 8) * _P2, 31) * _P1
                b = _rotate(b + _word(data, at + 8, 8) * _P2, 31) * _P1
                c = _rotate(c + _word(data, at + 16, 8) * _P2, 31) * _P1
                d = _rotate(d + _word(data, at + 24, 8) * _P2, 31) * _P1
                at += 32
            mixed = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
            for lane in (a, b, c, d):
                mixed ^= _rotate(lane * _P2, 31) * _P1
                mixed = mixed * _P1 + _P4
        else:
            mixed = seed + _P5
        mixed += np.uint64(length)
        while at <= end - 8:
            mixed ^= _rotate(_word(data, at, 8) * _P2, 31) * _P1
            mixed = _rotate(mixed, 27) * _P1 + _P4
            at += 8
        if at <= end - 4:
            mixed ^= _word(data, at, 4) * _P1
            mixed = _rotate(mixed, 23) * _P2 + _P3
            at += 4
        while at < end:
            mixed ^= np.uint64(data[at]) * _P5
            mixed = _rotate(mixed, 11) * _P1
            at += 1
        hashes[i] = _avalanche(mixed)
