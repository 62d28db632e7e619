"""Columns that are computed, and conditions: expressions over record batches that mean what they mean in Spark's SQL.

A value that cannot be computed (a division by zero, a sum that overflows) fails the job only where it is asked for, as
in Spark: `CASE WHEN n <> 0 THEN 1 / n END` divides no row by 0. So an expression is computed for all rows of a batch,
with the rows beside it for which it is `wrong`; those that a condition, a branch or a null passes over are forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import BatchError
from steelyard.core.shown import counted

_BOOLEAN = pa.bool_()


class Value(NamedTuple):
    """What an expression is for each row: an array, where it is wrong (without nulls; None: nowhere), and why."""

    array: pa.Array
    wrong: pa.BooleanArray | None = None
    why: str = ""


class Rows:
    """A batch, and what was computed of it: an expression that two others use is computed once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._known: dict[int, Value] = {}

    def of(self, expression: Expression) -> Value:
        """The value of an expression for each row."""
        if id(expression) not in self._known:
            self._known[id(expression)] = expression.value(self)
        return self._known[id(expression)]


class Expression(ABC):
    """A value for each row of a batch.

    `kind` is its type, and `inputs` are the expressions that it is made of.
    """

    kind: pa.DataType
    inputs: tuple[Expression, ...]

    @abstractmethod
    def value(self, rows: Rows) -> Value:
        """For each row; `Rows.of` calls it once."""

    def columns(self) -> Iterator[str]:
        """The columns that it reads, some of them more than once."""
        for one in self.inputs:
            yield from one.columns()


@dataclass(frozen=True, eq=False)
class Given(Expression):
    """A column of the batch."""

    name: str
    kind: pa.DataType

    def value(self, rows: Rows) -> Value:
        """As it is."""
        return Value(rows.batch.column(self.name))

    def columns(self) -> Iterator[str]:
        """The one."""
        yield self.name


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """The same for each row."""

    scalar: pa.Scalar

    @property
    def kind(self) -> pa.DataType:
        """That of the value."""
        return self.scalar.type

    def value(self, rows: Rows) -> Value:
        """So many times."""
        return Value(pa.repeat(self.scalar, rows.batch.num_rows))

    def columns(self) -> Iterator[str]:
        """None."""
        return iter(())


Made = tuple[pa.Array, pa.Array | None]
"""What an operation gives: values, and where they are wrong (null is nowhere)."""
Operation = Callable[..., Made]
RAISE, NULL, WRAP = "raise", "null", "wrap"
"""What becomes of a value that is wrong: it fails the job, is null, or stays what the machine made of it."""


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """An operation over the values of its inputs.

    Parameters
    ----------
    operation
        Called with the arrays of the inputs, the type of the result, and `options`.
    inputs, kind
        What it is of, and its type.
    options
        What else the operation takes.
    on_wrong, why
        `RAISE`, `NULL` or `WRAP`, and what is told of a value that is wrong.
    order
        In which inputs are computed, where a null ends it: `"left"`, `"right"`, or `"all"` where none does.
    """

    operation: Operation
    inputs: tuple[Expression, ...]
    kind: pa.DataType
    options: tuple[Any, ...] = ()
    on_wrong: str = RAISE
    why: str = ""
    order: str = "left"

    def value(self, rows: Rows) -> Value:
        """Of all rows at once."""
        given = [rows.of(one) for one in self.inputs]
        array, wrong = self.operation([one.array for one in given], self.kind, *self.options)
        found = self._inherited(given)
        if wrong is not None:
            wrong = pc.fill_null(wrong, False)
            if self.on_wrong == NULL:
                array = pc.if_else(wrong, pa.scalar(None, self.kind), array)
            elif self.on_wrong == RAISE:
                found = _either(found, (wrong, self.why))
        return Value(array, *found)

    def _inherited(self, given: Sequence[Value]) -> Wrong:
        """Where an input is wrong that is looked at."""
        found: Wrong = (None, "")
        reached: pa.Array | None = None
        for one in reversed(given) if self.order == "right" else given:
            if one.wrong is not None:
                found = _either(found, (_both(one.wrong, reached), one.why))
            if self.order != "all" and one.array.null_count:
                reached = _both(one.array.is_valid(), reached)
        return found


Wrong = tuple[pa.BooleanArray | None, str]


def _both(left: pa.Array, right: pa.Array | None) -> pa.Array:
    return left if right is None else pc.and_(left, right)


