"""Bad input has a defined outcome: it fails with a clear message, or is dropped, or kept as a dead letter."""

from __future__ import annotations

import re
import shutil
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import BadRowError, BatchError, OptionError, StateError
from steelyard.spark.engine import in_a_sentence
from steelyard.spark.files import Folder
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.sinks import FileSink
from steelyard.spark.state import StateFolder
from tests.spark.cases import Kept, Mean

pytestmark = pytest.mark.spark
SCHEMA = "k string, amount string, x double"
ROWS = [("a", "1.5", 1.0), (None, "2", 2.0), ("a", "many", 3.0), ("b", None, 4.0), ("a", "2.5", 5.0)]


def run(spark, described, folder, batches):
    """Process static batches; gives the results by key, and the reports."""
    kept = Kept()
    engine = MicroBatch(spark, described._bound(), described._settings(), kept, str(folder))
    reports = [engine.process(rows, number) for number, rows in enumerate(batches)]
    newest = {}
    for number in sorted(kept.batches):
        newest |= {row["k"]: row for row in kept.batches[number]}
    return newest, reports


@pytest.fixture
def rows(spark):
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture
def totals(rows):
    return sy.stream(rows).group_by("k").agg(total=sy.sum("amount"), rows=sy.count())


def test_bad_rows_fail_the_query_by_default_and_the_message_shows_one(spark, rows, totals, tmp_path):
    with pytest.raises(BadRowError) as raised:
        run(spark, totals, tmp_path, [rows])
    said = str(raised.value)
    assert said.startswith("steelyard, batch 0 has rows that cannot be processed: ")
    assert "1 row: null key in column 'k'" in said
    assert "1 row: not a number in column 'amount'" in said
    assert '"amount":' in said
    assert "on_bad_rows('drop')" in said


def test_dropped_rows_are_counted_by_reason_and_the_others_count(spark, rows, totals, tmp_path):
    results, (report,) = run(spark, totals.on_bad_rows("drop"), tmp_path, [rows])
    assert report.bad_rows == {"null key in column 'k'": 1, "not a number in column 'amount'": 1}
    assert {key: (row["total"], row["rows"]) for key, row in results.items()} == {"a": (4.0, 2), "b": (None, 1)}


def test_dead_letters_hold_each_bad_row_once_with_its_reason(spark, rows, totals, tmp_path):
    letters = str(tmp_path / "letters")
    run(spark, totals.on_bad_rows("dead_letter", path=letters), tmp_path / "state", [rows, rows])
    found = spark.read.parquet(letters).orderBy("batch_id", "reason").toArrow().to_pylist()
    assert [(row["batch_id"], row["reason"]) for row in found] == [
        (batch, reason) for batch in (0, 1) for reason in ("not a number in column 'amount'", "null key in column 'k'")
    ]
    assert '"amount":"many"' in found[0]["row"]
    assert '"k":null' in found[1]["row"], "what is missing is what is wrong with it"


def test_dead_letters_keep_every_digit_of_times_and_are_written_alike(spark, tmp_path):
    at, letters = datetime(2023, 10, 29, 1, 2, 3, 123456), str(tmp_path / "letters")
    rows = spark.createDataFrame([(None, at, at), ("größe", at, at)], "k string, t timestamp, u timestamp_ntz")

    def picky(batch):
        if batch.column("k").null_count < batch.num_rows:
            raise ValueError("no")
        return batch

    described = sy.stream(rows).map(picky, rows.schema).group_by("k").agg(n=sy.count())
    run(spark, described.on_bad_rows("dead_letter", path=letters), tmp_path / "state", [rows])
    written = spark.read.parquet(letters)
    assert [row["row"].count("03.123456") for row in written.toArrow().to_pylist()] == [2, 2]
    found = written.select(F.from_json("row", rows.schema).alias("row")).toArrow().to_pylist()
    assert {row["row"]["u"] for row in found} == {at}
    assert len({row["row"]["t"] for row in found}) == 1
    assert {row["row"]["k"] for row in found} == {None, "größe"}


