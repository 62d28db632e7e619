"""From the builder's description to a query on the resident engine."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from steelyard.control import Feed
from steelyard.control.controller import require_shown
from steelyard.core import OptionError, Placer, tell_no_effect
from steelyard.core.dataflow import Dataflow
from steelyard.core.durable import damaged, seal_of, sealed, written
from steelyard.core.durable import opened as opened_text
from steelyard.resident.delivery import Deliver
from steelyard.resident.kafka import client
from steelyard.resident.kafka_sink import EXACTLY_ONCE, Kafka
from steelyard.resident.observed import shown_of
from steelyard.resident.settings import DEFAULT_PROTOCOL
from steelyard.resident.settings import Settings as JobSettings
from steelyard.resident.sinks import Memory, Parquet, SinkLogic
from steelyard.resident.snapshot import SnapshotStore
from steelyard.resident.sources import Reader
from steelyard.scaling import Fixed
from steelyard.scaling.registry import those_that_see
from steelyard.spark.arrow import frame_of
from steelyard.spark.checkpoint import said
from steelyard.spark.engine import in_a_sentence
from steelyard.spark.files import Folder, local_path
from steelyard.spark.program import Bound
from steelyard.spark.relation import relation_of
from steelyard.spark.resident import job
from steelyard.spark.resident_elastic import LEARNT, Autoscaler, as_it_was
from steelyard.spark.resident_program import LETTER, LETTERS, SINK, Width, columns_read, dataflow_of, result_schema
from steelyard.spark.resident_query import ResidentQuery
from steelyard.spark.resident_source import Reading, reader_of
from steelyard.spark.scratch import let_go, scratch
from steelyard.spark.settings import Settings
from steelyard.spark.sinks import FileSink, Sink, claim, claimable, opened
from steelyard.spark.sinks import sink as make_sink

EPOCH_SECONDS = 1.0
"""Between two snapshots, where no trigger says otherwise."""
REPORT_SECONDS = 0.2
"""Between two reports of a worker, which a query's progress is made of."""
LEAST_LOOK_SECONDS = 2 * REPORT_SECONDS
"""Between two looks of an elasticity policy, however often a snapshot is taken: none is without news of all workers."""
NOTES = "resident.json"
"""The file of a checkpoint that says what the next start must know."""


@dataclass(frozen=True)
class Resident:
    """What the builder was told besides the program.

    Parameters
    ----------
    sink, options
        Where results go.
    checkpoint
        Where snapshots live; None where a restart is not wanted.
    available_now
        Whether only what is there now is read.
    name
        Of the query.
    workers
        Spark slots to keep; None keeps all but one.
    interval
        Seconds of a batch, on the engine that has batches.
    protocol
        How snapshots are taken, on the one that has none; None for the usual way.
    """

    sink: str
    options: dict[str, Any]
    checkpoint: str | None
    available_now: bool
    name: str
    workers: int | None
    interval: float | None = None
    protocol: str | None = None


def start_resident(rows: DataFrame, bound: Bound, settings: Settings, how: Resident) -> ResidentQuery:
    """Check everything, and start the query."""
    _require(bound, settings)
    spark = rows.sparkSession
    slots = spark.sparkContext.defaultParallelism
    program = {**bound.signature(), "blocks": settings.blocks, "buckets": settings.buckets}
    notes = Notes.at(spark, how, {**program, "output mode": settings.mode})
    workers = how.workers or max(1, slots - 1)
    letters = settings.bad.path
    if letters is not None:
        claimable(spark, letters, notes.identity)
    if letters or not _is_of_workers(how, settings):
        require_slot("a dead-letter table" if letters else f"the {how.sink} sink", how, workers, slots)
    sink, made_sink = _sink(spark, bound, settings, how, notes)
    dataflow = planned(rows, bound, settings, how, sink, notes.known, notes.files)
    is_elastic = not isinstance(settings.elastic, Fixed)
    if is_elastic:
        shows = shown_of(dataflow, stored=True)
        require_shown(settings.elastic, shows, Autoscaler.what, those_that_see(shows))
        dataflow = as_it_was(dataflow, notes.store)
    note = notes.write()
    if isinstance(sink, Parquet):  # now that a restart knows who it is
        claim(spark, sink.path, notes.identity)
    if letters is not None:
        claim(spark, letters, notes.identity)
    deliver = _deliver(spark, bound, settings, how, notes, made_sink) if made_sink or letters else None
    _tell_idle(settings)
    made = job(
        spark,
        dataflow,
        workers=workers,
        settings=JobSettings(
            store=str(notes.store.path),
            interval=None if how.available_now else settings.interval or EPOCH_SECONDS,
            heartbeat=REPORT_SECONDS,
            note=note,
            deliver=deliver,
            protocol=how.protocol or DEFAULT_PROTOCOL,
        ),
    )
    feed, autoscaler = Feed(), None
    if is_elastic:
        every = max(settings.interval or EPOCH_SECONDS, LEAST_LOOK_SECONDS)
        learnt = notes.checkpoint / LEARNT
        own_interval = settings.interval > 0
        autoscaler = Autoscaler(made, settings.elastic, settings.guards, every, learnt, feed.tell, own_interval)
    return ResidentQuery(made, feed, how.name, notes.id, partial(let_go, str(notes.checkpoint)), autoscaler)


