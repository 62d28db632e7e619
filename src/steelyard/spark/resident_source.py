"""The sources of streaming DataFrames for the resident engine, which reads them by itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.resident.file_sources import ParquetFiles
from steelyard.resident.generated import Generated
from steelyard.resident.json_rows import LINE, PACKED, UNREAD, JsonRows, Lines
from steelyard.resident.json_values import readable
from steelyard.resident.kafka import KafkaTopic
from steelyard.resident.sources import Reader
from steelyard.resident.times import zone_of
from steelyard.resident.transformed import Tidied, Transformed, conformed
from steelyard.resident.watched import FileLog, WatchedFolder, is_hidden
from steelyard.spark.arrow import arrow_schema, require_arrow
from steelyard.spark.files import local_path
from steelyard.spark.relation import Picked, Relation
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
    case_sensitive
        Whether names of columns that differ in case are different, as the session has it.
    log
        A folder that may keep which files were found in one that is watched; None where nothing is kept.
    """

    available_now: bool
    zone: str
    known: dict[str, Any]
    case_sensitive: bool
    log: Path | None = None


def reader_of(spark: SparkSession, relation: Relation, how: Reading) -> Reader:
    """A reader of a relation; OptionError where the resident engine cannot read the source."""
    if relation.format == "steelyard":
        reader = _generated(relation, how)
    elif relation.format == "kafka":
        reader = KafkaTopic.of(relation.options, how.available_now, how.known.setdefault("kafka", {}))
    elif relation.format in ("parquet", "json"):
        reader = _files(spark, relation, how)
    else:
        raise OptionError(
            f"engine('resident') cannot read a source of format {relation.format!r}: it reads {', '.join(FORMATS)}. "
            "Use engine('microbatch')"
        )
    pick = _Pick(relation, how)
    return Transformed(reader, pick, pick.schema)


class _Pick:
    """The rows and columns that a relation makes of batches as they are read."""

    def __init__(self, relation: Relation, how: Reading) -> None:
        self._picked, self._computed = relation.picked, relation.computed
        require_arrow(relation.columns, "engine('resident')")
        self._columns = arrow_schema(relation.columns)
        self._case_sensitive = how.case_sensitive
        self._documents: dict[tuple[str, str], JsonRows] = {}
        for one in relation.picked.values():
            if one.json is not None and _which(one) not in self._documents:
                fields = {used.field for used in relation.picked.values() if _which(used) == _which(one)}
                self._documents[_which(one)] = _documents(one.json, fields, how)
        # Lines are documents of the source's own columns.
        self._own = (
            _documents(relation.columns, set(relation.columns.names), how) if relation.format == "json" else None
        )
        self.schema = relation.computed.schema

    def __call__(self, batch: pa.RecordBatch) -> Tidied:
        if self._own is not None:
            rows = self._own.of_lines(batch.column(LINE))
        else:
            rows = conformed(batch, self._columns, self._case_sensitive)
        bytes_of = {column: rows.column(column).cast(pa.binary()) for column, _ in self._documents}
        read = {which: documents(bytes_of[which[0]]) for which, documents in self._documents.items()}
        arrays = [
            read[_which(one)].column(one.field) if one.json is not None else rows.column(one.column)
            for one in self._picked.values()
        ]
        return self._computed(pa.RecordBatch.from_arrays(arrays, names=list(self._picked))), 0


def _which(picked: Picked) -> tuple[str, str]:
    """Documents that are read together: of a column, by a schema."""
    return picked.column, "" if picked.json is None else picked.json.json()


def _documents(schema: T.StructType, fields: set[str], how: Reading) -> JsonRows:
    """A reader of some fields of documents; OptionError for types that it does not read."""
    kinds = T.StructType([one for one in schema if one.name in fields])
    require_arrow(kinds, "engine('resident')")
    columns = arrow_schema(kinds)
    for one in columns:
        if not readable(one.type):
            raise OptionError(
                f"engine('resident') does not read column {one.name!r}, a {schema[one.name].dataType.simpleString()}, "
                "from JSON: leave it out, or use engine('microbatch')"
            )
    zone_of(how.zone)
    return JsonRows(columns, how.zone)


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


