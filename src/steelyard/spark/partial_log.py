"""The log of partials: what batches have left for the windows and keys that are still open.

Every entry is a folder of its own under the checkpoint. Where it is large, tasks write and read it as Parquet. Where it
is small, it comes to the driver, which writes it as one Arrow file and keeps it in memory, so that what a small batch
needs of the log is found without a job. Both are one log: an entry of either kind may stand beside one of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.core.durable import Described
from steelyard.core.hidden import BAD, HASH, NEW, PANE, ROWS
from steelyard.spark.arrow import arrow_schema, comes_back, frame_of, in_driver
from steelyard.spark.partials import Partials
from steelyard.spark.placement import key_hash
from steelyard.spark.state import ARROW_FILE, LogFolder, StateFolder
from steelyard.spark.windows import Span

SMALL_ROWS, SMALL_BYTES = 10_000, 4 << 20
"""Of the batch before: up to here the partials of a batch are expected to be few, and come to the driver."""
LEAST, GROWTH = 1_000, 4
"""So many times as many partials as in the batch before may come, or as the least that counts; where there are more,
the batch is done once more, and tasks write them."""
HELD_BYTES = 256 << 20
"""Memory for the log in the driver; a larger one is read from its files where updates need it."""
SPREAD = 8
"""Times as much memory as its files that a large entry is taken to need, before it has been in memory."""
Hashes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Written:
    """A batch's partials as they are in the log now, and what is known of them."""

    name: str
    files: tuple[Described, ...]
    rows: int
    """Partials."""
    kept: int
    """Rows of the batch that they are made of."""
    keys: int
    failed: int
    """Rows that made an aggregate raise."""
    table: pa.Table | None = None
    """All of it, where it came to the driver."""

    def entry(self, batch: int, panes: Span) -> LogFolder:
        """As a commit names it."""
        return LogFolder(self.name, batch, panes, self.files, self.rows)


@dataclass(frozen=True)
class Held:
    """An entry in memory, in the order of its hashes where keys are looked up."""

    table: pa.Table
    hashes: Hashes

    @classmethod
    def of(cls, table: pa.Table) -> Held:
        """Of an entry's partials, without the rows that were refused."""
        if table.column(BAD).null_count != table.num_rows:
            table = table.filter(pc.is_null(table.column(BAD)))
        if HASH not in table.column_names:
            return cls(table, np.empty(0, np.int64))
        hashes = table.column(HASH).to_numpy()
        order = np.argsort(hashes, kind="stable")
        return cls(table.drop_columns([HASH]).take(order).combine_chunks(), hashes[order])

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.table.nbytes) + self.hashes.nbytes

    def of_keys(self, sought: Hashes) -> pa.Table:
        """The partials of keys with these hashes, which are in order, each once."""
        first = np.searchsorted(self.hashes, sought, "left")
        many = np.searchsorted(self.hashes, sought, "right") - first
        ends = np.cumsum(many)
        return self.table.take(np.arange(ends[-1]) + np.repeat(first - ends + many, many))

    def of_panes(self, panes: Span | None) -> pa.Table:
        """The partials in these panes; all where none are named."""
        if panes is None:
            return self.table
        at = self.table.column(PANE).to_numpy()
        return self.table.filter(pa.array((at >= panes.first) & (at <= panes.last)))


