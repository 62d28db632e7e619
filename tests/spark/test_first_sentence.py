"""What a user reads first: one sentence, before the query runs where that can be, and figures that are right."""

from __future__ import annotations

import os
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError, PythonException

import steelyard as sy
from steelyard.core import BatchError, OptionError
from steelyard.spark.engine import reason
from steelyard.spark.partials import ddl_fields
from steelyard.spark.session import _TRACING, _chose_level
from steelyard.spark.states import encoded
from tests.spark.cases import Longest, Mean

pytestmark = pytest.mark.spark


def aggregator(state="n bigint, total double", result="double", zero=(0, 0.0), finish=0.0, merge=None):
    made = {"state": state, "result": result, "zero": lambda self: zero, "finish": lambda self, state: finish}
    made |= {"add": lambda self, state, values: state, "merge": merge or (lambda self, left, right: left)}
    return type("Mine", (sy.Aggregator,), made)()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (aggregator("n bigint", zero=(0,)), r"zero\(\) gives \(0,\).*\na state of the one field 'n' is the bare value"),
        (
            aggregator(zero=0),
            r"zero\(\) gives 0, .*\na state is a tuple with a value for each of the 2 fields n",
        ),
        (aggregator(zero=(0,)), r"zero\(\) gives \(0,\).*\n.*each of the 2 fields n, total"),
        (aggregator(zero=("none", 0.0)), r"zero\(\) gives .*\n'none' for field 'n' is no value of type int64"),
        (aggregator(zero={"n": 0, "total": 0.0}), r"zero\(\) gives .*\n.*each of the 2 fields n, total"),
        (aggregator("a string, b string", zero="ab"), r"zero\(\) gives 'ab'.*\n.*each of the 2 fields a, b"),
        (aggregator(zero={0, 1.5}), r"zero\(\) gives .*\n.*each of the 2 fields n, total"),
        (aggregator(zero=np.zeros(3)), r"zero\(\) gives array.*\n.*each of the 2 fields n, total"),
        (
            aggregator(zero=np.array(["none", "0"])),
            r"zero\(\) gives array.*\n.*none.* for field 'n' is no value of type int64",
        ),
        (aggregator("n bigint", zero=10**400), r"zero\(\) gives 1000+, .*\nit must be a value of type int64"),
        (aggregator("xs array<double>", zero=("a",)), r"zero\(\) gives .*\nit must be a value of type list"),
        (aggregator("n decimal(9,2)", zero=0.5), r"zero\(\) gives 0.5.*\nit must be a value of type decimal"),
        (
            aggregator(zero=(1, 0.0), merge=lambda self, left, right: (left[0] + right[0], left[1] + right[1])),
            r"merge\(zero\(\), zero\(\)\) gives \(2, 0.0\), and zero\(\) gives \(1, 0.0\);\n.*number of tasks",
        ),
        (aggregator(finish="much"), r"finish\(zero\(\)\) gives 'much', and its result is 'double'"),
    ],
)
def test_an_aggregator_that_cannot_work_is_told_in_two_lines_before_the_query_starts(spark, made, said):
    rows = spark.readStream.format("rate").load()
    described = sy.stream(rows).group_by("value").agg(mine=made.of("value")).sink("console")
    with pytest.raises(OptionError, match=f"aggregate 'mine': Mine.{said}") as raised:
        described.start()
    assert len(str(raised.value).splitlines()) == 2


def test_an_aggregator_that_may_work_is_not_refused(spark):
    rows = spark.createDataFrame([("a", 1.0)], "k string, x double")
    fine = [Mean(), Longest(), aggregator("low bigint, high bigint", "bigint", (float("inf"), float("-inf")), None)]
    fine += [aggregator("n bigint", "bigint", None, float("nan")), aggregator("xs array<double>", "double", [])]

    class Raising(Mean):
        def finish(self, state):
            return state[1] / state[0]

    for made in [*fine, Raising()]:
        sy.stream(rows).group_by("k").agg(mine=made.of("x"))._bound()


class Pair(NamedTuple):
    n: int
    total: float


def summing(state, zero, add, merge, finish, result="double"):
    """An aggregator of the sum of a column, in a shape of its own."""
    made = {"state": state, "result": result, "zero": lambda self: zero(), "finish": lambda self, state: finish(state)}
    made |= {"add": lambda self, state, xs: add(state, xs), "merge": lambda self, left, right: merge(left, right)}
    return type("Mine", (sy.Aggregator,), made)().of("x")


def both(left, right):
    return [a + b for a, b in zip(left, right, strict=True)]


def last(state):
    return state[-1]


