"""Whole queries on Structured Streaming: sources, sinks, restarts, watermarks."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import BadRowError, BatchError, OptionError
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.sinks import FileSink
from tests.spark.cases import Mean, same

pytestmark = pytest.mark.spark
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = "k string, v int, at timestamp"


def drop_file(spark, folder, name, rows):
    """Put one JSON file into a folder, in one step."""
    aside = folder.parent / f"{name}.aside"
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.json(str(aside))
    part = next(aside.glob("*.json"))
    folder.mkdir(exist_ok=True)
    os.replace(part, folder / f"{name}.json")


def at(seconds: float) -> datetime:
    return ORIGIN + timedelta(seconds=seconds)


FILES = [
    [("a", 1, at(1)), ("b", 2, at(2)), ("a", 3, at(14))],
    [("a", 4, at(22)), ("b", 5, at(3)), ("c", 6, at(9))],  # b is behind the watermark, but in an open window
    [("a", 7, at(61)), ("b", 8, at(1)), ("b", 8, at(33))],
    [("c", 9, at(4)), ("c", 10, at(62)), ("a", 11, at(47))],  # c at 4 s: all its windows are closed
    [("d", 12, at(300))],
]


def test_late_rows_are_taken_and_dropped_as_spark_does(spark, tmp_path):
    """Against Spark's own windowed aggregation, fed file by file, each followed by its no-data batch."""
    folder = tmp_path / "in"
    folder.mkdir()
    read = spark.readStream.schema(SCHEMA).json(str(folder))
    window = F.window("at", "20 seconds", "10 seconds")
    plain = read.withWatermark("at", "5 seconds").groupBy(window, "k").agg(F.sum("v").alias("v"))
    theirs = plain.writeStream.format("memory").queryName("theirs").outputMode("append").start()
    ours = (
        sy.stream(read)
        .with_watermark("at", "5 seconds")
        .group_by("k")
        .window("20 seconds", slide="10 seconds")
        .agg(v=sy.sum("v"))
        .sink("memory", name="ours")
        .checkpoint(str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for number, rows in enumerate(FILES):
            drop_file(spark, folder, f"{number}", rows)
            theirs.processAllAvailable()
            ours.process_all_available()
    finally:
        theirs.stop()
        ours.stop()
    expected = spark.table("theirs").selectExpr("window.start window_start", "window.end window_end", "k", "v")
    same(
        spark.table("ours").toArrow().to_pylist(),
        expected.toArrow().to_pylist(),
        ["window_start", "k"],
    )
    assert sum(report.late_rows for report in ours.recent_progress) == 1
    assert ours.exception() is None
    assert not ours.is_active


def test_a_restart_with_other_numbers_of_tasks_and_another_policy_goes_on_where_it_was(spark, tmp_path):
    folder = tmp_path / "in"
    out = str(tmp_path / "out")

    def start(policy, blocks, buckets):
        rows = spark.readStream.schema(SCHEMA).json(str(folder))
        return (
            sy.stream(rows)
            .with_watermark("at", "60 seconds")
            .group_by("k")
            .window("20 seconds", slide="10 seconds")
            .agg(v=sy.sum("v"), mean=Mean().of("v"))
            .partition_by(policy, blocks=blocks, buckets=buckets)
            .sink("parquet", path=out)
            .checkpoint(str(tmp_path / "checkpoint"))
            .trigger(available_now=True)
            .start()
        )

    drop_file(spark, folder, "0", FILES[0] + FILES[1])
    first = start("prompt", 3, 2)
    first.await_termination()
    drop_file(spark, folder, "1", FILES[2] + FILES[3] + FILES[4])
    second = start("shuffle", 2, 5)
    second.await_termination()
    assert second.last_progress.buckets == 5
    assert second.last_progress.batch == 1
    rows = spark.createDataFrame([row for file in FILES for row in file], SCHEMA)
    expected = (
        rows.groupBy(F.window("at", "20 seconds", "10 seconds").alias("w"), "k")
        .agg(F.sum("v").alias("v"), F.avg("v").alias("mean"))
        .where("w.end <= timestamp'2024-05-01 00:04:00'")
        .selectExpr("w.start window_start", "w.end window_end", "k", "v", "mean")
    )
    got = spark.read.parquet(out).drop("batch_id")
    same(got.toArrow().to_pylist(), expected.toArrow().to_pylist(), ["window_start", "k"])


def windows_of(files, delays, size=10):
    """Totals by window and key of the rows that are in time, where the n-th batch has the n-th delay; by hand."""
    totals, mark = {}, 0.0
    for rows, delay in zip(files, delays, strict=True):
        ends = [(row, (row[2].timestamp() // size + 1) * size) for row in rows]
        for (key, value, _), end in [(row, end) for row, end in ends if end > mark]:
            totals[end - size, key] = totals.get((end - size, key), 0) + value
        mark = max(mark, max(row[2].timestamp() for row in rows) - delay)
    return {(start, key): total for (start, key), total in totals.items() if start + size <= mark}


@pytest.mark.parametrize(("before", "after", "batch"), [(5, 60, 2), (60, 5, 2), (5, 60, 0)])
def test_a_delay_that_changes_after_a_crash_before_the_commit_neither_doubles_nor_loses_a_window(
    spark, tmp_path, monkeypatch, before, after, batch
):
    """The batch that comes again closes the windows that it closed when it was tried; later ones obey the new delay."""
    files = FILES[2 - batch :]  # the third one closes windows
    frames = [spark.createDataFrame(rows, SCHEMA) for rows in files]
    out = str(tmp_path / "out")

    def engine(delay):
        described = sy.stream(frames[0]).with_watermark("at", f"{delay} seconds").group_by("k").window("10 seconds")
        described = described.agg(v=sy.sum("v"))
        return MicroBatch(spark, described._bound(), described._settings(), FileSink(out), str(tmp_path / "state"))

    first = engine(before)
    for number in range(batch):
        first.process(frames[number], number)
    monkeypatch.setattr(first.state, "commit", lambda commit: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        first.process(frames[batch], batch)
    second = engine(after)
    for number in range(batch, len(frames)):
        second.process(frames[number], number)
    found = [
        (row[0].timestamp(), *row[1:]) for row in spark.read.parquet(out).select("window_start", "k", "v").collect()
    ]
    expected = windows_of(files, [before] * (batch + 1) + [after] * (len(files) - batch - 1))
    assert sorted(found) == sorted((start, key, total) for (start, key), total in expected.items())


def test_windows_from_before_1970_are_taken_and_dropped_as_spark_does(spark, tmp_path):
    """Spark's watermark begins at the epoch: what ends there or before is late, what reaches beyond is not."""
    folder = tmp_path / "in"
    folder.mkdir()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    files = [[-100, -5, -33], [-3, 2, -3600, -15], [40]]
    read = spark.readStream.schema(SCHEMA).json(str(folder))
    plain = read.withWatermark("at", "5 seconds").groupBy(F.window("at", "20 seconds", "10 seconds").alias("w"), "k")
    theirs = plain.agg(F.sum("v").alias("v")).writeStream.format("memory").queryName("old_theirs").start()
    ours = sy.stream(read).with_watermark("at", "5 seconds").group_by("k").window("20 seconds", "10 seconds")
    query = ours.agg(v=sy.sum("v")).sink("memory", name="old_ours").start()
    try:
        for number, seconds in enumerate(files):
            drop_file(spark, folder, f"{number}", [("a", 1, epoch + timedelta(seconds=at)) for at in seconds])
            theirs.processAllAvailable()
            query.process_all_available()
    finally:
        theirs.stop()
        query.stop()
    expected = spark.table("old_theirs").selectExpr("w.start window_start", "w.end window_end", "k", "v")
    assert expected.where("window_start < timestamp'1970-01-01'").count() == 1
    same(spark.table("old_ours").toArrow().to_pylist(), expected.toArrow().to_pylist(), ["window_start"])
    assert sum(report.late_rows for report in query.recent_progress) == 4


def test_a_table_in_memory_is_there_before_the_first_result_and_holds_no_rows_of_a_former_query(
    spark, tmp_path, temporary
):
    rows = spark.createDataFrame([("a", 1, at(0))], SCHEMA)
    (tmp_path / "in").mkdir()
    read = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    rows.createOrReplaceTempView("reused")
    described = sy.stream(read).with_watermark("at", "5 seconds").group_by("k").window("20 seconds")
    described = described.agg(v=sy.sum("v"), mean=Mean().of("v")).sink("memory", name="reused")
    described.trigger(available_now=True).start().await_termination()
    assert spark.table("reused").count() == 0
    assert spark.table("reused").schema == replace(described, rows=rows).to_df().schema
    vectors = spark.readStream.schema("id string, at timestamp, vector array<double>").json(str(tmp_path / "in"))
    join = sy.similarity_join(vectors, on="vector", id="id", time="at", window="1 minute", threshold=0.1)
    join.sink("memory", name="reused").trigger(available_now=True).start().await_termination()
    columns = "left_id, right_id, distance, similarity, window_start, window_end, latency"
    assert ", ".join(spark.table("reused").columns) == columns
    assert not list(temporary.glob("steelyard-*"))  # without a checkpoint nothing is left


def test_bad_rows_stop_the_query_with_our_own_error(spark, tmp_path, temporary):
    folder = tmp_path / "in"
    drop_file(spark, folder, "0", [(None, 1, at(0))])
    rows = spark.readStream.schema(SCHEMA).json(str(folder))
    query = sy.stream(rows).group_by("k").agg(n=sy.count()).sink("console").trigger(available_now=True).start()
    with pytest.raises(BadRowError, match="null key in column 'k'"):
        query.await_termination()
    assert isinstance(query.exception(), BadRowError)
    assert not list(temporary.glob("steelyard-*"))


def test_your_own_function_gets_each_batch_with_its_number(spark, tmp_path):
    folder = tmp_path / "in"
    drop_file(spark, folder, "0", FILES[0])
    seen = []
    query = (
        sy.stream(spark.readStream.schema(SCHEMA).json(str(folder)))
        .group_by("k")
        .agg(n=sy.count())
        .sink("foreach_batch", function=lambda rows, batch: seen.append((batch, sorted(map(tuple, rows.collect())))))
        .trigger(available_now=True)
        .start()
    )
    query.await_termination()
    assert seen == [(0, [("a", 2), ("b", 1)])]


def test_zero_and_minus_zero_are_one_key_to_every_plan(spark, tmp_path):
    rows = [(key, 1, at(0)) for key in [0.0, -0.0] * 40]
    kept = []
    frame = spark.createDataFrame(rows, "k double, v int, at timestamp")
    described = sy.stream(frame).group_by("k").agg(total=Mean().of("v"), rows=sy.count())
    from steelyard.spark.microbatch import MicroBatch
    from tests.spark.cases import Kept

    sink = Kept()
    engine = MicroBatch(spark, described._bound(), described._settings(), sink, str(tmp_path))
    for batch in range(3):
        kept.append(engine.process(frame, batch).rows)
    assert kept == [80, 80, 80]
    assert [row["rows"] for row in sink.batches[2]] == [240]


def test_the_log_is_compacted_and_old_folders_are_swept(spark, tmp_path, monkeypatch):
    from steelyard.spark import emission, microbatch
    from tests.spark.cases import Kept

    monkeypatch.setattr(emission, "COMPACT_AFTER", 4)
    frame = spark.createDataFrame([("a", 1, at(0)), ("b", 2, at(0))], SCHEMA)
    described = sy.stream(frame).group_by("k").agg(total=sy.sum("v"), mean=Mean().of("v"))
    sink = Kept()
    engine = microbatch.MicroBatch(spark, described._bound(), described._settings(), sink, str(tmp_path))
    for batch in range(9):
        engine.process(frame, batch)
        assert len(engine.last.log) <= 4
    assert {row["k"]: (row["total"], row["mean"]) for row in sink.batches[8]} == {"a": (9, 1.0), "b": (18, 2.0)}
    assert len(list((tmp_path / "steelyard" / "log").iterdir())) <= 12
    assert len(list((tmp_path / "steelyard" / "commits").glob("*.json"))) == 2


def test_a_long_window_keeps_only_the_panes_that_it_needs(spark, tmp_path, monkeypatch):
    from steelyard.spark import emission, microbatch
    from tests.spark.cases import Kept

    monkeypatch.setattr(emission, "COMPACT_AFTER", 3)
    frames = [spark.createDataFrame([("a", 1, at(2 * batch))], SCHEMA) for batch in range(12)]
    described = sy.stream(frames[0]).with_watermark("at", "0 seconds").group_by("k").window("8 seconds", "2 seconds")
    described = described.agg(low=sy.min("v"), bad_rows=sy.count())
    sink = Kept()
    engine = microbatch.MicroBatch(spark, described._bound(), described._settings(), sink, str(tmp_path))
    for batch, frame in enumerate(frames):
        engine.process(frame, batch)
        spans = [entry.panes for entry in engine.last.log]
        assert max(span.last for span in spans) - min(span.first for span in spans) <= 6
    rows = [row for batch in sink.batches.values() for row in batch]
    assert [row["bad_rows"] for row in rows[3:]] == [4] * len(rows[3:])
    assert len(rows) == 11


def totals(spark, folder):
    """A query over a folder of files: the total of each key."""
    rows = spark.readStream.schema(SCHEMA).json(str(folder))
    return sy.stream(rows).group_by("k").agg(v=sy.sum("v")).checkpoint(str(folder.parent / "checkpoint"))


def test_a_table_in_memory_holds_only_the_latest_result_in_complete_mode(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    query = totals(spark, folder).output_mode("complete").sink("memory", name="latest").start()
    try:
        for number in (0, 1):
            drop_file(spark, folder, f"{number}", FILES[number])
            query.process_all_available()
            so_far = spark.createDataFrame([row for rows in FILES[: number + 1] for row in rows], SCHEMA)
            expected = so_far.groupBy("k").agg(F.sum("v").alias("v"))
            same(spark.table("latest").toArrow().to_pylist(), expected.toArrow().to_pylist(), ["k"])
    finally:
        query.stop()


def test_a_restart_in_another_output_mode_is_refused(spark, tmp_path):
    folder = tmp_path / "in"
    drop_file(spark, folder, "0", FILES[0])
    described = totals(spark, folder).sink("memory", name="modes").trigger(available_now=True)
    described.output_mode("update").start().await_termination()
    with pytest.raises(OptionError, match=r"belongs to another query: its mode: update; now: complete.*new checkpoint"):
        described.output_mode("complete").start()


def test_waiting_for_the_end_of_a_query_that_is_stopped_is_no_failure(spark, tmp_path):
    folder = tmp_path / "in"
    drop_file(spark, folder, "0", FILES[0])
    query = totals(spark, folder).sink("memory", name="waited").start()
    with ThreadPoolExecutor(1) as other:
        try:
            waiting = other.submit(query.await_termination)
            query.process_all_available()
            assert not waiting.done()
        finally:
            query.stop()
        assert waiting.result() is True
    assert query.exception() is None


def test_a_batch_that_comes_while_the_query_is_being_stopped_is_left_to_the_next_start(spark, tmp_path):
    folder = tmp_path / "in"
    drop_file(spark, folder, "0", FILES[0])
    described = totals(spark, folder).output_mode("complete").sink("memory", name="left")
    query = described.start()
    try:
        query.process_all_available()
        assert query._engine.let_end(60)  # what stop() does first
        drop_file(spark, folder, "1", FILES[1])
        assert query.await_termination() is True
    finally:
        query.stop()
    assert query.exception() is None
    assert [report.batch for report in query.recent_progress] == [0]
    again = described.trigger(available_now=True).start()
    again.await_termination()
    assert [report.batch for report in again.recent_progress] == [1]
    assert {row["k"]: row["v"] for row in spark.table("left").collect()} == {"a": 8, "b": 7, "c": 6}


def test_what_spark_removes_of_its_own_log_is_no_damage(spark, tmp_path):
    keeps_little = {
        "spark.sql.streaming.minBatchesToRetain": "1",
        "spark.sql.streaming.fileSource.log.compactInterval": "2",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    }
    folder, seen, files = tmp_path / "in", {}, 7
    folder.mkdir()
    for number in range(files):
        pq.write_table(pa.table({"k": [number % 2] * 3}), folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (number, number))

    def fail_once(results, batch):
        if batch not in seen:
            seen[batch] = None
            raise RuntimeError("once")
        seen[batch] = {row.k: row.n for row in results.collect()}

    for name, value in keeps_little.items():
        spark.conf.set(name, value)
    try:
        for _ in range(files + 1):
            rows = spark.readStream.schema("k bigint").option("maxFilesPerTrigger", 1).parquet(str(folder))
            described = sy.stream(rows).group_by("k").agg(n=sy.count()).output_mode("complete")
            described = described.sink("foreach_batch", function=fail_once).checkpoint(str(tmp_path / "state"))
            query = described.trigger(available_now=True).start()
            with contextlib.suppress(BatchError):
                query.await_termination()
    finally:
        for name in keeps_little:
            spark.conf.unset(name)
    assert len(seen) == files
    assert seen[files - 1] == {0: 12, 1: 9}
