"""Aggregators of the shape that PySpark 4.4 has: `reduce` is called once per row."""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql import types as T

from steelyard.core import OptionError
from steelyard.spark.aggregator import Aggregator

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
    buffer, result = (getattr(aggregator, name, None) for name in ("bufferSchema", "outputType"))
    if not isinstance(buffer, T.StructType) or not buffer.fields:
        raise OptionError(f"udaf: `bufferSchema` of {kind} must be a StructType with the fields of the buffer")
    if not isinstance(result, T.DataType):
        raise OptionError(f"udaf: `outputType` of {kind} must be a DataType, such as DoubleType()")
    fields = ", ".join(f"`{one.name.replace('`', '``')}` {one.dataType.simpleString()}" for one in buffer.fields)
    base = _RowByRow if len(buffer.fields) > 1 else _OneField
    made: Any = type(kind, (base,), {"state": fields, "result": result.simpleString()})
    return made(aggregator)  # type: ignore[no-any-return]


class _RowByRow(Aggregator):
    """Calls `reduce` for each row of a slice."""

    takes_arrow: ClassVar[bool] = True  # in which nulls stay nulls

    def __init__(self, given: Any) -> None:
        self.given = given

    def zero(self) -> Any:
        return self.given.zero()

    def add(self, state: Any, *columns: Any) -> Any:
        reduce = self.given.reduce
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            state = reduce(state, row)
        return state

    def merge(self, left: Any, right: Any) -> Any:
        return self.given.merge(left, right)

    def finish(self, state: Any) -> Any:
        return self.given.finish(state)


class _OneField(_RowByRow):
    """The same for a buffer of one field, which is a tuple there, and here the bare value."""

    def zero(self) -> Any:
        return _bare(self.given.zero())

    def add(self, state: Any, *columns: Any) -> Any:
        return _bare(super().add((state,), *columns))

    def merge(self, left: Any, right: Any) -> Any:
        return _bare(self.given.merge((left,), (right,)))

    def finish(self, state: Any) -> Any:
        return self.given.finish((state,))


def _bare(buffer: Any) -> Any:
    (value,) = buffer
    return value
