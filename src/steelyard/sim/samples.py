"""What real engines report, taken from a simulated cluster at the end of each interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import Observation
from steelyard.kernels import cluster_state as state
from steelyard.kernels.cluster_state import Cluster, Rows
from steelyard.sim.layout import Layout
from steelyard.sim.logs import Log
from steelyard.sim.observed import observed
from steelyard.sim.results import Ages, SimulationResult, latency_of
from steelyard.sim.scenario import Scenario

COUNTED = ("taken", "done", "sent", "useful", "busy", "blocked", "waited", "area")
"""Fields of an instance that only grow: a row of metrics has what was added in its interval."""


class Sampler:
    """Metrics by interval: each `sample` closes one."""

    def __init__(self, layout: Layout, partitions: list[tuple[Log, int]]) -> None:
        self._partitions = partitions
        self._since = 0.0
        self._instances: list[dict[str, Any]] = []
        self._machine_rows: list[dict[str, Any]] = []
        self._sources: list[dict[str, Any]] = []
        self._ages: dict[str, list[Ages]] = {}
        self.move_to(layout)

    def move_to(self, layout: Layout) -> None:
        """From now on another cluster is sampled, which has counted nothing yet."""
        scenario = layout.scenario
        counts = [vertex.instances for vertex in scenario.vertices]
        self._names = np.repeat([vertex.name for vertex in scenario.vertices], counts)
        self._numbers = np.concatenate([np.arange(count) for count in counts])
        senders = {edge.sender for edge in scenario.edges}
        self._sinks = {n: one.name for n, one in enumerate(scenario.vertices) if one.name not in senders}
        self._before: dict[str, Any] = dict.fromkeys(COUNTED, 0.0)
        self._machines_before: Any = 0.0
        self._ages_before: dict[int, Any] = dict.fromkeys(self._sinks, 0)
        self._sums_before: Any = 0.0

    @property
    def samples(self) -> int:
        """How many intervals there are."""
        return len(self._instances)

    def sample(self, cluster: Cluster) -> None:
        """Close the interval that began with the sample before."""
        now = float(cluster.now[0])
        seconds = now - self._since
        if seconds <= 0:
            return
        useful = self._sample_instances(cluster, now, seconds)
        self._sample_machines(cluster, now, seconds, useful)
        self._sample_sources(cluster, now)
        self._sample_ages(cluster, now)
        self._since = now

    def _sample_instances(self, cluster: Cluster, now: float, seconds: float) -> Any:
        rows = cluster.instances
        totals = {name: rows[name].astype(np.float64) for name in COUNTED}
        _add_unfinished(cluster, totals, now)
        added = {name: totals[name] - self._before[name] for name in COUNTED}
        self._before = totals
        threads = rows["servers"]
        self._instances.append(
            {
                "time": np.full(len(rows), now),
                "seconds": np.full(len(rows), seconds),
                "operator": self._names,
                "instance": self._numbers,
                "machine": rows["machine"].copy(),
                "threads": threads.copy(),
                "received": added["taken"].astype(np.int64),
                "processed": added["done"].astype(np.int64),
                "sent": added["sent"].astype(np.int64),
                "useful_seconds": added["useful"],
                "busy_seconds": added["busy"],
                "backpressured_seconds": added["blocked"],
                "idle_seconds": np.maximum(threads * seconds - added["busy"] - added["blocked"], 0.0),
                "waited_seconds": added["waited"],
                "queue_mean": added["area"] / seconds,
                "queue": rows["queued"].copy(),
                "queue_peak": rows["peak"].copy(),
            }
        )
        rows["peak"] = rows["queued"]
        return added["useful"]

    def _sample_machines(self, cluster: Cluster, now: float, seconds: float, useful: Any) -> None:
        machines = cluster.machines
        work = np.bincount(cluster.instances["machine"], weights=useful, minlength=len(machines))
        sent = machines["sent_bytes"].copy()
        self._machine_rows.append(
            {
                "time": np.full(len(machines), now),
                "machine": np.arange(len(machines)),
                "cores": machines["cores"].copy(),
                "cpu": work / (machines["cores"] * seconds),
                "sent_bytes": sent - self._machines_before,
                "memory_bytes": machines["held"].copy(),
                "memory_peak": machines["most_held"].copy(),
            }
        )
        machines["most_held"] = machines["held"]
        self._machines_before = sent

    def _sample_sources(self, cluster: Cluster, now: float) -> None:
        of_sources = cluster.sources["instance"]
        positions = zip(self._partitions, cluster.sources["at"].tolist(), strict=True)
        read = np.array([log.position(partition, at) for (log, partition), at in positions])
        logs = list(zip(self._partitions, read.tolist(), strict=True))
        arrived = np.array([log.arrived(partition, now) for (log, partition), _ in logs])
        self._sources.append(
            {
                "time": np.full(len(logs), now),
                "source": self._names[of_sources],
                "partition": self._numbers[of_sources],
                "arrived": arrived,
                "read": read,
                "lag": arrived - read,
                "lag_seconds": np.array([log.lag_seconds(part, now, rows) for (log, part), rows in logs]),
            }
        )

    def _sample_ages(self, cluster: Cluster, now: float) -> None:
        sums = cluster.latency_sums
        added = sums[:, 0] - self._sums_before
        for number, name in self._sinks.items():
            counts = cluster.latencies[number].copy()
            row = (now, counts - self._ages_before[number], float(added[number]), float(sums[number, 1]))
            self._ages.setdefault(name, []).append(row)
            self._ages_before[number] = counts
        self._sums_before = sums[:, 0].copy()
        sums[:, 1] = 0.0

    def observed(self, scenario: Scenario) -> Observation:
        """The newest interval, as a policy sees it."""
        newest = [intervals[-1] for intervals in self._ages.values() if intervals[-1][0] == self._since]
        left = latency_of(newest)
        ages = left.percentiles if left.tuples else None
        return observed(scenario, self._instances, self._sources, self._machine_rows, ages)

    def trace(self, rows: Rows) -> pa.Table:
        """Traced tuples as a table, in the order in which they left."""
        return pa.table(
            {
                "operator": self._names[rows["instance"]],
                "instance": self._numbers[rows["instance"]],
                "item": rows["item"].copy(),
                "born": rows["born"].copy(),
                "done": rows["done"].copy(),
            }
        )

    def result(self, scenario: Scenario, seed: int, seconds: float, events: int) -> SimulationResult:
        """All intervals so far."""
        return SimulationResult(
            scenario=scenario,
            seed=seed,
            seconds=seconds,
            events=events,
            instances=_table(self._instances),
            machines=_table(self._machine_rows),
            sources=_table(self._sources),
            ages={name: list(intervals) for name, intervals in self._ages.items()},
        )


def _add_unfinished(cluster: Cluster, totals: dict[str, Any], now: float) -> None:
    """Count what is under way: the part of a service that is done, the time that somebody is blocked or waits."""
    servers, rows = cluster.servers, cluster.instances
    machine = cluster.machines[rows["machine"][servers["instance"]]]
    clock = machine["clock"] + machine["rate"] * (now - machine["at"])
    busy, blocked = np.isin(servers["phase"], (state.BUSY, state.SAVING)), servers["phase"] == state.BLOCKED
    done = servers["demand"] - np.maximum(servers["finish"] - clock, 0.0)
    np.add.at(totals["useful"], servers["instance"][busy], (done / machine["speed"])[busy])
    np.add.at(totals["busy"], servers["instance"][busy], now - servers["since"][busy])
    np.add.at(totals["blocked"], servers["instance"][blocked], now - servers["since"][blocked])
    totals["area"] += rows["queued"] * (now - rows["area_at"])


def _table(parts: list[dict[str, Any]]) -> pa.Table:
    if not parts:
        return pa.table({})
    return pa.table({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
