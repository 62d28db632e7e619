"""Ways to schedule batches, each on the clock: rows wait in their map tasks, and come at a rate that changes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from steelyard.bench import Run, mean, spark_for
from steelyard.core import BatchObservation
from steelyard.core.plans import spread
from steelyard.scaling import elasticity
from steelyard.workloads.rates import Rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS, SLOTS = 2, 8
"""Resident workers, and the tasks that each runs at once; Spark's own jobs have as many slots in all."""
BLOCKS, BUCKETS = 4, 2
KEYS = 100
LOAD = 0.72
"""W at the base rate, with as many blocks as there are to begin with: fewer would not do, and a slow moment of the
machine does not look like more rows."""
ROWS = 2_000
"""Rows of a batch at the base rate."""
GROUP, AHEAD, ADJUST = 10, 2, 2
FIXED_JOBS = 5
POLICY = f"zones?patience=1&increment=proportional&most_blocks={WORKERS * SLOTS}"
"""As swift as it can be: one batch above the threshold, and as many tasks as it takes."""

PROMPTPLUS = "Prompt+"
BOUNDARY = "groups, changed at their boundary"
FIXED = "groups ahead, not elastic"
ONE_BY_ONE = "one Spark job a batch"


@dataclass(frozen=True)
class Ran:
    """How a batch went."""

    batch: int
    rows: int
    blocks: int
    load: float
    """W: processing time over interval."""
    delay: float
    """From the end of its interval to its own end, in intervals."""


@dataclass(frozen=True)
class Course:
    """All batches of one technique."""

    technique: str
    ran: Sequence[Ran]
    changes: Sequence[str] = field(default_factory=tuple)
    """Decisions, in words."""

    @property
    def loads(self) -> list[float]:
        """W of each batch."""
        return [one.load for one in self.ran]

    def effect(self, spike: int) -> int:
        """The first batch from a spike on that has more map tasks than the one before it; one past the last if none.

        Batches are counted from 1 here, as in the dissertation.
        """
        before = self.ran[spike - 2].blocks
        return next((one.batch + 1 for one in self.ran[spike - 1 :] if one.blocks > before), len(self.ran) + 1)

    def stable(self, spike: int) -> int:
        """The first batch from a spike on, counted from 1, from which W stays at 1 or below."""
        above = [one.batch for one in self.ran[spike - 1 :] if one.load > 1]
        return above[-1] + 2 if above else spike

    @property
    def violations(self) -> float:
        """The share of batches that ended more than an interval after their rows had come."""
        return mean(one.delay > 1 for one in self.ran)


class Waiting:
    """A map function that asks a remote service about each row; the service is a clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Wait for all rows."""
        time.sleep(batch.num_rows * self.seconds)
        return batch


def waiting(interval: float, fixed: float = 0.0) -> float:
    """Seconds that a row waits, such that W is `LOAD` at the base rate, of which `fixed` seconds are no waiting.

    >>> waiting(1.0) * ROWS / BLOCKS
    0.72
    """
    return max(LOAD * interval - fixed, 0.0) * BLOCKS / ROWS


def resident_course(spark: SparkSession, technique: str, rate: Rate, batches: int, interval: float) -> Course:
    """Batches on resident workers in Spark's tasks."""
    from steelyard.core.aggregates import count  # noqa: PLC0415
    from steelyard.resident import Generated  # noqa: PLC0415
    from steelyard.resident.groups import BatchProgram, GroupWorker, Scheduling, run_batches  # noqa: PLC0415
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark
    from steelyard.workloads import Zipf  # noqa: PLC0415

    workload = Zipf(0.5, KEYS)
    program = BatchProgram(
        Generated(workload, 1 << 40),
        ("key",),
        {"n": count()},
        rate=rate,
        function=Waiting(waiting(interval)),
        partitioner="prompt",
    )
    scheduling = Scheduling(
        interval=interval,
        group=GROUP,
        ahead=AHEAD,
        adjust=ADJUST,
        boundary=technique == BOUNDARY,
        batches=batches,
        blocks=BLOCKS,
        buckets=BUCKETS,
        slots=SLOTS,
    )
    elastic = None if technique == FIXED else POLICY
    launcher = SparkLauncher(spark, GroupWorker)
    found = run_batches(program, scheduling, workers=WORKERS, launcher=launcher, elastic=elastic)
    ran = [
        Ran(number, run.rows, run.blocks, run.load, run.done / interval - number - 1)
        for number, run in sorted(found.batches.items())
    ]
    changes = [f"batch {one.first}: {one.plan.blocks} map tasks ({one.reason})" for one in found.changes]
    return Course(technique, ran, changes)


