"""Rows to blocks by what the blocks hold: which keys, how many of them, and how many rows.

A loop returns the row that it could not place because the table of keys or the nodes were full: `make_room`, and
call it again from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.choices import candidate, least_loaded_of_all
from steelyard.kernels.compiled import njit
from steelyard.kernels.key_table import NONE, KeyTable, grown, is_full, longer, slot_of
from steelyard.kernels.mixing import home
from steelyard.kernels.sliding import (
    BLOCK,
    END,
    NOW,
    SIBLING,
    SLIDE,
    Holders,
    SlidingLoads,
    advance,
    expire,
    grown_holders,
    has_node,
    hold,
    node_of,
)

Ints = np.ndarray[Any, np.dtype[np.int64]]
Blocks = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

AFFINITY, CARDINALITY, WEIGHTED, FEWEST_KEYS = 0, 1, 2, 3
"""Rules of `route_by_holders`."""
COUNTED, IN_SLIDE, HOT_THROUGH = range(3)
"""Columns of `HotKeys.keys`."""
THIS_SLIDE, LAST_SLIDE = range(2)
"""Positions in `HotKeys.rows`."""
HOT_SHARE = 100
"""A key is hot above 1 / (HOT_SHARE * blocks) of a slide's rows, in the published code of Dalton's rivals."""
_LONG_AGO = np.iinfo(np.int64).min


def make_room(table: KeyTable, holders: Holders) -> tuple[KeyTable, Holders]:
    """The same keys and holders, with room for more of what was full."""
    wider = grown(table) if is_full(table.ids, table.header) else table
    return wider, grown_holders(holders, len(wider.ids))


@njit()
def route_by_holders(
    keys: Ints,
    times: Ints,
    block: Blocks,
    start: int,
    loads: SlidingLoads,
    slide: int,
    table: KeyTable,
    holders: Holders,
    choices: int,
    rule: int,
    alpha: float,
) -> int:
    """The best of `choices` candidates by a rule, from row `start` on; the row reached.

    Candidates are compared by two numbers, the second where the first are equal, and the later candidate is
    taken where both are:

    AFFINITY      does not hold the key,                                     rows
    CARDINALITY   distinct keys, with this one,                              rows
    WEIGHTED      alpha * rows / mean rows + (1 - alpha) [does not hold it]  -
    FEWEST_KEYS   distinct keys,                                             -
    """
    totals, clock = loads.totals, loads.clock
    cells, ids, header = table
    first, nodes, distinct, ends = holders
    slides, blocks, rows = len(loads.ring), len(totals), totals.sum()
    for row in range(start, len(keys)):
        if times[row] >= clock[END]:
            advance(loads, slide, times[row])
            rows = totals.sum()
            if slides:
                expire(table, holders, clock[NOW] - slides + 1)
        if is_full(ids, header) or not has_node(nodes, ends):
            return row
        slot = slot_of(cells, ids, header, keys[row])
        best, least, least_next = NONE, 0.0, 0.0
        for number in range(choices):
            where = candidate(keys[row], number, blocks)
            new = node_of(first, nodes, slot, where) == NONE
            measure, next_measure = 1.0 * distinct[where], 0.0
            if rule == AFFINITY:
                measure, next_measure = 1.0 * new, 1.0 * totals[where]
            elif rule == CARDINALITY:
                measure, next_measure = measure + new, 1.0 * totals[where]
            elif rule == WEIGHTED:
                measure = (alpha * totals[where] * blocks / rows if rows else 0.0) + (1.0 - alpha) * new
            if best == NONE or measure < least or (measure == least and next_measure <= least_next):
                best, least, least_next = where, measure, next_measure
        hold(first, nodes, distinct, ends, slot, best, clock[NOW])
        totals[best] += 1
        rows += 1
        block[row] = best
    return len(keys)


class HotKeys(NamedTuple):
    """Which keys are frequent, by exact counts in slides."""

    keys: Ints
    """int64[key slots, 3]: rows of the key in a slide, that slide, and the last one in which the key is hot."""
    rows: Ints
    """int64[2]: rows of this slide so far, and of the last slide before it that had rows (0 in the first)."""


def no_hot_keys(slots: int) -> HotKeys:
    """Nothing counted yet."""
    return HotKeys(np.zeros((slots, 3), np.int64), np.zeros(2, np.int64))


def grown_hot_keys(hot: HotKeys, slots: int) -> HotKeys:
    """The same with room for `slots` keys."""
    return HotKeys(longer(hot.keys, slots), hot.rows)


@njit()
def route_greedily(
    keys: Ints,
    times: Ints,
    block: Blocks,
    split: Flags,
    start: int,
    loads: SlidingLoads,
    slide: int,
    table: KeyTable,
    holders: Holders,
    hot: HotKeys,
) -> int:
    """Hot keys to the block with the best score, the others home, from row `start` on; the row reached.

    score(i) = 1/2 [i holds the key in the window] - 1/2 (L_i - mean L) / mean L, and the first of equal ones.
    """
    totals, clock = loads.totals, loads.clock
    cells, ids, header = table
    first, nodes, distinct, ends = holders
    hot_keys, hot_rows = hot
    slides, blocks, rows = len(loads.ring), len(totals), totals.sum()
    for row in range(start, len(keys)):
        if times[row] >= clock[END]:
            advance(loads, slide, times[row])
            rows = totals.sum()
            if slides:  # a key stays known for the slide after its last one, in which it may be hot
                expire(table, holders, clock[NOW] - max(slides, 2) + 1)
            if hot_rows[THIS_SLIDE]:
                hot_rows[LAST_SLIDE] = hot_rows[THIS_SLIDE]
                hot_rows[THIS_SLIDE] = 0
        if is_full(ids, header) or not has_node(nodes, ends):
            return row
        now = clock[NOW]
        slot = slot_of(cells, ids, header, keys[row])
        where = home(keys[row], blocks)
        since = now - slides + 1 if slides else _LONG_AGO
        split[row] = _is_hot(hot_keys, hot_rows, first[slot] == NONE, slot, now, blocks)
        if split[row]:
            where = _best_score(totals, rows, nodes, first[slot], since)
        else:
            split[row] = _is_elsewhere(nodes, first[slot], where, since)
        hold(first, nodes, distinct, ends, slot, where, now)
        totals[where] += 1
        rows += 1
        block[row] = where
    return len(keys)


@njit()
def _is_hot(keys: Ints, rows: Ints, new: bool, slot: int, now: int, blocks: int) -> bool:
    """Count a row; whether its key is hot: above the threshold in this slide or in the one before."""
    if new:
        keys[slot, HOT_THROUGH] = _LONG_AGO
    if new or keys[slot, IN_SLIDE] != now:
        keys[slot, IN_SLIDE] = now
        keys[slot, COUNTED] = 0
    keys[slot, COUNTED] += 1
    rows[THIS_SLIDE] += 1
    # count > last / (100 n); before the first slide has ended nothing is known, and nothing is hot
    if rows[LAST_SLIDE] and keys[slot, COUNTED] * HOT_SHARE * blocks > rows[LAST_SLIDE]:
        keys[slot, HOT_THROUGH] = now + 1
    return bool(keys[slot, HOT_THROUGH] >= now)


@njit()
def _best_score(totals: Ints, rows: int, nodes: Ints, node: int, since: int) -> int:
    """The best block by the score above, which times 2 n L, less its constant, is rows [i holds] - n L_i: exact."""
    blocks = len(totals)
    best = least_loaded_of_all(totals)
    score = -blocks * totals[best]
    while node != NONE:
        where = nodes[node, BLOCK]
        held = rows - blocks * totals[where]
        if nodes[node, SLIDE] >= since and (held > score or (held == score and where < best)):
            best, score = where, held
        node = nodes[node, SIBLING]
    return best


@njit()
def _is_elsewhere(nodes: Ints, node: int, block: int, since: int) -> bool:
    """Whether another block holds rows of the key in the window; `node` is the key's first."""
    while node != NONE:
        if nodes[node, BLOCK] != block and nodes[node, SLIDE] >= since:
            return True
        node = nodes[node, SIBLING]
    return False