class PartialLog:
    """Writes and reads the log of one query.

    Parameters
    ----------
    partials
        What is in it.
    state
        Where it lives.
    finds_keys
        Whether batches ask for what the log knows of their keys. By hash it is found only where equal keys have one:
        "A" and "a" are one key in a collation that ignores case, and have two.
    """

    def __init__(self, partials: Partials, state: StateFolder, finds_keys: bool) -> None:
        self._partials, self._state = partials, state
        kinds = (partials.bound.rows[key].dataType.simpleString() for key in partials.program.keys)
        self._finds_keys = finds_keys and not any("collate" in kind for kind in kinds)
        self._held: dict[str, Held] = {}
        self._sizes: dict[str, int] = {}
        """Bytes that entries take in memory, also of those that found no room."""
        self._expected = 0
        """Partials that the next batch is expected to have; 0 where tasks are to write them."""

    @cached_property
    def _is_arrow(self) -> bool:
        """Whether partials come back from Arrow as they were."""
        return comes_back(self._partials.schema)

    @cached_property
    def _arrow(self) -> pa.Schema:
        schema = arrow_schema(self._partials.schema)
        return schema.append(pa.field(HASH, pa.int64())) if self._finds_keys else schema

    # -- writing

    def write(self, made: DataFrame, batch: int) -> Written:
        """Write the partials of a batch."""
        name = self._state.new_folder(batch)
        table = self._collected(made) if self._expected else None
        done = self._by_tasks(made, name) if table is None else self._by_driver(table, name)
        self._expected = max(1, done.rows) if self._is_few(done) else 0
        return done

    def _is_few(self, done: Written) -> bool:
        few = done.rows <= SMALL_ROWS and sum(one.size for one in done.files) <= SMALL_BYTES
        return few and self._is_arrow

    def rewrite(self, made: DataFrame, batch: int, entries: Sequence[LogFolder]) -> Written:
        """Write what was made of older entries."""
        name = self._state.new_folder(batch)
        rows, size = sum(entry.rows for entry in entries), sum(file.size for entry in entries for file in entry.files)
        if rows <= GROWTH * SMALL_ROWS and size <= GROWTH * SMALL_BYTES and self._is_arrow:
            return self._by_driver(self._hashed(made).toArrow(), name)
        return self._by_tasks(made, name)

    def _hashed(self, made: DataFrame) -> DataFrame:
        return made.withColumn(HASH, key_hash(self._partials.program.keys)) if self._finds_keys else made

    def _collected(self, made: DataFrame) -> pa.Table | None:
        """The partials in the driver; None where they are far more than expected."""
        most = GROWTH * max(self._expected, LEAST)
        table = self._hashed(made).limit(most + 1).toArrow()
        return table if table.num_rows <= most else None

    def _by_driver(self, table: pa.Table, name: str) -> Written:
        table = table.cast(self._arrow)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        folder = self._state.log.inside(name)
        folder.make()
        files = (folder.write_once(ARROW_FILE, sink.getvalue().to_pybytes()),)
        self._hold(name, table)
        rows = table.column(ROWS)
        kept, keys = pc.sum(rows).as_py() or 0, pc.sum(pc.greater(rows, 0)).as_py() or 0
        failed = table.num_rows - table.column(BAD).null_count
        return Written(name, files, table.num_rows, kept, keys, failed, table)

    def _by_tasks(self, made: DataFrame, name: str) -> Written:
        seen = Observation()
        made = made.observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.sum(ROWS).alias("kept"),
            F.count_if(F.col(ROWS) > 0).alias("keys"),
            F.count(F.col(BAD)).alias("failed"),
        )
        made.write.parquet(self._state.log.child(name))
        found = seen.get
        files = self._state.described(self._state.log, name)
        return Written(name, files, found["rows"], found["kept"] or 0, found["keys"], found["failed"])

    # -- memory

    def _hold(self, name: str, table: pa.Table) -> Held:
        held = Held.of(table)
        self._sizes[name] = held.size
        if sum(self._sizes[other] for other in {*self._held, name}) <= HELD_BYTES:
            self._held[name] = held
        return held

    def _of_file(self, entry: LogFolder) -> Held:
        """A small entry; read from its file where it is not in memory, as after a restart."""
        if entry.name in self._held:
            return self._held[entry.name]
        folder, file, of = self._state.log.inside(entry.name), entry.files[0], f"batch {entry.batch}"
        data = file.checked(folder.read_bytes(file.name, of), folder.child(file.name), of)
        return self._hold(entry.name, pa.ipc.open_file(data).read_all())

    def _of_tasks(self, spark: SparkSession, entry: LogFolder) -> Held:
        """A large entry in memory."""
        if entry.name in self._held:
            return self._held[entry.name]
        return self._hold(entry.name, self._hashed(self._parquet(spark, [entry.name])).toArrow().cast(self._arrow))

    def _fits(self, entries: Sequence[LogFolder]) -> bool:
        """Whether there is memory for all of these, by what is known of them."""
        known = (self._sizes.get(entry.name, SPREAD * sum(file.size for file in entry.files)) for entry in entries)
        return self._is_arrow and sum(known) <= HELD_BYTES

    def keep(self, live: Iterable[LogFolder]) -> None:
        """Let go of all entries but these."""
        names = {entry.name for entry in live}
        self._held = {name: held for name, held in self._held.items() if name in names}
        self._sizes = {name: size for name, size in self._sizes.items() if name in names}

    # -- reading

    def read(self, spark: SparkSession, entries: Sequence[LogFolder], panes: Span | None = None) -> DataFrame:
        """The partials in these entries, without refused rows; only those in `panes`, where some are named."""
        small = [self._of_file(entry).of_panes(panes) for entry in entries if entry.is_small]
        large = [entry.name for entry in entries if not entry.is_small]
        if not large:
            return self._local(spark, small)
        found = self._parquet(spark, large).where(F.col(BAD).isNull())
        if panes is not None:
            found = found.where(F.col(PANE).between(panes.first, panes.last))
        return found.unionByName(self._local(spark, small)) if small else found

    def all_of(self, spark: SparkSession, written: Written) -> DataFrame:
        """What was just written, with the rows that were refused."""
        if written.table is None:
            return self._parquet(spark, [written.name])
        return self._local(spark, [written.table.select(self._partials.schema.names)])

    def touched(self, spark: SparkSession, entries: Sequence[LogFolder], batch: int) -> DataFrame:
        """What a batch has left, with all that the log knows of the same keys; `NEW` is true of the first.

        Where the log is too large for memory, or keys cannot be looked up, all of it.
        """
        old = [entry for entry in entries if entry.batch != batch]
        new = [entry for entry in entries if entry.batch == batch]
        if not (self._finds_keys and all(entry.is_small for entry in new) and self._fits(entries)):
            came = self.read(spark, new).withColumn(NEW, F.lit(True))
            return came.unionByName(self.read(spark, old).withColumn(NEW, F.lit(False))) if old else came
        fresh = [self._of_file(entry) for entry in new]
        sought = np.unique(np.concatenate([held.hashes for held in fresh]))
        held = [self._of_file(entry) if entry.is_small else self._of_tasks(spark, entry) for entry in old]
        tables = [_marked(one.of_keys(sought), False) for one in held if len(sought)]
        return self._local(spark, [*tables, *(_marked(one.table, True) for one in fresh)])

    def _parquet(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        return spark.read.schema(self._partials.schema).parquet(*(self._state.log.child(name) for name in names))

    def _local(self, spark: SparkSession, tables: Sequence[pa.Table]) -> DataFrame:
        """Rows of the driver as a DataFrame."""
        schema = self._partials.schema
        table = pa.concat_tables(tables) if tables else arrow_schema(schema).empty_table()
        if NEW in table.column_names:
            schema = T.StructType([*schema.fields, T.StructField(NEW, T.BooleanType())])
        few = table.num_rows <= GROWTH * SMALL_ROWS
        return in_driver(spark, table, schema) if few else frame_of(spark, table, schema)


def _marked(table: pa.Table, is_new: bool) -> pa.Table:
    return table.append_column(NEW, pa.array(np.full(table.num_rows, is_new)))
