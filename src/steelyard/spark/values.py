"""Values that a user's Python made, as Arrow columns: what does not fit its type is told, never cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of a type; ValueError where a number would lose its fraction, as Arrow lets it.

    >>> column_of([3.0, None], pa.int64()).to_pylist()
    [3, None]
    >>> column_of([3.5], pa.int64())
    Traceback (most recent call last):
    ValueError: 3.5 is no value of type int64: it would lose its fraction
    """
    made = pa.array(values, kind)
    if _has_whole_numbers(kind):
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
