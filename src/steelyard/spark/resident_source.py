"""The sources of streaming DataFrames for the resident engine, which reads them by itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.resident.json_rows import LINE, JsonRows, Lines
from steelyard.resident.kafka import KafkaTopic
from steelyard.resident.sources import Generated, ParquetFiles, Reader
from steelyard.resident.transformed import Tidied, Transformed, conformed
from steelyard.spark.arrow import arrow_schema
from steelyard.spark.relation import Relation
from steelyard.spark.source import MICROS, ROW_NUMBER, SourceOptions, origin
from steelyard.workloads import Workload

FORMATS = ("json", "kafka", "parquet", "steelyard")
ENDLESS = 1 << 62
"""Rows of a generated stream without an end."""


@dataclass(frozen=True)
class Reading:
    """How a source is to be read.

    Parameters
    ----------
    available_now
        Whether only what is there now is read.
    zone
        The session's time zone, for times that say none.
    known
        What earlier starts from the same checkpoint noted, and this one may add to: when the stream began, and files.
    """

    available_now: bool
    zone: str
    known: dict[str, Any]


def reader_of(relation: Relation, how: Reading) -> Reader:
    """A reader of the columns that are picked; OptionError where the resident engine cannot read the source."""
    if relation.format == "steelyard":
        reader = _generated(relation, how)
    elif relation.format == "kafka":
        reader = KafkaTopic.of(relation.options, how.available_now, how.known.setdefault("kafka", {}))
    elif relation.format in ("parquet", "json"):
        reader = _files(relation, how)
    else:
        raise OptionError(
            f"engine('resident') cannot read a source of format {relation.format!r}: it reads {', '.join(FORMATS)}. "
            "Use engine('microbatch')"
        )
    pick = _Pick(relation, arrow_schema(relation.columns), how.zone)
    return Transformed(reader, pick, pick.schema)


class _Pick:
    """The columns that a relation picks, of batches as they are read."""

    def __init__(self, relation: Relation, columns: pa.Schema, zone: str) -> None:
        self._picked = relation.picked
        self._columns = columns
        self._documents = {one.column: JsonRows(arrow_schema(one.json), zone) for one in relation.picked if one.json}
        if relation.format == "json":  # lines, which are documents of the source's own columns
            self._own: JsonRows | None = JsonRows(columns, zone)
        else:
            self._own = None
        kinds = [
            (
                one.name,
                self._documents[one.column].schema.field(one.field).type
                if one.json
                else columns.field(one.column).type,
            )
            for one in relation.picked
        ]
        self.schema = pa.schema(kinds)

    def __call__(self, batch: pa.RecordBatch) -> Tidied:
        rows = self._own(batch.column(LINE)) if self._own else conformed(batch, self._columns)
        read = {column: documents(rows.column(column)) for column, documents in self._documents.items()}
        arrays = [read[one.column].column(one.field) if one.json else rows.column(one.column) for one in self._picked]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), 0


def _generated(relation: Relation, how: Reading) -> Reader:
    options = SourceOptions.parse(relation.options)
    if options.max_rows is None and (how.available_now or not options.follows_clock):
        raise OptionError(
            "option 'max_rows' is missing: without it this source has no end, and the resident engine would make rows "
            "as fast as it can; give max_rows, or a rate and no rows_per_batch"
        )
    started = how.known.setdefault("started", int(time.time() * MICROS)) if options.follows_clock else None
    return Generated(
        _Numbered(options.workload) if options.row_numbers else options.workload,
        rows=ENDLESS if options.max_rows is None else options.max_rows,
        arrivals=options.arrivals(origin(options, started)),
        pace=options.rate if options.follows_clock and not how.available_now else None,
        block_rows=1024,  # so that event time goes on in all splits alike
        began=None if started is None else started / MICROS,
    )


class _Numbered(Workload):
    """A workload with the number of each row behind its columns."""

    def __init__(self, inner: Workload) -> None:
        self._inner = inner
        self.schema = inner.schema.append(ROW_NUMBER)  # type: ignore[misc]
        self.seed = inner.seed

    def rows(self, first: int, count: int, times: Ints) -> pa.RecordBatch:
        """The workload's rows, numbered."""
        numbers = pa.array(np.arange(first, first + count))
        return self._inner.rows(first, count, times).append_column(ROW_NUMBER, numbers)

    def _columns(self, numbers: Any, draws: Any, times: Any) -> Any:
        raise NotImplementedError("`rows` asks the workload itself")


def _files(relation: Relation, how: Reading) -> Reader:
    if not how.available_now:
        raise OptionError(
            "engine('resident') reads the files that a folder has when it starts: add .trigger(available_now=True) "
            f"for a {relation.format} source, or use engine('microbatch'), which watches the folder"
        )
    unknown = sorted(set(relation.options) - {"path", "maxfilespertrigger", "latestfirst", "recursivefilelookup"})
    if unknown:
        raise OptionError(
            f"engine('resident') does not know option {unknown[0]!r} of a {relation.format} source: leave it out, or "
            "use engine('microbatch')"
        )
    folder = _local(relation.options["path"])
    hidden = (".", "_")
    found = [file for file in folder.glob("**/*") if file.is_file() and not file.name.startswith(hidden)]
    nested = [file for file in found if "=" in file.parent.name]
    if nested:
        raise OptionError(
            f"engine('resident') does not read folders that stand for columns, such as {nested[0].parent.name}: use "
            "engine('microbatch')"
        )
    # In the order in which Spark takes them. Those of earlier starts keep their places, read to the end or not.
    listed = [str(file) for file in sorted(found, key=lambda file: (file.stat().st_mtime, str(file)))]
    paths = tuple(dict.fromkeys([*how.known.get("files", ()), *listed]))
    how.known["files"] = list(paths)
    if not paths:
        raise OptionError(f"there is no file in {folder}: put one there, or use engine('microbatch'), which waits")
    return ParquetFiles(paths) if relation.format == "parquet" else Lines(paths)


def _local(path: str) -> Path:
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise OptionError(f"engine('resident') reads files that all machines see under one path, got {path!r}")
    return Path(unquote(parts.path) if parts.scheme else path)
