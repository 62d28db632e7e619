"""Built-in aggregates as a user names them: what, of which column. Each engine has a way of its own to compute them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steelyard.core.errors import OptionError


@dataclass(frozen=True, repr=False)
class Aggregate:
    """A built-in aggregate. Nulls are left out, as in SQL.

    Parameters
    ----------
    function
        What a user calls it, such as `"top_k"`.
    column
        What it reads; None for rows themselves.
    options
        What it was given beside its column, by name.
    """

    function: str
    column: str | None = None
    options: tuple[tuple[str, int], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns."""
        return () if self.column is None else (self.column,)

    def __repr__(self) -> str:
        given = [*map(repr, self.columns), *(f"{name}={value!r}" for name, value in self.options)]
        return f"sy.{self.function}({', '.join(given)})"


def count(column: str | None = None) -> Aggregate:
    """Rows of a group, or its rows where `column` is not null."""
    return Aggregate("count", _column("count", column))


def sum(column: str) -> Aggregate:
    """The sum of a column. In a query on Spark a string column is read as double."""
    return Aggregate("sum", _column("sum", column))


def min(column: str) -> Aggregate:
    """The smallest value of a column."""
    return Aggregate("min", _column("min", column))


def max(column: str) -> Aggregate:
    """The largest value of a column."""
    return Aggregate("max", _column("max", column))


def mean(column: str) -> Aggregate:
    """The mean of a column. In a query on Spark a string column is read as double."""
    return Aggregate("mean", _column("mean", column))


def variance(column: str) -> Aggregate:
    """The sample variance of a column; null for fewer than two values."""
    return Aggregate("variance", _column("variance", column))


def approx_distinct(column: str, log2_cells: int = 12) -> Aggregate:
    """About how many distinct values a column has (HyperLogLog with 2^log2_cells cells)."""
    if not 4 <= log2_cells <= 21:
        raise OptionError(f"approx_distinct: log2_cells must be from 4 to 21, got {log2_cells}")
    return Aggregate("approx_distinct", _column("approx_distinct", column), (("log2_cells", log2_cells),))


def collect(column: str, limit: int = 100) -> Aggregate:
    """The first `limit` values of a column by event time, as an array."""
    return Aggregate("collect", _column("collect", column), (("limit", _positive("collect", "limit", limit)),))


def top_k(column: str, k: int = 10) -> Aggregate:
    """The `k` largest values of a column, largest first, as an array.

    >>> top_k("fare", k=3)
    sy.top_k('fare', k=3)
    """
    return Aggregate("top_k", _column("top_k", column), (("k", _positive("top_k", "k", k)),))


def _positive(what: str, option: str, value: int) -> int:
    if not isinstance(value, int) or not 1 <= value <= 100_000:
        raise OptionError(f"{what}: {option} must be a whole number from 1 to 100000, got {value!r}")
    return value


def _column(what: str, column: Any) -> Any:
    if column is None or isinstance(column, str):
        return column
    raise OptionError(
        f"{what} takes the name of a column, as in sy.{what}('fare'), got {column!r}: compute it before, with "
        "rows.withColumn('fare', ...)"
    )
