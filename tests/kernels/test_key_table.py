"""Keys to dense slots: the table is a dictionary, whatever is put in, taken out and put in again."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.key_table import LIVE, check, find, grown, is_full, key_table, remove, slot_of

KEYS = st.one_of(st.integers(-6, 6), st.sampled_from([-(2**63), 2**63 - 1]), st.integers(-(2**63), 2**63 - 1))


@settings(deadline=None, max_examples=100)
@given(steps=st.lists(st.tuples(st.booleans(), KEYS), max_size=80), room=st.integers(0, 5))
def test_a_table_is_a_dictionary_that_gives_slots_back(steps, room):
    table, slots = key_table(room), {}
    for put, key in steps:
        if put:
            if key not in slots and is_full(table.ids, table.header):
                assert slot_of(*table, key) == -1
                table = grown(table)
            slot = slot_of(*table, key)
            assert slots.setdefault(key, slot) == slot
        else:
            assert remove(*table, key) == slots.pop(key, -1)
        check(table)
        assert len(set(slots.values())) == len(slots) == table.header[LIVE]
        assert find(*table[:2], key) == slots.get(key, -1)


def test_slots_stay_dense_while_keys_come_and_go():
    table = key_table(8)
    for key in range(10_000):
        assert 0 <= slot_of(*table, key) < 8
        if key >= 7:
            remove(*table, key - 7)
    check(table)


def test_keys_that_share_all_their_low_bits_are_told_apart():
    table = key_table(64)
    keys = np.arange(64) << 40
    assert [slot_of(*table, key) for key in keys] == list(range(64))
    assert [find(*table[:2], key) for key in keys] == list(range(64))
