"""Keys as numbers: one number per key, whatever its type, and the same every time."""

import math

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from steelyard.resident.keys import KeyIndex, distinct

texts = st.lists(st.one_of(st.none(), st.sampled_from("abc")), min_size=1, max_size=20)


@given(st.lists(texts, max_size=4))
def test_a_key_keeps_its_number_and_no_other_key_has_it(batches):
    index, slot_of = KeyIndex(), {}
    for batch in batches:
        for key, slot in zip(batch, index.slots([pa.array(batch, pa.string())]).tolist(), strict=True):
            assert slot_of.setdefault(key, slot) == slot
    assert len(set(slot_of.values())) == len(slot_of) == len(index)


@given(texts)
def test_rows_have_one_code_where_all_their_columns_agree(found):
    other = [len(text or "") for text in found]
    codes, first = distinct([pa.array(found, pa.string()), pa.array(other)])
    pairs = list(zip(found, other, strict=True))
    for i, pair in enumerate(pairs):
        assert pairs[first[codes[i]]] == pair
    assert len(first) == len(set(pairs))


def test_all_nans_are_one_key_and_so_are_both_zeros():
    column = pa.array([math.nan, -math.nan, 0.0, -0.0, 1.5])
    assert KeyIndex().slots([column]).tolist() == [0, 0, 1, 1, 2]
