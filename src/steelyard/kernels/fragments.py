"""Between rows and plans: counting rows into fragments, and sending rows along them."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.key_table import LIVE, Slots, grown, key_table, longer, slot_of

Ints = np.ndarray[Any, np.dtype[np.int64]]

_FIRST_ROOM = 1 << 10


def number_keys(keys: Ints) -> tuple[Ints, Ints, Slots]:
    """Distinct ids in order of appearance, rows of each, and the number of each row's id.

    >>> ids, rows, numbers = number_keys(np.array([7, -1, 7]))
    >>> ids.tolist(), rows.tolist(), numbers.tolist()
    ([7, -1], [2, 1], [0, 1, 0])
    """
    keys = np.ascontiguousarray(keys, dtype=np.int64)
    numbers = np.empty(len(keys), np.int32)
    table = key_table(_FIRST_ROOM)
    rows = np.zeros(_FIRST_ROOM, np.int64)
    done = _number(keys, 0, *table, rows, numbers)
    while done < len(keys):
        table = grown(table)
        rows = longer(rows, len(table.ids))
        done = _number(keys, done, *table, rows, numbers)
    used = int(table.header[LIVE])
    return table.ids[:used].copy(), rows[:used].copy(), numbers


@njit(nogil=True)
def _number(keys: Ints, first: int, cells: Slots, ids: Ints, header: Ints, rows: Ints, numbers: Slots) -> int:
    for i in range(first, len(keys)):
        slot = slot_of(cells, ids, header, keys[i])
        if slot < 0:
            return i
        rows[slot] += 1
        numbers[i] = slot
    return len(keys)


@njit()
def tally(block: Slots, laid: Ints, rows: Ints, blocks: int) -> tuple[Ints, Ints, Ints]:
    """(key, block, rows) of each fragment, from a sample of rows that stand key after key.

    `laid[k]` rows of key k were sent to blocks; its `rows[k]` rows are divided in the same proportion, what
    rounding leaves going to the largest remainders, the first block of equals. Fragments of a key come in the
    order in which blocks were first used.
    """
    room = len(block)  # a fragment has at least one row of the sample
    key_of, block_of, rows_of = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    sent = np.zeros(blocks, np.int64)
    used, first = 0, 0
    for key in range(len(laid)):
        sample = laid[key]
        begun = used
        for i in range(first, first + sample):
            if sent[block[i]] == 0:
                block_of[used] = block[i]
                used += 1
            sent[block[i]] += 1
        first += sample
        left = rows[key] if sample > 0 else np.int64(0)
        for at in range(begun, used):
            key_of[at] = key
            rows_of[at] = _share(rows[key], sent[block_of[at]], sample)
            left -= rows_of[at]
        for _ in range(left):
            best, most = begun, np.int64(-1)
            for at in range(begun, used):
                # A fragment that was rounded up has its remainder behind it: -1 in place of sent.
                number = sent[block_of[at]]
                remainder = (rows[key] % sample) * number % sample if number > 0 else np.int64(-1)
                if remainder > most or (remainder == most and block_of[at] < block_of[best]):
                    best, most = at, remainder
            rows_of[best] += 1
            sent[block_of[best]] = -1
        for at in range(begun, used):
            sent[block_of[at]] = 0
    kept = np.flatnonzero(rows_of[:used] > 0)
    return key_of[kept], block_of[kept], rows_of[kept]


@njit(inline="always")
def _share(whole: int, part: int, sample: int) -> int:
    """floor(whole * part / sample), where the product may be beyond 64 bits."""
    return whole // sample * part + (whole % sample) * part // sample


@njit(nogil=True)
def follow(numbers: Slots, starts: Ints, block: Slots, rows: Ints) -> Slots:
    """The block of each row: the first rows of a key go to its first fragment, until that is full, and so on.

    Fragments of key k are `starts[k]` to `starts[k + 1]`.
    """
    fragment = starts[:-1].copy()
    left = rows[starts[:-1]].copy()
    where = np.empty(len(numbers), np.int32)
    for i in range(len(numbers)):
        key = numbers[i]
        if left[key] == 0:
            fragment[key] += 1
            left[key] = rows[fragment[key]]
        left[key] -= 1
        where[i] = block[fragment[key]]
    return where


@njit(nogil=True)
def in_order(block: Slots, blocks: int) -> tuple[Ints, Ints]:
    """Rows block after block, each block's in their order, and how many each has."""
    sizes = np.zeros(blocks, np.int64)
    for row in range(len(block)):
        sizes[block[row]] += 1
    after = np.cumsum(sizes) - sizes
    rows = np.empty(len(block), np.int64)
    for row in range(len(block)):
        at = block[row]
        rows[after[at]] = row
        after[at] += 1
    return rows, sizes
