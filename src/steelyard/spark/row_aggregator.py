"""Aggregators of the shape that PySpark 4.4 has: `reduce` is called once per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import types as T

from steelyard.core import BatchError, OptionError
from steelyard.spark.aggregator import Aggregator, never_gives
from steelyard.spark.arrow import arrow_schema, require_arrow

_METHODS = ("zero", "reduce", "merge", "finish")


def udaf(aggregator: Any) -> Aggregator:
    """An aggregator of PySpark's shape, for `agg(name=sy.udaf(Mean()).of("column"))`.

    It has `bufferSchema` (a StructType), `outputType` (a DataType), `zero()`, `reduce(buffer, row)`, `merge(one, two)`
    and `finish(buffer)`; a buffer and a row are tuples. It may derive from `pyspark.sql.aggregator.Aggregator`, or from
    nothing. As there, `reduce` is a Python call per row: an `Aggregator` of ours takes whole arrays, and is many times
    as fast.
    """
    kind = aggregator.__name__ if isinstance(aggregator, type) else type(aggregator).__name__
    if isinstance(aggregator, type):
        raise OptionError(f"udaf takes an instance: write sy.udaf({kind}()).of('column')")
    if isinstance(aggregator, Aggregator):
        raise OptionError(f"udaf: {kind} is an Aggregator of ours already: write {kind}().of('column')")
    for method in _METHODS:
        if not callable(getattr(aggregator, method, None)):
            raise OptionError(f"udaf: {kind} needs a method `{method}`; an aggregator has {', '.join(_METHODS)}")
        if method != "zero" and never_gives(getattr(aggregator, method)):
            raise OptionError(f"udaf: {kind}.{method}() gave None: has it no return?")
    buffer, result = (getattr(aggregator, name, None) for name in ("bufferSchema", "outputType"))
    if not isinstance(buffer, T.StructType) or not buffer.fields:
        raise OptionError(f"udaf: `bufferSchema` of {kind} must be a StructType with the fields of the buffer")
    if not isinstance(result, T.DataType):
        raise OptionError(f"udaf: `outputType` of {kind} must be a DataType, such as DoubleType()")
    require_arrow(T.StructType([*buffer.fields, T.StructField("outputType", result)]), f"udaf: {kind}")
    fields = ", ".join(f"`{one.name.replace('`', '``')}` {one.dataType.simpleString()}" for one in buffer.fields)
    base = _RowByRow if len(buffer.fields) > 1 else _OneField
    made: Any = type(kind, (base,), {"state": fields, "result": result.simpleString()})
    return made(aggregator, buffer, result)  # type: ignore[no-any-return]


class _RowByRow(Aggregator):
    """Calls `reduce` for each row of a slice. Buffers and rows have values as PySpark has them."""

    takes_arrow: ClassVar[bool] = True  # in which nulls stay nulls

    def __init__(self, given: Any, buffer: T.StructType, result: T.DataType) -> None:
        self.given = given
        self._fields = tuple(field.type for field in arrow_schema(buffer))
        self._is_plain = not any(from_arrow(kind) or to_arrow(kind) for kind in self._fields)
        self._result = arrow_schema(T.StructType().add("result", result)).field(0).type

    def zero(self) -> Any:
        return self._out(self.given.zero())

    def add(self, state: Any, *columns: Any) -> Any:
        reduce, buffer = self.given.reduce, self._in(state)
        for row in zip(*(_rows(column) for column in columns), strict=True):
            buffer = reduce(buffer, row)
        return self._out(buffer, "reduce")

    def merge(self, left: Any, right: Any) -> Any:
        return self._out(self.given.merge(self._in(left), self._in(right)), "merge")

    def finish(self, state: Any) -> Any:
        return _each(self.given.finish(self._in(state)), to_arrow(self._result))

    def _in(self, state: Any) -> Any:
        """A state as the buffer that the class knows."""
        return self._changed(state, from_arrow)

    def _out(self, buffer: Any, step: str = "") -> Any:
        """A buffer of the class as a state."""
        if buffer is None and step:
            raise BatchError(f"{type(self.given).__name__}.{step}() gave None: has it no return?")
        return self._changed(buffer, to_arrow)

    def _changed(self, values: Any, change_of: Callable[[pa.DataType], Change | None]) -> Any:
        if self._is_plain or values is None:
            return values
        return tuple(_each(value, change_of(kind)) for value, kind in zip(values, self._fields, strict=True))


class _OneField(_RowByRow):
    """The same for a buffer of one field, which is a tuple there, and here the bare value."""

    def _in(self, state: Any) -> Any:
        return super()._in((state,))

    def _out(self, buffer: Any, step: str = "") -> Any:
        (value,) = super()._out(buffer, step)
        return value


Change = Callable[[Any], Any]
"""Of a value that is not None."""


def _rows(column: pa.Array) -> Iterable[Any]:
    change = from_arrow(column.type)
    values = column.to_pylist()
    return (_each(value, change) for value in values) if change else values


def _each(value: Any, change: Change | None) -> Any:
    return value if value is None or change is None else change(value)


@cache
def from_arrow(kind: pa.DataType) -> Change | None:
    """What makes PySpark's value of Arrow's: maps are dicts, structs are Rows, times are without a zone, in local time.

    None where they are the same. A value that is PySpark's already stays as it is.

    >>> from_arrow(pa.map_(pa.string(), pa.int64()))([("a", 1)]), from_arrow(pa.struct({"x": pa.int64()}))({"x": 1})
    ({'a': 1}, Row(x=1))
    """
    if pa.types.is_map(kind):
        of_key, of_item = from_arrow(kind.key_type), from_arrow(kind.item_type)
        return lambda value: {
            _each(key, of_key): _each(item, of_item)
            for key, item in (value.items() if isinstance(value, Mapping) else value)
        }
    if pa.types.is_struct(kind):
        row, fields = T.Row(*kind.names), [(field.name, from_arrow(field.type)) for field in kind.fields]
        return lambda value: (
            row(*[_each(value.get(name), change) for name, change in fields]) if isinstance(value, Mapping) else value
        )
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda value: value.astimezone().replace(tzinfo=None) if getattr(value, "tzinfo", None) else value
    return _of_items(kind, from_arrow)


@cache
def to_arrow(kind: pa.DataType) -> Change | None:
    """What makes Arrow's value of PySpark's: times without a zone are local. None where they are the same."""
    if pa.types.is_map(kind):
        of_key, of_item = to_arrow(kind.key_type), to_arrow(kind.item_type)
        if of_key is None and of_item is None:
            return None
        return lambda value: [
            (_each(key, of_key), _each(item, of_item))
            for key, item in (value.items() if isinstance(value, Mapping) else value)
        ]
    if pa.types.is_struct(kind):
        fields = [(field.name, to_arrow(field.type)) for field in kind.fields]
        if not any(change for _, change in fields):
            return None
        return lambda value: {
            name: _each(part, change) for (name, change), part in zip(fields, _in_order(value, kind), strict=True)
        }
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda value: value.astimezone(UTC) if isinstance(value, datetime) else value
    return _of_items(kind, to_arrow)


def _in_order(value: Any, kind: pa.DataType) -> Any:
    """The fields of a struct, which may be a mapping, or a Row or another tuple."""
    return [value.get(name) for name in kind.names] if isinstance(value, Mapping) else value


def _of_items(kind: pa.DataType, change_of: Callable[[pa.DataType], Change | None]) -> Change | None:
    """The change of each value of a list; None for other types."""
    change = change_of(kind.value_type) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    return (lambda value: [_each(item, change) for item in value]) if change else None
