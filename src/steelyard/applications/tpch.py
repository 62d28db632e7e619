"""TPC-H's queries 1 and 6 as reports on recent orders (Abdelhamid 2021, section 2.6.1).

The paper spells out query 1: quantities by part over the last hour. Of query 6 it gives the name, so here it
is TPC-H's own filter and sum, by window.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.applications.columns import require
from steelyard.core import OptionError
from steelyard.core.aggregates import sum
from steelyard.spark.stream import Stream, stream

FIRST_DAY = date(1994, 1, 1)
DISCOUNT, DISCOUNT_MARGIN = 0.06, 0.01
QUANTITY = 24
"""The parameters that TPC-H validates query 6 with (section 2.4.6)."""

REPORT = "report"
"""The key column of a sum that has no key."""
REVENUE_CHANGE = "revenue change"


def quantity_per_part(
    lines: DataFrame, window: str = "1 hour", slide: str = "1 minute", delay: str = "10 seconds"
) -> Stream:
    """Query 1: the `quantity` of each `l_partkey` that was ordered.

    Parameters
    ----------
    lines
        Line items with the columns `event_time`, `l_partkey` and `l_quantity`.
    window, slide
        The paper's by default.
    delay
        How late lines may come.
    """
    windows = stream(lines).with_watermark("event_time", delay).group_by("l_partkey").window(window, slide=slide)
    return windows.agg(quantity=sum("l_quantity"))


def revenue_change(
    lines: DataFrame,
    first_day: date = FIRST_DAY,
    discount: float = DISCOUNT,
    quantity: int = QUANTITY,
    window: str = "1 hour",
    slide: str = "1 minute",
    delay: str = "10 seconds",
) -> Stream:
    """Query 6: the `revenue` that there would be more without small orders' discounts.

    The sum has no key, and a stream needs one: the column `report` is the same in every row. So all rows are of
    one key, the most skewed there can be. The filter runs before the stream, in the JVM: the rows it drops move
    nowhere, and do not move the watermark either.

    Parameters
    ----------
    lines
        Line items with the columns `event_time`, `l_shipdate`, `l_discount`, `l_quantity`, `l_extendedprice`.
    first_day
        Lines that were shipped in the year from this day on.
    discount
        Their discount, give or take 0.01.
    quantity
        Their quantity is less.
    window, slide, delay
        Length of a window, time between two, and how late lines may come.
    """
    require(lines, "event_time", "l_shipdate", "l_discount", "l_quantity", "l_extendedprice")
    if not isinstance(first_day, date):
        raise OptionError(f"first_day must be a date such as datetime.date(1994, 1, 1), got {first_day!r}")
    # As doubles 0.06 + 0.01 is less than 0.07, and would drop a third of the rows: round to what is meant.
    low, high = round(discount - DISCOUNT_MARGIN, 2), round(discount + DISCOUNT_MARGIN, 2)
    day = F.lit(first_day)
    chosen = lines.where(
        (F.col("l_shipdate") >= day)
        & (F.col("l_shipdate") < F.add_months(day, 12))
        & F.col("l_discount").between(low, high)
        & (F.col("l_quantity") < quantity)
    ).select(
        "event_time",
        F.lit(REVENUE_CHANGE).alias(REPORT),
        (F.col("l_extendedprice") * F.col("l_discount")).alias("saved"),
    )
    windows = stream(chosen).with_watermark("event_time", delay).group_by(REPORT).window(window, slide=slide)
    return windows.agg(revenue=sum("saved"))
