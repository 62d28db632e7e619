"""Spark programs that the Kafka tests run, in a process beside theirs: python -m tests.kafka.spark_programs JARS.

A line of its standard input is a JSON object with the name of a function and what it is called with; the answer goes to
a file in the folder that it names, and then a line to standard output. One session runs all of them.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import steelyard as sy
from steelyard.spark.kafka import BATCH_HEADER, as_records
from tests.tiny_spark import tiny

FARE = "medallion string, fare_amount double"
TOTAL = "medallion string, total double, trips bigint"
# Small enough that a few thousand records make several batches.
RECORDS_PER_BATCH = 1600
DONE = "answered"


def fares(spark: SparkSession, first: int, last: int) -> DataFrame:
    """Trips with skewed keys and fares in quarters, so that sums of doubles are exact in any order."""
    trips = spark.range(first, last, numPartitions=2)
    return trips.select(
        sf.concat(sf.lit("m"), sf.floor(sf.sqrt(sf.col("id") % 400))).alias("medallion"),
        (sf.col("id") % 37 * 0.25).alias("fare_amount"),
    )


def produce(spark: SparkSession, servers: str, topic: str, first: int, last: int) -> None:
    rows = fares(spark, first, last)
    records = rows.select(rows.medallion.alias("key"), sf.to_json(sf.struct("*")).alias("value"))
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def consume(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("kafka").options(**options).load()


def follow(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """The stream of fares in `topic`."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(RECORDS_PER_BATCH),
    }
    records = spark.readStream.format("kafka").options(**options).load()
    return parsed(records, FARE)


def parsed(records: DataFrame, schema: str, *others: str) -> DataFrame:
    value = sf.from_json(records.value.cast("string"), schema)
    return records.select(value.alias("row"), *others).select("row.*", *others)


def written(spark: SparkSession, servers: str, topic: str) -> list[list[Any]]:
    """Every record of a result topic as [batch, medallion, total, trips], in order."""
    records = parsed(consume(spark, servers, topic), TOTAL, "headers")
    found = []
    for row in records.collect():
        headers = {header.key: header.value.decode() for header in row.headers}
        found.append([int(headers[BATCH_HEADER]), row.medallion, row.total, row.trips])
    return sorted(found)


def plain_answer(spark: SparkSession, servers: str, topic: str) -> list[list[Any]]:
    rows = parsed(consume(spark, servers, topic), FARE)
    totals = rows.groupBy("medallion").agg(sf.sum("fare_amount"), sf.count("*"))
    return sorted(list(row) for row in totals.collect())


