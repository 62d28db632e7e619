"""Columns that an application reads before its `Stream` can check them."""

from __future__ import annotations

from pyspark.sql import DataFrame

from steelyard.core import OptionError


def require(rows: DataFrame, *names: str) -> None:
    """Raise an OptionError, with the nearest right name, for the first of `names` that is no column of `rows`."""
    for name in names:
        if name not in rows.columns:
            raise OptionError.unknown("column", name, rows.columns)
