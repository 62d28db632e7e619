"""Windows over panes: which ones close, in how much memory, and where a time falls."""

import tracemalloc
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import count
from steelyard.resident import windows
from steelyard.resident.aggregate import WindowedStep
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK
from steelyard.resident.windows import Window, as_micros, timely

TIME = pa.timestamp("us", "UTC")
SECOND = 1_000_000
shapes = st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 4), (5, 1), (7, 3), (40, 1)])
times = st.lists(st.one_of(st.integers(-20, 20), st.integers(-(10**12), 10**12)), max_size=30)


@given(shapes, times, st.lists(st.integers(-60, 60), max_size=4), st.sampled_from([1, 3, 1000]))
def test_each_window_closes_once_in_one_part_with_all_of_its_panes(shape, drawn, marks, most):
    window = Window("at", *shape)
    panes = np.array([time - time % window.pane for time in drawn], np.int64)
    marks = [MIN_WATERMARK, *sorted(marks), MAX_WATERMARK]
    rows, starts = window.starts(panes)
    expected = sorted(zip(starts.tolist(), rows.tolist(), strict=True))
    got, windows_seen = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "PAIRS", most)
        for before, time in pairwise(marks):
            for which, begins in window.closing(panes, before, time):
                ends = begins + window.size
                assert (ends > before).all()
                assert (ends <= time).all()
                assert len(which) <= most or len(set(begins.tolist())) == 1
                windows_seen += set(begins.tolist())
                got += zip(begins.tolist(), which.tolist(), strict=True)
    assert sorted(got) == expected
    assert len(windows_seen) == len(set(windows_seen)), "no window is in two parts"


def test_long_windows_that_slide_by_a_second_close_in_little_memory():
    how = Aggregation(("k",), (("n", count()),), Window("at", 3600 * SECOND, SECOND))
    at = pa.array(np.repeat(np.arange(3600), 10) * SECOND).cast(TIME)
    rows = pa.record_batch({"k": np.tile(np.arange(10), 3600), "at": at})
    schema = how.result_schema(how.partial_schema(rows.schema))
    step = WindowedStep(how, how.window, False, schema)
    step.process(0, rows)
    tracemalloc.start()
    (one,) = step.on_watermark(SECOND)
    several = list(islice(step.on_watermark(MAX_WATERMARK), 3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert one.column("n").to_pylist() == [1] * 10
    ends = (several[0].column("window_end").cast(pa.int64()).to_numpy() // SECOND).tolist()
    assert several[0].column("n").to_pylist() == ends, "up to the end of an hour, a row for each second"
    assert peak < 64 << 20


def test_nanoseconds_before_1970_fall_into_the_window_that_holds_them():
    at = pa.array([-1, -999, -1000, -1001, 0, 999, 1000], pa.timestamp("ns"))
    assert as_micros(at).tolist() == [-1, -1, -1, -2, 0, 0, 1]
    rows, micros = timely(pa.record_batch({"at": at}), Window("at", 10, 10), -5)
    assert rows.num_rows == 7
    assert (micros - micros % 10).tolist() == [-10, -10, -10, -10, 0, 0, 0]
