"""A stream that doubles in the middle of a group: when the plan changes, and when batches are in time again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.bench import Cell, Claim, Published, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.prompt.plus_techniques import (
    AHEAD,
    BOUNDARY,
    GROUP,
    ONE_BY_ONE,
    POLICY,
    PROMPTPLUS,
    ROWS,
    Course,
    courses,
)
from steelyard.workloads.rates import Rate, Spike

SPIKE, BATCHES = 15, 30
"""The batch whose rows double, in the middle of the group of batches 11 to 20; and how many there are."""
INTERVAL, QUICK_INTERVAL = 1.0, 0.5
STEP, ONE = "a lasting step", "a spike of one batch"
TECHNIQUES = (PROMPTPLUS, BOUNDARY, ONE_BY_ONE)
SOURCE = "Abdelhamid 2021, Fig 3.6, text"

Courses = Mapping[str, Mapping[str, Course]]
"""By kind of spike, then by technique."""


def rates(interval: float) -> dict[str, Rate]:
    """Rows per second: twice as many from batch 15 on, or in batch 15 only."""
    base, before = ROWS / interval, (SPIKE - 1) * interval
    return {
        STEP: Spike(base, 2 * base, at=before, seconds=BATCHES * interval),
        ONE: Spike(base, 2 * base, at=before, seconds=interval),
    }


@experiment(
    "promptplus-spike",
    title="A stream that doubles in the middle of a group of batches",
    figure="Abdelhamid 2021, Fig 3.6",
)
def promptplus_spike(run: Run) -> Result:
    """W of every batch around a spike of twice the rate, for Prompt+, frozen groups and one Spark job a batch."""
    interval = QUICK_INTERVAL if run.quick else INTERVAL
    kinds = rates(interval)
    chosen = [STEP] if run.quick else list(kinds)
    techniques = TECHNIQUES[:2] if run.quick else TECHNIQUES
    found = courses(run, "promptplus-spike", {kind: kinds[kind] for kind in chosen}, techniques, BATCHES, interval)
    return result_of(found, interval)


def result_of(found: Courses, interval: float) -> Result:
    """When the plan changed and when W was at 1 again, by technique."""
    step = found[STEP]
    metrics = {
        "effect_batch": float(step[PROMPTPLUS].effect(SPIKE)),
        "stable_batch": float(step[PROMPTPLUS].stable(SPIKE)),
        "boundary_effect_batch": float(step[BOUNDARY].effect(SPIKE)),
        "boundary_stable_batch": float(step[BOUNDARY].stable(SPIKE)),
        "spike_load": step[PROMPTPLUS].ran[SPIKE - 1].load,
    }
    if ONE_BY_ONE in step:
        metrics["spark_effect_batch"] = float(step[ONE_BY_ONE].effect(SPIKE))
        metrics["spark_stable_batch"] = float(step[ONE_BY_ONE].stable(SPIKE))
    decisions = "; ".join(step[PROMPTPLUS].changes) or "nothing was decided"
    return Result(
        parameters={
            "interval": interval,
            "group": GROUP,
            "ahead": AHEAD,
            "spike_at": SPIKE,
            "policy": POLICY,
            "rows_per_batch": ROWS,
        },
        metrics=metrics,
        published=[
            Published(17, SOURCE, "effect_batch"),
            Published(20, SOURCE, "stable_batch"),
            Published(21, SOURCE, "boundary_effect_batch"),
        ],
        tables=[*(_table(kind, courses) for kind, courses in found.items())],
        claims=claims_of(step),
        series=[
            Series(f"{kind}: {name}", list(range(1, BATCHES + 1)), one.loads)
            for kind, courses in found.items()
            for name, one in courses.items()
        ],
        targets=[
            Target("effect_batch", at_most=17, explanation=decisions),
            Target("stable_batch", at_most=20, explanation=decisions),
            Target("boundary_effect_batch", at_least=21, explanation="; ".join(step[BOUNDARY].changes)),
        ],
        notes=[
            "Batches are counted from 1, as in the dissertation: the spike falls into the group of batches 11 to 20.",
            "W is processing time over interval, without the time that a batch waits for those before it. Rows wait in "
            "their map tasks, so that more tasks finish a batch sooner on any number of cores.",
            "A batch that is overdue is shown to the policy before it ends, with the time that its rows let expect: a "
            "batch of W = 1.5 ends when the next two are already cut.",
            *(
                f"{kind}, {name}: {'; '.join(one.changes) or 'nothing was decided'}"
                for kind, courses in found.items()
                for name, one in courses.items()
            ),
        ],
    )


def claims_of(step: Mapping[str, Course]) -> list[Claim]:
    """What the text on Fig 3.6 says, beside what was found."""
    ours, frozen = step[PROMPTPLUS], step[BOUNDARY]
    decided = "; ".join(ours.changes) or "nothing was decided"
    claims = [
        Claim("Prompt+: a new plan takes effect by batch 17", "17", [ours.effect(SPIKE)], at_most=17, reason=decided),
        Claim("Prompt+: W is at most 1 again by batch 20", "20", [ours.stable(SPIKE)], at_most=20, reason=decided),
        Claim(
            "groups changed at their boundary: a new plan takes effect at batch 21",
            "21",
            [frozen.effect(SPIKE)],
            21,
            21,
            reason="; ".join(frozen.changes) or "nothing was decided",
        ),
        Claim(
            "Prompt+ is stable again before groups changed at their boundary (batches earlier)",
            "takes longer at the boundary",
            [frozen.stable(SPIKE) - ours.stable(SPIKE)],
            1,
            reason=decided,
        ),
    ]
    if ONE_BY_ONE in step:
        claims.append(
            Claim(
                "Prompt+ is stable within two batches of one Spark job a batch (batches later)",
                "comparable, no number",
                [ours.stable(SPIKE) - step[ONE_BY_ONE].stable(SPIKE)],
                at_most=2,
                reason=decided,
            )
        )
    return claims


def _table(kind: str, courses: Mapping[str, Course]) -> Table:
    rows: list[Sequence[Cell]] = [
        (name, one.effect(SPIKE), one.stable(SPIKE), one.ran[SPIKE - 1].load, max(ran.delay for ran in one.ran))
        for name, one in courses.items()
    ]
    return Table(
        kind, ("technique", "more tasks from", "W <= 1 from", "W of batch 15", "longest delay, intervals"), rows
    )


@promptplus_spike.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The load of each batch, a panel for each kind of change."""
    kinds = [table.title for table in result.tables if table.title in (STEP, ONE)]
    panels = charts.panels(figure, len(kinds), (6.5 * len(kinds), 4.8))
    for axes, kind in zip(panels, kinds, strict=True):
        y = "W: processing time / interval"
        charts.lines(axes, result.panel(kind), title=kind, x="batch", y=y, legend=False)
        charts.bound(axes, 1, "stable up to here", legend=False)
        charts.bound(axes, GROUP * 2 + 0.5, "end of the group", along="x", legend=False)
    charts.legend_below(figure, *panels)
