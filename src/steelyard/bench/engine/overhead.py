"""What planning adds to a batch, and whether the driver's memory stays flat."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.bench import Result, Run, Series, Table, Target, charts, experiment, spark_for
from steelyard.bench.engine.aggregate import Spread, write_rows
from steelyard.core import Progress
from steelyard.grouping import OSG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from steelyard.spark.microbatch import MicroBatch

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
HEADLINE_ROWS = 1_000_000
KEYS, EXPONENT = 20_000, 1.2
STATISTICS = ("carried", "exact")
IN_PLACE = "in place"
"""A third way to run: no statistics, no plan, rows combined where they are read."""
WAYS = (*STATISTICS, IN_PLACE)
SLOTS = 8
WARM_UPS, QUICK_WARM_UPS = (1.0, 1.0), (0.01,)
"""Shares of the rows in the batches before the measured ones."""
WINDOW_SECONDS = 10
SMALL_ROWS, SMALL_KEYS = 1_000, 100
MEMORY_BATCHES, QUICK_MEMORY_BATCHES = 500, 6
MEMORY_WARM_UPS, QUICK_MEMORY_WARM_UPS = 10, 1
MEMORY_SLOTS = 2
"""Few tasks: small batches then follow each other quickly, and the driver does the same for each."""
FIFTH = 5
MEMORY = "memory"
"""A panel of the picture."""
TIGHT_HEAP = ("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20")
"""A heap that gives back what is free after a collection: what a driver has is then what it needs. By default it keeps
up to 70 % free, and how much of that is a matter of chance."""


@dataclass(frozen=True)
class Nowhere:
    """A sink that has the results computed, counts them and keeps nothing."""

    def write(self, results: DataFrame, batch: int) -> int:
        """Evaluate the results."""
        return results.count()


@dataclass
class Stream:
    """One engine that is given the same rows again and again, each time as the next window."""

    spark: SparkSession
    rows: DataFrame
    """A session, and the rows of a batch."""
    way: str
    """Where key counts come from, `"carried"` or `"exact"`; or `"in place"`, without a plan."""
    checkpoint: Path
    """Where state lives."""
    slots: int = SLOTS
    """Blocks and buckets."""
    batch: int = 0
    placing: list[float] = field(default_factory=list)
    """Seconds to turn each plan into a placement, in the driver."""

    def __post_init__(self) -> None:
        self.engine = self._engine()

    def _engine(self) -> MicroBatch:
        from steelyard.partition import partitioner  # noqa: PLC0415
        from steelyard.scaling import Fixed  # noqa: PLC0415
        from steelyard.spark.microbatch import MicroBatch  # noqa: PLC0415 - loads Spark
        from steelyard.spark.program import Bound, Program, Window  # noqa: PLC0415
        from steelyard.spark.settings import Settings  # noqa: PLC0415

        size = WINDOW_SECONDS * 1_000_000
        uses = {"spread": Spread().of("value")}
        program = Program(("key",), uses, Window(size, size), "event_time", 0)
        settings = Settings(
            partitioner("in_place" if self.way == IN_PLACE else "prompt"),
            Fixed(),
            self.slots,
            self.slots,
            statistics="carried" if self.way == IN_PLACE else self.way,
        )
        bound = Bound.of(program, self._timed_rows().schema)
        return MicroBatch(self.spark, bound, settings, Nowhere(), str(self.checkpoint))

    def _timed_rows(self, share: float = 1.0) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

        rows = self.rows if share == 1.0 else self.rows.sample(fraction=share, seed=0)
        return rows.withColumn("event_time", F.timestamp_seconds(F.lit(self.batch * WINDOW_SECONDS)))

    def next(self, share: float = 1.0) -> Progress:
        """Process the rows once more, or a share of them."""
        rows = self._timed_rows(share)
        report = self.engine.process(rows, self.batch)
        assert report is not None, "batch numbers go up"
        self.batch += 1
        return report

    def time_placing(self) -> float:
        """Seconds that the driver needs to make a placement of the newest plan; Spark then joins with it."""
        from steelyard.partition import partitioner  # noqa: PLC0415
        from steelyard.spark.placement import placed  # noqa: PLC0415 - loads Spark
        from steelyard.spark.statistics import exact_counts  # noqa: PLC0415

        if self.way == IN_PLACE:
            return 0.0
        rows = self._timed_rows()
        counts = self.engine.carried.counts if self.way == "carried" else exact_counts(rows, ("key",))
        policy = self.engine.settings.partitioner
        assert not isinstance(policy, OSG), "this measures plans, and OSG makes none"
        plan = partitioner(policy).plan(counts, self.slots)
        clock = time.perf_counter()
        placed(rows, plan, ("key",), None)
        return time.perf_counter() - clock


@dataclass(frozen=True)
class Cost:
    """Median seconds of the parts of a batch."""

    rows: int
    way: str
    total: float
    counting: float
    planning: float
    placing: float

    @property
    def share(self) -> float:
        """What measuring, planning and placing take of a batch."""
        return (self.counting + self.planning + self.placing) / self.total


def time_size(
    spark: SparkSession, folder: Path, rows: int, warm_ups: Sequence[float], repetitions: int
) -> dict[str, Cost]:
    """The cost of a batch of `rows` in each way; the ways take turns."""
    frame = spark.read.parquet(str(folder))
    streams = {way: Stream(spark, frame, way, folder.parent / f"{folder.name}-{way}") for way in WAYS}
    reports: dict[str, list[Progress]] = {way: [] for way in WAYS}
    for share in warm_ups:
        for stream in streams.values():
            stream.next(share)
    for _ in range(repetitions):
        for way, stream in streams.items():
            reports[way].append(stream.next())
            stream.placing.append(stream.time_placing())
    return {
        way: Cost(
            rows,
            way,
            total=_median(report.seconds["total"] for report in reports[way]),
            counting=_median(report.seconds.get("statistics", 0.0) for report in reports[way]),
            planning=_median(report.seconds.get("plan", 0.0) for report in reports[way]),
            placing=_median(streams[way].placing),
        )
        for way in WAYS
    }


def _median(values: Any) -> float:
    return float(statistics.median(list(values)))


def watch_memory(spark: SparkSession, stream: Stream, warm_ups: int, batches: int, run: Run) -> Series:
    """The driver's memory in MiB after batches, a hundred of them at most, garbage collected."""
    java = spark.sparkContext._jvm
    assert java is not None, "a driver has a JVM"
    machine = java.java.lang.ProcessHandle.current().pid()
    every = max(1, batches // 100)
    numbers, sizes = [], []
    for batch in run.progress.track(range(warm_ups + batches), "memory"):
        stream.next()
        if batch >= warm_ups and batch % every:
            continue
        gc.collect()
        java.java.lang.System.gc()  # in the warm-up too: a heap gives memory back bit by bit
        if batch >= warm_ups:
            numbers.append(batch - warm_ups + 1)
            sizes.append(resident_mib(os.getpid()) + resident_mib(int(machine)))
    return Series(f"{MEMORY}: the driver and its JVM", numbers, sizes)


def resident_mib(process: int) -> float:
    """Memory that a process has, in MiB.

    >>> resident_mib(os.getpid()) > 1
    True
    """
    status = Path(f"/proc/{process}/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=True)
    return int(said.stdout) / 1024


def growth(sizes: Sequence[float]) -> float:
    """Mean of the last fifth over mean of the first.

    >>> growth([100, 100, 120, 120, 110])
    1.1
    """
    fifth = max(1, len(sizes) // FIFTH)
    return float(np.mean(sizes[-fifth:]) / np.mean(sizes[:fifth]))


@experiment("engine-overhead", title="What planning adds to a batch, and the driver's memory over many batches")
def overhead(run: Run) -> Result:
    """Seconds of counting, planning and placing in batches of several sizes, and memory over many small batches."""

    sizes = [HEADLINE_ROWS] if run.quick else list(SIZES)
    repetitions = run.pick(5, 1)
    warm_ups = run.pick(WARM_UPS, QUICK_WARM_UPS)
    first = run.pick(MEMORY_WARM_UPS, QUICK_MEMORY_WARM_UPS)
    batches = run.pick(MEMORY_BATCHES, QUICK_MEMORY_BATCHES)
    config = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": " ".join(TIGHT_HEAP)}
    costs: dict[int, dict[str, Cost]] = {}
    with spark_for("overhead", SLOTS, config) as (spark, scratch):
        for rows in run.progress.track(sizes, "sizes"):
            run.progress.say(f"{rows:,} rows")
            folder = write_rows(scratch / str(rows), rows, KEYS, EXPONENT, run.seed)
            costs[rows] = time_size(spark, folder, rows, warm_ups, repetitions)
        run.progress.say(f"memory over {batches} batches")
        few = write_rows(scratch / "few", SMALL_ROWS, SMALL_KEYS, EXPONENT, run.seed)
        stream = Stream(spark, spark.read.parquet(str(few)), "carried", scratch / "memory", MEMORY_SLOTS)
        memory = watch_memory(spark, stream, first, batches, run)
    return result_of(costs, memory, repetitions, batches)


def result_of(
    costs: dict[int, dict[str, Cost]],
    memory: Series,
    repetitions: int,
    batches: int,
) -> Result:
    """The figures at a million rows, and the growth of memory."""
    carried, exact, in_place = (costs[HEADLINE_ROWS][way] for way in WAYS)
    parts = (
        f"counting took {carried.counting:.2f} s, planning {carried.planning:.2f} s and placing "
        f"{carried.placing:.2f} s of {carried.total:.2f} s"
    )
    return Result(
        parameters={
            "keys": KEYS,
            "zipf_exponent": EXPONENT,
            "blocks": SLOTS,
            "buckets": SLOTS,
            "repetitions": repetitions,
            "memory_batches": batches,
            "memory_rows": SMALL_ROWS,
            "memory_slots": MEMORY_SLOTS,
        },
        metrics={
            "overhead_share_1m": carried.share,
            "exact_overhead_share_1m": exact.share,
            "carried_vs_exact": exact.total / carried.total,
            "blocks_vs_in_place": in_place.total / carried.total,
            "batch_1m_s": carried.total,
            "driver_rss_growth": growth(memory.y),
            "driver_rss_mib": float(memory.y[-1]),
        },
        tables=[_table(costs)],
        series=[*_series(costs), memory],
        targets=[
            Target("overhead_share_1m", at_most=0.10, explanation=parts),
            Target("driver_rss_growth", at_most=1.10, explanation="memory was still growing after the warm-up"),
        ],
        notes=[
            "A batch is one window: its rows are combined by a Python aggregate, and the window before it closes.",
            "Overhead is key counting, planning and making the placement in the driver; joining rows with it and "
            "moving them is part of the batch.",
            "blocks_vs_in_place is the whole price of balance where there is nothing to balance: the speed with "
            "carried statistics, rows joined with the plan and moved, over that of rows combined where they are read.",
        ],
    )


def _table(costs: dict[int, dict[str, Cost]]) -> Table:
    rows = [
        (c.rows, c.way, c.total, c.counting, c.planning, c.placing, c.share)
        for both in costs.values()
        for c in both.values()
    ]
    columns = ("rows", "way", "batch s", "counting s", "planning s", "placing s", "share")
    return Table("median seconds of a batch", columns, rows)


def _series(costs: dict[int, dict[str, Cost]]) -> list[Series]:
    sizes = list(costs)
    return [
        Series(f"{source} statistics", sizes, [costs[rows][source].share for rows in sizes]) for source in STATISTICS
    ]


@overhead.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """What counting, planning and placing take of a batch, what a batch takes, and the driver's memory."""
    memory = result.panel(MEMORY)
    panels = charts.panels(figure, 2 + len(memory), (14, 4.8))
    share, whole = (result.tables[0].lines("way", "rows", column) for column in ("share", "batch s"))
    x, title = "rows of a batch", "Counting, planning and placing"
    charts.lines(panels[0], share, title=title, x=x, y="share of the batch's time", log="x", legend=False)
    panels[0].set_ylim(0, 1.15 * max(0.25, *(value for one in share for value in one.y)))
    charts.bound(panels[0], 0.10, "target with carried statistics", legend=False)
    charts.lines(panels[1], whole, title="The whole batch", x=x, y="median time, s", log="x", legend=False)
    for axes, one in zip(panels[2:], memory, strict=True):
        axes.plot(one.x, one.y, color=charts.GREY, label=one.name)
        axes.set_ylim(0, 1.2 * max(one.y))
        charts.finish(axes, title="Memory over many small batches", x="batch", y="memory (RSS), MiB")
    charts.legend_below(figure, *panels)
