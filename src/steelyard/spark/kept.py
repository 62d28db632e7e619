"""Results that a sink reads more than once, and that are computed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from steelyard.spark.arrow import comes_back, in_driver

SMALL_BYTES = 4 << 20
"""Results that Spark takes to have no more come to the driver; others are kept where they are computed."""


@contextmanager
def kept(results: DataFrame) -> Iterator[tuple[DataFrame, int]]:
    """The results, to be read as often as one likes, and their number."""
    if comes_back(results.schema) and _bytes_of(results) <= SMALL_BYTES:
        table = results.toArrow()
        yield in_driver(results.sparkSession, table, results.schema), table.num_rows
        return
    persisted = results.persist()
    try:
        yield persisted, persisted.count()
    finally:
        persisted.unpersist()


def _bytes_of(results: DataFrame) -> int:
    """What Spark takes the results to have, by what they are computed from."""
    java: Any = results._jdf
    return int(java.queryExecution().optimizedPlan().stats().sizeInBytes())
