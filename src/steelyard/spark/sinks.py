"""Where results go. A sink takes a batch's results once: the same batch again changes nothing, where it can."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.core import OptionError
from steelyard.core.durable import damaged
from steelyard.core.errors import nearest
from steelyard.resident.kafka_sink import AT_LEAST_ONCE, DELIVERIES
from steelyard.spark.arrow import frame_of, require_arrow
from steelyard.spark.files import Folder
from steelyard.spark.formats import FormatSink, plain_options, spark_format
from steelyard.spark.kafka import as_records
from steelyard.spark.kept import kept

log = logging.getLogger(__name__)

MARK = "_steelyard-"
"""Begins the name of the file that tells whose folder it is; Spark does not read files with an underscore."""
PARTS = ("batch_id=", "epoch-", "_staged-epoch-")
"""Begin the names of results: of batches, and of epochs of the resident engine."""


_UNMARKED = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""A part is renamed when it is complete, and needs no file that says so."""


class Sink(Protocol):
    """Called by the engine once per batch that has results, before the batch is committed.

    After a crash the last batch may come again, under its number: the sink drops it, replaces what it wrote,
    or says that it repeats it.
    """

    def write(self, results: DataFrame, batch: int) -> int:
        """Write the results of a batch, and say how many there were."""
        ...


@runtime_checkable
class Opening(Protocol):
    """A sink that has something to do at each start of a query, before the first batch."""

    def open(self, spark: SparkSession, schema: T.StructType, owner: str) -> None:
        """Make ready for results of this schema; `owner` tells the query's checkpoint from any other."""
        ...


def opened(sink: Sink, spark: SparkSession, schema: T.StructType, owner: str) -> Sink:
    """The sink, made ready for a query's results."""
    if isinstance(sink, Opening):
        sink.open(spark, schema, owner)
    return sink


def claimable(spark: SparkSession, path: str, owner: str) -> bool:
    """Whether a folder is nobody's so far; OptionError or StateError where a query must not have it."""
    folder = Folder(spark, path)
    folder.refuse_file("the folder of results")
    names = folder.names()
    marks = [name for name in names if name.startswith(MARK)]
    if not marks:
        parts = [name for name in names if name.startswith(PARTS)]
        if parts:
            raise damaged(
                folder.child(f"{MARK}{owner}"),
                f"is missing, and {parts[0]} beside it may be another query's",
                "put an empty file of that name there if these are this checkpoint's results, or choose a new path",
            )
    elif marks != [f"{MARK}{owner}"]:
        raise OptionError(
            f"{path} belongs to another query, or to this one with another checkpoint: choose a new path, "
            "or the checkpoint that goes with it"
        )
    return not marks


def claim(spark: SparkSession, path: str, owner: str) -> None:
    """Mark a folder as one query's. Another's parts would pass for parts that this one wrote before a crash."""
    if claimable(spark, path, owner):
        folder = Folder(spark, path)
        folder.make()
        folder.write_once(f"{MARK}{owner}", "")


def tell_what_is_gone(spark: SparkSession, sink: Sink, dead_letters: str | None, owner: str, batch: int) -> None:
    """Warn where results up to a batch went elsewhere than where the sink is now, or are gone from there."""
    if batch < 0:
        return
    for path in folders(sink, dead_letters):
        if not Folder(spark, path).exists(f"{MARK}{owner}"):
            log.warning("%s has no results of batches 0 to %d: they went elsewhere, or were removed", path, batch)
    if isinstance(sink, MemorySink) and sink.mode != "complete":
        log.warning(
            "table %s of the memory sink begins empty: results of batches 0 to %d were given before this start, and "
            "are not in it; .sink('parquet', path=...) keeps them",
            sink.name,
            batch,
        )


def counted(results: DataFrame) -> tuple[DataFrame, Observation]:
    """`results`, with their number observed while they are written."""
    seen = Observation()
    return results.observe(seen, F.count(F.lit(1)).alias("rows")), seen


