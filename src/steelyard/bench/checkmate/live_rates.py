"""Checkpoint protocols on real workers: rows per second where sources never wait, and bytes that travel."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.applications import nexmark
from steelyard.bench import Cell, Result, Run, Table, Target, charts, experiment
from steelyard.bench.checkmate.live import EVENT_RATE, SNAPSHOT_SECONDS
from steelyard.bench.checkmate.live_cases import QUERIES, WORKERS, Rows, dataflow
from steelyard.bench.checkmate.live_contest import SLOTS, protocols
from steelyard.bench.registry import spark_for
from steelyard.core.topology import Placement
from steelyard.resident import Settings
from steelyard.resident.jobs import Job

ROWS, QUICK_ROWS = 1_000_000, 100_000
ROWS_ALONE, QUICK_ROWS_ALONE = 30_000, 5_000
"""Of runs in which every message has one row."""
BLOCKS = (64, 1)
"""Rows of a message, at most."""
ROUNDS = 3
NONE = "none"


@dataclass(frozen=True)
class Ran:
    """What a run showed."""

    rate: float
    """Rows per second."""
    sent: int
    """Bytes that workers sent each other and the driver."""


@dataclass(frozen=True)
class Rates:
    """Runs queries as fast as rows are worked off.

    Parameters
    ----------
    launcher
        Starts workers.
    scratch
        A folder for checkpoints.
    """

    launcher: Any
    scratch: Path

    def run(self, query: nexmark.Query, protocol: str, rows: int, block_rows: int, turn: int) -> Ran:
        """A query over so many rows, with a checkpoint per second by a protocol."""
        made = dataflow(query, Rows(EVENT_RATE, rows, None, block_rows))
        store = self.scratch / f"{query.name}-{protocol}-{block_rows}-{turn}"
        every = None if protocol == NONE else SNAPSHOT_SECONDS
        settings = Settings(str(store), every, restarts=0, protocol=protocol)
        outcome = Job(made, Placement.spread(made, WORKERS), self.launcher, settings).run()
        sent = sum(one["sent"][what] for one in outcome.traffic.values() for what in ("payload", "overhead"))
        return Ran(rows / outcome.seconds["run"], sent)


@experiment("checkmate-rates", title="Checkpoint protocols on real workers: rows per second and bytes")
def rates(run: Run) -> Result:
    """Both over those without checkpoints, round by round."""
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark

    contenders, turns = protocols(run.quick), run.pick(ROUNDS, 1)
    queries = dict(list(QUERIES.items())[:1]) if run.quick else QUERIES
    sizes = dict(zip(BLOCKS, run.pick((ROWS, ROWS_ALONE), (QUICK_ROWS, QUICK_ROWS_ALONE)), strict=True))
    found: dict[tuple[str, str, int], list[Ran]] = {}
    with spark_for("rates", SLOTS) as (spark, scratch):
        made = Rates(SparkLauncher(spark), scratch)
        for query in queries.values():  # the first also warms up
            made.run(query, NONE, sizes[BLOCKS[0]], BLOCKS[0], -1)
        cells = [(name, block, turn) for name in queries for block in BLOCKS for turn in range(turns)]
        for name, block, turn in run.progress.track(cells, "queries"):
            for one in contenders if turn % 2 == 0 else reversed(contenders):
                ran = made.run(queries[name], one, sizes[block], block, turn)
                found.setdefault((name, one, block), []).append(ran)
    return result_of(found, sizes)


def result_of(found: dict[tuple[str, str, int], list[Ran]], sizes: dict[int, int]) -> Result:
    """Medians over rounds of ratios."""
    metrics: dict[str, float] = {}
    rows: list[list[Cell]] = []
    for (query, name, block), runs in found.items():
        calm = found[query, NONE, block]
        rate = statistics.median(one.rate / other.rate for one, other in zip(runs, calm, strict=True))
        sent = statistics.median(one.sent / other.sent for one, other in zip(runs, calm, strict=True))
        rows.append([query, name, block, statistics.median(one.rate for one in runs), rate, sent])
        if name != NONE:
            suffix = "" if block == BLOCKS[0] else "_one_row"
            metrics |= {f"{query}_rate_vs_none_{name}{suffix}": rate, f"{query}_bytes_vs_none_{name}{suffix}": sent}
    for name, short in (("coordinated", "coor"), ("uncoordinated", "unc"), ("communication_induced", "cic")):
        told = [value for metric, value in metrics.items() if metric.endswith(f"_bytes_vs_none_{name}_one_row")]
        if told:
            metrics[f"overhead_{short}"] = statistics.fmean(told)
    columns = ("query", "protocol", "rows of a message", "rows per second", "rate over none", "bytes over none")
    bounded = [one for one in ("overhead_coor", "overhead_unc") if one in metrics]
    return Result(
        parameters={
            "workers": WORKERS,
            "snapshot_seconds": SNAPSHOT_SECONDS,
            "rows": {f"{block} per message": many for block, many in sizes.items()},
            "rounds": max(len(runs) for runs in found.values()),
        },
        metrics=metrics,
        tables=[Table("on real workers", columns, rows)],
        targets=[
            Target(one, at_most=1.02, explanation="reports of checkpoints and markers, beside messages of one row")
            for one in bounded
        ],
        notes=[
            "Sources never wait, so that the rate is what can be sustained; ratios are taken round by round, and the "
            "median is shown. overhead_…: bytes over those without checkpoints where every message has one row, mean "
            "of the queries (Table 3.2 has 10 and 50 workers).",
        ],
    )


@rates.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The rate of each protocol over that without checkpoints, by query."""
    rows = [row for row in result.tables[0].records() if row["rows of a message"] == BLOCKS[0]]
    queries = list(dict.fromkeys(row["query"] for row in rows))
    for axes, query in zip(charts.panels(figure, len(queries), (6.5 * len(queries), 4.0)), queries, strict=True):
        shown = {row["protocol"]: row["rate over none"] for row in rows if row["query"] == query}
        charts.bars(axes, shown, title=query.upper(), x="rows per second over those without checkpoints", y="protocol")
