"""Variances and extremes of groups, cut in any way; windows that stay open at the end; and going on from there."""

import itertools
import math
import statistics
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, sum, variance
from steelyard import count as rows_of
from steelyard.core import OptionError
from steelyard.resident import Flow, Memory, Rows, Settings, run
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.states import Extreme, Groups, Variance
from steelyard.resident.windows import Window

TIME = pa.timestamp("us", "UTC")
floats = st.one_of(st.none(), st.sampled_from([0.0, -1.5, 2.0, 1e6, math.nan, math.inf]), st.floats(-1e3, 1e3))
panes = st.integers(0, 5).map(lambda number: 10 * number)
rows = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), floats, panes), min_size=1, max_size=60)


def partials_of(how, keys, values, times):
    batch = pa.record_batch({"k": pa.array(keys, pa.string()), "x": pa.array(values, pa.float64())})
    batch = batch.append_column("at", pa.array(times, TIME))
    return how.partials(batch, np.array(times, np.int64))


def by_key(how, given_rows, cuts):
    """The results of rows that were cut into batches, by key and pane."""
    bounds = sorted({0, len(given_rows), *(cut % len(given_rows) for cut in cuts)})
    parts = [given_rows[a:b] for a, b in pairwise(bounds)]
    merged = how.merged([partials_of(how, *map(list, zip(*part, strict=True))) for part in parts])
    at = merged.column("__pane").cast(pa.int64()).to_pylist()
    return {(row["k"], pane): row for row, pane in zip(how.results(merged).to_pylist(), at, strict=True)}


@given(rows, st.lists(st.integers(0, 100), max_size=4))
def test_extremes_and_variances_do_not_depend_on_how_rows_are_cut(given_rows, cuts):
    aggregates = (("v", Variance("x")), ("low", Extreme("x", False)), ("n", rows_of()), ("high", Extreme("x", True)))
    how = Aggregation(("k",), aggregates, Window("at", 10, 10))
    values = defaultdict(list)
    for key, value, pane in given_rows:
        values[key, pane] += [] if value is None else [value]
    got = by_key(how, given_rows, cuts)
    assert set(got) == set(values)
    for key, known in values.items():
        order = sorted(known, key=lambda x: (math.isnan(x), x))  # NaN is above all others
        assert got[key]["n"] == [(k, pane) for k, _, pane in given_rows].count(key)
        assert [got[key]["low"], got[key]["high"]] == pytest.approx(
            [order[0], order[-1]] if order else [None, None], nan_ok=True
        )
        finite = all(math.isfinite(x) for x in known)
        if len(known) < 2:
            assert got[key]["v"] is None
        elif finite:
            assert got[key]["v"] == pytest.approx(statistics.variance(known), rel=1e-9, abs=1e-9)
        else:
            assert math.isnan(got[key]["v"])


def test_variances_of_large_numbers_keep_their_digits():
    how = Aggregation(("k",), (("v", Variance("x")),), Window("at", 10, 10))
    shifted = [("a", 1e9 + x, 0) for x in (4.0, 7.0, 13.0, 16.0)]
    assert by_key(how, shifted, [1, 2, 3])["a", 0]["v"] == 30.0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_groups_are_in_the_order_of_their_first_rows(pairs):
    groups = Groups.of([pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.int64())])
    bounds = [*groups.starts.tolist(), len(pairs)]
    found = [[pairs[row] for row in groups.order[a:b]] for a, b in itertools.pairwise(bounds)]
    assert [group[0] for group in found] == list(dict.fromkeys(pairs))
    assert all(len(set(group)) == 1 for group in found)
    assert sorted(groups.order.tolist()) == list(range(len(pairs)))


def test_a_variance_without_a_window_is_refused():
    flow = Flow()
    flow.source(Rows(pa.table({"k": [1], "x": [1.0]}))).key_by("k").aggregate(v=variance("x")).sink(Memory())
    with pytest.raises(OptionError, match="aggregate 'v' \\(Variance\\) needs a window"):
        flow.dataflow()


def events(seconds):
    return pa.table(
        {
            "k": [second % 3 for second in seconds],
            "x": list(range(len(seconds))),
            "at": pa.array([s * 1_000_000 for s in seconds], TIME),
        }
    )


def windows(table, parallelism, store=None, grouping="hash"):
    flow = Flow("windows", parallelism=parallelism)
    read = flow.source(Rows(table), time="at", delay="2 seconds", batch_rows=3)
    made = read.key_by("k", grouping=grouping).aggregate(
        n=count(), total=sum("x"), window="10 seconds", open_end=True, name="count"
    )
    made.sink(Memory(), name="out")
    found = run(flow.dataflow(), workers=2, settings=Settings(store=store)).table("out")
    micros = found.column("window_start").cast(pa.int64()).to_pylist()
    columns = [found.column(name).to_pylist() for name in ("k", "n", "total")]
    return sorted(zip([at // 1_000_000 for at in micros], *columns, strict=True))


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40).map(sorted),
    st.integers(1, 3),
    st.sampled_from(["hash", "dalton"]),
)
@settings(max_examples=15)
def test_windows_that_time_has_not_passed_stay_open_at_the_end(seconds, parallelism, grouping):
    expected = defaultdict(lambda: [0, 0])
    for x, second in enumerate(seconds):
        start = second // 10 * 10
        if start + 10 <= seconds[-1] - 2:
            expected[start, second % 3][0] += 1
            expected[start, second % 3][1] += x
    got = windows(events(seconds), parallelism, grouping=grouping)
    assert got == sorted((*key, *value) for key, value in expected.items())


def test_states_stand_beside_their_own_keys_where_there_are_many():
    how = Aggregation(("k",), (("n", rows_of()), ("low", Extreme("x", False))), Window("at", 10, 10))
    draw = np.random.default_rng(5)
    numbers = draw.integers(0, 700, 3000).tolist()
    got = by_key(how, [(str(number), float(number), number % 4 * 10) for number in numbers], [900, 1700])
    assert {key: row["low"] for key, row in got.items()} == {(str(n), n % 4 * 10): float(n) for n in set(numbers)}
