"""The sketch of Online Shuffle Grouping: how often an item came, and how long it took, in two small matrices.

N. Rivetti, E. Anceaume, Y. Busnel, L. Querzoni, B. Sericola, Online Scheduling for Shuffle Grouping in Distributed
Stream Processing Systems, Middleware 2016: Listing 3.1 (update), Listing 3.2 (estimate), Eq 1 (stability). F and W of
the paper are the two numbers of each cell, next to each other in memory since they are always read together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

PRIME = (1 << 31) - 1
"""Modulus of the hash functions: the largest prime whose products fit 64 bits."""
COUNT, TIME = 0, 1
"""The two numbers of a cell: F and W."""
UNSEEN = -1.0
"""A snapshot's ratio of a cell that no item has hit."""


def coefficients(rows: int, seed: int) -> Ints:
    """int64[rows, 2]: a and b of `rows` functions `((a x + b) mod p) mod c` of Carter and Wegman's family.

    The family is 2-universal for items below 2^31 - 1; larger ids are taken modulo that prime first.

    >>> coefficients(4, seed=1).shape
    (4, 2)
    """
    rng = np.random.default_rng([seed, 0x05_6])
    return np.stack([rng.integers(1, PRIME, rows), rng.integers(0, PRIME, rows)], axis=1)


@njit(inline="always")
def column(hashes: Ints, row: int, item: int, columns: int) -> int:
    """The cell of an item in one row of the matrices."""
    return int(((hashes[row, 0] * (item % 2147483647) + hashes[row, 1]) % 2147483647) % columns)


@njit(inline="always")
def add(cells: Floats, at: int, hashes: Ints, columns: int, item: int, time: float, conservative: bool) -> None:
    """Count one execution of an item in every row of the matrices `cells[at]`, of which the first columns are used.

    A conservative update counts it in its emptiest cells only.
    """
    rows = hashes.shape[0]
    least = np.inf
    if conservative:
        for row in range(rows):
            least = min(least, cells[at, row, column(hashes, row, item, columns), COUNT])
    for row in range(rows):
        where = column(hashes, row, item, columns)
        if cells[at, row, where, COUNT] <= least:
            cells[at, row, where, COUNT] += 1.0
            cells[at, row, where, TIME] += time


@njit(inline="always")
def estimate(cells: Floats, number: int, at: int, hashes: Ints, columns: int, item: int, otherwise: float) -> float:
    """The mean time of the item's cell in the row of `cells[number, at]` with the smallest count.

    `otherwise` where that cell is empty.

    >>> hashes, cells = np.array([[1, 0], [2, 1]]), np.zeros((1, 1, 2, 4, 2))
    >>> add(cells[0], 0, hashes, 4, 3, 2.0, False)
    >>> estimate(cells, 0, 0, hashes, 4, 3, 0.0), estimate(cells, 0, 0, hashes, 4, 2, 9.0)
    (2.0, 9.0)
    """
    rows = hashes.shape[0]
    least, total = np.inf, 0.0
    for row in range(rows):
        where = column(hashes, row, item, columns)
        if cells[number, at, row, where, COUNT] < least:
            least, total = cells[number, at, row, where, COUNT], cells[number, at, row, where, TIME]
    return total / least if least > 0.0 else otherwise


@njit()
def copy_cells(cells: Floats, into: Floats) -> None:
    """Write matrices, or a snapshot of them, into others: by hand, since loops that allocate nothing call it."""
    flat, copied = cells.reshape(cells.size), into.reshape(into.size)
    for at in range(cells.size):
        copied[at] = flat[at]


@njit()
def scale_cells(cells: Floats, factor: float) -> None:
    """Keep so much of matrices."""
    flat = cells.reshape(cells.size)
    for at in range(cells.size):
        flat[at] *= factor


@njit()
def take_snapshot(cells: Floats, snapshot: Floats) -> None:
    """Write the mean time of every cell into `snapshot`."""
    for row in range(cells.shape[0]):
        for at in range(cells.shape[1]):
            count = cells[row, at, COUNT]
            snapshot[row, at] = cells[row, at, TIME] / count if count > 0.0 else UNSEEN


@njit()
def relative_error(cells: Floats, snapshot: Floats, masked: bool) -> float:
    """Eq 1: how far the mean times moved since the snapshot, over the snapshot's sum.

    An empty cell has ratio 0. Taken literally, a cell that is hit for the first time after the snapshot then counts
    with its whole mean, and skewed streams stay unstable for long; `masked` compares cells that were hit before both.
    """
    moved, total = 0.0, 0.0
    for row in range(cells.shape[0]):
        for at in range(cells.shape[1]):
            before, count = snapshot[row, at], cells[row, at, COUNT]
            if before == UNSEEN:
                if masked:
                    continue
                before = 0.0
            now = cells[row, at, TIME] / count if count > 0.0 else 0.0
            moved += abs(before - now)
            total += before
    if total > 0.0:
        return moved / total
    return np.inf if moved > 0.0 else 0.0
