"""Placements of everybody who takes part, on each setup: Figs. 2.7 to 2.10, 3.3, 3.5, 3.7, 4.2 to 4.5."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.bench import Result, Run, charts, experiment
from steelyard.bench.claims import mean
from steelyard.bench.placement.frame import (
    HOW,
    Contest,
    contest,
    contestants,
    curves_of,
    order_claims,
    reduction_claims,
    seeds_of,
    times_table,
)
from steelyard.bench.placement.published import ACTOR, DEFAULT, DQN, EXTRA, MODEL, PUBLISHED, SOURCE
from steelyard.bench.registry import Experiment
from steelyard.bench.result import Published

WHY = "the simulated cluster is not theirs: only the default's times were fitted"
PAIRS = (
    (MODEL, DEFAULT),
    (DQN, DEFAULT),
    (ACTOR, DEFAULT),
    (ACTOR, MODEL),
    (EXTRA, DEFAULT),
    (EXTRA, MODEL),
)
"""Whose reductions are published."""
EXPERIMENTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "placement-model": (
        "Word count, logs and queries under the predictive scheduler",
        ("wc-30", "lsp-33", "cq-31", "wc-2-sources"),
        "Figs. 2.7 to 2.10",
    ),
    "placement-small": ("Continuous queries in 20 threads", ("cq-small",), "Fig. 3.3a"),
    "placement-medium": ("Continuous queries in 50 threads", ("cq-medium",), "Fig. 3.3b"),
    "placement-large": ("Continuous queries in 100 threads", ("cq-large",), "Fig. 3.3c"),
    "placement-logs": ("Log stream processing in 100 threads", ("lsp-large",), "Fig. 3.5"),
    "placement-words": ("Word count in 100 threads", ("wc-large",), "Fig. 3.7"),
    "extra-queries": (
        "Three instances of continuous queries",
        ("3x-cq-small", "3x-cq-medium", "3x-cq-large"),
        "Fig. 4.2",
    ),
    "extra-words": ("Three instances of word count", ("3x-wc-large",), "Fig. 4.3"),
    "extra-logs": ("Three instances of log stream processing", ("3x-lsp-large",), "Fig. 4.4"),
    "extra-hybrid": ("Queries, words and logs together", ("hybrid",), "Fig. 4.5"),
}
"""By name: title, setups, and where that stands."""


def result_of(contests: Sequence[Contest], run: Run) -> Result:
    """Times, curves and verdicts of some setups."""
    metrics: dict[str, float] = {}
    published = []
    for one in contests:
        for who in one.curves:
            name = f"{one.setup.replace('-', '_')}_{who}_ms"
            metrics[name] = mean(one.settled(who))
            known = PUBLISHED.get(one.setup)
            if known and who in known.times:
                published.append(Published(known.times[who], f"{SOURCE}, {known.figure}, in ms", name))
    claims = [
        *reduction_claims(contests, PAIRS, WHY),
        *order_claims(contests, (ACTOR, EXTRA, MODEL, DEFAULT), WHY),
    ]
    return Result(
        {"setups": [one.setup for one in contests], "seeds": seeds_of(run), "policies": list(contestants())},
        metrics,
        tables=[times_table(contests)],
        series=curves_of(contests),
        published=published,
        claims=claims,
        kind="simulated",
        notes=[HOW],
    )


def _register(name: str) -> Experiment:
    title, setups, figure = EXPERIMENTS[name]

    @experiment(name, title=f"{title}, by placement policy", figure=f"{SOURCE}, {figure}")
    def run_it(run: Run) -> Result:
        return result_of([contest(run, setup) for setup in setups], run)

    @run_it.picture
    def draw(figure_: charts.Figure, result: Result) -> None:
        names = [*setups] if len(setups) > 1 else [""]
        panels = charts.panels(figure_, len(names), (4.5 * len(names) + 1.5, 4.0))
        for panel, one in zip(panels, names, strict=True):
            charts.lines(
                panel, result.panel(one), title=one or setups[0], x="minutes", y="mean tuple time, ms", legend=False
            )
            panel.set_ylim(top=1.1 * max(max(line.y) for line in result.panel(one)))
        charts.legend_below(figure_, *panels)

    return run_it


REGISTERED = [_register(name) for name in EXPERIMENTS]
