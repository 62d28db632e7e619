"""What `what_if` says of four workers after a run on two, and what four workers then do."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from steelyard.bench import Result, Run, Table, Target, WrongAnswerError, charts, experiment, mean, spark_for
from steelyard.core.aggregates import count
from steelyard.resident import Flow, Memory, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from steelyard.resident import Results

FEW, MANY = 2, 4
WAIT = 0.001
"""Seconds that a row waits for something outside, as for a lookup: two cores can have four workers that wait."""
ROWS, QUICK_ROWS = 16_000, 3_000
BATCH = 20
KEYS, EXPONENT = 400, 1.0
"""Of the case whose rows go by key."""
REPETITIONS, QUICK_REPETITIONS = 3, 1
AIMED = 0.20
EVEN, SKEWED = "even", "by key"
CASES = {EVEN: "rows go to the map in turn", SKEWED: "rows go to the map by a Zipfian key"}


@dataclass(frozen=True)
class Lookup:
    """A map function that waits for each of its rows."""

    seconds: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, later."""
        time.sleep(self.seconds * batch.num_rows)
        return batch


def keys(rows: int, seed: int) -> pa.Table:
    """Words with Zipf's law."""
    shares = 1.0 / np.arange(1, KEYS + 1) ** EXPONENT
    drawn = np.random.default_rng(seed).choice(KEYS, rows, p=shares / shares.sum())
    return pa.table({"word": pa.array(drawn).cast(pa.string())})


def run_on(workers: int, case: str, table: pa.Table, spark: SparkSession | None = None) -> Results:
    """A lookup for each word, and counts: as many instances of each operator as workers."""
    flow = Flow("lookups", parallelism=workers)
    read = flow.source(Rows(table), batch_rows=BATCH, name="read")
    ways = read.shuffle() if case == EVEN else read.key_by("word")
    found = ways.map(Lookup(WAIT), name="look up").key_by("word").aggregate(n=count(), emit="end", name="count")
    found.sink(Memory(), name="out")
    if spark is None:
        from steelyard.resident import run  # noqa: PLC0415 - beside its only use

        return run(flow.dataflow(), workers=workers)
    from steelyard.spark import resident  # noqa: PLC0415 - loads Spark

    return resident.run(spark, flow.dataflow(), workers=workers)


def rate_of(results: Results, rows: int) -> float:
    """Rows per second from when all ran until the last was counted."""
    return rows / results.outcome.seconds["run"]


def counted(results: Results) -> dict[str, int]:
    """How often each word came."""
    out = results.table("out")
    return dict(zip(out["word"].to_pylist(), out["n"].to_pylist(), strict=True))


@dataclass(frozen=True)
class Compared:
    """Rows per second on so many workers."""

    few: float
    predicted: float
    many: float

    @property
    def error(self) -> float:
        """How far off the prediction is, as a share of what was measured."""
        return abs(self.predicted / self.many - 1)


def compared(case: str, table: pa.Table, spark: SparkSession | None = None) -> Compared:
    """Run on few, ask, run on many."""
    import steelyard as sy  # noqa: PLC0415 - as its user does; loads Spark

    few = run_on(FEW, case, table, spark)
    # all workers are on this machine, and share its cores, however many they are
    answer = sy.what_if(few, MANY, placements=["spread"], cores=(os.cpu_count() or 1) / MANY).answer(MANY)
    many = run_on(MANY, case, table, spark)
    if counted(few) != counted(many):
        raise WrongAnswerError(f"{MANY} workers counted other words than {FEW}")
    rows = table.num_rows
    return Compared(rate_of(few, rows), answer.rows_per_second, rate_of(many, rows))


@experiment("what-if", title="what_if after a run on two workers, beside four workers")
def what_if_benchmark(run: Run) -> Result:
    """Predicted and measured rows per second on four workers of this machine, in two cases."""
    rows = run.pick(ROWS, QUICK_ROWS)
    found: dict[str, list[Compared]] = {case: [] for case in CASES}
    with spark_for("what-if", MANY) as (spark, _):
        run_on(MANY, EVEN, keys(BATCH * MANY, run.seed), spark)  # the first job of a session is slow
        points = [(case, at) for at in range(run.pick(REPETITIONS, QUICK_REPETITIONS)) for case in CASES]
        for case, at in run.progress.track(points, "what-if"):
            found[case].append(compared(case, keys(rows, run.seed + at), spark))
    return result_of(found, rows)


def result_of(found: Mapping[str, list[Compared]], rows: int) -> Result:
    """Errors of the mean over repetitions, and all figures."""
    table = [
        (
            case,
            mean(one.few for one in each),
            mean(one.predicted for one in each),
            mean(one.many for one in each),
            100 * mean(one.error for one in each),
        )
        for case, each in found.items()
    ]
    columns = ("case", f"rows/s on {FEW} workers", f"predicted for {MANY}", f"measured on {MANY}", "wrong by, %")
    return Result(
        parameters={"rows": rows, "wait_ms": 1000 * WAIT, "keys": KEYS, "exponent": EXPONENT},
        metrics={
            "what_if_error": mean(one.error for one in found[EVEN]),
            "what_if_error_by_key": mean(one.error for one in found[SKEWED]),
        },
        tables=[Table("rows per second", columns, table)],
        targets=[
            Target(
                "what_if_error",
                at_most=AIMED,
                explanation="what a row costs beside its wait grows where four workers share two cores",
            )
        ],
        notes=[
            "Each row waits 1 ms in a map, then words are counted; all operators have an instance for each worker. "
            "Workers are on one machine, so that what_if is told that four of them share its cores.",
            "By key, the share of the fullest instance follows from the keys, which nobody measured: what that of "
            "two instances had beyond a half is taken for one key's.",
        ],
    )


@what_if_benchmark.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Errors as bars."""
    charts.bars(
        figure.add_subplot(),
        result.metrics,
        title="Error of what_if, beside four workers",
        x="share of what was measured",
        y="",
    )
