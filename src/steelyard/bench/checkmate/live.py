"""Checkpoint protocols on real workers: latency of a NexMark query, and what a worker that is killed costs."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.applications import nexmark
from steelyard.bench import Cell, Result, Run, Series, Table, Target, charts, experiment
from steelyard.bench.checkmate import structured
from steelyard.bench.registry import spark_for
from steelyard.checkpoint import PROTOCOLS
from steelyard.core.dataflow import Dataflow
from steelyard.core.errors import SteelyardError
from steelyard.core.topology import Placement
from steelyard.resident import Callback, Flow, Generated, Settings
from steelyard.resident.jobs import Job
from steelyard.resident.recovery_line import CheckpointTotals
from steelyard.resident.settings import DEFAULT_PROTOCOL
from steelyard.workloads import Arrivals, Constant, Nexmark

WORKERS, SLOTS = 4, 5
SNAPSHOT_SECONDS = 1.0
SHARE = 0.5
"""Of the highest rate."""
SECONDS, QUICK_SECONDS = 10.0, 6.0
"""Of a run that nothing disturbs."""
FAILED_SECONDS, QUICK_FAILED_SECONDS = 14.0, 6.0
"""Of a run with a failure."""
KILL_SECOND, QUICK_KILL_SECOND = 6.0, 3.0
WARM_SECONDS, QUICK_WARM_SECONDS = 3.0, 2.0
"""That do not count, since windows and caches fill."""
ROUNDS = 3
SATURATING_ROWS, QUICK_SATURATING_ROWS = 500_000, 200_000
BLOCK_ROWS = 64
"""Rows that a source has before the next one has some, and the most of a message: at any rate all of them have work."""
WINDOW_SECONDS = 0.25
"""Of which a median is taken, to see when latency is back to normal."""
NORMAL, CALM_WINDOWS = 1.2, 3
"""Latency is normal where the medians of so many windows are at most so much above the median before the failure."""
START_SECONDS = 1.0
PATIENCE = 120.0
LOOK_SECONDS = 0.05
TITLE = "Latency around a killed worker"
QUERIES: dict[str, nexmark.Query] = {"q12": nexmark.Q12(running=True), "q8": nexmark.Q8()}
QUICK = ("none", "stop_the_world", DEFAULT_PROTOCOL)


class LiveError(SteelyardError):
    """A job that did not come to its end."""


def discarded(batch: pa.RecordBatch) -> None:
    """Nobody wants results: how long they took is told by what travels beside them."""


def dataflow(
    query: nexmark.Query, rate: float, rows: int, began: float | None, block_rows: int = BLOCK_ROWS
) -> Dataflow:
    """A query over streams that come by the clock from a moment on, or as fast as they are read."""
    flow = Flow(query.name, WORKERS)
    sources = []
    for stream in query.streams:
        share = nexmark.SHARES[stream] / sum(nexmark.SHARES[one] for one in query.streams)
        speed = Constant(rate * share)
        reader = Generated(
            Nexmark(stream),
            rows=round(rows * share),
            arrivals=Arrivals(speed),
            pace=None if began is None else speed,
            began=began,
            block_rows=block_rows,
        )
        sources.append(flow.source(reader, time="event_time", name=stream))
    query.resident(*sources).sink(Callback(discarded), name=nexmark.SINK)
    return flow.dataflow()


@dataclass
class Seen:
    """What a run showed."""

    ages: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since rows began to come, seconds that rows took) of every probe that came to a sink."""
    killed: float | None = None
    """When a worker was killed, in the same seconds."""
    restart: float = 0.0
    """Seconds from then until the next workers were there."""
    epochs: int = 0
    totals: CheckpointTotals = field(default_factory=CheckpointTotals)
    commits: list[float] = field(default_factory=list)
    """Seconds of each commit of plain Spark."""

    def took(self, warm: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Milliseconds of probes behind the first seconds, and before a failure."""
        end = self.killed if self.killed is not None else float("inf")
        return 1000 * np.array([age for at, age in self.ages if warm <= at < end])

    def recovery(self, warm: float) -> float | None:
        """Seconds from the kill until latency is back to normal; None where it is not by the end."""
        assert self.killed is not None, "somebody was killed"
        normal = NORMAL * float(np.median(self.took(warm)))
        last, calm = max(at for at, _ in self.ages), 0
        for start in np.arange(self.killed, last, WINDOW_SECONDS):
            ages = [1000 * age for at, age in self.ages if start <= at < start + WINDOW_SECONDS]
            calm = calm + 1 if ages and statistics.median(ages) <= normal else 0
            if calm == CALM_WINDOWS:
                return float(start) - (CALM_WINDOWS - 1) * WINDOW_SECONDS - self.killed
        return None


@dataclass(frozen=True)
class Live:
    """Runs queries on the workers of one Spark session.

    Parameters
    ----------
    launcher
        Starts workers.
    scratch
        A folder for snapshots.
    """

    launcher: Any
    scratch: Path

    def highest(self, query: nexmark.Query, rows: int) -> float:
        """Rows per second where they are read as fast as they are worked off."""
        made = dataflow(query, 10_000.0, rows, None)
        job = Job(made, Placement.spread(made, WORKERS), self.launcher, Settings(restarts=0))
        return rows / job.run().seconds["run"]

    def run(self, query: nexmark.Query, rate: float, protocol: str, seconds: float, kill: float | None = None) -> Seen:
        """A query at a rate for so many seconds, with a snapshot each second; in second `kill` a worker dies."""
        began = time.time() + START_SECONDS
        made = dataflow(query, rate, round(rate * seconds), began)
        store = self.scratch / f"{query.name}-{protocol}-{began}"
        every = None if protocol == "none" else SNAPSHOT_SECONDS
        settings = Settings(str(store), every, heartbeat=0.2, restarts=3, protocol=protocol)
        job = Job(made, Placement.spread(made, WORKERS), self.launcher, settings)
        thread = Thread(target=job.run, name="live", daemon=True)
        thread.start()
        found = self._watched(job, thread, began, seconds, kill)
        found.epochs, found.totals = job.outcome.epochs, job.outcome.checkpoints
        if found.killed is not None:
            (one,) = job.outcome.recoveries
            found.restart = one.detected + one.restarted
        return found

    def _watched(self, job: Job, thread: Thread, began: float, seconds: float, kill: float | None) -> Seen:
        found = Seen()
        came: dict[str, tuple[int, int]] = {}
        deadline = time.monotonic() + seconds + PATIENCE
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            now = time.time() - began
            generation = max((one.generation for one in job.workers.values()), default=0)
            for name, told in job.metrics.items():
                before, of = came.get(name, (0, generation))
                new = told["aged"] - (before if of == generation else 0)
                if name.startswith(nexmark.SINK) and new > 0:
                    found.ages += [(now, age) for age in told["ages"][-new:]]
                came[name] = told["aged"], generation
            if kill is not None and found.killed is None and now > kill:
                found.killed = now
                os.kill(job.workers[1].pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                job.stop()
                raise LiveError(f"{job} did not come to its end within {PATIENCE:g} s")
        return found


def plainly(
    plain: structured.Plain, query: nexmark.Query, rate: float, seconds: float, stop: float | None = None
) -> Seen:
    """The same query as plain Structured Streaming has it; in second `stop` it ends and starts again."""
    found, stopped, restart = plain.run(query, rate, seconds, stop)
    return Seen(found.ages, stopped, restart, commits=found.commits)


def protocols(quick: bool) -> list[str]:
    """Those that take part: all, with no checkpoints first."""
    return list(dict.fromkeys(QUICK if quick else ("none", "stop_the_world", *PROTOCOLS.names())))


@experiment("checkmate-live-q12", title="Checkpoint protocols on real workers: Q12")
def live_q12(run: Run) -> Result:
    """Latency with a checkpoint per second beside that without any, and how long a killed worker is felt."""
    return contest(run, "q12")


@experiment("checkmate-live-q8", title="Checkpoint protocols on real workers: Q8")
def live_q8(run: Run) -> Result:
    """Latency with a checkpoint per second beside that without any, and how long a killed worker is felt."""
    return contest(run, "q8")


def contest(run: Run, name: str) -> Result:
    """All protocols with one query, in turns, and each once with a failure."""
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark

    query, contenders = QUERIES[name], protocols(run.quick)
    seconds, warm = run.pick((SECONDS, WARM_SECONDS), (QUICK_SECONDS, QUICK_WARM_SECONDS))
    whole, kill = run.pick((FAILED_SECONDS, KILL_SECOND), (QUICK_FAILED_SECONDS, QUICK_KILL_SECOND))
    calm: dict[str, list[Seen]] = {}
    failed: dict[str, Seen] = {}
    with spark_for("live", SLOTS, structured.CONFIG) as (spark, scratch):
        spark.sparkContext.setLogLevel("OFF")  # Spark tells of every task that was killed
        made, plain = Live(SparkLauncher(spark), scratch), structured.Plain(spark, scratch)
        rows = run.pick(SATURATING_ROWS, QUICK_SATURATING_ROWS)
        rate = SHARE * max(made.highest(query, rows) for _ in range(2))  # the first also warms up
        if not run.quick:
            plainly(plain, query, rate, seconds)  # warms up
        for turn in run.progress.track(range(run.pick(ROUNDS, 1)), name):
            for one in contenders if turn % 2 == 0 else reversed(contenders):
                calm.setdefault(one, []).append(made.run(query, rate, one, seconds))
            if not run.quick:
                calm.setdefault(structured.NAME, []).append(plainly(plain, query, rate, seconds))
        for one in contenders:
            if one != "none":
                failed[one] = made.run(query, rate, one, whole, kill)
        if not run.quick:
            failed[structured.NAME] = plainly(plain, query, rate, whole, kill)
    return result_of(calm, failed, warm, {"query": name, "rows_per_s": round(rate), "seconds": seconds})


def result_of(calm: dict[str, list[Seen]], failed: dict[str, Seen], warm: float, told: dict[str, object]) -> Result:
    """Medians over rounds of percentiles, beside those without checkpoints, and the costs of a failure."""
    p50, p99 = ({name: _percentile(seen, share, warm) for name, seen in calm.items()} for share in (50, 99))
    metrics: dict[str, float] = {
        f"p99_vs_{other}": p99[DEFAULT_PROTOCOL] / p99[other] for other in ("none", "stop_the_world")
    }
    rows: list[list[Cell]] = []
    for name, seen in calm.items():
        metrics |= {f"{name}_p50_ms": p50[name], f"{name}_p99_ms": p99[name]}
        felt: list[Cell] = ["", ""]
        if name in failed:
            after = failed[name]
            back = after.recovery(warm)
            metrics[f"restart_ms_{name}"] = 1000 * after.restart
            if back is not None:
                metrics[f"recovery_ms_{name}"] = 1000 * back
            felt = [1000 * after.restart, "not by the end" if back is None else 1000 * back]
        totals = [one.totals for one in seen]
        count = sum(sum(one.taken.values()) for one in totals)
        each = 1000 * sum(one.stood for one in totals) / count if count else ""
        durable = 1000 * sum(one.seconds for one in totals) / count if count else ""
        commits = [seconds for one in seen for seconds in one.commits]
        if commits:
            count, durable = len(commits), 1000 * statistics.fmean(commits)
            metrics[f"{name}_commit_ms"] = durable
        rows.append([name, p50[name], p99[name], count // len(seen), each, durable, *felt])
    columns = ("protocol", "p50", "p99", "checkpoints", "stands still", "durable after", "restart", "normal")
    return Result(
        parameters={
            "workers": WORKERS,
            "snapshot_seconds": SNAPSHOT_SECONDS,
            "rounds": max(len(seen) for seen in calm.values()),
            "default": DEFAULT_PROTOCOL,
            **told,
        },
        metrics=metrics,
        tables=[Table("milliseconds", columns, rows)],
        series=[_felt(name, seen) for name, seen in failed.items()],
        targets=[Target("p99_vs_none", at_most=1.3), Target("p99_vs_stop_the_world", at_most=0.5)],
        notes=[
            "From when a row was there for its source until it had passed the sink, by probes that travel beside rows, "
            f"at half of the highest rate that was measured just before. `p99_vs_…` is {DEFAULT_PROTOCOL} over the "
            "other. A figure is the median of the rounds.",
            "Restart: from `kill -9` of a worker's process until its successor works. Normal: until the medians of "
            f"{CALM_WINDOWS} quarters of a second were at most {NORMAL:g} times the median before.",
            f"{structured.NAME}: plain Spark over the same streams at the same rate, one batch after the other, each "
            "with its own checkpoint (RocksDB with changelogs); durable after: its logs of offsets and commits. It "
            "loses no process, but is stopped and started again in the same driver, the least that Spark takes.",
        ],
    )


def _felt(name: str, seen: Seen) -> Series:
    ages = sorted(seen.ages)
    return Series(name, [at for at, _ in ages], [age for _, age in ages])


def _percentile(seen: Sequence[Seen], share: float, warm: float) -> float:
    return statistics.median(float(np.percentile(one.took(warm), share)) for one in seen)


@live_q12.picture
@live_q8.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The longest that probes took around the failure, by protocol; plain Spark in grey."""
    axes = figure.add_subplot()
    lines = [longest(one) for one in result.series]
    charts.lines(axes, lines, title=TITLE, x="seconds", y="longest of a quarter of a second, s", log="y", legend=False)
    for line in axes.lines:
        if line.get_label() == structured.NAME:
            line.set_color(charts.GREY)
    charts.legend_beside(axes)


def longest(ages: Series) -> Series:
    """The largest of each window.

    >>> longest(Series("x", [0.0, 0.1, 0.2, 0.3], [5.0, 7.0, 6.0, 1.0]))
    Series(name='x', x=[0.125, 0.375], y=[7.0, 1.0], kind='measured')
    """
    largest: dict[int, float] = {}
    for at, age in zip(ages.x, ages.y, strict=True):
        window = int(at // WINDOW_SECONDS)
        largest[window] = max(age, largest.get(window, 0.0))
    return replace(ages, x=[(one + 0.5) * WINDOW_SECONDS for one in largest], y=list(largest.values()))
