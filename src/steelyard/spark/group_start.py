"""From the builder's description to a query on groups of batches."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from steelyard.control import Feed
from steelyard.core import OptionError, Placer, Progress, tell_no_effect
from steelyard.core.durations import spoken
from steelyard.core.policies import Cooperative
from steelyard.core.progress import BATCH
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Keeping, Scheduling
from steelyard.resident.sources import Reader
from steelyard.scaling import Fixed
from steelyard.spark.arrow import arrow_schema, frame_of
from steelyard.spark.engine import in_a_sentence
from steelyard.spark.program import Bound, Session
from steelyard.spark.resident import SparkLauncher, require_barrier
from steelyard.spark.resident_program import aggregated, result_schema
from steelyard.spark.resident_query import GroupQuery
from steelyard.spark.resident_start import EPOCH_SECONDS, Notes, Resident, input_of, require_slot
from steelyard.spark.scratch import let_go
from steelyard.spark.settings import Settings
from steelyard.spark.sinks import FileSink, Sink, claimable, opened

INTERVAL_SECONDS = 0.1
"""Of a batch, where the description says nothing else."""


def start_groups(rows: DataFrame, bound: Bound, settings: Settings, how: Resident, sink: Sink) -> GroupQuery:
    """Check everything, and start the query."""
    with _said_of_groups():
        return _start(rows, bound, settings, how, sink)


@contextmanager
def _said_of_groups() -> Iterator[None]:
    """What is refused as on the resident engine, whose sources and aggregates these are, under the engine's name."""
    try:
        yield
    except OptionError as error:
        raise OptionError(str(error).replace("engine('resident')", "engine('groups')")) from error


def _start(rows: DataFrame, bound: Bound, settings: Settings, how: Resident, sink: Sink) -> GroupQuery:
    _require(bound, settings)
    spark = rows.sparkSession
    slots = spark.sparkContext.defaultParallelism
    notes = Notes.at(spark, how, {**bound.signature(), "engine": "groups"})
    workers = how.workers or max(1, slots - 1)
    require_slot(f"the {how.sink} sink", how, workers, slots)
    require_barrier(spark, workers)
    receivers = int(notes.known.setdefault("receivers", workers))
    if receivers > workers:
        raise OptionError(
            f"{how.checkpoint} was begun with {receivers} workers that read, and there are {workers} now: give at "
            f"least as many, .engine('groups', workers={receivers})"
        )
    if isinstance(sink, FileSink):
        claimable(spark, sink.path, notes.identity)
    reader = input_of(rows, bound, how, notes.known, settings.bad.policy, notes.files)
    program = program_of(spark, bound, settings, reader, how.name)
    note = notes.write()
    schema = result_schema(spark, bound)
    opened(sink, spark, schema, notes.identity)
    wanted = arrow_schema(schema)

    def deliver(batch: int, results: pa.Table) -> None:
        try:
            sink.write(frame_of(spark, results.select(wanted.names).cast(wanted), schema), batch)
        except Exception as error:
            raise in_a_sentence(error, f"{how.name}, batch {batch}") from error

    feed = Feed()

    def tell(event: Progress) -> None:
        """Batches without anything in them are no news."""
        if event.kind != BATCH or event.rows or event.late_rows or event.results:
            feed.tell(event)

    job = GroupJob(
        program,
        scheduling_of(settings, how, receivers),
        workers,
        SparkLauncher(spark, GroupWorker),
        None if isinstance(settings.elastic, Fixed) else copy.deepcopy(settings.elastic),  # every query has its own
        guards=settings.guards,
        keeping=Keeping(str(notes.store.path), deliver, note),
        tell=tell,
    )
    return GroupQuery(job, feed, how.name, notes.id, partial(let_go, str(notes.checkpoint)))


def program_of(spark: SparkSession, bound: Bound, settings: Settings, reader: Reader, name: str) -> BatchProgram:
    """The program of every batch."""
    source, uses, _ = aggregated(spark, bound, reader, settings.bad.policy)
    program, window = bound.program, bound.program.window
    assert not isinstance(window, Session), "`_require` refuses it"
    made = BatchProgram(
        source,
        program.keys,
        uses,
        partitioner=settings.partitioner if settings.is_decided else BatchProgram.partitioner,
        window=spoken(window.size) if window else None,
        slide=spoken(window.slide) if window else None,
        time=program.time if window else None,
        delay=spoken(program.delay) if window and program.delay else None,
        open_end=window is not None,
        begins=0,
        step=1000,  # Spark's event time is in milliseconds
        running=window is None,
        name=name,
    )
    if program.time is not None and window is None:
        tell_no_effect("with_watermark(...)", "there is no window; it only refuses rows without a time")
    if settings.statistics != "carried":
        tell_no_effect(f"statistics({settings.statistics!r})", "receivers count keys while rows come")
    return made


def scheduling_of(settings: Settings, how: Resident, receivers: int) -> Scheduling:
    """How batches are scheduled: a worker is one slot, and does one task at a time."""
    interval = how.interval or INTERVAL_SECONDS
    return Scheduling(
        interval=interval,
        blocks=settings.blocks,
        buckets=settings.buckets,
        slots=1,
        receivers=receivers,
        snapshot=max(1, round((settings.interval or EPOCH_SECONDS) / interval)),
    )


def _require(bound: Bound, settings: Settings) -> None:
    """What groups of batches do not have."""
    program = bound.program
    if not program.aggregates:
        raise OptionError("engine('groups') aggregates: add .group_by(...) and .agg(...), or use engine('microbatch')")
    if isinstance(program.window, Session):
        raise OptionError("engine('groups') has no session windows: use engine('resident') or engine('microbatch')")
    mode = "append" if program.window is not None else "update"
    if settings.mode != mode:
        gives = "a window once, when it closes" if program.window is not None else "the keys of each batch"
        raise OptionError(f"engine('groups') gives {gives}: output mode {settings.mode!r} is engine('microbatch')'s")
    if settings.bad.policy == "dead_letter":
        raise OptionError("engine('groups') has no dead-letter table: choose .on_bad_rows('drop') or 'fail'")
    if isinstance(settings.partitioner, Placer | Cooperative):
        why = "what rows cost" if isinstance(settings.partitioner, Placer) else "what partitioners tell each other"
        raise OptionError(
            f"engine('groups') cuts batches by keys, each receiver its own, and {settings.partitioner.name!r} goes by "
            f"{why}: name another policy, as in .partition_by('dalton'), or use engine('microbatch')"
        )
