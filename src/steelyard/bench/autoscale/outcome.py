"""What one run of the contest came to: rows that waited, workers, actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.plans import Floats
from steelyard.sim import SimulationResult

QUIET = 600.0
"""Seconds without an action after which numbers count as settled: twice the time in which nobody decides."""
GROWS = 1.0
"""Seconds by which latency may grow in that time."""


@dataclass(frozen=True)
class Outcome:
    """One run. Arrays have a value for each look.

    Parameters
    ----------
    time, rate, read
        Seconds since the begin; rows per second that came, and that were read.
    workers
        Instances of all operators.
    waits
        Seconds for which a row that is read now has waited.
    p50, p95
        The same, over all rows that were read.
    actions
        When numbers were changed.
    """

    time: Floats
    rate: Floats
    read: Floats
    workers: Floats
    waits: Floats
    p50: float
    p95: float
    actions: Sequence[float]

    @property
    def worker_hours(self) -> float:
        """Of all workers together."""
        return float(np.sum(self.workers * np.diff(self.time, prepend=0.0)) / 3600)

    @property
    def mean_workers(self) -> float:
        """Workers, mean over time."""
        return self.worker_hours * 3600 / float(self.time[-1])

    @property
    def kept_up(self) -> float:
        """Rows that were read over those that came."""
        return float(self.read.sum() / max(self.rate.sum(), 1.0))

    @property
    def follows(self) -> float:
        """Correlation of workers with the rate; 0 where either of them never changes."""
        if np.ptp(self.workers) == 0 or np.ptp(self.rate) == 0:
            return 0.0
        return float(np.corrcoef(self.workers, self.rate)[0, 1])

    @property
    def at_last(self) -> float:
        """Seconds for which rows had waited in the last ten minutes, mean."""
        return float(self.waits[self.time > self.time[-1] - 600].mean())

    def between(self, begin: float, end: float) -> int:
        """Actions in a part of the run."""
        return sum(begin <= one < end for one in self.actions)

    def converges(self, begin: float, end: float) -> tuple[bool, int, float]:
        """Whether numbers settle in a part of the run, after how many actions and seconds.

        They have if none changes in its last ten minutes and latency does not grow in them.
        """
        taken = [one - begin for one in self.actions if begin <= one < end]
        quiet = (self.time > end - QUIET) & (self.time <= end)
        waits = self.waits[quiet]
        settled = (not taken or taken[-1] <= end - begin - QUIET) and bool(waits[-1] <= waits[0] + GROWS)
        return settled, len(taken), taken[-1] if taken else 0.0


def outcome_of(result: SimulationResult, actions: Sequence[float]) -> Outcome:
    """From the tables of a run that was looked at again and again."""
    table = {name: result.sources[name].to_numpy(zero_copy_only=False) for name in result.sources.column_names}
    time, at = np.unique(table["time"], return_inverse=True)
    come, done, waits, weights = np.zeros(len(time)), np.zeros(len(time)), [], []
    of_all = np.zeros(len(time))
    for name in dict.fromkeys(table["source"]):
        own = table["source"] == name
        arrived, read = (np.bincount(at[own], table[what][own], len(time)) for what in ("arrived", "read"))
        waited = np.bincount(at[own], table["lag_seconds"][own], len(time)) / np.bincount(at[own], minlength=len(time))
        rows = np.diff(read, prepend=0.0).clip(min=0.0)
        come, done, of_all = come + np.diff(arrived, prepend=0.0), done + rows, np.maximum(of_all, waited)
        waits.append(waited)
        weights.append(rows)
    p50, p95 = percentiles(np.concatenate(waits), np.concatenate(weights))
    spans = np.diff(time, prepend=0.0)
    moments = result.instances["time"].to_numpy()
    workers = np.bincount(np.searchsorted(time, moments), minlength=len(time)).astype(np.float64)
    return Outcome(time, come / spans, done / spans, workers, of_all, p50, p95, tuple(actions))


def percentiles(values: Floats, weights: Floats) -> tuple[float, float]:
    """The 50th and the 95th of values that count as often as their weights say."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    found = np.searchsorted(below, np.array([0.5, 0.95]) * below[-1])
    p50, p95 = values[order][np.minimum(found, len(values) - 1)]
    return float(p50), float(p95)
