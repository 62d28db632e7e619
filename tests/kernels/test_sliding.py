"""Sliding windows: loads and holders are those of a count from scratch, slide by slide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.key_table import check, grown, is_full, key_table, slot_of
from steelyard.kernels.sliding import (
    END,
    NOW,
    advance,
    expire,
    grown_holders,
    hold,
    no_holders,
    node_of,
    sliding_loads,
)
from tests.kernels.twins.sliding import check_holders, held, held_plain, loads_plain

BLOCKS = 4


@st.composite
def streams(draw: Any) -> list[tuple[int, int, int]]:
    """(time, key, block) with pauses from none to many slides, beginning before or after time 0."""
    row = st.tuples(st.sampled_from([0, 0, 1, 3, 10, 200]), st.integers(-3, 6), st.integers(0, BLOCKS - 1))
    time, rows = draw(st.integers(-500, 500)), []
    for pause, key, block in draw(st.lists(row, max_size=60)):
        time += pause
        rows.append((time, key, block))
    return rows


@settings(deadline=None, max_examples=100)
@given(stream=streams(), slides=st.integers(0, 5), slide=st.sampled_from([1, 4, 10]))
def test_loads_are_those_of_a_count_from_scratch(stream, slides, slide):
    loads = sliding_loads(BLOCKS, slides)
    numbers, blocks = [], []
    for time, _, block in stream:
        if time >= loads.clock[END]:
            advance(loads, slide, time)
        assert loads.clock[NOW] == time // slide
        assert loads.totals.tolist() == loads_plain(numbers, blocks, BLOCKS, slides, time // slide)
        loads.totals[block] += 1
        numbers.append(time // slide)
        blocks.append(block)


@settings(deadline=None, max_examples=100)
@given(stream=streams(), slides=st.integers(1, 5), slide=st.sampled_from([1, 4, 10]))
def test_holders_are_the_pairs_of_a_scan_of_the_window(stream, slides, slide):
    table, holders = key_table(1), no_holders(BLOCKS, 1)
    numbers, keys, blocks = [], [], []
    for time, key, block in stream:
        now = time // slide
        expire(table, holders, now - slides + 1)
        if is_full(table.ids, table.header):
            table = grown(table)
        holders = grown_holders(holders, len(table.ids))
        hold(*holders, slot_of(*table, key), block, now)
        numbers.append(now)
        keys.append(key)
        blocks.append(block)
        assert held(table, holders) == held_plain(numbers, keys, blocks, slides, now)
        check_holders(table, holders)
        check(table)


def test_a_slide_that_ends_takes_the_oldest_rows_with_it():
    loads = sliding_loads(2, slides=2)
    for time in range(0, 40, 10):
        advance(loads, 10, time)
        loads.totals[0] += 1 + time // 10
    assert loads.totals.tolist() == [3 + 4, 0]


def test_a_long_pause_empties_the_window():
    loads = sliding_loads(2, slides=60)
    advance(loads, 1_000, 0)
    loads.totals[:] = 500
    advance(loads, 1_000, 10**15)
    assert loads.totals.tolist() == [0, 0]


@pytest.mark.parametrize("slide", [1, 1_000])
def test_the_first_and_the_last_moment_there_are_can_be_told_apart(slide):
    first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    loads = sliding_loads(1, slides=3)
    for time in (first, last, last):
        advance(loads, slide, time)
        loads.totals[0] += 1
    assert loads.totals.tolist() == [2]


def test_memory_follows_the_window_and_not_the_stream():
    table, holders = key_table(64), no_holders(BLOCKS, 64)
    for now in range(2_000):
        expire(table, holders, now - 9)
        for key in range(3 * now, 3 * now + 3):
            hold(*holders, slot_of(*table, key), key % BLOCKS, now)
    check_holders(table, holders)
    assert len(held(table, holders)) == 30
    assert node_of(*holders[:2], slot_of(*table, 5_999), 5_999 % BLOCKS) >= 0
