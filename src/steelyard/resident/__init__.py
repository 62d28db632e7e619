"""The resident engine: workers that stay, and batches that move between them. Spark is one way to start it.

Nothing here imports Spark: a dataflow runs in threads, in processes, or (`steelyard.spark.resident`) in the tasks
of a Spark barrier job.
"""

from steelyard.core.dataflow import Dataflow, DataflowError, Placement
from steelyard.core.dataflow_picture import mermaid, svg
from steelyard.resident.aggregates import count, max, mean, min, sum
from steelyard.resident.flow import Flow, Stream
from steelyard.resident.operator import InstanceContext, Step
from steelyard.resident.sinks import Callback, Memory, Parquet
from steelyard.resident.sources import Generated, JsonLines, ParquetFiles, Rows, SocketLines

__all__ = [
    "Callback",
    "Dataflow",
    "DataflowError",
    "Flow",
    "Generated",
    "InstanceContext",
    "JsonLines",
    "Memory",
    "Parquet",
    "ParquetFiles",
    "Placement",
    "Rows",
    "SocketLines",
    "Step",
    "Stream",
    "count",
    "max",
    "mean",
    "mermaid",
    "min",
    "sum",
    "svg",
]
