"""Turn a checked pipeline file into a stream that can be started."""

from __future__ import annotations

import logging
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import SteelyardError
from steelyard.core.notices import NoEffectWarning
from steelyard.spark.pipeline_file import FUNCTIONS, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from steelyard.spark.query import Query
    from steelyard.spark.stream import Stream


POLL_SECONDS = 0.2
GRACE_SECONDS = 30.0
"""How long a batch may go on after Ctrl-C."""


def run(pipeline: Pipeline, report: Callable[[str], None]) -> None:
    """Start the query and follow it to its end, with a line for each batch.

    Ctrl-C lets the batch under way end, stops the query, then the session, and is raised as
    KeyboardInterrupt.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415

    import steelyard as sy  # noqa: PLC0415 - checking a file must not start Spark
    from steelyard.spark.engine import FIRST  # noqa: PLC0415

    kafka = "kafka" in (pipeline.source["format"], pipeline.sink["format"])
    config = {option: str(value) for option, value in pipeline.session.get("config", {}).items()}
    report("starting Spark")
    spark = sy.session(pipeline.name, master=pipeline.session.get("master"), config=config, kafka=kafka)
    spark.sparkContext.setLogLevel("ERROR")
    _leave_failures_to_us(spark)
    try:
        with control_c() as asked:
            try:
                with _told(report):
                    query = build(pipeline, spark).start()
            except PySparkException as error:
                raise SteelyardError(f"{pipeline.name} cannot start: {_first_line(error)}") from error
            report("starting its workers" if pipeline.engine in ("groups", "resident") else FIRST)
            try:
                follow(query, report, asked)
                if asked():
                    report("stopping after the batch under way; Ctrl-C again stops at once")
                    end_batch(query)
            finally:
                if asked():
                    # Spark would log a batch that the stop cuts off as a failure, over a thousand lines.
                    spark.sparkContext.setLogLevel("OFF")
                query.stop()
        # A batch that was cut off all the same counts as failed; the next start runs it again.
        if asked():
            raise KeyboardInterrupt
        problem = query.exception()
        if isinstance(problem, SteelyardError):
            raise problem
        if problem is not None:
            raise SteelyardError(f"{pipeline.name} failed: {problem}") from problem
    finally:
        spark.stop()


@contextmanager
def _told(report: Callable[[str], None]) -> Iterator[None]:
    """Report what has no effect as a line; a program's warnings would name lines of this package."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoEffectWarning)
        yield
    for one in caught:
        if issubclass(one.category, NoEffectWarning):
            report(f"note: {one.message}")
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _leave_failures_to_us(spark: SparkSession) -> None:
    """Keep Spark and the engine from printing why a query failed: `run` says it."""
    from steelyard.spark.engine import log  # noqa: PLC0415
    from steelyard.spark.session import without_traces  # noqa: PLC0415

    without_traces(spark)
    log.addHandler(logging.NullHandler())


@contextmanager
def control_c() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C instead of raising it; gives a function that tells whether it came.

    PySpark's own handler calls the JVM, which breaks the call that it interrupts. A second Ctrl-C goes to the
    handler that was there before.
    """
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, before)


def follow(query: Query, report: Callable[[str], None], asked: Callable[[], bool]) -> None:
    """Report every batch once, in order, until the query ends or its end is `asked` for."""
    last = -1
    active = True
    while active and not asked():
        # Asked before the reports are read, so that those of the last batches are not missed.
        active = query.is_active
        for batch in query.recent_progress:
            if batch.batch > last:
                report(str(batch))
                last = batch.batch
        if active:
            time.sleep(POLL_SECONDS)


def end_batch(query: Query) -> None:
    """Wait until the batch under way has ended, or none is, but not for ever."""
    newest = query.last_progress
    deadline = time.monotonic() + GRACE_SECONDS
    while query.last_progress is newest and query.is_active and query.status["isTriggerActive"]:
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS / 10)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def build(pipeline: Pipeline, spark: SparkSession) -> Stream:
    """The stream that the pipeline describes, ready to start."""
    import steelyard as sy  # noqa: PLC0415 - checking a file must not start Spark

    aggregates = {name: _aggregate(sy, spec) for name, spec in pipeline.aggregates.items()}
    stream = sy.stream(read_source(pipeline.source, spark))
    if pipeline.watermark:
        stream = stream.with_watermark(pipeline.watermark["column"], pipeline.watermark["delay"])
    stream = stream.group_by(*pipeline.key)
    if pipeline.window:
        stream = stream.window(pipeline.window["size"], slide=pipeline.window.get("slide"))
    stream = stream.agg(**aggregates)
    policy = dict(pipeline.policy)
    if "statistics" in policy:
        stream = stream.statistics(policy.pop("statistics"))
    if policy:
        stream = stream.partition_by(policy.pop("name"), **policy)
    if pipeline.elastic:
        stream = stream.elastic(pipeline.elastic["name"])
    if pipeline.bad_rows:
        places = {field: value for field, value in pipeline.bad_rows.items() if field != "action"}
        stream = stream.on_bad_rows(pipeline.bad_rows["action"], **places)
    if pipeline.output_mode:
        stream = stream.output_mode(pipeline.output_mode)
    sink = {field: value for field, value in pipeline.sink.items() if field != "format"}
    stream = stream.sink(str(pipeline.sink["format"]), **sink).name(pipeline.name)
    if pipeline.checkpoint:
        stream = stream.checkpoint(pipeline.checkpoint)
    if pipeline.engine or pipeline.interval or pipeline.workers:
        engine = pipeline.engine or "microbatch"  # which says whose the others are
        stream = stream.engine(engine, pipeline.workers or None, pipeline.interval or None)
    return stream.trigger(**pipeline.trigger) if pipeline.trigger else stream


def read_source(source: Mapping[str, Any], spark: SparkSession) -> DataFrame:
    """The streaming DataFrame of a source; a Kafka record's value is read as JSON by the schema."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    reader = spark.readStream.format(source["format"]).options(**source.get("options", {}))
    if source["format"] == "kafka":
        reader = reader.option("kafka.bootstrap.servers", source["servers"]).option("subscribe", source["topic"])
        records = reader.option("startingOffsets", source.get("starting", "latest")).load()
        return records.select(sf.from_json(sf.col("value").cast("string"), source["schema"]).alias("v")).select("v.*")
    if source["format"] == "steelyard":
        named = {field: value for field, value in source.items() if field != "format"}
        return reader.options(**named).load()
    return reader.schema(source["schema"]).load(source["path"])


def _aggregate(sy: Any, spec: Mapping[str, Any]) -> Any:
    options = dict(spec)
    function = next(name for name in spec if name in FUNCTIONS)
    column = options.pop(function)
    return sy.count() if (function, column) == ("count", "*") else getattr(sy, function)(column, **options)
