"""Key statistics of a stream: a table of keys with open addressing, and the count-min sketch.

The table has one entry a key, so that a row costs one probe for all that is known of its key. Frequencies belong
to a statistics interval without being cleared at its end: an entry holds `base + frequency`, where `base` is the
number of rows before the interval. Whatever an earlier interval left is at most `base`, and so counts as none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.mixing import mix
from steelyard.kernels.prefetch import prefetch

Ints = np.ndarray[Any, np.dtype[np.int64]]
Table = Any
"""An array of ENTRY; NumPy's types know no fields."""
Int = Any
"""An int, or a NumPy integer: in compiled code there is no difference."""

ENTRY = np.dtype(
    [
        ("key", np.int64),
        ("stamp", np.int64),  # base + frequency in the interval of the key's last row
        ("seen", np.int64),  # slide of the key's last row in its hash block
        ("home", np.int32),  # the hash block; VACANT where the slot has no key
        ("row", np.int32),  # the key's row in the bandit, or NO_ROW
    ],
    align=True,
)
VACANT = -1
NO_ROW, NOBODY = -1, -2
"""In place of a row: the key has none, or the slot has no key."""
NEVER = -(1 << 62)
"""A slide before all others."""

SMALLEST_TABLE = 1 << 10
FILL = 2
"""A table has at least so many slots a key."""
ROOM = 6
"""A table is rebuilt for at least so many slots a living key, so that rebuilding is rare."""

SKETCH_SEED = 33


def empty_table(slots: int = SMALLEST_TABLE) -> Table:
    """A table without keys; `slots` is a power of two."""
    table = np.empty(slots, ENTRY)
    _clear(table)
    return table


@njit()
def _clear(table: Table) -> None:
    for slot in range(len(table)):
        table[slot].key = 0
        table[slot].stamp = 0
        table[slot].seen = 0
        table[slot].home = VACANT
        table[slot].row = NOBODY


def slots_for(keys: int) -> int:
    """How many slots a table is given for so many living keys.

    >>> slots_for(0), slots_for(10_000)
    (1024, 65536)
    """
    slots = SMALLEST_TABLE
    while slots < ROOM * keys:
        slots *= 2
    return slots


@njit()
def shift_of(table: Table) -> Int:
    """How far a 64-bit hash is shifted to be a slot of this table."""
    bits = 0
    while (1 << bits) < len(table):
        bits += 1
    return np.uint64(64 - bits)


