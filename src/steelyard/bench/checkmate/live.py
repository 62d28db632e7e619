"""Checkpoint protocols on real workers: latency of NexMark queries, and what a worker that is killed costs."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
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
SECONDS, QUICK_SECONDS = 15.0, 6.0
WARM_SECONDS, QUICK_WARM_SECONDS = 4.0, 2.0
ROUNDS = 3
SATURATING_ROWS, QUICK_SATURATING_ROWS = 1_000_000, 200_000
BLOCK_ROWS = 64
"""Rows that a source has before the next one has some, and the most of a message: at any rate all of them have work."""
WINDOW_SECONDS = 0.25
"""Of which a median is taken, to see when latency is back to normal."""
NORMAL, CALM_WINDOWS = 1.2, 3
"""Latency is normal where the medians of so many windows are at most so much above the median before the failure."""
START_SECONDS = 1.0
PATIENCE = 120.0
LOOK_SECONDS = 0.05
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
    seconds, warm
        How long rows come, and how many of the first seconds do not count.
    """

    launcher: Any
    scratch: Path
    seconds: float
    warm: float

    def highest(self, query: nexmark.Query, rows: int) -> float:
        """Rows per second where they are read as fast as they are worked off."""
        made = dataflow(query, 10_000.0, rows, None)
        job = Job(made, Placement.spread(made, WORKERS), self.launcher, Settings(restarts=0))
        return rows / job.run().seconds["run"]

    def run(self, query: nexmark.Query, rate: float, protocol: str, kill: bool = False) -> Seen:
        """A query at a rate, with a snapshot each second; with `kill`, a worker dies in the middle."""
        began = time.time() + START_SECONDS
        made = dataflow(query, rate, round(rate * self.seconds), began)
        store = self.scratch / f"{query.name}-{protocol}-{began}"
        every = None if protocol == "none" else SNAPSHOT_SECONDS
        settings = Settings(str(store), every, heartbeat=0.2, restarts=3, protocol=protocol)
        job = Job(made, Placement.spread(made, WORKERS), self.launcher, settings)
        thread = Thread(target=job.run, name="live", daemon=True)
        thread.start()
        found = self._watched(job, thread, began, kill)
        found.epochs, found.totals = job.outcome.epochs, job.outcome.checkpoints
        if found.killed is not None:
            (one,) = job.outcome.recoveries
            found.restart = one.detected + one.restarted
        return found

    def _watched(self, job: Job, thread: Thread, began: float, kill: bool) -> Seen:
        found = Seen()
        came: dict[str, tuple[int, int]] = {}
        deadline = time.monotonic() + self.seconds + PATIENCE
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
            if kill and found.killed is None and now > self.seconds / 2:
                found.killed = now
                os.kill(job.workers[1].pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                job.stop()
                raise LiveError(f"{job} did not come to its end within {PATIENCE:g} s")
        return found


def plainly(plain: structured.Plain, query: nexmark.Query, rate: float, stop: bool = False) -> Seen:
    """The same query as plain Structured Streaming has it; with `stop`, it ends in the middle and starts again."""
    found, stopped, restart = plain.run(query, rate, stop)
    return Seen(found.ages, stopped, restart, commits=found.commits)


def protocols(quick: bool) -> list[str]:
    """Those that take part: all, with no checkpoints first."""
    return list(dict.fromkeys(QUICK if quick else ("none", "stop_the_world", *PROTOCOLS.names())))


@experiment("checkmate-live", title="Checkpoint protocols on real workers", figure=None)
def live(run: Run) -> Result:
    """Latency with a checkpoint per second beside that without any, and how long a killed worker is felt."""
    from steelyard.spark.resident import SparkLauncher  # noqa: PLC0415 - loads Spark

    contenders = protocols(run.quick)
    seconds, warm = run.pick((SECONDS, WARM_SECONDS), (QUICK_SECONDS, QUICK_WARM_SECONDS))
    queries = dict(list(QUERIES.items())[:1]) if run.quick else QUERIES
    calm: dict[tuple[str, str], list[Seen]] = {}
    failed: dict[tuple[str, str], Seen] = {}
    rates: dict[str, float] = {}
    with spark_for("live", SLOTS, structured.CONFIG) as (spark, scratch):
        spark.sparkContext.setLogLevel("OFF")  # Spark tells of every task that was killed
        made = Live(SparkLauncher(spark), scratch, seconds, warm)
        plain = structured.Plain(spark, scratch, seconds)
        for name, query in queries.items():
            rows = run.pick(SATURATING_ROWS, QUICK_SATURATING_ROWS)
            rates[name] = SHARE * max(made.highest(query, rows) for _ in range(2))  # the first also warms up
            if not run.quick:
                plainly(plain, query, rates[name])  # warms up
            for turn in run.progress.track(range(run.pick(ROUNDS, 1)), name):
                for one in contenders if turn % 2 == 0 else reversed(contenders):
                    calm.setdefault((name, one), []).append(made.run(query, rates[name], one))
                if not run.quick:
                    calm.setdefault((name, structured.NAME), []).append(plainly(plain, query, rates[name]))
            for one in contenders:
                if one != "none":
                    failed[name, one] = made.run(query, rates[name], one, kill=True)
            if not run.quick:
                failed[name, structured.NAME] = plainly(plain, query, rates[name], stop=True)
    return result_of(calm, failed, rates, warm, (seconds, run.pick(ROUNDS, 1)))


def result_of(
    calm: dict[tuple[str, str], list[Seen]],
    failed: dict[tuple[str, str], Seen],
    rates: dict[str, float],
    warm: float,
    sizes: tuple[float, int],
) -> Result:
    """Medians over rounds of percentiles, beside those without checkpoints, and the costs of a failure."""
    p50, p99 = ({key: _percentile(seen, share, warm) for key, seen in calm.items()} for share in (50, 99))
    against = [
        max(p99[query, DEFAULT_PROTOCOL] / p99[query, other] for query in rates) for other in ("none", "stop_the_world")
    ]
    metrics: dict[str, float] = {"p99_vs_none": against[0], "p99_vs_stop_the_world": against[1]}
    rows: list[list[Cell]] = []
    for (query, name), seen in calm.items():
        metrics |= {f"{query}_{name}_p50_ms": p50[query, name], f"{query}_{name}_p99_ms": p99[query, name]}
        felt: list[Cell] = ["", ""]
        if (query, name) in failed:
            after = failed[query, name]
            back = after.recovery(warm)
            metrics[f"{query}_restart_ms_{name}"] = 1000 * after.restart
            if back is not None:
                metrics[f"{query}_recovery_ms_{name}"] = 1000 * back
            felt = [1000 * after.restart, "not by the end" if back is None else 1000 * back]
        totals = [one.totals for one in seen]
        count = sum(sum(one.taken.values()) for one in totals)
        each = 1000 * sum(one.stood for one in totals) / count if count else ""
        durable = 1000 * sum(one.seconds for one in totals) / count if count else ""
        commits = [seconds for one in seen for seconds in one.commits]
        if commits:
            count, durable = len(commits), 1000 * statistics.fmean(commits)
            metrics[f"{query}_{name}_commit_ms"] = durable
        rows.append([query, name, p50[query, name], p99[query, name], count // len(seen), each, durable, *felt])
    columns = ("query", "protocol", "p50", "p99", "checkpoints", "stands still", "durable after", "restart", "normal")
    return Result(
        parameters={
            "workers": WORKERS,
            "snapshot_seconds": SNAPSHOT_SECONDS,
            "rows_per_s": {name: round(rate) for name, rate in rates.items()},
            "seconds": sizes[0],
            "rounds": sizes[1],
            "default": DEFAULT_PROTOCOL,
        },
        metrics=metrics,
        tables=[Table("milliseconds", columns, rows)],
        series=[_felt(name, seen) for (query, name), seen in failed.items() if query == "q12"],
        targets=[Target("p99_vs_none", at_most=1.3), Target("p99_vs_stop_the_world", at_most=0.5)],
        notes=[
            "From when a row was there for its source until it had passed the sink, by probes that travel beside rows, "
            f"at half of the highest rate that was measured just before. `p99_vs_…` is {DEFAULT_PROTOCOL} over the "
            "other, at the worse query. A figure is the median of the rounds.",
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


@live.picture
def _picture(figure: charts.Figure, result: Result) -> None:
    charts.lines(
        figure.add_subplot(),
        result.series,
        title="Latency of Q12 around a killed worker",
        x="seconds",
        y="seconds that rows took",
    )
