"""Frequency-aware buffering, row by row: the hash table of keys and the tree that orders them by count.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, Algorithm 1.
The tree is a treap (Seidel and Aragon 1996) in arrays: node i is the key in slot i, `links[0]` is the root,
`links[2i + 1]` and `links[2i + 2]` are the children of node i. Its priorities are hashes of the slots, so the
same rows make the same tree in every process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit
from steelyard.kernels.key_table import LIVE, Slots, slot_of
from steelyard.kernels.mixing import mix

Ints = np.ndarray[Any, np.dtype[np.int64]]
Entries = np.ndarray[Any, Any]

NOTHING = -1
_PRIORITY = 5

ENTRY = np.dtype(
    [
        ("freq", np.int64),  # freqCurrent: exact
        ("updated", np.int64),  # freqUpdated: what the tree was last told
        ("last", np.int64),  # lastUpdateTime
        ("f_step", np.float64),
        ("t_step", np.float64),
        ("budget", np.int64),  # updates that are left
    ]
)
"""What the table knows of a key; one record, since a row needs all of it."""


@njit(inline="always")
def _before(one: int, other: int, counts: Ints) -> bool:
    """Whether `one` stands before `other`: by count, and the later key first where counts are equal.

    Read backwards, the tree so gives equal counts in order of appearance.
    """
    return counts[one] < counts[other] or (counts[one] == counts[other] and one > other)


@njit()
def insert_node(node: int, counts: Ints, priority: Ints, links: Slots) -> None:
    """Put `node` where `counts[node]` belongs: down to its priority, then split what is below around it."""
    link = 0
    while links[link] >= 0 and priority[links[link]] >= priority[node]:
        at = links[link]
        link = 2 * at + 2 if _before(at, node, counts) else 2 * at + 1
    at = links[link]
    links[link] = node
    smaller, greater = 2 * node + 1, 2 * node + 2
    while at >= 0:
        if _before(at, node, counts):
            links[smaller] = at
            smaller = 2 * at + 2
            at = links[smaller]
        else:
            links[greater] = at
            greater = 2 * at + 1
            at = links[greater]
    links[smaller] = NOTHING
    links[greater] = NOTHING


@njit()
def remove_node(node: int, counts: Ints, priority: Ints, links: Slots) -> None:
    """Take `node` out and merge its two subtrees by priority. `counts[node]` must be what it was put in with."""
    link = 0
    while links[link] != node:
        at = links[link]
        link = 2 * at + 2 if _before(at, node, counts) else 2 * at + 1
    smaller, greater = links[2 * node + 1], links[2 * node + 2]
    while smaller >= 0 and greater >= 0:
        if priority[smaller] > priority[greater]:
            links[link] = smaller
            link = 2 * smaller + 2
            smaller = links[link]
        else:
            links[link] = greater
            link = 2 * greater + 1
            greater = links[link]
    links[link] = smaller if smaller >= 0 else greater


@njit()
def descending(nodes: int, links: Slots) -> Ints:
    """int64[nodes]: the nodes from the greatest count to the least, a reverse in-order traversal."""
    order = np.empty(nodes, np.int64)
    open_nodes = np.empty(nodes, np.int32)
    depth, used, at = 0, 0, links[0]
    while at >= 0 or depth > 0:
        while at >= 0:
            open_nodes[depth] = at
            depth += 1
            at = links[2 * at + 2]
        depth -= 1
        at = open_nodes[depth]
        order[used] = at
        used += 1
        at = links[2 * at + 1]
    return order[:used]


@njit(inline="always")
def _frequency_step(freq: int, rows: int, now: int, start: float, end: float, budget: int, expected: float) -> float:
    # f.step = (N_est / budget) * freq / N_C: the count that is to be expected at the end, in `budget` parts.
    # Without a history N_est is what comes until the end at this batch's rate so far.
    estimate = expected if expected > 0 else rows * (end - start) / max(now - start, 1.0)
    return max(1.0, estimate / budget * freq / rows)


@njit(nogil=True)
def buffer_rows(
    keys: Ints,
    times: Ints,
    cells: Slots,
    ids: Ints,
    header: Ints,
    entries: Entries,
    counts: Ints,
    priority: Ints,
    links: Slots,
    buffered: int,
    start: float,
    end: float,
    budget: int,
    first_step: float,
    expected: float,
    refresh_both: bool,
) -> int:
    """Algorithm 1 for rows in order of arrival, up to the first whose new key finds the table full.

    `cells`, `ids` and `header` are a `KeyTable`; `counts`, `priority` and `links` are the tree; `buffered` is
    N_C, the rows of the batch that came before. Gives how many of these rows were taken.
    """
    for i in range(len(keys)):
        now = times[i]
        rows = buffered + i + 1
        known = header[LIVE]
        slot = slot_of(cells, ids, header, keys[i])
        if slot < 0:
            return i
        if slot == known:
            entry = entries[slot]
            entry.freq, entry.updated, entry.last, entry.budget = 1, 1, now, budget
            entry.f_step, entry.t_step = first_step, (end - now) / budget
            counts[slot] = 1
            priority[slot] = np.int64(mix(slot, _PRIORITY) >> np.uint64(1))
            insert_node(slot, counts, priority, links)
            continue
        entry = entries[slot]
        entry.freq += 1
        if entry.budget <= 0:  # the listing has no such guard, and would go on
            continue
        # The listing compares with ==, which a step that is not whole never meets.
        by_frequency = entry.freq - entry.updated >= entry.f_step
        if not by_frequency and now - entry.last < entry.t_step:
            continue
        remove_node(slot, counts, priority, links)
        counts[slot] = entry.freq
        insert_node(slot, counts, priority, links)
        entry.budget -= 1
        entry.updated, entry.last = entry.freq, now  # the listing never sets lastUpdateTime
        if by_frequency or refresh_both:
            entry.f_step = _frequency_step(entry.freq, rows, now, start, end, budget, expected)
        if entry.budget > 0 and (refresh_both or not by_frequency):
            entry.t_step = (end - now) / entry.budget
    return len(keys)


def check_tree(nodes: int, counts: Ints, priority: Ints, links: Slots) -> None:
    """Raise AssertionError unless the tree has every node once, in order, and no child above its parent."""
    order = descending(nodes, links).tolist()
    assert sorted(order) == list(range(nodes)), f"{len(set(order))} of {nodes} nodes are in the tree"
    ranks = [(int(counts[node]), -node) for node in order]
    assert ranks == sorted(ranks, reverse=True), "nodes are out of order"
    for node in range(nodes):
        for child in links[2 * node + 1 : 2 * node + 3].tolist():
            assert child < 0 or priority[child] <= priority[node], f"node {child} is below {node}, of less priority"