@njit(inline="always")
def first_slot(shift: Int, key: Int) -> Int:
    """The first of the two slots where a key is looked for first; they are beside each other in memory."""
    return np.int64(((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> shift) & ~np.uint64(1))


@njit()
def fetch(table: Table, shift: Int, keys: Any, start: Int, stop: Int) -> None:
    """Ask for the slots of the keys from row `start` to before `stop`, to have them near when their turn comes."""
    for i in range(np.uint64(start), np.uint64(stop)):
        prefetch(table, np.uint64(first_slot(shift, keys[i])))


@njit()
def guess(table: Table, shift: Int, keys: Any, start: Int, stop: Int, slots: Any) -> None:
    """Where the keys from row `start` to before `stop` stand, if in one of their first two slots: mostly so.

    There is no branch in it, so that the processor waits for many slots at once.
    """
    for i in range(np.uint64(start), np.uint64(stop)):
        first = np.uint64(first_slot(shift, keys[i]))
        slots[i - np.uint64(start)] = first + np.uint64(table[first].key != keys[i])


@njit(inline="always")
def find(table: Table, shift: Int, key: Int) -> Int:
    """The slot of a key: where it stands, or the vacant slot where it would."""
    mask = len(table) - 1
    slot = first_slot(shift, key)
    while table[slot].key != key and table[slot].home != VACANT:
        slot = (slot + 1) & mask
    # a vacant slot may hold the key by its zero bytes, or from before a sweep: it is still the right place for it
    return slot


@njit(forceinline=True)
def settle(table: Table, slot: Int, key: Int, blocks: Int) -> None:
    """Put a new key into its slot, which is vacant or of a key that left the window."""
    table[slot].key = key
    table[slot].stamp = 0
    table[slot].seen = NEVER
    table[slot].home = key % blocks
    table[slot].row = NO_ROW


@njit()
def transfer(old: Table, new: Table, base: Int, gone: Int) -> Int:
    """Copy the keys that still matter and give their number.

    Those are the keys with a frequency above `base`, a row in the bandit, or rows in slides after `gone`.
    """
    shift = shift_of(new)
    kept = 0
    for slot in range(len(old)):
        entry = old[slot]
        if entry.home != VACANT and (entry.stamp > base or entry.row != NO_ROW or entry.seen > gone):
            new[find(new, shift, entry.key)] = entry
            kept += 1
    return kept


@njit()
def sweep(table: Table, base: Int, gone: Int) -> Int:
    """Take out the keys that no longer matter, as `transfer` says which, and give the number of the others.

    Behind a vacant slot, every key is taken out and settled again if it matters: it then stands where it stood, or
    nearer to where its search begins.
    """
    shift, mask = shift_of(table), np.uint64(len(table) - 1)
    slot = np.uint64(0)
    while table[slot].home != VACANT:
        slot += np.uint64(1)
    kept = 0
    for _ in range(len(table)):
        slot = (slot + np.uint64(1)) & mask
        home = table[slot].home
        if home == VACANT:
            continue
        key, stamp, seen, row = table[slot].key, table[slot].stamp, table[slot].seen, table[slot].row
        table[slot].home, table[slot].row = VACANT, NOBODY
        if stamp > base or row != NO_ROW or seen > gone:
            nearer = np.uint64(first_slot(shift, key))
            while table[nearer].home != VACANT:
                nearer = (nearer + np.uint64(1)) & mask
            table[nearer].key, table[nearer].stamp, table[nearer].seen = key, stamp, seen
            table[nearer].home, table[nearer].row = home, row
            kept += 1
    return kept


@njit()
def top(table: Table, base: Int, wanted: Int) -> tuple[Ints, Ints]:
    """The slots of the `wanted` most frequent keys of the interval, hottest first, and their frequencies.

    Of equally frequent keys the smaller goes first, so that the answer does not depend on where keys stand.
    """
    slots = np.empty(wanted, np.int64)
    found = 0
    for slot in range(len(table)):
        stamp, key = table[slot].stamp, table[slot].key
        if table[slot].home == VACANT or stamp <= base or wanted == 0:
            continue
        place = found
        while place > 0 and (
            table[slots[place - 1]].stamp < stamp
            or (table[slots[place - 1]].stamp == stamp and table[slots[place - 1]].key > key)
        ):
            place -= 1
        if place == wanted:
            continue
        found = min(found + 1, wanted)
        for i in range(found - 1, place, -1):
            slots[i] = slots[i - 1]
        slots[place] = slot
    counts = np.empty(found, np.int64)
    for i in range(found):
        counts[i] = table[slots[i]].stamp - base
    return slots[:found], counts


@njit()
def sketch_add(sketch: Ints, key: Int) -> Int:
    """Count one row of a key in a count-min sketch, int64[depth, width], and give its estimated frequency.

    The estimate is never below the true frequency, nor above the number of rows in the sketch.
    """
    depth, width = sketch.shape
    estimate = np.int64(0)
    for line in range(depth):
        hashed = mix(key, SKETCH_SEED + line) >> np.uint64(32)
        column = np.int64((hashed * np.uint64(width)) >> np.uint64(32))
        sketch[line, column] += 1
        if line == 0 or sketch[line, column] < estimate:
            estimate = sketch[line, column]
    return estimate


@njit()
def count_rows(table: Table, keys: Ints, start: Int, base: Int) -> Int:
    """Count keys exactly from row `start` on, until the table is full; gives the row where it stopped."""
    shift = shift_of(table)
    used = 0
    for slot in range(len(table)):
        used += table[slot].home != VACANT
    for i in range(start, len(keys)):
        slot = find(table, shift, keys[i])
        if table[slot].home == VACANT:
            if used * FILL >= len(table):
                return i
            settle(table, slot, keys[i], 1)
            used += 1
        table[slot].stamp = max(table[slot].stamp, base) + 1
    return len(keys)


@njit()
def sketch_rows(sketch: Ints, keys: Ints) -> None:
    """Count keys in a count-min sketch."""
    for key in keys:
        sketch_add(sketch, key)


class ExactCounts:
    """Exact frequencies in a table that grows; what the `map` statistics cost, measured alone.

    Examples
    --------
    >>> counts = ExactCounts()
    >>> counts.add(np.array([5, -1, 5]))
    >>> counts.to_dict()
    {5: 2, -1: 1}
    """

    def __init__(self) -> None:
        self._table = empty_table()

    def add(self, keys: Ints) -> None:
        """Count one row a key."""
        rows = np.ascontiguousarray(keys, dtype=np.int64)
        done = count_rows(self._table, rows, 0, 0)
        while done < len(rows):
            grown = empty_table(2 * len(self._table))
            transfer(self._table, grown, 0, 0)
            self._table = grown
            done = count_rows(self._table, rows, done, 0)

    def to_dict(self) -> dict[int, int]:
        """Frequencies by key, the hottest first."""
        held = self._table[self._table["home"] != VACANT]
        order = np.lexsort((held["key"], -held["stamp"]))
        return dict(zip(held["key"][order].tolist(), held["stamp"][order].tolist(), strict=True))
