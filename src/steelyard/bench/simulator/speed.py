"""How fast the simulator is: events per second tuple by tuple, and two runs of the size that studies need."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from steelyard.bench import Result, Run, Series, Table, Target, charts, experiment
from steelyard.control import Cap, Cooldown, LargestStep
from steelyard.sim import (
    Autoscaled,
    Exactly,
    Exponential,
    Machine,
    Network,
    Operator,
    Scenario,
    SimulationResult,
    Source,
    autoscale,
    simulate,
)
from steelyard.workloads import Sinusoid, Zipf

INSTANCES = 16
LOAD = 0.9
GROUPINGS = ("shuffle", "hash", "shortest", "pk2", "d_choices", "dalton", "osg", "tracking_osg")
HEADLINE = "pk2"
"""The policy whose decisions are in `events_per_second`: partial key grouping, asked for every tuple."""
TUPLES, QUICK_TUPLES = 4_000_000, 1_000_000
REPETITIONS, QUICK_REPETITIONS = 5, 3

EXECUTORS_MINUTES = 20
EXECUTORS_RATE = 6_700
"""Tuples per second of the large continuous-queries topology (Li 2018, section 3.3)."""
WORKERS, AUTOSCALING_HOURS = 70, 2


def queue_of(grouping: str, seed: int) -> Scenario:
    """A stream of skewed keys to `INSTANCES` instances at 90 % load, with a decision for every tuple."""
    service = 0.001
    return Scenario.chain(
        Source("log", rate=LOAD * INSTANCES / service, keys=Zipf(0.6, 100_000, seed=seed), arrivals="poisson"),
        Operator("work", Exponential(service), parallelism=INSTANCES),
        grouping=grouping,
    )


def executors() -> Scenario:
    """The large continuous-queries topology: 100 executors on 10 machines of 4 cores (Li 2018, section 3.3).

    Times of services and hops are of the size that its published latencies suggest.
    """
    return Scenario.chain(
        Source("spout", rate=EXECUTORS_RATE, parallelism=10, arrivals="poisson"),
        Operator("query", Exponential(0.61e-3), parallelism=45, capacity=1000),
        Operator("file", Exponential(0.14e-3), parallelism=45, capacity=1000),
        machines=10 * (Machine(cores=4),),
        network=Network(latency=0.39e-3, local_latency=0.2e-3, bytes_per_second=125e6, serialise=0.05e-3),
    )


def autoscaled() -> Scenario:
    """A map with a source and a sink under a cosine load that needs most of 70 workers at its peak."""
    return Scenario.chain(
        Source("source", Sinusoid(mean=400_000, amplitude=0.8, period=3600), parallelism=5, service=Exactly(20e-6)),
        Operator("map", Exactly(40e-6), parallelism=10, capacity=10_000),
        Operator("sink", Exactly(10e-6), parallelism=5, capacity=10_000),
    )


def scaled(seconds: float) -> Autoscaled:
    """It, under DS2 and the bounds of the contest of autoscalers (Siachamis 2025, section 4)."""
    return autoscale(autoscaled(), "ds2", seconds, guards=(LargestStep(15), Cap(WORKERS), Cooldown(300.0)))


def events_per_second(grouping: str, tuples: int, repetitions: int, seed: int) -> float:
    """Median over repetitions, logs, decisions and metrics included, in processor time of this process."""
    scenario = queue_of(grouping, seed)
    simulate(scenario, 1.0, seed=seed)  # compiles
    seconds = tuples * 0.001 / (LOAD * INSTANCES)
    speeds = []
    for _ in range(repetitions):
        clock = time.process_time()
        result = simulate(scenario, seconds, seed=seed)
        speeds.append(result.events / (time.process_time() - clock))
    return statistics.median(speeds)


def timed(work: Callable[[], object]) -> tuple[object, float, float]:
    """What it gave, its wall-clock seconds and its processor seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - processor


@experiment("sim-speed", title="Events a second of the simulator, and how long large runs take")
def sim_speed(run: Run) -> Result:
    """Events a second with each grouping; 20 minutes of 100 executors; 2 hours of 70 workers under an autoscaler."""
    tuples, repetitions = run.pick((TUPLES, REPETITIONS), (QUICK_TUPLES, QUICK_REPETITIONS))
    speeds = {
        grouping: events_per_second(grouping, tuples, repetitions, run.seed)
        for grouping in run.progress.track(GROUPINGS, "groupings")
    }
    run.progress.say(f"{EXECUTORS_MINUTES} minutes of 100 executors")
    simulate(executors(), 1.0, seed=run.seed)  # compiles
    storm, storm_wall, storm_processor = timed(
        lambda: simulate(executors(), 60 * EXECUTORS_MINUTES, seed=run.seed, every=10.0)
    )
    assert isinstance(storm, SimulationResult)
    run.progress.say(f"{AUTOSCALING_HOURS} hours of {WORKERS} workers")
    scaled(60.0)  # compiles
    _, fluid_wall, fluid_processor = timed(lambda: scaled(3600.0 * AUTOSCALING_HOURS))
    metrics = {
        "events_per_second": speeds[HEADLINE],
        "executors_20_min_seconds": storm_wall,
        "executors_20_min_cpu_seconds": storm_processor,
        "executors_events": storm.events,
        "autoscaling_2_h_seconds": fluid_wall,
        "autoscaling_2_h_cpu_seconds": fluid_processor,
    }
    busy = f"processor seconds: {storm_processor:.1f} and {fluid_processor:.1f}; the rest was spent waiting for a core"
    return Result(
        parameters={
            "instances": INSTANCES,
            "load": LOAD,
            "tuples": tuples,
            "headline_grouping": HEADLINE,
            "repetitions": repetitions,
            "executors_rate": EXECUTORS_RATE,
            "workers": WORKERS,
        },
        metrics=metrics,
        tables=[Table("tuple by tuple", ("grouping", "million events/s"), [(g, s / 1e6) for g, s in speeds.items()])],
        series=[Series("million events/s", range(len(speeds)), [speed / 1e6 for speed in speeds.values()])],
        targets=[
            Target("events_per_second", at_least=3e6, explanation=f"with {HEADLINE}; see the table for the others"),
            Target("executors_20_min_seconds", at_most=20.0, explanation=busy),
            Target("autoscaling_2_h_seconds", at_most=5.0, explanation=busy),
        ],
        notes=[
            "An event is a row that comes to a log, a tuple that comes over the network, or the end of a service.",
            "events_per_second is by processor time of one core; logs, decisions and metrics are in it.",
            "Compiling is not in any figure: it takes about 15 s, once on a machine.",
        ],
    )


@sim_speed.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """A bar for each grouping, and what is aimed at."""
    axes = figure.add_subplot()
    speeds = {one["grouping"]: one["million events/s"] for one in result.tables[0].records()}
    title = f"Simulated tuple by tuple, {INSTANCES} instances, one core"
    charts.bars(axes, speeds, title=title, x="million events per second", y="grouping")
    charts.bound(axes, 3.0, "aim", along="x")
