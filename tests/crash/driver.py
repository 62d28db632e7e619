"""A driver program that a test kills and starts again: python -m tests.crash.driver FOLDER."""

from __future__ import annotations

import sys

import steelyard as sy
from tests.spark.cases import Mean

ROWS_PER_BATCH, BATCHES = 400, 40


def source_options(seed: int = 11) -> dict[str, str]:
    """Forty batches of a skewed stream with out-of-order and late events."""
    return {
        "workload": "zipf",
        "keys": "50",
        "exponent": "1.2",
        "seed": str(seed),
        "rate": "100",
        "rows_per_batch": str(ROWS_PER_BATCH),
        "max_rows": str(ROWS_PER_BATCH * BATCHES),
        "partitions": "2",
        "jitter": "3",
        "row_numbers": "true",
    }


def start(spark, folder: str) -> sy.Query:
    """The query: a sliding window with built-in and Python aggregates, Prompt, and Parquet files."""
    rows = spark.readStream.format("steelyard").options(**source_options()).load()
    return (
        sy.stream(rows.selectExpr("key", "row_number % 7 as small", "cast(row_number % 5 as double) x", "event_time"))
        .with_watermark("event_time", "5 seconds")
        .group_by("key")
        .window("20 seconds", slide="5 seconds")
        .agg(rows=sy.count(), total=sy.sum("small"), mean=Mean().of("x"))
        .partition_by("prompt", blocks=2, buckets=2)
        .sink("parquet", path=f"{folder}/out")
        .checkpoint(f"{folder}/checkpoint")
        .trigger(available_now=True)
        .start()
    )


def main() -> None:
    spark = sy.session(
        "crash", master="local[2]", config={"spark.default.parallelism": "2", "spark.sql.codegen.wholeStage": "false"}
    )
    spark.sparkContext.setLogLevel("OFF")
    query = start(spark, sys.argv[1])
    print("started", flush=True)
    query.await_termination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
