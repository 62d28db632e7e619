"""One contender on real workers: how long rows take, what checkpoints came to, and what killed workers cost."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.applications import nexmark
from steelyard.bench.checkmate import structured
from steelyard.bench.checkmate.live_cases import WORKERS, Case, Rows, first_result
from steelyard.core.errors import SteelyardError
from steelyard.resident import Settings
from steelyard.resident.gang import Recovery
from steelyard.resident.jobs import Job
from steelyard.resident.outcome import Outcome
from steelyard.resident.recovery_line import CheckpointTotals

SNAPSHOT_SECONDS = 1.0
WINDOW_SECONDS = 0.25
"""Of which a median is taken, to see when latency is back to normal."""
NORMAL, CALM_WINDOWS = 1.2, 3
"""Latency is normal where the medians of so many windows are at most so much above the median before the failure."""
START_SECONDS = 1.0
PATIENCE = 120.0
LOOK_SECONDS = 0.05
EVENT_RATE = 10_000.0
"""Rows per second of event time where they are read as fast as they are worked off."""


class LiveError(SteelyardError):
    """A job that did not come to its end."""


@dataclass
class Seen:
    """What a run showed."""

    ages: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since rows began to come, seconds that rows took) of every probe that came to a sink."""
    killed: list[float] = field(default_factory=list)
    """When a worker was killed, in the same seconds."""
    restarts: list[float] = field(default_factory=list)
    """Seconds from each kill until the first result of those who went on."""
    recoveries: list[Recovery] = field(default_factory=list)
    """What the job itself says of each."""
    seconds: float = float("inf")
    """Until when rows came."""
    totals: CheckpointTotals = field(default_factory=CheckpointTotals)
    commits: list[float] = field(default_factory=list)
    """Seconds of each commit of plain Spark."""

    def took(self, warm: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Milliseconds of probes behind the first seconds, and before the first failure."""
        end = self.killed[0] if self.killed else float("inf")
        return 1000 * np.array([age for at, age in self.ages if warm <= at < end])

    def back(self, warm: float) -> list[float | None]:
        """Seconds from each kill until latency is back to normal; None where it is not by the next one, or the end."""
        normal = NORMAL * float(np.median(self.took(warm)))
        last = min(self.seconds, max(at for at, _ in self.ages))
        return [
            self._back(kill, until, normal) for kill, until in zip(self.killed, [*self.killed[1:], last], strict=True)
        ]

    def _back(self, kill: float, until: float, normal: float) -> float | None:
        calm = 0
        for start in np.arange(kill, until - WINDOW_SECONDS, WINDOW_SECONDS):
            ages = [1000 * age for at, age in self.ages if start <= at < start + WINDOW_SECONDS]
            calm = calm + 1 if ages and statistics.median(ages) <= normal else 0
            if calm == CALM_WINDOWS:
                return float(start) - (CALM_WINDOWS - 1) * WINDOW_SECONDS - kill
        return None


@dataclass(frozen=True)
class Live:
    """Runs a case on the workers of one Spark session.

    Parameters
    ----------
    launcher
        Starts workers.
    scratch
        A folder for snapshots.
    case
        What runs.
    """

    launcher: Any
    scratch: Path
    case: Case

    def highest(self, rows: int) -> float:
        """Rows per second where they are read as fast as they are worked off, without hot keys where it has some."""
        made = self.case.even(Rows(EVENT_RATE, rows, None), None)
        outcome = Job(made, self.case.placed(made), self.launcher, Settings(restarts=0)).run()
        return rows / outcome.seconds["run"]

    def run(self, rate: float, protocol: str, seconds: float, kills: Sequence[float] = ()) -> Seen:
        """The case at a rate for so many seconds, with a checkpoint each second; in those of `kills` a worker dies."""
        began = time.time() + START_SECONDS
        folder = self.scratch / f"{protocol}-{began}"
        folder.mkdir()
        made = self.case.made(Rows(rate, round(rate * seconds), began), folder / "first" if kills else None)
        every = None if protocol == "none" else SNAPSHOT_SECONDS
        settings = Settings(str(folder / "store"), every, heartbeat=0.2, restarts=len(kills), protocol=protocol)
        job = Job(made, self.case.placed(made), self.launcher, settings)
        with ThreadPoolExecutor(1, "live") as beside:
            running = beside.submit(job.run)
            found = self._watched(job, running, began, seconds, kills, folder / "first")
            running.result()
        found.totals, found.recoveries = job.outcome.checkpoints, job.outcome.recoveries
        if not len(kills) == len(found.restarts) == len(found.recoveries):
            failed = f"{len(found.recoveries)} generations failed, and results followed {len(found.restarts)} times"
            raise LiveError(f"of {len(kills)} workers {len(found.killed)} were killed: {failed}")
        return found

    def _watched(
        self, job: Job, running: Future[Outcome], began: float, seconds: float, kills: Sequence[float], first: Path
    ) -> Seen:
        found, due = Seen(seconds=seconds), list(kills)
        came: dict[str, tuple[int, int]] = {}
        known: set[int] = set()
        deadline = time.monotonic() + seconds + PATIENCE
        while not running.done():
            wait([running], LOOK_SECONDS)
            now = time.time() - began
            generation = max((one.generation for one in job.workers.values()), default=0)
            for name, told in job.metrics.items():
                before, of = came.get(name, (0, generation))
                new = told["aged"] - (before if of == generation else 0)
                if name.startswith(nexmark.SINK) and new > 0:
                    found.ages += [(now, age) for age in told["ages"][-new:]]
                came[name] = told["aged"], generation
            if len(found.restarts) < len(found.killed):
                at = first_result(first, began + found.killed[-1], known)
                found.restarts += [] if at is None else [at - began - found.killed[-1]]
            elif due and now > due[0] and len(job.workers) == WORKERS:
                del due[0]
                known |= {one.pid for one in job.workers.values()}
                found.killed.append(time.time() - began)
                os.kill(job.workers[len(due) % WORKERS].pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                job.stop()
                raise LiveError(f"{job} did not come to its end within {PATIENCE:g} s")
        return found


def plainly(plain: structured.Plain, case: Case, rate: float, seconds: float, stops: Sequence[float] = ()) -> Seen:
    """The same query as plain Structured Streaming has it; in each second of `stops` it ends and starts again."""
    assert case.query is not None, "plain Spark has the query"
    found, stopped, restarts = plain.run(case.query, rate, seconds, stops, case.skew)
    return Seen(found.ages, stopped, restarts, seconds=seconds, commits=found.commits)
