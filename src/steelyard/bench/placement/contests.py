"""Placements of everybody who takes part, on each setup: Figs. 2.7 to 2.10, 3.3, 3.5, 3.7, 4.2 to 4.5."""

from __future__ import annotations

import numpy as np

from steelyard.bench import Result, Run, Series, charts, experiment
from steelyard.bench.placement.contest import Outcomes, contest, curve, seeds_of
from steelyard.bench.placement.published import ACTOR, CHAPTER3, CHAPTER4, EXTRA, SOURCE
from steelyard.bench.placement.verdicts import average_result, draw_times, result_of
from steelyard.bench.registry import Experiment

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


def curves_of(outcomes: Outcomes, run: Run) -> list[Series]:
    """What each policy came to with the first seed, minute by minute after a cold deployment."""
    found, one_setup = [], len({setup for setup, _ in outcomes}) == 1
    for (setup, who), each in run.progress.track(list(outcomes.items()), "curves"):
        minutes, times = curve(run, setup, each[0], seeds_of(run)[0])
        name = who if one_setup else f"{setup}: {who}"
        found.append(Series(name, minutes.round(3).tolist(), np.round(times, 4).tolist(), "simulated"))
    return found


def _register(name: str) -> Experiment:
    title, setups, figure = EXPERIMENTS[name]

    @experiment(name, title=f"{title}, by placement policy", figure=f"{SOURCE}, {figure}")
    def run_it(run: Run) -> Result:
        found = contest(run, setups, name)
        return result_of(found, run, curves_of(found, run))

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


@experiment("placement-average", title="Actor and critic over the five setups of chapter 3", figure="section 3.5")
def average(run: Run) -> Result:
    """`ac_vs_default` and `ac_vs_model`; a quick run has one of the setups."""
    return average_result(contest(run, run.pick(CHAPTER3, CHAPTER3[:1]), "placement-average"), ACTOR, run)


@experiment("extra-average", title="EXTRA over the six setups of chapter 4", figure="section 4.4")
def extra_average(run: Run) -> Result:
    """`extra_vs_default` and `extra_vs_model`; a quick run has one of the setups."""
    return average_result(contest(run, run.pick(CHAPTER4, CHAPTER4[:1]), "extra-average"), EXTRA, run)


for _one in (average, extra_average):
    _one.picture(draw_times)
