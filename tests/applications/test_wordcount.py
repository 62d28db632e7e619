"""The states of word counts, without Spark."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from steelyard.applications import WordCounts
from steelyard.applications.wordcount import one_word_a_row

COUNTS = WordCounts()
TEXTS = st.lists(st.none() | st.text("ab \t\nü", max_size=12), max_size=6)


def added(texts):
    return COUNTS.add(COUNTS.zero(), pa.array(texts, pa.string()))


def counted(texts):
    """What `str.split` says; the letters that texts are drawn from have no white space but ASCII's."""
    return sorted(Counter(word for text in texts for word in (text or "").split()).items())


@given(TEXTS)
def test_every_word_counts_from_the_first_on(texts):
    assert COUNTS.finish(added(texts)) == counted(texts)


@given(TEXTS, TEXTS)
def test_two_slices_merge_into_the_whole_and_either_can_be_taken_away_again(one, two):
    left, right = added(one), added(two)
    whole = COUNTS.merge(left, right)
    assert whole == COUNTS.merge(right, left) == added(one + two)
    assert COUNTS.subtract(whole, right) == left
    assert COUNTS.subtract(whole, whole) == COUNTS.zero()


@given(TEXTS)
def test_each_word_has_the_time_of_its_text(texts):
    times = list(range(len(texts)))
    rows = pa.RecordBatch.from_arrays([pa.array(texts, pa.string()), pa.array(times, pa.int64())], names=["t", "at"])
    cut = one_word_a_row(rows, text="t", time="at")
    expected = [(word, at) for text, at in zip(texts, times, strict=True) for word in (text or "").split()]
    assert list(zip(*(column.to_pylist() for column in cut.columns), strict=True)) == expected
