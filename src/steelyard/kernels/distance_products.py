"""The search for near vectors by matrix products: |x - y|^2 = |x|^2 + |y|^2 - 2 x.y finds, the distance settles.

The rounding of a product is bounded, and a pair inside that bound is settled by its distance (`distance_of`). So
single precision will do, whatever the vectors come in, until it leaves too many pairs to be settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from steelyard.kernels.distance import EUCLIDEAN, Floats, Pairs, Vectors, room, scan_products

_TILE_ROWS, _TILE_COLUMNS = 256, 2048
"""The size of a product that is looked through at once: it stays in the cache."""
_FIRST_ROWS = 32
"""Rows of the first tile, which shows whether single precision will do."""
_DEAR = 32
"""To settle a pair costs about as much as so many products in double precision cost more than in single."""


@dataclass(frozen=True)
class _Sides:
    """Both sides as they are multiplied, and the products' least value for each row and column."""

    first: Vectors
    second: Vectors
    row_cut: Vectors
    column_cut: Vectors


def within_products(kind: int, left: Vectors, right: Vectors, t: float, cut: float) -> Pairs | None:
    """The pairs within `t` of one block (angular: of unit vectors), or None where numbers are too large or small."""
    first, second = _centred(left, right) if kind == EUCLIDEAN else (left, right)
    squares = np.einsum("ij,ij->i", first, first), np.einsum("ij,ij->i", second, second)
    largest = max(float(squares[0].max()), float(squares[1].max()))
    if not 1e-250 < largest < 1e250:
        return None
    bound = min(cut, 8 * largest)  # no measure is more than 4 * largest
    single = 1e-20 < largest < 1e30
    sides = _sides(first, second, squares, bound, np.float32 if single else np.float64)
    found = room(1024)
    count = 0
    tile = np.empty(_TILE_ROWS * _TILE_COLUMNS, dtype=sides.first.dtype)  # one for all: new pages are not free
    for row, column, rows, columns in _tiles(len(left), len(right)):
        products = tile[: rows * columns].reshape(rows, columns)
        np.matmul(sides.first[row : row + rows], sides.second[column : column + columns].T, out=products)
        before = count
        lefts, rights, distances, count, settled = scan_products(
            kind, products, sides.row_cut, sides.column_cut, row, column, left, right, t, cut, *found, count
        )
        found = (lefts, rights, distances)
        in_vain = settled - (count - before)
        if single and in_vain * _DEAR > products.size:
            single = False
            sides = _sides(first, second, squares, bound, np.float64)
            tile = np.empty(len(tile), dtype=np.float64)
    return found[0][:count], found[1][:count], found[2][:count]


def _centred(left: Vectors, right: Vectors) -> tuple[Floats, Floats]:
    """Both sides, moved to where the left side's middle is 0: the smaller the numbers, the smaller the error."""
    middle = left.mean(axis=0, dtype=np.float64)
    return left - middle, right - middle


def _sides(
    first: Floats, second: Floats, squares: tuple[Floats, Floats], bound: float, precision: type[np.floating]
) -> _Sides:
    # With u = eps / 2: rounding the coordinates adds at most 2u (|x| + |y|)^2 to the measure, d products and their
    # sum at most d u / 2 (|x| + |y|)^2 in any order, the two squares and the comparison a few u; and
    # (|x| + |y|)^2 <= 2 |x|^2 + 2 |y|^2, which is a part for each side: (d / 2 + 16) eps. Twice that is allowed for,
    # and as much again as numbers may lose that are too small for this precision.
    dimension = first.shape[1]
    kept = 1.0 - (dimension + 32) * float(np.finfo(precision).eps)
    tiny = (dimension + 32) * float(np.finfo(precision).tiny)
    return _Sides(
        first.astype(precision, copy=False),
        second.astype(precision, copy=False),
        ((squares[0] * kept - bound - tiny) / 2).astype(precision),
        (squares[1] * kept / 2).astype(precision),
    )


def _tiles(rows: int, columns: int) -> Iterator[tuple[int, int, int, int]]:
    """The first row and column, and how many of each: the first tile is a small one."""
    for column in range(0, columns, _TILE_COLUMNS):
        row = 0
        while row < rows:
            height = _FIRST_ROWS if row == column == 0 else _TILE_ROWS
            yield row, column, min(height, rows - row), min(_TILE_COLUMNS, columns - column)
            row += height