def test_a_row_that_a_python_aggregate_refuses_and_a_built_in_one_counts_is_told_once(spark, rows, tmp_path, caplog):
    class Picky(Mean):
        def add(self, state, values):
            if (values == 3.0).any():
                raise ValueError("three is not allowed")
            return super().add(state, values)

    described = sy.stream(rows).group_by("k").agg(mean=Picky().of("x"), rows=sy.count()).on_bad_rows("drop")
    with caplog.at_level("WARNING", "steelyard"):
        results, _ = run(spark, described, tmp_path, [rows, rows])
    said = [one.message for one in caplog.records if "still do" in one.message]
    (told,) = said
    assert told.endswith(
        "batch 0: an aggregate raised on 1 of its rows, which no Python aggregate counts; built-in ones (rows) still do"
    )
    assert results["a"]["rows"] == 6


def test_a_pandas_function_gets_all_digits_of_whole_numbers_beside_nulls(spark):
    rows = spark.createDataFrame([(1, 2**53 + 1), (2, None)], "k int, i bigint").coalesce(1)
    found = sy.stream(rows).map(lambda frame: frame, "k int, i bigint", form="pandas").to_df().collect()
    assert {row.k: row.i for row in found} == {1: 2**53 + 1, 2: None}


def test_a_row_on_which_an_aggregate_raises_is_found_and_the_rest_of_its_key_counts(spark, rows, tmp_path):
    class Picky(Mean):
        def add(self, state, values):
            if (values == 3.0).any():
                raise ValueError("three is not allowed")
            return super().add(state, values)

    letters = str(tmp_path / "letters")
    described = sy.stream(rows).group_by("k").agg(mean=Picky().of("x"))
    described = described.on_bad_rows("dead_letter", path=letters)
    results, (report,) = run(spark, described, tmp_path / "state", [rows])
    assert report.bad_rows == {"null key in column 'k'": 1, "an aggregate raised": 1}
    assert results["a"]["mean"] == 3.0
    reasons = {row["reason"] for row in spark.read.parquet(letters).toArrow().to_pylist()}
    (why,) = [reason for reason in reasons if "three" in reason]
    assert re.fullmatch(r"aggregate 'mean': ValueError: three is not allowed \(test_bad_input.py:\d+ in add\)", why)
    with pytest.raises(BadRowError, match="an aggregate raised"):
        run(spark, described.on_bad_rows("fail"), tmp_path / "other", [rows.where("k is not null")])


def test_a_function_that_fails_on_every_row_is_told_as_a_mistake_of_the_program(spark, rows, tmp_path, caplog):
    class Typo(Mean):
        def add(self, state, values):
            return state[2] + values.sum()

    def typo(batch):
        return batch.column("nothing")

    rows = rows.union(rows).union(rows)
    stream = sy.stream(rows)
    for described, said in (
        (
            stream.map(typo, "k string, y double").group_by("k").agg(n=sy.sum("y")),
            "the map function .* 15 .*KeyError.*typo",
        ),
        (stream.group_by("k").agg(n=Typo().of("x")), r"an aggregate .* 12 .*\(aggregate 'n': IndexError.*in add\)"),
    ):
        with pytest.raises(BatchError, match=said.replace(" .* ", " raised on every one of its ", 1)) as raised:
            run(spark, described, tmp_path / said[:8], [rows])
        assert "drop" not in str(raised.value)
        caplog.clear()
        run(spark, described.on_bad_rows("drop"), tmp_path / f"{said[:8]} dropped", [rows, rows])
        told = [record.getMessage() for record in caplog.records if "mistake of the program?" in record.getMessage()]
        assert len(told) == 1, "once for a query"


def test_a_map_function_that_gives_other_columns_fails_whatever_is_done_with_bad_rows(spark, rows, tmp_path):
    def renamed(batch):
        return batch.rename_columns(["key", "amount", "x"])

    described = sy.stream(rows).map(renamed, "k string, x double").group_by("k").agg(n=sy.sum("x"))
    with pytest.raises(PythonException) as raised:
        run(spark, described.on_bad_rows("drop"), tmp_path, [rows])
    place = r"\(test_bad_input\.py:\d+\)"
    said = rf"barrels, batch 0 failed: map function renamed {place} gave the columns key, amount, x, and by its schema"
    assert re.match(said, str(in_a_sentence(raised.value, "barrels, batch 0")))


