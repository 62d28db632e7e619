"""NexMark's queries on workers that stay give what plain Spark gives over the same generated rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.applications.nexmark import Q3, Q5, Q8, Q11, Q12, QUERIES, SHARES, SINK, _RunningCount
from steelyard.core.dataflow import Placement
from steelyard.resident import run
from steelyard.resident.windows import Window
from steelyard.workloads import Arrivals, Constant, Nexmark

ROWS, RATE = 6_000, 40.0
PARAMETERS = {"seed": 5, "hot_bidders": 1.2}
SHORT = [Q5("20 seconds", "5 seconds"), Q11("300 milliseconds"), Q12("5 seconds"), Q3(category=10)]
CASES = [*(kind() for kind in QUERIES.values()), *SHORT]


def counted(table):
    """Rows, with times as numbers, in no order."""
    plain = [
        column.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return Counter(zip(*(column.to_pylist() for column in plain), strict=True))


@pytest.mark.spark
def test_every_query_gives_what_plain_spark_gives(spark):
    """Spark's own source gives the oracle its rows, so that both read the same workload by its options."""
    read = spark.read.format("steelyard").options(workload="nexmark", partitions=2, start="1970-01-01", **PARAMETERS)

    def frame(query, stream):
        share = SHARES[stream] / sum(SHARES[one] for one in query.streams)
        return read.options(stream=stream, rows=round(ROWS * share), rate=RATE * share).load()

    for query in CASES:
        expected = query.plain(*(frame(query, stream) for stream in query.streams)).toArrow()
        got = run(query.dataflow(ROWS, RATE, parallelism=2, **PARAMETERS)).table(SINK)
        assert got.column_names == expected.column_names, query
        assert counted(got) == counted(expected), query
        assert got.num_rows > 10, query


@settings(max_examples=12)
@given(st.sampled_from(CASES), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0.0, 0.3]))
def test_answers_do_not_depend_on_parallelism_and_placement(query, parallelism, workers, skew):
    narrow = query.dataflow(800, RATE, skew=skew)
    wide = query.dataflow(800, RATE, parallelism=parallelism, skew=skew)
    answers = run(wide, placement=Placement.spread(wide, workers)).table(SINK)
    assert counted(answers) == counted(run(narrow).table(SINK))


@settings(max_examples=8)
@given(st.integers(1, 3), st.integers(0, 100))
def test_the_last_of_running_counts_are_those_of_the_window(parallelism, seed):
    whole = Q12("3 seconds").dataflow(900, RATE, seed=seed)
    running = Q12("3 seconds", running=True).dataflow(900, RATE, parallelism=parallelism, seed=seed, delay="1 hour")
    counts = run(running).table(SINK)
    most = counts.group_by(counts.column_names[:3]).aggregate([("bids", "max")])
    assert counted(most) == counted(run(whole).table(SINK))


def test_running_counts_go_on_from_a_snapshot_and_forget_what_is_over():
    window = Window.of("event_time", "10 seconds")
    bids = Nexmark("bids").rows(0, 300, Arrivals(Constant(10)).times(0, 300))
    first = _RunningCount(window)
    list(first.process(0, bids.slice(0, 150)))
    first.on_watermark(10_000_000)
    again = _RunningCount(window)
    again.restore(first.snapshot(1))
    assert again.snapshot(2) == first.snapshot(2)
    assert list(again.process(0, bids.slice(50))) == list(first.process(0, bids.slice(50)))
    assert again.refused == 50, "of the first ten seconds"
    again.on_watermark(30_000_000)
    assert again.snapshot(3)["counts"].num_rows == 0


def test_new_sellers_are_given_as_their_auctions_come_and_with_the_window_of_both():
    got = run(Q8().dataflow(ROWS, RATE, seed=3)).table(SINK).to_pylist()
    persons = Nexmark("persons", seed=3).rows(0, 1500, Arrivals(Constant(RATE / 4)).times(0, 1500))
    came = dict(zip(persons["id"].to_pylist(), persons["event_time"].to_pylist(), strict=True))
    assert got
    assert all(row["window_start"] <= came[row["id"]] < row["window_end"] for row in got)
