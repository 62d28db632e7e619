"""Algorithm 1 row by row: the tree keeps its order, and the compiled loop does what the plain one says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.count_tree import (
    ENTRY,
    NOTHING,
    buffer_rows,
    check_tree,
    descending,
    insert_node,
    remove_node,
)
from steelyard.kernels.key_table import key_table
from tests.kernels.twins.count_tree import buffer_rows_plain

LONGS = st.integers(-(2**63), 2**63 - 1)


class Tree:
    """The arrays of a tree with room for `room` nodes, whose priorities are drawn."""

    def __init__(self, room: int, seed: int) -> None:
        self.counts = np.zeros(room, np.int64)
        self.priority = np.random.default_rng(seed).integers(0, 6, room)  # few, so that many are equal
        self.links = np.full(2 * room + 1, NOTHING, np.int32)

    def put(self, node: int, count: int) -> None:
        self.counts[node] = count
        insert_node(node, self.counts, self.priority, self.links)

    def take(self, node: int) -> None:
        remove_node(node, self.counts, self.priority, self.links)


@st.composite
def batches(draw: Any) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Rows of a few keys, some of them hot, at times that may repeat, and the interval they are of."""
    pool = draw(st.lists(LONGS, min_size=1, max_size=12, unique=True))
    keys = draw(st.lists(st.sampled_from(pool + pool[:1] * 10), max_size=150))
    times = np.cumsum(draw(st.lists(st.integers(0, 9), min_size=len(keys), max_size=len(keys))))
    start = draw(st.sampled_from([0.0, -50.0]))
    end = float(times[-1]) + draw(st.sampled_from([0.5, 1.0, 700.0])) if len(keys) else 1.0
    return np.array(keys, np.int64), times.astype(np.int64), start, end


def buffered(keys, times, start, end, budget, step, expected, both, room=200) -> tuple[list[int], ...]:
    table, entries = key_table(room), np.zeros(room, ENTRY)
    tree = Tree(room, seed=0)
    arrays = (tree.counts, tree.priority, tree.links)
    taken = buffer_rows(keys, times, *table, entries, *arrays, 0, start, end, budget, step, expected, both)
    assert taken == len(keys)
    used = len(set(keys.tolist()))
    check_tree(used, *arrays)
    order = descending(used, tree.links)
    return table.ids[order].tolist(), entries["freq"][order].tolist(), (budget - entries["budget"][order]).tolist()


@settings(deadline=None, max_examples=300)
@given(
    batch=batches(),
    budget=st.integers(1, 9),
    step=st.sampled_from([0.2, 1.0, 3.5]),
    expected=st.sampled_from([0.0, 40.0, 1000.0]),
    both=st.booleans(),
)
def test_the_compiled_loop_equals_the_plain_one(batch, budget, step, expected, both):
    assert buffered(*batch, budget, step, expected, both) == buffer_rows_plain(*batch, budget, step, expected, both)


@settings(deadline=None, max_examples=100)
@given(batch=batches(), budget=st.integers(1, 9), both=st.booleans())
def test_counts_are_exact_and_no_key_moves_more_often_than_its_budget(batch, budget, both):
    ids, rows, updates = buffered(*batch, budget, 1.0, 0.0, both)
    known, counted = np.unique(batch[0], return_counts=True)
    assert dict(zip(ids, rows, strict=True)) == dict(zip(known.tolist(), counted.tolist(), strict=True))
    assert all(0 <= moved <= min(budget, count - 1) for moved, count in zip(updates, rows, strict=True))


@settings(deadline=None, max_examples=100)
@given(batch=batches())
def test_with_a_budget_that_is_never_used_up_and_a_step_of_one_row_the_order_is_exact(batch):
    ids, rows, _ = buffered(*batch, 10**6, 1.0, 1.0, True)
    first = {key: at for at, key in reversed(list(enumerate(batch[0].tolist())))}
    assert ids == sorted(ids, key=lambda key: (-rows[ids.index(key)], first[key]))


@settings(deadline=None, max_examples=200)
@given(
    moves=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=120),
    seed=st.integers(0, 3),
)
def test_nodes_stand_in_order_however_they_move(moves, seed):
    tree, placed = Tree(31, seed), {}
    numbers: dict[int, int] = {}
    for name, count in moves:
        node = numbers.setdefault(name, len(numbers))
        if node in placed:
            tree.take(node)
        tree.put(node, count)
        placed[node] = count
    check_tree(len(placed), tree.counts, tree.priority, tree.links)
    assert descending(len(placed), tree.links).tolist() == sorted(placed, key=lambda node: (-placed[node], node))


def test_a_tree_from_which_all_is_taken_is_empty():
    tree = Tree(3, seed=1)
    for node in range(3):
        tree.put(node, 7)
    for node in (1, 0, 2):
        tree.take(node)
    assert tree.links[0] == NOTHING
    assert len(descending(0, tree.links)) == 0


def test_a_tree_out_of_order_is_found_out():
    tree = Tree(3, seed=1)
    for node in range(3):
        tree.put(node, node)
    tree.counts[1] = 99
    with pytest.raises(AssertionError, match="out of order"):
        check_tree(3, tree.counts, tree.priority, tree.links)


def test_a_full_table_stops_the_loop_at_the_row_that_found_it_full():
    keys = np.array([4, 4, 5, 4, 6, 4])
    table, entries, tree = key_table(2), np.zeros(2, ENTRY), Tree(2, 0)
    arrays = (tree.counts, tree.priority, tree.links)
    assert buffer_rows(keys, np.arange(6), *table, entries, *arrays, 0, 0.0, 6.0, 2, 1.0, 0.0, True) == 4
    assert entries["freq"].tolist() == [3, 1]