@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_a_row_on_which_the_map_function_raises_is_found_by_halving(spark, rows, tmp_path, form):
    def doubled_arrow(batch):
        if pc.any(pc.equal(batch.column("x"), 3.0)).as_py():
            raise ValueError("three again")
        return pa.RecordBatch.from_arrays([batch.column("k"), pc.multiply(batch.column("x"), 2.0)], names=["k", "y"])

    def doubled_pandas(frame):
        assert not (frame.x == 3.0).any(), "three again"
        return frame.assign(y=frame.x * 2)[["k", "y"]]

    function = doubled_arrow if form == "arrow" else doubled_pandas
    described = sy.stream(rows).map(function, "k string, y double", form).group_by("k").agg(total=sy.sum("y"))
    letters = str(tmp_path / "letters")
    described = described.on_bad_rows("dead_letter", path=letters)
    results, (report,) = run(spark, described, tmp_path / "state", [rows])
    assert report.bad_rows == {"null key in column 'k'": 1, "the map function raised": 1}
    assert {key: row["total"] for key, row in results.items()} == {"a": 12.0, "b": 8.0}
    kept = spark.read.parquet(letters).where("reason like 'map function%'").toArrow().to_pylist()
    assert len(kept) == 1
    assert "three again" in kept[0]["reason"]
    assert '"x": 3.0' in kept[0]["row"]


def test_equal_bad_rows_are_counted_each_and_a_key_without_good_rows_has_no_result(spark, tmp_path):
    class Ratio(Mean):
        def add(self, state, values):
            if (values < 0).any():
                raise ValueError("negative")
            return super().add(state, values)

        def finish(self, state):
            return state[1] / state[0]  # fails for no rows

    rows = spark.createDataFrame([("a", "1", 1.0), *[("b", "1", -1.0)] * 5], SCHEMA)
    letters = str(tmp_path / "letters")
    described = sy.stream(rows).group_by("k").agg(mean=Ratio().of("x"), other=Mean().of("x"))
    results, (report,) = run(spark, described.on_bad_rows("dead_letter", path=letters), tmp_path / "state", [rows])
    assert report.bad_rows == {"an aggregate raised": 5}
    assert spark.read.parquet(letters).count() == 5
    assert {key: row["other"] for key, row in results.items()} == {"a": 1.0}


def test_whole_numbers_keep_their_digits_beside_nulls(spark):
    class Largest(sy.Aggregator):
        state = "largest bigint"
        result = "bigint"

        def zero(self):
            return 0

        def add(self, state, values):
            return max(state, int(values[values == values].max(initial=0)))

        def merge(self, left, right):
            return max(left, right)

        def finish(self, state):
            return state

    rows = spark.createDataFrame([("a", 2**53 + 1), ("b", None), ("b", 7)], "k string, n bigint")
    found = sy.stream(rows).group_by("k").agg(largest=Largest().of("n")).to_df()
    assert {row["k"]: row["largest"] for row in found.collect()} == {"a": 2**53 + 1, "b": 7}


@pytest.mark.parametrize("windowed", [False, True])
def test_static_rows_without_a_key_are_bad_for_python_aggregates_too(spark, windowed):
    schema = "k string, j int, x double, t timestamp"
    moment = datetime(2024, 1, 1)
    given = [("a", 1, 2.0), (None, 1, 50.0), ("b", None, 50.0), ("a", 1, 4.0), ("b", 2, 1.0)]
    rows = spark.createDataFrame([(*row, moment) for row in given], schema)
    described = sy.stream(rows).group_by("k", "j").agg(mean=Mean().of("x"))
    if windowed:
        described = described.with_watermark("t", "1 second").window("1 minute")
    found = described.on_bad_rows("drop").to_df().collect()
    assert {(row["k"], row["j"]): row["mean"] for row in found} == {("a", 1): 3.0, ("b", 2): 1.0}
    with pytest.raises(Exception, match=r"a row cannot be processed: null key in column '[kj]'"):
        described.to_df().collect()


def test_the_map_function_sees_only_the_users_columns(spark, rows, tmp_path):
    def checked(frame):
        assert list(frame.columns) == ["k", "amount", "x"]
        return frame[["k", "x"]]

    described = sy.stream(rows).map(checked, "k string, x double", "pandas").group_by("k").agg(n=sy.count())
    described = described.partition_by("prompt")
    _, (report,) = run(spark, described.on_bad_rows("drop"), tmp_path, [rows])
    assert report.placement == "blocks"
    assert report.bad_rows == {"null key in column 'k'": 1}


