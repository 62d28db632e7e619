"""A driver whose query runs on workers that stay, which a test kills: python -m tests.crash.staying_driver FOLDER ...

The folder's name is the engine's: `groups`, or `resident`, there with session windows and dead letters. Its query
watches a folder of files without an end, but where there is a file `LAST` in FOLDER: then it ends with those it finds.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import steelyard as sy
from steelyard.resident.snapshot import SnapshotStore
from steelyard.spark.sinks import FileSink
from tests.crash.driver import COMMITTED, COMMITTING, ORIGIN, WRITING, work

FILES, ROWS, KEYS = 24, 400, 20
BAD = 3
"""The key whose rows have none."""
LAST = "last"


def write_file(folder: Path, number: int) -> None:
    """One more file of the stream, a row per millisecond; it comes into the folder whole."""
    rng = np.random.default_rng(number)
    keys = rng.integers(0, KEYS, ROWS)
    times = pa.array(ORIGIN + 1000 * np.arange(number * ROWS, (number + 1) * ROWS), pa.timestamp("us", tz="UTC"))
    columns = {"key": pa.array(keys, mask=keys == BAD), "value": rng.integers(0, 100, ROWS), "event_time": times}
    hidden = folder / f".{number:02d}"
    pq.write_table(pa.table(columns), hidden)
    os.utime(hidden, (number, number))  # files are taken in the order of their times
    hidden.rename(folder / f"{number:02d}.parquet")


def start(spark: SparkSession, folder: Path, source: Path) -> sy.Query:
    """Counts and totals, in windows or in sessions, into Parquet files."""
    rows = spark.readStream.schema("key long, value long, event_time timestamp").parquet(str(source))
    if folder.name == "groups":
        stream = sy.stream(rows.where("key is not null")).with_watermark("event_time", "0 seconds").group_by("key")
        stream = stream.window("200 milliseconds").engine("groups", interval="50 ms", workers=1)
    else:
        stream = sy.stream(rows).with_watermark("event_time", "0 seconds").group_by("key")
        stream = stream.session_window("30 milliseconds").on_bad_rows("dead_letter", str(folder / "letters"))
        stream = stream.engine("resident", workers=1)
    stream = stream.agg(rows=sy.count(), total=sy.sum("value")).sink("parquet", path=str(folder / "out"))
    stream = stream.checkpoint(str(folder / "checkpoint"))
    is_last = (folder / LAST).exists()
    return (stream.trigger(available_now=True) if is_last else stream.trigger(processing_time="100 ms")).start()


if __name__ == "__main__":
    work(start, [(FileSink, "write", WRITING), (SnapshotStore, "commit", COMMITTING, COMMITTED)], master="local[3]")
