"""what_if of what users have: a resident query, results of a job, and what it refuses."""

import numpy as np
import pyarrow as pa
import pytest

import steelyard as sy
from steelyard.core import OptionError
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Rows, run
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher

pytestmark = pytest.mark.spark


def flow_of(rows):
    flow = Flow("plain", parallelism=2)
    flow.source(Rows(pa.table({"x": np.arange(rows)})), batch_rows=10, name="read").shuffle().map(
        lambda batch: batch, name="same"
    ).sink(Memory(), name="out")
    return flow.dataflow()


def test_a_resident_query_is_asked_after_it_ran(spark, tmp_path):
    rows = spark.readStream.format("steelyard").options(workload="zipf", keys=50, rows_per_batch=500, max_rows=2_000)
    query = (
        sy.stream(rows.load())
        .group_by("key")
        .agg(n=sy.count())
        .sink("parquet", path=str(tmp_path / "out"))
        .checkpoint(str(tmp_path / "checkpoint"))
        .engine("resident", workers=2)
        .trigger(available_now=True)
        .start()
    )
    query.await_termination(120)
    found = sy.what_if(query, machines=[2, 4], cores=2)
    assert [one.machines for one in found.answers] == [2, 2, 4, 4]
    assert all(one.rows_per_second > 0 for one in found.answers)
    assert "machine hours" in str(found)


def test_what_ran_without_measurements_is_refused(spark):
    with pytest.raises(OptionError, match=r"takes a resident query, a Job or the Results of run, got a str"):
        sy.what_if("query", machines=2)
    job = Job(flow_of(10), Placement.spread(flow_of(10), 2), ThreadLauncher())
    with pytest.raises(OptionError, match="has not run yet"):
        sy.what_if(job, machines=2)
    results = run(flow_of(2_000), workers=2)
    assert sy.what_if(results, machines=3, cores=1).answer(3).instances == 9
