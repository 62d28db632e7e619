"""Clusters that stop and go on: pauses, snapshots, and the return to a snapshot after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.core import OptionError, State
from steelyard.kernels import cluster_state as state
from steelyard.kernels.cluster_groupings import Groupings
from steelyard.kernels.cluster_service import push_work
from steelyard.kernels.cluster_state import NONE, Cluster, Rows
from steelyard.kernels.cluster_windows import keep_key, more_keys
from steelyard.kernels.event_heap import ABSENT, cancel, schedule
from steelyard.kernels.mixing import home
from steelyard.sim.layout import Layout
from steelyard.sim.logs import LogState
from steelyard.sim.plain_groupings import PlainState

KEPT = ("taken", "done", "sent", "useful", "busy", "blocked", "waited", "area", "aligned")
"""What an instance has counted: a failure does not undo it."""


@dataclass(frozen=True)
class Checkpoints:
    """Snapshots of the whole cluster, for which everything stands still, or which markers between the tuples set off.

    Without markers a snapshot holds the tuples under way. With them every source puts a marker behind what it has sent,
    on each channel. An instance that has taken a sender's marker takes none of its tuples until the markers of all its
    senders have come and its threads are idle; then it takes its snapshot, sends markers and goes on. The checkpoint is
    complete when all instances without edges have done so; the next begins later. After a failure sources read again
    from where they put the markers of the last complete one, and instances keep what they kept in it. Results since
    then come out again.

    Of markers it is modelled that tuples behind one keep their places in a bounded queue. They keep none from senders
    whose marker has not come, since both would wait for ever; a queue can hold twice its capacity for that time, where
    real engines have buffers for each channel. A marker itself takes no place, has no size and costs nothing to read
    or send, nor does the snapshot of a source, which is an offset. A snapshot works as a tuple does, on a core of its
    machine, but `slowdown` does not change it. Not modelled: snapshots that are written while the instance goes on,
    markers that overtake tuples, messages of a coordinator. After a failure policies, and turns of `shuffle`, begin
    anew, and random numbers go on, so a row may go another way the second time.

    Parameters
    ----------
    every
        Seconds from the end of one to the begin of the next.
    snapshot
        Seconds that nobody works while one is taken; with markers, seconds of work for each operator's instance.
    restore
        Seconds that it takes to load one after a failure was noticed.
    per_kept
        Seconds more, for either, for each tuple that the fullest instance keeps as its state (`Growing`); in a
        snapshot with markers, that the instance itself keeps.
    markers
        Whether the cluster goes on, and markers travel between the tuples.
    """

    every: float
    snapshot: float = 0.0
    restore: float = 0.0
    per_kept: float = 0.0
    markers: bool = False

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise OptionError(f"every of Checkpoints must be above 0 seconds, got {self.every!r}")
        for name in ("snapshot", "restore", "per_kept"):
            if not getattr(self, name) >= 0:
                raise OptionError(f"{name} of Checkpoints must be 0 or more seconds, got {getattr(self, name)!r}")


NOTICED = 1.0
"""Seconds until somebody sees that a machine ran out of memory."""


@dataclass(frozen=True)
class Failure:
    """A moment at which all that is not in a checkpoint is lost, and how long it takes to be noticed. Seconds."""

    at: float
    detection: float = 0.0

    def __post_init__(self) -> None:
        if not (self.at > 0 and self.detection >= 0):
            raise OptionError(f"a failure is at a time above 0 and noticed after 0 or more seconds, got {self}")


@dataclass(frozen=True)
class Snapshot:
    """All that a cluster needs to go on from a moment, again and again."""

    cluster: Cluster
    routers: Mapping[int, State]
    groupings: Groupings | PlainState | None
    logs: tuple[LogState, ...]

    @property
    def time(self) -> float:
        """When it was taken."""
        return float(self.cluster.now[0])

    @property
    def kept(self) -> float:
        """Tuples that the fullest instance keeps."""
        return float(self.cluster.instances["kept"].max())


@dataclass(frozen=True)
class Aligned:
    """What instances saved when markers had come to them: no tuple is under way."""

    sources: Rows
    """Where they put their markers: `saved_chunk`, `saved_at`."""
    instances: Rows
    """What they kept: `saved_kept`, `saved_end`."""
    logs: tuple[LogState, ...]
    """When the checkpoint was begun, so no later than any marker."""

    @property
    def kept(self) -> float:
        """Tuples that the fullest instance keeps."""
        return float(self.instances["saved_kept"].max())


@dataclass(frozen=True)
class UnderWay:
    """A checkpoint that is not complete."""

    started: float
    aligned: float
    markers: int
    """Seconds aligned and markers sent before it."""
    logs: tuple[LogState, ...]


def call_sources(cluster: Cluster, snapshot: float, per_kept: float) -> None:
    """Have every source put out a marker, at once or behind the row that it is at."""
    rows, servers = cluster.instances, cluster.servers
    cluster.snapshot[:] = snapshot, per_kept
    ends = cluster.operators["edges"][rows["operator"]] == 0
    cluster.counters[state.AWAITED] = np.count_nonzero(ends & ((rows["senders"] > 0) | (rows["source"] != NONE)))
    rows["called"][cluster.sources["instance"]] = 1
    for number, reader in enumerate(rows["first_server"][cluster.sources["instance"]]):
        if servers["phase"][reader] in (state.WAITING, state.FREE):
            cancel(cluster.heap, len(cluster.machines) + number)
            servers["phase"][reader] = state.READY
            push_work(cluster, reader)


def copy_of(cluster: Cluster) -> Cluster:
    """A cluster that does not change with this one."""
    heap = cluster.heap._replace(**{name: part.copy() for name, part in cluster.heap._asdict().items()})
    parts: dict[str, Any] = {
        name: part.copy() for name, part in cluster._asdict().items() if isinstance(part, np.ndarray)
    }
    return cluster._replace(**{**parts, "heap": heap})


def stand_still(cluster: Cluster, seconds: float) -> None:
    """Go on to a moment so many seconds later at which everything is as it is now, except that logs have grown.

    Services and journeys end so much later; tuples that wait have waited so much longer. Windows end when they would,
    or then.
    """
    now = cluster.now[0]
    later = now + seconds
    machines, sources = cluster.machines, len(cluster.sources)
    first_timer = len(machines) + sources + len(cluster.links)
    machines["clock"] += machines["rate"] * (now - machines["at"])
    machines["at"] = later
    for line in ("line_free", "local_free"):
        machines[line] = np.where(machines[line] > now, machines[line] + seconds, machines[line])
    working = np.isin(cluster.servers["phase"], (state.BUSY, state.BLOCKED, state.SAVING))
    cluster.servers["since"][working] += seconds
    cluster.instances["aligning"][cluster.instances["came"] > 0] += seconds
    for link in cluster.links[cluster.links["head"] != NONE]:
        record = link["head"]
        while record != NONE:
            cluster.pool["due"][record] += seconds
            record = cluster.pool["next"][record]
    heap = cluster.heap
    pending = [(int(slot), float(heap.at[slot])) for slot in heap.heap[: heap.size[0]]]
    heap.place[:] = ABSENT
    heap.size[0] = 0
    for slot, time in sorted(pending):
        by_the_clock = len(machines) <= slot < len(machines) + sources or slot >= first_timer
        schedule(heap, slot, max(time, later) if by_the_clock else time + seconds)
    cluster.now[0] = later


def count_unfinished(cluster: Cluster) -> None:
    """Count the part of services and waits that has been, before it is lost."""
    rows, servers, now = cluster.instances, cluster.servers, cluster.now[0]
    for phase, field in ((state.BUSY, "busy"), (state.SAVING, "busy"), (state.BLOCKED, "blocked")):
        those = servers["phase"] == phase
        np.add.at(rows[field], servers["instance"][those], now - servers["since"][those])
    machine = cluster.machines[rows["machine"][servers["instance"]]]
    clock = machine["clock"] + machine["rate"] * (now - machine["at"])
    done = (servers["demand"] - np.maximum(servers["finish"] - clock, 0.0)) / machine["speed"]
    busy = np.isin(servers["phase"], (state.BUSY, state.SAVING))
    np.add.at(rows["useful"], servers["instance"][busy], done[busy])
    rows["area"] += rows["queued"] * (now - rows["area_at"])
    rows["area_at"] = now


def back_to(snapshot: Cluster, lost: Cluster) -> Cluster:
    """The cluster of the snapshot at the present moment of the one that is lost, which has counted what it did."""
    count_unfinished(lost)
    found = copy_of(snapshot)
    stand_still(found, float(lost.now[0] - found.now[0]))
    return _counted_on(found, lost)


def back_to_markers(saved: Aligned, lost: Cluster, fresh: Cluster) -> Cluster:
    """A cluster that was just built, at the present moment of the one that is lost, with the state that was saved."""
    count_unfinished(lost)
    found = read_on_with(fresh, lost, fresh.sources)
    found.instances["kept"], found.instances["window_end"] = saved.instances["saved_kept"], saved.instances["saved_end"]
    found.instances["slowdown"] = lost.instances["slowdown"]
    found.servers["random"] = lost.servers["random"]
    hold_what_is_kept(found)
    return _counted_on(found, lost)


def hold_what_is_kept(fresh: Cluster) -> None:
    """Count what instances of a cluster without tuples keep to the memory of their machines."""
    rows, machines = fresh.instances, fresh.machines
    operators = fresh.operators[rows["operator"]]
    held = rows["kept"] * operators["kept_bytes"] + rows["keys"] * operators["key_bytes"]
    machines["held"] = machines["most_held"] = np.bincount(rows["machine"], held, len(machines))


def _counted_on(found: Cluster, lost: Cluster) -> Cluster:
    for field in KEPT:
        found.instances[field] = lost.instances[field]
    found.instances["area_at"] = lost.now[0]
    found.instances["peak"] = found.instances["queued"]
    found.machines["sent_bytes"] = lost.machines["sent_bytes"]
    found.machines["most_held"] = np.maximum(found.machines["held"], lost.machines["most_held"])
    for counter in (state.EVENTS, state.TRACED, state.MARKERS):
        found.counters[counter] = lost.counters[counter]
    found.counters[state.FULL_MACHINE] = NONE  # what was saved may be too much by itself, and fails again at once
    return found._replace(trace=lost.trace, latencies=lost.latencies, latency_sums=lost.latency_sums)


def stop_reading(cluster: Cluster) -> None:
    """No source takes another row, as if every log ended here; what was taken goes its way. Windows stay open."""
    for number in range(len(cluster.sources)):
        cancel(cluster.heap, len(cluster.machines) + number)
    readers = cluster.instances["first_server"][cluster.sources["instance"]]
    waiting = readers[cluster.servers["phase"][readers] == state.WAITING]
    cluster.servers["phase"][waiting] = state.FREE
    cluster.sources["end"] = cluster.sources["at"]
    cluster.sources["ended"] = 1
    cluster.counters[state.STOPPED] = 1
    for number in cluster.timed:
        cancel(cluster.heap, int(cluster.instances["timer"][number]))


def spread_state(kept: Mapping[str, float], fresh: Cluster, layout: Layout) -> None:
    """New instances of an operator share what the old ones kept."""
    for vertex in layout.scenario.operators:
        fresh.instances["kept"][layout.instances_of(vertex.name)] = kept.get(vertex.name, 0.0) / vertex.parallelism
    hold_what_is_kept(fresh)


def open_keys(cluster: Cluster, layout: Layout) -> dict[str, list[tuple[int, int, float]]]:
    """Of each operator whose windows have results, what is in the present ones: key, item, moment of birth."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for vertex in layout.scenario.operators:
        if vertex.window:
            own = found[vertex.name] = []
            for row in cluster.instances[layout.instances_of(vertex.name)]:
                record = int(row["opened"])
                while record != NONE:
                    kept = cluster.pool[record]
                    own.append((int(kept["key"]), int(kept["item"]), float(kept["born"])))
                    record = int(kept["next"])
    return found


def spread_keys(opened: Mapping[str, list[tuple[int, int, float]]], fresh: Cluster, layout: Layout) -> Cluster:
    """New instances of an operator have what was in the windows of the old ones, each key at the home of its hash."""
    for name, rows in opened.items():
        first, count = layout.first_instance[name], layout.scenario.operator(name).parallelism
        for key, item, born in rows:
            while (outcome := keep_key(fresh, first + home(key, count), key, item, born)) != state.REACHED:
                fresh = state.larger_pool(fresh) if outcome == state.NEEDS_ROOM else more_keys(fresh)
    return fresh


def read_on_with(fresh: Cluster, stopped: Cluster, reading: Rows) -> Cluster:
    """A cluster that was just built, at the moment and at the rows at which the other one has stopped."""
    now = stopped.now[0]
    fresh.now[0] = now
    fresh.machines["at"] = now
    fresh.instances["area_at"] = now
    for field in ("at", "end", "ended", "chunk"):
        fresh.sources[field] = reading[field]
    for counter in (state.EVENTS, state.MARKERS):
        fresh.counters[counter] = stopped.counters[counter]
    return fresh._replace(log_times=stopped.log_times, log_items=stopped.log_items, log_keys=stopped.log_keys)