def test_a_folder_of_results_belongs_to_one_query(spark, rows, tmp_path):
    from steelyard.spark.sinks import claim

    claim(spark, str(tmp_path / "out"), "one")
    claim(spark, str(tmp_path / "out"), "one")
    with pytest.raises(OptionError, match="belongs to another query"):
        claim(spark, str(tmp_path / "out"), "other")


def test_a_checkpoint_that_cannot_be_written_is_told_in_a_sentence(spark, rows, tmp_path, monkeypatch):
    described = sy.stream(rows).group_by("k").agg(n=sy.count())
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=r"checkpoint: .*file/below is a file or below one"):
        run(spark, described, tmp_path / "file" / "below", [rows])

    def refused(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Folder, "make", refused)
    with pytest.raises(OptionError, match=r"checkpoint: .*new cannot be written: Permission denied"):
        run(spark, described, tmp_path / "new", [rows])


def test_empty_batches_single_keys_and_more_blocks_than_keys_work(spark, rows, tmp_path):
    described = sy.stream(rows).group_by("k").agg(mean=Mean().of("x")).partition_by("prompt", blocks=7, buckets=5)
    one = spark.createDataFrame([("a", "1", 2.0)], SCHEMA)
    results, reports = run(spark, described, tmp_path, [rows.limit(0), one, rows.limit(0), one])
    assert [report.rows for report in reports] == [0, 1, 0, 1]
    assert results["a"]["mean"] == 2.0


def test_a_value_of_a_megabyte_passes_through(spark, tmp_path):
    class Bytes(sy.Aggregator):
        state = "bytes bigint"
        result = "bigint"

        def zero(self):
            return 0

        def add(self, state, texts):
            return state + sum(len(text.as_py()) for text in texts)

        def merge(self, left, right):
            return left + right

        def finish(self, state):
            return state

    rows = spark.createDataFrame([("a", "x" * 1_000_000, 1.0), ("a", "y", 1.0)], SCHEMA)
    described = sy.stream(rows).group_by("k").agg(bytes=Bytes().of("amount"), longest=sy.max("amount"))
    results, _ = run(spark, described, tmp_path, [rows])
    assert results["a"]["bytes"] == 1_000_001
    assert results["a"]["longest"] == "y"


def test_a_million_distinct_keys_are_counted_each_once(spark):
    rows = spark.range(1_000_000).selectExpr("id as k", "id % 3 as v")
    counted = sy.stream(rows).group_by("k").agg(n=sy.count(), v=sy.sum("v"))
    for described in (counted, counted.partition_by("prompt", blocks=4, buckets=4)):
        seen = described.to_df().selectExpr("count(*) keys", "sum(n) total", "max(n) most", "sum(v) v").first()
        assert tuple(seen) == (1_000_000, 1_000_000, 1, 999_999)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda s: s.group_by("kk").agg(n=sy.count()), "unknown key column 'kk': did you mean 'k'?"),
        (lambda s: s.group_by("k").agg(n=sy.sum("amout")), "column of aggregate 'n': 'amout': did you mean 'amount'?"),
        (lambda s: s.group_by("k").agg(n=sy.count()).partition_by("promt"), "did you mean 'prompt'?"),
        (lambda s: s.group_by("k").agg(n=sy.count()).partition_by("hash", blocks=0), "blocks must be a whole number"),
        (lambda s: s.group_by("k").agg(n=sy.count()).partition_by("hash", buckets=0), "buckets must be a whole number"),
        (lambda s: s.group_by("k").agg(n=sy.count()).window("1 minute"), "add .with_watermark"),
        (lambda s: s.with_watermark("x", "1 second").group_by("k").agg(n=sy.count()), "must be a timestamp"),
        (lambda s: s.group_by("k"), "say what to compute"),
        (lambda s: s.agg(n=sy.count()), "say what to group by"),
        (lambda s: s.group_by("k").agg(n=Mean()), "say over which columns"),
        (lambda s: s.group_by("k").agg(k=sy.count()), "has the name of a key"),
        (lambda s: s.group_by("k").agg(n=sy.count()).output_mode("apend"), "did you mean 'append'?"),
        (lambda s: s.group_by("k").agg(n=sy.count()).on_bad_rows("dead_letter"), "needs the folder that keeps them"),
        (lambda s: s.window("10 parsecs"), "is not a duration"),
        (lambda s: s.window("1 second", slide="1 minute"), "not longer than size"),
        (lambda s: s.map(lambda b: b, "k strin"), "is not a DDL type"),
        (lambda s: s.trigger(), "either processing_time"),
    ],
)
def test_a_mistake_in_the_description_is_named(spark, rows, mistake, said):
    with pytest.raises(OptionError) as raised:
        mistake(sy.stream(rows)).to_df()
    assert said in str(raised.value)


