"""The two queries over New York's taxi trips (DEBS 2015 challenge; Abdelhamid 2021, section 2.6.1)."""

from __future__ import annotations

from pyspark.sql import DataFrame

from steelyard.core.aggregates import sum
from steelyard.spark.stream import Stream, stream


def fare_per_taxi(
    trips: DataFrame, window: str = "2 hours", slide: str = "5 minutes", delay: str = "10 seconds"
) -> Stream:
    """Query 1: `total_fare` of each `medallion`.

    Parameters
    ----------
    trips
        Trips with the columns `medallion`, `dropoff_time` and `fare_amount`.
    window, slide
        The paper's by default.
    delay
        How late trips may come.
    """
    windows = stream(trips).with_watermark("dropoff_time", delay).group_by("medallion").window(window, slide=slide)
    return windows.agg(total_fare=sum("fare_amount"))


def distance_per_taxi(
    trips: DataFrame, window: str = "45 minutes", slide: str = "1 minute", delay: str = "10 seconds"
) -> Stream:
    """Query 2: `total_distance` of each `medallion`, in miles.

    Parameters
    ----------
    trips
        Trips with the columns `medallion`, `dropoff_time` and `trip_distance`.
    window, slide
        The paper's by default.
    delay
        How late trips may come.
    """
    windows = stream(trips).with_watermark("dropoff_time", delay).group_by("medallion").window(window, slide=slide)
    return windows.agg(total_distance=sum("trip_distance"))
