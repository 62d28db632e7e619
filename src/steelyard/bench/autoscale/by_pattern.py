"""Map and sessions under rates that rise, fall, come and go, and wander."""

from __future__ import annotations

from steelyard.bench import Published, Result, Run, Target, charts, experiment
from steelyard.bench.autoscale.cells import WINS, cell_claims, cell_metrics, cells_table
from steelyard.bench.autoscale.contest import (
    CONTESTANTS,
    DRAWN,
    EXACT,
    FORESIGHT,
    HOW,
    LATENCY,
    PUBLISHED,
    SEEDS,
    SOURCE,
    each_of,
    parameters,
)
from steelyard.bench.autoscale.findings import REASONS, findings_of
from steelyard.bench.autoscale.patterns import COSINE, INCREASING, MINUTES, PATTERNS
from steelyard.bench.autoscale.report import draw_runs, metrics_of, seeds_of, series_of, table_of
from steelyard.bench.autoscale.verdicts import TABLE, Found, Runs, claims_of

NAMES = ("Map", "SWA")
QUICK = ((NAMES[0], INCREASING), (NAMES[1], COSINE))


@experiment(
    "autoscale-patterns",
    title="Autoscalers under rates that rise, fall, come and go, and wander",
    figure=f"{SOURCE}, Map and SWA",
)
def patterns(run: Run) -> Result:
    """Every contestant on Map and SWA under four patterns of 140 minutes."""
    cases = run.pick(tuple((query, pattern) for query in NAMES for pattern in PATTERNS), QUICK)
    return result_of(runs_of(run, cases), run.quick)


def runs_of(run: Run, cases: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], list[Runs]]:
    """All contestants under each seed; a quick run has those that were published, ours, and one seed."""
    whom = run.pick(tuple(who for who in CONTESTANTS if who != EXACT), (*PUBLISHED, FORESIGHT))
    found: dict[tuple[str, str], list[Runs]] = {}
    seeds = run.seeds(SEEDS, 1)
    points = [(*case, who, seed, float(MINUTES)) for case in cases for seed in seeds for who in whom]
    outcomes = iter(each_of(points, run.progress))
    for case in cases:
        found[case] = [{who: next(outcomes) for who in whom} for _ in seeds]
    return found


def result_of(found: Found, quick: bool) -> Result:
    """Verdicts on what was published of these cases, tables and series."""
    rows = [row for row in TABLE if (row.query, row.pattern) in found]
    return Result(
        parameters=parameters(minutes=MINUTES, cases=list(found)),
        metrics={**metrics_of(found), **cell_metrics(found)},
        kind="simulated",
        targets=[Target("cells_won_share", at_least=1.0, explanation="the claims on each cell say by whom, and why")],
        tables=[table_of(found), cells_table(found)],
        claims=[*claims_of(found, rows, REASONS), *findings_of(found), *cell_claims(found)],
        series=series_of(found, (*PUBLISHED, FORESIGHT) if quick else DRAWN),
        published=[
            Published(f"{row.query}, {row.pattern}, {row.who}: {row.published}", f"{SOURCE}, text of the results")
            for row in rows
        ],
        notes=[HOW, LATENCY, WINS, seeds_of(found)],
    )


@patterns.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A column for each query and pattern."""
    draw_runs(figure, result)
