"""Sums that do not wrap: whole numbers and decimals get the digits they need, and what overflows is an error."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import BadRowError

_DIGITS = 38
"""Of a decimal in Spark."""


def summable(values: pa.Array) -> pa.Array:
    """Values in a type in which their sum, of whatever rows, cannot wrap; as they are where it cannot anyway.

    >>> summable(pa.array([1, 2])).type, summable(pa.array([1, 2**62])).type
    (DataType(int64), Decimal128Type(decimal128(38, 0)))
    """
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)) or not len(values):
        return values
    bounds = pc.min_max(values)
    most = max(abs(int(bounds[end].as_py() or 0)) for end in ("min", "max"))
    if pa.types.is_integer(kind):
        return values if most * len(values) < 1 << 63 else values.cast(pa.decimal128(_DIGITS, 0))
    fits = (most + 1) * len(values) < 10 ** (_DIGITS - kind.scale)
    return values if fits else values.cast(pa.decimal256(2 * _DIGITS, kind.scale))


def summed(sums: pa.ChunkedArray, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Sums of `summable` values of a type, as Spark has them: bigint (here uint64 too), or a decimal of 38 digits.

    Raises
    ------
    BadRowError
        Where one does not fit, as in Spark.
    """
    if pa.types.is_signed_integer(kind):
        wanted = pa.int64()
    elif pa.types.is_unsigned_integer(kind):
        wanted = pa.uint64()
    elif pa.types.is_decimal(kind):
        wanted = pa.decimal128(_DIGITS, kind.scale)
    else:
        return sums
    try:
        return sums.cast(wanted)
    except pa.ArrowInvalid as error:
        raise overflown(name, wanted, kind) from error


def overflown(name: str, wanted: pa.DataType, kind: pa.DataType) -> BadRowError:
    """The error for a sum that does not fit."""
    return BadRowError(
        f"the sum {name!r} of values of type {kind} does not fit into {wanted}: cast them to double, which has room "
        "for it, or mend the source"
    )
