"""What is counted while a simulation runs, and the figures that are made of it."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.checkpoint import ROUND
from steelyard.core.plans import Floats
from steelyard.sim.checkpoints.recovery import Restart

NORMAL, CALM_SECONDS = 1.2, 3
"""Latency is normal again where the median is at most so many times what it was, for so many seconds."""


@dataclass
class Round:
    """One round: when it began, when its last part was taken, and when all parts were durable."""

    begun: float
    parts: int = 0
    durable_parts: int = 0
    taken: float = math.nan
    complete: float = math.nan


@dataclass(frozen=True)
class Outcome:
    """Figures of a run.

    Parameters
    ----------
    seconds, p50, p99, means
        For every second in which rows came to a sink: percentiles and mean of their latency in seconds.
    latency_p50, latency_p99
        Of all rows.
    rows
        That came to a sink.
    taken
        Checkpoints, by kind.
    rounds
        That were complete.
    pause_seconds
        Mean time in which a checkpoint stopped its instance.
    checkpoint_seconds
        Mean time of a checkpoint until it was durable; of a round where there are rounds.
    round_seconds
        Mean time of a round until the last of its states was taken, which need not be durable.
    data_bytes, note_bytes, marker_bytes, report_bytes
        That were sent.
    messages
        That were sent between instances.
    restarts
        One for each failure.
    """

    seconds: Sequence[int]
    p50: Sequence[float]
    p99: Sequence[float]
    means: Sequence[float]
    latency_p50: float
    latency_p99: float
    rows: int
    taken: Mapping[str, int]
    rounds: int
    pause_seconds: float
    checkpoint_seconds: float
    round_seconds: float
    data_bytes: float
    note_bytes: float
    marker_bytes: float
    report_bytes: float
    messages: int
    restarts: Sequence[Restart]

    @property
    def overhead(self) -> float:
        """Bytes of data and protocol over those of data alone."""
        return (self.data_bytes + self.note_bytes + self.marker_bytes + self.report_bytes) / self.data_bytes

    @property
    def slope(self) -> float:
        """Seconds by which the mean latency grows in a second."""
        return float(np.polyfit(self.seconds, self.means, 1)[0]) if len(self.seconds) > 1 else math.inf

    def recovery_seconds(self) -> float:
        """From when the first failure was noticed until the latency is normal again; without end where it is not."""
        restart = self.restarts[0]
        before = [p50 for second, p50 in zip(self.seconds, self.p50, strict=True) if second + 1 <= restart.failed]
        normal = NORMAL * float(np.median(before))
        by_second = dict(zip(self.seconds, self.p50, strict=True))
        second = math.ceil(restart.detected)
        while second + CALM_SECONDS - 1 <= max(by_second, default=0):
            if all(by_second.get(second + ahead, math.inf) <= normal for ahead in range(CALM_SECONDS)):
                return second - restart.detected
            second += 1
        return math.inf


class Tally:
    """Counts of a run."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.rounds: dict[int, Round] = {}
        self.restarts: list[Restart] = []
        self.data_bytes = self.note_bytes = self.marker_bytes = self.report_bytes = 0.0
        self.messages = self.read_rows = self.dropped_rows = 0
        self._pauses: list[tuple[float, float]] = []
        self._durable: list[tuple[float, float]] = []
        self._times, self._rows, self._ages, self._at = array("d"), array("q"), array("d"), array("q")
        self._sinks: dict[str, int] = {}

    def done(self, time: float, rows: int, available: float, sink: str) -> None:
        """Rows have come to a sink."""
        self._times.append(time)
        self._rows.append(rows)
        self._ages.append(time - available)
        self._at.append(self._sinks.setdefault(sink, len(self._sinks)))

    def took(self, kind: str, now: float, pause: float, number: int) -> None:
        """A checkpoint was taken."""
        self.taken[kind] += 1
        self._pauses.append((now, pause))
        if kind == ROUND and number in self.rounds:
            one = self.rounds[number]
            one.parts += 1
            one.taken = now + pause

    def begins(self, number: int, now: float) -> None:
        """A round begins."""
        self.rounds[number] = Round(now)

    def durable(self, number: int, now: float, seconds: float, parts: int) -> None:
        """A checkpoint is durable, so long after it was begun."""
        self._durable.append((now, seconds))
        if number in self.rounds:
            one = self.rounds[number]
            one.durable_parts += 1
            if one.durable_parts == parts:
                one.complete = now

    def outcome(self, after: float, until: float, sink: str | None = None) -> Outcome:
        """The figures of rows that came, to a sink or to all, and checkpoints that were taken, in a time."""
        times, rows, ages = (np.array(one) for one in (self._times, self._rows, self._ages))
        chosen = (times >= after) & (times < until)
        if sink is not None:
            chosen &= np.array(self._at) == self._sinks.get(sink, -1)
        times, rows, ages = times[chosen], rows[chosen], ages[chosen]
        whole = np.floor(times).astype(np.int64)
        seconds = np.unique(whole).tolist()
        each = [whole == second for second in seconds]
        shares = [_percentiles(ages[one], rows[one]) for one in each]
        of_all = _percentiles(ages, rows)
        complete = [one for one in self.rounds.values() if not math.isnan(one.complete) and one.begun >= after]
        durable = [seconds for at, seconds in self._durable if at >= after]
        if self.rounds:
            durable = [one.complete - one.begun for one in complete]
        return Outcome(
            seconds=seconds,
            p50=[p50 for p50, _ in shares],
            p99=[p99 for _, p99 in shares],
            means=[float(np.average(ages[one], weights=rows[one])) for one in each],
            latency_p50=of_all[0],
            latency_p99=of_all[1],
            rows=int(rows.sum()),
            taken=dict(self.taken),
            rounds=sum(not math.isnan(one.complete) for one in self.rounds.values()),
            pause_seconds=_mean([pause for at, pause in self._pauses if at >= after]),
            checkpoint_seconds=_mean(durable),
            round_seconds=_mean([one.taken - one.begun for one in complete]),
            data_bytes=self.data_bytes,
            note_bytes=self.note_bytes,
            marker_bytes=self.marker_bytes,
            report_bytes=self.report_bytes,
            messages=self.messages,
            restarts=tuple(self.restarts),
        )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _percentiles(ages: Floats, rows: Floats) -> tuple[float, float]:
    """The median and the 99th percentile of ages, each of which so many rows have."""
    if not len(ages):
        return math.nan, math.nan
    order = np.argsort(ages, kind="stable")
    upto = np.cumsum(rows[order])
    p50, p99 = (float(ages[order[np.searchsorted(upto, share * upto[-1])]]) for share in (0.5, 0.99))
    return p50, p99
