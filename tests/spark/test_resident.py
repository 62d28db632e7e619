"""The resident engine in the tasks of a barrier job: the answers are Spark's own, also after a worker was killed."""

import os
import random
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from steelyard import count, mean, sum
from steelyard.core import OptionError
from steelyard.resident import Flow, Generated, Memory, Rows, Settings, Step
from steelyard.spark.resident import SparkLauncher, run
from steelyard.workloads import Zipf
from steelyard.workloads.rates import Constant
from steelyard.workloads.workload import TIMESTAMP
from tests.grouping.own import LeastWork

pytestmark = pytest.mark.spark


def events(seed, rows=400):
    draw = random.Random(seed)
    return pa.table(
        {
            "key": pa.array([draw.choice(["a", "b", "c", None]) for _ in range(rows)]),
            "value": pa.array([draw.choice([None, *range(-3, 4)]) for _ in range(rows)], pa.int64()),
            "at": pa.array([draw.randrange(0, 40_000_000) for _ in range(rows)], TIMESTAMP),
        }
    )


def as_rows(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def of_spark(frame):
    return as_rows(frame.toArrow())


@pytest.mark.parametrize("grouping", ["hash", "dalton", "auto"])
def test_windowed_aggregates_equal_plain_sparks(spark, grouping):
    table = events(seed=1)
    flow = Flow(parallelism=2)
    read = flow.source(Rows(table), time="at", delay="1 minute", batch_rows=50)
    keyed = read.key_by("key", grouping=grouping)
    made = keyed.aggregate(
        n=count(), total=sum("value"), mean=mean("value"), window="10 seconds", slide="5 seconds", parallelism=3
    )
    made.sink(Memory(), name="out")
    got = run(spark, flow.dataflow(), workers=2).table("out")
    window = F.window("at", "10 seconds", "5 seconds")
    plain = (
        spark.createDataFrame(table)
        .groupBy("key", window)
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.avg("value").alias("mean"))
    )
    assert as_rows(got) == of_spark(plain.select("key", "window.start", "window.end", "n", "total", "mean"))


def test_a_grouping_of_ones_own_runs_on_workers_in_spark(spark):
    table = events(seed=5)
    flow = Flow(parallelism=2)
    read = flow.source(Rows(table), batch_rows=20)
    read.shuffle(LeastWork(cost_of="key")).filter(pc.field("value") > 0, parallelism=3).sink(Memory(), name="out")
    got = run(spark, flow.dataflow(), workers=2).table("out")
    assert as_rows(got) == as_rows(table.filter(pc.field("value") > 0))


def test_joins_equal_plain_sparks(spark):
    left, right = events(seed=2, rows=60), events(seed=3, rows=60)
    flow = Flow(parallelism=2)
    sides = [
        flow.source(Rows(table), time="at", delay="1 minute", name=name, batch_rows=20)
        for name, table in (("left", left), ("right", right))
    ]
    sides[0].join(sides[1], on="key", name="all", parallelism=3).sink(Memory(), name="pairs")
    sides[0].join(sides[1], on="key", window="10 seconds", name="near").sink(Memory(), name="in window")
    results = run(spark, flow.dataflow(), workers=2)
    frames = [spark.createDataFrame(table) for table in (left, right)]
    renamed = frames[1].withColumnsRenamed({"value": "value_right", "at": "at_right"})
    plain = frames[0].join(renamed, "key").select("key", "value", "at", "value_right", "at_right")
    assert as_rows(results.table("pairs")) == of_spark(plain)
    near = plain.where((F.unix_seconds("at") / 10).cast("int") == (F.unix_seconds("at_right") / 10).cast("int"))
    window = F.window("at", "10 seconds")
    near = near.withColumn("window", window).select(*plain.columns, "window.start", "window.end")
    assert as_rows(results.table("in window")) == of_spark(near)


class KillOnce(Step):
    def __init__(self, marker):
        self.marker, self.epochs = Path(marker), 0

    def process(self, port, batch):
        if self.epochs and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch

    def committed(self, number):
        self.epochs += 1


def jobs_of(spark):
    """How many jobs Spark has had so far."""
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


def test_a_worker_that_is_killed_is_followed_by_the_next_generation(spark, tmp_path):
    marker, rows = str(tmp_path / "killed"), 6000
    flow = Flow(parallelism=2)
    reader = Generated(Zipf(keys=10, seed=5), rows=rows, pace=Constant(2000), block_rows=100)
    read = flow.source(reader, batch_rows=100)
    passed = read.shuffle().process(lambda context: KillOnce(marker), name="kill")
    passed.key_by("key").aggregate(n=count(), emit="end").sink(Memory(), name="out")
    settings = Settings(store=str(tmp_path / "store"), interval=0.1, heartbeat=0.1)
    before = jobs_of(spark)
    results = run(spark, flow.dataflow(), workers=2, settings=settings)
    assert Path(marker).exists()
    assert results.outcome.restarts == 1
    assert jobs_of(spark) == before + 1, "the death of a worker costs no new Spark job"
    (recovery,) = results.outcome.recoveries
    assert "was ended by SIGKILL" in recovery.why
    batch = Zipf(keys=10, seed=5).rows(0, rows, [0] * rows)
    assert as_rows(results.table("out")) == Counter(Counter(batch["key"].to_pylist()).items())


class OnACluster:
    """As much of a session as tells where its driver is."""

    def __init__(self, **options):
        self.sparkContext = SimpleNamespace(master="spark://10.0.0.1:7077")
        self.conf = SimpleNamespace(get=lambda name, *default: options.get(name.rpartition(".")[2], *default))


@pytest.mark.parametrize(
    ("options", "listens", "told"),
    [
        ({"host": "10.0.0.1"}, "10.0.0.1", "10.0.0.1"),
        ({"host": "[fd00::7]"}, "fd00::7", "fd00::7"),
        ({"host": "driver.example", "bindAddress": "127.0.0.1"}, "127.0.0.1", "driver.example"),
    ],
)
def test_the_driver_listens_where_spark_binds_and_is_reached_by_its_name(options, listens, told):
    launcher = SparkLauncher(OnACluster(**options))
    assert launcher.host == listens
    assert launcher.reached((listens, 4711)) == (told, 4711)


def test_more_workers_than_slots_are_refused_before_spark_waits(spark):
    flow = Flow()
    flow.source(Rows(pa.table({"x": [1]}))).sink(Memory())
    with pytest.raises(OptionError, match=r"3 workers need as many slots, and local\[2\] has 2"):
        run(spark, flow.dataflow(), workers=3)
