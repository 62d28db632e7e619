"""Built-in aggregates as a user names them: what, of which column. Each engine has a way of its own to compute them."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.core.errors import OptionError


@dataclass(frozen=True, repr=False)
class Aggregate:
    """A built-in aggregate. Nulls are left out, as in SQL.

    Parameters
    ----------
    function
        What a user calls it, such as `"top_k"`.
    column
        What it reads; None for rows themselves, which can only be counted.
    options
        What it was given beside its column, by name.
    """

    function: str
    column: str | None = None
    options: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.column, str) or (self.column is None and self.function == "count"):
            return
        raise OptionError(
            f"{self.function} takes the name of a column, as in sy.{self.function}('fare'), got {self.column!r}: "
            "compute it before, with rows.withColumn('fare', ...)"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns."""
        return () if self.column is None else (self.column,)

    def __repr__(self) -> str:
        given = [*map(repr, self.columns), *(f"{name}={value!r}" for name, value in self.options)]
        return f"sy.{self.function}({', '.join(given)})"


def count(column: str | None = None) -> Aggregate:
    """Rows of a group, or its rows where `column` is not null."""
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """The sum of a column. In a query on Spark a string column is read as double."""
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """The smallest value of a column."""
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """The largest value of a column."""
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean of a column. In a query on Spark a string column is read as double."""
    return Aggregate("mean", column)


def variance(column: str) -> Aggregate:
    """The sample variance of a column; null for fewer than two values."""
    return Aggregate("variance", column)


def approx_distinct(column: str, log2_cells: int = 12) -> Aggregate:
    """About how many distinct values a column has (HyperLogLog with 2^log2_cells cells)."""
    if not 4 <= log2_cells <= 21:
        raise OptionError(f"approx_distinct: log2_cells must be from 4 to 21, got {log2_cells}")
    return Aggregate("approx_distinct", column, (("log2_cells", log2_cells),))


def collect(column: str, limit: int = 100) -> Aggregate:
    """The first `limit` values of a column by event time, as an array."""
    return Aggregate("collect", column, (("limit", _positive("collect", "limit", limit)),))


def top_k(column: str, k: int = 10) -> Aggregate:
    """The `k` largest values of a column, largest first, as an array.

    >>> top_k("fare", k=3)
    sy.top_k('fare', k=3)
    """
    return Aggregate("top_k", column, (("k", _positive("top_k", "k", k)),))


def _positive(what: str, option: str, value: int) -> int:
    if not isinstance(value, int) or not 1 <= value <= 100_000:
        raise OptionError(f"{what}: {option} must be a whole number from 1 to 100000, got {value!r}")
    return value
