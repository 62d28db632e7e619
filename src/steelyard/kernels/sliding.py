"""What stands in a sliding window: rows of each block, and which blocks hold which key.

A window of size W and slide s is `ceil(W / s)` slides, the current one included; slides begin at multiples of s.
Both structures do O(1) work a row and are brought up to date when a slide ends (Zapridou, Mytilinis, Ailamaki
2022, section 4.3). Without slides (W = 0) nothing is ever forgotten.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.key_table import NONE, KeyTable, longer, remove

Ints = np.ndarray[Any, np.dtype[np.int64]]

NOW, END, BEGUN = 0, 1, 2
"""Positions in `SlidingLoads.clock`."""
KEY, BLOCK, SLIDE, SIBLING, OLDER, NEWER = range(6)
"""Columns of `Holders.nodes`."""
OLDEST, NEWEST, NODES, FREE_NODE = range(4)
"""Positions in `Holders.ends`."""
_LAST_MOMENT = np.iinfo(np.int64).max


class SlidingLoads(NamedTuple):
    """Rows of each block in the window. A row costs one increment: `totals[block] += 1`."""

    totals: Ints
    """int64[blocks]: rows in the window."""
    opened: Ints
    """int64[blocks]: what `totals` was when the current slide began."""
    ring: Ints
    """int64[slides, blocks]: rows of each closed slide, slide number j at j mod slides."""
    clock: Ints
    """int64[3]: number of the current slide, the first time that is not in it, whether there was a row."""


def sliding_loads(blocks: int, slides: int) -> SlidingLoads:
    """No rows yet, in a window of so many slides; 0 slides count from the start and forget nothing.

    >>> loads = sliding_loads(2, slides=3)
    >>> for time, block in ((0, 0), (12, 1), (29, 1), (30, 0)):
    ...     advance(loads, 10, time)
    ...     loads.totals[block] += 1
    >>> loads.totals.tolist()
    [1, 2]
    """
    never = np.array([0, np.iinfo(np.int64).min, 0], np.int64)
    return SlidingLoads(
        np.zeros(blocks, np.int64), np.zeros(blocks, np.int64), np.zeros((slides, blocks), np.int64), never
    )


@njit()
def advance(loads: SlidingLoads, slide: int, time: int) -> None:
    """Go to the slide of `time`; call it for times from `clock[END]` on. Several slides may pass at once."""
    number = time // slide
    slides = len(loads.ring)
    if slides and loads.clock[BEGUN]:
        passed = number - loads.clock[NOW]
        if passed < 0 or passed >= slides:  # negative where the difference is beyond 64 bits
            loads.ring[:] = 0
            loads.totals[:] = 0
        else:
            loads.ring[loads.clock[NOW] % slides] = loads.totals - loads.opened
            for step in range(1, passed + 1):
                evicted = loads.ring[(loads.clock[NOW] + step) % slides]
                loads.totals[:] -= evicted  # subtract on evict
                evicted[:] = 0
        loads.opened[:] = loads.totals
    loads.clock[NOW] = number
    loads.clock[END] = (number + 1) * slide if number < _LAST_MOMENT // slide else _LAST_MOMENT
    loads.clock[BEGUN] = 1


class Holders(NamedTuple):
    """Which blocks hold which keys in the window.

    A node is one (key, block) with the last slide that had a row of it: it is in the window as long as that
    slide is, so no count of slides is needed. A key's nodes are linked; all nodes are linked in the order of
    their last slides, so what leaves the window is at the front. Memory follows what is in the window.
    """

    first: Ints
    """int64[key slots]: a key's first node, or -1."""
    nodes: Ints
    """int64[nodes, 6]: slot of the key; block; number of the last slide with a row of this key in this block;
    the key's next node (of a node that was given back, the next such node); and the nodes before and behind
    this one, by last slide. -1 where there is none."""
    distinct: Ints
    """int64[blocks]: distinct keys of each block."""
    ends: Ints
    """int64[4]: oldest node, newest node, nodes that were ever used, first node that was given back."""


