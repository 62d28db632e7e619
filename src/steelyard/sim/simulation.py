"""Runs a scenario tuple by tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core import Action, Observation, OptionError
from steelyard.core.needs import OF_SCENARIOS
from steelyard.core.weights import Weights
from steelyard.kernels import cluster_state as state
from steelyard.kernels.cluster_windows import more_keys
from steelyard.sim.build import build, dealing_out, log_chunk
from steelyard.sim.effects import tell_like_hash, tell_lone_receivers
from steelyard.sim.grouped import Grouped, summed
from steelyard.sim.layout import layout_of
from steelyard.sim.logs import Log
from steelyard.sim.results import CHECKPOINTS, FAILURES, SimulationResult
from steelyard.sim.routing import Routers
from steelyard.sim.samples import Sampler
from steelyard.sim.scenario import Scenario
from steelyard.sim.stopping import (
    NOTICED,
    Aligned,
    Snapshot,
    UnderWay,
    back_to,
    back_to_markers,
    call_sources,
    copy_of,
    open_keys,
    read_on_with,
    spread_keys,
    spread_state,
    stand_still,
    stop_reading,
)
from steelyard.sim.weighing import held_weights, more_weights, rescaled_by


class Simulation:
    """A scenario that runs, tuple by tuple, and can be looked at and changed on the way.

    Parameters
    ----------
    scenario
        What runs where.
    seed
        Two simulations of a scenario with one seed are the same.
    trace
        Whether every tuple that leaves the cluster is written down.
    downtime
        Seconds that a stop and a restart take when a policy acts on it, beside letting out what is under way.

    Examples
    --------
    >>> from steelyard.sim import Exactly, Operator, Source
    >>> scenario = Scenario.chain(Source("log", rate=10, rows=3), Operator("map", Exactly(0.25)))
    >>> simulation = Simulation(scenario, trace=True)
    >>> simulation.advance(10.0)
    >>> simulation.trace().column("done").to_pylist()
    [0.25, 0.5, 0.75]
    """

    what: ClassVar[str] = "a simulation tuple by tuple"
    shows: ClassVar[frozenset[str]] = OF_SCENARIOS

    def __init__(self, scenario: Scenario, seed: int = 0, trace: bool = False, downtime: float = 0.0) -> None:
        self.scenario = scenario
        self.seed, self.downtime = seed, downtime
        self._layout = layout_of(scenario)
        self._cluster = build(self._layout, seed, trace)
        self._weights: Weights = {}
        self._routers = Routers(self._layout)
        self._grouped = Grouped(self._layout, self._cluster.edges)
        sources = self._layout.sources
        chunk = log_chunk(len(self._cluster.sources))
        seeds = np.random.SeedSequence(seed).generate_state(len(sources))
        self._logs = [Log(source, int(own), chunk) for source, own in zip(sources, seeds, strict=True)]
        self._partitions = [
            (log, partition)
            for log, source in zip(self._logs, sources, strict=True)
            for partition in range(source.parallelism)
        ]
        self._sampler = Sampler(self._layout, self._partitions)
        self._snapshot: Snapshot | Aligned = self._taken()
        self._under_way: UnderWay | None = None
        self._checkpoints: list[dict[str, float]] = []
        self._failures: list[dict[str, float | str]] = []
        self._traces: list[pa.Table] = []
        self._messages: list[pa.Table] = []
        self._generation = 0
        self._told = False
        tell_lone_receivers(scenario)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return float(self._cluster.now[0])

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self.drained

    @property
    def events(self) -> int:
        """How many events there have been: rows that came, tuples that arrived, services that ended."""
        return int(self._cluster.counters[state.EVENTS])

    @property
    def drained(self) -> bool:
        """Whether every log has ended and every tuple, result of a window and message has come to its end."""
        pending = self._cluster.heap.size[0] + self._cluster.counters[state.WORK_COUNT]
        return int(pending) == 0 and bool(self._cluster.sources["ended"].all())

    @property
    def kept(self) -> float:
        """Tuples that the fullest instance keeps, where service times grow with them."""
        return float(self._cluster.instances["kept"].max())

    @property
    def saved_kept(self) -> float:
        """The same for the last checkpoint."""
        return self._snapshot.kept

    @property
    def under_way(self) -> bool:
        """Whether a checkpoint with markers is begun and not complete."""
        return self._under_way is not None

    @property
    def exhausted(self) -> int | None:
        """The machine that ran out of memory at this moment, if one did; nothing goes on before `fail`."""
        machine = int(self._cluster.counters[state.FULL_MACHINE])
        return None if machine == state.NONE else machine

    def advance(self, seconds: float) -> None:
        """Go on for so many seconds of the simulated time.

        A machine that runs out of memory fails, and all goes back to the last checkpoint; longer than asked for, if it
        would end before that is noticed.
        """
        if not 0 <= seconds < np.inf:
            raise OptionError(f"a simulation goes on for 0 or more seconds, got {seconds!r}")
        until = self.now + seconds
        self._advance_to(until)
        while self.exhausted is not None:
            self.fail(NOTICED)
            if self.now < until:
                self._advance_to(until)

    def _advance_to(self, until: float, or_complete: bool = False) -> None:
        """Go on to that moment, or to one before: the checkpoint under way is complete, a machine is exhausted."""
        waits = or_complete and self.under_way
        while (now := max(self.now, min(until, self._routers.next_exchange))) < until:
            self._run(now, waits)
            if (waits and not self.under_way) or self.exhausted is not None:
                return
            self._cluster.now[0] = now
            self._routers.exchange(self._cluster)
        self._run(until, waits)
        if (not waits or self.under_way) and self.exhausted is None:
            self._cluster.now[0] = until

    def _run(self, until: float, or_complete: bool = False) -> None:
        """Let everything happen that happens until then, or until a machine is exhausted."""
        while True:
            outcome = self._grouped.run(self._cluster, until)
            if outcome == state.NEEDS_LOG:
                self._read_on(int(self._cluster.counters[state.NEEDED]))
            elif outcome == state.NEEDS_ROUTES:
                self._routers.decide(self._cluster, int(self._cluster.counters[state.NEEDED]))
            elif outcome == state.NEEDS_ROOM:
                self._cluster = state.larger_pool(self._cluster)
            elif outcome == state.NEEDS_KEYS:
                self._cluster = more_keys(self._cluster)
            elif outcome == state.NEEDS_TRACE:
                self._cluster = state.larger_trace(self._cluster)
            elif outcome == state.COMPLETED:
                self._complete()
                if or_complete:
                    return
            else:
                return

    def slow_down(self, operator: str, slowdown: Sequence[float]) -> None:
        """From the next tuples on, the operator's service times are multiplied by these, one an instance."""
        rows = self._cluster.instances[self._layout.instances_of(self.scenario.operator(operator).name)]
        if len(slowdown) != len(rows) or min(slowdown) <= 0:
            raise OptionError(f"slowdown of {operator!r} needs {len(rows)} numbers above 0, got {list(slowdown)}")
        rows["slowdown"] = slowdown

    def set_weights(self, weights: Weights) -> None:
        """From now on edges that deal tuples out in turn do so in these proportions; the others keep theirs.

        They stay over failures, and over restarts that leave the receiver as many instances as it has.
        """
        self._weights = more_weights(self.scenario, self._weights, weights)
        self._cluster = dealing_out(self._cluster, self._layout, self._weights)

    def pause(self, seconds: float) -> None:
        """Everything stands still for so many seconds but the logs, which grow."""
        if not 0 <= seconds < np.inf:
            raise OptionError(f"a pause is 0 or more seconds long, got {seconds!r}")
        stand_still(self._cluster, seconds)

    def checkpoint(self, seconds: float = 0.0) -> None:
        """Take a snapshot of the whole cluster, for which everything stands still for so many seconds."""
        self._require_none_under_way()
        self._snapshot = self._taken()
        self.pause(seconds)

    def send_markers(self, snapshot: float = 0.0, per_kept: float = 0.0) -> None:
        """Begin a checkpoint with markers (see `Checkpoints`); it is complete some time later, while all goes on.

        Parameters
        ----------
        snapshot
            Seconds that an instance works on its own.
        per_kept
            Seconds more for each tuple that it keeps.
        """
        for name, value in (("snapshot", snapshot), ("per_kept", per_kept)):
            if not 0 <= value < np.inf:
                raise OptionError(f"{name} must be 0 or more seconds, got {value!r}")
        self._require_none_under_way()
        self._require_nothing_that_markers_cannot_save()
        cluster = self._cluster
        logs = tuple(log.state() for log in self._logs)
        aligned = float(cluster.instances["aligned"].sum())
        self._under_way = UnderWay(self.now, aligned, int(cluster.counters[state.MARKERS]), logs)
        call_sources(cluster, snapshot, per_kept)

    def _require_none_under_way(self) -> None:
        if self._under_way:
            since = self._under_way.started
            raise OptionError(f"a checkpoint with markers is under way since {since:g} s: advance until it is complete")

    def _require_nothing_that_markers_cannot_save(self) -> None:
        if self.scenario.cyclic:
            raise OptionError(
                "markers cannot go round a cycle: an instance would wait for its own; take checkpoints without markers"
            )
        for vertex in self.scenario.operators:
            if vertex.window:
                raise OptionError(
                    f"window of {vertex.name!r}: checkpoints with markers do not hold windows with results; take them "
                    "without markers"
                )

    def _complete(self) -> None:
        """Every instance has taken its snapshot: a failure goes back to it."""
        begun, cluster = self._under_way, self._cluster
        assert begun is not None
        self._snapshot = Aligned(cluster.sources.copy(), cluster.instances.copy(), begun.logs)
        chunk = cluster.log_times.shape[1]
        self._checkpoints.append(
            {
                "started": begun.started,
                "completed": self.now,
                "seconds": self.now - begun.started,
                "aligned_seconds": float(cluster.instances["aligned"].sum()) - begun.aligned,
                "markers": int(cluster.counters[state.MARKERS]) - begun.markers,
                "read": int((cluster.sources["saved_chunk"] * chunk + cluster.sources["saved_at"]).sum()),
            }
        )
        self._under_way = None

    def fail(self, downtime: float = 0.0) -> None:
        """Lose everything; after so many seconds go on from the last checkpoint, or from the start.

        Sources read again from where they were, so rows since then are processed twice, and what came out of them
        comes out twice. Metrics count both. A tuple that was in service at the checkpoint is served a second time
        from there on. A checkpoint with markers that is under way is lost; to what a complete one leads back,
        `Checkpoints` tells.
        """
        full = self.exhausted
        self._failures.append(
            {
                "time": self.now,
                "reason": "asked" if full is None else "memory",
                "machine": state.NONE if full is None else full,
                "downtime_seconds": downtime,
            }
        )
        self._under_way = None
        saved = self._snapshot
        for log, kept in zip(self._logs, saved.logs, strict=True):
            log.restore(kept)
        if isinstance(saved, Snapshot):
            self._cluster = back_to(saved.cluster, self._cluster)
            self._routers.restore(saved.routers)
            self._grouped.restore(saved.groupings)
        else:
            fresh = build(self._layout, self.seed, len(self._cluster.trace) > 0)
            self._cluster = back_to_markers(saved, self._cluster, fresh)
            self._routers = Routers(self._layout, self.now)
            self._messages.append(self._grouped.messages())
            self._grouped = Grouped(self._layout, self._cluster.edges)
            self._read_from(saved)
        self._cluster = dealing_out(self._cluster, self._layout, self._weights)
        self.pause(downtime)

    def _read_from(self, saved: Aligned) -> None:
        """Have the sources read from where they put their markers."""
        for (log, partition), row in zip(self._partitions, saved.sources, strict=True):
            log.seek(partition, int(row["saved_chunk"]))
        for number, row in enumerate(saved.sources):
            self._read_on(number)
            self._cluster.sources["at"][number] = row["saved_at"]

    def restart(self, scenario: Scenario, pause: float = 0.0) -> float:
        """Stop, and go on with other numbers or places of instances. Gives the seconds for which nothing was read.

        Sources stop reading, tuples under way are let out, which takes its time; then everything stands still for
        `pause` seconds, and the new instances read on. Windows stay open, and their keys move. Policies begin anew. The
        sources and their partitions must be the same; a checkpoint of the new instances is taken at once.
        """
        if not isinstance(scenario, Scenario):
            raise OptionError(f"restart goes on with a scenario, as scenario.rescaled(dict(map=8)), got {scenario!r}")
        if layout_of(scenario).sources != self._layout.sources:
            raise OptionError(
                "a restart must keep the sources and their partitions: change operators or machines only "
                "(for a policy: guards=[Bounds(own={source: (n, n)})])"
            )
        for vertex in self.scenario.operators:
            if vertex.window and not scenario.operator(vertex.name).window:
                raise OptionError(f"a restart must keep what is in windows: {vertex.name!r} has none any more")
        began, old = self.now, self._cluster
        reading = old.sources.copy()
        stop_reading(old)
        self._run(np.inf)
        while self.exhausted is not None:  # what comes out makes room
            old.counters[state.FULL_MACHINE] = state.NONE
            self._run(np.inf)
        reading["at"] = old.sources["at"]
        self.sample()
        self._traces.append(self._trace_of(self._cluster))
        self._messages.append(self._grouped.messages())
        kept = {
            vertex.name: float(old.instances["kept"][self._layout.instances_of(vertex.name)].sum())
            for vertex in self.scenario.operators
        }
        opened = open_keys(self._cluster, self._layout)
        self.scenario, self._layout = scenario, layout_of(scenario)
        self._generation += 1
        fresh = build(self._layout, self.seed + self._generation, len(old.trace) > 0)
        self._cluster = read_on_with(fresh, self._cluster, reading)
        spread_state(kept, self._cluster, self._layout)
        self._cluster = spread_keys(opened, self._cluster, self._layout)
        self._weights = held_weights(scenario, self._weights)
        self._cluster = dealing_out(self._cluster, self._layout, self._weights)
        self._routers = Routers(self._layout, self.now)
        self._grouped = Grouped(self._layout, self._cluster.edges)
        self._sampler.move_to(self._layout)
        self._snapshot = self._taken()
        self.pause(pause)
        return self.now - began

    def _taken(self) -> Snapshot:
        logs = tuple(log.state() for log in self._logs)
        return Snapshot(copy_of(self._cluster), self._routers.states(), self._grouped.state(), logs)

    def sample(self) -> None:
        """Close an interval of the metrics: `result` has a row for it, from the sample before until now."""
        self._sampler.sample(self._cluster)

    def observe(self) -> Observation:
        """The interval since the last look, which is closed; at the same moment again, the same."""
        self.sample()
        weights = held_weights(self.scenario, self._weights)
        return replace(self._sampler.observed(self.scenario), weights=weights or None)

    def apply(self, action: Action) -> float:
        """Stop, and go on with other numbers of instances; how long nothing was read. Other weights hold at once."""
        action.require_only(self.what, "parallelism", "weights")
        then = rescaled_by(self.scenario, action)
        pause = self.restart(then, self.downtime) if action.parallelism else 0.0
        self.set_weights(action.weights)
        return pause

    def trace(self) -> pa.Table:
        """Every tuple that left the cluster: `operator`, `instance`, `item`, `born` and `done`, in seconds."""
        return pa.concat_tables([*self._traces, self._trace_of(self._cluster)])

    def _trace_of(self, cluster: state.Cluster) -> pa.Table:
        return self._sampler.trace(cluster.trace[: cluster.counters[state.TRACED]])

    def result(self) -> SimulationResult:
        """All that was sampled so far; where nothing was, all until now."""
        if not self._sampler.samples:
            self.sample()
        if not self._told:
            tell_like_hash(self._routers.like_hash())
            self._told = True
        result = self._sampler.result(self.scenario, self.seed, self.now, self.events)
        messages = summed([*self._messages, self._grouped.messages()])
        checkpoints = pa.Table.from_pylist(self._checkpoints, schema=CHECKPOINTS)
        failures = pa.Table.from_pylist(self._failures, schema=FAILURES)
        return replace(result, checkpoints=checkpoints, messages=messages, failures=failures)

    def _read_on(self, number: int) -> None:
        """Give a source the next rows of its log."""
        log, partition = self._partitions[number]
        chunk = log.next_rows(partition)
        source = self._cluster.sources[number]
        rows = len(chunk.times)
        self._cluster.log_times[number, :rows] = chunk.times
        self._cluster.log_items[number, :rows] = chunk.items
        self._cluster.log_keys[number, :rows] = chunk.keys
        source["at"], source["end"] = 0, rows
        source["chunk"] = log.position(partition, 0) // self._cluster.log_times.shape[1]
        source["ended"] = rows < self._cluster.log_times.shape[1]
