"""The plain twins of `sliding`: the rows of a window, counted anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.key_table import KeyTable
from steelyard.kernels.sliding import (
    BLOCK,
    KEY,
    NEWER,
    NONE,
    OLDEST,
    SIBLING,
    SLIDE,
    Holders,
)


def loads_plain(slide_of_row: list[int], block: list[int], blocks: int, slides: int, now: int) -> list[int]:
    """Rows of each block in the window that ends with slide `now`: the plain twin of `SlidingLoads`.

    >>> loads_plain([0, 1, 2], [0, 1, 1], blocks=2, slides=3, now=3)
    [0, 2]
    """
    counts = [0] * blocks
    for number, where in zip(slide_of_row, block, strict=True):
        if not slides or number > now - slides:
            counts[where] += 1
    return counts


def held_plain(slide_of_row: list[int], keys: list[int], block: list[int], slides: int, now: int) -> set[Any]:
    """The (key, block) pairs of the window that ends with slide `now`: the plain twin of `Holders`.

    >>> sorted(held_plain([0, 1, 1, 2], [7, 7, 8, 7], [0, 1, 0, 1], slides=2, now=2))
    [(7, 1), (8, 0)]
    """
    rows = zip(slide_of_row, keys, block, strict=True)
    return {(key, where) for number, key, where in rows if not slides or number > now - slides}


def held(table: KeyTable, holders: Holders) -> set[Any]:
    """The (key, block) pairs that are held.

    >>> from steelyard.kernels.key_table import key_table, slot_of
    >>> from steelyard.kernels.sliding import expire, hold, no_holders
    >>> table, holders = key_table(4), no_holders(blocks=2, slots=4)
    >>> for slide, key, block in ((0, 7, 0), (1, 7, 1), (1, 8, 0)):
    ...     hold(*holders, slot_of(*table, key), block, slide)
    >>> expire(table, holders, 1)
    >>> sorted(held(table, holders))
    [(7, 1), (8, 0)]
    """
    pairs, node = set(), int(holders.ends[OLDEST])
    while node != NONE:
        pairs.add((int(table.ids[holders.nodes[node, KEY]]), int(holders.nodes[node, BLOCK])))
        node = int(holders.nodes[node, NEWER])
    return pairs


def check_holders(table: KeyTable, holders: Holders) -> None:
    """Raise AssertionError unless nodes, keys, order and numbers of distinct keys agree."""
    by_key = set()
    for slot in table.cells[table.cells != NONE].tolist():
        node = int(holders.first[slot])
        assert node != NONE, f"key {table.ids[slot]} is in the table and nowhere held"
        while node != NONE:
            assert holders.nodes[node, KEY] == slot, "a node in another key's list"
            by_key.add(node)
            node = int(holders.nodes[node, SIBLING])
    in_order, node = [], int(holders.ends[OLDEST])
    while node != NONE:
        in_order.append(node)
        node = int(holders.nodes[node, NEWER])
    assert set(in_order) == by_key, "keys and order list different nodes"
    assert len(in_order) == len(by_key), "a node stands twice in the order"
    assert np.all(np.diff(holders.nodes[in_order, SLIDE]) >= 0), "nodes are not in the order of their slides"
    counted = np.bincount(holders.nodes[in_order, BLOCK], minlength=len(holders.distinct))
    assert counted.tolist() == holders.distinct.tolist(), "distinct keys are counted wrongly"
