"""How many tuples per second groupings route, instances learn, and the simulated edge runs, on one core."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from steelyard.bench import Cell, Result, Run, Table, Target, charts, experiment
from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.bench.osg.settings import Setting
from steelyard.grouping import CompiledGrouping, grouping, grouping_names

TUPLES = 1_000_000
WARM = 16_000
"""Tuples for each instance after which every scheduler estimates with matrices."""
INSTANCES = (5, 20)
REPETITIONS, QUICK_REPETITIONS = 7, 3
WANTED = 2_000_000
"""Tuples per second that a scheduler shall route."""


def compiled_names() -> list[str]:
    """Groupings that have loops of their own to measure."""
    return [name for name in grouping_names() if isinstance(grouping(name), CompiledGrouping)]


class Speeds(NamedTuple):
    """Tuples or events per second, of processor time."""

    routed: float
    learnt: float | None
    """None where nothing is learnt."""
    simulated: float


def processor_seconds(work: Callable[[], object], repetitions: int) -> float:
    """Median processor time of this thread: the loops run in it alone, and others on the machine do not count."""
    taken = []
    for _ in range(repetitions):
        clock = time.thread_time()
        work()
        taken.append(time.thread_time() - clock)
    return statistics.median(taken)


def speeds(name: str, instances: int, seed: int, repetitions: int) -> Speeds:
    """A grouping that has learnt what items cost, over a million tuples."""
    whole = Setting(instances=instances, tuples=TUPLES).edge(seed)
    part = ShuffleEdge(whole.items[: WARM * instances], whole.times[: WARM * instances], instances)
    warm = part.run(name)
    policy = grouping(name)
    learns = bool(warm.traffic["matrices"])
    scheduler, learner = policy.scheduler(instances), policy.instance(instances, 0)
    scheduler.restore(warm.schedulers._asdict())
    learner.executed(whole.items[:10], whole.times[:10], whole.arrivals[:10])  # compiles
    scheduler.choose(whole.items[:10], whole.times[:10], whole.arrivals[:10])
    routed = processor_seconds(lambda: scheduler.choose(whole.items, whole.times, whole.arrivals), repetitions)
    learnt = processor_seconds(lambda: learner.executed(whole.items, whole.times, whole.arrivals), repetitions)
    simulated = processor_seconds(lambda: part.run(name), repetitions)
    return Speeds(TUPLES / routed, TUPLES / learnt if learns else None, warm.events / simulated)


@experiment("osg-kernels", title="Tuples per second that each grouping routes on one core")
def kernels(run: Run) -> Result:
    """Speed of every compiled grouping's loops: scheduler, instance, and both with queues in the simulated edge."""
    repetitions = run.pick(REPETITIONS, QUICK_REPETITIONS)
    cases = [(name, instances) for instances in INSTANCES for name in compiled_names()]
    found = {case: speeds(*case, run.seed, repetitions) for case in run.progress.track(cases, "kernels")}
    return result_of(found, repetitions)


def result_of(found: dict[tuple[str, int], Speeds], repetitions: int) -> Result:
    """Figures and the table."""
    rows: list[tuple[Cell, ...]] = [
        (name, instances, *(None if one is None else round(one / 1e6, 2) for one in got))
        for (name, instances), got in found.items()
    ]
    metrics = {f"{name}_tuples_per_s": found[name, 5].routed for name, instances in found if instances == 5}
    return Result(
        parameters={"tuples": TUPLES, "warm_up_an_instance": WARM, "zipf_exponent": 1.0, "repetitions": repetitions},
        metrics={
            **metrics,
            "osg_20_tuples_per_s": found["osg", 20].routed,
            "osg_learnt_tuples_per_s": found["osg", 5].learnt or 0.0,
            "osg_events_per_s": found["osg", 5].simulated,
        },
        tables=[
            Table(
                "millions a second of processor time",
                ("grouping", "instances", "tuples routed", "tuples learnt", "events simulated"),
                rows,
            )
        ],
        targets=[
            Target(f"{name}_tuples_per_s", at_least=WANTED, explanation="the loop is slower than was aimed at")
            for name in ("osg", "tracking_osg")
        ],
        notes=["Processor time of the one thread that runs the loops: other work on the machine does not count."],
    )


@kernels.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A bar for each grouping."""
    routed = {one["grouping"]: one["tuples routed"] for one in result.tables[0].records() if one["instances"] == 5}
    x = "million tuples per second of processor time"
    charts.bars(figure.add_subplot(), routed, title="Tuples routed, 5 instances (measured)", x=x, y="grouping")
