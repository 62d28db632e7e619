"""One description, three engine words: whatever is drawn, all give what plain Spark gives."""

from __future__ import annotations

import itertools
import math
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.control import LargestStep
from steelyard.core import BadRowError, OptionError
from steelyard.core.progress import BATCH, STOPPED
from tests.spark.cases import EitherMean, Longest, same

pytestmark = pytest.mark.spark
ENGINES = {"microbatch": {}, "groups": {"interval": "20 ms"}, "resident": {}}
QUERIES, CASES = 12, 5
"""Queries that are drawn, and for each of them so many sets of rows: 60 cases, of which each has five aggregates."""
REFUSED = {
    ("groups", "update", "windows"): "engine('groups') gives a window once, when it closes: output mode 'update' is "
    "engine('microbatch')'s"
}
"""What an engine has not, of what is drawn: docs/streams.md says so, and the engine in these words."""
ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
ARROW = pa.schema(
    {
        "case": pa.int32(),
        "k": pa.string(),
        "m": pa.int64(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "n": pa.int32(),
        "x": pa.float64(),
        "text": pa.string(),
        "at": pa.timestamp("us", "UTC"),
    }
)
SCHEMA = "case int, k string, m bigint, f double, b boolean, n int, x double, text string, at timestamp"


def longest():
    return F.min(F.when(F.col("text").isNotNull(), F.struct(-F.length("text"), "text")))["text"]


AGGREGATES = {
    "rows": (sy.count(), lambda: F.count("*")),
    "known": (sy.count("text"), lambda: F.count("text")),
    "total": (sy.sum("n"), lambda: F.sum("n")),
    "amount": (sy.sum("x"), lambda: F.sum("x")),
    "low": (sy.min("x"), lambda: F.min("x")),
    "high": (sy.max("n"), lambda: F.max("n")),
    "first": (sy.min("text"), lambda: F.min("text")),
    "last": (sy.max("at"), lambda: F.max("at")),
    "mean": (sy.mean("n"), lambda: F.avg("n")),
    "spread": (sy.variance("n"), lambda: F.var_samp("n")),
    "own": (EitherMean().of("n"), lambda: F.avg("n")),
    "longest": (Longest().of("text"), longest),
}
fixed_number_of_cases = settings(
    deadline=None,
    max_examples=QUERIES,
    phases=[Phase.generate],  # a case takes seconds: to look for a smaller one would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def drawn_rows(draw, case):
    """Rows of one case, in no order of time."""
    made = []
    spread = draw.choice([5, 60, 600])
    for _ in range(draw.choice([1, 7, 40])):
        made.append(
            {
                "case": case,
                "k": draw.choice(["a", "b", "", "ü", "hot", "hot"]),
                "m": draw.choice([0, -1, 1 << 60]),
                "f": draw.choice([0.0, -0.0, float("nan"), 1.5]),
                "b": draw.choice([True, False]),
                "n": draw.choice([None, *range(-3, 9)]),
                "x": draw.choice([None, -0.25, 0.5, float("inf"), draw.randint(-99, 99) / 4]),
                "text": draw.choice([None, "", "ab", "ü" * draw.randint(0, 4)]),
                "at": ORIGIN + timedelta(milliseconds=draw.randint(0, spread * 1000)),
            }
        )
    return made


def listed(frame):
    """Rows that can be compared: a NaN equals a NaN, infinity is no number to subtract, and a zero has no sign."""
    rows = frame.toArrow().to_pylist()
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value):
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else value or 0.0
    return value


def newest(rows, keys):
    """What each key is in the end, of results that came one after the other."""
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def written(folder, rows, files):
    folder.mkdir(exist_ok=True)
    step = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * step : (number + 1) * step]
        pq.write_table(pa.Table.from_pylist(part, ARROW), folder / f"{len(list(folder.iterdir()))}.parquet")


def described(read, keys, names, window, delay):
    made = sy.stream(read).group_by(*keys).agg(**{name: AGGREGATES[name][0] for name in names})
    if window is not None:
        size, slide = (f"{seconds} seconds" for seconds in window)
        made = made.with_watermark("at", f"{delay} seconds").window(size, slide=slide)
    return made.trigger(available_now=True)


