"""Elasticity zones while rows and keys change: how tasks follow, whether batches keep up, and what it saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from steelyard.bench import Cell, Claim, Published, Result, Run, Series, Table, Target, charts, experiment, mean
from steelyard.bench.claims import seeds_note
from steelyard.bench.prompt import plus_on_spark as promptplus_spark
from steelyard.bench.prompt.cluster_model import measure_costs
from steelyard.bench.prompt.plus_model import (
    AFTER,
    BEFORE,
    CHANGE,
    FALL,
    FEW,
    GROWTH,
    INTERVAL,
    KEYS_FALL,
    KEYS_RISE,
    LOAD,
    MANY,
    PATTERNS,
    RATE_RISES,
    RISE,
    SLOTS,
    TASK_NOISE,
    Cluster,
    Course,
    Courses,
    Evenness,
    simulate,
)
from steelyard.bench.prompt.plus_on_spark import Measured
from steelyard.bench.prompt.rate import costs_in_us
from steelyard.scaling import Fixed, elasticity
from steelyard.sim.task_times import TaskCosts

OPERATOR = "histogram"
"""Keys that cost something, so that their number matters."""
SLOW, SWIFT, FIXED = "d = 3", "d = 1", "no elasticity"
ZONES = {
    SLOW: "zones?patience=3",
    SWIFT: "zones?patience=1",
    "d = 3, proportional": "zones?patience=3&increment=proportional",
    "d = 1, proportional": "zones?patience=1&increment=proportional",
    "d = 3, not careful": "zones?patience=3&careful=no",
}
JUDGED = (SLOW, SWIFT)
"""The claims are made of these: one task at a time, as the listing has it; d is not published."""
SOURCE_UP = "Abdelhamid 2021, Fig 3.5a,b, text"
SOURCE_DOWN = "Abdelhamid 2021, Fig 3.5c,d, text"
TEXT = "Abdelhamid 2021, section 3.5, text"
MAP, REDUCE = "map", "reduce"
DRAWN = (RISE, FALL, KEYS_FALL)
"""Patterns of the picture."""
MAP_TASKS, REDUCE_TASKS, LOAD_W = "map tasks", "reduce tasks", "W"
MOST_W = 2
"""Up to here loads are drawn: without elasticity they rise further."""
KEPT_UP, STABLE, FEWER, MOST = 0.99, 0.95, 0.8, 0.5
"""Bounds of the claims, ours: the figures' axes cannot be read."""


@experiment(
    "promptplus-elasticity",
    title="Elasticity zones: tasks follow rows and keys that rise and fall",
    figure="Abdelhamid 2021, Fig 3.5",
)
def promptplus_elasticity(run: Run) -> Result:
    """Tasks, load and throughput of simulated batches while the input changes; and a short run on Spark, measured."""
    run.progress.say("timing tasks")
    costs = measure_costs(OPERATOR)
    found = [
        courses(Cluster(costs, Evenness.measured(seed)), seed)
        for seed in run.progress.track(run.seeds(), "promptplus-elasticity")
    ]
    return result_of(found, costs, promptplus_spark.measure(run), run.quick)


def courses(cluster: Cluster, seed: int) -> Courses:
    """Every policy over every pattern."""
    policies = {name: elasticity(text) for name, text in ZONES.items()} | {FIXED: Fixed()}
    return {
        (pattern.name, name): simulate(cluster, pattern, policy, pattern.tasks, seed)
        for pattern in PATTERNS.values()
        for name, policy in policies.items()
    }


def result_of(found: Sequence[Courses], costs: TaskCosts, spark: Measured, quick: bool) -> Result:
    """Means over the seeds, the claims, and what Spark did."""
    metrics: dict[str, float] = {}
    for policy, ending in ((SLOW, "d3"), (SWIFT, "d1"), (FIXED, "fixed")):
        metrics[f"throughput_over_input_{ending}"] = _mean(found, RISE, policy, lambda course: course.tracked)
        metrics[f"stable_share_{ending}"] = _mean(found, RISE, policy, lambda course: course.stable)
    metrics["tasks_over_most_d3"] = _mean(found, RISE, SLOW, lambda course: course.tasks) / sum(MANY)
    measured = {
        "spark_blocks_at_start": spark.blocks[0],
        "spark_blocks_at_peak": spark.blocks[promptplus_spark.PEAK],
        "spark_blocks_at_end": spark.blocks[-1],
        "spark_load_at_peak": spark.load(promptplus_spark.PEAK),
    }
    return Result(
        parameters={
            "slots": SLOTS,
            "interval_s": INTERVAL,
            "batches": f"{BEFORE} before, {CHANGE} of change, {AFTER} after",
            "change": f"{GROWTH:g} times",
            "load_at_start": LOAD,
            "task_noise": TASK_NOISE,
            "operator": OPERATOR,
            "costs_us": costs_in_us(costs),
            "spark": f"{promptplus_spark.SLOTS} waiting slots, {promptplus_spark.POLICY}",
        },
        metrics=metrics | measured,
        tables=[_table(found), _spark_table(spark)],
        claims=[claim for policy in JUDGED for claim in claims_of(found, policy, costs)],
        series=_series(found[0]),
        published=[
            Published("throughput matches the input rate, the system stays stable", SOURCE_UP, "stable_share_d1"),
            Published("tasks are released when the rate falls; map to reduce as rate to keys", SOURCE_DOWN),
        ],
        targets=[
            Target("throughput_over_input_d1", at_least=KEPT_UP, explanation="tasks are added too late"),
            Target("stable_share_d1", at_least=STABLE, explanation="tasks are added too late"),
            Target(
                "spark_load_at_peak", at_most=1.0, explanation="what a batch takes beside its tasks is on the clock"
            ),
        ],
        kind="simulated",
        kinds=dict.fromkeys(measured, "measured"),
        notes=[
            "Measured: task costs, how even Prompt's blocks and buckets are, and all that begins with spark_. "
            f"Simulated: {SLOTS} slots, {INTERVAL:g} s batches, max Map + max Reduce (Eq 2.1); no driver, no network.",
            f"The input is such that {FEW[0]} map and {FEW[1]} reduce tasks are at W = {LOAD:g} before it rises, and "
            f"{MANY[0]} and {MANY[1]} before it falls. Neither d nor the shape of the input is published.",
            seeds_note(quick),
        ],
    )


