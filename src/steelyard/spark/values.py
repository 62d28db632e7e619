"""Values that a user's Python made, as Arrow columns: what does not fit its type is told, never cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

_WHOLE = {int, bool, type(None), np.int64, np.int32}
"""Types whose values have no fraction."""


def as_column(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    """What a user's Python made for `count` keys at once, as a column of a type: NumPy, Arrow, or a list of values.

    ValueError (or one of Arrow's own) where it is longer or shorter, or where a value would not stay as it is.

    >>> as_column(np.array([3.0, 4.0]), pa.int64(), 2).to_pylist()
    [3, 4]
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype != object:
        values = pa.array(values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"a column is a NumPy or Arrow array with a value for each key, got {values!r}")
    if len(values) != count:
        raise ValueError(f"a column must have {count} values, one for each key, got {len(values)}")
    if not isinstance(values, pa.Array) or (pa.types.is_nested(kind) and leaves(values.type) != leaves(kind)):
        return column_of(values.to_pylist() if isinstance(values, pa.Array) else list(values), kind)
    if not _may_become(values.type, kind):
        raise TypeError(f"a column of {values.type} is none of {kind}")
    return values if values.type == kind else values.cast(kind)


EXACT = 1 << 53
"""Up to which doubles have all whole numbers."""


def beyond_doubles(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Which values of a column with nulls have digits that doubles have not, where nulls make doubles of it; or None.

    >>> beyond_doubles(pa.array([1, 2**53 + 1, None])).tolist(), beyond_doubles(pa.array([2**53 + 1]))
    ([False, True, False], None)
    """
    if not column.null_count or not pa.types.is_integer(column.type) or column.type.bit_width < 64:
        return None
    values = pc.fill_null(column, 0).to_numpy()
    large = (values > EXACT) | (values < -EXACT)
    return large if large.any() else None


def as_frame(rows: pa.RecordBatch) -> pd.DataFrame:
    """Rows as pandas has them; but a column with nulls whose whole numbers doubles have not keeps them, as `Int64`.

    >>> as_frame(pa.record_batch({"i": [2**53 + 1, None], "j": [1, None]})).dtypes.astype(str).to_dict()
    {'i': 'Int64', 'j': 'float64'}
    """
    import pandas as pd  # noqa: PLC0415 - slow to import, and few tasks need it

    frame: pd.DataFrame = rows.to_pandas()
    exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    for number, column in enumerate(rows.columns):
        if beyond_doubles(column) is not None:
            frame.isetitem(number, column.to_pandas(types_mapper=exact.get))
    return frame


def leaves(kind: pa.DataType) -> list[pa.DataType]:
    """The types of all values in a type, in their order."""
    if not pa.types.is_nested(kind):
        return [kind]
    return [leaf for i in range(kind.num_fields) for leaf in leaves(kind.field(i).type)]


def _may_become(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast between two types that fails where a value would change is one: no texts from numbers, say."""
    is_a = pa.types
    if given == wanted or is_a.is_null(given) or is_a.is_nested(wanted):
        return True
    if is_a.is_dictionary(given):
        return _may_become(given.value_type, wanted)
    if is_a.is_integer(given):
        return bool(is_a.is_integer(wanted) or is_a.is_floating(wanted) or is_a.is_decimal(wanted))
    families = (
        is_a.is_floating,
        is_a.is_decimal,
        is_a.is_boolean,
        is_a.is_timestamp,
        is_a.is_date,
        is_a.is_duration,
        lambda kind: is_a.is_string(kind) or is_a.is_large_string(kind),
        lambda kind: is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_fixed_size_binary(kind),
    )
    if is_a.is_floating(given) and is_a.is_integer(wanted):
        return True
    return any(family(given) and family(wanted) for family in families)


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of a type; ValueError where a number would lose its fraction, as Arrow lets it.

    >>> column_of([3.0, None], pa.int64()).to_pylist()
    [3, None]
    >>> column_of([3.5], pa.int64())
    Traceback (most recent call last):
    ValueError: 3.5 is no value of type int64: it would lose its fraction
    """
    made = pa.array(values, kind)
    if _has_whole_numbers(kind) and not (pa.types.is_integer(kind) and set(map(type, values)) <= _WHOLE):
        for value in values:
            if _is_cut(value, kind):
                raise ValueError(f"{value!r} is no value of type {kind}: it would lose its fraction")
    return made


def _has_whole_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_whole_numbers(kind.key_type) or _has_whole_numbers(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_whole_numbers(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_integer(kind))


def _is_cut(value: Any, kind: pa.DataType) -> bool:
    """Whether a value that Arrow took for this type has a fraction where the type has none."""
    if value is None:
        return False
    if pa.types.is_integer(kind):
        return isinstance(value, float | np.floating | Decimal) and value % 1 != 0
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return any(_is_cut(key, kind.key_type) or _is_cut(item, kind.item_type) for key, item in pairs)
    if pa.types.is_struct(kind):
        return any(_is_cut(part, field.type) for part, field in zip(_by_field(value, kind), kind.fields, strict=False))
    return pa.types.is_nested(kind) and any(_is_cut(part, kind.field(0).type) for part in value)


def _by_field(value: Any, kind: pa.DataType) -> Iterable[Any]:
    """A struct's values by the place of their fields; Arrow takes tuples, mappings and lists of pairs."""
    if isinstance(value, tuple):
        return value
    named = value if isinstance(value, Mapping) else dict(value)
    return (named.get(field.name) for field in kind.fields)
