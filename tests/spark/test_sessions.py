"""Sessions are those of plain Spark's `session_window`: of static rows, in batches with late rows, on either engine."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import OptionError
from steelyard.spark import emission
from steelyard.spark.microbatch import MicroBatch
from tests.spark.cases import ORIGIN, EitherMean, Kept, Longest, same

pytestmark = pytest.mark.spark
SCHEMA = "k string, n int, text string, at timestamp"
GAP, DELAY = "3500 milliseconds", "2 seconds"
BY = ["window_start", "window_end", "k"]


def rows_of(seed, rows, late, first=0.0, speed=0.4):
    """Rows at whole and half seconds, so that some follow each other by the gap exactly."""
    draw = random.Random(seed)
    made = []
    for number in range(rows):
        behind = draw.choice([0, 0, 0, 1, 2, *late])
        at = ORIGIN + timedelta(seconds=round((first + number * speed - behind) * 2) / 2)
        text = draw.choice([None, "", "ab", "ü" * draw.randint(0, 4)])
        made.append((draw.choice(["a", "b", "c", "ü", "d", "e"]), draw.choice([None, *range(-3, 9)]), text, at))
    return made


AGGREGATES = {
    "jvm": {"rows": sy.count(), "total": sy.sum("n"), "mean": sy.mean("n"), "last": sy.max("at")},
    "python": {"own": EitherMean().of("n"), "longest": Longest().of("text")},
}
AGGREGATES["both"] = AGGREGATES["jvm"] | AGGREGATES["python"]


def described(frame, kind="both", gap=GAP):
    built = sy.stream(frame).with_watermark("at", DELAY).group_by("k").session_window(gap)
    return built.agg(**AGGREGATES[kind])


def plain(frame, kind="both", gap=GAP):
    made = frame.groupBy(F.session_window("at", gap).alias("w"), "k").agg(
        F.count("*").alias("rows"),
        F.sum("n").alias("total"),
        F.avg("n").alias("mean"),
        F.max("at").alias("last"),
        F.avg("n").alias("own"),
        F.min(F.when(F.col("text").isNotNull(), F.struct(-F.length("text"), "text")))["text"].alias("longest"),
    )
    return made.select(F.col("w.start").alias(BY[0]), F.col("w.end").alias(BY[1]), "k", *AGGREGATES[kind])


def listed(frame):
    return frame.toArrow().to_pylist()


@pytest.mark.parametrize(("kind", "policy"), [("jvm", None), ("both", "prompt"), ("python", "dalton")])
def test_sessions_of_static_rows_are_plain_sparks(spark, kind, policy):
    frame = spark.createDataFrame(rows_of(3, 200, [5, 30]), SCHEMA).repartition(3)
    built = described(frame, kind)
    got = (built.partition_by(policy, blocks=3, buckets=2) if policy else built).to_df()
    expected = plain(frame, kind)
    assert got.columns == expected.columns
    same(listed(got), listed(expected), BY)


class Even(sy.Aggregator):
    """A sum that takes no odd numbers."""

    state = "total bigint"
    result = "bigint"

    def zero(self):
        return 0

    def add(self, state, values):
        if (values % 2).any():
            raise ValueError("odd")
        return state + int(values.sum())

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        return state


def test_a_session_of_rows_that_a_python_aggregate_refuses_is_none(spark):
    rows = [("a", 1, "", ORIGIN), ("b", 2, "", ORIGIN), ("b", 4, "", ORIGIN + timedelta(seconds=1))]
    frame = spark.createDataFrame(rows, SCHEMA)
    built = sy.stream(frame).with_watermark("at", DELAY).group_by("k").session_window(GAP).on_bad_rows("drop")
    got = listed(built.agg(total=Even().of("n")).to_df())
    assert [(row["k"], row["total"], row["window_start"]) for row in got] == [("b", 6, ORIGIN)]


def watched(spark, folder, batches):
    """What plain Spark gives for each batch, with the batch without data that follows it."""
    given, seen = [], set()
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    sink = plain(read.withWatermark("at", DELAY)).writeStream.format("memory").queryName("plain_sessions")
    query = sink.outputMode("append").option("checkpointLocation", str(folder / "plain")).start()
    try:
        for number, rows in enumerate(batches):
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            table = pa.table(columns, names=["k", "n", "text", "at"])
            table = table.set_column(1, "n", table["n"].cast(pa.int32()))
            pq.write_table(table, folder / f"{number}.parquet")
            (folder / f"{number}.parquet").rename(folder / "in" / f"{number}.parquet")
            query.processAllAvailable()
            now = listed(spark.table("plain_sessions"))
            given.append([row for row in now if str(row) not in seen])
            seen |= {str(row) for row in now}
    finally:
        query.stop()
    return given


def test_batches_with_late_rows_give_what_plain_spark_gives_also_after_restarts(spark, tmp_path, monkeypatch):
    """Ends of sessions are never the watermark here: Spark would close such a session a moment too early."""
    monkeypatch.setattr(emission, "COMPACT_AFTER", 3)
    (tmp_path / "in").mkdir()
    whole = [[(*row[:3], row[3].replace(microsecond=0)) for row in rows_of(seed, 25, [6, 9, 40], seed * 9.0)]
             for seed in range(6)]  # fmt: skip
    expected = watched(spark, tmp_path, whole)
    kept = Kept()
    late = 0
    for number, rows in enumerate(whole):
        frame = spark.createDataFrame(rows, SCHEMA)
        if number in (0, 1, 4):
            built = described(frame).on_bad_rows("drop")
            engine = MicroBatch(spark, built._bound(), built._settings(), kept, str(tmp_path / "checkpoint"))
            engine.partial_log._expected = number  # some entries by tasks, some by the driver
        late += engine.process(frame, number).late_rows
    for number, rows in enumerate(expected):
        same(kept.batches.get(number, []), rows, BY)
    assert late > 5
    assert sum(map(len, expected)) > 20


def test_complete_mode_gives_all_sessions_and_update_mode_is_refused(spark, tmp_path):
    rows = rows_of(5, 60, [3, 50])
    built = described(spark.createDataFrame(rows, SCHEMA), "jvm")
    settings = replace(built._settings(), mode="complete")
    kept = Kept()
    engine = MicroBatch(spark, built._bound(), settings, kept, str(tmp_path))
    for number in range(2):
        engine.process(spark.createDataFrame(rows[number * 30 : number * 30 + 30], SCHEMA), number)
    same(kept.batches[1], listed(plain(spark.createDataFrame(rows, SCHEMA), "jvm")), BY)
    with pytest.raises(OptionError, match="output mode 'update' has no sessions"):
        built.output_mode("update")._bound()
    with pytest.raises(OptionError, match="gap must be above 0"):
        built.session_window("0 seconds")
    with pytest.raises(OptionError, match="its window: sessions with gaps of 3500 milliseconds; now: 4 seconds"):
        MicroBatch(spark, built.window("4 seconds")._bound(), settings, kept, str(tmp_path))


def test_both_engines_give_the_sessions_of_plain_spark(spark, tmp_path):
    (tmp_path / "in").mkdir()
    made = rows_of(8, 300, [])
    for number in range(3):
        part = spark.createDataFrame(made[number * 100 : number * 100 + 100], SCHEMA).toArrow()
        pq.write_table(part, tmp_path / "in" / f"{number}.parquet")
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    newest = max(row[3] for row in made) - timedelta(seconds=2)
    expected = [row for row in listed(plain(spark.createDataFrame(made, SCHEMA))) if row["window_end"] < newest]
    for engine in ("microbatch", "resident"):
        query = described(read).engine(engine).sink("memory", name=f"sessions_{engine}").trigger(available_now=True)
        running = query.start()
        assert running.await_termination(120)
        assert running.exception() is None
        same(listed(spark.table(f"sessions_{engine}")), expected, BY)
    assert len(expected) > 20