DAY = date(2024, 1, 1)
SUMS = {
    "arrays": summing(
        "n double, s double", lambda: np.zeros(2), lambda s, xs: s + np.array([len(xs), xs.sum()]), np.add, last
    ),
    "lists": summing("n bigint, s double", lambda: [0, 0.0], lambda s, xs: both(s, [len(xs), xs.sum()]), both, last),
    "named": summing(
        "n bigint, s double", lambda: Pair(0, 0), lambda s, xs: Pair(len(xs), s.total + xs.sum()), both, last
    ),
    "iterators": summing(
        "n bigint, s double", lambda: iter((0, 0.0)), lambda s, xs: iter((len(xs), xs.sum())), both, last
    ),
    "nothing": summing("n bigint, s double", lambda: None, lambda s, xs: (len(xs), xs.sum()), both, last),
    "scalar": summing("s double", np.float32, lambda s, xs: s + xs.sum(), np.add, float),
    "whole": summing("n bigint", lambda: 0.0, lambda s, xs: int(xs.sum()), np.add, float),
    "infinite": summing("n bigint", lambda: float("inf"), lambda s, xs: int(xs.sum()), np.add, float),
    "empty_tuple": summing("xs array<double>", lambda: (), lambda s, xs: (*s, *xs), lambda a, b: [*a, *b], sum),
    "one_array": summing("xs array<double>", lambda: np.zeros(1), lambda s, xs: s + xs.sum(), np.add, sum),
    "set": summing("xs array<double>", set, lambda s, xs: s | {xs.sum()}, lambda a, b: [*a, *b], sum),
    "map": summing(
        "m map<string,double>",
        dict,
        lambda s, xs: {"s": xs.sum()},
        lambda a, b: [*a, *b],
        lambda s: sum(value for _, value in s),
    ),
    "pairs": summing(
        "m map<string,double>",
        tuple,
        lambda s, xs: (("s", xs.sum()),),
        lambda a, b: [*a, *b],
        lambda s: sum(value for _, value in s),
    ),
    "struct": summing(
        "p struct<n:bigint,s:double>",
        lambda: Pair(0, 0.0),
        lambda s, xs: Pair(len(xs), xs.sum()),
        lambda a, b: {"n": 0, "s": a["s"] + b["s"]},
        lambda s: s["s"],
    ),
    "nested": summing(
        "n bigint, p struct<s:double>",
        lambda: (0, {"s": 0.0}),
        lambda s, xs: (1, {"s": xs.sum()}),
        lambda a, b: (a[0] + b[0], {"s": a[1]["s"] + b[1]["s"]}),
        lambda s: s[1]["s"],
    ),
    "decimal": summing("d decimal(20,2)", Decimal, lambda s, xs: s + Decimal(int(xs.sum())), lambda a, b: a + b, float),
    "dates": summing(
        "d date",
        lambda: DAY,
        lambda s, xs: s + timedelta(days=int(xs.sum())),
        lambda a, b: a + (b - DAY),
        lambda s: float((s - DAY).days),
    ),
    "bytes": summing(
        "b binary, n int", lambda: (b"", 0), lambda s, xs: (b"x" * int(xs.sum()), 0), both, lambda s: float(len(s[0]))
    ),
}
"""States of every legitimate shape; a set keeps one of equal values, so that slices must have different sums."""


def test_no_aggregator_that_works_is_refused_whatever_the_shape_of_its_states(spark):
    rows = spark.range(0, 40, 1, 2).selectExpr("id % 3 as k", "cast(id as double) as x")
    found = sy.stream(rows).group_by("k").agg(**SUMS).to_df().collect()
    right = {k: float(sum(range(k, 40, 3))) for k in range(3)}
    assert {row["k"]: {name: row[name] for name in SUMS} for row in found} == {
        k: dict.fromkeys(SUMS, total) for k, total in right.items()
    }


@pytest.mark.parametrize("wrong", ["ab", b"ab", {"a": 1, "b": 2}, {1, 2}])
def test_a_state_without_an_order_of_its_fields_is_not_taken_apart(wrong):
    kind = pa.struct({"a": pa.string(), "b": pa.string()})
    with pytest.raises(ValueError, match="a state of several fields is a tuple, got"):
        encoded([("a", "b"), wrong], kind, "add()")


@pytest.mark.parametrize("text", ["a foo", "a decimal(99,2)", "a timestamp(3)", "a int,", None, 3])
def test_a_text_that_is_no_ddl_is_told(spark, text):
    with pytest.raises(OptionError, match=r"`state`: .* is not a DDL type"):
        ddl_fields(text, "`state`")


def test_that_there_is_no_session_is_not_said_to_be_wrong_ddl(monkeypatch):
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    with pytest.raises(PySparkRuntimeError, match="SparkSession should be created first"):
        ddl_fields("a_field_that_nobody_asked_for_before bigint", "`state`")


def source(spark, tmp_path, files=2):
    """A streaming DataFrame over so many files of 30 rows."""
    (tmp_path / "in").mkdir()
    spark.range(30).selectExpr("id % 3 as k", "cast(id as double) as x").coalesce(1).write.parquet(
        str(tmp_path / "aside")
    )
    (file,) = (tmp_path / "aside").glob("*.parquet")
    for number in range(files):
        os.link(file, tmp_path / "in" / f"{number}.parquet")
    return spark.readStream.schema("k bigint, x double").parquet(str(tmp_path / "in"))


