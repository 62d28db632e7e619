"""The most frequent keys of each window (TopKCount; Abdelhamid 2021, section 2.6.1), from windowed counts.

First a stream counts keys, which is the part that skew makes hard; then the few largest counts of each window
are chosen among its results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from steelyard.applications.columns import require
from steelyard.core import OptionError
from steelyard.spark.rows import quoted

K = 10
"""The paper does not say how many."""
RANK = "rank"
_SPAN = ("window_start", "window_end")


def top(results: DataFrame, k: int = K, by: str = "count") -> DataFrame:
    """The `k` results of each window that have the largest `by`, with their `rank` from 1.

    Equal ones are ranked by their other columns, so the answer does not depend on how rows were spread. Spark
    keeps only k rows of a window in each task before it brings them together.

    Parameters
    ----------
    results
        What a query gave, such as `word_count(rows).to_df()`. Without window columns it is all one window.
    k
        How many.
    by
        The column that is compared; nulls come last.
    """
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise OptionError(f"top: k must be a whole number of at least 1, got {k!r}")
    require(results, by)
    if RANK in results.columns:
        raise OptionError(f"top adds a column {RANK!r} and there is one already: rename it")
    rest = [quoted(name) for name in results.columns if name not in (*_SPAN, by)]
    spans = [quoted(name) for name in _SPAN if name in results.columns]
    order = Window.partitionBy(*spans).orderBy(quoted(by).desc_nulls_last(), *rest)
    return results.withColumn(RANK, F.row_number().over(order)).where(F.col(RANK) <= k)


def top_of_each_batch(
    function: Callable[[DataFrame, int], Any], k: int = K, by: str = "count"
) -> Callable[[DataFrame, int], None]:
    """A function for `.sink("foreach_batch", function=...)` that calls yours with the `top` of a batch's results.

    A batch must have whole windows: those that it closes, with the output mode `append`, or all, with
    `complete`. With `update` it has only the keys that changed, and the top of these is not the window's.

    Parameters
    ----------
    function
        Called with (DataFrame, batch number).
    k, by
        As in `top`.
    """

    def write(results: DataFrame, batch: int) -> None:
        function(top(results, k, by), batch)

    return write