def require_slot(who: str, how: Resident, workers: int, slots: int) -> None:
    """OptionError where no slot of Spark is left to write results with while the query runs."""
    if not how.available_now and workers >= slots:
        raise OptionError(
            f"{workers} workers take all slots of the session while the query runs, and {who} needs one: "
            f"start Spark with more, as local[{workers + 1}], or give fewer workers"
        )


def planned(
    rows: DataFrame,
    bound: Bound,
    settings: Settings,
    how: Resident,
    sink: SinkLogic,
    known: dict[str, Any],
    files: Path | None = None,
) -> Dataflow:
    """The dataflow of a query; `known` is what earlier starts from its checkpoint noted, and this one adds to.

    `files` is a folder for the names of those that are found in one that is watched.
    """
    spark = rows.sparkSession
    width = Width(
        sources=settings.blocks,
        aggregates=settings.buckets,
        grouping=settings.partitioner if settings.is_planned and settings.buckets > 1 else "hash",
    )
    reader = input_of(rows, bound, how, known, settings.bad.policy, files)
    return dataflow_of(how.name, spark, bound, reader, sink, width, settings.bad.policy, settings.mode)


def input_of(
    rows: DataFrame, bound: Bound, how: Resident, known: dict[str, Any], bad_rows: str, files: Path | None
) -> Reader:
    """A reader of the columns that a program needs of its input."""
    spark = rows.sparkSession
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    sensitive = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    reading = Reading(how.available_now, zone, known, sensitive, files)
    return reader_of(spark, relation_of(rows, columns_read(bound, bad_rows)), reading)


def _is_of_workers(how: Resident, settings: Settings) -> bool:
    """Whether workers write to the sink by themselves; files of changes need to say which epoch's they are."""
    return how.sink == "kafka" or (how.sink == "parquet" and settings.mode == "append")


def _require(bound: Bound, settings: Settings) -> None:
    """What the resident engine does not have."""
    if not bound.program.aggregates:
        raise OptionError("engine('resident') aggregates: add .group_by(...).agg(...), or use engine('microbatch')")
    if settings.mode == "complete":
        raise OptionError("engine('resident') has no output mode 'complete': use 'update', or engine('microbatch')")
    if isinstance(settings.partitioner, Placer):
        raise OptionError(
            f"partition_by: {settings.partitioner.name} goes by what the map function takes, which engine('resident') "
            "runs where rows are read: use engine('microbatch')"
        )


def _tell_idle(settings: Settings) -> None:
    """Tell what this engine makes no use of."""
    if settings.is_planned and settings.buckets == 1:
        why, remedy = "one instance aggregates", "give more, as in partition_by(..., buckets=4)"
        tell_no_effect(f"partition_by({settings.partitioner.name!r})", why, remedy)
    if settings.statistics != "carried":
        tell_no_effect(f"statistics({settings.statistics!r})", "resident workers have no batches to count")


def _sink(
    spark: SparkSession, bound: Bound, settings: Settings, how: Resident, notes: Notes
) -> tuple[SinkLogic, Sink | None]:
    """The sink's operator, and the sink of the driver that gets what comes to it."""
    made = make_sink(how.sink, bound.program.keys, spark, settings.mode, how.options)
    if how.sink == "parquet" and _is_of_workers(how, settings):
        path = str(_local(spark, how.options["path"]))
        claimable(spark, path, notes.identity)
        return Parquet(path), None
    if how.sink == "kafka":
        client()
        config = {"bootstrap.servers": how.options["servers"]}
        delivery = how.options.get("delivery", EXACTLY_ONCE)
        return Kafka(config, how.options["topic"], bound.program.keys, notes.identity, delivery), None
    if isinstance(made, FileSink):
        made.require_no_batch_id(bound.result_columns)
        claimable(spark, made.path, notes.identity)
    return Memory(), made