def _mean(found: Sequence[Courses], pattern: str, policy: str, value: Callable[[Course], float]) -> float:
    return mean(value(one[pattern, policy]) for one in found)


Values = Callable[[str, Callable[[Course], float]], list[float]]
"""A number of a pattern's course, for each seed."""


def claims_of(found: Sequence[Courses], policy: str, costs: TaskCosts) -> list[Claim]:
    """What the text says of Fig 3.5, for one policy."""

    def of(pattern: str, value: Callable[[Course], float]) -> list[float]:
        return [value(one[pattern, policy]) for one in found]

    return [*_claims_of_both(of, policy), *_claims_of_ratio(of, policy), *_claims_of_one(of, policy, costs)]


def _late(policy: str) -> str:
    return f"tasks are added one at a time, at the earliest every {policy.removeprefix('d = ')} batches"


def _claims_of_both(of: Values, policy: str) -> list[Claim]:
    """Rows and keys rise together."""
    grown = of(RISE, lambda course: min(course.blocks[-1] / FEW[0], course.buckets[-1] / FEW[1]))
    tracked, stable = of(RISE, lambda course: course.tracked), of(RISE, lambda course: course.stable)
    share = of(RISE, lambda course: course.tasks / sum(MANY))
    text = {
        "grown": f"{policy}: both kinds of tasks grow with rows and keys (the less grown, end over start)",
        "tracked": f"{policy}: throughput matches the input while both rise (rows done over rows come)",
        "stable": f"{policy}: stable while both rise (share of batches with W <= 1)",
        "share": f"{policy}: as few tasks as that takes (mean tasks over those of the peak)",
    }
    further = "stages grow together, one of them further than it needs"
    return [
        Claim(text["grown"], SOURCE_UP, grown, at_least=1.5, reason=_late(policy)),
        Claim(text["tracked"], SOURCE_UP, tracked, at_least=KEPT_UP, reason=_late(policy)),
        Claim(text["stable"], SOURCE_UP, stable, at_least=STABLE, reason=_late(policy)),
        Claim(text["share"], TEXT, share, at_most=FEWER, reason=further),
    ]


def _claims_of_ratio(of: Values, policy: str) -> list[Claim]:
    """Tasks are released, and those change that the changed statistic drives."""
    left = of(FALL, lambda course: (course.blocks[-1] + course.buckets[-1]) / sum(MANY))
    careful = "a removal is left out that might take W over the threshold"
    text = f"{policy}: tasks are released when the rate falls (end over start)"
    claims = [Claim(text, SOURCE_DOWN, left, at_most=FEWER, reason=careful)]
    slower = (
        "within d batches rows or keys change by less than the dead band, so the slower or the faster stage is taken"
    )
    for pattern, stage, source in (
        (FALL, MAP, SOURCE_DOWN),
        (KEYS_FALL, REDUCE, SOURCE_DOWN),
        (RATE_RISES, MAP, TEXT),
        (KEYS_RISE, REDUCE, TEXT),
    ):
        shares = of(pattern, _map_share if stage == MAP else lambda course: 1 - _map_share(course))
        text = f"{policy}: {pattern}, and most tasks that change are {stage} tasks (share of net change)"
        claims.append(Claim(text, source, shares, at_least=MOST, reason=slower))
    return claims


def _claims_of_one(of: Values, policy: str, costs: TaskCosts) -> list[Claim]:
    """Rows or keys rise alone."""
    reduce_us = 1e6 * (costs.reduce_record + costs.reduce_key)
    both = (
        f"a key costs {1e6 * costs.map_key:.0f} us in a map task and {reduce_us:.0f} us in a reduce task, so both "
        "stages slow down, and the rule adds reduce tasks"
    )
    return [
        Claim(
            f"{policy}: stable while {pattern} alone (share of batches with W <= 1)",
            TEXT,
            of(pattern, lambda course: course.stable),
            at_least=STABLE,
            reason=reason,
        )
        for pattern, reason in ((RATE_RISES, _late(policy)), (KEYS_RISE, both))
    ]


