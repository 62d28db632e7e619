"""A filter, an incremental join and a sliding aggregate under a rate that comes and goes."""

from __future__ import annotations

from steelyard.bench import Result, Run, charts, experiment
from steelyard.bench.autoscale.by_pattern import result_of, runs_of
from steelyard.bench.autoscale.contest import SOURCE
from steelyard.bench.autoscale.patterns import COSINE
from steelyard.bench.autoscale.report import draw_runs

NAMES = ("FQ", "IJ", "SA")


@experiment(
    "autoscale-queries",
    title="Autoscalers on a filter, a join and a sliding aggregate, under a rate that comes and goes",
    figure=f"{SOURCE}, FQ, IJ and SA",
)
def queries(run: Run) -> Result:
    """Every contestant on three more queries, under a cosine of 140 minutes."""
    return result_of(runs_of(run, tuple((query, COSINE) for query in NAMES)), run.quick)


@queries.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A column for each query."""
    draw_runs(figure, result)
