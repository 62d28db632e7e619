"""Aggregates that Arrow's grouped functions do not have: states of groups, made, merged and finished in arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.kernels.radix import stable_order
from steelyard.resident.keys import distinct

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Groups:
    """Rows in order of their group, groups in the order of their first rows.

    Parameters
    ----------
    order
        int64[rows]: the rows of the first group, of the second, and so on.
    starts
        int64[groups]: where each group begins in `order`.

    Examples
    --------
    >>> groups = Groups.of([pa.array(["b", "a", "b"])])
    >>> groups.order.tolist(), groups.starts.tolist()
    ([0, 2, 1], [0, 2])
    """

    order: Ints
    starts: Ints

    @classmethod
    def of(cls, columns: list[pa.Array]) -> Groups:
        """Rows that agree in all columns."""
        codes, first = distinct(columns)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        group = rank[codes]
        sizes = np.bincount(group, minlength=len(first))
        return cls(stable_order(group, len(first)), np.cumsum(sizes) - sizes)

    @property
    def bounds(self) -> Ints:
        """int64[groups + 1]: where each group begins, and where the last one ends."""
        return np.append(self.starts, len(self.order))

    def reduced(self, operation: np.ufunc, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One value for each group, from one for each row in the order of groups."""
        return np.asarray(operation.reduceat(values, self.starts)) if len(self.starts) else values[:0]

    def spread(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One value for each row in the order of groups, from one for each group."""
        return np.repeat(values, np.diff(self.bounds))


class StateAggregate(ABC):
    """An aggregate with a state of its own, one for each group of a batch, in one Arrow column."""

    columns: tuple[str, ...]
    """What it reads."""

    @abstractmethod
    def added(self, columns: Sequence[pa.Array], groups: Groups) -> pa.Array:
        """The state of each group of rows."""

    @abstractmethod
    def merged(self, states: pa.Array, groups: Groups) -> pa.Array:
        """One state for each group of states."""

    @abstractmethod
    def finished(self, states: pa.Array) -> pa.Array:
        """The result of each state."""


def _numbers(column: pa.Array, groups: Groups) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Values in the order of groups, 0 where they are null; and where they are not."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise OptionError(f"an aggregate of numbers does not fit its column's type, {column.type}")
    given = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    return values[groups.order], given[groups.order]


@dataclass(frozen=True)
class Variance(StateAggregate):
    """The sample variance of a column; null for fewer than two values. Nulls are left out.

    States are (n, mean, m2), where m2 is the sum of squared distances from the mean, and are merged by Chan's formula,
    which keeps its digits where sums of squares lose them.

    Examples
    --------
    >>> values, groups = pa.array([1.0, 3.0, None, 5.0]), Groups.of([pa.array(["a", "a", "a", "b"])])
    >>> Variance("x").finished(Variance("x").added([values], groups)).to_pylist()
    [2.0, None]
    """

    column: str

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The one."""
        return (self.column,)

    def added(self, columns: Sequence[pa.Array], groups: Groups) -> pa.Array:
        """Two passes: the mean, then the distances from it."""
        values, given = _numbers(columns[0], groups)
        n = groups.reduced(np.add, given.astype(np.float64))
        mean = groups.reduced(np.add, values) / np.maximum(n, 1)
        with np.errstate(invalid="ignore"):  # of infinite numbers the variance is NaN
            apart = np.where(given, values - groups.spread(mean), 0.0)
        return _moments(n, mean, groups.reduced(np.add, apart * apart))

    def merged(self, states: pa.Array, groups: Groups) -> pa.Array:
        """m2 = sum of m2_i + sum of n_i (mean_i - mean)^2."""
        n, mean, m2 = (part.to_numpy(zero_copy_only=False)[groups.order] for part in states.flatten())
        total = groups.reduced(np.add, n)
        common = groups.reduced(np.add, n * mean) / np.maximum(total, 1)
        with np.errstate(invalid="ignore"):
            apart = mean - groups.spread(common)
            squares = m2 + n * apart * apart
        return _moments(total, common, groups.reduced(np.add, squares))

    def finished(self, states: pa.Array) -> pa.Array:
        """m2 / (n - 1)."""
        n, _, m2 = (part.to_numpy(zero_copy_only=False) for part in states.flatten())
        return pa.array(m2 / np.maximum(n - 1, 1), mask=n < 2)


def _moments(n: Floats, mean: Floats, m2: Floats) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array(n), pa.array(mean), pa.array(m2)], names=["n", "mean", "m2"])


@dataclass(frozen=True)
class Extreme(StateAggregate):
    """The least or the greatest of floating numbers, where NaN is above all others, as in Spark; nulls are left out.

    Examples
    --------
    >>> values, groups = pa.array([1.0, float("nan"), None]), Groups.of([pa.array([1, 1, 1])])
    >>> [Extreme("x", greatest).added([values], groups).to_pylist() for greatest in (False, True)]
    [[1.0], [nan]]
    """

    column: str
    greatest: bool

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The one."""
        return (self.column,)

    def added(self, columns: Sequence[pa.Array], groups: Groups) -> pa.Array:
        """Of the rows."""
        return self.merged(columns[0], groups)

    def merged(self, states: pa.Array, groups: Groups) -> pa.Array:
        """An extreme of extremes."""
        values, given = _numbers(states, groups)
        # `maximum` hands NaN on, and `fmin` leaves it out where there is anything else.
        operation, nothing = (np.maximum, -np.inf) if self.greatest else (np.fmin, np.nan)
        found = groups.reduced(operation, np.where(given, values, nothing))
        return pa.array(found, mask=~groups.reduced(np.logical_or, given).astype(np.bool_)).cast(states.type)

    def finished(self, states: pa.Array) -> pa.Array:
        """As they are."""
        return states
