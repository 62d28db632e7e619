"""What a user reads first: one sentence, before the query runs where that can be, and figures that are right."""

from __future__ import annotations

import os

import pytest

import steelyard as sy
from steelyard.core import BatchError, OptionError
from steelyard.spark.engine import reason
from tests.spark.cases import Longest, Mean

pytestmark = pytest.mark.spark


def aggregator(state="n bigint, total double", result="double", zero=(0, 0.0), finish=0.0):
    made = {"state": state, "result": result, "zero": lambda self: zero, "finish": lambda self, state: finish}
    made |= {"add": lambda self, state, values: state, "merge": lambda self, left, right: left}
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


def test_a_batch_that_fails_says_so_in_one_short_sentence(spark, tmp_path):
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
        both.placement("in_place"),
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