def test_a_batch_that_fails_says_so_in_one_short_sentence(spark, tmp_path, caplog):
    def refuse(results, batch):
        raise RuntimeError("the cellar is full")

    rows = source(spark, tmp_path, 1)
    described = sy.stream(rows).group_by("k").agg(n=sy.count()).sink("foreach_batch", function=refuse)
    query = described.name("barrels").trigger(available_now=True).start()
    place = r"\(test_first_sentence\.py:\d+ in refuse\)"
    sentence = rf"^barrels, batch 0 failed: RuntimeError: the cellar is full {place}$"
    with pytest.raises(BatchError, match=sentence) as raised:
        query.await_termination()
    assert isinstance(raised.value.error, RuntimeError)
    assert raised.value.__cause__ is None, "it would be printed before the sentence"
    assert str(query.exception()) == str(raised.value)
    assert query.status["message"] == f"failed: {raised.value}"
    text = str(query._query.exception()).partition("JVM stacktrace")[0]
    assert text.count('File "') <= 4, "what Spark's UI shows of it"
    assert [record.getMessage() for record in caplog.records if record.name == "steelyard.spark.engine"][-1] == str(
        raised.value
    )
    (trace,) = [record for record in caplog.records if record.name == "steelyard.traces"]
    assert trace.exc_info[1] is raised.value.error
    assert stages(spark) >= {"barrels, batch 0: process", "barrels, batch 0: results"}


def stages(spark):
    """What Spark's UI calls the stages that it knows, and says of them."""
    context = spark.sparkContext
    store = context._jsc.sc().statusStore()
    listed = store.stageList(None, False, False, context._gateway.new_array(context._jvm.double, 0), None)
    found = [listed.apply(i) for i in range(listed.size())]
    return {one.name() for one in found} | {one.description().get() for one in found if one.description().isDefined()}


def test_a_local_session_prints_no_stack_traces_unless_a_log_level_is_asked_for(spark):
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    for name in _TRACING:
        assert log4j.LogManager.getLogger(name).getLevel().name() == "OFF"
    assert _chose_level(spark, {"spark.log.level": "WARN"})
    assert not _chose_level(spark, {})


def test_a_writer_of_spark_that_fails_is_told_with_its_own_reason(spark, tmp_path):
    described = sy.stream(source(spark, tmp_path, 1)).group_by("k").agg(n=sy.count())
    query = described.sink("jdbc", url="jdbc:nothing://x", dbtable="t").trigger(available_now=True).start()
    with pytest.raises(BatchError, match=r"batch 0 failed: java\.sql\.SQLException: No suitable driver"):
        query.await_termination()


def test_the_reason_of_a_task_is_found_in_what_the_jvm_passes_on():
    text = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times\nTraceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\nValueError: no such barrel\n\n\tat org.apache.spark.X(Y)\n'
    )
    assert reason(RuntimeError(text)) == "ValueError: no such barrel"


def test_spark_counts_each_input_row_once_and_the_query_has_a_readable_name(spark, tmp_path):
    rows = source(spark, tmp_path)
    letters = str(tmp_path / "letters")
    both = sy.stream(rows).group_by("k").agg(n=sy.count(), mean=Mean().of("x"))
    cases = [
        both.partition_by("in_place"),
        both.partition_by("prompt").statistics("exact"),
        sy.stream(rows.selectExpr("nullif(k, 1) as k", "x"))
        .group_by("k")
        .agg(n=sy.count())
        .on_bad_rows("dead_letter", letters),
        sy.stream(rows).map(lambda part: part, "k bigint, x double").partition_by("shuffle", blocks=2),
    ]
    for case in cases:
        query = case.sink("noop").trigger(available_now=True).start()
        query.await_termination()
        counted = [one["numInputRows"] for one in query._query.recentProgress]
        assert sum(counted) == 60, query.name
        assert query.name.startswith(("n, mean by k #", "n by k #", "map #"))


class Wrong(sy.Aggregator):
    """Fits where there are no rows, and no more where there are."""

    state, result = "n bigint", "bigint"

    def __init__(self, added=1, finished=1):
        self.added, self.finished = added, finished

    def zero(self):
        return 0

    def add(self, state, values):
        return self.added

    def merge(self, left, right):
        return left

    def finish(self, state):
        return self.finished if state else 0


class WrongPair(Wrong):
    state = "n bigint, m bigint"

    def zero(self):
        return (0, 0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Wrong(added=0.5), "add() of aggregate 'g' gave what is no state of (n int64): 0.5 is no value of type int64"),
        (
            WrongPair(added=1),
            "add() of aggregate 'g' gave what is no state of (n int64, m int64)",
        ),
        (WrongPair(added=(1, 2, 3)), "a state must have 2 fields, got 3"),
        (Wrong(finished=0.5), "Wrong.finish() gave what is no bigint: 0.5 is no value of type int64"),
    ],
)
def test_what_an_aggregator_gives_in_mid_run_is_told_by_name_and_never_cut(spark, wrong, sentence):
    rows = spark.range(4).selectExpr("id % 2 as k", "cast(id as double) as x")
    with pytest.raises(PythonException, match=re.escape(sentence)):
        sy.stream(rows).group_by("k").agg(g=wrong.of("x")).to_df().collect()
