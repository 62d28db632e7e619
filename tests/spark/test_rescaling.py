"""A barrier job of Spark gets other numbers of instances in place, also where a worker is killed on the way."""

import contextlib
import os
import signal
import threading
from collections import Counter

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, Memory, Settings
from steelyard.resident.jobs import Job, Results
from steelyard.spark.resident import SparkLauncher
from steelyard.workloads import Arrivals, Constant, Zipf
from tests.resident.test_dealing import Numbers, deal
from tests.resident.test_rescaling import NUMBERED, PATIENCE, as_text, waited

pytestmark = pytest.mark.spark
ROWS, RATE, KEYS = 4000, 2000, Zipf(keys=30)


def counted_twice():
    """Counts in windows, and a user's numbers, of the same rows."""
    flow = Flow("rescaled", parallelism=2)
    read = flow.source(Generated(KEYS, rows=ROWS, pace=Constant(RATE), pieces=2), time="event_time", name="read")
    windows = read.key_by("key").aggregate(n=count(), window="1 second", name="windows")
    windows.sink(Memory(), name="counts")
    keys = read.shuffle().map(as_text, {"key": "string"}, name="keys")
    made = keys.key_by("key").process(lambda context: Numbers(), NUMBERED, deal=deal, name="made")
    made.sink(Memory(), name="numbers")
    return flow.dataflow()


@pytest.mark.parametrize("kill", [False, True])
def test_numbers_that_change_in_place_give_what_spark_gives(spark, tmp_path, kill):
    dataflow = counted_twice()
    how = Settings(store=str(tmp_path / "store"), interval=0.2, heartbeat=0.1, restarts=5)
    job = Job(dataflow, Placement.spread(dataflow, 2), SparkLauncher(spark), how)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    for wide, windows in ((3, 4), (1, 2)):
        assert waited(lambda: any(one["rows_in"] for one in job.metrics.values()) or job.ended)
        victims = [one.pid for one in job.workers.values()][:1]
        job.rescale({"windows": windows, "counts": windows, "made": wide, "numbers": wide}, in_place=True)
        for pid in victims if kill and wide == 3 else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert waited(lambda: job._target is None or job.ended)
    thread.join(PATIENCE)
    assert job.ended
    assert job.outcome.rescales
    assert not job.outcome.moves
    assert bool(job.outcome.restarts) == kill
    rows = KEYS.rows(0, ROWS, Arrivals().times(0, ROWS)).select(["key"])
    plain = spark.createDataFrame(pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows)
    expected = {row["key"]: row["count"] for row in plain.groupBy("key").count().collect()}
    found = Counter()
    for row in Results(dataflow, job.outcome).table("counts").to_pylist():
        found[row["key"]] += row["n"]
    assert found == expected
    numbers = Counter(tuple(row.values()) for row in Results(dataflow, job.outcome).table("numbers").to_pylist())
    assert numbers == Counter((str(key), n + 1) for key, many in expected.items() for n in range(many))