def plain(spark, rows, keys, names, window, delay, still_open=False):
    """Plain Spark's answer; of windows those that are closed, or those that are `still_open` too."""
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, ARROW), SCHEMA)
    aggregates = [AGGREGATES[name][1]().alias(name) for name in names]
    if window is None:
        return frame.groupBy(*keys).agg(*aggregates)
    size, slide = (f"{seconds} seconds" for seconds in window)
    found = frame.groupBy(F.window("at", size, slide).alias("w"), *keys).agg(*aggregates)
    end = max(row["at"] for row in rows) - timedelta(seconds=delay)
    wanted = found.where(F.lit(still_open) | (F.col("w.end") <= F.lit(end))).select("w.start", "w.end", *keys, *names)
    return wanted.toDF("window_start", "window_end", *keys, *names)


numbered = itertools.count()


@fixed_number_of_cases
@given(
    seed=st.integers(0, 1 << 30),
    more_keys=st.sets(st.sampled_from(["k", "m", "f", "b"]), max_size=2),
    window=st.sampled_from([None, (10, 10), (20, 5), (45, 15)]),
    mode=st.sampled_from([None, "update"]),
    delay=st.sampled_from([0, 7, 90]),
    files=st.integers(1, 3),
    policy=st.sampled_from([None, "hash", "shuffle", "prompt", "pk2"]),
    tasks=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    workers=st.integers(1, 2),
)
def test_what_is_drawn_is_the_same_on_every_engine_and_on_plain_spark(
    spark, tmp_path_factory, seed, more_keys, window, mode, delay, files, policy, tasks, workers
):
    draw = random.Random(seed)
    rows = [row for case in range(CASES) for row in drawn_rows(draw, case)]
    draw.shuffle(rows)
    keys, names = ["case", *sorted(more_keys)], sorted(draw.sample(sorted(AGGREGATES), CASES))
    folder = tmp_path_factory.mktemp("drawn") / "in"
    written(folder, rows, files)
    made = described(spark.readStream.schema(SCHEMA).parquet(str(folder)), keys, names, window, delay)
    if policy:
        made = made.partition_by(policy, blocks=tasks[0], buckets=tasks[1])
    if mode:
        made = made.output_mode(mode)
    oracle = plain(spark, rows, keys, names, window, delay, still_open=mode == "update")
    expected, by = listed(oracle), [*(["window_start"] if window else []), *keys]
    for engine, options in ENGINES.items():
        sink = f"three_{next(numbered)}"
        given_workers = {} if engine == "microbatch" else {"workers": workers}
        chosen = made.engine(engine, **options, **given_workers).sink("memory", name=sink)
        refusal = REFUSED.get((engine, mode, "windows" if window else "rows"))
        if refusal:
            with pytest.raises(OptionError) as refused:
                chosen.start()
            assert str(refused.value) == refusal
            continue
        query = chosen.start()
        assert query.await_termination(120)
        assert spark.table(sink).schema.simpleString() == oracle.schema.simpleString(), engine
        same(newest(listed(spark.table(sink)), by), expected, by)
        assert query.exception() is None
        assert sum(one.late_rows for one in query.recent_progress) == 0


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_second_start_reads_what_is_new_and_leaves_out_what_is_late(spark, tmp_path, engine):
    draw = random.Random(7)
    first = [row for case in range(3) for row in drawn_rows(draw, case)]
    latest = max(row["at"] for row in first)
    late = [{**row, "at": ORIGIN - timedelta(hours=1)} for row in first[:9]]
    second = [*late, *({**row, "at": latest + timedelta(seconds=100 + i)} for i, row in enumerate(first))]
    written(tmp_path / "in", first, 2)
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    made = described(read, ["case", "k"], ["rows", "own"], (10, 10), 5).engine(engine, **ENGINES[engine])
    made = made.sink("parquet", path=str(tmp_path / "out")).checkpoint(str(tmp_path / "checkpoint"))
    query = made.start()
    assert query.await_termination(120)
    written(tmp_path / "in", second, 1)
    again = made.start()
    assert again.await_termination(120)
    assert (again.id, again.run_id != query.run_id) == (query.id, True)
    if engine == "resident":  # counts of epochs are since the start
        assert again.last_progress.late_rows == len(late)
    else:
        assert sum(one.late_rows for one in again.recent_progress) == len(late)
    got = spark.read.parquet(str(tmp_path / "out")).select("window_start", "window_end", "case", "k", "rows", "own")
    expected = plain(spark, [*first, *second[len(late) :]], ["case", "k"], ["rows", "own"], (10, 10), 5)
    same(listed(got), listed(expected), ["window_start", "case", "k"])


