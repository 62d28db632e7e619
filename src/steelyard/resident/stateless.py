"""Operators without state: map, filter, flat-map and select, each over whole batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import OptionError
from steelyard.resident.operator import Batches, InstanceContext, OperatorLogic, Step, conform, require_columns

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]


class FunctionStep(Step):
    """Applies a function to every batch."""

    def __init__(self, function: BatchFunction) -> None:
        self._function = function

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """One batch for one batch; nothing where no row is left."""
        made = self._function(batch)
        return (made,) if made.num_rows else ()


@dataclass(frozen=True)
class Map(OperatorLogic):
    """A function of a batch that gives as many rows as it gets.

    Parameters
    ----------
    function
        Called with a `pyarrow.RecordBatch`, gives one.
    schema
        The columns that it gives; None where they are those that it gets.
    """

    function: BatchFunction
    schema: pa.Schema | None = None
    kind: ClassVar[str] = "map"
    by_name: ClassVar[bool] = True

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """What was said, or what goes in."""
        return inputs[0] if self.schema is None else self.schema

    def start(self, context: InstanceContext) -> Step:
        """A step that checks what the function gives."""
        whose = f"the function of {context.instance.operator!r}"

        def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
            made = conform(self.function(batch), context.schema, whose)
            if made.num_rows != batch.num_rows:
                raise OptionError(
                    f"{whose} gave {made.num_rows} rows for {batch.num_rows}: map keeps their number, use flat_map"
                )
            return made

        return FunctionStep(checked)


@dataclass(frozen=True)
class FlatMap(OperatorLogic):
    """A function of a batch that gives any number of rows."""

    function: BatchFunction
    schema: pa.Schema | None = None
    kind: ClassVar[str] = "flat-map"
    by_name: ClassVar[bool] = True

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """What was said, or what goes in."""
        return inputs[0] if self.schema is None else self.schema

    def start(self, context: InstanceContext) -> Step:
        """A step that checks the columns that the function gives."""
        whose = f"the function of {context.instance.operator!r}"
        return FunctionStep(lambda batch: conform(self.function(batch), context.schema, whose))


@dataclass(frozen=True)
class Filter(OperatorLogic):
    """Rows for which a condition holds; those for which it is null are dropped.

    Parameters
    ----------
    condition
        An Arrow expression, such as `pc.field("price") > 100`, or a function of a batch that gives booleans.
    """

    condition: Any
    kind: ClassVar[str] = "filter"
    by_name: ClassVar[bool] = True

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """What goes in; an expression is tried on no rows, so that a wrong column is found now."""
        if isinstance(self.condition, pc.Expression):
            try:
                inputs[0].empty_table().filter(self.condition)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
                there = ", ".join(inputs[0].names)
                raise OptionError(f"the condition {self.condition} does not fit columns {there}: {error}") from error
        elif not callable(self.condition):
            raise OptionError(f"a condition is an Arrow expression or a function of a batch, got {self.condition!r}")
        return inputs[0]

    def start(self, context: InstanceContext) -> Step:
        """A step that drops rows."""
        return FunctionStep(self._kept)

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if isinstance(self.condition, pc.Expression):
            kept = pa.Table.from_batches([batch]).filter(self.condition).combine_chunks()
            return kept.to_batches()[0] if kept.num_rows else batch.slice(0, 0)
        mask = self.condition(batch)
        return batch.filter(pa.array(mask) if isinstance(mask, np.ndarray) else mask)


@dataclass(frozen=True)
class Select(OperatorLogic):
    """Some of the columns, in this order, under these names."""

    columns: tuple[tuple[str, str], ...]
    """(new name, column) for each."""
    kind: ClassVar[str] = "select"
    by_name: ClassVar[bool] = True

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that were asked for."""
        require_columns(inputs[0], (column for _, column in self.columns))
        names = [name for name, _ in self.columns]
        if len(set(names)) < len(names):
            raise OptionError(f"select gives two columns one name: {names}")
        return pa.schema([inputs[0].field(column).with_name(name) for name, column in self.columns])

    def start(self, context: InstanceContext) -> Step:
        """A step that copies nothing."""
        columns = [column for _, column in self.columns]

        def chosen(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([batch.column(column) for column in columns], schema=context.schema)

        return FunctionStep(chosen)
