"""Readers whose rows pass through a function before anybody sees them, event time included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from steelyard.core import OptionError
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
    def at_once(self) -> int | None:  # type: ignore[override]
        """As what is read."""
        return self.reader.at_once

    @property
    def grows(self) -> bool:  # type: ignore[override]
        """As what is read."""
        return self.reader.grows

    @property
    def refused(self) -> int:  # type: ignore[override]
        """Rows that the function left out, and those of what is read."""
        return self.reader.refused + self._counted.get("refused", 0)

    @property
    def added(self) -> int:  # type: ignore[override]
        """Rows that the function gave beyond those that it took."""
        return self.reader.added + self._counted.get("added", 0)

    @property
    def tells_end(self) -> bool:  # type: ignore[override]
        """As what is read."""
        return self.reader.tells_end

    @property
    def waited(self) -> float:  # type: ignore[override]
        """As what is read."""
        return self.reader.waited

    def begin(self, split: str) -> int:
        """As what is read."""
        return self.reader.begin(split)

    def end(self, split: str) -> int | None:
        """As what is read."""
        return self.reader.end(split)

    def counted(self, split: str, offset: int, at_end: bool) -> tuple[int, int] | None:
        """As what is read."""
        return self.reader.counted(split, offset, at_end)

    def clock(self) -> float | None:
        """The inner reader's."""
        return self.reader.clock()

    def set_clock(self, at: float) -> None:
        """The inner reader's."""
        self.reader.set_clock(at)

    def splits(self, parallelism: int) -> list[str]:
        """Those of what is read."""
        return self.reader.splits(parallelism)

    def read(self, split: str, offset: int, rows: int) -> Read:
        """The rows that the function makes of some rows."""
        found = self.reader.read(split, offset, rows)
        if found.batch is None or not found.batch.num_rows:
            return found
        made, refused = self.function(found.batch)
        self._counted["refused"] = self._counted.get("refused", 0) + refused
        self._counted["added"] = self._counted.get("added", 0) + made.num_rows - found.batch.num_rows
        return Read(made, found.offset, found.ended)

    def fresh(self) -> Reader:
        """With a reader that has nothing open."""
        return Transformed(self.reader.fresh(), self.function, self.schema)

    def close(self) -> None:
        """Let go of what is read."""
        self.reader.close()


def conformed(batch: pa.RecordBatch, schema: pa.Schema, case_sensitive: bool = True) -> pa.RecordBatch:
    """The columns of `schema` by their names and in their types; those that a batch has not are null.

    >>> conformed(pa.record_batch({"b": [1], "x": [2]}), pa.schema({"a": pa.string(), "b": pa.int64()})).to_pylist()
    [{'a': None, 'b': 1}]
    """
    if batch.schema.equals(schema):
        return batch
    columns: list[Any] = []
    for wanted in schema:
        named = [
            at
            for at, name in enumerate(batch.schema.names)
            if name == wanted.name or (not case_sensitive and name.lower() == wanted.name.lower())
        ]
        if len(named) > 1:
            raise OptionError(
                f"a file has {len(named)} columns named {wanted.name!r}: their names differ in case alone"
            )
        if named:
            columns.append(_as_type(batch.column(named[0]), wanted))
        else:
            columns.append(pa.nulls(batch.num_rows, wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(column: pa.Array, wanted: pa.Field) -> pa.Array:
    """A column in the type that is wanted, where Spark would read it so."""
    given, kind = column.type, wanted.type
    if given == kind:
        return column
    if pa.types.is_dictionary(given):
        return _as_type(column.dictionary_decode(), wanted)
    if not any(is_from(given) and is_to(kind) for is_from, is_to in _READ_AS) or (
        pa.types.is_timestamp(given) and (given.tz is None) != (kind.tz is None)
    ):
        raise OptionError(f"a file has column {wanted.name!r} as {given}, which cannot be read as {kind}")
    # Nanoseconds are cut off as Spark does; nothing else may lose digits.
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))


_READ_AS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_float64),
    (pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_integer, pa.types.is_duration),
    (pa.types.is_float32, pa.types.is_float64),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_date32, lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz is None)),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_time, pa.types.is_time),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_null, lambda kind: True),
    (lambda kind: bool(pa.types.is_large_string(kind) or pa.types.is_string_view(kind)), pa.types.is_string),
    (lambda kind: bool(_is_bytes(kind)), lambda kind: bool(pa.types.is_string(kind) or _is_bytes(kind))),
    (pa.types.is_string, pa.types.is_binary),
    (pa.types.is_nested, pa.types.is_nested),
)
"""(types of files, types that Spark reads them as)."""


def _is_bytes(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(one(kind) for one in kinds)
