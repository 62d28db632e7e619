"""The exact level of a placed cluster: threads, processes and machines, tuple by tuple."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import ACK, EVERY, PROCESS, TRANSFER, Reading, Records
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats
from steelyard.kernels.event_heap import cancel, event_heap, schedule
from steelyard.kernels.placed_loop import fly, retime, run_placed
from steelyard.kernels.placed_running import (
    ACKS,
    BEGUN,
    COUNTERS,
    EVENTS,
    FREE_ROOT,
    FREE_TUPLE,
    MACHINE,
    NEEDS_RECORDS,
    NONE,
    PROCESSES_DONE,
    REACHED,
    ROOT,
    ROOTS_LEFT,
    SCHEDULE,
    THREAD,
    TRANSFERS,
    TUPLE,
    TUPLES_LEFT,
    Running,
    free_rows,
    with_more_room,
)
from steelyard.sim.placed.clocks import Clocks
from steelyard.sim.placed.costs import Deployed

_ROOM = 4096
_RECORDS = 200_000
"""Rows of each kind that are kept in the loop's own arrays before they are put aside."""


class ExactCluster:
    """A placed cluster, tuple by tuple.

    Parameters
    ----------
    deployed
        Applications with costs on machines.
    assignment
        What is in force at the start, cold; round robin where it is not given.
    seed
        Of arrivals, work, keys, noise and clocks: two runs with the same do the same.
    clocks
        Of the machines; without drift and offset where it is not given.
    noise
        Whether readings are off by the noise of one, beside what is left to chance anyway.
    warm
        Whether threads are warm at the start.

    Examples
    --------
    >>> from steelyard.sim.placed.frozen import deployed
    >>> cluster = ExactCluster(deployed("cq-small"), seed=1)
    >>> cluster.run(1.0)
    >>> reading = cluster.measure(5.0)
    >>> bool(1200 < reading.throughput[0] < 1500)
    True
    """

    setup: Setup
    assignment: Ints

    def __init__(
        self,
        deployed: Deployed,
        assignment: Ints | None = None,
        seed: int = 0,
        clocks: Clocks | None = None,
        *,
        noise: bool = True,
        warm: bool = False,
    ) -> None:
        self.deployed, self.setup = deployed, deployed.setup
        self._rng = np.random.default_rng(seed)
        self.clocks = clocks or Clocks.perfect(self.setup.machines)
        self._factor = 1.0
        self._noise = deployed.costs.noise if noise else 0.0
        self._kept: list[Records] = []
        self._state = self._begin(seed)
        self._needed = self._most_sent()
        self.assignment = self.setup.checked(self.setup.round_robin() if assignment is None else assignment)
        self._place(self.assignment, np.ones(self.setup.threads, dtype=np.bool_))
        if warm:
            self._state.threads["since"] = -np.inf
        self._seen = self._totals()

    def _begin(self, seed: int) -> Running:
        setup, placing = self.setup, self.deployed.placing
        threads = np.zeros(setup.threads, THREAD)
        threads["component"] = setup.component_of
        threads["number"] = [one.number for one in setup.possible]
        threads["machine"] = threads["head"] = threads["tail"] = threads["serving"] = NONE
        threads["random"] = np.random.default_rng([seed, 1]).integers(0, 2**63, setup.threads, dtype=np.uint64)
        threads["process"] = threads["number"] % self.deployed.costs.processes
        counters = np.zeros(COUNTERS, dtype=np.int64)
        counters[[TUPLES_LEFT, ROOTS_LEFT]] = _ROOM
        counters[[FREE_TUPLE, FREE_ROOT]] = 0
        counters[SCHEDULE] = NONE
        tables = self.deployed.key_tables
        components, edges = len(setup.operators), len(setup.edges)
        machines = np.zeros(setup.machines, MACHINE)
        out_edges = int(np.diff(placing.first_edge).max()) if edges else 1
        return Running(
            placing=placing,
            threads=threads,
            pool=free_rows(TUPLE, _ROOM),
            roots=free_rows(ROOT, _ROOM),
            machines=machines,
            running=np.zeros((setup.machines, setup.threads), dtype=np.int64),
            running_threads=np.zeros(components, dtype=np.int64),
            elsewhere=np.zeros((components, setup.machines), dtype=np.int64),
            used=np.zeros(len(setup.applications), dtype=np.int64),
            turns=np.tile(threads["number"].astype(np.int64)[:, None], (1, max(out_edges, 1))),
            keys=np.concatenate([np.cumsum(table) for table in tables]),
            first_key=np.cumsum([0, *(len(table) for table in tables)]),
            due=np.zeros(_ROOM),
            flying=np.zeros(_ROOM, dtype=np.int64),
            acked=np.zeros((3, len(setup.applications))),
            spent=np.zeros((2, components)),
            crossed=np.zeros((2, max(edges, 1))),
            transfers=np.zeros(8, TRANSFER),
            processes=np.zeros(8, PROCESS),
            acks=np.zeros(8, ACK),
            share=np.zeros(1),
            counters=counters,
            now=np.zeros(1),
            heap=event_heap(setup.machines + setup.threads),
        )

    def _most_sent(self) -> int:
        """The most tuples that one event can make."""
        setup, placing = self.setup, self.deployed.placing
        most = 0
        for number in range(len(setup.operators)):
            sent = 0
            for edge in range(placing.first_edge[number], placing.first_edge[number + 1]):
                copies = int(setup.most[placing.receiver[edge]]) if placing.grouping[edge] == 2 else 1
                sent += (int(placing.outputs[edge]) + 1) * copies
            most = max(most, sent)
        return most + 2

    # ---- deployment

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return float(self._state.now[0])

    @property
    def events(self) -> int:
        """Events so far."""
        return int(self._state.counters[EVENTS])

    @property
    def rates(self) -> Floats:
        """float64[applications]: source tuples per second that come now."""
        return self.deployed.rates * self._factor

    def scale_rates(self, factor: float) -> None:
        """From now on so many times as many source tuples come as at the start."""
        if not 0 < factor < np.inf:
            raise OptionError(f"rates are scaled by a factor above 0, got {factor!r}")
        self._factor = factor
        self._time_sources()

    def deploy(self, assignment: Ints) -> int:
        """Put an assignment into force, moving only threads that differ; how many those were.

        A thread that moves takes its queue along, goes on with its tuple, and is cold. What waits for a thread that
        ends goes to another of its component.
        """
        wanted = self.setup.checked(assignment)
        differ = wanted != self.assignment
        moved = self.setup.moved(self.assignment, wanted)
        if differ.any():
            self.assignment = wanted
            self._place(wanted, differ)
        return moved

    def _place(self, assignment: Ints, differ: Any) -> None:
        state, setup, costs = self._state, self.setup, self.deployed.costs
        left = self._interrupt((state.threads["machine"] >= 0) & (assignment < 0))
        state.counters[SCHEDULE] += 1
        state.threads["machine"] = assignment
        state.threads["since"][differ] = self.now
        state.running_threads[:] = setup.parallelism_of(assignment)
        counts = setup.counts(assignment)
        state.elsewhere[:] = state.running_threads[:, None] - counts
        owner = setup.application_of[setup.component_of]
        runs = assignment >= 0
        process = owner * costs.processes + state.threads["process"]
        crowd = np.unique(np.stack([process[runs], assignment[runs]]), axis=1)[1]
        there = np.bincount(crowd, minlength=setup.machines)
        for number in range(len(setup.applications)):
            state.used[number] = len(np.unique(assignment[runs & (owner == number)]))
        state.machines["slow"] = 1.0 + costs.crowding * np.maximum(there - 1, 0)
        threads = np.bincount(assignment[runs], minlength=setup.machines)
        state.machines["cores"] = np.maximum(self.deployed.placing.cores - costs.thread_cpu * threads, 0.1)
        self._time_sources()
        self._resume()
        for number, record in left:  # at once, over no network
            state.pool["dest"][record] = number
            fly(state, record, self.now)

    def _interrupt(self, ends: Any) -> list[tuple[int, int]]:
        """Take all threads off their machines, and those that end off their tuples: which, and whose they were.

        What a thread has still to work, `finish` says from now on: clocks of machines begin anew.
        """
        state, now = self._state, self.now
        threads, machines = state.threads, state.machines
        for number in range(self.setup.machines):
            cancel(state.heap, number)
        passed = now - machines["at"]
        machines["clock"] += machines["rate"] * passed
        machines["used"] += machines["rate"] * machines["active"] * passed
        busy = threads["serving"] >= 0
        threads["finish"][busy] -= machines["clock"][threads["machine"][busy]]
        machines["active"] = 0
        machines["rate"] = machines["clock"] = 0.0
        machines["at"] = now
        found: list[tuple[int, int]] = []
        for number in np.flatnonzero(ends).tolist():
            if threads["serving"][number] >= 0:
                record = int(threads["serving"][number])
                state.pool["remote"][record] = BEGUN
                found.append((number, record))
            record = int(threads["head"][number])
            while record != NONE:
                found.append((number, record))
                record = int(state.pool["next"][record])
            threads["head"][number] = threads["tail"][number] = threads["serving"][number] = NONE
            threads["queued"][number] = 0
        return found

    def _resume(self) -> None:
        """Threads go on with their tuples, each on its machine."""
        state = self._state
        for number in np.flatnonzero(state.threads["serving"] >= 0).tolist():
            machine = state.machines[state.threads["machine"][number]]
            state.running[state.threads["machine"][number], machine["active"]] = number
            machine["active"] += 1
        for number in range(self.setup.machines):
            retime(state, number)

    def _time_sources(self) -> None:
        state, setup = self._state, self.setup
        source = state.placing.source[setup.component_of] > 0
        owner = setup.application_of[setup.component_of]
        for number in range(len(setup.applications)):
            mine = source & (owner == number) & (self.assignment >= 0)
            for thread in np.flatnonzero(source & (owner == number)).tolist():
                every = mine.sum() / self.rates[number] if mine[thread] else 0.0
                state.threads["every"][thread] = every
                if every > 0:
                    wait = float(self._rng.exponential(every))
                    schedule(state.heap, setup.machines + thread, self.now + wait)

    # ---- time

    def run(self, seconds: float) -> None:
        """Let time go on, without a look."""
        self._advance(seconds)
        self._seen = self._totals()

    def _advance(self, seconds: float) -> None:
        until = self.now + seconds
        while (outcome := run_placed(self._state, until, self._needed)) != REACHED:
            if outcome == NEEDS_RECORDS:
                self._put_aside()
            else:
                self._state = with_more_room(self._state)

    def measure(self, seconds: float = EVERY) -> Reading:
        """Let time go on, and tell what happened meanwhile."""
        before = self._seen
        self._advance(seconds)
        after = self._seen = self._totals()
        acked, times, emitted = after[0] - before[0]
        noise = np.exp(self._rng.normal(0.0, self._noise * np.sqrt(EVERY / seconds), len(self.setup.applications)))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(acked > 0, times / acked, np.nan)
        return Reading(
            self.now,
            seconds,
            self.assignment.copy(),
            mean * noise,
            acked / seconds,
            emitted / seconds,
            (after[1] - before[1]).astype(np.float64),
        )

    def _totals(self) -> tuple[Floats, Ints]:
        return self._state.acked.copy(), self._state.threads["processed"].copy()

    @property
    def processing(self) -> Floats:
        """float64[components]: mean seconds from begin to end of a tuple's work, since the start."""
        return np.asarray(self._state.spent[1] / np.maximum(self._state.spent[0], 1.0))

    @property
    def transfer(self) -> Floats:
        """float64[edges of the setup]: mean seconds from sending until the receiver begins, since the start."""
        found = np.zeros(len(self.setup.edges))
        crossed = self._state.crossed[:, : len(found)]
        found[self.deployed.edge_order] = crossed[1] / np.maximum(crossed[0], 1.0)
        return found

    @property
    def under_way(self) -> int:
        """Source tuples that are emitted and not done."""
        return int(self._state.acked[2].sum() - self._state.acked[0].sum())

    @property
    def used_cores(self) -> Floats:
        """float64[machines]: processor seconds of each machine's threads since the start, without their overhead."""
        return np.array(self._state.machines["used"])

    # ---- records

    def record(self, share: float = 1.0) -> None:
        """Record this share of all source tuples and what they become from now on; 0 ends it."""
        if not 0 <= share <= 1:
            raise OptionError(f"a share of source tuples is from 0 to 1, got {share!r}")
        if share and len(self._state.acks) < _RECORDS:
            self._put_aside()
            self._state = self._state._replace(
                transfers=np.zeros(_RECORDS, TRANSFER),
                processes=np.zeros(_RECORDS, PROCESS),
                acks=np.zeros(_RECORDS, ACK),
            )
        self._state.share[0] = share

    def _put_aside(self) -> None:
        state, kept = self._state, []
        for rows, position in ((state.transfers, TRANSFERS), (state.processes, PROCESSES_DONE), (state.acks, ACKS)):
            kept.append(rows[: state.counters[position]].copy())
            state.counters[position] = 0
        self._kept.append(Records(*kept))

    def records(self) -> Records:
        """What was recorded since the last call, by the clocks of the machines."""
        self._put_aside()
        kept, self._kept = self._kept, []
        transfer, process, ack = (np.concatenate(rows) for rows in zip(*kept, strict=True))
        transfer["edge"] = self.deployed.edge_order[transfer["edge"]]
        transfer["sent"] = self.clocks.shown(transfer["sender_machine"], transfer["sent"])
        transfer["received"] = self.clocks.shown(transfer["receiver_machine"], transfer["received"])
        for name in ("began", "ended"):
            process[name] = self.clocks.shown(process["machine"], process[name])
        return Records(transfer, process, ack)

    def exchange(self, machine: int, times: int = 1) -> Floats:
        """float64[times, 4]: clocks of two-way exchanges between the master and a machine, one after the other."""
        if not 0 <= machine < self.setup.machines:
            raise OptionError(f"there is no machine {machine}: there are {self.setup.machines}, from 0")
        return self.clocks.exchange(machine, self.now, times, self.deployed.costs.remote, self._rng)
