"""Where the time of a batch goes, technique added to technique: execution, imbalance, and the rest."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steelyard.bench import Claim, Published, Result, Run, Target, charts, experiment, mean, spark_for
from steelyard.bench.demo.work import LookUp
from steelyard.bench.engine.aggregate import write_rows
from steelyard.bench.prompt.plus_on_spark import Discarded
from steelyard.bench.prompt.plus_techniques import Waiting
from steelyard.bench.tables import Cell, Series, Table
from steelyard.workloads.zipf import Zipf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS, SLOTS = 2, 8
"""Resident workers, and tasks that each runs at once. Blocks are fewer, so that elasticity has room."""
BLOCKS, BUCKETS = 8, 2
ROWS, KEYS, EXPONENT = 8_000, 200, 1.5
WAIT_US = 400.0
INTERVAL = 0.6
BATCHES, QUICK_BATCHES = 20, 2
WARM_UPS, QUICK_WARM_UPS = 4, 1
RESIDENT_WARM_UPS, QUICK_RESIDENT_WARM_UPS = 10, 4
"""A quick run has the fewer where no policy has to find its plan first."""
FEW_BLOCKS = 4
"""With which elasticity begins."""
POLICY = f"zones?patience=1&increment=proportional&most_blocks={WORKERS * SLOTS}"
BASELINE, PROMPT, AHEAD, ELASTIC = "one Spark job, hash", "+ Prompt", "+ groups ahead", "+ elastic"


@dataclass(frozen=True)
class Parts:
    """Median seconds of a batch: the mean of its map tasks, how much longer the longest works, and the rest."""

    execution: float
    imbalance: float
    rest: float

    @property
    def total(self) -> float:
        """Seconds of a batch."""
        return self.execution + self.imbalance + self.rest

    @property
    def share(self) -> float:
        """Of execution in the total."""
        return self.execution / self.total

    @classmethod
    def of(cls, batches: Sequence[tuple[float, Sequence[float]]]) -> Parts:
        """From (seconds, seconds of each map task) of each batch.

        >>> Parts.of([(3.0, [1.0, 2.0])])
        Parts(execution=1.5, imbalance=0.5, rest=1.0)
        """
        means = [mean(tasks) for _, tasks in batches]
        longest = [max(tasks) for _, tasks in batches]
        rest = [max(total - most, 0.0) for (total, _), most in zip(batches, longest, strict=True)]
        more = [most - mean for most, mean in zip(longest, means, strict=True)]
        return cls(statistics.median(means), statistics.median(more), statistics.median(rest))


def spark_parts(spark: SparkSession, folder: Path, partitioner: str, batches: int, warm_ups: int) -> Parts:
    """Batches through the micro-batch engine, a Spark job (or a few) for each, behind those that warm it up."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark
    from steelyard.spark.microbatch import MicroBatch  # noqa: PLC0415

    rows = spark.read.parquet(str(folder))
    described = (
        sy.stream(rows)
        .group_by("key")
        .agg(total=LookUp(WAIT_US).of("value"))
        .partition_by(partitioner, blocks=BLOCKS, buckets=BUCKETS)
    )
    with tempfile.TemporaryDirectory(prefix="steelyard-breakdown-") as checkpoint:
        engine = MicroBatch(spark, described._bound(), described._settings(), Discarded(), checkpoint)
        reports = [engine.process(rows, number) for number in range(warm_ups + batches)][warm_ups:]
    found = []
    for report in reports:
        assert report is not None, "batch numbers go up"
        found.append((report.seconds["total"], [task.seconds for task in report.tasks]))
    return Parts.of(found)


