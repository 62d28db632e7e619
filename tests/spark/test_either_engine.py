"""One program on either engine: equal windows, and plain Spark's; and what the resident engine refuses."""

from __future__ import annotations

import json
import random
import re
import shutil
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import BadRowError, OptionError
from steelyard.spark.pipeline import build
from steelyard.spark.pipeline_file import PipelineError, parse_pipeline
from tests.spark.cases import EitherMean, Longest, TheirMean, same

pytestmark = pytest.mark.spark
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
SCHEMA = "k string, n int, x double, text string, at timestamp"
ARROW = pa.schema(
    {"k": pa.string(), "n": pa.int32(), "x": pa.float64(), "text": pa.string(), "at": pa.timestamp("us", "UTC")}
)
DELAY = 20
DRAWN = 5


def rows_of(seed, rows):
    """Rows that come at most DELAY seconds behind the newest."""
    draw = random.Random(seed)
    made = []
    for number in range(rows):
        at = ORIGIN + timedelta(seconds=number * 0.7 - draw.uniform(0, DELAY - 1))
        x = draw.choice([None, float("nan"), -0.0, 1.5, draw.uniform(-1e3, 1e3)])
        text = draw.choice([None, "", "ab", "ü" * draw.randint(0, 4)])
        made.append((draw.choice(["a", "b", "c", "", "hot", "hot"]), draw.choice([None, *range(-3, 9)]), x, text, at))
    return made


def table_of(made):
    return pa.Table.from_pylist([dict(zip(ARROW.names, row, strict=True)) for row in made], ARROW)


def listed(frame):
    """Rows in which a NaN equals a NaN."""
    rows = frame.toArrow().to_pylist()
    return [{name: "NaN" if value != value else value for name, value in row.items()} for row in rows]


