"""Who takes part in the contest, and how one run of it is made."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeAlias

from steelyard.bench.autoscale.outcome import Outcome, outcome_of
from steelyard.bench.autoscale.patterns import DECREASING, INCREASING, MINUTE, STEPS, rate_of
from steelyard.bench.autoscale.queries import QUERIES, WORKERS, Query
from steelyard.bench.progress import Reporter
from steelyard.control import Bounds, Cap, Controller, Cooldown, LargestStep
from steelyard.scaling import elasticity
from steelyard.sim import FluidSimulation

SOURCE = "Siachamis 2024, section 4"
DHALION, DS2, CPU, VARGA = "Dhalion", "DS2", "HPA-CPU", "HPA-Varga"
FLINK, EVERY_BOTTLENECK, EXACT = "Flink", "Dhalion, all", "DS2, none spare"
FORESIGHT = "Foresight"
"""Ours."""
PUBLISHED = (DHALION, DS2, CPU, VARGA)
"""Those that the document compares."""
CONTESTANTS: dict[str, str] = {
    DHALION: "dhalion",
    DS2: "ds2",
    CPU: "hpa_cpu",
    VARGA: "hpa_varga",
    FLINK: "flink",
    EVERY_BOTTLENECK: "dhalion?every_bottleneck=yes",
    EXACT: "ds2?overprovisioning=0",
    FORESIGHT: f"foresight?workers={WORKERS}",
}
"""Everybody who takes part, by what figures call him: whoever is added here is in all experiments that take all."""
DRAWN = (DHALION, DS2, CPU, VARGA, FLINK, FORESIGHT)
"""Those of the pictures."""
EVERY = 15.0
"""Seconds between two looks (published program)."""
GUARDS = (LargestStep(up=15), Bounds(least=1), Cap(WORKERS), Cooldown(300.0))
"""The published scale manager."""
STEP = 0.1
"""Seconds of a step of the flows: as long as a queue of an operator lasts. In longer ones, an operator that is held
back by the next looks idle, and those who go by that take it for the bottleneck."""
PROCESSES = 4
"""In which runs are made beside each other."""
DOWNTIME, STATE_BANDWIDTH = 30.0, 200e6
"""Seconds of a stop and a restart without state, as `autoscale` has them where nobody says otherwise; bytes per second
to and from the shared disk. Chosen, not published."""
SEEDS = 5
"""Of a full run; a quick one has one."""
NOISE = 0.03
"""By which costs of work vary, so that seeds differ where a rate has no chance in it. Chosen."""
HOW = (
    "Simulated as flows, with the policies of steelyard.scaling and the published scale manager: a look every 15 s, "
    "no more than 15 more of each at once, 70 workers, five minutes after each action. Sources go on while a job "
    "restarts, which takes 30 s and what its state takes at 200 MB/s. Costs of work vary by 3 %."
)
LATENCY = (
    "Latency is what a row waits in the input queue until it is read; percentiles are over rows. Rates per instance, "
    "and cosines of Map, FQ and SWA, are not published: those chosen are in bench/autoscale/queries.py."
)


Point: TypeAlias = tuple[str, str, str, int, float]
"""Of a run: query, pattern, contestant, seed, minutes."""


def observe(query: Query, pattern: str, who: str, seed: int, minutes: float) -> Outcome:
    """One run under one autoscaler."""
    rate = rate_of(pattern, seed, query.wave)
    scenario = query.build(rate)
    begin = dict.fromkeys(query.seconds, 1 if pattern in (INCREASING, STEPS) else query.instances)
    if pattern == DECREASING:
        begin = query.fitting(rate.levels[0])
    engine = FluidSimulation(scenario.rescaled(begin), STEP, DOWNTIME, STATE_BANDWIDTH, NOISE, seed)
    controller = Controller(engine, elasticity(CONTESTANTS[who]), GUARDS, history=None)
    controller.run(minutes * MINUTE, EVERY)
    return outcome_of(engine.result(), [one.time for one in controller.decisions if not one.done.is_nothing])


def each_of(points: Sequence[Point], told: Reporter) -> list[Outcome]:
    """Runs of these points, in their order, several beside each other."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        return list(told.track(pool.map(_observed, points), "runs", len(points)))


def _observed(point: Point) -> Outcome:
    query, pattern, who, seed, minutes = point
    return observe(QUERIES[query], pattern, who, seed, minutes)


def parameters(**more: object) -> dict[str, object]:
    """What all figures depend on."""
    return {
        "workers": WORKERS,
        "every_s": EVERY,
        "downtime_s": DOWNTIME,
        "state_bytes_per_s": STATE_BANDWIDTH,
        "noise": NOISE,
        "step_s": STEP,
        "policies": CONTESTANTS,
        **more,
    }
