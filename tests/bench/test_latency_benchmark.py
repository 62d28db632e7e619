"""Latencies are those of the first result that counts a row, and a wrong count is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.bench.engine.latency import (
    CONTENDERS,
    OURS,
    QUANTILES,
    RATES,
    REAL_TIME,
    LatencyError,
    Seen,
    latencies,
    result_of,
)
from steelyard.bench.registry import Run


def topic(*records):
    """(key, count, ms) of each record."""
    keys, counts, times = zip(*records, strict=True)
    return Seen(np.array([key.encode() for key in keys], object), np.array(counts), np.array(times))


ROWS = topic(("a", 0, 10), ("b", 0, 11), ("a", 0, 12), ("a", 0, 20))


def test_a_row_is_counted_by_the_first_result_that_says_as_many():
    results = topic(("a", 1, 13), ("b", 1, 14), ("a", 3, 25))
    assert latencies(ROWS, results, since=0).tolist() == [3, 3, 13, 5]


def test_rows_of_the_warm_up_are_counted_and_not_timed():
    results = topic(("b", 1, 14), ("a", 3, 25))
    assert latencies(ROWS, results, since=12).tolist() == [13, 5]


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([("a", 3, 25)], "row 1 of key b'b' is in no result"),
        ([("a", 2, 25), ("b", 1, 25)], "row 3 of key b'a' is in no result"),
        ([("a", 4, 25), ("b", 1, 25)], "key b'a' has 3 rows, and was counted 4 times"),
        ([("a", 3, 25), ("b", 1, 25), ("c", 1, 25)], "key b'c' has None rows"),
    ],
)
def test_a_count_that_is_wrong_is_noticed(results, says):
    with pytest.raises(LatencyError, match=says):
        latencies(ROWS, topic(*results), since=0)


def test_the_ratio_is_that_of_the_worse_rate_and_of_the_median_round():
    times = {(REAL_TIME, 1_000): [10, 20, 90], (REAL_TIME, 10_000): [30, 30, 30]}
    times |= {(OURS, 1_000): [5, 5, 80], (OURS, 10_000): [15, 18, 18]}
    found = {at: [np.full(100, ms) for ms in rounds] for at, rounds in times.items()}
    result = result_of(found, 3, Run(quick=True), "")
    assert result.metrics["p50_vs_real_time_1000"] == 5 / 20
    assert result.metrics["p50_vs_real_time"] == result.metrics["p99_vs_real_time"] == 18 / 30
    assert {target.metric for target in result.missed} == {"p50_vs_real_time", "p99_vs_real_time"}
    assert len(result.tables[0].rows) == len(times)
    assert {REAL_TIME, OURS} < set(CONTENDERS)
    assert len(QUANTILES) + 2 == len(result.tables[0].columns)
    assert {rate for _, rate in found} == set(RATES)
