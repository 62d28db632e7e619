"""Total the fares of each taxi, from one Kafka topic to another.

    python examples/kafka_fares.py --servers localhost:9092 --checkpoint /tmp/fares

Each record of the topic `fares` is JSON: {"medallion": "7A31", "fare_amount": 12.5}. Each record of `totals`
is the new total of one taxi: {"medallion": "7A31", "total": 210.25, "trips": 17}.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import steelyard as sy
from steelyard.spark.kafka import kafka_jars

FARE = "medallion string, fare_amount double"


def start(spark: SparkSession, servers: str, source: str, target: str, checkpoint: str, per_batch: int = 100_000):
    """Total what is in the topic `source` now, from where the checkpoint is."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .load()
    )
    fares = records.select(sf.from_json(records.value.cast("string"), FARE).alias("fare")).select("fare.*")
    return (
        sy.stream(fares)
        .group_by("medallion")
        .agg(total=sy.sum("fare_amount"), trips=sy.count())
        .partition_by("prompt", blocks=2, buckets=2)
        .sink("kafka", servers=servers, topic=target)
        .checkpoint(checkpoint)
        .trigger(available_now=True)
        .name("fares")
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Total the fares of each taxi, from Kafka to Kafka.")
    parser.add_argument("--servers", default="localhost:9092", help="Kafka's bootstrap servers")
    parser.add_argument("--source", default="fares", help="the topic to read")
    parser.add_argument("--target", default="totals", help="the topic to write")
    parser.add_argument("--checkpoint", required=True, help="a directory that outlives the program")
    parser.add_argument("--package", action="append", help="the connector to use, if not Spark's own release")
    options = parser.parse_args()

    jars = ",".join(map(str, kafka_jars(options.package)))
    spark = sy.session("fares", config={"spark.jars": jars})
    query = start(spark, options.servers, options.source, options.target, options.checkpoint)
    query.await_termination()
    for report in query.recent_progress:
        print(report)
    spark.stop()


if __name__ == "__main__":
    main()
