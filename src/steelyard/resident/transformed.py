"""Readers whose rows pass through a function before anybody sees them, event time included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from steelyard.resident.sources import Read, Reader

Tidied = tuple[pa.RecordBatch, int]
"""Rows, and how many were left out."""


@dataclass(frozen=True)
class Transformed(Reader):
    """Rows of another reader, as a function gives them back.

    Parameters
    ----------
    reader
        What is read; offsets are its own.
    function
        From a batch to a batch with the columns of `schema`, and the number of rows that it refused.
    schema
        The columns that come out.
    """

    reader: Reader
    function: Callable[[pa.RecordBatch], Tidied]
    schema: pa.Schema
    _counted: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        """As what is read."""
        return self.reader.replayable

    @property
    def together(self) -> bool:  # type: ignore[override]
        """As what is read."""
        return self.reader.together

    @property
    def grows(self) -> bool:  # type: ignore[override]
        """As what is read."""
        return self.reader.grows

    @property
    def refused(self) -> int:  # type: ignore[override]
        """Rows that the function left out."""
        return self._counted.get("refused", 0)

    def splits(self, parallelism: int) -> list[str]:
        """Those of what is read."""
        return self.reader.splits(parallelism)

    def read(self, split: str, offset: int, rows: int) -> Read:
        """The rows that the function makes of some rows."""
        found = self.reader.read(split, offset, rows)
        if found.batch is None or not found.batch.num_rows:
            return found
        made, refused = self.function(found.batch)
        self._counted["refused"] = self.refused + refused
        return Read(made, found.offset, found.ended)

    def fresh(self) -> Reader:
        """With a reader that has nothing open."""
        return Transformed(self.reader.fresh(), self.function, self.schema)

    def close(self) -> None:
        """Let go of what is read."""
        self.reader.close()


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` by their names and in their types; those that a batch has not are null.

    >>> conformed(pa.record_batch({"b": [1], "x": [2]}), pa.schema({"a": pa.string(), "b": pa.int32()})).to_pylist()
    [{'a': None, 'b': 1}]
    """
    if batch.schema.equals(schema):
        return batch
    columns: list[Any] = []
    for wanted in schema:
        at = batch.schema.get_field_index(wanted.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, wanted.type))
        else:
            columns.append(_as_type(batch.column(at), wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    # Nanoseconds, which Parquet files of old have, are cut off as Spark does; nothing else may lose digits.
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))
