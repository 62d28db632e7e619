"""What a metric is to a similarity join, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError
from steelyard.kernels import distance_ragged as kernel

Records = Any
"""What a metric works on; it has a length, and only the metric looks inside."""
Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Pairs = tuple[Ints, Ints, Floats]
"""Positions on the left, positions on the right, and distances; in no promised order, each pair once."""


class Metric(Protocol):
    """A distance of records, in bulk.

    The distance of a pair depends on its two records alone: the same bits in `pairwise`, `within`, `within_groups`
    and `rows`, in every block and in either order. Equal records are at distance 0, exactly.

    Attributes
    ----------
    name
        As in `metric(name)`.
    normal
        Distances lie in [0, 1].
    slack
        A bound on the rounding of a distance of at most 1 (see `margin`): tests of geometry allow for it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def normal(self) -> bool: ...  # noqa: D102
    @property
    def slack(self) -> float: ...  # noqa: D102

    def records(self, column: pa.Array | pa.ChunkedArray, dimension: int | None = None) -> tuple[Records, Bools]:
        """One record for each row of the column, and which rows are bad (their record is a placeholder).

        `dimension` is the length that vectors must have; without it, that of the first row that has one.
        """
        ...

    def take(self, records: Records, index: Ints) -> Records:
        """The records at these positions."""
        ...

    def join(self, first: Records, second: Records) -> Records:
        """Both, one after the other."""
        ...

    def value(self, records: Records, position: int) -> object:
        """One record as a person would write it, for messages."""
        ...

    def pairwise(self, left: Records, right: Records) -> Floats:
        """float64[n, m]: all distances."""
        ...

    def rows(self, left: Records, i: Ints, right: Records, j: Ints) -> Floats:
        """float64[len(i)]: the distances of the pairs (i[p], j[p])."""
        ...

    def within(self, left: Records, right: Records, t: float) -> Pairs:
        """The pairs at a distance of at most `t`."""
        ...

    def within_groups(self, left: Records, left_starts: Ints, right: Records, right_starts: Ints, t: float) -> Pairs:
        """The pairs within `t` inside many blocks.

        Block g is `left[left_starts[g]:left_starts[g+1]]` by `right[right_starts[g]:right_starts[g+1]]`; positions
        are those in `left` and `right`.
        """
        ...

    def threshold(self, given: float) -> float:
        """What a user's threshold is in this metric's distances; an `OptionError` where it is none."""
        ...

    def threshold_of(self, similarity: float) -> float:
        """The largest of this metric's distances that reads as at least this similarity, where `normal`."""
        ...

    def surface(self, distances: Floats) -> Floats:
        """Distances as a user reads them."""
        ...

    def similarities(self, read: Floats) -> Floats:
        """Similarities as a user reads them, of distances as a user reads them."""
        ...

    def margin(self, distances: Floats | float) -> Floats | float:
        """How far each of these may be from the distance without rounding."""
        ...


class Distances:
    """What metrics share; a subclass adds records and their distances."""

    name: str
    normal: bool
    slack: float

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def threshold(self, given: float) -> float:
        """The threshold itself, if a distance can be as small and as large.

        >>> from steelyard.similarity import metric
        >>> metric("angular").threshold(1.5)
        Traceback (most recent call last):
        steelyard.core.errors.OptionError: threshold is 1.5, but distances of metric 'angular' lie in [0, 1]
        """
        if not given >= 0 or (self.normal and given > 1):
            span = "lie in [0, 1]" if self.normal else "are at least 0"
            raise OptionError(f"threshold is {given}, but distances of metric {self.name!r} {span}")
        return float(given)

    def threshold_of(self, similarity: float) -> float:
        """The largest distance that reads as at least this similarity.

        Not 1 - similarity, which is rounded: 1 - 0.9 is less than 1 / 10.

        >>> from steelyard.similarity import metric
        >>> metric("jaccard").threshold_of(0.9) >= 1 / 10 > 1 - 0.9
        True
        """
        if not 0 <= similarity <= 1:
            raise OptionError(f"similarity is a share from 0 to 1, got {similarity}")
        return largest_distance(lambda distances: self.similarities(self.surface(distances)) >= similarity)

    def surface(self, distances: Floats) -> Floats:
        """The distances themselves."""
        return distances

    def similarities(self, read: Floats) -> Floats:
        """1 - distance."""
        return np.asarray(1.0 - read)

    def margin(self, distances: Floats | float) -> Floats | float:
        """Rounding grows with the distance: `slack * max(1, distance)`."""
        found = self.slack * np.maximum(1.0, distances)
        return found if isinstance(distances, np.ndarray) else float(found)


