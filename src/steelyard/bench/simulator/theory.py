"""The simulator beside queueing theory: figures of theory inside the confidence intervals of independent runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from steelyard.bench import Result, Run, Table, Target, charts, experiment
from steelyard.bench.simulator.theory_cases import Case, Figure, cases
from steelyard.sim import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

RUNS = 20
"""Independent runs of a cluster, each with a seed of its own."""
OUTSIDE = "(outside)"
"""Marks a figure whose interval does not hold theory."""
STUDENT_T = 3.883
"""Of 19 degrees of freedom, for intervals that hold the true mean in 999 of 1000 cases."""
SECONDS, QUICK_SECONDS = 800.0, 120.0
"""Simulated seconds of a run, of which the first tenth is warm-up."""
ROWS_OF_METRICS = 20
PRECISION, QUICK_PRECISION = 0.02, 0.05
"""Widest half interval that still tells anything, as a share of the figure."""


@dataclass(frozen=True)
class Estimate:
    """A figure of theory, and the mean over runs with half the width of its interval."""

    case: Case
    figure: Figure
    mean: float
    half: float

    @property
    def inside(self) -> bool:
        """Whether the interval holds theory, or a value that an approximation may be off to."""
        return abs(self.mean - self.figure.theory) <= self.half + self.figure.within * self.figure.theory

    @property
    def off(self) -> float:
        """How far the mean is from theory, as a share of it."""
        return self.mean / self.figure.theory - 1

    @property
    def precision(self) -> float:
        """Half the width of the interval, as a share of theory."""
        return self.half / self.figure.theory


def estimates(case: Case, seconds: float, seed: int) -> list[Estimate]:
    """Run a cluster many times, each on its own, and estimate its figures."""
    step = seconds / ROWS_OF_METRICS
    warm_up = 2 * step
    found = np.empty((RUNS, len(case.figures)))
    seeds = np.random.SeedSequence([seed, crc32(case.name.encode())]).generate_state(RUNS)
    for run, own in enumerate(seeds):
        result = simulate(case.scenario, seconds, seed=int(own), every=step, trace=case.trace)
        found[run] = [figure.found(result, warm_up) for figure in case.figures]
    means, halves = found.mean(axis=0), STUDENT_T * found.std(axis=0, ddof=1) / np.sqrt(RUNS)
    return [
        Estimate(case, figure, float(mean), float(half))
        for figure, mean, half in zip(case.figures, means, halves, strict=True)
    ]


@experiment("sim-theory", title="The simulator beside queueing theory")
def sim_theory(run: Run) -> Result:
    """Waits, times, throughputs and queues of small clusters, each beside the exact figure of theory."""
    seconds, precision = run.pick((SECONDS, PRECISION), (QUICK_SECONDS, QUICK_PRECISION))
    found = [one for case in run.progress.track(cases(), "clusters") for one in estimates(case, seconds, run.seed)]
    outside = [one for one in found if not one.inside]
    names = "; ".join(f"{one.case.name}: {one.figure.name}" for one in outside)
    return Result(
        parameters={"runs": RUNS, "seconds": seconds, "interval": 0.999, "clusters": len({id(o.case) for o in found})},
        metrics={
            "figures": len(found),
            "figures_outside": len(outside),
            "widest_interval": max(one.precision for one in found),
            "farthest_from_theory": max(abs(one.off) for one in found if not one.figure.within),
        },
        tables=[
            Table(
                "figures of theory and of the simulator",
                ("cluster", "figure", "theory", "simulated", "±", "theory by"),
                [_row(one) for one in found],
            )
        ],
        targets=[
            Target("figures_outside", at_most=0, explanation=f"outside: {names}"),
            Target("widest_interval", at_most=precision, explanation="give the runs more seconds"),
        ],
        kind="simulated",
        notes=[
            f"The interval is that of Student's t over {RUNS} independent runs; it holds the true mean in 999 of 1000 "
            "cases. An approximation may be off by the share that its authors give.",
            "A full queue loses nothing here: who finds it full waits in the log. So the ages of M/M/c with places are "
            "those of M/M/c without a bound; in place of the loss there is time in which the source is held back.",
        ],
    )


def _row(one: Estimate) -> tuple[str, ...]:
    numbers = [f"{value:.4g}" for value in (one.figure.theory, one.mean)]
    mark = "" if one.inside else f" {OUTSIDE}"
    return one.case.name, one.figure.name, numbers[0], numbers[1] + mark, f"{one.half:.2g}", one.case.by


@sim_theory.picture
def draw(picture: Picture, result: Result) -> None:
    """How far every figure is from theory, with its interval."""
    rows = result.tables[0].records()
    picture.set_size_inches(9, 0.24 * len(rows) + 1.2)
    axes = picture.add_subplot()
    for place, one in enumerate(rows):
        theory, simulated, half = float(one["theory"]), float(one["simulated"].split()[0]), float(one["±"])
        colour = charts.COLOURS[1] if OUTSIDE in one["simulated"] else charts.COLOURS[0]
        off, wide = 100 * (simulated / theory - 1), 100 * half / theory
        axes.errorbar(off, place, xerr=wide, fmt="o", markersize=4, color=colour, capsize=2)
    axes.axvline(0.0, color=charts.GREY, linewidth=1.0)
    axes.set_yticks(range(len(rows)), [f"{one['cluster']}: {one['figure']}" for one in rows], fontsize=7)
    axes.invert_yaxis()
    x = f"difference from theory, %, with the interval of {RUNS} runs"
    charts.finish(axes, title="The simulator beside queueing theory", x=x, y="cluster and figure")
