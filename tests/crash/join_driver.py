"""A driver program with a similarity join: python -m tests.crash.join_driver FOLDER SOURCE

It behaves as `tests.crash.driver` does, and says also when worksets are shipped from worker to worker; at its end it
says how many tasks of Spark's failed.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import steelyard as sy
from steelyard.similarity import ImbalanceAbove
from steelyard.spark.join_engine import JoinEngine
from steelyard.spark.join_state import JoinFolder
from steelyard.spark.sinks import FileSink
from tests.crash.driver import BEGUN, COMMITTED, COMMITTING, MICROS, ORIGIN, WRITING, say, work

ROWS_PER_BATCH, BATCHES, WORKERS = 80, 10, 3
SECONDS_PER_BATCH, JITTER = 4, 6
SHIPPING = "shipping worksets"
FAILED = "failed tasks:"
MOST_STAGES = 2_000


def write_input(folder: Path) -> None:
    """Files, each a batch, of vectors that crowd around three directions and come out of order."""
    folder.mkdir()
    rng = np.random.default_rng(8)
    for batch in range(BATCHES):
        newest = ORIGIN + batch * SECONDS_PER_BATCH * MICROS
        angles = rng.choice([0.2, 1.0, 3.0], ROWS_PER_BATCH, p=[0.7, 0.2, 0.1]) + rng.normal(0, 0.15, ROWS_PER_BATCH)
        vectors = np.column_stack([np.cos(angles), np.sin(angles)])
        columns = {
            "id": pa.array(batch * ROWS_PER_BATCH + np.arange(ROWS_PER_BATCH)),
            "vector": pa.array(vectors.tolist()),
            "at": pa.array(newest - rng.integers(0, JITTER * MICROS, ROWS_PER_BATCH), pa.timestamp("us", tz="UTC")),
        }
        file = folder / f"{batch:02d}.parquet"
        pq.write_table(pa.table(columns), file)
        os.utime(file, (batch, batch))  # Spark takes files in the order of their times


def start(spark: SparkSession, folder: Path, source: Path) -> sy.Query:
    """The query: a self-join over sliding windows, balanced after every batch, and Parquet files."""
    rows = spark.readStream.schema("id long, vector array<double>, at timestamp")
    return (
        sy.similarity_join(
            rows.option("maxFilesPerTrigger", 1).parquet(str(source)),
            on="vector",
            id="id",
            threshold=0.01,
            time="at",
            window="20 seconds",
            slide="10 seconds",
            watermark="5 seconds",
            workers=WORKERS,
        )
        .balance(ImbalanceAbove(0.0), split=True)
        .sink("parquet", path=f"{folder}/out")
        .checkpoint(f"{folder}/checkpoint")
        .trigger(available_now=True)
        .start()
    )


def failed_tasks(spark: SparkSession) -> int:
    """How many tasks have failed so far and were run again."""
    tracker = spark.sparkContext.statusTracker()
    stages = (tracker.getStageInfo(stage) for stage in range(MOST_STAGES))
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def main() -> None:
    told = [
        (JoinEngine, "process", BEGUN),
        (FileSink, "write", WRITING),
        (JoinEngine, "_shipped", SHIPPING),
        (JoinFolder, "commit", COMMITTING, COMMITTED),
    ]
    # Outside of local mode Spark runs a failed task again, four times in all; here it must be told to.
    work(start, told, master="local[2,4]", at_end=lambda spark: say(f"{FAILED} {failed_tasks(spark)}"))


if __name__ == "__main__":
    main()
