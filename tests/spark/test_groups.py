"""Batches that are scheduled ahead, in Spark's tasks: the answers are plain Spark's."""

import os
import signal
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from steelyard import count, sum
from steelyard.core import OptionError
from steelyard.resident import Generated
from steelyard.resident.groups import BatchProgram, GroupJob, GroupWorker, Scheduling, run_batches
from steelyard.spark.resident import SparkLauncher
from steelyard.workloads import Zipf
from steelyard.workloads.arrivals import Arrivals
from steelyard.workloads.rates import Constant

ROWS = 20_000
SOURCE = Generated(Zipf(1.2, 200, seed=3), ROWS, Arrivals(Constant(500)))
PROGRAM = BatchProgram(
    SOURCE,
    ("key",),
    {"n": count(), "total": sum("value")},
    batch_rows=1_500,
    window="10 seconds",
    slide="5 seconds",
    time="event_time",
    partitioner="prompt",
)
HOW = Scheduling(interval=0.05, group=4, ahead=1, blocks=3, buckets=3, slots=2, snapshot=3)


def plain(spark):
    """What plain Spark makes of the same rows."""
    reader = SOURCE.fresh()
    reader.splits(1)
    rows = reader.read("0", 0, ROWS).batch
    frame = spark.createDataFrame(pa.Table.from_batches([rows]))
    grouped = frame.groupBy("key", F.window("event_time", "10 seconds", "5 seconds").alias("w"))
    found = grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return {(r["key"], r["w"]["start"].timestamp()): (r["n"], r["total"]) for r in found.collect()}


def ours(tables):
    rows = [row for table in tables for row in table.to_pylist()]
    found = {(r["key"], r["window_start"].timestamp()): (r["n"], r["total"]) for r in rows}
    assert len(found) == len(rows), "a window came twice"
    return found


def close(found, expected):
    assert found.keys() == expected.keys()
    for at, (n, total) in expected.items():
        assert found[at][0] == n
        assert found[at][1] == pytest.approx(total)


def test_windows_equal_plain_sparks(spark):
    found = run_batches(PROGRAM, HOW, workers=2, launcher=SparkLauncher(spark, GroupWorker), elastic="zones?patience=1")
    close(ours(found.results.values()), plain(spark))


def test_a_worker_of_spark_that_is_killed_loses_and_doubles_nothing(spark):
    got, killed = [], []

    def commit(batch, table):
        got.append(table)
        if batch in (3, 8) and batch not in killed:
            killed.append(batch)
            os.kill(job.pids[len(killed) % 2], signal.SIGKILL)

    # with so short a backlog no worker is done with its work when it is killed
    job = GroupJob(PROGRAM, replace(HOW, backlog=2), 2, SparkLauncher(spark, GroupWorker), commit=commit)
    outcome = job.run()
    assert outcome.restarts == 2
    close(ours(got), plain(spark))


def test_too_many_workers_are_refused_at_once(spark):
    with pytest.raises(OptionError, match="workers need as many slots"):
        run_batches(PROGRAM, HOW, workers=500, launcher=SparkLauncher(spark, GroupWorker))