@dataclass
class FileSink:
    """A folder of files, Parquet or another of Spark's formats, with one part `batch_id=N` a batch: exactly once.

    A part appears in one step, when it is complete. Read it with `spark.read.parquet(path)`.
    """

    path: str
    format: str = "parquet"
    options: dict[str, str] = field(default_factory=dict)
    """Of Spark's writer."""

    _folder: Folder | None = field(default=None, init=False, repr=False, compare=False)

    def require_no_batch_id(self, columns: Iterable[str]) -> None:
        """OptionError where a column of the results would be hidden by that of the parts."""
        if "batch_id" in map(str.lower, columns):
            raise OptionError(f"the {self.format} sink has a column batch_id of its own: give yours another name")

    def open(self, spark: SparkSession, schema: T.StructType, owner: str) -> None:
        """Take the folder, unless it is another query's."""
        claim(spark, self.path, owner)

    def write(self, results: DataFrame, batch: int) -> int:
        """Write to a hidden folder, then rename; a part that is there was written before a crash and stays."""
        folder = self._folder = self._folder or Folder(results.sparkSession, self.path)
        final = f"batch_id={batch}"
        if folder.exists(final):
            reader = results.sparkSession.read.schema(results.schema).options(**self.options)
            return int(reader.format(self.format).load(folder.child(final)).count())
        folder.make()
        for name in folder.names():
            if name.startswith(f"_writing-{batch}-"):
                folder.delete(name)
        part = f"_writing-{batch}-{uuid.uuid4().hex[:8]}"
        rows, seen = counted(results)
        rows.write.format(self.format).options(**{**_UNMARKED, **self.options}).save(folder.child(part))
        number = int(seen.get["rows"])
        if number:
            folder.settle(f"{part}/{name}" for name in folder.names(part))
            folder.rename(part, final)
        else:
            folder.delete(part)
        return number


def folders(sink: Sink, dead_letters: str | None) -> list[str]:
    """Where a query keeps parts of batches."""
    return [*([sink.path] if isinstance(sink, FileSink) else []), *([dead_letters] if dead_letters else [])]


@dataclass
class MemorySink:
    """Results in the driver's memory, as a table that SQL can ask: for tests and notebooks."""

    name: str
    spark: SparkSession
    mode: str = "append"
    tables: dict[int, pa.Table] = field(default_factory=dict)

    def open(self, spark: SparkSession, schema: T.StructType, owner: str) -> None:
        """Show no rows: before the first result there is a table, and none of a former query's rows is in it."""
        require_arrow(schema, "the memory sink")
        self.spark.createDataFrame([], schema).createOrReplaceTempView(self.name)

    def write(self, results: DataFrame, batch: int) -> int:
        """Keep the batch's rows; the same batch again replaces them, and in complete mode any batch does."""
        if self.mode == "complete":
            self.tables.clear()
        self.tables[batch] = results.toArrow()
        frame = frame_of(self.spark, self.table(), results.schema)
        frame.createOrReplaceTempView(self.name)
        return int(self.tables[batch].num_rows)

    def table(self) -> pa.Table:
        """All results so far."""
        return pa.concat_tables(self.tables.values()) if self.tables else pa.table({})


@dataclass(frozen=True)
class ConsoleSink:
    """Results on standard output."""

    rows: int = 20

    def write(self, results: DataFrame, batch: int) -> int:
        """Print the first rows of the batch."""
        with kept(results) as (rows, number):
            if number:
                print(f"batch {batch}: {number} results")  # noqa: T201 - what a console sink is for
                rows.show(self.rows, truncate=False)
            return number


@dataclass(frozen=True)
class ForeachBatchSink:
    """A function of yours, called with (DataFrame, batch number), as `foreachBatch` does.

    After a crash the last batch may come again with the same number: write idempotently by it.
    """

    function: Callable[[DataFrame, int], Any]

    def write(self, results: DataFrame, batch: int) -> int:
        """Call the function with the batch's results."""
        with kept(results) as (rows, number):
            self.function(rows, batch)
            return number


