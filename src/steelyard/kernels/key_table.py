"""A table from 64-bit key ids to dense slots, by open addressing, for compiled loops.

Values live with the caller, in arrays as long as `KeyTable.ids`, at the key's slot. A loop that fills the table
stops at the row that finds it full; Python makes it wider with `grown` and calls the loop again from there.

Compiled functions take the arrays of a table one by one (`slot_of(*table, key)`): a tuple that is taken apart in
a loop has its arrays' reference counts changed for every row, which costs more than the search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.mixing import mix

Ints = np.ndarray[Any, np.dtype[np.int64]]
Slots = np.ndarray[Any, np.dtype[np.int32]]

NONE = -1
"""No slot, no cell, no next."""
USED, FREE, LIVE = 0, 1, 2
"""Positions in `KeyTable.header`."""


class KeyTable(NamedTuple):
    """Keys and their slots. Half of the cells stay empty, so a search is short."""

    cells: Slots
    """int32[a power of two, at least twice the slots]: the slot of a key at or behind its hash, or -1."""
    ids: Ints
    """int64[slots]: the key of each slot; in a slot that was given back, the next such slot."""
    header: Ints
    """int64[3]: slots that were ever used, the first that was given back (or -1), keys in the table."""


def key_table(slots: int) -> KeyTable:
    """An empty table with room for so many keys.

    >>> table = key_table(4)
    >>> slot_of(*table, -7), slot_of(*table, 12), slot_of(*table, -7), find(*table[:2], 99)
    (0, 1, 0, -1)
    """
    cells = 1 << max(2, (2 * slots - 1).bit_length())
    return KeyTable(np.full(cells, NONE, np.int32), np.zeros(slots, np.int64), np.array([0, NONE, 0], np.int64))


@njit()
def find(cells: Slots, ids: Ints, key: int) -> int:
    """The slot of a key, or -1."""
    mask = len(cells) - 1
    cell = np.int64(mix(key, 0)) & mask
    while cells[cell] != NONE:
        if ids[cells[cell]] == key:
            return int(cells[cell])
        cell = (cell + 1) & mask
    return NONE


@njit(inline="always")
def is_full(ids: Ints, header: Ints) -> bool:
    """Whether `slot_of` has no slot for a new key."""
    return bool(header[FREE] == NONE and header[USED] == len(ids))


@njit()
def slot_of(cells: Slots, ids: Ints, header: Ints, key: int) -> int:
    """The slot of a key, which is given one if it has none; -1 where the table is full.

    Slots that were given back are used again first, the last one first.
    """
    mask = len(cells) - 1
    cell = np.int64(mix(key, 0)) & mask
    while cells[cell] != NONE:
        if ids[cells[cell]] == key:
            return int(cells[cell])
        cell = (cell + 1) & mask
    slot = header[FREE]
    if slot != NONE:
        header[FREE] = ids[slot]
    elif header[USED] < len(ids):
        slot = header[USED]
        header[USED] += 1
    else:
        return NONE
    cells[cell] = slot
    ids[slot] = key
    header[LIVE] += 1
    return int(slot)


@njit()
def remove(cells: Slots, ids: Ints, header: Ints, key: int) -> int:
    """Take a key out and give its slot back; the slot, or -1 where the key was not there.

    Keys behind it move up to fill the hole, so that no search meets a gap (Knuth, volume 3, section 6.4,
    algorithm R): nothing is left to clean up later.
    """
    mask = len(cells) - 1
    hole = np.int64(mix(key, 0)) & mask
    while cells[hole] != NONE and ids[cells[hole]] != key:
        hole = (hole + 1) & mask
    slot = cells[hole]
    if slot == NONE:
        return NONE
    cell = (hole + 1) & mask
    while cells[cell] != NONE:
        start = np.int64(mix(ids[cells[cell]], 0)) & mask
        if (cell - start) & mask >= (cell - hole) & mask:
            cells[hole] = cells[cell]
            hole = cell
        cell = (cell + 1) & mask
    cells[hole] = NONE
    ids[slot] = header[FREE]
    header[FREE] = slot
    header[LIVE] -= 1
    return int(slot)


def grown(table: KeyTable) -> KeyTable:
    """The same keys in the same slots, with room for twice as many.

    >>> table = key_table(1)
    >>> slot_of(*table, 5), slot_of(*table, 6), slot_of(*grown(table), 6)
    (0, -1, 1)
    """
    wider = key_table(2 * max(1, len(table.ids)))
    wider.ids[: len(table.ids)] = table.ids
    wider.header[:] = table.header
    _place(table.cells, wider.cells, wider.ids)
    return wider


@njit()
def _place(old: Slots, cells: Slots, ids: Ints) -> None:
    mask = len(cells) - 1
    for slot in old:
        if slot != NONE:
            cell = np.int64(mix(ids[slot], 0)) & mask
            while cells[cell] != NONE:
                cell = (cell + 1) & mask
            cells[cell] = slot


def longer(array: Any, length: int, fill: int = 0) -> Any:
    """A copy with so many rows, the new ones filled: for what a caller keeps beside a table.

    >>> longer(np.array([4, 5]), 3, fill=-1).tolist()
    [4, 5, -1]
    """
    wider = np.full((length, *array.shape[1:]), fill, array.dtype)
    wider[: len(array)] = array
    return wider


def check(table: KeyTable) -> None:
    """Raise AssertionError unless every key is found in its own slot and every other slot can be given out."""
    slots = table.cells[table.cells != NONE]
    assert len(slots) == table.header[LIVE], f"{len(slots)} keys in cells, {table.header[LIVE]} counted"
    assert len(set(slots.tolist())) == len(slots), "a slot stands in two cells"
    for slot in slots.tolist():
        assert find(table.cells, table.ids, table.ids[slot]) == slot, (
            f"key {table.ids[slot]} is not found in slot {slot}"
        )
    given_back, slot = set(), int(table.header[FREE])
    while slot != NONE:
        given_back.add(slot)
        slot = int(table.ids[slot])
    assert given_back | set(slots.tolist()) == set(range(int(table.header[USED]))), "a slot is lost"