def _map_share(course: Course) -> float:
    """Of all tasks that came or went in the end, the share of map tasks; a half where none did."""
    blocks, buckets = np.abs(course.moved())
    return float(blocks / (blocks + buckets)) if blocks + buckets else 0.5


def _table(found: Sequence[Courses]) -> Table:
    def means(courses: Sequence[Course]) -> dict[str, Cell]:
        blocks, buckets = np.mean([course.moved() for course in courses], axis=0)
        return {
            "map tasks, end - start": float(blocks),
            "reduce tasks, end - start": float(buckets),
            "throughput over input": mean(course.tracked for course in courses),
            "W <= 1, share": mean(course.stable for course in courses),
            "largest W": mean(course.load.max() for course in courses),
            "longest delay, s": mean(course.delay.max() for course in courses),
            "mean tasks": mean(course.tasks for course in courses),
            "reversals": mean(course.reversals for course in courses),
        }

    return Table.of(
        "means over the seeds (simulated)",
        [
            {"input": pattern, "policy": policy, **means([one[pattern, policy] for one in found])}
            for pattern, policy in found[0]
        ],
    )


def _spark_table(spark: Measured) -> Table:
    rows: list[Sequence[Cell]] = [
        (report.batch, report.rows, report.keys, report.blocks, report.buckets, spark.load(place), report.decision)
        for place, report in enumerate(spark.reports)
    ]
    return Table("on Spark (measured)", ("batch", "rows", "keys", "blocks", "buckets", "W", "decision"), rows)


def _series(found: Courses) -> list[Series]:
    """Of one seed, by pattern: tasks where they change, and the load of every batch."""
    series = []
    for pattern in DRAWN:
        for policy in (*JUDGED, FIXED):
            course = found[pattern, policy]
            tasks = {} if policy == FIXED else {MAP_TASKS: course.blocks, REDUCE_TASKS: course.buckets}
            for kind, counts in tasks.items():
                at = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts) - 1]
                series.append(Series(_named(pattern, kind, policy), at, counts[at].tolist(), "simulated"))
            load = course.load.tolist()
            series.append(Series(_named(pattern, LOAD_W, policy), list(range(len(load))), load, "simulated"))
    return series


def _named(pattern: str, kind: str, policy: str) -> str:
    return f"{pattern}: {kind}" if policy == SLOW else f"{pattern}: {kind}, {policy}"


@promptplus_elasticity.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Tasks and load from batch to batch: simulated with the published rule, and measured on Spark."""
    figure.set_size_inches(15, 7.5)
    patterns = [pattern for pattern in DRAWN if result.panel(pattern)]
    above, below = figure.subplots(2, 1 + len(patterns))
    colours = dict(zip((*JUDGED, FIXED), (*charts.COLOURS[:2], charts.GREY), strict=True))
    styles = {MAP_TASKS: "-", REDUCE_TASKS: "--"}
    for top, bottom, pattern in zip(above, below, patterns, strict=False):
        for one in result.panel(pattern):
            kind, _, policy = one.name.partition(", ")
            colour, label = colours[policy or SLOW], f"{kind}, {policy or SLOW}"
            if kind in styles:
                top.step(one.x, one.y, styles[kind], where="post", color=colour, label=label)
            else:
                bottom.plot(one.x, one.y, color=colour, label=label)
        top.set_ylim(0, SLOTS + 1)
        bottom.set_ylim(0, MOST_W)
        charts.finish(top, title=f"{pattern}: tasks", x="batch", y="tasks, simulated")
        charts.finish(bottom, title=f"{pattern}: load", x="batch", y="W, simulated")
    _draw_spark(above[-1], below[-1], result.tables[2].records())
    for axes in below:
        charts.bound(axes, 1.0, "stable up to here", legend=False)
    charts.legend_below(figure, *above, *below)


def _draw_spark(above: charts.Axes, below: charts.Axes, reports: Sequence[Mapping[str, Any]]) -> None:
    batches = [one["batch"] for one in reports]
    times = [one["rows"] / promptplus_spark.ROWS for one in reports]
    above.bar(batches, times, color="#e5e7eb", label="rows, times the least")
    for kind, column, style in ((MAP_TASKS, "blocks", "-"), (REDUCE_TASKS, "buckets", "--")):
        counts = [one[column] for one in reports]
        above.step(batches, counts, style, where="mid", color=charts.COLOURS[2], label=f"{kind}, on Spark")
    below.plot(batches, [one["W"] for one in reports], color=charts.COLOURS[2], marker="o", label="W, on Spark")
    below.set_ylim(bottom=0)
    charts.finish(above, title="on Spark: tasks", x="batch", y="tasks, measured")
    charts.finish(below, title="on Spark: load", x="batch", y="W, measured")
