"""Batches that are scheduled ahead, in the tasks of one Spark barrier job: Prompt+ on Spark."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession

from steelyard.core import ScalingPolicy
from steelyard.resident.groups import BatchProgram, GroupJob, GroupOutcome, GroupWorker, Scheduling
from steelyard.resident.security import Credentials, Tls
from steelyard.spark.resident import SparkLauncher, require_barrier


def run_batches(
    spark: SparkSession,
    program: BatchProgram,
    scheduling: Scheduling | None = None,
    *,
    workers: int = 2,
    elastic: str | ScalingPolicy | None = None,
    tls: Tls | None = None,
) -> GroupOutcome:
    """Run batches in Spark's tasks, to the end of the source.

    Parameters
    ----------
    spark
        A session with at least `workers` slots that are free.
    program, scheduling
        What is done with every batch, and how batches are scheduled.
    workers
        How many tasks; each runs `scheduling.slots` map and reduce tasks at once.
    elastic
        Chooses numbers of map and reduce tasks: `"zones"`, or a policy.
    tls
        Certificates, for connections that are encrypted.
    """
    return batch_job(spark, program, scheduling, workers=workers, elastic=elastic, tls=tls).run()


def batch_job(
    spark: SparkSession,
    program: BatchProgram,
    scheduling: Scheduling | None = None,
    *,
    workers: int = 2,
    elastic: str | ScalingPolicy | None = None,
    commit: Callable[[int, pa.Table], None] | None = None,
    tls: Tls | None = None,
) -> GroupJob:
    """The same, not yet running: its `run` may be called in a thread, and its `stop` from elsewhere.

    `commit` is called with each batch and its results, in order, each once.
    """
    require_barrier(spark, workers)
    launcher = SparkLauncher(spark, GroupWorker)
    return GroupJob(program, scheduling or Scheduling(), workers, launcher, elastic, commit, Credentials.new(tls))
