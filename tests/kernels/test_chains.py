"""Linked lists in arrays: the compiled loops find what the plain twin finds."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steelyard.kernels.chains import link, matches
from tests.kernels.twins.chains import matches_plain

slots = st.lists(st.integers(0, 5), max_size=30)


@given(st.lists(slots, max_size=4), slots)
def test_all_rows_of_a_key_are_found_newest_first(added, asked):
    newest, length = np.full(6, -1), np.zeros(6, np.int64)
    before = np.empty(sum(map(len, added)), np.int64)
    rows_of, first = defaultdict(list), 0
    for batch in added:
        link(np.array(batch, np.int64), first, newest, before, length)
        for row, slot in enumerate(batch, first):
            rows_of[slot].append(row)
        first += len(batch)
    wanted = np.array(asked, np.int64)
    total = int(length[wanted].sum())
    asking, found = np.empty(total, np.int64), np.empty(total, np.int64)
    matches(wanted, newest, before, asking, found)
    assert list(zip(asking.tolist(), found.tolist(), strict=True)) == matches_plain(wanted, rows_of)
