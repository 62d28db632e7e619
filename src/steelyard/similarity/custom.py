"""A metric that is a Python function of two records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core.errors import SteelyardError
from steelyard.similarity.protocol import (
    Bools,
    Distances,
    Floats,
    Ints,
    Pairs,
    group_by_group,
    list_parts,
    of_table,
    one_array,
)


class FunctionMetric(Distances):
    """The distance that a function gives: one call for each pair, so slow beside the metrics that come with it.

    Parameters
    ----------
    function
        Of two records: numbers, text, dictionaries (of structs), lists, or NumPy rows where a column holds lists of
        numbers. It must be a metric: 0 for equal records, the same in both orders, and never longer by a detour
        (`counterexample` looks for records where it is not).
    name
        For messages; the function's own name without it.
    normal
        Whether its distances lie in [0, 1].
    slack
        A bound on the rounding of a distance of at most 1.

    Examples
    --------
    >>> years = FunctionMetric(lambda a, b: abs(a - b), name="years")
    >>> records, bad = years.records(pa.array([1990, 1992, None]))
    >>> bad.tolist(), [found.tolist() for found in years.within(records[:1], records[1:2], 2)]
    ([False, False, True], [[0], [0], [2.0]])
    """

    def __init__(
        self,
        function: Callable[[Any, Any], float],
        name: str | None = None,
        normal: bool = False,
        slack: float = 1e-9,
    ) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self.normal = normal
        self.slack = slack

    def __repr__(self) -> str:
        return f"FunctionMetric({self.name})"

    def records(self, column: pa.Array | pa.ChunkedArray, dimension: int | None = None) -> tuple[list[Any], Bools]:
        """Python values, and NumPy rows for lists of numbers. Bad: null, NaN or infinite, or another `dimension`."""
        whole = one_array(column)
        values = whole.to_pylist()
        parts = list_parts(whole)
        if parts is not None and (pa.types.is_integer(parts[0].type) or pa.types.is_floating(parts[0].type)):
            kind = parts[0].type.to_pandas_dtype()
            values = [None if _holed(value, dimension) else np.array(value, dtype=kind) for value in values]
        bad = np.array([_no_record(value) for value in values], dtype=bool)
        return values, bad

    def take(self, records: Any, index: Ints) -> Any:
        """The records at these positions."""
        if isinstance(records, np.ndarray):
            return records[index]
        return [records[place] for place in np.asarray(index).tolist()]

    def join(self, first: Any, second: Any) -> Any:
        """Both, one after the other."""
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
            return np.concatenate([first, second])
        return [*first, *second]

    def value(self, records: Any, position: int) -> object:
        """The record; a NumPy row as a list."""
        record = records[position]
        return record.tolist() if isinstance(record, np.ndarray) else record

    def of(self, first: Any, second: Any) -> float:
        """What the function gives for two records in this order, if that is a distance."""
        found = float(self.function(first, second))
        if not 0 <= found < math.inf:
            raise SteelyardError(
                f"metric {self.name!r} gave {found} for {first!r} and {second!r}: "
                "a distance is a finite number of at least 0"
            )
        return found

    def pairwise(self, left: Any, right: Any) -> Floats:
        """float64[n, m]: all distances."""
        orders, others = _orders(left), _orders(right)
        table = np.empty((len(left), len(right)), dtype=np.float64)
        for i, order in enumerate(orders):
            for j, other in enumerate(others):
                table[i, j] = self._ordered(left[i], order, right[j], other)
        return table

    def rows(self, left: Any, i: Ints, right: Any, j: Ints) -> Floats:
        """float64[len(i)]: the distances of the pairs (i[p], j[p])."""
        pairs = zip(self.take(left, i), self.take(right, j), strict=True)
        found = [self._ordered(first, _order(first), second, _order(second)) for first, second in pairs]
        return np.array(found, dtype=np.float64)

    def within(self, left: Any, right: Any, t: float) -> Pairs:
        """The pairs at a distance of at most `t`."""
        return of_table(self.pairwise(left, right), t)

    def within_groups(self, left: Any, left_starts: Ints, right: Any, right_starts: Ints, t: float) -> Pairs:
        """The pairs within `t` inside many blocks, one block after the other."""
        return group_by_group(self, left, left_starts, right, right_starts, t)

    def _ordered(self, first: Any, order: bytes, second: Any, other: bytes) -> float:
        """The distance in an order that the two records settle, so that rounding is the same whoever asks."""
        return self.of(first, second) if order <= other else self.of(second, first)


def _order(record: Any) -> bytes:
    return record.tobytes() if isinstance(record, np.ndarray) else repr(record).encode("utf-8", "surrogatepass")


def _orders(records: Sequence[Any]) -> list[bytes]:
    return [_order(record) for record in records]


def _holed(value: list[Any] | None, dimension: int | None) -> bool:
    return value is None or None in value or (dimension is not None and len(value) != dimension)


def _no_record(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, np.ndarray):
        return not bool(np.isfinite(value).all())
    return isinstance(value, float) and not math.isfinite(value)