class Shares(Distances):
    """What metrics share whose distances are quotients of whole numbers, rounded once: a part of all that there is."""

    normal = True
    slack = 1e-15

    def similarities(self, read: Floats) -> Floats:
        """The other part, rounded once too."""
        return np.asarray(kernel.shares_left(np.require(read, np.float64, ["C", "W"])))


def largest_distance(admits: Callable[[Floats], Bools]) -> float:
    """The largest number in [0, 1] that is admitted, where all smaller ones are, and 0 in any case."""
    if admits(np.ones(1))[0]:
        return 1.0
    # Floats that are not negative are ordered as their bits are.
    low, high = np.zeros(1).view(np.int64), np.ones(1).view(np.int64)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admits(middle.view(np.float64))[0] else (low, middle)
    return float(low.view(np.float64)[0])


def no_pairs() -> Pairs:
    """Nothing found."""
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)


def of_table(table: Floats, t: float) -> Pairs:
    """The pairs within `t` of a table of all distances."""
    i, j = np.nonzero(table <= t)
    return i.astype(np.int64), j.astype(np.int64), table[i, j].astype(np.float64)


def stacked(found: list[Pairs]) -> Pairs:
    """Pairs of several blocks as one."""
    if not found:
        return no_pairs()
    return (
        np.concatenate([pairs[0] for pairs in found]),
        np.concatenate([pairs[1] for pairs in found]),
        np.concatenate([pairs[2] for pairs in found]),
    )


def group_by_group(
    metric: Metric, left: Records, left_starts: Ints, right: Records, right_starts: Ints, t: float
) -> Pairs:
    """`within_groups` by one `within` for each block, for metrics that have nothing faster."""
    found = []
    for g in range(len(left_starts) - 1):
        a, a_end, b, b_end = left_starts[g], left_starts[g + 1], right_starts[g], right_starts[g + 1]
        if a < a_end and b < b_end:
            block, other = metric.take(left, np.arange(a, a_end)), metric.take(right, np.arange(b, b_end))
            i, j, distances = metric.within(block, other, t)
            found.append((i + a, j + b, distances))
    return stacked(found)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one piece, without a dictionary."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # a column too long for one array stays in pieces
        whole = pa.concat_arrays(whole.chunks)
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def list_parts(column: pa.Array) -> tuple[pa.Array, Ints, Ints] | None:
    """The members of all lists one after the other, where each list starts, and its length; None if not of lists."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        starts = (column.offset + np.arange(len(column), dtype=np.int64)) * kind.list_size
        return column.values, starts, np.full(len(column), kind.list_size, dtype=np.int64)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return column.values, ends[:-1], np.diff(ends)
    return None


def wrong_column(metric: str, kind: pa.DataType, needed: str) -> OptionError:
    """The error for a column that the metric has no records of."""
    return OptionError(f"metric {metric!r} cannot work on a column of type {kind}: it needs {needed}")


def members(starts: Ints, lengths: Ints) -> Ints:
    """The positions `starts[i] .. starts[i] + lengths[i] - 1` of every i, one after the other.

    >>> members(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    first = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - first, lengths) + np.arange(int(lengths.sum()), dtype=np.int64))


def ends_of(lengths: Ints) -> Ints:
    """int64[n + 1]: where each record starts when they lie one after the other, and where the last ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