def plain_session(jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("kafka tests").config("spark.jars", jars)
    for name, value in {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def steelyard_session(jars: str) -> SparkSession:
    import steelyard as sy

    config = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    return sy.session("kafka tests", master="local[2]", config=config)


def round_trip(servers: str, jars: str, directory: str, count: int) -> dict[str, Any]:
    """Write records to a topic, read them back, and let plain Spark stream them to another topic."""
    spark = plain_session(jars)
    produce(spark, servers, "plain-fares", 0, count)
    records = consume(spark, servers, "plain-fares")
    placed = records.groupBy("key").agg(sf.countDistinct("partition").alias("partitions"))

    def write(batch: DataFrame, batch_id: int) -> None:
        totals = batch.groupBy("medallion").agg(sf.sum("fare_amount").alias("total"), sf.count("*").alias("trips"))
        options = {"kafka.bootstrap.servers": servers, "topic": "plain-totals"}
        as_records(totals, ["medallion"], batch_id).write.format("kafka").options(**options).save()

    stream = follow(spark, servers, "plain-fares").writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    unknown = spark.sql("SELECT '7A31' AS medallion, CAST(NULL AS DOUBLE) AS total")
    return {
        "record_with_a_null": list(as_records(unknown, ["medallion"], 5).select("key", "value").first()),
        "rows": sorted(list(row) for row in parsed(records, FARE).collect()),
        "partitions_of_a_key": placed.agg(sf.max("partitions")).first()[0],
        "written": written(spark, servers, "plain-totals"),
        "answer": plain_answer(spark, servers, "plain-fares"),
    }


def steelyard_totals(
    servers: str, jars: str, directory: str, first: int, last: int, again: bool = False
) -> dict[str, Any]:
    """Add trips to a topic, then total the topic with the example, from where its checkpoint is."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import kafka_fares

    spark = steelyard_session(jars)
    produce(spark, servers, "fares", first, last)
    for _ in range(2 if again else 1):
        query = kafka_fares.start(
            spark, servers, "fares", "totals", f"{directory}/checkpoint", per_batch=RECORDS_PER_BATCH
        )
        query.await_termination()
    return {"written": written(spark, servers, "totals"), "answer": plain_answer(spark, servers, "fares")}


def produce_clicks(spark: SparkSession, servers: str, topic: str, first: int, last: int) -> None:
    """Ten records a second, in the order of their times."""
    second = sf.timestamp_seconds(sf.lit(1_700_000_000) + sf.floor(sf.col("id") / 10))
    rows = spark.range(first, last, numPartitions=1).select((sf.col("id") % 7).alias("k"), second.alias("at"))
    records = rows.select(sf.col("k").cast("string").alias("key"), sf.to_json(sf.struct("*")).alias("value"))
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def windows_of_clicks(spark: SparkSession, servers: str, topic: str) -> Any:
    import steelyard as sy

    read = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    stream = parsed(spark.readStream.format("kafka").options(**read).load(), "k bigint, at timestamp")
    described = sy.stream(stream).with_watermark("at", "10 minutes").group_by("k").window("20 seconds", "10 seconds")
    return described.agg(rows=sy.count(), last=sy.max("at")).trigger(available_now=True)


def windows_in(spark: SparkSession, servers: str, topic: str) -> list[list[str]]:
    """The results in a topic."""
    schema = "window_start timestamp, window_end timestamp, k bigint, rows bigint, last timestamp"
    return as_text(parsed(consume(spark, servers, topic), schema))


def as_text(frame: DataFrame) -> list[list[str]]:
    return sorted([str(value) for value in row] for row in frame.collect())


def either_engine(servers: str, jars: str, directory: str, count: int) -> dict[str, Any]:
    """Windows over a topic of JSON records, on one engine and on the other, which also writes them to a topic."""
    spark = steelyard_session(jars)
    produce_clicks(spark, servers, "either", 0, count)
    described = windows_of_clicks(spark, servers, "either")
    found = {}
    for engine in ("microbatch", "resident"):
        described.engine(engine).sink("memory", name=engine).start().await_termination()
        found[engine] = as_text(spark.table(engine))
    sink = described.engine("resident").sink("kafka", servers=servers, topic="either-windows")
    sink.checkpoint(f"{directory}/checkpoint").start().await_termination()
    return {**found, "topic": windows_in(spark, servers, "either-windows")}


def groups_of_a_topic(servers: str, jars: str, directory: str, parts: list[int]) -> dict[str, Any]:
    """Windows over a topic from groups of batches into another topic, in several starts; and in micro-batches."""
    spark = steelyard_session(jars)
    described = windows_of_clicks(spark, servers, "clicks")
    grouped = described.engine("groups", interval="100 ms").checkpoint(f"{directory}/checkpoint")
    for first, last in pairwise([0, *parts]):
        produce_clicks(spark, servers, "clicks", first, last)
        grouped.sink("kafka", servers=servers, topic="click-windows").start().await_termination()
    described.sink("memory", name="clicks").start().await_termination()
    return {"topic": windows_in(spark, servers, "click-windows"), "microbatch": as_text(spark.table("clicks"))}


if __name__ == "__main__":
    programs = {one.__name__: one for one in (round_trip, steelyard_totals, either_engine, groups_of_a_topic)}
    with_connector = sy.session("kafka tests", master="local[2]", config={**tiny(), "spark.jars": sys.argv[1]})
    for line in sys.stdin:
        asked = json.loads(line)
        found = programs[asked.pop("program")](jars=sys.argv[1], **asked)
        Path(asked["directory"], "answer.json").write_text(json.dumps(found))
        print(DONE, flush=True)
    with_connector.stop()
