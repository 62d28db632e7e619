"""A driver program that a test kills and starts again: python -m tests.crash.driver FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import steelyard as sy
from steelyard.workloads import workload
from tests.spark.cases import Mean

ROWS_PER_BATCH, BATCHES = 400, 40
SECONDS_PER_BATCH, JITTER = 4, 6
MICROS = 1_000_000
ORIGIN = 1_700_000_000 * MICROS


def write_input(folder: Path) -> None:
    """Forty files, each a batch, of a skewed stream whose events come out of order."""
    folder.mkdir()
    law = workload("zipf", keys=50, exponent=1.2, seed=11)
    rng = np.random.default_rng(5)
    for batch in range(BATCHES):
        newest = ORIGIN + batch * SECONDS_PER_BATCH * MICROS
        times = newest - rng.integers(0, JITTER * MICROS, ROWS_PER_BATCH)
        drawn = law.rows(batch * ROWS_PER_BATCH, ROWS_PER_BATCH, times)
        small = rng.integers(0, 7, ROWS_PER_BATCH)
        columns = {"key": drawn.column("key"), "small": pa.array(small), "x": pa.array(small % 5 * 1.0)}
        columns["at"] = pa.array(times, pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table(columns), folder / f"{batch:02d}.parquet")


def start(spark, folder: Path, source: Path) -> sy.Query:
    """The query: a sliding window with built-in and Python aggregates, Prompt, and Parquet files."""
    rows = spark.readStream.schema("key long, small long, x double, at timestamp")
    return (
        sy.stream(rows.option("maxFilesPerTrigger", 1).parquet(str(source)))
        .with_watermark("at", "5 seconds")
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
    folder, source = (Path(word) for word in sys.argv[1:])
    config = {
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    spark = sy.session("crash", master="local[2]", config=config)
    spark.sparkContext.setLogLevel("OFF")
    query = start(spark, folder, source)
    print("started", flush=True)
    query.await_termination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