def _deliver(
    spark: SparkSession, bound: Bound, settings: Settings, how: Resident, notes: Notes, made: Sink | None
) -> Deliver:
    """What hands the results of an epoch on, and its dead letters; called when the checkpoint knows its identity."""
    schema = result_schema(spark, bound)
    if made is not None:
        opened(made, spark, schema, notes.identity)

    def deliver(epoch: int, results: Mapping[str, list[pa.RecordBatch]]) -> None:
        try:
            if LETTERS in results:
                settings.bad.keep(_frame(spark, results[LETTERS], LETTER), epoch)
            if SINK in results and made is not None:
                made.write(_frame(spark, results[SINK], schema), epoch)
        except Exception as error:
            raise in_a_sentence(error, f"{how.name}, epoch {epoch}") from error

    return deliver


def _frame(spark: SparkSession, results: list[pa.RecordBatch], schema: T.StructType) -> DataFrame:
    # what an earlier start left may have its columns in another order
    return frame_of(spark, pa.Table.from_batches(results).select(schema.names), schema)


class Notes:
    """What a checkpoint knows of the query, beside its snapshots.

    Each commit of a snapshot knows the seal of the notes that it was made with, and the notes of a start know those of
    the newest commit: one of the two fits, whenever the driver ends.

    The first start draws an identity, which tells this checkpoint from any other, also from one that was at its path
    before: folders of results, transactions and consumer groups are by that name.
    """

    @classmethod
    def at(cls, spark: SparkSession, how: Resident, program: dict[str, Any]) -> Notes:
        """Those of a query's checkpoint; OptionError where it is no folder, or another query's."""
        checkpoint = Path(_local(spark, how.checkpoint) if how.checkpoint else scratch())
        folder = Folder(spark, str(checkpoint))
        folder.refuse_file("checkpoint")
        folder.refuse_others(("snapshots",))
        return cls(checkpoint, program)

    def __init__(self, checkpoint: Path, program: dict[str, Any]) -> None:
        self.checkpoint, self._file = checkpoint, checkpoint / NOTES
        self.store = SnapshotStore(checkpoint / "snapshots")
        self.files = checkpoint / "files"
        self.identity = uuid.uuid4().hex
        self._program = json.loads(json.dumps(program))
        self.known: dict[str, Any] = {}
        newest = self.store.checked()
        self._before = newest.note if newest else ""
        if not self._file.exists():
            if newest:
                raise damaged(self._file, "of the query's program is missing")
            return
        kept, seal = opened_text(self._file.read_bytes(), self._file, "the query's program")
        if not self.store.exists:
            raise damaged(self.store.head, "of the newest epoch is missing")
        if self._before not in (seal, kept["before"]):
            raise damaged(self._file, "of the query's program is not what the newest snapshot was taken with")
        for what, value in self._program.items():
            before = kept["program"].get(what)
            # keys have an order, by which they are hashed; states of aggregates are by their names
            same = before == value if what == "aggregates" else json.dumps(before) == json.dumps(value)
            if not same:
                raise OptionError(
                    f"{checkpoint} belongs to another program: its {what} was {said(what, before)}, "
                    f"and is {said(what, value)} now. Give a new checkpoint"
                )
        self.identity = kept.get("identity") or _former_identity(checkpoint)
        self.known = kept["known"]

    @property
    def id(self) -> str:
        """The identity in the form of Spark's ids."""
        return str(uuid.UUID(self.identity.ljust(32, "0")))

    def write(self) -> str:
        """Keep them, in one step; gives their seal."""
        self.store.make()  # first: notes without a store mean that it is gone
        body = {"identity": self.identity, "program": self._program, "known": self.known, "before": self._before}
        text = sealed(body)
        written(self._file, lambda file: file.write(text.encode()))
        return seal_of(text)


def _former_identity(checkpoint: Path) -> str:
    """The identity of a checkpoint of an earlier release, which was made of its path: its sinks know it by that."""
    return hashlib.sha256(str(checkpoint.absolute()).encode()).hexdigest()[:16]


def _local(spark: SparkSession, path: str) -> Path:
    found = local_path(spark, path)
    if found is None:
        raise OptionError(
            f"engine('resident') keeps files in a folder that all machines see under one path, got {path!r}"
        )
    return found
