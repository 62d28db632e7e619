"""A rate that swings: how many batches end too late, by how they are scheduled."""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.bench import Claim, Published, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.prompt.plus_techniques import (
    BOUNDARY,
    FIXED,
    GROUP,
    ONE_BY_ONE,
    POLICY,
    PROMPTPLUS,
    ROWS,
    Course,
    courses,
)
from steelyard.workloads.rates import Sinusoid

INTERVAL, QUICK_INTERVAL = 1.0, 0.5
BATCHES, QUICK_BATCHES = 60, 30
PERIOD = 24
"""Batches of a swing."""
MEAN, AMPLITUDE = 1.4, 0.4
"""Of the rate, over that which the first plan is made for."""
TECHNIQUES = (PROMPTPLUS, BOUNDARY, FIXED, ONE_BY_ONE)
DELAY = "delay"
"""A panel of the picture."""
SOURCE = "Abdelhamid 2021, Fig 3.7b, text"


@experiment(
    "promptplus-violations",
    title="Batches that end too late while the rate swings",
    figure="Abdelhamid 2021, Fig 3.7b",
)
def promptplus_violations(run: Run) -> Result:
    """The share of batches that end more than an interval after their rows have come, by technique."""
    interval = run.pick(INTERVAL, QUICK_INTERVAL)
    batches = run.pick(BATCHES, QUICK_BATCHES)
    techniques = TECHNIQUES[:2] if run.quick else TECHNIQUES
    rate = Sinusoid(MEAN * ROWS / interval, AMPLITUDE, PERIOD * interval)
    found = courses(run, "promptplus-violations", {"swinging": rate}, techniques, batches, interval)["swinging"]
    return result_of(found, interval)


def result_of(found: Mapping[str, Course], interval: float) -> Result:
    """The share of late batches of each technique."""
    names = {
        PROMPTPLUS: "prompt_plus_late",
        BOUNDARY: "boundary_late",
        FIXED: "fixed_late",
        ONE_BY_ONE: "one_job_a_batch_late",
    }
    metrics = {names[name]: one.violations for name, one in found.items()}
    others = [value for name, value in metrics.items() if name != "prompt_plus_late"]
    metrics["late_less_than_best_rival"] = min(others) - metrics["prompt_plus_late"]
    return Result(
        parameters={
            "interval": interval,
            "batches": len(found[PROMPTPLUS].ran),
            "group": GROUP,
            "policy": POLICY,
            "mean_rate": MEAN,
            "amplitude": AMPLITUDE,
            "period_batches": PERIOD,
        },
        metrics=metrics,
        published=[Published("much less than with group-ahead or one at a time", SOURCE, "prompt_plus_late")],
        tables=[_table(found)],
        claims=claims_of({name: one.violations for name, one in found.items()}, len(found[PROMPTPLUS].changes)),
        series=[
            *(Series(name, [ran.batch + 1 for ran in one.ran], one.loads) for name, one in found.items()),
            *(
                Series(f"{DELAY}: {name}", [ran.batch + 1 for ran in one.ran], [ran.delay for ran in one.ran])
                for name, one in found.items()
            ),
        ],
        targets=[
            Target(
                "late_less_than_best_rival",
                at_least=0.01,
                explanation="a plan of Prompt+ takes effect two batches after the one whose load it answers, and the "
                "rate has moved on by then; one Spark job a batch decides before each batch, and what a job costs is "
                f"small beside this interval. Prompt+ changed its plan {len(found[PROMPTPLUS].changes)} times",
            )
        ],
        notes=[
            "A batch is late if it ends more than an interval after the end of its own, the wait for batches before it "
            "included. No source is held back.",
            "Each technique ran once, one after the other.",
            "Rows wait in their map tasks. All begin with the same plan and a W of the same size; one Spark job a "
            "batch waits less a row, by what a job takes without any rows.",
        ],
    )


def claims_of(late: Mapping[str, float], changes: int) -> list[Claim]:
    """What the text on Fig 3.7b says, beside what was found: shares of late batches by technique."""
    reason = (
        "a plan of Prompt+ takes effect two batches after the one whose load it answers, and the rate has moved on by "
        f"then (it changed its plan {changes} times); one Spark job a batch decides before each batch, and what a job "
        "costs is small beside this interval"
    )
    return [
        Claim(
            f"Prompt+ has fewer late batches than {name} (difference of shares)",
            "much less",
            [late[PROMPTPLUS] - share],
            at_most=-0.01,
            reason=reason,
        )
        for name, share in late.items()
        if name != PROMPTPLUS
    ]


def _table(found: Mapping[str, Course]) -> Table:
    return Table.of(
        "late batches",
        [
            {
                "technique": name,
                "late, %": 100 * one.violations,
                "largest W": max(one.loads),
                "longest delay, intervals": max(ran.delay for ran in one.ran),
                "map tasks, mean": sum(ran.blocks for ran in one.ran) / len(one.ran),
                "changes of plan": len(one.changes),
            }
            for name, one in found.items()
        ],
    )


@promptplus_violations.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """How many batches were late, and delay and load of each."""
    delays = result.panel(DELAY)
    panels = charts.panels(figure, 2 + bool(delays), (14, 5))
    late = {one["technique"]: one["late, %"] for one in result.table("late batches").records()}
    charts.bars(panels[0], late, title="Late batches", x="share of batches, %", y="technique", ours=(PROMPTPLUS,))
    shown = {"Load of each batch": (result.panel(), "W: processing time / interval")}
    if delays:
        shown["Delay of each batch"] = delays, "from its interval's end to its own, intervals"
    for axes, (title, (lines, y)) in zip(panels[1:], shown.items(), strict=True):
        charts.lines(axes, lines, title=title, x="batch", y=y, legend=False)
        charts.bound(axes, 1, "late or unstable above", legend=False)
    charts.legend_below(figure, *panels[1:])
