"""NexMark's queries on workers that stay give what plain Spark gives over the same generated rows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.applications.nexmark import Q3, Q5, Q8, Q11, Q12, QUERIES, SHARES, SINK
from steelyard.core.dataflow import Placement
from steelyard.resident import run
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


def test_new_sellers_are_given_as_their_auctions_come_and_with_the_window_of_both():
    got = run(Q8().dataflow(ROWS, RATE, seed=3)).table(SINK).to_pylist()
    persons = Nexmark("persons", seed=3).rows(0, 1500, Arrivals(Constant(RATE / 4)).times(0, 1500))
    came = dict(zip(persons["id"].to_pylist(), persons["event_time"].to_pylist(), strict=True))
    assert got
    assert all(row["window_start"] <= came[row["id"]] < row["window_end"] for row in got)
