"""Early batch release: cut-offs before heartbeats, what a late release costs, and which batch a row is of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.partition.accumulator import Accumulator
from steelyard.partition.early_release import DoubleBuffer, EarlyRelease


def test_five_batches_by_hand():
    """T = 10 s, so slack is at most 0.5 s; half of the last partitioning time goes into what is expected.

    batch  expected  slack = min(0.5, 1.2 e)  cut-off  partitioning  ready  heartbeat  overrun
    0      none      0.50                      9.50    0.20           9.70  10         0
    1      0.20      0.24                     19.76    0.40          20.16  20         0.16
    2      0.30      0.36                     29.64    0.30          29.94  30         0
    3      0.30      0.36                     39.64    0.90          40.54  40         0.54
    4      0.60      0.50 (not 0.72)          49.50    0.50          50.00  50         0
    """
    early = EarlyRelease(interval=10.0, smoothing=0.5)
    cut_offs, overruns, missed = [], [], []
    for batch, took in enumerate((0.2, 0.4, 0.3, 0.9, 0.5)):
        cut_offs.append(early.cut_off(batch))
        release = early.released(took)
        assert (release.batch, release.cut_off, release.heartbeat) == (batch, cut_offs[-1], 10.0 * (batch + 1))
        overruns.append(release.overrun)
        missed.append(release.missed)
    assert cut_offs == pytest.approx([9.5, 19.76, 29.64, 39.64, 49.5])
    assert overruns == pytest.approx([0, 0.16, 0, 0.54, 0])
    assert missed == [False, True, False, True, False]
    assert (early.misses, early.batch) == (2, 5)
    assert early.overrun_seconds == pytest.approx(0.7)
    assert early.slack == pytest.approx(0.5)
    assert early.expected == pytest.approx(0.55)


def test_an_overrun_is_part_of_the_processing_that_later_batches_wait_for():
    """Work of 9.9 s in an interval of 10 s is stable until a release is 0.54 s late; then 0.44 s are queued."""
    early = EarlyRelease(interval=10.0)
    finish, delays = 0.0, []
    for took in (0.2, 0.24 + 0.54, 0.2):  # the second has 1.2 * 0.2 s of slack
        release = early.released(took)
        start = max(release.heartbeat, finish)
        delays.append(start - release.heartbeat)
        finish = start + release.processing(9.9)
    assert delays == pytest.approx([0, 0, 0.44])


def test_slack_is_never_more_than_a_twentieth_of_the_interval():
    early = EarlyRelease(interval=2.0)
    for took in (5.0, 0.0, 0.3):
        assert early.slack <= 0.1
        early.released(took)
    assert EarlyRelease(interval=2.0, most=0.0).cut_off(4) == 10.0


@settings(deadline=None, max_examples=100)
@given(interval=st.floats(0.1, 60), took=st.floats(0, 1), batches=st.integers(2, 30))
def test_a_steady_partitioning_time_that_fits_is_missed_never(interval, took, batches):
    early = EarlyRelease(interval)
    for batch in range(batches):
        assert batch * interval < early.cut_off(batch) <= early.heartbeat(batch)
        release = early.released(took * 0.04 * interval)
        assert release.overrun <= 1e-9
    assert early.slack == pytest.approx(1.2 * took * 0.04 * interval)


def test_a_released_batch_has_no_cut_off_any_more():
    early = EarlyRelease(1.0)
    early.released(0.01)
    with pytest.raises(ValueError, match="batch 0 is released: the open batch is 1"):
        early.cut_off(0)
    with pytest.raises(ValueError, match=r"cannot have taken -0\.1 seconds"):
        early.released(-0.1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"interval": 0}, "interval of the early release must be more than 0 seconds, got 0"),
        ({"interval": 1, "most": 1.0}, "most of the early release must be a share"),
        ({"interval": 1, "margin": 0.5}, "margin of the early release must be 1 or more, got 0.5"),
        ({"interval": 1, "smoothing": 0}, "smoothing of the early release must be above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(options, told):
    with pytest.raises(OptionError, match=told):
        EarlyRelease(**options)


@settings(deadline=None, max_examples=150)
@given(
    gaps=st.lists(st.integers(0, 400), max_size=60),
    parts=st.lists(st.integers(0, 60), max_size=6),
    took=st.lists(st.floats(0, 0.2), min_size=1, max_size=8),
)
def test_every_row_is_in_one_batch_and_in_the_one_of_its_time(gaps, parts, took):
    times = np.cumsum(np.array(gaps, np.int64))
    keys = np.arange(len(times), dtype=np.int64)
    early = EarlyRelease(interval=1.0)
    buffer = DoubleBuffer(early)
    closed = []
    batches = int(times[-1]) // 1000 + 2 if len(times) else 1
    pieces = np.split(np.arange(len(times)), sorted(min(part, len(times)) for part in parts))
    for number in range(batches):
        while pieces and (not len(pieces[0]) or times[pieces[0][0]] < buffer.end):
            piece = pieces.pop(0)
            buffer.add(keys[piece], times[piece])
        closed.append(buffer.close())
        early.released(took[number % len(took)])
    assert (buffer.waiting, pieces) == (0, [])
    assert np.concatenate([batch.keys for batch in closed]).tolist() == keys.tolist()
    assert np.concatenate([batch.times for batch in closed]).tolist() == times.tolist()
    assert [batch.batch for batch in closed] == list(range(batches))
    assert [batch.start for batch in closed] == [0, *(batch.end for batch in closed[:-1])]
    for batch in closed:
        assert np.all((batch.times >= batch.start) & (batch.times < batch.end))


def test_rows_that_come_while_a_batch_is_cut_up_are_of_the_next_one():
    early = EarlyRelease(interval=1.0)
    buffer = DoubleBuffer(early)
    buffer.add(np.array([1, 2]), np.array([10, 960]))
    first = buffer.close()
    buffer.add(np.array([3]), np.array([990]))
    assert buffer.waiting == 2
    early.released(0.03)
    second = buffer.close()
    assert (first.keys.tolist(), second.keys.tolist()) == ([1], [2, 3])
    assert (first.start, first.end, second.start, second.end) == (0, 950, 950, 1964)


def test_an_accumulator_takes_what_a_double_buffer_closes():
    early, accumulator = EarlyRelease(interval=1.0), Accumulator()
    buffer = DoubleBuffer(early)
    times = np.arange(0, 3000, 3)
    buffer.add(times % 7, times)
    rows = 0
    for _ in range(4):
        closed = buffer.close()
        accumulator.begin(closed.start, closed.end)
        accumulator.add(closed.keys, closed.times)
        rows += accumulator.finish().total
        early.released(0.02)
    assert rows == len(times)


def test_a_batch_is_closed_once_before_it_is_released():
    early = EarlyRelease(interval=1.0)
    buffer = DoubleBuffer(early)
    buffer.close()
    with pytest.raises(ValueError, match="batch 0 is closed and not yet released"):
        buffer.close()


def test_times_that_fall_are_refused():
    buffer = DoubleBuffer(EarlyRelease(interval=1.0))
    buffer.add(np.array([1]), np.array([500]))
    for times in ([499], [600, 599]):
        with pytest.raises(ValueError, match="arrival times never fall, and the last one was 500"):
            buffer.add(np.zeros(len(times)), np.array(times))
    buffer.close()
    with pytest.raises(ValueError, match="the last one was 950"):
        buffer.add(np.array([1]), np.array([949]))
    with pytest.raises(ValueError, match="2 keys, 1 times"):
        buffer.add(np.array([1, 2]), np.array([960]))
    with pytest.raises(OptionError, match="per_second must be 1 or more"):
        DoubleBuffer(EarlyRelease(1.0), per_second=0)
