"""JSON documents as rows, by a schema: what Spark's from_json makes of them, over whole batches."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from steelyard.resident.sources import Read, Reader

LINE = "value"
"""The column of a reader of lines."""


@dataclass(frozen=True)
class JsonRows:
    """Reads documents by a schema. What a document lacks is null; one that is none is a row of nulls.

    Parameters
    ----------
    schema
        The fields that are read. Times are ISO 8601.
    zone
        The time zone of times that say none.

    Examples
    --------
    >>> read = JsonRows(pa.schema({"k": pa.string(), "at": pa.timestamp("us", "UTC")}), "UTC")
    >>> read(pa.array([b'{"k": "a", "at": "1970-01-01T00:00:01Z"}', b"{"])).column("at").cast(pa.int64()).to_pylist()
    [1000000, None]
    """

    schema: pa.Schema
    zone: str = "UTC"

    def __call__(self, documents: pa.Array) -> pa.RecordBatch:
        """One row for each document, in their order."""
        raw = self._raw(documents)
        return pa.RecordBatch.from_arrays(
            [self._timed(raw.column(one.name), one.type) for one in self.schema], schema=self.schema
        )

    @property
    def _raw_schema(self) -> pa.Schema:
        """Times as text: Arrow's JSON reader takes a column's times either with zones or without."""
        kinds = [pa.string() if pa.types.is_timestamp(one.type) else one.type for one in self.schema]
        return pa.schema(list(zip(self.schema.names, kinds, strict=True)))

    def _raw(self, documents: pa.Array) -> pa.RecordBatch:
        found = self._parsed(documents) if documents.null_count == 0 else None
        if found is not None:
            return found
        if len(documents) <= 1:
            return pa.RecordBatch.from_arrays(
                [pa.nulls(len(documents), one.type) for one in self._raw_schema], schema=self._raw_schema
            )
        middle = len(documents) // 2  # halves, down to the single documents that are none
        return pa.concat_batches([self._raw(documents[:middle]), self._raw(documents[middle:])])

    def _parsed(self, documents: pa.Array) -> pa.RecordBatch | None:
        """All of them at once; None where one is no document of these types."""
        how = pyarrow.json.ParseOptions(
            explicit_schema=self._raw_schema, unexpected_field_behavior="ignore", newlines_in_values=True
        )
        text = _joined(documents)
        try:
            sized = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 16))
            table = pyarrow.json.read_json(io.BytesIO(text), read_options=sized, parse_options=how)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(documents):
            return None
        return table.select(self._raw_schema.names).combine_chunks().to_batches()[0] if len(documents) else None

    def _timed(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        if not pa.types.is_timestamp(kind):
            return column
        zoned = pc.match_substring_regex(column, r"(Z|[+-]\d\d:?\d\d)$")
        local = pc.if_else(zoned, pa.scalar(None, pa.string()), column)
        zoned = pc.if_else(zoned, column, pa.scalar(None, pa.string()))
        instants = _times(zoned, pa.timestamp("us", "UTC"))
        naive = _times(local, pa.timestamp("us"))
        if kind.tz is None:
            return naive
        return pc.coalesce(instants, pc.assume_timezone(naive, self.zone).cast(instants.type)).cast(kind)


def _joined(documents: pa.Array) -> bytes:
    """One document behind the other, each on a line of its own."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(documents)], pa.int32()), documents.cast(pa.binary()))
    return bytes(pc.binary_join(lists, b"\n")[0].as_py())


def _times(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text as times; null where it is none."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, kind)
    middle = len(text) // 2
    return pa.concat_arrays([_times(text[:middle], kind), _times(text[middle:], kind)])


@dataclass(frozen=True)
class Lines(Reader):
    """Lines of text files, as bytes in a column `value`; a split is a file, an offset a line, empty ones left out."""

    paths: tuple[str, ...]
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """One column."""
        return pa.schema({LINE: pa.binary()})

    def splits(self, parallelism: int) -> list[str]:
        """The files."""
        return list(self.paths)

    def read(self, split: str, offset: int, rows: int) -> Read:
        """A slice of the file."""
        if split not in self._opened:
            self._opened.clear()  # one at a time
            self._opened[split] = _lines(split)
        lines = self._opened[split]
        part = lines[offset : offset + rows]
        after = offset + len(part)
        return Read(pa.record_batch([part], schema=self.schema), after, after >= len(lines))

    def close(self) -> None:
        """Forget the file."""
        self._opened.clear()


def _lines(path: str) -> pa.Array:
    """Views of the lines of a file, which is read once and cut by offsets: no line is a Python object."""
    with pa.OSFile(path) as file:
        data = file.read_buffer()
    text = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(text == ord("\n")) + 1, len(text)).astype(np.int64)
    starts = np.append(0, ends[:-1])
    offsets = pa.py_buffer(np.append(0, ends).tobytes())
    whole = pa.Array.from_buffers(pa.large_binary(), len(ends), [None, offsets, data])
    length = ends - starts - np.append(np.ones(len(ends) - 1, np.int64), 0)  # the last has no newline
    return whole.filter(pa.array(length > 0)).cast(pa.binary())
