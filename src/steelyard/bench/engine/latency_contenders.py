"""A running count from Kafka to Kafka, on each engine; each runs in a process of its own until it is killed.

Usage: python -m steelyard.bench.engine.latency_contenders NAME REQUEST, the request as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT_SECONDS = 300
"""Between two checkpoints of the real-time mode, and of ours beside it; its documentation's own value."""


@dataclass(frozen=True)
class Request:
    """What a contender is told."""

    servers: str
    source: str
    target: str
    partitions: int
    jars: str


def _session(request: Request) -> SparkSession:
    import steelyard as sy  # noqa: PLC0415 - loads Spark

    # The real-time mode runs all stages at once: a slot for each task that reads, and each that counts.
    config = {
        "spark.jars": request.jars,
        "spark.sql.shuffle.partitions": str(request.partitions),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    spark = sy.session(
        "steelyard bench latency", master=f"local[{2 * request.partitions + 1}]", config=config, ahead=False
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _counts(spark: SparkSession, request: Request) -> DataFrame:
    """Plain Spark's running count, as records."""
    options = {"kafka.bootstrap.servers": request.servers, "subscribe": request.source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options).load()
    counted = rows.selectExpr("cast(key as string) as key").groupBy("key").count()
    return counted.selectExpr("key", "to_json(struct(key, count as n)) as value")


def _started(spark: SparkSession, request: Request, trigger: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="steelyard-latency-") as folder:
        writer = _counts(spark, request).writeStream.format("kafka").outputMode("update").trigger(**trigger)
        writer = writer.option("kafka.bootstrap.servers", request.servers).option("topic", request.target)
        writer = writer.option("kafka.linger.ms", "0").option("checkpointLocation", folder)
        writer.start().awaitTermination()


def real_time(request: Request) -> None:
    """Spark's real-time mode: a checkpoint every five minutes, rows as they come."""
    _started(_session(request), request, {"realTime": f"{CHECKPOINT_SECONDS} seconds"})


def structured_streaming(request: Request) -> None:
    """Spark's default: one small batch after the other, as fast as they go."""
    _started(_session(request), request, {"processingTime": "0 seconds"})


def _resident(request: Request, interval: float) -> None:
    import pyarrow as pa  # noqa: PLC0415

    from steelyard.core.aggregates import count  # noqa: PLC0415
    from steelyard.resident import Flow, Settings  # noqa: PLC0415
    from steelyard.resident.kafka import KafkaTopic  # noqa: PLC0415
    from steelyard.resident.kafka_sink import AT_LEAST_ONCE, Kafka  # noqa: PLC0415
    from steelyard.spark import resident  # noqa: PLC0415 - loads Spark

    def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"key": batch.column("key").cast(pa.string())})

    options = {"kafka.bootstrap.servers": request.servers, "subscribe": request.source, "startingoffsets": "earliest"}
    flow = Flow("latency", parallelism=request.partitions)
    rows = flow.source(KafkaTopic.of(options, available_now=False)).map(keyed, pa.schema({"key": pa.string()}))
    sink = Kafka({"bootstrap.servers": request.servers}, request.target, ("key",), "latency", AT_LEAST_ONCE)
    rows.key_by("key").aggregate(n=count()).forward().sink(sink)
    with tempfile.TemporaryDirectory(prefix="steelyard-latency-") as folder:
        settings = Settings(store=folder, interval=interval)
        resident.run(_session(request), flow.dataflow(), workers=request.partitions, settings=settings)


def resident_workers(request: Request) -> None:
    """Workers that stay, a snapshot every five minutes, as the real-time mode."""
    _resident(request, CHECKPOINT_SECONDS)


def resident_each_second(request: Request) -> None:
    """The same with a snapshot every second."""
    _resident(request, 1.0)


CONTENDERS: dict[str, Callable[[Request], None]] = {
    "real-time mode": real_time,
    "resident workers": resident_workers,
    "resident, a snapshot per second": resident_each_second,
    "Structured Streaming": structured_streaming,
}

if __name__ == "__main__":
    CONTENDERS[sys.argv[1]](Request(**json.loads(sys.argv[2])))
