"""Key counts for the next plan: an exact pass over the batch, or what earlier batches showed."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.core import KeyCounts
from steelyard.core.counts import one_zero
from steelyard.core.hidden import ROWS
from steelyard.spark.rows import quoted

FREQUENT = 5_000
"""Keys that carried statistics list. Rarer ones are spread by hash, which many small keys even out; a longer list
would cost more to join with than it gains."""
DECAY = 0.5
"""Weight of the batches before, when a batch's counts come in: half of what is known is one batch old."""


def exact_counts(rows: DataFrame, keys: tuple[str, ...]) -> KeyCounts:
    """Rows of every key, by one pass in the JVM."""
    columns = [quoted(key) for key in keys]
    known = rows
    for column in columns:
        known = known.where(column.isNotNull())
    return counts_of_table(known.groupBy(*columns).agg(F.count(F.lit(1)).alias(ROWS)).toArrow(), keys)


def frequent_in_log(partials: DataFrame, keys: tuple[str, ...]) -> KeyCounts:
    """The frequent keys of a batch, read off the partials that it wrote."""
    columns = [quoted(key) for key in keys]
    by_key = partials.where(F.col(ROWS) > 0).groupBy(*columns).agg(F.sum(ROWS).alias(ROWS))
    top = by_key.orderBy(F.col(ROWS).desc()).limit(FREQUENT)
    return counts_of_table(top.toArrow(), keys)


def counts_of_table(table: pa.Table, keys: tuple[str, ...]) -> KeyCounts:
    """Key counts from a table of keys and `__rows`."""
    table = table.combine_chunks()
    columns = [_plain(table.column(key)) for key in keys]  # each key once: the caller grouped by them
    if len(keys) == 1:
        values = columns[0]
    else:
        values = pa.StructArray.from_arrays(columns, names=[f"f{i}" for i in range(len(keys))])
    return KeyCounts(values, table.column(ROWS).to_numpy().astype(np.int64))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def reported_counts(reports: Iterable[bytes], keys: tuple[str, ...]) -> KeyCounts | None:
    """The frequent keys that map tasks reported, added up over the tasks."""
    tables, distinct, total = [], 0, 0
    for report in reports:
        table = pa.ipc.open_stream(report).read_all()
        known: Any = table.schema.metadata
        distinct += int(known[b"keys"])
        total += int(known[b"rows"])
        tables.append(table.replace_schema_metadata(None))
    if not tables:
        return None
    table = pa.concat_tables(tables)
    for key in keys:  # 0.0 and -0.0 are one key to Spark; listed as two, a join would double their rows
        table = table.set_column(table.schema.get_field_index(key), key, one_zero(_plain(table.column(key))))
    added = table.group_by(list(keys)).aggregate([(ROWS, "sum")])
    counts = counts_of_table(added.rename_columns([*keys, ROWS]), keys)
    tail = total - counts.total
    return KeyCounts(counts.keys, counts.rows, tail, max(0, distinct - len(counts)) if tail else 0)


class Carried:
    """Counts carried over from batch to batch, older ones weighing less.

    Examples
    --------
    >>> carried = Carried(("word",))
    >>> carried.update(KeyCounts.of({"a": 100, "b": 10}))
    >>> carried.update(KeyCounts.of({"a": 60, "c": 40}))
    >>> carried.counts.to_dict()
    {'a': 110, 'b': 5, 'c': 40}
    """

    def __init__(self, keys: tuple[str, ...], counts: KeyCounts | None = None) -> None:
        self.keys = keys
        self.counts = counts if counts is not None else KeyCounts.of({})

    def update(self, seen: KeyCounts) -> None:
        """Take in the counts of one more batch."""
        if not len(self.counts):
            self.counts = seen.top(FREQUENT)
            return
        old = np.floor(self.counts.rows * DECAY).astype(np.int64)
        kept = old > 0
        keys = pa.concat_arrays([self.counts.keys.filter(pa.array(kept)), seen.keys])
        rows = pa.array(np.r_[old[kept], seen.rows])
        columns = keys.flatten() if pa.types.is_struct(keys.type) else [keys]
        names = [f"f{i}" for i in range(len(columns))]
        table = pa.table([*columns, rows], names=[*names, ROWS]).group_by(names).aggregate([(ROWS, "sum")])
        added = counts_of_table(table.rename_columns([*names, ROWS]), tuple(names))
        tail = int(self.counts.tail_rows * DECAY) + seen.tail_rows
        listed = KeyCounts(added.keys, added.rows, tail).top(FREQUENT)
        # Keys that fall off the list are among those that were never on it: their number does not add up.
        distinct = max(self.counts.distinct, seen.distinct, len(added))
        self.counts = KeyCounts(listed.keys, listed.rows, listed.tail_rows, distinct - len(listed))

    def to_text(self) -> str:
        """As text, for a commit."""
        if not len(self.counts):
            return ""
        table = pa.table({"keys": self.counts.keys, ROWS: pa.array(self.counts.rows)})
        tail = {"rows": str(self.counts.tail_rows), "keys": str(self.counts.tail_keys)}
        table = table.replace_schema_metadata(tail)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        return base64.b85encode(sink.getvalue().to_pybytes()).decode()

    @classmethod
    def from_text(cls, keys: tuple[str, ...], text: str) -> Carried:
        """The inverse of `to_text`."""
        if not text:
            return cls(keys)
        table = pa.ipc.open_stream(base64.b85decode(text)).read_all().combine_chunks()
        tail: Any = table.schema.metadata
        counts = KeyCounts(
            _plain(table.column("keys")), table.column(ROWS).to_numpy(), int(tail[b"rows"]), int(tail[b"keys"])
        )
        return cls(keys, counts)
