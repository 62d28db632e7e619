"""What a simulation found: Arrow tables, and the totals that most questions are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.control import PERCENTILES
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.core.shown import Shown
from steelyard.kernels.cluster_state import bin_edges
from steelyard.sim.grouped import MESSAGES
from steelyard.sim.scenario import Scenario

Ages: TypeAlias = tuple[float, Any, float, float]
"""Of tuples that left in an interval: its end, counts of ages by bin, their sum, and the greatest."""
CHECKPOINTS = pa.schema(
    [
        *((name, pa.float64()) for name in ("started", "completed", "seconds", "aligned_seconds")),
        ("markers", pa.int64()),
        ("read", pa.int64()),
    ]
)

FAILURES = pa.schema(
    [("time", pa.float64()), ("reason", pa.string()), ("machine", pa.int64()), ("downtime_seconds", pa.float64())]
)


@dataclass(frozen=True)
class Total:
    """What all instances of one vertex did in a part of a run."""

    seconds: float
    received: int
    processed: int
    sent: int
    throughput: float
    """Tuples processed a second."""
    utilisation: float
    """Share of the time of all threads in which they worked on a tuple."""
    backpressured: float
    """Share of that time in which they waited for a place in somebody's queue."""
    mean_wait: float
    """Seconds that a tuple was in the queue, mean over those that left it."""
    mean_queue: float
    """Tuples in all queues, mean over time."""


@dataclass(frozen=True)
class Latency:
    """Ages of tuples that left the cluster, from the moment that their row came to its log. Seconds."""

    tuples: int
    mean: float
    most: float
    percentiles: dict[float, float]
    """By percentile, right to within 1.4 %."""


@dataclass(frozen=True, repr=False)
class SimulationResult(Shown):
    """Tables of one run, a row for each interval and

    - `instances`: instance: tuples `received`, `processed`, `sent`; `useful_seconds` (as if a core had been free all
      the time), `busy_seconds`, `backpressured_seconds`, `idle_seconds` of its threads; `waited_seconds` of all
      tuples together; `queue_mean`, `queue` (at the end), `queue_peak`;
    - `machines`: machine: `cpu` (share of its cores), `sent_bytes`, `memory_bytes` at the end and `memory_peak`;
    - `sources`: partition: rows `arrived` and `read` since the start, `lag` in rows and seconds;
    - `latencies`: operator at which tuples leave the cluster: their number, mean, percentiles and maximum.

    `time` is the end of the interval. `checkpoints` has a row for each checkpoint with markers that was completed:
    when it `started` and was `completed`, the `seconds` between, `aligned_seconds` (from the first marker that an
    instance took to its snapshot, in which it took nothing from some of its senders; all instances together),
    `markers` sent, and rows that all sources had `read` when they put theirs.

    `failures` has a row for each time that all went back to a checkpoint: its `time`, the `reason` (`asked`, or
    `memory` with the `machine` that had too little) and the `downtime_seconds`.

    `messages` has a row for each edge whose grouping goes by cost: `matrices` and `replies` that came to its
    schedulers, `requests` that tuples carried, `epochs` of synchronisation (None where a grouping of the scenario is
    not compiled), and the `bytes` of all; requests are part of their tuples, and take no time of their own on a line.
    """

    scenario: Scenario
    seed: int
    seconds: float
    events: int
    instances: pa.Table
    machines: pa.Table
    sources: pa.Table
    ages: dict[str, list[Ages]] = field(repr=False)
    """By operator, interval by interval."""
    checkpoints: pa.Table = field(default_factory=CHECKPOINTS.empty_table, repr=False)
    """Checkpoints with markers."""
    failures: pa.Table = field(default_factory=FAILURES.empty_table, repr=False)
    """Returns to a checkpoint."""
    messages: pa.Table = field(default_factory=MESSAGES.empty_table, repr=False)
    """Between instances and schedulers of groupings by cost."""
    trace: pa.Table | None = field(default=None, repr=False)
    """Every tuple that left the cluster, where it was asked for."""

    @property
    def latencies(self) -> pa.Table:
        """Latency of each interval."""
        rows = [
            {"time": row[0], "operator": name, **_named(latency_of([row]))}
            for name, intervals in self.ages.items()
            for row in intervals
        ]
        return pa.Table.from_pylist(rows)

    def total(self, vertex: str, after: float = 0.0) -> Total:
        """All instances of a vertex together, in the intervals that begin at `after` or later."""
        self.scenario.operator(vertex)
        table = self.instances
        if not table.num_rows:
            raise OptionError("nothing has happened yet: advance the simulation before you ask for its result")
        begun = pc.greater_equal(pc.subtract(table["time"], table["seconds"]), after - 1e-9)
        chosen = table.filter(pc.and_(begun, pc.equal(table["operator"], vertex)))
        if not chosen.num_rows:
            raise OptionError(f"no interval begins after {after} s: the run has {self.seconds:g} s")
        found = {name: chosen[name].to_numpy() for name in chosen.column_names if name != "operator"}
        _, first = np.unique(found["time"], return_index=True)
        seconds = float(found["seconds"][first].sum())
        time_of_threads = float((found["seconds"] * found["threads"]).sum())
        received = float(found["received"].sum())
        return Total(
            seconds=seconds,
            received=round(received),
            processed=round(float(found["processed"].sum())),
            sent=round(float(found["sent"].sum())),
            throughput=float(found["processed"].sum()) / seconds,
            utilisation=float(found["busy_seconds"].sum()) / time_of_threads,
            backpressured=float(found["backpressured_seconds"].sum()) / time_of_threads,
            mean_wait=float(found["waited_seconds"].sum()) / received if received else 0.0,
            mean_queue=float((found["queue_mean"] * found["seconds"]).sum()) / seconds,
        )

    def latency(self, operator: str = "", after: float = 0.0, percentiles: Sequence[float] = PERCENTILES) -> Latency:
        """Ages of tuples that left at this operator (all, if none is named) in intervals that begin after `after`."""
        if operator and operator not in self.ages:
            raise OptionError.unknown("operator at which tuples leave", operator, self.ages)
        chosen = []
        for name, intervals in self.ages.items():
            begin = 0.0
            for row in intervals:
                if (not operator or name == operator) and begin >= after - 1e-9:
                    chosen.append(row)
                begin = row[0]
        return latency_of(chosen, percentiles)

    def with_trace(self, trace: pa.Table) -> SimulationResult:
        """The same with a row for each tuple."""
        return replace(self, trace=trace)

    def __str__(self) -> str:
        lines = [f"{self.seconds:g} s, {self.events:,} events, seed {self.seed}"]
        for vertex in self.scenario.operators:
            total = self.total(vertex.name)
            lines.append(
                f"  {vertex.name}: {total.throughput:,.1f} tuples/s, {100 * total.utilisation:.1f} % busy, "
                f"{100 * total.backpressured:.1f} % back-pressured, mean wait {_ms(total.mean_wait)} ms"
            )
        if self.checkpoints.num_rows:
            taken = self.checkpoints["seconds"].to_numpy()
            lines.append(f"  checkpoints: {len(taken)}, mean {taken.mean():.3g} s, most {taken.max():.3g} s")
        for row in self.failures.to_pylist():
            why = f"machine {row['machine']} ran out of memory" if row["reason"] == "memory" else "all failed"
            lines.append(f"  {row['time']:.6g} s: {why}, back after {row['downtime_seconds']:.3g} s")
        for row in self.messages.to_pylist():
            counts = ", ".join(f"{row[name]:,} {name}" for name in ("matrices", "requests", "replies"))
            waits = "; still in turn, since some instances have sent no matrices" * (not row["requests"])
            lines.append(
                f"  messages of {row['sender']} -> {row['receiver']}, {row['grouping']}: {counts}; {row['bytes']:,} "
                f"bytes{waits * bool(row['bytes'])}"
            )
        for name in self.ages:
            found = self.latency(name)
            if not found.tuples:
                lines.append(f"  latency at {name}: nothing has come out")
                continue
            ages = ", ".join(f"p{of:g} {_ms(age)}" for of, age in found.percentiles.items())
            lines.append(f"  latency at {name}: mean {_ms(found.mean)} ms, {ages}, most {_ms(found.most)}")
        return "\n".join(lines)


