"""Elasticity zones on Spark, on the clock: rows that wait come in batches that grow and shrink again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steelyard.bench import Run, spark_for
from steelyard.bench.demo.work import LookUp
from steelyard.core import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOTS = 8
POLICY = "zones?patience=1&increment=proportional"
INTERVAL = 3.0
ROWS = 3_000
"""Of the smallest batch."""
MULTIPLES = (1, 1, 2, 3, 4, 4, 4, 4, 3, 2, 1, 1, 1)
PEAK = 7
"""The last batch of the most rows."""
WARM_UPS = 2
WAIT_US = 1_000.0
KEYS = 200
START = (2, 2)


@dataclass(frozen=True)
class Measured:
    """Reports of the batches that count."""

    reports: Sequence[Progress]

    def load(self, batch: int) -> float:
        """W of a batch."""
        return float(self.reports[batch].seconds["total"]) / INTERVAL

    @property
    def blocks(self) -> list[int]:
        """Map tasks of each batch."""
        return [report.blocks for report in self.reports]

    @property
    def buckets(self) -> list[int]:
        """Reduce tasks of each batch."""
        return [report.buckets for report in self.reports]


class Discarded:
    """A sink that computes results and keeps none."""

    def write(self, results: DataFrame, batch: int) -> int:
        """Count the results."""
        return results.count()


def measure(run: Run) -> Measured:
    """Feed batches to the micro-batch engine, whose blocks and buckets the policy chooses."""
    import steelyard as sy  # noqa: PLC0415 - loads Spark
    from steelyard.spark.microbatch import MicroBatch  # noqa: PLC0415

    def rows_of(multiple: int) -> DataFrame:
        return spark.range(0, multiple * ROWS, 1, SLOTS).selectExpr(f"id % {KEYS} as key", "id as value")

    def engine(elastic: str, checkpoint: str) -> MicroBatch:
        described = (
            sy.stream(rows_of(1))
            .group_by("key")
            .agg(total=LookUp(WAIT_US).of("value"))
            .partition_by("shuffle", blocks=START[0], buckets=START[1])
            .elastic(elastic)
            .trigger(processing_time=f"{INTERVAL:g} seconds")
        )
        return MicroBatch(spark, described._bound(), described._settings(), Discarded(), checkpoint)

    with spark_for("promptplus-elasticity", SLOTS) as (spark, scratch):
        warm = engine("fixed", f"{scratch}/warm")
        for number in range(WARM_UPS):
            warm.process(rows_of(1), number)
        fed = engine(POLICY, f"{scratch}/fed")
        reports = []
        for number, multiple in enumerate(run.progress.track(MULTIPLES, "on Spark")):
            report = fed.process(rows_of(multiple), number)
            assert report is not None, "batch numbers go up"
            reports.append(report)
        return Measured(reports)
