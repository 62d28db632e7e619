"""PartLy's decisions with trained weights: `partition.learned` step by step, or a wave of keys at a time, in one loop.

What a decision is made from is written out in `partition/learned/features.py`; here are the same numbers in the same
order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]
Reals = np.ndarray[Any, np.dtype[np.float32]]

BLOCK_FEATURES, WHOLE_FEATURES = 6, 15
WHOLE, FILL, LATER = range(3)


@njit(inline="always")
def _squash(value: float) -> float:
    return value / (1.0 + abs(value))


@njit(fastmath=True)
def _hidden(features: Reals, first: Reals, offsets: Reals, into: Reals) -> None:
    """What the batch's own features give to the hidden layer: the same for all blocks."""
    for unit in range(len(offsets)):
        into[unit] = offsets[unit]
    for feature in range(WHOLE_FEATURES):
        value = features[feature]
        for unit in range(len(offsets)):
            into[unit] += value * first[BLOCK_FEATURES + feature, unit]


@njit(fastmath=True)
def _score(
    load: Ints,
    card: Ints,
    holds: Ints,
    rest: int,
    capacity: int,
    means: Reals,
    common: Reals,
    first: Reals,
    last: Reals,
    last_offsets: Reals,
    kinds: int,
    found: Reals,
) -> None:
    """found[blocks, kinds]: the network's answer for every block, of the first `kinds` kinds."""
    mean_load, mean_card, mean_key = means[0], means[1], means[2]
    size, own = np.float32(capacity), np.float32(max(rest, 1))
    hidden = np.empty(len(common), np.float32)
    for j in range(len(load)):
        hole, away = size - load[j], load[j] - mean_load
        f0 = np.float32(min(max(hole / size, -1.0), 1.0))
        f1 = np.float32(min(max(hole / own, -1.0), 2.0) / 2)
        f2 = np.float32(_squash(away / own))
        f3 = np.float32(_squash(card[j] - mean_card))
        f4 = np.float32(holds[j])
        f5 = np.float32(_squash(away / mean_key))
        for unit in range(len(common)):
            value = (
                common[unit]
                + f0 * first[0, unit]
                + f1 * first[1, unit]
                + f2 * first[2, unit]
                + f3 * first[3, unit]
                + f4 * first[4, unit]
                + f5 * first[5, unit]
            )
            hidden[unit] = max(value, np.float32(0))
        for kind in range(kinds):
            total = last_offsets[kind]
            for unit in range(len(common)):
                total += hidden[unit] * last[kind, unit]
            found[j, kind] = total