def resident_parts(spark: SparkSession, elastic: str | None, batches: int, warm_ups: int) -> tuple[Parts, int]:
    """Batches on resident workers, cut by Prompt and scheduled ahead; and the map tasks of the last."""
    from steelyard.core.aggregates import sum  # noqa: PLC0415
    from steelyard.resident import Generated  # noqa: PLC0415
    from steelyard.resident.groups import BatchProgram, GroupWorker, Scheduling, run_batches  # noqa: PLC0415
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark
    from steelyard.workloads.rates import Constant  # noqa: PLC0415

    program = BatchProgram(
        Generated(Zipf(EXPONENT, KEYS), 1 << 40),
        ("key",),
        {"total": sum("key")},
        rate=Constant(ROWS / INTERVAL),
        function=Waiting(WAIT_US / 1e6),
    )
    blocks = FEW_BLOCKS if elastic else BLOCKS
    scheduling = Scheduling(interval=INTERVAL, batches=warm_ups + batches, blocks=blocks, buckets=BUCKETS, slots=SLOTS)
    launcher = SparkLauncher(spark, GroupWorker)
    found = run_batches(program, scheduling, workers=WORKERS, launcher=launcher, elastic=elastic)
    ran = [found.batches[number] for number in sorted(found.batches)][warm_ups:]
    # of the last half: the policy has found its plan, and what had queued is done
    settled = ran[len(ran) // 2 :]
    taken = [(run.seconds["partition"] + run.seconds["wait"] + run.done - run.ready, run.map_tasks) for run in settled]
    return Parts.of(taken), ran[-1].blocks


@experiment(
    "breakdown",
    title="Where the time of a batch goes, technique added to technique",
    figure="Abdelhamid 2021, Figs 1.4b and 6.2",
)
def breakdown(run: Run) -> Result:
    """Execution, waiting for the slowest task, and scheduling with communication: baseline, Prompt, ahead, elastic."""

    batches, warm_ups = (QUICK_BATCHES, QUICK_WARM_UPS) if run.quick else (BATCHES, WARM_UPS)
    config = {"spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    found: dict[str, Parts] = {}
    with spark_for("breakdown", WORKERS * SLOTS, config) as (spark, scratch):
        folder = write_rows(scratch / "rows", ROWS, KEYS, EXPONENT, run.seed, files=BLOCKS)
        for name, partitioner in ((BASELINE, "hash"), (PROMPT, "prompt")):
            run.progress.say(name)
            found[name] = spark_parts(spark, folder, partitioner, batches, warm_ups)
        run.progress.say(AHEAD)
        settling = QUICK_RESIDENT_WARM_UPS if run.quick else RESIDENT_WARM_UPS
        found[AHEAD], _ = resident_parts(spark, None, 2 * batches, settling)
        run.progress.say(ELASTIC)
        found[ELASTIC], blocks = resident_parts(spark, POLICY, 2 * batches, RESIDENT_WARM_UPS)
    return result_of(found, blocks)


def claims_of(found: Mapping[str, Parts]) -> list[Claim]:
    """What the texts on Fig 1.4b and 6.2 say, beside what was found."""
    baseline = found[BASELINE]
    parts = list(found.items())
    return [
        Claim(
            "scheduling and communication take at least 60 % of a batch, one Spark job a batch by hash",
            "at least 60 %, Fig 1.4b",
            [baseline.rest / baseline.total],
            0.6,
            reason=f"{baseline.imbalance / baseline.total:.0%} of a batch is waiting for its longest map task, which "
            f"is counted by itself here; of the rest of the batch they take "
            f"{baseline.rest / (baseline.rest + baseline.execution):.0%}",
        ),
        *(
            Claim(
                f"{name}: execution has a larger share of a batch than before (share over share)",
                "grows with the techniques, Fig 6.2",
                [one.share / before.share],
                1.0,
                reason="more of a batch than before is no execution: see the table",
            )
            for (_, before), (name, one) in pairwise(parts)
        ),
    ]


def result_of(found: Mapping[str, Parts], blocks: int) -> Result:
    """Shares of execution, and what a batch takes."""
    baseline = found[BASELINE]
    return Result(
        parameters={
            "rows": ROWS,
            "keys": KEYS,
            "zipf_exponent": EXPONENT,
            "wait_us": WAIT_US,
            "blocks": BLOCKS,
            "buckets": BUCKETS,
            "elastic_blocks": blocks,
            "interval": INTERVAL,
        },
        metrics={
            "baseline_rest_share": baseline.rest / baseline.total,
            "baseline_execution_share": baseline.share,
            "prompt_execution_share": found[PROMPT].share,
            "group_ahead_execution_share": found[AHEAD].share,
            "elastic_execution_share": found[ELASTIC].share,
            "all_vs_baseline": baseline.total / found[ELASTIC].total,
        },
        published=[Published("at least 60 %", "Abdelhamid 2021, Fig 1.4b, text", "baseline_rest_share")],
        tables=[_table(found)],
        claims=claims_of(found),
        series=[Series("execution share", list(range(len(found))), [one.share for one in found.values()])],
        targets=[
            Target(
                "group_ahead_execution_share",
                at_least=baseline.share,
                explanation="scheduling took more of a batch than with one Spark job a batch",
            )
        ],
        notes=[
            "Execution is the mean of a batch's map tasks, imbalance what the longest works more, rest all other time: "
            "scheduling, placing rows, moving partials, reducing, state and commits. Rows wait in their map tasks.",
            "On resident workers the time of a batch is from when it is closed to its end: cutting and waiting for the "
            "batch before it, are in the rest.",
            f"Elasticity began with {FEW_BLOCKS} map tasks, of which the interval is too short, and came to {blocks}.",
            "The published share of scheduling and communication is of a cluster with many small tasks.",
        ],
    )


def _table(found: Mapping[str, Parts]) -> Table:
    rows: list[Sequence[Cell]] = [
        (name, one.execution, one.imbalance, one.rest, one.total, 100 * one.share) for name, one in found.items()
    ]
    columns = ("technique", "execution s", "imbalance s", "rest s", "batch s", "execution, %")
    return Table("a batch", columns, rows)


@breakdown.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A bar of three parts for each technique."""
    (axes,) = charts.panels(figure, 1, (9, 4.5))
    techniques = result.table("a batch").records()
    places, left = range(len(techniques)), np.zeros(len(techniques))
    for number, part in enumerate(("execution", "imbalance", "rest")):
        values = np.array([one[f"{part} s"] for one in techniques])
        axes.barh(places, values, left=left, height=0.6, color=charts.COLOURS[number], label=part)
        left = left + values
    axes.set_yticks(places, [one["technique"] for one in techniques])
    axes.invert_yaxis()
    charts.legend_beside(axes)
    charts.finish(axes, title="Where the time of a batch goes", x="time of a batch, s", y="technique")