def spark_course(spark: SparkSession, rate: Rate, batches: int, interval: float) -> Course:
    """A job of two stages for every batch; the policy's decision holds for the next that begins.

    Like the others it begins at a load of `LOAD`: what a job takes without any waiting is measured first.
    """
    policy = elasticity(POLICY)
    blocks, buckets = BLOCKS, BUCKETS
    context = spark.sparkContext
    seconds = waiting(interval, statistics.median(_job_seconds(context, ROWS, BLOCKS, 0.0) for _ in range(FIXED_JOBS)))
    ran, changes = [], []
    start = time.time()
    for batch in range(batches):
        heartbeat = start + (batch + 1) * interval
        time.sleep(max(0.0, heartbeat - time.time()))
        ends = rate.rows_until(np.array([batch, batch + 1]) * interval).astype(np.int64)
        rows = int(ends[1] - ends[0])
        taken = _job_seconds(context, rows, blocks, seconds, buckets)
        ran.append(Ran(batch, rows, blocks, taken / interval, (time.time() - heartbeat) / interval))
        seen = BatchObservation(batch, rows, KEYS, blocks, buckets, taken, interval, slots=WORKERS * SLOTS)
        wanted = policy.decide(seen.at(time.time() - start))
        if wanted.parallelism:
            blocks, buckets = wanted.parallelism["blocks"], wanted.parallelism["buckets"]
            changes.append(f"batch {batch + 1}: {blocks} map tasks ({wanted.reason})")
    return Course(ONE_BY_ONE, ran, changes)


def _job_seconds(context: Any, rows: int, blocks: int, seconds: float, buckets: int = BUCKETS) -> float:
    """How long a job takes that counts the keys of a batch."""
    begun = time.perf_counter()
    counted = context.parallelize(spread(rows, blocks).tolist(), blocks).mapPartitions(_counting(seconds))
    found = dict(counted.reduceByKey(lambda a, b: a + b, buckets).collect())
    assert sum(found.values()) == rows, "every row is counted once"
    return time.perf_counter() - begun


def _counting(seconds: float) -> Callable[[Iterator[int]], Iterator[tuple[int, int]]]:
    def counted(sizes: Iterator[int]) -> Iterator[tuple[int, int]]:
        for rows in sizes:
            time.sleep(rows * seconds)
            yield from enumerate(np.bincount(np.arange(rows) % KEYS, minlength=KEYS).tolist())

    return counted


def warm_up(spark: SparkSession) -> None:
    """Start Python workers, and compile what is compiled, before the clock counts."""
    from steelyard.workloads.rates import Constant  # noqa: PLC0415

    spark_course(spark, Constant(ROWS / 0.05), 4, 0.05)
    resident_course(spark, PROMPTPLUS, Constant(ROWS / 0.05), 10, 0.05)


def courses(
    run: Run, name: str, rates: Mapping[str, Rate], techniques: Sequence[str], batches: int, interval: float
) -> dict[str, dict[str, Course]]:
    """Every technique under every rate, in one session with a slot for every task that may run at once."""
    found: dict[str, dict[str, Course]] = {kind: {} for kind in rates}
    config = {"spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    with spark_for(name, WORKERS * SLOTS, config) as (spark, _):
        run.progress.say("warming up")
        warm_up(spark)
        for kind, technique in run.progress.track([(kind, one) for kind in rates for one in techniques], name):
            run.progress.say(f"{kind}: {technique}")
            given = rates[kind], batches, interval
            found[kind][technique] = (
                spark_course(spark, *given) if technique == ONE_BY_ONE else resident_course(spark, technique, *given)
            )
    return found