@dataclass(frozen=True)
class KafkaSink:
    """Results to a Kafka topic: key and value as JSON, and the batch number in the header `steelyard-batch`.

    At least once: after a crash the last batch may be sent again, which a consumer can tell by the header. (On resident
    workers the option `delivery` chooses, and exactly once is the default.)
    """

    servers: str
    topic: str
    keys: tuple[str, ...]
    delivery: str = AT_LEAST_ONCE

    def open(self, spark: SparkSession, schema: T.StructType, owner: str) -> None:
        """Refuse to promise what Spark's writer cannot keep."""
        if self.delivery != AT_LEAST_ONCE:
            raise OptionError(
                f"the kafka sink gives {self.delivery!r} on engine('resident') only: leave out delivery, or say "
                f"delivery={AT_LEAST_ONCE!r}"
            )

    def write(self, results: DataFrame, batch: int) -> int:
        """Send each result as one record. Observing them would hang: Spark's Kafka writer tells no listener."""
        with kept(as_records(results, self.keys, batch)) as (records, number):
            writer = records.write.format("kafka").option("kafka.bootstrap.servers", self.servers)
            writer.option("topic", self.topic).save()
            return number


_NEEDED: dict[str, tuple[str, ...]] = {
    "memory": ("name",),
    "console": (),
    "foreach_batch": ("function",),
    "kafka": ("servers", "topic"),
}


_OPTIONAL: dict[str, tuple[str, ...]] = {"console": ("rows",), "kafka": ("delivery",)}


SHIPPED = ("parquet", "json", "csv", "orc", "text", "xml", "avro", "jdbc", "noop")
"""Formats that Spark has without further jars, for suggestions."""


SAVE_MODES = ("append", "overwrite", "ignore", "error", "errorifexists", "update", "complete")
"""What Spark's writers call a mode; a format of somebody else's may have a `mode` of another kind."""


def check_sink(kind: str, options: dict[str, Any], spark: SparkSession) -> None:
    """Raise an OptionError that names a kind or an option that is wrong, as far as it can be told without results."""
    if str(options.get("mode")).lower() in SAVE_MODES:
        raise OptionError(
            f"the {kind} sink has no option 'mode': which results a batch writes is said by .output_mode('append'), "
            "'update' or 'complete'"
        )
    needed: tuple[str, ...] = ()
    if kind in _NEEDED:
        needed = _NEEDED[kind]
        known = (*needed, *_OPTIONAL.get(kind, ()))
        for option in options:
            if option not in known:
                raise OptionError.unknown(f"option of the {kind} sink", option, known)
    else:
        found = spark_format(spark, kind)
        if found is None:
            raise OptionError.unknown("sink", kind, [*_NEEDED, *SHIPPED])
        needed = ("path",) if found == "files" else ()
        for option in options:
            if option.lower().replace("_", "") == "partitionby":
                raise OptionError(
                    f"the {kind} sink has no option {option!r}: for folders by a column, write them yourself, with "
                    ".sink('foreach_batch', function=...) and rows.write.partitionBy(...)"
                )
        plain_options(kind, options)
    missing = [option for option in needed if not options.get(option)]
    if missing:
        others = [option for option in options if option not in needed]
        near = next((option for option in others if nearest(option, missing)), None)
        hint = f", where {near!r} was given" if near else ""
        raise OptionError(f"the {kind} sink needs {' and '.join(missing)}{hint}: .sink({kind!r}, {missing[0]}=...)")
    if kind == "foreach_batch" and not callable(options["function"]):
        raise OptionError(f"the foreach_batch sink needs a function of (DataFrame, batch), got {options['function']!r}")
    if options.get("delivery", AT_LEAST_ONCE) not in DELIVERIES and kind == "kafka":
        raise OptionError.unknown("value of option 'delivery':", str(options["delivery"]), DELIVERIES)
    if kind == "memory" and not re.fullmatch(r"\w+", str(options["name"])):
        raise OptionError(f"the memory sink's name becomes a table: letters, digits and '_', got {options['name']!r}")


def sink(kind: str, keys: tuple[str, ...], spark: SparkSession, mode: str, options: dict[str, Any]) -> Sink:
    """A sink by its kind; an OptionError names a kind or an option that is wrong."""
    check_sink(kind, options, spark)
    if kind == "kafka":
        return KafkaSink(keys=keys, **options)
    if kind == "memory":
        return MemorySink(options["name"], spark, mode)
    if kind in _NEEDED:
        makers: dict[str, Callable[..., Sink]] = {"console": ConsoleSink, "foreach_batch": ForeachBatchSink}
        return makers[kind](**options)
    told = plain_options(kind, options)
    if spark_format(spark, kind) == "files":
        return FileSink(told.pop("path"), kind, told)
    return FormatSink(kind, told, mode)