def write(folder, made, files, kind):
    """Files that follow each other in time, as a stream's do."""
    folder.mkdir()
    table = table_of(made)
    step = -(-len(made) // files)
    for number in range(files):
        part = table.slice(number * step, step)
        if kind == "parquet":
            pq.write_table(part, folder / f"{number}.parquet")
        else:
            lines = (json.dumps(row, default=lambda at: at.isoformat()) for row in part.to_pylist())
            (folder / f"{number}.json").write_text("".join(line + "\n" for line in lines))


def program(read, size, slide, policy=None, turned=False):
    uses = {
        "rows": sy.count(),
        "known": sy.count("n"),
        "total": sy.sum("n"),
        "low": sy.min("x"),
        "high": sy.max("x"),
        "last": sy.max("at"),
        "mean": sy.mean("n"),
        "spread": sy.variance("n"),
        "own": EitherMean().of("n"),
        "theirs": sy.udaf(TheirMean()).of("n"),
        "longest": Longest().of("text"),
    }
    described = (
        sy.stream(read)
        .with_watermark("at", f"{DELAY} seconds")
        .group_by("k")
        .window(size, slide=slide)
        .agg(**dict(reversed(uses.items())) if turned else uses)
        .trigger(available_now=True)
    )
    return described.partition_by(policy, blocks=2, buckets=3) if policy else described


def changed(rows):
    """Rows that are filtered, with columns that are computed: on the resident engine without Spark."""
    keyed = rows.where("n is null or n <> 3").withColumn("k", F.expr("case when k = '' then 'none' else trim(k) end"))
    return (
        keyed.withColumn("n", F.expr("n * 2 - 1")).where("not (k = 'c' and x > 0)").select("k", "n", "x", "text", "at")
    )


def plain(spark, made, size, slide, change=lambda rows: rows):
    rows = change(spark.createDataFrame(table_of(made)))
    end = (rows.select(F.unix_micros(F.max("at"))).first()[0] or 0) // 1000 * 1000 - DELAY * 1_000_000
    return (
        rows.groupBy(F.window("at", size, slide).alias("w"), "k")
        .agg(
            F.count("*").alias("rows"),
            F.count("n").alias("known"),
            F.sum("n").alias("total"),
            F.min("x").alias("low"),
            F.max("x").alias("high"),
            F.max("at").alias("last"),
            F.avg("n").alias("mean"),
            F.var_samp("n").alias("spread"),
            F.avg("n").alias("own"),
            F.avg("n").alias("theirs"),
            F.min(F.when(F.col("text").isNotNull(), F.struct(-F.length("text"), "text")))["text"].alias("longest"),
        )
        .where(F.unix_micros("w.end") <= end)
        .selectExpr("w.start window_start", "w.end window_end", "k", "rows", "known", "total", "low", "high", "last",
                    "mean", "spread", "own", "theirs", "longest")
    )  # fmt: skip


SLIDES = st.sampled_from([(10, 10), (20, 5), (6, 2), (45, 15), (7, 7)])


@settings(
    deadline=None,
    max_examples=DRAWN,
    phases=[Phase.generate],  # a case takes seconds: to look for a smaller one would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(60, 500),
    files=st.integers(1, 4),
    kind=st.sampled_from(["parquet", "json"]),
    windows=SLIDES,
    policy=st.sampled_from([None, "hash", "shuffle", "prompt", "dalton", "pk2", "auto"]),
    workers=st.integers(1, 2),
)
def test_random_streams_give_the_same_windows_on_both_engines_and_on_plain_spark(
    spark, tmp_path_factory, seed, rows, files, kind, windows, policy, workers
):
    made = rows_of(seed, rows)
    folder = tmp_path_factory.mktemp("drawn") / "in"
    write(folder, made, files, kind)
    read = spark.readStream.schema(SCHEMA).format(kind).load(str(folder))
    size, slide = (f"{seconds} seconds" for seconds in windows)
    described = program(changed(read), size, slide, policy)
    answers = {}
    for engine in (described.engine("microbatch"), described.engine("resident", workers=workers)):
        sink = f"drawn_{len(answers)}"
        query = engine.sink("memory", name=sink).start()
        assert query.await_termination(120)
        assert query.exception() is None
        assert not query.is_active
        answers[sink] = spark.table(sink)
    first, second = answers.values()
    assert first.schema.simpleString() == second.schema.simpleString()
    expected = listed(plain(spark, made, size, slide, changed))
    for answer in answers.values():
        same(listed(answer), expected, ["window_start", "k"])
    assert query.last_progress.rows == changed(spark.createDataFrame(table_of(made))).count()
    assert query.last_progress.late_rows == 0
    assert query.last_progress.results == len(expected)


@pytest.mark.parametrize("engine", ["microbatch", "resident"])
@pytest.mark.parametrize("windowed", [True, False])
def test_the_last_update_of_each_key_is_plain_sparks_answer_and_a_restart_gives_what_changed(
    spark, tmp_path, engine, windowed
):
    made = rows_of(5, rows=240)
    write(tmp_path / "in", made[:120], files=2, kind="parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    taken = {}

    def take(results, batch):
        found = listed(results)
        keys = [(row["k"], row.get("window_start")) for row in found]
        assert len(set(keys)) == len(keys)
        given.append(keys)
        taken.update(zip(keys, found, strict=True))

    uses = {
        "rows": sy.count(),
        "total": sy.sum("n"),
        "high": sy.max("x"),
        "mean": sy.mean("n"),
        "own": EitherMean().of("n"),
    }
    described = sy.stream(changed(read)).with_watermark("at", f"{DELAY} seconds").group_by("k").agg(**uses)
    described = described.window("20 seconds", slide="10 seconds") if windowed else described
    described = described.output_mode("update").trigger(available_now=True).checkpoint(str(tmp_path / "state"))
    described = described.sink("foreach_batch", function=take)
    described = described.engine(engine, workers=1) if engine == "resident" else described
    for upto in (120, 240):
        if upto == 240:
            pq.write_table(table_of(made[120:]), tmp_path / "in" / "later.parquet")
        given = []
        assert described.start().await_termination(120)
        rows = changed(spark.createDataFrame(table_of(made[:upto])))
        by = [F.window("at", "20 seconds", "10 seconds").alias("w")] if windowed else []
        expected = rows.groupBy("k", *by).agg(
            F.count("*").alias("rows"), F.sum("n").alias("total"), F.max("x").alias("high"), F.avg("n").alias("mean"),
            F.avg("n").alias("own"),
        )  # fmt: skip
        if windowed:
            expected = expected.select(F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"), "*")
        expected = expected.drop("w")
        same(list(taken.values()), listed(expected), ["k", *(["window_start"] if windowed else [])])
    since = changed(spark.createDataFrame(table_of(made[120:])))
    fresh = {row["k"] for row in since.select("k").distinct().collect()}
    assert {key for keys in given for key, _ in keys} == fresh


def test_a_restart_reads_new_files_alone_and_closes_the_windows_that_had_stayed_open(spark, tmp_path):
    made = rows_of(3, rows=200)
    write(tmp_path / "in", made[:120], files=2, kind="parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    described = program(read, "10 seconds", None).engine("resident").sink("parquet", path=str(tmp_path / "out"))
    described = described.checkpoint(str(tmp_path / "checkpoint"))
    assert described.start().await_termination(120)
    first = listed(spark.read.parquet(str(tmp_path / "out")))
    same(first, listed(plain(spark, made[:120], "10 seconds", "10 seconds")), ["window_start", "k"])
    pq.write_table(table_of(made[120:]), tmp_path / "in" / "later.parquet")
    assert described.start().await_termination(120)
    both = listed(spark.read.parquet(str(tmp_path / "out")))
    same(both, listed(plain(spark, made, "10 seconds", "10 seconds")), ["window_start", "k"])
    other = program(read, "30 seconds", None).engine("resident").sink("memory", name="other")
    with pytest.raises(
        OptionError, match="belongs to another program: its window was 10 seconds, and is 30 seconds now"
    ):
        other.checkpoint(str(tmp_path / "checkpoint")).start()


def test_a_query_begun_anew_does_not_own_the_results_of_the_one_whose_checkpoint_was_there(spark, tmp_path):
    write(tmp_path / "in", rows_of(3, rows=50), files=1, kind="parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    described = program(read, "10 seconds", None).engine("resident", workers=1)
    described = described.sink("parquet", path=str(tmp_path / "out")).checkpoint(str(tmp_path / "checkpoint"))
    assert described.start().await_termination(120)
    before = spark.read.parquet(str(tmp_path / "out")).count()
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(OptionError, match="out belongs to another query, or to this one with another checkpoint"):
        described.start()
    assert not (tmp_path / "checkpoint" / "resident.json").exists()
    assert spark.read.parquet(str(tmp_path / "out")).count() == before


def test_a_start_that_was_refused_leaves_the_folder_of_results_to_the_next(spark, tmp_path):
    (tmp_path / "in").mkdir()
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    described = program(read, "10 seconds", None).engine("resident", workers=1)
    described = described.sink("parquet", path=str(tmp_path / "out")).checkpoint(str(tmp_path / "checkpoint"))
    with pytest.raises(OptionError, match="there is no file in"):
        described.start()
    pq.write_table(table_of(rows_of(3, rows=50)), tmp_path / "in" / "one.parquet")
    assert described.start().await_termination(120)
    assert spark.read.parquet(str(tmp_path / "out")).count()


def generated(spark, **options):
    given = {"workload": "zipf", "keys": 20, "start": "2024-05-01T00:00:00Z", "rate": "1000", **options}
    return spark.readStream.format("steelyard").options(**given).load()


def words(part):
    """A map function: half of the keys, and a column more."""
    import pyarrow.compute as pc

    kept = part.filter(pc.less(part.column("key"), 10))
    return kept.append_column("twice", pc.multiply(kept.column("value"), 2.0))


def test_a_map_function_and_a_generated_source_give_the_same_on_both_engines(spark):
    read = generated(spark, max_rows=6000, rows_per_batch=6000, row_numbers="true")
    described = (
        sy.stream(read.select("key", "value", F.col("event_time").alias("at"), "row_number"))
        .map(words, "key bigint, value double, at timestamp, row_number bigint, twice double")
        .with_watermark("at", "0 seconds")
        .group_by("key")
        .window("1 second")
        .agg(rows=sy.count(), twice=sy.sum("twice"), last=sy.max("row_number"))
        .trigger(available_now=True)
    )
    found = {}
    for engine in ("microbatch", "resident"):
        assert described.engine(engine).sink("memory", name=engine).start().await_termination(120)
        found[engine] = spark.table(engine).toArrow().to_pylist()
    assert len(found["resident"]) == 10 * 5
    same(found["resident"], found["microbatch"], ["window_start", "key"])


def test_a_query_that_goes_on_can_be_watched_and_stopped_and_goes_on_from_its_snapshot(spark, tmp_path):
    read = generated(spark, max_rows=6000, rate="2000")
    described = (
        sy.stream(read)
        .with_watermark("event_time", "0 seconds")
        .group_by("key")
        .window("100 milliseconds")
        .agg(rows=sy.count())
        .engine("resident", workers=1)
        .sink("parquet", path=str(tmp_path / "out"))
        .checkpoint(str(tmp_path / "checkpoint"))
        .trigger(processing_time="100 milliseconds")
        .name("watched")
    )
    query = described.start()
    while query.is_active and not (query.last_progress and query.last_progress.results):
        query.await_termination(0.05)
    assert query.last_progress.watermark >= "2024-05-01T00:00:00.100Z"
    assert [report.batch for report in query.recent_progress] == sorted({r.batch for r in query.recent_progress})
    assert str(query.last_progress).startswith(f"epoch {query.last_progress.batch}: ")
    query.stop()
    assert not query.is_active
    assert query.status["message"] == "stopped"
    assert query.exception() is None
    assert described.start().await_termination(60)
    got = spark.read.parquet(str(tmp_path / "out"))
    assert got.agg(F.sum("rows")).first()[0] == 5800  # the last window stays open
    assert got.groupBy("window_start", "key").count().where("count > 1").isEmpty()


@pytest.mark.parametrize("engine", ["resident", "groups"])
def test_a_restart_may_have_another_policy_and_its_aggregates_in_another_order(spark, tmp_path, engine):
    made = rows_of(12, 480)
    (tmp_path / "in").mkdir()
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    for number, policy in enumerate(["hash", "dalton", "prompt", "hash"]):
        pq.write_table(table_of(made[120 * number : 120 * (number + 1)]), tmp_path / "in" / f"{number}.parquet")
        described = program(read, "20 seconds", "10 seconds", policy, turned=number % 2 == 1).engine(engine)
        described = described.sink("parquet", path=str(tmp_path / "out")).checkpoint(str(tmp_path / "state"))
        assert described.start().await_termination(120)
    found = listed(spark.read.parquet(str(tmp_path / "out")).drop("batch_id"))
    same(found, listed(plain(spark, made, "20 seconds", "10 seconds")), ["window_start", "k"])
    other = described.agg(more=sy.count("text"))
    with pytest.raises(OptionError, match="belongs to another program: its aggregates was"):
        other.start()


def test_rows_that_cannot_be_processed_fail_the_query_or_are_dropped_and_counted(spark, tmp_path, temporary):
    (tmp_path / "in").mkdir()
    lines = ['{"k": "a", "at": "2024-05-01T00:00:00Z"}', '{"at": "2024-05-01T00:00:00Z"}', "{", '{"k": "b"}']
    lines.append('{"k": "c", "at": "2024-05-01T01:00:00Z"}')
    (tmp_path / "in" / "0.json").write_text("\n".join(lines))
    read = spark.readStream.schema("k string, at timestamp").json(str(tmp_path / "in"))
    described = sy.stream(read).with_watermark("at", "0 seconds").group_by("k").window("1 minute").agg(n=sy.count())
    described = described.engine("resident").trigger(available_now=True)
    query = described.sink("memory", name="bad").start()
    assert re.match(r"ResidentQuery\(n by k #\d+, ", repr(query))
    with pytest.raises(BadRowError, match=r"^n by k #\d+: .*2 rows: null key in column 'k'.*on_bad_rows"):
        query.await_termination(120)
    assert not list(temporary.glob("steelyard-*"))
    query = described.on_bad_rows("drop").sink("memory", name="dropped").start()
    assert query.await_termination(120)
    assert sum(query.last_progress.bad_rows.values()) == 3
    assert [row["k"] for row in spark.table("dropped").collect()] == ["a"]
    kept = described.on_bad_rows("dead_letter", str(tmp_path / "letters")).checkpoint(str(tmp_path / "state"))
    kept = kept.sink("parquet", path=str(tmp_path / "out"))
    for _ in range(2):
        query = kept.start()
        assert query.await_termination(120)
    assert [one.name for one in query._job._dataflow.sinks if one.logic.measured] == ["sink"]
    letters = spark.read.parquet(str(tmp_path / "letters")).collect()
    assert sorted(row["reason"] for row in letters) == [
        "null key in column 'k'", "null key in column 'k'", "null time in column 'at'"
    ]  # fmt: skip
    assert [json.loads(row["row"]) for row in letters if "time" in row["reason"]] == [{"k": "b", "at": None}]
    assert [row["k"] for row in spark.read.parquet(str(tmp_path / "out")).collect()] == ["a"]
    assert not list(temporary.glob("steelyard-*"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.where("rlike(text, 'a+')"), "cannot filter by .*RLIKE"),
        (lambda s: s.withColumn("k", F.upper("k")), r"cannot compute column 'k': upper\(k#"),
        (lambda s: s.union(s), "cannot do this part of the DataFrame: .*Union"),
    ],
)
def test_what_only_spark_can_do_with_the_source_is_named(spark, tmp_path, change, says):
    read = change(spark.readStream.schema(SCHEMA).parquet(str(tmp_path)))
    with pytest.raises(OptionError, match=says):
        program(read, "10 seconds", None).engine("resident").sink("memory", name="refused").start()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.agg(top=sy.top_k("n")), "aggregate 'top': engine\\('resident'\\) has no top_k; it has count"),
        (lambda s: s.agg(t=sy.sum("text")), "does not read column 'text', a string, as a number"),
        (lambda s: s.output_mode("complete"), "no output mode 'complete': use 'update'"),
        (
            lambda s: s.elastic("zones?interval=1"),
            "zones needs to see batches, which engine\\('resident'\\) cannot show",
        ),
        (
            lambda s: s.partition_by("cooperative_dalton", buckets=2),
            "use one that learns alone, as 'dalton', or engine",
        ),
    ],
)
def test_what_the_resident_engine_has_not_is_named_with_the_remedy(spark, tmp_path, change, says):
    write(tmp_path / "in", rows_of(1, 3), 1, "parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    described = program(read, "10 seconds", None).sink("memory", name="refused").engine("resident")
    with pytest.raises(OptionError, match=says):
        change(described).start()


@pytest.mark.parametrize("engine", ["microbatch", "resident"])
def test_a_function_and_any_format_of_sparks_get_the_windows_on_either_engine(spark, tmp_path, engine):
    write(tmp_path / "in", rows_of(1, 300), 3, "parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    described = program(read, "10 seconds", None).engine(engine)
    taken, failing = {}, [True]

    def take(results, batch):
        if failing:
            failing.clear()
            raise OSError("the table is locked")
        taken[batch] = sorted(map(str, results.toArrow().to_pylist()))

    by_function = described.sink("foreach_batch", function=take).checkpoint(str(tmp_path / "state"))
    with pytest.raises(sy.SteelyardError, match="the table is locked"):
        by_function.start().await_termination(120)
    assert by_function.start().await_termination(120)
    as_json = described.sink("json", path=str(tmp_path / "out")).checkpoint(str(tmp_path / "other"))
    for _ in range(2):
        assert as_json.start().await_termination(120)
    in_memory = described.sink("memory", name=f"all_{engine}").start()
    assert in_memory.await_termination(120)
    expected = sorted(map(str, spark.table(f"all_{engine}").toArrow().to_pylist()))
    assert len(expected) > 3
    assert sorted(row for rows in taken.values() for row in rows) == expected
    assert spark.read.json(str(tmp_path / "out")).count() == len(expected)


def test_a_sink_of_the_driver_needs_a_slot_and_a_start_that_fails_leaves_its_folder_to_the_next(spark, tmp_path):
    write(tmp_path / "in", rows_of(1, 60), 1, "parquet")
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    described = program(read, "10 seconds", None).sink("json", path=str(tmp_path / "out"))
    described = described.checkpoint(str(tmp_path / "state"))
    with pytest.raises(OptionError, match=r"2 workers take all slots .* and the json sink needs one"):
        described.engine("resident", workers=2).trigger(processing_time="1 second").start()
    assert described.engine("resident", workers=2).start().await_termination(120)
    assert spark.read.json(str(tmp_path / "out")).count() > 0


def test_another_engine_and_workers_without_one_are_refused(spark):
    with pytest.raises(OptionError, match="unknown engine 'residnet': did you mean 'resident'"):
        sy.stream(spark.range(1)).engine("residnet")
    with pytest.raises(OptionError, match="workers, at least 1, are those that stay"):
        sy.stream(spark.range(1)).engine("microbatch", workers=2)


PIPELINE = """\
key = "key"
engine = "{engine}"
source = {{ format = "steelyard", workload = "zipf", keys = 5, max_rows = 3000, start = "2024-05-01T00:00:00Z" }}
watermark = {{ column = "event_time", delay = "1 second" }}
window = {{ size = "500 milliseconds" }}
aggregates = {{ rows = {{ count = "*" }}, most = {{ max = "value" }} }}
sink = {{ format = "memory", name = "piped_{engine}" }}
trigger = {{ available_now = true }}
"""


def test_a_pipeline_file_chooses_its_engine_by_one_word(spark):
    engines = ("microbatch", "resident", "groups")
    for engine in engines:
        more = 'workers = 1\ninterval = "50 ms"\n' if engine == "groups" else ""
        pipeline = parse_pipeline(more + PIPELINE.format(engine=engine))
        assert ("engine", engine) in pipeline.steps()
        assert build(pipeline, spark).start().await_termination(120)
    found = [listed(spark.table(f"piped_{engine}")) for engine in engines]
    assert len({row["window_start"] for row in found[1]}) == 3
    for answer in found[1:]:
        same(answer, found[0], ["window_start", "key"])
    with pytest.raises(PipelineError, match="unknown engine 'flink'"):
        parse_pipeline(PIPELINE.format(engine="flink"))
