"""Two queries over the events of a cluster's monitor.

Abdelhamid 2021 (section 2.6.1) names the trace, Google's of 2011, and not the queries. These are the two that
are usual over it in work on streams: CPU by class of job, and by job.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from steelyard.applications.columns import require
from steelyard.core.aggregates import mean, sum
from steelyard.spark.stream import Stream, stream


def cpu_per_class(
    events: DataFrame, window: str = "60 minutes", slide: str = "1 minute", delay: str = "10 seconds"
) -> Stream:
    """The `total_cpu` that tasks of each `scheduling_class` asked for.

    Four keys: where a key stays whole, no more than four tasks have work.

    Parameters
    ----------
    events
        Task events with the columns `event_time`, `scheduling_class` and `cpu`.
    window, slide, delay
        Length of a window, time between two, and how late events may come.
    """
    windows = stream(events).with_watermark("event_time", delay).group_by("scheduling_class")
    return windows.window(window, slide=slide).agg(total_cpu=sum("cpu"))


def cpu_per_job(
    events: DataFrame,
    event_type: str | None = "SCHEDULE",
    window: str = "60 minutes",
    slide: str = "1 minute",
    delay: str = "10 seconds",
) -> Stream:
    """The `mean_cpu` of each `job_id`, over the moments when its tasks were scheduled.

    Parameters
    ----------
    events
        Task events with the columns `event_time`, `job_id`, `event_type` and `cpu`.
    event_type
        Events that count; None: all of them.
    window, slide, delay
        Length of a window, time between two, and how late events may come.
    """
    if event_type is not None:
        require(events, "event_type")
        events = events.where(F.col("event_type") == event_type)
    windows = stream(events).with_watermark("event_time", delay).group_by("job_id").window(window, slide=slide)
    return windows.agg(mean_cpu=mean("cpu"))
