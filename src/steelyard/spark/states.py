"""The steps of a Python aggregate over groups, in either of its forms: one call per group, or one for all of them.

All engines go through here, so that a class gives the same answers on each. States are Arrow columns where they cross
tasks; in between they are what the form that ran has made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import BatchError
from steelyard.spark.aggregator import Aggregator, AggregatorUse
from steelyard.spark.values import as_column, beyond_doubles, column_of

Ints = np.ndarray[Any, np.dtype[np.int64]]
States: TypeAlias = "list[Any] | pa.StructArray"
"""A state for each group: Python values, or a column of structs."""

UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises where a value is not of a type."""
NO_FIELDS = (str, bytes, dict, set, frozenset)
"""Iterables that have no values of several fields in them, one after the other."""


def added(use: AggregatorUse, columns: Sequence[pa.Array], order: Ints, offsets: Ints, kind: pa.DataType) -> States:
    """The state of each group of rows: group i has the rows `order[offsets[i] : offsets[i + 1]]`, at least one."""
    aggregator = use.aggregator
    if len(offsets) <= 1:  # an empty block: no aggregator is asked for it
        return []
    _require_digits(use, columns, order, offsets)
    if aggregator.gives("add_block"):
        return _added_in_blocks(aggregator, columns, order, offsets, kind)
    slices = [slices_of(column, order, aggregator) for column in columns]
    add, zero = aggregator.add, aggregator.zero
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    if len(slices) == 1:
        (values,) = slices
        states = [add(zero(), values[start:end]) for start, end in bounds]
    else:
        states = [add(zero(), *[values[start:end] for values in slices]) for start, end in bounds]
    _require_given(states, aggregator, "add", kind)
    return states


def _require_digits(use: AggregatorUse, columns: Sequence[pa.Array], order: Ints, offsets: Ints) -> None:
    """BatchError where a group has nulls beside whole numbers that doubles, with NaN for null, have not."""
    if use.aggregator.takes_arrow:
        return
    for name, column in zip(use.columns, columns, strict=True):
        large = beyond_doubles(column)
        if large is not None:
            null = column.is_null().to_numpy(zero_copy_only=False)
            has_both = [np.logical_or.reduceat(part[order], offsets[:-1]) for part in (large, null)]
            if np.logical_and(*has_both).any():
                raise BatchError(
                    f"column {name!r} has nulls beside whole numbers beyond 2**53, and a null is NaN in an array of "
                    "doubles, which lose digits there: fill the nulls before, cast the column to decimal or string, or "
                    f"say takes_arrow = True in {type(use.aggregator).__name__}, which then gets Arrow arrays"
                )


_is_none = partial(is_, None)


def _require_given(states: list[Any], aggregator: Aggregator, step: str, kind: pa.DataType) -> None:
    """BatchError where a step gave None for a state, unless that is how the class says that there are no rows."""
    if any(map(_is_none, states)) and not (kind.num_fields == 1 and begins_with_none(aggregator)):
        raise BatchError(gave_none(aggregator, step))


def begins_with_none(aggregator: Aggregator) -> bool:
    """Whether None is the state of no rows."""
    return aggregator.gives("zero") and aggregator.zero() is None


def gave_none(aggregator: Aggregator, step: str) -> str:
    """The sentence for a step that gives None for a state."""
    return f"{type(aggregator).__name__}.{step}() gave None: has it no return?"


@contextmanager
def told_of(name: str) -> Iterator[None]:
    """What is wrong with a class, under the user's name of the aggregate."""
    try:
        yield
    except BatchError as error:
        raise BatchError(f"aggregate {name!r}: {error}") from error


def _added_in_blocks(
    aggregator: Aggregator, columns: Sequence[pa.Array], order: Ints, offsets: Ints, kind: pa.DataType
) -> pa.StructArray:
    """`add_block` over all groups; those with nulls among whole numbers apart, so that the others keep every digit."""
    made, where = [], []
    for chosen, rows, bounds in _alike(columns, order, offsets):
        given = aggregator.add_block([values_of(column, rows, aggregator) for column in columns], bounds)
        made.append(of_block(given, kind, len(bounds) - 1, f"{type(aggregator).__name__}.add_block()"))
        where.append(chosen)
    if len(made) == 1:
        return made[0]
    return pa.concat_arrays(made).take(pa.array(np.argsort(np.concatenate(where))))