def _files(spark: SparkSession, relation: Relation, how: Reading) -> Reader:
    unknown = sorted(set(relation.options) - {"path", "maxfilespertrigger", "latestfirst", "recursivefilelookup"})
    if unknown:
        raise OptionError(
            f"engine('resident') does not know option {unknown[0]!r} of a {relation.format} source: leave it out, or "
            "use engine('microbatch')"
        )
    listed = _listed(spark, relation)
    if relation.format == "parquet":
        require_arrow(relation.columns, "engine('resident')")
        for first in listed[:1]:  # what cannot be read is told before workers start
            empty = pa.RecordBatch.from_pylist([], ParquetFiles([first]).schema)
            conformed(empty, arrow_schema(relation.columns), how.case_sensitive)
    if how.known.get("watched") or not how.available_now:
        return _watched(spark, relation, how)
    # Those of earlier starts keep their places, read to the end or not.
    paths = tuple(dict.fromkeys([*how.known.get("files", ()), *listed]))
    how.known["files"] = list(paths)
    if not paths:
        raise OptionError(
            f"there is no file in {relation.options['path']}: put one there, or leave out .trigger(available_now=True) "
            "and wait for one"
        )
    return Lines(paths) if relation.format == "json" else ParquetFiles(paths)


def _watched(spark: SparkSession, relation: Relation, how: Reading) -> Reader:
    """A reader of a folder that takes files as they come; one that was watched before may also be read to its end."""
    path = relation.options["path"]
    folder = local_path(spark, path)
    if folder is None or not folder.is_dir():
        raise OptionError(
            f"engine('resident') watches one folder, and {path!r} is none: give the folder, or read the files that "
            "are there with .trigger(available_now=True)"
        )
    if "files" in how.known:
        raise OptionError(
            "this checkpoint was begun with .trigger(available_now=True), where files are read side by side: go on so, "
            "or give a new checkpoint to watch the folder"
        )
    if how.log is None:
        raise OptionError(f"engine('resident') keeps in a checkpoint which files of {path!r} it has found: give one")
    how.known["watched"] = True
    FileLog(str(how.log)).check()
    columns = Lines(()).schema if relation.format == "json" else arrow_schema(relation.columns)
    recursive = relation.options.get("recursivefilelookup", "false").lower() == "true"
    return WatchedFolder(str(folder), str(how.log), relation.format, columns, recursive, ends=how.available_now)


def _listed(spark: SparkSession, relation: Relation) -> list[str]:
    """The files that Spark reads, which lists them, in the order in which a stream takes them."""
    path = relation.options["path"]
    recursive = relation.options.get("recursivefilelookup", "false")
    if local_path(spark, path) is None:
        raise OptionError(f"engine('resident') reads files that all machines see under one path, got {path!r}")
    reader = spark.read.schema("nothing string").option("recursiveFileLookup", recursive)
    try:
        found = reader.format(relation.format).load(path).inputFiles()
    except AnalysisException as error:
        raise OptionError(f"engine('resident') cannot list the files of {path!r}: {error.getMessage()}") from error
    files = [Path(unquote(urlsplit(uri).path)) for uri in found]
    # Spark lists some for what they say of others, and does not read them.
    files = [file for file in files if not is_hidden(file.name) and (relation.format == "json" or file.stat().st_size)]
    nested = [file for file in files if "=" in file.parent.name and file.parent.name not in path]
    if nested and recursive.lower() != "true":
        raise OptionError(
            f"engine('resident') does not read folders that stand for columns, such as {nested[0].parent.name}: use "
            "engine('microbatch')"
        )
    packed = [file for file in files if relation.format == "json" and file.name.endswith(UNREAD)]
    if packed:
        raise OptionError(
            f"engine('resident') unpacks {' and '.join(PACKED)}, and not {packed[0].name}: use engine('microbatch')"
        )
    return [str(file) for file in sorted(files, key=lambda file: (file.stat().st_mtime, str(file)))]
