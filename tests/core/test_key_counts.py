"""Key counts: how they are made, cut to the frequent keys, and refused."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import KeyCounts

WORDS = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä", "zz"])), max_size=40)


def test_keys_without_rows_are_left_out():
    assert KeyCounts.of({"a": 5, "b": 0, "c": 1}).to_dict() == {"a": 5, "c": 1}


def test_the_total_counts_the_tail_too():
    counts = KeyCounts(pa.array(["a"]), np.array([5]), tail_rows=10, tail_keys=4)
    assert (counts.total, len(counts), counts.distinct) == (15, 1, 5)


def test_no_keys_are_no_rows():
    counts = KeyCounts.of({})
    assert (counts.total, len(counts), counts.distinct, counts.to_dict()) == (0, 0, 0, {})
    assert repr(counts) == "KeyCounts(0 keys, 0 rows)"


def test_the_repr_names_the_hottest_key_and_the_tail():
    counts = KeyCounts(pa.array(["a", "b"]), np.array([1, 6]), tail_rows=3, tail_keys=2)
    assert repr(counts) == "KeyCounts(2 keys, 10 rows, hottest 'b' with 60.0 %, tail 2 keys 3 rows)"


@pytest.mark.parametrize(
    ("keys", "rows", "tail", "told"),
    [
        (["a", "b"], [1], {}, "one number per key"),
        (["a"], [[1]], {}, "one number per key"),
        (["a", "b"], [1, 0], {}, "at least one row, got 0"),
        (["a"], [-2], {}, "at least one row, got -2"),
        (["a"], [1], {"tail_rows": -1}, "cannot be negative"),
        (["a"], [1], {"tail_keys": -1}, "cannot be negative"),
    ],
)
def test_counts_that_cannot_be_are_refused(keys, rows, tail, told):
    with pytest.raises(ValueError, match=told):
        KeyCounts(pa.array(keys), np.array(rows), **tail)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (float("nan"), "key 'b' has nan rows, which is no count"),
        (float("inf"), "key 'b' has inf rows, which is no count"),
        (3.7, r"key 'b' has 3\.7 rows, which is no count"),
        (2.0**63, "key 'b' has 9.2233720368.* rows, which is no count"),
        ("3", "rows must be numbers"),
        (None, "rows must be numbers"),
    ],
)
def test_what_is_no_count_is_refused_by_its_key_before_it_is_cast(wrong, told):
    for rows in ([2, wrong], np.array([2, wrong])):
        with pytest.raises(ValueError, match=told):
            KeyCounts(pa.array(["a", "b"]), rows)
    if wrong is not None:  # which is no rows at all
        with pytest.raises(ValueError, match=told):
            KeyCounts.of({"a": 2, "b": wrong})


def test_whole_numbers_of_any_type_are_counts():
    for kind in (np.float64, np.float32, np.uint8, np.int32, np.uint64):
        counts = KeyCounts(pa.array(["a", "b"]), np.array([2, 3], kind))
        assert counts.rows.dtype == np.int64
        assert counts.rows.tolist() == [2, 3]


def test_a_negative_count_in_a_dictionary_is_refused():
    with pytest.raises(ValueError, match="at least one row, got -3"):
        KeyCounts.of({"a": -3, "b": 1})


@settings(deadline=None, max_examples=50)
@given(words=WORDS)
def test_rows_are_counted_in_every_form_of_a_column(words):
    plain = pa.array(words, pa.string())
    expected = dict(Counter(word for word in words if word is not None))
    half = len(words) // 2
    for column in (
        plain,
        plain.cast(pa.large_string()),
        plain.dictionary_encode(),
        pa.chunked_array([plain[:half], plain[half:]], pa.string()),
        pa.array([None, "b", *words], pa.string())[2:],
    ):
        assert KeyCounts.from_rows(column).to_dict() == expected


def test_a_dictionary_column_is_counted_by_value():
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 3, 3]), pa.array(["a", "a", "unused", None]))
    assert KeyCounts.from_rows(twice).to_dict() == {"a": 2}


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(
        st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "city": st.sampled_from(["x", "y", None]),
                    "at": st.fixed_dictionaries({"lane": st.integers(0, 2), "side": st.booleans()}),
                }
            ),
        ),
        max_size=30,
    )
)
def test_rows_of_several_key_columns_are_counted(rows):
    kind = pa.struct([("city", pa.string()), ("at", pa.struct([("lane", pa.int64()), ("side", pa.bool_())]))])
    counts = KeyCounts.from_rows(pa.array(rows, kind))
    shown = zip(counts.keys.to_pylist(), counts.rows.tolist(), strict=True)
    expected = Counter(json.dumps(row, sort_keys=True) for row in rows if row is not None)
    assert [(json.dumps(key, sort_keys=True), number) for key, number in shown] == list(expected.items())


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_are_one_key_and_so_are_nans_as_in_spark(kind):
    bits = np.array([0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + (1 << 40)], np.uint64)
    nans = pa.array(bits.view(np.float64), from_pandas=False).cast(kind)
    column = pa.concat_arrays([pa.array([0.0, -0.0, None, 1.5], kind), nans])
    for keys in (column, pa.StructArray.from_arrays([column], names=["x"], mask=column.is_null())):
        counts = KeyCounts.from_rows(keys)
        assert counts.rows.tolist() == [2, 1, 3]
        assert "-0.0" not in str(counts.to_dict() if keys is column else counts.keys.to_pylist())


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(st.integers(1, 9), max_size=20), n=st.integers(0, 25), tail=st.integers(0, 5))
def test_the_top_keeps_the_frequent_and_loses_no_row(rows, n, tail):
    counts = KeyCounts(pa.array(range(len(rows)), pa.int64()), np.array(rows, np.int64), tail * 2, tail)
    top = counts.top(n)
    assert (top.total, top.distinct) == (counts.total, counts.distinct)
    assert sorted(top.rows.tolist(), reverse=True) == sorted(rows, reverse=True)[:n]
    assert top.to_dict().items() <= counts.to_dict().items()


def test_ties_at_the_edge_of_the_top_keep_the_order_of_the_list():
    assert KeyCounts.of({"a": 1, "b": 2, "c": 2, "d": 2}).top(2).to_dict() == {"b": 2, "c": 2}


def test_a_negative_top_is_refused():
    with pytest.raises(ValueError, match="-1 most frequent"):
        KeyCounts.of({"a": 1, "b": 2}).top(-1)


def test_counts_survive_pickling():
    counts = pickle.loads(pickle.dumps(KeyCounts.of({"a": 5, "b": 2})))
    assert (counts.to_dict(), counts.total) == ({"a": 5, "b": 2}, 7)