def test_a_checkpoint_refuses_another_query_and_says_what_changed(spark, rows, tmp_path):
    good = rows.where("k is not null and amount <> 'many'")
    first = sy.stream(good).group_by("k").agg(n=sy.count())
    run(spark, first, tmp_path, [good])
    other = sy.stream(good).group_by("k").agg(n=sy.sum("x"))
    said = r"belongs to another query: its aggregates: n = count\(\); now: n = sum\(x double\)\. Use a new"
    with pytest.raises(OptionError, match=said):
        run(spark, other, tmp_path, [good])
    twice = tmp_path / "twice"
    run(spark, sy.stream(good).group_by("k").agg(n=sy.count(), total=sy.sum("x")), twice, [good])
    said = r"its aggregates: n = count\(\), total = sum\(x double\); now: total = sum\(x double\), n = count\(\)"
    with pytest.raises(OptionError, match=said):  # columns of state have an order
        run(spark, sy.stream(good).group_by("k").agg(total=sy.sum("x"), n=sy.count()), twice, [good])
    changed = sy.stream(good.selectExpr("length(k) as k", "x")).group_by("k").agg(n=sy.count())
    with pytest.raises(OptionError, match="its keys: "):
        run(spark, changed, tmp_path, [good])
    timed = good.selectExpr("k", "timestamp_seconds(x) as at")
    windowed = (
        sy.stream(timed)
        .with_watermark("at", "1 second")
        .group_by("k")
        .agg(n=sy.count())
        .window("10 seconds", "1 second")
    )
    with pytest.raises(OptionError, match="its window: none; now: 10 seconds every 1 second"):
        run(spark, windowed, tmp_path, [])
    (tmp_path / "file").touch()
    for taken, what in ((tmp_path / "file", "checkpoint"), (tmp_path / "new", "the folder of results")):
        with pytest.raises(OptionError, match=f"{what}: .*/file is a file or below one, and a folder is needed"):
            MicroBatch(spark, first._bound(), first._settings(), FileSink(str(tmp_path / "file")), str(taken))


def test_every_aggregate_is_called_in_a_checkpoint_as_the_user_calls_it():
    for name in ("count", "sum", "min", "max", "mean", "variance", "approx_distinct", "collect", "top_k"):
        assert getattr(sy, name)("x").function == name


def test_a_checkpoint_without_a_commit_takes_another_program_and_keeps_its_sink(spark, tmp_path, monkeypatch):
    spark.createDataFrame([("a", "1"), ("a", "many")], "k string, v string").write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("k string, v string").parquet(str(tmp_path / "in"))

    def start(**aggregates):
        described = sy.stream(rows).group_by("k").agg(**aggregates).sink("parquet", path=str(tmp_path / "out"))
        query = described.checkpoint(str(tmp_path / "state")).trigger(available_now=True).start()
        query.await_termination()

    def lost(self, commit):
        raise RuntimeError("before the commit")

    with pytest.raises(BadRowError, match="many"):
        start(n=sy.sum("v"))
    with monkeypatch.context() as stopping:
        stopping.setattr(StateFolder, "commit", lost)
        with pytest.raises(Exception, match="before the commit"):
            start(rows=sy.count())
    said = r"its aggregates: rows = count\(\); now: most = max\(v string\)"
    for _ in range(2):  # what was written would pass for the other program's, also at a second try
        with pytest.raises(OptionError, match=said):
            start(most=sy.max("v"))
    start(rows=sy.count())
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [("a", 2, 0)]
    shutil.rmtree(tmp_path / "state" / "steelyard" / "commits")
    with pytest.raises(OptionError, match=said):
        start(most=sy.max("v"))
    with pytest.raises(StateError, match="which is done by Spark's own log, is missing"):
        start(rows=sy.count())