def _alike(columns: Sequence[pa.Array], order: Ints, offsets: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(groups, their rows, their bounds): all groups of a part have nulls in the same columns that turn into floats."""
    kinds = np.zeros(len(offsets) - 1, np.int64)
    for column in columns:
        if column.null_count and _turns(column.type):
            null = column.is_null().to_numpy(zero_copy_only=False)[order]
            has_null = np.logical_or.reduceat(null, offsets[:-1])
            kinds = np.unique(kinds * 2 + has_null, return_inverse=True)[1]
    if not kinds.any():
        yield np.arange(len(kinds)), order, offsets
        return
    sizes = np.diff(offsets)
    for one in np.unique(kinds):
        chosen = kinds == one
        yield np.flatnonzero(chosen), order[np.repeat(chosen, sizes)], bounds_of(sizes[chosen])


def bounds_of(sizes: Ints) -> Ints:
    """Where groups of these sizes begin, and where the last one ends.

    >>> bounds_of(np.array([2, 1])).tolist()
    [0, 2, 3]
    """
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def _has_numpy_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and not pa.types.is_decimal(kind))


def _turns(kind: pa.DataType) -> bool:
    """Whether a null makes floats of the values: NumPy has none among whole numbers and booleans."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def values_of(column: pa.Array, order: Ints, aggregator: Aggregator) -> Any:
    """A column in this order: as NumPy where NumPy has the type, with NaN for null; else as Arrow."""
    if aggregator.takes_arrow or not _has_numpy_type(column.type):
        return column.take(pa.array(order))
    if column.null_count:
        taken = column.take(pa.array(order))
        turned = taken.cast(pa.float64()) if taken.null_count and _turns(taken.type) else taken
        return turned.to_numpy(zero_copy_only=False)
    return column.to_numpy(zero_copy_only=False).take(order)


def slices_of(column: pa.Array, order: Ints, aggregator: Aggregator) -> Any:
    """A column in group order, to be sliced by group: a group without nulls stays what it is without the others."""
    if column.null_count and _turns(column.type) and not aggregator.takes_arrow:
        return _WithNulls(column, order)
    return values_of(column, order, aggregator)


class _WithNulls:
    """Whole numbers or booleans with nulls. Slices without nulls keep the type; others are floats, with NaN."""

    def __init__(self, column: pa.Array, order: Ints) -> None:
        self._values = pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)[order]
        self._null = column.is_null().to_numpy(zero_copy_only=False)[order]

    def __getitem__(self, part: slice) -> Any:
        values, null = self._values[part], self._null[part]
        return np.where(null, np.nan, values) if null.any() else values


def merged(use: AggregatorUse, states: States, offsets: Ints, kind: pa.DataType) -> States:
    """One state for each group of states: group i has those from `offsets[i]` to `offsets[i + 1]`, at least one."""
    sizes = np.diff(offsets)
    if len(offsets) <= 1 or sizes.max() == 1:
        return states
    aggregator = use.aggregator
    if aggregator.gives("merge_block"):
        given = aggregator.merge_block(columns_of(encoded(states, kind, "add()")), offsets)
        return of_block(given, kind, len(sizes), f"{type(aggregator).__name__}.merge_block()")
    merge, values = aggregator.merge, decoded(states)
    bounds = offsets.tolist()
    found = [values[start] for start in bounds[:-1]]
    for group in np.flatnonzero(sizes > 1).tolist():
        state = found[group]
        for place in range(bounds[group] + 1, bounds[group + 1]):
            state = merge(state, values[place])
        found[group] = state
    if not any(map(_is_none, values)):
        _require_given(found, aggregator, "merge", kind)
    return found


