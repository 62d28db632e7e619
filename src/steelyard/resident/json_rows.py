"""JSON documents as rows, by a schema: what Spark makes of them, over whole batches."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from steelyard.core.counts import Ints
from steelyard.resident.json_values import Row, row_of, rows_of
from steelyard.resident.sources import Read, Reader
from steelyard.resident.times import dates, times

LINE = "value"
"""The column of a reader of lines."""
PACKED = (".gz", ".bz2")
UNREAD = (".deflate", ".snappy", ".lz4", ".zst", ".xz", ".lzo")
"""Endings of packed files that Spark may unpack, and workers do not."""
"""Endings of files that are unpacked as they are read."""
_PLAIN = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""Bytes in base64, without blanks."""
_WHOLE = r"(?s)^[ \t\r\n]*\{.*\}[ \t\r\n]*$"
"""What may be read beside others. Documents that begin and end so cannot run into each other: if they are as many as
the rows that come out, each of them is one."""
_FEW = 64
"""Documents that are not worth another start of Arrow's reader."""
_LOOKS = 8
"""Places of a large batch that are looked at before it is halved."""


@dataclass(frozen=True)
class JsonRows:
    """Reads documents by a schema. What a document lacks, or has in another type, is null.

    Parameters
    ----------
    schema
        The fields that are read.
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
        """One row for each document, in their order, as from_json gives them."""
        found, order, odd = self._read(documents)
        fields = dict(zip(self.schema.names, self.schema.types, strict=True))
        rest = [row_of(documents[at].as_py(), fields, self.zone) for at in odd]
        if not rest:
            return found
        both = pa.concat_batches([found, self._batch(rest)])
        return both.take(pa.array(np.argsort(np.concatenate([order, odd]))))

    def of_lines(self, lines: pa.Array) -> pa.RecordBatch:
        """The rows of lines of a file: an array is a row for each of its objects."""
        found, _, odd = self._read(lines)
        fields = dict(zip(self.schema.names, self.schema.types, strict=True))
        rest = [row for at in odd for row in rows_of(lines[at].as_py(), fields, self.zone)]
        return pa.concat_batches([found, self._batch(rest)]) if rest else found

    def _read(self, documents: pa.Array) -> tuple[pa.RecordBatch, Ints, Ints]:
        """(rows of what Arrow reads, which documents those are, which are left)."""
        whole = pc.fill_null(pc.match_substring_regex(documents, _WHOLE), False).to_numpy(zero_copy_only=False)
        parts: list[pa.RecordBatch] = []
        read = self._parse(documents, np.flatnonzero(whole), parts)
        raw = pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], self._raw_schema)
        columns = [self._typed(raw.column(at), one.type) for at, one in enumerate(self.schema)]
        left = np.setdiff1d(np.arange(len(documents)), read)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), read, left

    def _parse(self, documents: pa.Array, at: Ints, parts: list[pa.RecordBatch]) -> Ints:
        """Reads the documents at these places, in halves where one among them cannot be read; gives those it read.

        A few are not halved: to read them one by one takes less time than to start Arrow's reader for each.
        """
        if not len(at):
            return at
        found = self._parsed(documents.take(pa.array(at)))
        if found is not None:
            parts.append(found)
            return at
        if len(at) <= _FEW or self._has_many_odd(documents, at):
            return at[:0]
        middle = len(at) // 2
        return np.concatenate([self._parse(documents, at[:middle], parts), self._parse(documents, at[middle:], parts)])

    def _has_many_odd(self, documents: pa.Array, at: Ints) -> bool:
        """Whether some cannot be read wherever one looks: then halving would find hardly any that can."""
        few = _FEW // 2
        if len(at) < 2 * _LOOKS * few:
            return False
        starts = np.linspace(0, len(at) - few, _LOOKS).astype(int)
        return all(self._parsed(documents.take(pa.array(at[start : start + few]))) is None for start in starts)

    @property
    def _raw_schema(self) -> pa.Schema:
        """Times, dates and bytes as text, which Arrow's JSON reader takes otherwise than Spark."""
        kinds = [pa.string() if _is_text(one.type) else one.type for one in self.schema]
        return pa.schema(list(zip(self.schema.names, kinds, strict=True)))

    def _parsed(self, documents: pa.Array) -> pa.RecordBatch | None:
        """All of them at once; None where one is no document of these types."""
        how = pyarrow.json.ParseOptions(
            explicit_schema=self._raw_schema, unexpected_field_behavior="ignore", newlines_in_values=True
        )
        try:
            documents.cast(pa.string())  # checks that it is UTF-8
            text = _joined(documents)
            sized = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 16))
            table = pyarrow.json.read_json(io.BytesIO(text), read_options=sized, parse_options=how)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(documents):
            return None
        raw = table.select(self._raw_schema.names).combine_chunks().to_batches()[0]
        encoded = [raw.column(at) for at, one in enumerate(self.schema) if pa.types.is_binary(one.type)]
        odd = [pc.invert(pc.match_substring_regex(text, _PLAIN)) for text in encoded]
        return None if any(pc.any(one).as_py() for one in odd) else raw

    def _typed(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        if pa.types.is_timestamp(kind):
            return times(column, kind, self.zone)
        if pa.types.is_decimal(kind):  # Arrow looks at the digits before it gives a number its scale
            most = pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), kind)
            fits = pc.and_(
                pc.less_equal(column, most), pc.greater_equal(column, pa.scalar(most.as_py().copy_negate(), kind))
            )
            return pc.if_else(fits, column, pa.scalar(None, kind))
        if pa.types.is_binary(kind):
            return pa.array([None if text is None else base64.b64decode(text) for text in column.to_pylist()], kind)
        return dates(column) if pa.types.is_date32(kind) else column

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        """Rows with times and dates as numbers."""
        columns = []
        for one in self.schema:
            values = [row[one.name] for row in rows]
            number = pa.int64() if pa.types.is_timestamp(one.type) else pa.int32()
            is_number = pa.types.is_timestamp(one.type) or pa.types.is_date32(one.type)
            columns.append(pa.array(values, number).cast(one.type) if is_number else pa.array(values, one.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _joined(documents: pa.Array) -> bytes:
    """One document behind the other, each on a line of its own."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(documents)], pa.int32()), documents.cast(pa.binary()))
    return bytes(pc.binary_join(lists, b"\n")[0].as_py())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_binary(kind))


@dataclass(frozen=True)
class Lines(Reader):
    """Lines of text files, as bytes in a column `value`; a split is a file, an offset a line, blank ones left out."""

    at_once: ClassVar[int | None] = 1
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
    """Views of the lines of a file, which is read once and cut by offsets: no line is a Python object.

    As in Spark a line ends with a line feed, a carriage return or both.
    """
    with pa.input_stream(path, compression="detect" if path.endswith(PACKED) else None) as file:
        data = pa.py_buffer(file.read())
    text = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero((text == ord("\n")) | (text == ord("\r"))) + 1, len(text)).astype(np.int64)
    offsets = pa.py_buffer(np.append(0, ends).tobytes())
    whole = pa.Array.from_buffers(pa.large_binary(), len(ends), [None, offsets, data])
    return whole.filter(pc.match_substring_regex(whole, r"[^ \t\r\n]")).cast(pa.binary())