@njit()
def decide(  # noqa: PLR0912, PLR0915 - one loop, as it is compiled
    rows: Ints,
    blocks: int,
    first: Reals,
    offsets: Reals,
    last: Reals,
    last_offsets: Reals,
    waves: bool,
    patience: float,
) -> tuple[Ints, Ints, Ints, float, float]:
    """Key (position in `rows`), block and rows of each fragment; `rows` are counts in descending order.

    With `waves`, a decision to place a key whole is one for the next keys too, as many as there are blocks: the blocks'
    scores are put in order, and each gets one key. `last` is [kinds, hidden]. `patience` is added to the score of
    putting a key off. The last numbers are of what was made: what its sizes cost, and all of it,
    `BlockPlan.mpi_normalised`.
    """
    keys, total = len(rows), rows.sum()
    capacity = -(-total // blocks)
    mean_key = total / keys
    load, card = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    holds = np.zeros(blocks, np.int64)
    room = keys + 2 * blocks + 16
    which, where, put = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    later = np.empty(keys, np.int64)
    found = np.empty((blocks, 3), np.float32)
    common, whole = np.empty(len(offsets), np.float32), np.empty(WHOLE_FEATURES, np.float32)
    means = np.empty(3, np.float32)
    used, waiting, reached, held, placed, fragments = 0, 0, 0, 0, 0, 0
    left_rows, index, rest = total, 0, rows[0]
    while True:
        most, least, holes = load[0], load[0], 0
        for j in range(blocks):
            most, least = max(most, load[j]), min(least, load[j])
            holes += max(capacity - load[j], 0)
        first_pass = reached < keys
        mean_load = placed / blocks
        means[0], means[1], means[2] = mean_load, fragments / blocks, mean_key
        left = keys - reached
        whole[0] = min(rest / capacity, 2.0)
        whole[1] = _squash(math.log(rest / mean_key))
        whole[2] = 0.0 if first_pass else 1.0
        whole[3] = left / keys
        whole[4] = _squash(left / blocks / 8)
        whole[5] = held / total
        whole[6] = _squash(waiting / blocks)
        whole[7] = holes / (blocks * capacity)
        whole[8] = min((most - mean_load) / capacity, 2.0)
        whole[9] = _squash(8 * left_rows / max(left, 1) / capacity)
        whole[10] = _squash((capacity - least) / rest - 1)
        whole[11] = math.log(blocks) / 5
        whole[12] = _squash(math.log(keys / blocks) / 2)
        whole[13] = _squash(2 * rows[0] / capacity)
        whole[14] = min((least + rest) / capacity, 2.0)
        _hidden(whole, first, offsets, common)
        untouched = rest == rows[index]
        may_wait = first_pass and untouched and rest > mean_key
        # in waves a key of at most the mean goes whole: only then is nothing else asked
        simple = waves and first_pass and untouched and not may_wait
        _score(load, card, holds, rest, capacity, means, common, first, last, last_offsets, 1 if simple else 3, found)
        best, kind, value = 0, WHOLE, found[0, WHOLE]
        for j in range(blocks):
            if found[j, WHOLE] > value:
                best, kind, value = j, WHOLE, found[j, WHOLE]
        if not simple:
            put_off = np.float32(0)
            for j in range(blocks):
                put_off += found[j, LATER]
                if load[j] < capacity and found[j, FILL] > value:
                    best, kind, value = j, FILL, found[j, FILL]
            if may_wait and put_off / blocks + patience > value:
                kind = LATER
        moved = True
        if kind == LATER:
            later[waiting] = index
            waiting += 1
            held += rest
        elif kind == WHOLE and waves and first_pass and untouched:
            order = np.argsort(-found[:, WHOLE])
            for turn in range(min(blocks, left)):
                j, each = order[turn], rows[reached + turn]
                which[used], where[used], put[used] = reached + turn, j, each
                used += 1
                load[j] += each
                card[j] += 1
                placed += each
                left_rows -= each
            fragments += min(blocks, left)
            # the last of them moves on below, as any other key does
            reached += min(blocks, left) - 1
            left_rows += rows[reached]
        else:
            amount = min(capacity - load[best], rest) if kind == FILL else rest
            which[used], where[used], put[used] = index, best, amount
            used += 1
            load[best] += amount
            placed += amount
            if not holds[best]:
                card[best] += 1
                fragments += 1
            holds[best] = 1
            rest -= amount
            moved = rest == 0
        if not moved:
            continue
        holds[:] = 0
        if first_pass:
            left_rows -= rows[reached]
            reached += 1
        if reached < keys:
            index = reached
        elif waiting:
            waiting -= 1
            index = later[waiting]
            held -= rows[index]
        else:
            size = load.max() * blocks / total - 1
            cardinality = (card.max() * blocks - keys) / keys
            split = (fragments - keys) / keys
            return which[:used], where[:used], put[:used], size / 3, (size + cardinality + split) / 3
        rest = rows[index]


@njit()
def in_order(order: Ints, which: Ints, where: Ints, put: Ints) -> tuple[Any, Any, Ints]:
    """Fragments by key and then by block, as plans have them, those of a key in the same block joined.

    `order[i]` is the key's place in the list; gives int32 keys, int32 blocks, and rows.
    """
    keys = len(order)
    begin = np.zeros(keys + 1, np.int64)
    for i in range(len(which)):
        begin[order[which[i]] + 1] += 1
    for key in range(keys):
        begin[key + 1] += begin[key]
    following = begin[:-1].copy()
    block, rows = np.empty(len(which), np.int32), np.empty(len(which), np.int64)
    for i in range(len(which)):
        key = order[which[i]]
        at = following[key]
        following[key] += 1
        while at > begin[key] and block[at - 1] > where[i]:
            block[at], rows[at] = block[at - 1], rows[at - 1]
            at -= 1
        block[at], rows[at] = where[i], put[i]
    key_of = np.empty(len(which), np.int32)
    used = 0
    for key in range(keys):
        for at in range(begin[key], begin[key + 1]):
            if at > begin[key] and used and key_of[used - 1] == key and block[used - 1] == block[at]:
                rows[used - 1] += rows[at]
            else:
                key_of[used], block[used], rows[used] = key, block[at], rows[at]
                used += 1
    return key_of[:used], block[:used], rows[:used]