def subtracted(use: AggregatorUse, whole: States, part: States, kind: pa.DataType) -> States:
    """Each state of `whole` without that of `part` at its place."""
    aggregator = use.aggregator
    if aggregator.gives("subtract_block"):
        both = [columns_of(encoded(states, kind, "merge()")) for states in (whole, part)]
        of = f"{type(aggregator).__name__}.subtract_block()"
        return of_block(aggregator.subtract_block(*both), kind, len(whole), of)
    wholes, parts = decoded(whole), decoded(part)
    less = [aggregator.subtract(left, right) for left, right in zip(wholes, parts, strict=True)]
    if not any(map(_is_none, wholes)) and not any(map(_is_none, parts)):
        _require_given(less, aggregator, "subtract", kind)
    return less


def finished(use: AggregatorUse, states: States, state: pa.DataType, result: pa.DataType) -> pa.Array:
    """What an aggregator makes of states; ValueError where that is not of its type."""
    aggregator, kind = use.aggregator, type(use.aggregator).__name__
    if not len(states):
        return pa.array([], result)
    if aggregator.gives("finish_block"):
        given, who = aggregator.finish_block(columns_of(encoded(states, state, "merge()"))), "finish_block()"
    else:
        given, who = [aggregator.finish(value) for value in decoded(states)], "finish()"
    try:
        return as_column(given, result, len(states))
    except UNFIT as error:
        raise ValueError(f"{kind}.{who} gave what is no {aggregator.result}: {error}") from error


def columns_of(states: pa.StructArray) -> tuple[Any, ...]:
    """The fields of states: as NumPy where NumPy has the type and nothing is null, else as Arrow."""
    return tuple(
        part.to_numpy(zero_copy_only=False) if _has_numpy_type(part.type) and not part.null_count else part
        for part in states.flatten()
    )


def of_block(given: Any, kind: pa.DataType, count: int, of: str) -> pa.StructArray:
    """Columns that a block form made, as one column of `count` states; BatchError where they are not of their types."""
    if not isinstance(given, tuple | list) or len(given) != kind.num_fields:
        raise BatchError(
            f"{of} must give a tuple with a column for each of the fields ({_fields(kind)}), got {_told(given)}"
        )
    try:
        parts = [as_column(part, field.type, count) for part, field in zip(given, kind.fields, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=kind.fields)
    except UNFIT as error:
        raise BatchError(f"{of} gave what are no states of ({_fields(kind)}): {error}") from error


def _told(given: Any) -> str:
    return f"{len(given)} of them" if isinstance(given, tuple | list) else type(given).__name__


def encoded(states: States, kind: pa.DataType, of: str) -> pa.StructArray:
    """States as one Arrow column of structs; ValueError where one is none, with who gave it (`of`).

    A state of one field is the bare value; one of several, any iterable of as many values, in their order.
    """
    if isinstance(states, pa.StructArray):
        return states
    try:
        return pa.StructArray.from_arrays(_parts(states, kind), fields=kind.fields)
    except UNFIT as error:
        raise ValueError(f"{of} gave what is no state of ({_fields(kind)}): {error}") from error


def _fields(kind: pa.DataType) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in kind.fields)


def _parts(states: list[Any], kind: pa.DataType) -> list[pa.Array]:
    """For each field of a state, the values of all states."""
    if kind.num_fields == 1:
        if isinstance(next(iter(states), None), tuple) and not pa.types.is_nested(kind.field(0).type):
            raise ValueError(f"a state of the one field {kind.field(0).name!r} is the bare value, not a tuple")
        return [column_of(states, kind.field(0).type)]
    if set(map(type, states)) - {tuple}:
        states = [_as_tuple(state) for state in states]
    for length in set(map(len, states)) - {kind.num_fields}:
        raise ValueError(f"a state must have {kind.num_fields} fields, got {length}")
    return [column_of([state[i] for state in states], field.type) for i, field in enumerate(kind.fields)]


def _as_tuple(state: Any) -> tuple[Any, ...]:
    if state is None or isinstance(state, NO_FIELDS):
        raise ValueError(f"a state of several fields is a tuple, got {state!r}")
    return tuple(state)


def decoded(states: States) -> list[Any]:
    """The states of a column of structs as Python values; the inverse of `encoded`."""
    if isinstance(states, list):
        return states
    parts = [_listed(part) for part in states.flatten()]
    return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


def _listed(column: pa.Array) -> list[Any]:
    """As `to_pylist`, which takes ten times as long for numbers."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())
