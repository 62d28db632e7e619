"""A program of `first-batch`, run as a file: before its time begins it loads the standard library alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2
PLAIN, ALONE, AHEAD = "plain Spark", "Steelyard, nothing ahead", "Steelyard"
CONFIG = {"spark.sql.shuffle.partitions": str(SLOTS)}
SCHEMA = "key bigint, value bigint"
Took = Callable[["DataFrame | None"], None]
"""Called with nothing when Spark is there, and with the results of each batch."""
STEPS = ("session", "first", "second")
"""Seconds from the beginning of a program until Spark is there, and until the first and the second result."""


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function in Python that changes nothing."""
    return batches


def _input(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows"))


def _plain(folder: Path, took: Took) -> SparkSession:
    """Structured Streaming as it is: a function in Python, and a sum for each key."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a part of what is timed
    from pyspark.sql import functions as F  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{SLOTS}]")
    for option, value in {**CONFIG, "spark.ui.port": "0", "spark.ui.showConsoleProgress": "false"}.items():
        builder = builder.config(option, value)
    spark = builder.getOrCreate()
    took(None)
    rows = _input(spark, folder).mapInArrow(_same, SCHEMA)
    sums = rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    writer = sums.writeStream.outputMode("update").foreachBatch(lambda frame, _: took(frame))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return spark


def _ours(folder: Path, took: Took, ahead: bool) -> SparkSession:
    """The same program here."""
    import steelyard as sy  # noqa: PLC0415 - a part of what is timed

    spark = sy.session(master=f"local[{SLOTS}]", config=CONFIG, ahead=ahead, quiet=True)
    took(None)
    rows = sy.stream(_input(spark, folder)).map(lambda table: table, SCHEMA).group_by("key")
    query = rows.agg(n=sy.count(), total=sy.sum("value")).output_mode("update")
    query = query.sink("foreach_batch", function=lambda frame, _: took(frame)).checkpoint(str(folder / "checkpoint"))
    query.trigger(available_now=True).start().await_termination()
    return spark


def program(way: str, folder: Path) -> dict[str, Any]:
    """Run the program of one way in this process: seconds until the end of each step, and the newest answers."""
    ends: list[float] = []
    answer: dict[int, list[int]] = {}

    def took(frame: DataFrame | None) -> None:
        rows = [] if frame is None else frame.select("key", "n", "total").collect()
        ends.append(time.perf_counter() - begun)
        answer.update((row[0], [row[1], row[2]]) for row in rows)

    begun = time.perf_counter()
    spark = _plain(folder, took) if way == PLAIN else _ours(folder, took, ahead=way == AHEAD)
    spark.stop()
    return {"seconds": dict(zip(STEPS, ends, strict=False)), "answer": sorted(answer.items())}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(program(sys.argv[1], Path(sys.argv[2]))) + "\n")
