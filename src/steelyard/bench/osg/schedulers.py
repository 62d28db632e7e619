"""OSG and tracking OSG with several schedulers, and with more and more capacity to spare."""

from __future__ import annotations

import numpy as np

from steelyard.bench import Claim, Result, Run, Series, Target, charts, experiment
from steelyard.bench.osg.settings import (
    OSG,
    POLICIES,
    TRACKING,
    Setting,
    Sweep,
    parameters,
    seeded,
    streams_of,
)
from steelyard.sim import Operator, PerItem, Scenario, Simulation, Source

SCHEDULERS = (1, 2, 4, 8)
PERCENT = (105, 150, 300)
INSTANCES = 16
ALIKE = 0.98
"""Where nearly every instance is idle there is nothing to gain: a speed-up of about 1."""
STEP = 10.0
"""Seconds after which it is looked whether all rows are done."""


def point(schedulers: int, percent: int) -> str:
    """How a point of the sweep is called."""
    return f"{schedulers} at {percent} %"


@experiment("osg-schedulers", title="Speed-up over round robin by the number of schedulers")
def schedulers(run: Run) -> Result:
    """Speed-ups with 1 to 8 schedulers that do not speak with each other, at three degrees of provisioning."""
    seeds = streams_of(run)
    found: Sweep[str] = Sweep()
    points = [(count, percent, seed) for percent in PERCENT for count in SCHEDULERS for seed in seeds]
    for count, percent, seed in run.progress.track(points, "schedulers"):
        for name, named in POLICIES.items():
            mean = mean_completion(scenario_of(count, percent, seed, named), seed)
            found.completions.setdefault((point(count, percent), name), []).append(mean)
    return result_of(found, seeds)


def scenario_of(schedulers: int, percent: int, seed: int, named: str) -> Scenario:
    """The stream of a seed, sent by so many sources, to whom rows come at random."""
    setting = Setting(instances=INSTANCES)
    edge = setting.edge(seed)
    seconds = np.full(setting.items, setting.shortest)
    seconds[edge.items] = edge.times
    rate = INSTANCES / (edge.times.mean() / 1_000) / (percent / 100)
    source = Source("log", rate, schedulers, keys=edge.items.tolist(), arrivals="poisson", rows=len(edge.items))
    operator = Operator("work", PerItem(seconds / 1_000), parallelism=INSTANCES)
    return Scenario.chain(source, operator, grouping=seeded(named, seed))


def mean_completion(scenario: Scenario, seed: int) -> float:
    """Milliseconds from the moment that a row comes to its end, mean over all rows."""
    simulation = Simulation(scenario, seed)
    while not simulation.drained:
        simulation.advance(STEP)
    simulation.sample()
    return 1_000 * simulation.result().latency().mean


def claims_of(found: Sweep[str]) -> list[Claim]:
    """Nobody who sends by cost should do worse than in turn, however many send and however much is to spare."""
    return [
        Claim(
            f"{policy} is no slower than round robin, within 2 %, {point(count, percent)}",
            "linear in their number at worst" if policy == OSG else "not published",
            found.speedups(point(count, percent), policy),
            ALIKE,
        )
        for policy in (OSG, TRACKING)
        for percent in PERCENT
        for count in SCHEDULERS
    ]


def result_of(found: Sweep[str], seeds: list[int]) -> Result:
    """Figures, tables and verdicts."""
    worst = {policy: min(found.speedup(at, policy) for at in found.points) for policy in (OSG, TRACKING)}
    return Result(
        parameters=parameters(Setting(instances=INSTANCES), seeds, POLICIES, points=found.points),
        metrics={"worst_speedup": worst[OSG], "worst_speedup_tracking": worst[TRACKING]},
        kind="simulated",
        tables=[found.table("schedulers")],
        claims=claims_of(found),
        series=series_of(found),
        targets=[Target("worst_speedup_tracking", at_least=ALIKE, explanation="see the table")],
        notes=[
            "Simulated tuple by tuple: each source is a scheduler of its own, to which rows come at random. They know "
            "nothing of each other; the paper proves that makespans get worse by their number at most.",
        ],
    )


def series_of(found: Sweep[str]) -> list[Series]:
    """A line for each grouping and degree of provisioning, by the number of schedulers."""
    return [
        Series(
            f"{policy}, {percent} %",
            list(SCHEDULERS),
            [found.speedup(point(count, percent), policy) for count in SCHEDULERS],
            "simulated",
        )
        for policy in (OSG, TRACKING)
        for percent in PERCENT
    ]


@schedulers.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Speed-ups by the number of schedulers."""
    (axes,) = charts.panels(figure, 1, (9, 4.6))
    title = "Mean completion time: speed-up over round robin"
    charts.lines(axes, result.series, title=title, x="schedulers", y="speed-up, simulated")
    charts.bound(axes, 1.0, "round robin")
