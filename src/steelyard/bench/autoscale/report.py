"""Tables, series and pictures that the experiments of the contest share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from steelyard.bench import Cell, Result, Series, Table, charts, mean
from steelyard.bench.autoscale.contest import DRAWN
from steelyard.bench.autoscale.patterns import MINUTE
from steelyard.bench.autoscale.verdicts import Found
from steelyard.bench.claims import Interval
from steelyard.core.plans import Floats

EVERY_MINUTES = 2
"""Of series: a point for each."""
ACROSS = 4
"""Columns of a picture."""
READ, WAITS, WORKING = "rows", "latency", "workers"
UNITS = {READ: "rows/s, simulated", WAITS: "latency, s, simulated", WORKING: "workers, simulated"}
"""Panels, from above."""
COLUMNS = (
    "query",
    "pattern",
    "autoscaler",
    "latency p50, s",
    "latency p95, s",
    "read over came",
    "follows",
    "workers, mean",
    "worker-hours",
    "actions",
)


def table_of(found: Found) -> Table:
    """A row for each run, means over seeds with their intervals."""
    rows: list[tuple[Cell, ...]] = []
    for (query, pattern), seeds in found.items():
        for who in seeds[0]:
            each = [runs[who] for runs in seeds]
            figures = [
                [one.p50 for one in each],
                [one.p95 for one in each],
                [one.kept_up for one in each],
                [one.follows for one in each],
                [one.mean_workers for one in each],
                [one.worker_hours for one in each],
                [float(len(one.actions)) for one in each],
            ]
            rows.append((query, pattern, who, *(str(Interval.of(values)) for values in figures)))
    seeds_of = max(len(seeds) for seeds in found.values())
    return Table(f"all runs, simulated (mean over {seeds_of} seeds and its 95 % interval)", COLUMNS, rows)


def seeds_of(found: Found) -> str:
    """What a reader must know about the seeds."""
    seeds = max(len(runs) for runs in found.values())
    return f"Intervals of 95 % are Student's, over {seeds} seeds." if seeds > 1 else "One seed: there are no intervals."


def metrics_of(found: Found) -> dict[str, float]:
    """Means over seeds, by names that say query, pattern and autoscaler."""
    metrics: dict[str, float] = {}
    for (query, pattern), seeds in found.items():
        for who in DRAWN:
            if who in seeds[0]:
                ending = f"{query}_{pattern}_{who}".lower().replace("-", "_")
                metrics[f"latency_p95_{ending}_s"] = mean(runs[who].p95 for runs in seeds)
                metrics[f"worker_hours_{ending}"] = mean(runs[who].worker_hours for runs in seeds)
                metrics[f"actions_{ending}"] = mean(len(runs[who].actions) for runs in seeds)
    return metrics


def series_of(found: Found, whom: Sequence[str] = DRAWN) -> list[Series]:
    """Rows, workers and latency over time, of the first seed; what comes stands behind what is read."""
    made: list[Series] = []
    for (query, pattern), seeds in found.items():
        panel = f"{query}, {pattern}"
        for who in whom:
            one = seeds[0][who]
            for what, values in ((READ, one.read), (WAITS, one.waits), (WORKING, one.workers)):
                made.append(_line(f"{panel}, {what}: {who}", one.time, values))
        made.append(_line(f"{panel}, {READ}: input", seeds[0][whom[0]].time, seeds[0][whom[0]].rate))
    return made


def _line(name: str, time: Floats, values: Floats) -> Series:
    """A value for every other minute."""
    minutes = np.arange(EVERY_MINUTES, time[-1] / MINUTE + 1e-6, EVERY_MINUTES)
    spots = np.minimum(np.searchsorted(time, minutes * MINUTE - 1e-6), len(time) - 1)
    return Series(name, minutes.tolist(), [float(f"{value:.4g}") for value in values[spots]], "simulated")


def panels_of(result: Result) -> list[str]:
    """Query and pattern of every run that a result has series of."""
    ends = f", {READ}"
    heads = [one.name.rpartition(": ")[0] for one in result.series]
    return list(dict.fromkeys(head.removesuffix(ends) for head in heads if head.endswith(ends)))


def draw_runs(figure: charts.Figure, result: Result) -> None:
    """A column of rows that are read, latency and workers for each query and pattern; four beside each other."""
    names = panels_of(result)
    across = min(len(names), ACROSS)
    blocks = [names[first : first + across] for first in range(0, len(names), across)]
    size = (4.3 * across + 1, 8.4 * len(blocks) + 0.5)
    axes = charts.panels(figure, across, size, down=len(UNITS) * len(blocks))
    for number, (block, (what, unit)) in enumerate(product(blocks, UNITS.items())):
        for column, name in enumerate(block):
            here = axes[number * across + column]
            charts.lines(
                here,
                result.panel(f"{name}, {what}"),
                title=name if what == READ else what,
                x="minutes",
                y=unit,
                legend=False,
            )
            charts.thousands(here.yaxis)
    charts.legend_below(figure, *axes)