def generated(spark, **options):
    given_ = {"workload": "zipf", "keys": 20, "start": "2024-05-01T00:00:00Z", "rate": "2000", **options}
    return spark.readStream.format("steelyard").options(**given_).load()


def test_a_live_query_of_groups_is_elastic_told_of_stopped_and_goes_on(spark, tmp_path):
    made = (
        sy.stream(generated(spark, max_rows=4000))
        .with_watermark("event_time", "0 seconds")
        .group_by("key")
        .window("100 milliseconds")
        .agg(rows=sy.count())
        .engine("groups", interval="50 ms", workers=1)
        .partition_by("prompt", blocks=3, buckets=2)
        .elastic("zones", guards=[LargestStep(down=1)])
        .sink("parquet", path=str(tmp_path / "out"))
        .checkpoint(str(tmp_path / "checkpoint"))
        .trigger(processing_time="300 ms")
        .name("live")
    )
    told = []
    query = made.start().on_progress(told.append)
    while query.is_active and not (query.last_progress and query.last_progress.results):
        query.await_termination(0.05)
    assert query.last_progress.kind == BATCH
    assert query.last_progress.watermark >= "2024-05-01T00:00:00.100Z"
    query.stop()
    assert (query.is_active, query.exception(), query.status["message"]) == (False, None, "stopped")
    assert query.status["committedBatch"] >= query.last_progress.batch
    assert told[-1].kind == STOPPED
    assert made.start().await_termination(60)
    got = spark.read.parquet(str(tmp_path / "out"))
    assert got.agg(F.sum("rows")).first()[0] == 3800, "the last window stays open"
    assert got.groupBy("window_start", "key").count().where("count > 1").isEmpty()


def test_bad_rows_fail_groups_or_are_dropped_and_counted(spark, tmp_path):
    (tmp_path / "in").mkdir()
    lines = ['{"k": "a", "at": "2024-05-01T00:00:00Z"}', '{"at": "2024-05-01T00:00:00Z"}', "{", '{"k": "b"}']
    (tmp_path / "in" / "0.json").write_text("\n".join([*lines, '{"k": "c", "at": "2024-05-01T01:00:00Z"}']))
    read = spark.readStream.schema("k string, at timestamp").json(str(tmp_path / "in"))
    made = sy.stream(read).with_watermark("at", "0 seconds").group_by("k").window("1 minute").agg(n=sy.count())
    made = made.engine("groups").trigger(available_now=True)
    query = made.sink("memory", name="bad_groups").start()
    with pytest.raises(BadRowError, match=r"^n by k #\d+: .*2 rows: null key in column 'k'.*on_bad_rows"):
        query.await_termination(120)
    query = made.on_bad_rows("drop").sink("memory", name="dropped_groups").start()
    assert query.await_termination(120)
    assert sum(sum(one.bad_rows.values()) for one in query.recent_progress) == 3
    assert [row["k"] for row in spark.table("dropped_groups").collect()] == ["a"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.agg(top=sy.top_k("n")), "aggregate 'top': engine\\('groups'\\) has no top_k; it has count"),
        (lambda s: s.output_mode("update"), "gives a window once, when it closes: output mode 'update'"),
        (lambda s: s.on_bad_rows("dead_letter", "/tmp/letters"), "engine\\('groups'\\) has no dead-letter table"),
        (
            lambda s: s.partition_by("cooperative_dalton"),
            "goes by what partitioners tell each other: name another policy",
        ),
        (lambda s: s.engine("groups", workers=500), "500 workers need as many slots"),
        (lambda s: s.engine("groups", interval="soon"), "interval: 'soon' is not a duration"),
        (lambda s: s.engine("resident", interval="1 second"), "interval is that of 'groups'"),
        (lambda s: s.engine("microbatch", workers=2), "are those that stay"),
    ],
)
def test_what_groups_have_not_is_named_with_the_remedy(spark, tmp_path, change, says):
    written(tmp_path / "in", drawn_rows(random.Random(1), 0), 1)
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    made = described(read, ["k"], ["rows"], (10, 10), 0).sink("memory", name="refused").engine("groups")
    with pytest.raises(OptionError, match=says):
        change(made).start()