def no_holders(blocks: int, slots: int) -> Holders:
    """Blocks without keys, with room for `slots` keys and as many nodes."""
    first, nodes = np.full(slots, NONE, np.int64), np.full((slots, 6), NONE, np.int64)
    return Holders(first, nodes, np.zeros(blocks, np.int64), np.array([NONE, NONE, 0, NONE], np.int64))


def grown_holders(holders: Holders, slots: int) -> Holders:
    """The same with room for `slots` keys, and for twice the nodes where none is left."""
    nodes = len(holders.nodes)
    if not has_node(holders.nodes, holders.ends):
        nodes = 2 * max(1, nodes)
    first = longer(holders.first, slots, NONE)
    return Holders(first, longer(holders.nodes, nodes, NONE), holders.distinct, holders.ends)


@njit(inline="always")
def has_node(nodes: Ints, ends: Ints) -> bool:
    """Whether there is a node for one more (key, block)."""
    return bool(ends[FREE_NODE] != NONE or ends[NODES] < len(nodes))


@njit(inline="always")
def node_of(first: Ints, nodes: Ints, slot: int, block: int) -> int:
    """The node of a key in a block, or -1 where the block does not hold the key."""
    node = first[slot]
    while node != NONE and nodes[node, BLOCK] != block:
        node = nodes[node, SIBLING]
    return int(node)


@njit(inline="always")
def hold(first: Ints, nodes: Ints, distinct: Ints, ends: Ints, slot: int, block: int, now: int) -> None:
    """A row of the key in `slot` went to a block in slide `now`; there must be a node left."""
    node = node_of(first, nodes, slot, block)
    if node == NONE:
        node = _new_node(nodes, ends)
        nodes[node, KEY] = slot
        nodes[node, BLOCK] = block
        nodes[node, SIBLING] = first[slot]
        first[slot] = node
        distinct[block] += 1
    elif nodes[node, SLIDE] == now:
        return
    else:
        _leave_order(nodes, ends, node)
    newest = ends[NEWEST]
    nodes[node, SLIDE] = now
    nodes[node, OLDER] = newest
    nodes[node, NEWER] = NONE
    if newest == NONE:
        ends[OLDEST] = node
    else:
        nodes[newest, NEWER] = node
    ends[NEWEST] = node


@njit()
def expire(table: KeyTable, holders: Holders, since: int) -> None:
    """Forget what had no row since the slide of this number; keys that no block holds leave the table."""
    cells, ids, header = table
    first, nodes, distinct, ends = holders
    node = ends[OLDEST]
    while node != NONE and nodes[node, SLIDE] < since:
        later = nodes[node, NEWER]
        slot = nodes[node, KEY]
        _leave_order(nodes, ends, node)
        _leave_key(first, nodes, node)
        if first[slot] == NONE:
            remove(cells, ids, header, ids[slot])
        distinct[nodes[node, BLOCK]] -= 1
        nodes[node, SIBLING] = ends[FREE_NODE]
        ends[FREE_NODE] = node
        node = later


@njit()
def _new_node(nodes: Ints, ends: Ints) -> int:
    node = ends[FREE_NODE]
    if node != NONE:
        ends[FREE_NODE] = nodes[node, SIBLING]
    else:
        node = ends[NODES]
        ends[NODES] += 1
    return int(node)


@njit()
def _leave_order(nodes: Ints, ends: Ints, node: int) -> None:
    before, behind = nodes[node, OLDER], nodes[node, NEWER]
    if before == NONE:
        ends[OLDEST] = behind
    else:
        nodes[before, NEWER] = behind
    if behind == NONE:
        ends[NEWEST] = before
    else:
        nodes[behind, OLDER] = before


@njit()
def _leave_key(first: Ints, nodes: Ints, node: int) -> None:
    slot = nodes[node, KEY]
    if first[slot] == node:
        first[slot] = nodes[node, SIBLING]
        return
    before = first[slot]
    while nodes[before, SIBLING] != node:
        before = nodes[before, SIBLING]
    nodes[before, SIBLING] = nodes[node, SIBLING]
