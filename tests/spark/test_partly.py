"""A learnt partitioner in a query: plain Spark's answers, and what it knows survives a restart."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core.hidden import BAD, PARCEL
from steelyard.spark import reduce, tasklog
from steelyard.spark.microbatch import MicroBatch
from steelyard.spark.reduce import Reducer
from tests.spark.cases import Mean

pytestmark = pytest.mark.spark


class Discarded:
    def write(self, results, batch):
        return results.count()


def rows_of(spark):
    """Half of the rows have one key."""
    key = F.when(F.col("id") % 2 == 0, 0).otherwise(F.col("id") % 40)
    return spark.range(0, 400, 1, 3).select(key.alias("k"), F.col("id").alias("v"))


def doubled(part):
    return part.assign(v=2 * part.v)


def described(rows):
    mapped = (
        sy.stream(rows).map(doubled, schema="k long, v long", form="pandas").partition_by("partly", blocks=3, buckets=2)
    )
    return mapped.group_by("k").agg(total=sy.sum("v"), rows=sy.count())


def test_answers_are_plain_sparks(spark):
    rows = rows_of(spark)
    found = {tuple(row) for row in described(rows).to_df().select("k", "total", "rows").collect()}
    plain = rows.groupBy("k").agg(F.sum(2 * F.col("v")).alias("total"), F.count("*").alias("rows"))
    assert found == {tuple(row) for row in plain.collect()}


def test_what_it_learnt_is_in_the_checkpoint(spark, tmp_path):
    rows = rows_of(spark)

    def engine():
        stream = described(rows)
        return MicroBatch(spark, stream._bound(), stream._settings(), Discarded(), str(tmp_path))

    first = engine()
    for batch in range(2):
        first.process(rows, batch)
    learnt = first.settings.partitioner.state()
    assert learnt["counted"].tolist()[0] > 0  # batches with reports
    again = engine().settings.partitioner.state()
    assert {name: array.tolist() for name, array in again.items()} == {
        name: array.tolist() for name, array in learnt.items()
    }


def test_policies_see_the_reduce_tasks_of_python_aggregates(spark, tmp_path):
    grouped = sy.stream(rows_of(spark)).partition_by("partly", blocks=3, buckets=2).group_by("k")
    stream = grouped.agg(mean=Mean().of("v"))
    engine = MicroBatch(spark, stream._bound(), stream._settings(), Discarded(), str(tmp_path))
    seen = []
    engine.settings.partitioner.observe = seen.append
    for batch in range(2):
        engine.process(rows_of(spark), batch)
    for batch in (observation.batch for observation in seen):
        assert [task.bucket for task in batch.reduce_tasks] == [0, 1]
        assert sum(task.records for task in batch.reduce_tasks) == sum(task.clusters for task in batch.tasks)
        assert sum(task.keys for task in batch.reduce_tasks) == 21  # 0, and each odd number below 40
        assert min(task.seconds for task in batch.reduce_tasks) > 0
        assert [task.block for task in batch.tasks] == [0, 1, 2]
        assert sum(task.rows for task in batch.tasks) == batch.rows == 400


def test_seconds_of_a_reduce_task_have_the_decoding_of_what_came(monkeypatch):
    now, told = [0.0], []

    def decoded(parcel):
        now[0] += parcel.as_py()[0]
        return pa.table({BAD: ["a"]})

    monkeypatch.setattr(reduce, "opened", decoded)
    monkeypatch.setattr(tasklog, "time", SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: now[0]))
    log = SimpleNamespace(add=lambda stage, entry: told.append(entry["seconds"]))
    part = pa.record_batch({PARCEL: pa.array([b"\x03", b"\x04"])})
    list(Reducer((), {}, pa.schema([]), {}, ends=True, log=log)(iter([part])))
    assert told == [7.0]
