"""The resident engine: workers that stay, and batches that move between them. Spark is one way to start it.

Nothing here imports Spark: a dataflow runs in threads, in processes, or (`steelyard.spark.resident`) in the tasks
of a Spark barrier job.
"""

from steelyard.core.dataflow import Dataflow
from steelyard.core.picture import mermaid, svg
from steelyard.core.topology import DataflowError, Placement
from steelyard.resident.file_sources import JsonLines, ParquetFiles
from steelyard.resident.flow import Flow, Stream
from steelyard.resident.generated import Generated
from steelyard.resident.generations import JobError
from steelyard.resident.jobs import Results, run
from steelyard.resident.operator import InstanceContext, Step
from steelyard.resident.security import Tls
from steelyard.resident.settings import Settings
from steelyard.resident.sinks import Callback, Memory, Parquet
from steelyard.resident.sources import Rows, SocketLines

__all__ = [
    "Callback",
    "Dataflow",
    "DataflowError",
    "Flow",
    "Generated",
    "InstanceContext",
    "JobError",
    "JsonLines",
    "Memory",
    "Parquet",
    "ParquetFiles",
    "Placement",
    "Results",
    "Rows",
    "Settings",
    "SocketLines",
    "Step",
    "Stream",
    "Tls",
    "mermaid",
    "run",
    "svg",
]
