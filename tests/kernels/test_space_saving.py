"""SpaceSaving keeps what its authors promise (Metwally, Agrawal, El Abbadi 2005, section 3)."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.key_table import check
from steelyard.kernels.space_saving import entries, observe, summary
from tests.kernels.twins.space_saving import observe_plain

KEYS = st.lists(st.integers(-4, 12) | st.sampled_from([-(2**63), 2**63 - 1]), max_size=120)


def seen(keys, counters):
    table, top = summary(counters)
    for key in keys:
        observe(*table, *top, key)
    check(table)
    return entries(table, top)


@settings(deadline=None, max_examples=100)
@given(keys=KEYS, counters=st.integers(1, 9))
def test_the_compiled_summary_equals_the_plain_one(keys, counters):
    table, top = summary(counters)
    plain = []
    for key in keys:
        assert observe(*table, *top, key) == observe_plain(plain, counters, key)
        assert entries(table, top) == plain


def assert_promises(keys, counters):
    true, found = Counter(keys), seen(keys, counters)
    counts = [count for _, count, _ in found]
    assert sum(counts) == len(keys)
    assert counts == sorted(counts, reverse=True)
    for key, count, error in found:
        assert count - error <= true[key] <= count
        assert count - true[key] <= len(keys) / counters
    listed = {key for key, _, _ in found}
    assert all(key in listed for key, rows in true.items() if rows > len(keys) / counters)


@settings(deadline=None, max_examples=100)
@given(keys=KEYS, counters=st.integers(1, 9))
def test_counts_are_never_too_low_and_too_high_by_a_counters_share_at_most(keys, counters):
    assert_promises(keys, counters)


def test_the_promises_hold_over_a_long_skewed_stream():
    ranks = np.random.default_rng(5).zipf(1.3, 20_000)
    assert_promises(np.minimum(ranks, 10**6).tolist(), 100)


def test_few_keys_are_counted_exactly():
    assert seen([1, 2, 1, 3, 1, 2], 3) == [(1, 3, 0), (2, 2, 0), (3, 1, 0)]
