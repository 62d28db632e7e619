"""A driver program that a test kills and starts again: python -m tests.crash.driver FOLDER SOURCE

It makes its session, says `ready`, and waits for `begin` on its standard input before it touches the query's
folders: the next driver can get ready while one works. Then it says each step of each batch, and at last `finished`.
After `begin 7` it stops at the seventh step, so that it can be killed just there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import steelyard as sy
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.sinks import FileSink
from steelyard.spark.state import StateFolder
from steelyard.workloads import workload
from tests.spark.cases import Mean
from tests.tiny_spark import tiny

ROWS_PER_BATCH, BATCHES = 200, 12
SECONDS_PER_BATCH, JITTER = 4, 6
MICROS = 1_000_000
ORIGIN = 1_700_000_000 * MICROS
BEGUN, WRITING, COMMITTING, COMMITTED = "begun", "writing results", "committing", "committed"
STEPS = (BEGUN, WRITING, COMMITTING, COMMITTED)
"""What the driver says as a batch goes on."""


def write_input(folder: Path, batches: int = BATCHES) -> None:
    """A file for each batch, of a skewed stream whose events come out of order."""
    folder.mkdir()
    law = workload("zipf", keys=50, exponent=1.2, seed=11)
    rng = np.random.default_rng(5)
    for batch in range(batches):
        newest = ORIGIN + batch * SECONDS_PER_BATCH * MICROS
        times = newest - rng.integers(0, JITTER * MICROS, ROWS_PER_BATCH)
        drawn = law.rows(batch * ROWS_PER_BATCH, ROWS_PER_BATCH, times)
        small = rng.integers(0, 7, ROWS_PER_BATCH)
        columns = {"key": drawn.column("key"), "small": pa.array(small), "x": pa.array(small % 5 * 1.0)}
        columns["at"] = pa.array(times, pa.timestamp("us", tz="UTC"))
        file = folder / f"{batch:02d}.parquet"
        pq.write_table(pa.table(columns), file)
        os.utime(file, (batch, batch))  # Spark takes files in the order of their times


def start(spark, folder: Path, source: Path) -> sy.Query:
    """The query: a sliding window with built-in and Python aggregates, Prompt, and Parquet files."""
    rows = spark.readStream.schema("key long, small long, x double, at timestamp")
    return (
        sy.stream(rows.option("maxFilesPerTrigger", 1).parquet(str(source)))
        .with_watermark("at", "5 seconds")
        .group_by("key")
        .window("20 seconds", slide="5 seconds")
        .agg(rows=sy.count(), total=sy.sum("small"), mean=Mean().of("x"))
        .partition_by("dalton", blocks=2, buckets=2)
        .sink("parquet", path=f"{folder}/out")
        .checkpoint(f"{folder}/checkpoint")
        .trigger(available_now=True)
        .start()
    )


def say(line: str) -> None:
    print(line, flush=True)


class Steps:
    """Says steps, and stops for good at one of them."""

    last = 0
    """The step to stop at; 0, none."""
    said = 0

    @classmethod
    def say(cls, step: str) -> None:
        say(step)
        cls.said += 1
        if cls.said == cls.last:
            sys.stdin.readline()  # nobody writes it: somebody kills


def say_when(owner: type, method: str, before: str, after: str | None = None) -> None:
    """Say a line whenever a method is called, and another when it is done."""
    original = getattr(owner, method)

    def told(self: Any, *given: Any) -> Any:
        Steps.say(before)
        result = original(self, *given)
        if after is not None:
            Steps.say(after)
        return result

    setattr(owner, method, told)


def work(
    start: Callable[[SparkSession, Path, Path], sy.Query],
    told: Sequence[tuple],
    master: str = "local[2]",
    at_end: Callable[[SparkSession], None] = lambda spark: None,
) -> None:
    """What a driver program does: `start` makes its query, `told` has the arguments of `say_when`."""
    folder, source = (Path(word) for word in sys.argv[1:3])
    spark = sy.session("crash", master=master, config=tiny())
    spark.sparkContext.setLogLevel("OFF")
    for one in told:
        say_when(*one)
    say("ready")
    Steps.last = int(sys.stdin.readline().removeprefix("begin"))
    start(spark, folder, source).await_termination()
    at_end(spark)
    say("finished")


if __name__ == "__main__":
    committed = (StateFolder, "commit", COMMITTING, COMMITTED)
    work(start, [(MicroBatch, "process", BEGUN), (FileSink, "write", WRITING), committed])
