"""Operations of expressions, over whole columns: arithmetic, comparisons, casts, text and dates as Spark has them.

Each takes the columns that it is of and the type of its result, and gives the values and where they are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.resident.expressions import Made

Columns = Sequence[pa.Array]
_INT64 = pa.int64()
_LEAST = -(1 << 63)
_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000
_ONE = r"(?:[\x00-\x7f]|[\xc0-\xff][\x80-\xbf]*)"
"""One character, in bytes of UTF-8."""


def _numpy(column: pa.Array) -> Any:
    """Numbers, 0 in the place of nulls."""
    zero = pa.scalar(0).cast(column.type)
    return (column.fill_null(zero) if column.null_count else column).to_numpy(zero_copy_only=False)


def _array(values: Any, kind: pa.DataType, *columns: pa.Array) -> pa.Array:
    """Values of NumPy, null where one of the columns is."""
    nulls = np.zeros(len(values), np.bool_)
    for column in columns:
        if column.null_count:
            nulls |= column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, kind, mask=nulls)


def _range(kind: pa.DataType) -> tuple[int, int]:
    bound = 1 << (kind.bit_width - 1)
    return -bound, bound - 1


# -- arithmetic


def added(columns: Columns, kind: pa.DataType) -> Made:
    """left + right."""
    return _summed(columns, kind, pc.add)


def subtracted(columns: Columns, kind: pa.DataType) -> Made:
    """left - right."""
    return _summed(columns, kind, pc.subtract)


def _summed(columns: Columns, kind: pa.DataType, operation: Any) -> Made:
    left, right = columns
    if pa.types.is_decimal(kind):  # exact: a result has one digit more than what is added
        wide = pa.decimal128(kind.precision - 1, kind.scale)
        return operation(left.cast(wide), right.cast(wide)), None
    made = operation(left, right)
    if not pa.types.is_integer(kind):
        return made, None
    if kind != _INT64:
        return made, pc.not_equal(operation(left.cast(_INT64), right.cast(_INT64)), made.cast(_INT64))
    other = right if operation is pc.add else pc.bit_wise_not(right)  # signs that make an overflow possible
    signs = pc.bit_wise_and(pc.bit_wise_xor(left, made), pc.bit_wise_xor(other, made))
    return made, pc.less(signs, 0)


def multiplied(columns: Columns, kind: pa.DataType) -> Made:
    """left * right."""
    left, right = columns
    made = pc.multiply(left, right)
    if not pa.types.is_integer(kind):
        return made, None
    if kind != _INT64:
        return made, pc.not_equal(pc.multiply(left.cast(_INT64), right.cast(_INT64)), made.cast(_INT64))
    a, b, both = _numpy(left), _numpy(right), _numpy(made)
    divisor = np.where((a == 0) | (a == -1), 1, a)
    wrong = (a != 0) & np.where(a == -1, b == _LEAST, both // divisor != b)
    return made, pa.array(wrong & _valid(made))


def _valid(column: pa.Array) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)


def divided(columns: Columns, kind: pa.DataType) -> Made:
    """left / right, of doubles."""
    with np.errstate(all="ignore"):
        values = _numpy(columns[0]) / _numpy(columns[1])
    made = _array(values, kind, *columns)
    return made, _at_zero(made, columns[1])


def remainder(columns: Columns, kind: pa.DataType) -> Made:
    """left % right, with the sign of the left, as in Java."""
    left, right = map(_numpy, columns)
    if pa.types.is_integer(kind):
        right = np.where((right == 0) | (right == -1), 1, right).astype(right.dtype)
    with np.errstate(all="ignore"):
        made = _array(np.fmod(left, right), kind, *columns)
    return made, _at_zero(made, columns[1])


def _at_zero(made: pa.Array, divisor: pa.Array) -> pa.Array:
    return pc.and_(made.is_valid(), pc.equal(divisor, pa.scalar(0).cast(divisor.type)))


def negated(columns: Columns, kind: pa.DataType) -> Made:
    """-value."""
    return pc.negate(columns[0]), _least(columns[0], kind)


def absolute(columns: Columns, kind: pa.DataType) -> Made:
    """|value|."""
    return pc.abs(columns[0]), _least(columns[0], kind)


def _least(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    return pc.equal(column, pa.scalar(_range(kind)[0], kind)) if pa.types.is_integer(kind) else None


# -- conditions


def equal(columns: Columns, kind: pa.DataType) -> Made:
    """left = right; NaN is NaN."""
    left, right = columns
    made = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        made = pc.or_(made, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return made, None


def less(columns: Columns, kind: pa.DataType, swapped: bool, negated: bool) -> Made:
    """left < right, with sides swapped, and the result negated, where said; NaN is above all other numbers."""
    left, right = reversed(columns) if swapped else columns
    if pa.types.is_boolean(left.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    made = pc.less(left, right)
    if pa.types.is_floating(left.type):
        made = pc.or_(made, pc.and_not(pc.is_nan(right), pc.is_nan(left)))
    return pc.invert(made) if negated else made, None


def equal_or_both_null(columns: Columns, kind: pa.DataType) -> Made:
    """left <=> right."""
    same = pc.fill_null(equal(columns, kind)[0], False)
    return pc.or_(same, pc.and_(columns[0].is_null(), columns[1].is_null())), None


def inverted(columns: Columns, kind: pa.DataType) -> Made:
    """NOT value."""
    return pc.invert(columns[0]), None


def is_null(columns: Columns, kind: pa.DataType, wanted: bool) -> Made:
    """Whether a value is null, or is not."""
    return columns[0].is_null() if wanted else columns[0].is_valid(), None


def is_nan(columns: Columns, kind: pa.DataType) -> Made:
    """Whether a value is NaN; null is not."""
    return pc.fill_null(pc.is_nan(columns[0]), False), None


def is_one_of(columns: Columns, kind: pa.DataType, values: pa.Array, has_null: bool) -> Made:
    """value IN (values): null for null, and where nothing fits but one of them is null."""
    (column,) = columns
    if pa.types.is_floating(column.type):  # a zero and its negative are one value
        zero = pa.scalar(0.0).cast(column.type)
        column, values = pc.add(column, zero), pc.add(values, zero)
    found = pc.is_in(column, values)
    unknown = pc.and_not(pa.repeat(pa.scalar(has_null), len(column)), found)
    return pc.if_else(pc.or_(column.is_null(), unknown), pa.scalar(None, kind), found), None


# -- casts


def cast(columns: Columns, kind: pa.DataType) -> Made:
    """In another type that has all values of this one, or the nearest."""
    return columns[0].cast(kind, safe=False), None


def narrowed(columns: Columns, kind: pa.DataType) -> Made:
    """Whole numbers in a type that has fewer of them."""
    made = columns[0].cast(kind, safe=False)
    return made, pc.not_equal(made.cast(columns[0].type), columns[0])


def truncated(columns: Columns, kind: pa.DataType) -> Made:
    """Floating numbers as whole ones, without their fractions."""
    values = _numpy(columns[0]).astype(np.float64)
    low, high = _range(kind)
    with np.errstate(invalid="ignore"):
        fits = (np.floor(values) <= float(high)) & (np.ceil(values) >= float(low))
        whole = np.trunc(np.where(fits, values, 0.0))
        above = whole >= 2.0**63  # the one double above the largest bigint that Spark takes for it
        made = np.where(above, high, np.where(above, 0.0, whole).astype(np.int64))
    return _array(made.astype(kind.to_pandas_dtype()), kind, columns[0]), pa.array(~fits & _valid(columns[0]))


def is_not_zero(columns: Columns, kind: pa.DataType) -> Made:
    """A whole number as a boolean."""
    return pc.not_equal(columns[0], pa.scalar(0, columns[0].type)), None


def nulls(columns: Columns, kind: pa.DataType) -> Made:
    """Nothing."""
    return pa.nulls(len(columns[0]), kind), None


def decoded(columns: Columns, kind: pa.DataType) -> Made:
    """Bytes as text; what is no UTF-8 is wrong."""
    (column,) = columns
    try:
        return column.cast(kind), None
    except pa.ArrowInvalid:
        values = column.to_pylist()
        texts = [None if value is None else _text(value) for value in values]
        wrong = [text is None and value is not None for text, value in zip(texts, values, strict=True)]
        return pa.array(texts, kind), pa.array(wrong)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def days(columns: Columns, kind: pa.DataType) -> Made:
    """Times as dates, in UTC."""
    micros = _numpy(columns[0].cast(_INT64))
    return _array((micros // (24 * _HOUR)).astype(np.int32), pa.int32(), columns[0]).cast(kind), None


def as_time(columns: Columns, kind: pa.DataType, micros: int) -> Made:
    """Whole numbers of so many microseconds as times since 1970."""
    number = columns[0].cast(_INT64)
    made, wrong = multiplied([number, pa.repeat(pa.scalar(micros), len(number))], _INT64)
    return made.cast(kind), wrong


# -- text


def begins(columns: Columns, kind: pa.DataType, text: str) -> Made:
    """Whether a text begins with another."""
    return pc.starts_with(columns[0], text), None


def ends(columns: Columns, kind: pa.DataType, text: str) -> Made:
    """Whether a text ends with another."""
    return pc.ends_with(columns[0], text), None


def contains(columns: Columns, kind: pa.DataType, text: str) -> Made:
    """Whether another text is in a text."""
    return pc.match_substring(columns[0], text), None


def like(columns: Columns, kind: pa.DataType, pattern: str) -> Made:
    """Whether a text is like a pattern of LIKE without an escape: over bytes, so that no character is special.

    >>> like([pa.array(["a.b", "aüb", "a\\nbc", None])], pa.bool_(), "a_b%")[0].to_pylist()
    [True, True, True, None]
    """
    parts = {"%": ".*", "_": _ONE}
    expression = "".join(parts.get(one) or re.escape(one) for one in pattern)
    return pc.match_substring_regex(columns[0].cast(pa.binary()), f"(?s)^{expression}\\z"), None


def length(columns: Columns, kind: pa.DataType) -> Made:
    """Characters of a text, bytes of bytes."""
    (column,) = columns
    return (pc.utf8_length if pa.types.is_string(column.type) else pc.binary_length)(column).cast(kind), None


def trimmed(columns: Columns, kind: pa.DataType, where: str) -> Made:
    """Without blanks on the `left`, the `right` or `both` sides."""
    function = {"left": pc.utf8_ltrim, "right": pc.utf8_rtrim, "both": pc.utf8_trim}[where]
    return function(columns[0], " "), None


def joined(columns: Columns, kind: pa.DataType) -> Made:
    """Texts behind each other; null where one is."""
    return pc.binary_join_element_wise(*columns, "", null_handling="emit_null"), None


def part_of(columns: Columns, kind: pa.DataType, start: int, end: int) -> Made:
    """Some characters of a text."""
    return pc.utf8_slice_codeunits(columns[0], start, end), None


# -- dates and times


def part_of_date(columns: Columns, kind: pa.DataType, part: str) -> Made:
    """The `year`, `month` or `day` of a date. (Arrow's own years end at 32767.)"""
    date = _numpy(columns[0].cast(pa.int32())).astype("datetime64[D]")
    months = date.astype("datetime64[M]")
    if part == "year":
        found = date.astype("datetime64[Y]").astype(np.int64) + 1970
    elif part == "month":
        found = months.astype(np.int64) % 12 + 1
    else:
        found = (date - months.astype("datetime64[D]")).astype(np.int64) + 1
    return _array(found.astype(np.int32), kind, columns[0]), None


def part_of_time(columns: Columns, kind: pa.DataType, part: str) -> Made:
    """The `hour`, `minute` or `second` of a time, in UTC."""
    unit, most = {"hour": (_HOUR, 24), "minute": (_MINUTE, 60), "second": (_SECOND, 60)}[part]
    found = _numpy(columns[0].cast(_INT64)) // unit % most
    return _array(found.astype(np.int32), kind, columns[0]), None
