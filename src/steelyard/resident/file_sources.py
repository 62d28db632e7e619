"""Rows of files: Parquet, and JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from steelyard.core import OptionError
from steelyard.resident.operator import schema_of
from steelyard.resident.paths import files_of
from steelyard.resident.sources import Read, Reader


class _Files(Reader):
    """A split is a file, and an offset a row of it; a file that was opened is kept until it is read to its end."""

    at_once: ClassVar[int | None] = 8
    paths: Sequence[str]
    _opened: dict[str, Any]

    def splits(self, parallelism: int) -> list[str]:
        """The files."""
        return list(self.paths)

    def close(self) -> None:
        """Forget files that are open."""
        self._opened.clear()


@dataclass(frozen=True)
class ParquetFiles(_Files):
    """Rows of Parquet files, one row group in memory at a time. `paths` are files, or a folder of them."""

    tells_end: ClassVar[bool] = True
    paths: Sequence[str]
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _rows: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", files_of(self.paths, "ParquetFiles"))

    @property
    def schema(self) -> pa.Schema:
        """The first file's columns."""
        with _parquet(self.paths[0]) as file:
            return _instants(file.schema_arrow.empty_table(), file).schema

    def end(self, split: str) -> int:
        """The rows of the file, as its end says."""
        if split not in self._rows:
            self._rows[split] = pq.read_metadata(split).num_rows
        return self._rows[split]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Rows of the row group that the offset is in."""
        if split not in self._opened:
            self._opened[split] = _parquet(split)
        file = self._opened[split]
        first = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if first <= offset < first + size:
                table = self._group(split, file, group)
                part = table.slice(offset - first, min(rows, first + size - offset)).to_batches()[0]
                after = offset + part.num_rows
                ended = after >= file.metadata.num_rows
                if ended:
                    self._close(split)
                return Read(part, after, ended)
            first += size
        self._close(split)
        return Read(None, offset, True)

    def _close(self, split: str) -> None:
        """Let go of a file that was read to its end."""
        self._opened.pop(split).close()
        self._opened.pop(f"{split}\n", None)

    def _group(self, split: str, file: Any, group: int) -> pa.Table:
        number, table = self._opened.get(f"{split}\n", (-1, None))
        if number != group:
            table = _instants(file.read_row_group(group, use_threads=False).combine_chunks(), file)
            self._opened[f"{split}\n"] = group, table
        return table


def _parquet(path: str) -> pq.ParquetFile:
    # Spark writes times as INT96, in nanoseconds, which end in 2262: they are read in microseconds at once.
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _instants(table: pa.Table, file: pq.ParquetFile) -> pa.Table:
    """A table whose INT96 columns are instants, as they are in Spark; the type itself does not tell."""
    columns = [file.schema.column(at) for at in range(len(file.schema))]
    old = {one.path for one in columns if one.physical_type == "INT96" and one.path == one.name}  # not inside others
    for at, field_of in enumerate(table.schema):
        if field_of.name in old and pa.types.is_timestamp(field_of.type):
            table = table.set_column(at, field_of.name, pc.assume_timezone(table.column(at), "UTC"))
    return table


@dataclass(frozen=True)
class JsonLines(_Files):
    """Rows of files with one JSON object a line; what a line lacks is null, and other fields are left out.

    Parameters
    ----------
    paths
        Files, or a folder of them.
    schema
        Columns and types, as a `pyarrow.Schema` or a dictionary.
    """

    paths: Sequence[str]
    schema: Any = None
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.schema is None:
            raise OptionError(
                "JsonLines needs the columns of its lines, since a line need not have all of them: "
                f"JsonLines({self.paths!r}, {{'user': 'string', 'fare': 'double'}})"
            )
        object.__setattr__(self, "schema", schema_of(self.schema))
        object.__setattr__(self, "paths", files_of(self.paths, "JsonLines"))

    def read(self, split: str, offset: int, rows: int) -> Read:
        """A slice of the file."""
        if split not in self._opened:
            how = pyarrow.json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="ignore")
            try:
                table = pyarrow.json.read_json(split, parse_options=how)
            except pa.ArrowInvalid as error:
                raise OptionError(f"{split} is not one JSON object a line: {error}") from error
            self._opened[split] = table.select(self.schema.names).combine_chunks()
        table = self._opened[split]
        part = table.slice(offset, rows).to_batches()
        after = offset + (part[0].num_rows if part else 0)
        if after >= table.num_rows:
            self._opened.pop(split)
        return Read(part[0] if part else None, after, after >= table.num_rows)
