"""A barrier job of Spark gets other numbers of instances in place, also where a worker is killed on the way."""

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, Memory, Settings
from steelyard.resident.jobs import Job, Results
from steelyard.resident.settings import DEFAULT_PROTOCOL
from steelyard.spark.resident import SparkLauncher
from steelyard.workloads import Arrivals, Constant, Zipf
from tests.resident.test_dealing import Numbers, deal
from tests.resident.test_rescaling import NUMBERED, PATIENCE, as_text, waited

pytestmark = pytest.mark.spark
RATE, KEYS = 2000, Zipf(keys=30)


@dataclass(frozen=True)
class Case:
    """What happens to a job.

    Parameters
    ----------
    steps
        Numbers of instances that are wished one after the other, as soon as rows come.
    kills
        Steps at which a worker is killed.
    waits
        Whether a step waits for the one before it.
    """

    steps: tuple[dict[str, int], ...]
    rows: int = 4000
    kills: frozenset[int] = frozenset()
    waits: bool = True
    in_place: bool | None = True
    interval: float = 0.2
    protocol: str = DEFAULT_PROTOCOL

    @classmethod
    def drawn(cls, seed: int) -> "Case":
        """Few rows; sources too get other numbers in some, which takes a snapshot; a snapshot is under way in most."""
        draw = random.Random(seed)
        groups = [("windows", "counts"), ("made", "numbers"), ("keys",), ("read",)]
        in_place = draw.random() < 0.6
        steps = []
        for number in range(draw.randint(1, 3)):
            chosen = draw.sample(groups[: 3 if in_place else 4], draw.randint(1, 3))
            width = {group: draw.choice([1, 3, 4] if number == 0 else [1, 2, 3, 4]) for group in chosen}
            steps.append({name: wide for group, wide in width.items() for name in group})
        kills = frozenset([draw.randrange(len(steps))] if seed % 3 == 0 else [])
        interval = draw.choice([0.02, 0.02, 0.2])
        protocol = draw.choice([DEFAULT_PROTOCOL, "coordinated", "uncoordinated", "communication_induced"])
        return cls(tuple(steps), 2400, kills, draw.random() < 0.5, in_place or None, interval, protocol)


def counted_twice(rows):
    """Counts in windows, and a user's numbers, of the same rows."""
    flow = Flow("rescaled", parallelism=2)
    read = flow.source(Generated(KEYS, rows=rows, pace=Constant(RATE), pieces=4), time="event_time", name="read")
    windows = read.key_by("key").aggregate(n=count(), window="1 second", name="windows")
    windows.sink(Memory(), name="counts")
    keys = read.shuffle().map(as_text, {"key": "string"}, name="keys")
    made = keys.key_by("key").process(lambda context: Numbers(), NUMBERED, deal=deal, name="made")
    made.sink(Memory(), name="numbers")
    return flow.dataflow()


def ran(spark, folder, case):
    """The job of a case, at its end."""
    dataflow = counted_twice(case.rows)
    how = Settings(
        store=str(folder / "store"), interval=case.interval, heartbeat=0.1, restarts=5, protocol=case.protocol
    )
    job = Job(dataflow, Placement.spread(dataflow, 2), SparkLauncher(spark), how)
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    for number, step in enumerate(case.steps):
        if case.waits or not number:
            assert waited(lambda: any(one["rows_in"] for one in job.metrics.values()) or job.ended)
        victims = [one.pid for one in job.workers.values()][:1]
        job.rescale(step, in_place=case.in_place)
        for pid in victims if number in case.kills else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if case.waits:
            assert waited(lambda: (job._target is None and job._wanted is None) or job.ended)
    thread.join(PATIENCE)
    assert job.ended
    return job


def require_what_spark_gives(spark, job, rows):
    """Counts of keys by plain Spark are those of all windows, and the largest number of each key."""
    made = KEYS.rows(0, rows, Arrivals().times(0, rows)).select(["key"])
    plain = spark.createDataFrame(pa.Table.from_batches([made]) if isinstance(made, pa.RecordBatch) else made)
    expected = {row["key"]: row["count"] for row in plain.groupBy("key").count().collect()}
    found, results = Counter(), Results(job.dataflow, job.outcome)
    for row in results.table("counts").to_pylist():
        found[row["key"]] += row["n"]
    assert found == expected
    numbers = Counter(tuple(row.values()) for row in results.table("numbers").to_pylist())
    assert numbers == Counter((str(key), n + 1) for key, many in expected.items() for n in range(many))


@pytest.mark.parametrize("kill", [False, True])
def test_numbers_that_change_in_place_give_what_spark_gives(spark, tmp_path, kill):
    steps = [
        {"windows": windows, "counts": windows, "made": wide, "numbers": wide} for wide, windows in ((3, 4), (1, 2))
    ]
    job = ran(spark, tmp_path, Case(tuple(steps), kills=frozenset([0] if kill else [])))
    assert job.outcome.rescales
    assert not job.outcome.moves
    assert bool(job.outcome.restarts) == kill
    require_what_spark_gives(spark, job, 4000)


@pytest.mark.parametrize("seed", range(10))
def test_drawn_changes_while_snapshots_are_taken_and_workers_killed_give_what_spark_gives(spark, tmp_path, seed):
    case = Case.drawn(seed)
    job = ran(spark, tmp_path, case)
    assert job.outcome.rescales, case
    assert case.in_place is None or all(one.in_place for one in job.outcome.rescalings), case
    require_what_spark_gives(spark, job, case.rows)
