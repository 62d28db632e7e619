"""Metrics of vectors: angular, cosine (through angular), Euclidean, Manhattan, Chebyshev."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.errors import OptionError
from steelyard.kernels import distance as kernel
from steelyard.kernels.distance_products import within_products
from steelyard.kernels.distance_sweep import within_sweep
from steelyard.similarity.protocol import (
    Bools,
    Distances,
    Floats,
    Ints,
    Pairs,
    largest_distance,
    list_parts,
    no_pairs,
    one_array,
    stacked,
    wrong_column,
)

Array = np.ndarray[Any, Any]
"""float32[n, d] or float64[n, d]: vectors are kept as they are given."""

_SMALL_BLOCK = 4096
"""Pairs of a block up to which one compiled loop is faster than a search that must be set up."""
_THIN = 8
"""Rows on a side up to which the same is true."""
_PRODUCT_DIMENSION = 12
"""Dimensions from which a matrix product is faster than sums over columns."""
_SWEPT = 0.2
"""Share of the pairs up to which looking at them one by one is faster than a search over all of them..."""
_SWEPT_PRODUCTS = 0.02
"""... and than a matrix product."""
_LARGEST = 1e150
"""Coordinates beyond this cannot be squared: such rows are bad."""
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class VectorMetric(Distances):
    """A metric of the rows of a float array.

    Parameters
    ----------
    name
        What the metric is called.
    kind
        Which of the compiled distances it is.
    normal
        Whether its distances lie in [0, 1].

    Examples
    --------
    >>> euclidean = VectorMetric("euclidean", kernel.EUCLIDEAN)
    >>> points, bad = euclidean.records(pa.array([[0.0, 0.0], [3.0, 4.0], None, [1.0, float("nan")]]))
    >>> bad.tolist(), euclidean.pairwise(points[:1], points[1:2]).tolist()
    ([False, False, True, True], [[5.0]])
    """

    slack = 1e-12  # rounding of up to 30,000 dimensions: d / 8 + 16 units of 2.2e-16

    def __init__(self, name: str, kind: int, normal: bool = False) -> None:
        self.name = name
        self.normal = normal
        self._kind = kind

    def __repr__(self) -> str:
        return f"VectorMetric({self.name!r})"

    def records(self, column: pa.Array | pa.ChunkedArray, dimension: int | None = None) -> tuple[Array, Bools]:
        """Lists of numbers as rows. Bad: null, of another length, empty, with a null, NaN, infinite or huge number."""
        vectors, bad = vectors_of(one_array(column), self.name, dimension)
        if self._kind == kernel.ANGULAR:
            bad |= ~vectors.any(axis=1)  # a vector of zeros has no direction
        return vectors, bad

    def take(self, records: Array, index: Ints) -> Array:
        """The rows at these positions."""
        return np.asarray(records[index])

    def join(self, first: Array, second: Array) -> Array:
        """Both arrays, one under the other."""
        return np.concatenate([first, second])

    def value(self, records: Array, position: int) -> object:
        """The row as a list."""
        return records[position].tolist()

    def pairwise(self, left: Array, right: Array) -> Floats:
        """float64[n, m]: all distances."""
        left, right = self._ready(left, right)
        return np.asarray(kernel.pairwise(self._kind, left, right))

    def rows(self, left: Array, i: Ints, right: Array, j: Ints) -> Floats:
        """float64[len(i)]: the distances of the pairs (i[p], j[p])."""
        if len(i) < len(left):
            left, i = left[i], np.arange(len(i))
        if len(j) < len(right):
            right, j = right[j], np.arange(len(j))
        left, right = self._ready(left, right)
        return np.asarray(kernel.of_rows(self._kind, left, i, right, j))

    def within(self, left: Array, right: Array, t: float) -> Pairs:
        """The pairs at a distance of at most `t`."""
        return self._within(*self._ready(left, right), t)

    def within_groups(self, left: Array, left_starts: Ints, right: Array, right_starts: Ints, t: float) -> Pairs:
        """The pairs within `t` inside many blocks: all small ones in one compiled call, each large one by itself."""
        if not t >= 0:
            return no_pairs()
        left, right = self._ready(left, right)
        starts, ends = left_starts[:-1], left_starts[1:]
        right_from, right_to = right_starts[:-1], right_starts[1:]
        rows, columns = ends - starts, right_to - right_from
        large = (rows * columns > _SMALL_BLOCK) & (np.minimum(rows, columns) > _THIN)
        found: list[Pairs] = []
        for g in np.flatnonzero(large):
            i, j, distances = self._within(left[starts[g] : ends[g]], right[right_from[g] : right_to[g]], t)
            found.append((i + starts[g], j + right_from[g], distances))
        low, high = np.repeat(right_from, rows), np.repeat(np.where(large, right_from, right_to), rows)
        rest: Pairs = kernel.within_stretches(self._kind, left, right, low, high, t, kernel.cut_of(self._kind, t))
        return stacked([*found, rest]) if found else rest

    def _within(self, left: Array, right: Array, t: float) -> Pairs:
        if not t >= 0 or not len(left) or not len(right):
            return no_pairs()
        cut = kernel.cut_of(self._kind, t)
        if len(left) * len(right) <= _SMALL_BLOCK or min(len(left), len(right)) <= _THIN:
            low, high = np.zeros(len(left), dtype=np.int64), np.full(len(left), len(right))
            block: Pairs = kernel.within_stretches(self._kind, left, right, low, high, t, cut)
            return block
        products = self._kind <= kernel.EUCLIDEAN and left.shape[1] >= _PRODUCT_DIMENSION
        swept = within_sweep(self._kind, left, right, t, cut, _SWEPT_PRODUCTS if products else _SWEPT)
        if swept is not None:
            return swept
        if products:
            found = within_products(self._kind, left, right, t, cut)
            if found is not None:
                return found
        loose = cut * (1 + 1e-15 * (left.shape[1] + 8))
        columns = np.ascontiguousarray(right.T, dtype=np.float64)
        pairs: Pairs = kernel.within_columns(self._kind, left, right, columns, t, loose)
        return pairs

    def _ready(self, left: Array, right: Array) -> tuple[Array, Array]:
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
            raise OptionError(
                f"metric {self.name!r} cannot compare arrays of shapes {left.shape} and {right.shape}: "
                "vectors on both sides need one length"
            )
        if self._kind == kernel.ANGULAR:
            first = kernel.units(_plain(left, left.dtype))
            return first, first if right is left else kernel.units(_plain(right, right.dtype))
        kind = left.dtype if left.dtype == right.dtype else np.dtype(np.float64)
        return _plain(left, kind), _plain(right, kind)


class Cosine(VectorMetric):
    """The cosine distance 1 - cos, in [0, 2], as its user gives and reads it; inside, the angle, which is a metric.

    Examples
    --------
    >>> cosine = Cosine()
    >>> t = cosine.threshold(1.0)
    >>> t, cosine.surface(np.array([t])).tolist()
    (0.5, [1.0])
    """

    def __init__(self) -> None:
        super().__init__("cosine", kernel.ANGULAR, normal=True)

    def __repr__(self) -> str:
        return "Cosine()"

    def threshold(self, given: float) -> float:
        """The largest angle (in half turns) that reads as a cosine distance of at most `given`."""
        if not 0 <= given <= 2:
            raise OptionError(f"threshold is {given}, but distances of metric 'cosine' lie in [0, 2]")
        return largest_distance(lambda angles: self.surface(angles) <= given)

    def surface(self, distances: Floats) -> Floats:
        """1 - cos of the angles."""
        return np.asarray(kernel.cosines(np.require(distances, np.float64, ["C", "W"])))


def vectors_of(column: pa.Array, metric: str, dimension: int | None) -> tuple[Array, Bools]:
    """Lists of numbers as the rows of an array, and which of them are no vector of this length: those are zeros."""
    parts = list_parts(column)
    if parts is None or not _is_number(parts[0].type):
        raise wrong_column(metric, column.type, "lists of numbers, such as array<double>")
    values, starts, lengths = parts
    bad = ~column.is_valid().to_numpy(zero_copy_only=False)
    narrow = pa.types.is_float32(values.type) or pa.types.is_float16(values.type)
    flat = pc.cast(values, pa.float32() if narrow else pa.float64(), safe=False)
    numbers = (pc.fill_null(flat, math.nan) if flat.null_count else flat).to_numpy(zero_copy_only=False)
    if dimension is None:
        unfit = np.concatenate([[0], np.cumsum(~_usable(numbers))])
        filled = ~bad & (lengths > 0)
        clean = filled & (unfit[starts + lengths] == unfit[starts])
        dimension = _most_frequent(lengths[clean if clean.any() else filled])
    bad |= (lengths != dimension) | (dimension == 0)
    first, end = (int(starts[0]), int(starts[-1]) + dimension) if len(starts) else (0, 0)
    if end - first == len(column) * dimension and not bad.any():  # they lie side by side: nothing to be put together
        vectors = numbers[first:end].reshape(len(column), dimension)
    else:
        vectors = np.zeros((len(column), dimension), dtype=numbers.dtype)
        good = np.flatnonzero(~bad)
        if dimension:
            vectors[good] = numbers[starts[good][:, None] + np.arange(dimension)]
    wild = np.asarray(~_usable(vectors).all(axis=1))
    if wild.any():
        vectors = np.where(wild[:, None], vectors.dtype.type(0), vectors)
    return vectors, bad | wild


def _usable(numbers: Array) -> Bools:
    """Which numbers can be squared: the squares of float32 fit a double."""
    finite = np.isfinite(numbers) if numbers.dtype == np.float32 else np.abs(numbers) <= _LARGEST
    return np.asarray(finite)


def _most_frequent(lengths: Ints) -> int:
    """The length that most vectors have, the first one of several; 0 where there is none.

    >>> _most_frequent(np.array([3, 2, 2, 4])), _most_frequent(np.array([3, 2]))
    (2, 3)
    """
    found, first, count = np.unique(lengths, return_index=True, return_counts=True)
    return int(found[np.lexsort((first, -count))[0]]) if len(found) else 0


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _plain(vectors: Array, kind: np.dtype[Any]) -> Array:
    """The array as compiled loops want it: of float32 or float64, row by row, and not read-only (another type)."""
    flags = vectors.flags
    if vectors.dtype == kind and kind in _FLOATS and flags.c_contiguous and flags.writeable:
        return vectors
    return np.require(vectors, kind if kind in _FLOATS else np.float64, ["C", "W"])