def _either(left: Wrong, right: Wrong) -> Wrong:
    if left[0] is None or right[0] is None:
        return right if left[0] is None else left
    return pc.or_(left[0], right[0]), left[1] if pc.any(left[0]).as_py() else right[1]


def _within(value: Value, rows: pa.Array) -> Wrong:
    """Where a value is wrong, of the rows for which it is asked for."""
    return (None, "") if value.wrong is None else (pc.and_(value.wrong, rows), value.why)


@dataclass(frozen=True, eq=False)
class Logical(Expression):
    """AND or OR of two conditions, of three values; the second is not asked where the first decides."""

    inputs: tuple[Expression, ...]
    is_and: bool
    kind: pa.DataType = _BOOLEAN

    def value(self, rows: Rows) -> Value:
        """As in SQL: false AND null is false."""
        left, right = (rows.of(one) for one in self.inputs)
        made = (pc.and_kleene if self.is_and else pc.or_kleene)(left.array, right.array)
        deciding = pc.invert(left.array) if self.is_and else left.array
        asked = pc.invert(pc.fill_null(deciding, False))
        return Value(made, *_either((left.wrong, left.why), _within(right, asked)))


@dataclass(frozen=True, eq=False)
class Choice(Expression):
    """CASE WHEN: `inputs` are a condition and its value in turn, and the value of all other rows."""

    inputs: tuple[Expression, ...]
    kind: pa.DataType

    def value(self, rows: Rows) -> Value:
        """Of each row the first whose condition is true; no other is asked for."""
        left = pa.repeat(pa.scalar(True), rows.batch.num_rows)
        found: Wrong = (None, "")
        taken: list[tuple[pa.Array, pa.Array]] = []
        for condition, value in zip(self.inputs[:-1:2], self.inputs[1::2], strict=True):
            asked, made = rows.of(condition), rows.of(value)
            holds = pc.and_(pc.fill_null(asked.array, False), left)
            found = _either(_either(found, _within(asked, left)), _within(made, holds))
            left = pc.and_not(left, holds)
            taken.append((holds, made.array))
        last = rows.of(self.inputs[-1])
        array = reduce(lambda rest, one: pc.if_else(one[0], one[1], rest), reversed(taken), last.array)
        return Value(array, *_either(found, _within(last, left)))


@dataclass(frozen=True, eq=False)
class First(Expression):
    """COALESCE: the first value that is not null."""

    inputs: tuple[Expression, ...]
    kind: pa.DataType

    def value(self, rows: Rows) -> Value:
        """What follows the first is not asked for."""
        left = pa.repeat(pa.scalar(True), rows.batch.num_rows)
        found: Wrong = (None, "")
        given = [rows.of(one) for one in self.inputs]
        for one in given:
            found = _either(found, _within(one, left))
            left = pc.and_(left, one.array.is_null())
        return Value(pc.coalesce(*(one.array for one in given)), *found)


@dataclass(frozen=True)
class Computed:
    """Some rows of a batch, and columns that are computed of them.

    Parameters
    ----------
    conditions
        What must be true, one after the other, and how each is written.
    names, columns
        What comes out.

    Examples
    --------
    >>> n = Given("n", pa.int64())
    >>> positive = Call(lambda inputs, kind: (pc.greater(inputs[0], 0), None), (n,), pa.bool_())
    >>> Computed(((positive, "n > 0"),), ("m",), (n,))(pa.record_batch({"n": [1, None, -2]})).to_pylist()
    [{'m': 1}]
    """

    conditions: tuple[tuple[Expression, str], ...]
    names: tuple[str, ...]
    columns: tuple[Expression, ...]

    @property
    def schema(self) -> pa.Schema:
        """Of what comes out."""
        return pa.schema([(name, one.kind) for name, one in zip(self.names, self.columns, strict=True)])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What comes of a batch; BatchError where a value that is asked for cannot be computed."""
        for condition, text in self.conditions:
            kept = _sound(Rows(batch).of(condition), f"the condition {text}")
            batch = batch.filter(kept)
        rows = Rows(batch)
        arrays = [_sound(rows.of(one), f"column {name!r}") for name, one in zip(self.names, self.columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _sound(value: Value, what: str) -> pa.Array:
    if value.wrong is not None and value.wrong.true_count:
        rows = counted(value.wrong.true_count, "row")
        raise BatchError(f"{what} cannot be computed for {rows}: {value.why}")
    return value.array