def latency_of(intervals: Sequence[Ages], percentiles: Sequence[float] = PERCENTILES) -> Latency:
    """Ages of these intervals together."""
    summed = np.sum([counts for _, counts, _, _ in intervals], axis=0) if intervals else np.zeros(1, np.int64)
    tuples, most = int(summed.sum()), max((greatest for *_, greatest in intervals), default=0.0)
    found = {of: min(age, most) for of, age in zip(percentiles, _quantiles(summed, percentiles), strict=True)}
    return Latency(tuples, sum(total for _, _, total, _ in intervals) / tuples if tuples else float("nan"), most, found)


def _quantiles(counts: Any, percentiles: Sequence[float]) -> list[float]:
    """The middle of the bin in which each percentile is."""
    tuples = int(counts.sum())
    if not tuples:
        return [float("nan")] * len(percentiles)
    edges: Floats = bin_edges()
    before = np.cumsum(counts)
    spots = np.searchsorted(before, np.ceil(np.array(percentiles) / 100 * tuples).clip(1), side="left")
    upper = np.append(edges[1:], np.inf)
    return [float(edges[spot] if not np.isfinite(upper[spot]) else (edges[spot] + upper[spot]) / 2) for spot in spots]


def _ms(seconds: float) -> str:
    """In milliseconds, with three digits at least and no powers of ten."""
    found = 1000 * seconds
    return f"{found:,.0f}" if found >= 1000 else f"{found:.3g}"


def _named(latency: Latency) -> dict[str, float]:
    named = {f"p{of:g}_seconds": age for of, age in latency.percentiles.items()}
    return {"tuples": latency.tuples, "mean_seconds": latency.mean, **named, "most_seconds": latency.most}
