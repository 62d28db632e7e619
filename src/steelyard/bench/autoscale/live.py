"""The same loop on the resident engine and in the simulator: does what is simulated come true?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import cos, pi
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from steelyard.bench import Cell, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.autoscale.outcome import percentiles
from steelyard.control import Bounds, Cap, Controller, Cooldown, Guard, LargestStep
from steelyard.core import Action, Observation
from steelyard.core.control import Timed
from steelyard.core.errors import SteelyardError
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Generated, Settings, Step
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.scaling import elasticity
from steelyard.scaling.foresight_restart import Rescales
from steelyard.sim import Exactly, FluidSimulation, Operator, Scenario, Source
from steelyard.workloads import Steps, Zipf

SOURCE, WORK, SINK = "bids", "work", "out"
CONTESTANTS = {
    "DS2": "ds2",
    "HPA-Varga": "hpa_varga?window=6&least_lag=150&grows=60",
    "Foresight": "foresight?outlook=24&restart=1&workers=14",
}
QUICK = ("DS2", "Foresight")
RESTART, IN_PLACE = "restart", "in place"
WAYS = (RESTART, IN_PLACE)
MEAN, SWING, PERIOD, LEVEL = 900.0, 600.0, 24.0, 1.0
"""Rows per second, and seconds: a cosine that begins at its lowest, with a level for each second."""
SECONDS, QUICK_SECONDS = 48.0, 6.0
ROW = 1 / 300
"""Seconds for which an instance waits for each row: work that takes time and no processor, of which there are few."""
BATCH_ROWS = 20
WORKERS = 2
"""Of the engine, whose threads the instances are."""
EVERY, COOLDOWN, UP, MOST = 0.5, 5.0, 4, 14
"""Seconds between two looks, and after an action; instances that may be added at once, and that there are."""
BEGIN = 2
CALIBRATION = ((0.0, 2), (4.0, 4), (8.0, 3))
"""Instances from a moment on, while more comes than they can do: what an instance does, and what a rescale costs."""
CALIBRATED, OVERLOAD = 11.0, 2_700.0
PATIENCE = 30.0
CHARGE = 1.0
"""Seconds at the begin that do not count: workers come."""
HOW = (
    "Measured on the resident engine: workers are threads, and an instance waits a 300th of a second for each "
    "row, so that instances do not share the processor. The rate swings between 300 and 1,500 rows/s in 24 s. The "
    "simulation has the same rate, policies and guards; what an instance can do and what a rescale costs were measured "
    "in a job of their own before. A restart is a snapshot and the next generation; in place, "
    "all goes on but the rows of key groups that move."
)


class LiveError(SteelyardError):
    """A job that did not come to its end."""


class Waits(Step):
    """Each row takes a while, and no processor."""

    def process(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """The same rows, later."""
        time.sleep(batch.num_rows * ROW)
        return (batch,)


def discarded(batch: pa.RecordBatch) -> None:
    """Nobody wants results."""


@dataclass
class Trace:
    """What was seen, look by look, of one run."""

    pace: Steps
    looks: list[Observation] = field(default_factory=list)
    actions: int = 0

    def add(self, seen: Observation) -> None:
        """One more look."""
        self.looks.append(seen)

    def source(self, seen: Observation) -> Any:
        """Of one look."""
        return next(one for one in seen.operators if one.name == SOURCE)

    def waits(self, seen: Observation) -> float:
        """Seconds for which the oldest row waits, by the rate at which rows come: no engine has to remember that."""
        one = self.source(seen)
        end, lag = one.end_offset or 0.0, one.lag or 0.0
        return float(self.pace.time_of_row(end) - self.pace.time_of_row(end - lag))

    @property
    def p95(self) -> float:
        """Seconds for which 95 of 100 rows wait no longer before they are read."""
        rows = [self.source(one).processed_per_second * one.seconds for one in self.looks]
        waits = [self.waits(one) for one in self.looks]
        return percentiles(np.array(waits), np.array(rows))[1]

    @property
    def instances(self) -> list[int]:
        """Of the operator that works, look by look."""
        return [one.parallelism[WORK] for one in self.looks]


@dataclass
class Watched:
    """An engine whose looks are kept."""

    engine: Any
    trace: Trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def observe(self) -> Observation:
        """As the engine shows it."""
        seen: Observation = self.engine.observe()
        if seen.time > CHARGE:
            self.trace.add(seen)
        return seen


@dataclass
class Restarting:
    """A job that always takes a snapshot and goes on from it, also where numbers could become others in place."""

    job: Job

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)

    def apply(self, action: Action) -> float:
        """Stop, and go on with other numbers of instances."""
        self.job.rescale(action.parallelism, in_place=False)
        return 0.0


def rate(seconds: float) -> Steps:
    """The cosine."""
    moments = np.arange(0.0, seconds + PERIOD, LEVEL)
    return Steps(LEVEL, tuple(MEAN - SWING * cos(2 * pi * one / PERIOD) for one in moments.tolist()))


def guards() -> list[Guard]:
    """The same as in the contest, with shorter times and fewer workers."""
    fixed = {SOURCE: (1, 1), SINK: (1, 1)}
    return [LargestStep(up=UP), Bounds(own=fixed), Cap(MOST, frozenset(fixed)), Cooldown(COOLDOWN)]


def job_of(pace: Steps, seconds: float, store: Path) -> Job:
    """Rows that come by the clock, and an operator that takes its time."""
    flow = Flow("live")
    rows = int(pace.rows_until(seconds + PATIENCE))
    reader = Generated(Zipf(keys=1000), rows=rows, pace=pace)
    read = flow.source(reader, name=SOURCE, batch_rows=BATCH_ROWS)
    read.shuffle().process(lambda _: Waits(), name=WORK, parallelism=BEGIN).shuffle().sink(
        Callback(discarded), name=SINK, parallelism=1
    )
    made = flow.dataflow()
    settings = Settings(str(store), heartbeat=0.1)
    return Job(made, Placement.spread(made, WORKERS), ThreadLauncher(), settings)


@dataclass
class Calibration:
    """Does what is written down, and watches what comes of it."""

    rescales: Rescales = field(default_factory=lambda: Rescales(0.5, 0.0))
    rates: list[float] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)

    def decide(self, observation: Observation) -> Action:
        """The next number, when it is time for it."""
        read = next((one for one in observation.operators if one.name == SOURCE), None)
        work = next((one for one in observation.operators if one.name == WORK), None)
        if np.isfinite(self.rescales.asked):
            changed = observation.parallelism != self.before
            self.rescales.watch(observation, changed, bool(read and read.processed_per_second))
        elif work is not None and work.busy > 0.1:
            self.rates.append(work.processed_per_second / work.parallelism / work.busy)
        wanted = [count for begin, count in CALIBRATION if begin <= observation.time][-1]
        if wanted == observation.parallelism[WORK] or np.isfinite(self.rescales.asked):
            return Action()
        self.before = observation.parallelism
        self.rescales.ask(observation.time, 0.0)
        return Action({WORK: wanted}, "as it is written down")


def run_live(policy: Any, pace: Steps, seconds: float, every: float, stand_between: Sequence[Guard], way: str) -> Trace:
    """A job under a policy."""
    with tempfile.TemporaryDirectory(prefix="steelyard-live-") as scratch:
        job = job_of(pace, seconds, Path(scratch))
        thread = Thread(target=job.run, name="autoscaled", daemon=True)
        thread.start()
        engine: Any = job if way == IN_PLACE else Restarting(job)
        trace = run_under(policy, engine, pace, seconds, every, stand_between)
        job.stop()
        thread.join(PATIENCE)
        if thread.is_alive():
            raise LiveError(f"{job} did not come to its end within {PATIENCE:g} s")
    return trace


def run_under(
    policy: Any, engine: Timed, pace: Steps, seconds: float, every: float, stand_between: Sequence[Guard]
) -> Trace:
    """An engine under a policy."""
    watched: Any = Watched(engine, Trace(pace))
    controller = Controller(watched, policy, stand_between, history=None)
    controller.run(seconds, every)
    trace: Trace = watched.trace
    trace.actions = sum(not one.done.is_nothing for one in controller.decisions)
    return trace


def simulated(policy: Any, pace: Steps, seconds: float, each: float, standstill: float) -> Trace:
    """The same in the simulator, with what was measured."""
    scenario = Scenario.chain(
        Source(SOURCE, pace, service=Exactly(1e-6)),
        Operator(WORK, Exactly(1 / each), parallelism=BEGIN, capacity=4 * BATCH_ROWS),
        Operator(SINK, Exactly(1e-6), capacity=1000),
    )
    return run_under(policy, FluidSimulation(scenario, 0.05, standstill), pace, seconds, EVERY, guards())


def order_of(found: Mapping[str, Trace]) -> list[str]:
    """Contestants, the lowest p95 first."""
    return sorted(found, key=lambda who: found[who].p95)


@experiment("autoscale-live", title="Autoscalers on the resident engine and in the simulator", figure=None)
def live(run: Run) -> Result:
    """One pattern, under each autoscaler, both ways."""
    seconds = run.pick(SECONDS, QUICK_SECONDS)
    pace = rate(seconds)
    measured: dict[tuple[str, str], Trace] = {}
    reckoned: dict[tuple[str, str], Trace] = {}
    known: dict[str, tuple[float, float]] = {}
    whom = run.pick(tuple(CONTESTANTS), QUICK)
    for way, who in run.progress.track([(way, who) for way in WAYS for who in whom], "autoscalers"):
        each, standstill = known[way] = known.get(way) or calibrated(way)
        measured[who, way] = run_live(elasticity(CONTESTANTS[who]), pace, seconds, EVERY, guards(), way)
        reckoned[who, way] = simulated(elasticity(CONTESTANTS[who]), pace, seconds, each, standstill)
    return result_of(measured, reckoned, known, seconds)


def calibrated(way: str) -> tuple[float, float]:
    """Rows per second of an instance, and seconds of standstill of a rescale."""
    calibration = Calibration()
    run_live(calibration, Steps(LEVEL, (OVERLOAD,) * 60), CALIBRATED, EVERY / 2, [], way)
    took = [seconds for _, seconds in calibration.rescales.took]
    if not (calibration.rates and took):
        raise LiveError(f"nothing was to be seen of a job that was rescaled ({way})")
    return float(np.median(calibration.rates)), float(np.mean(took))


def result_of(
    measured: Mapping[tuple[str, str], Trace],
    reckoned: Mapping[tuple[str, str], Trace],
    known: Mapping[str, tuple[float, float]],
    seconds: float,
) -> Result:
    """Whether both agree."""
    off = {case: abs(reckoned[case].p95 - one.p95) / max(one.p95, 1e-9) for case, one in measured.items()}
    rows: list[tuple[Cell, ...]] = [
        (
            *case,
            one.p95,
            reckoned[case].p95,
            off[case],
            float(np.mean(one.instances)),
            float(np.mean(reckoned[case].instances)),
            one.actions,
            reckoned[case].actions,
        )
        for case, one in measured.items()
    ]
    columns = (
        "autoscaler",
        "rescales",
        "p95, s",
        "simulated",
        "error",
        "instances",
        "simulated",
        "actions",
        "simulated",
    )
    metrics = {
        "order_agrees": float(order_of(_of(measured, RESTART)) == order_of(_of(reckoned, RESTART))),
        "latency_error": max(off.values()),
        **{f"rescale_{way.replace(' ', '_')}_s": standstill for way, (_, standstill) in known.items()},
        **{f"rows_per_s_each_{way.replace(' ', '_')}": each for way, (each, _) in known.items()},
        **{_metric(*case): one.p95 for case, one in measured.items()},
    }
    return Result(
        parameters={"seconds": seconds, "policies": CONTESTANTS, "every_s": EVERY, "cooldown_s": COOLDOWN},
        metrics=metrics,
        kind="measured",
        targets=[Target("order_agrees", at_least=1.0), Target("latency_error", at_most=0.3)],
        tables=[Table("both ways", columns, rows)],
        series=[
            *(_line(f"measured, {way}", who, one, "measured") for (who, way), one in measured.items()),
            *(_line(f"simulated, {way}", who, one, "simulated") for (who, way), one in reckoned.items()),
        ],
        notes=[HOW],
    )


def _of(found: Mapping[tuple[str, str], Trace], way: str) -> dict[str, Trace]:
    return {who: trace for (who, its), trace in found.items() if its == way}


def _metric(who: str, way: str) -> str:
    return f"latency_p95_{who}_{way}_s".lower().replace("-", "_").replace(" ", "_")


def _line(panel: str, who: str, trace: Trace, kind: Literal["measured", "simulated"]) -> Series:
    times, counts = [one.time for one in trace.looks], [float(count) for count in trace.instances]
    return Series(f"{panel}: {who}", times, counts, kind)


@live.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """Instances over time, measured and simulated, for each way."""
    panels = [f"{what}, {way}" for way in WAYS for what in ("measured", "simulated")]
    for axis, name in zip(charts.panels(figure, 2, (9.0, 7.0), down=2, sharey=True), panels, strict=True):
        charts.lines(axis, result.panel(name), title=name, x="seconds", y="instances of the operator")
