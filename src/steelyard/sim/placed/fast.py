"""The fast level of a placed cluster: mean tuple times by formulas, for many placements at once."""

from __future__ import annotations

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.measured import EVERY, Reading
from steelyard.core.placing import NOWHERE, Setup
from steelyard.core.plans import Floats
from steelyard.kernels.placed_times import placed_times, room_for
from steelyard.sim.placed.costs import Deployed, require_above_0


class FastCluster:
    """A placed cluster whose times come from formulas; a reading has the noise of one, and threads warm up.

    There are no queues: the throughput of a reading is always the arrivals, also where threads or cores cannot keep up;
    the times say that. Tuples that senders direct count as shuffled. There is one process of each application on a
    machine.

    Parameters
    ----------
    deployed
        Applications with costs on machines.
    assignment
        What is in force at the start, cold; round robin where it is not given.
    seed
        Of the noise.

    Examples
    --------
    >>> from steelyard.sim.placed.frozen import deployed
    >>> cluster = FastCluster(deployed("cq-small"))
    >>> cluster.times(cluster.setup.round_robin()[None]).shape
    (1, 1)
    """

    def __init__(self, deployed: Deployed, assignment: Ints | None = None, seed: int = 0) -> None:
        if deployed.costs.processes > 1:
            raise OptionError(
                f"formulas have one process of an application on a machine, got processes={deployed.costs.processes}: "
                "use ExactCluster"
            )
        self.deployed, self.setup = deployed, deployed.setup
        self.assignment = self.setup.checked(self.setup.round_robin() if assignment is None else assignment)
        self.now = 0.0
        self._factor = 1.0
        self._since = np.zeros(self.setup.threads)
        self._rng = np.random.default_rng(seed)
        self._room = room_for(len(self.setup.operators), self.setup.machines, self.setup.threads)

    setup: Setup
    assignment: Ints
    now: float

    @property
    def rates(self) -> Floats:
        """float64[applications]: source tuples per second that come now."""
        return self.deployed.rates * self._factor

    def scale_rates(self, factor: float) -> None:
        """From now on so many times as many source tuples come as at the start."""
        require_above_0("a factor of rates", factor)
        self._factor = factor

    def times(self, assignments: Ints, rates: Floats | None = None) -> Floats:
        """float64[B, applications] for int64[B, threads]: stable mean tuple times in seconds, without noise."""
        given = np.ascontiguousarray(assignments, dtype=np.int64)
        if given.ndim != 2 or given.shape[1] != self.setup.threads:
            raise OptionError(f"assignments have the shape (B, {self.setup.threads}), got {given.shape}")
        if len(given) and (given.min() < NOWHERE or given.max() >= self.setup.machines):
            raise OptionError(f"assignments name machines from 0 to {self.setup.machines - 1}, or {NOWHERE}")
        if (given[:, self.setup.first[:-1]] < 0).any():
            raise OptionError("every component needs its first thread: an assignment leaves one out")
        same = self.setup.component_of[1:] == self.setup.component_of[:-1]
        holes = np.argwhere(same & (given[:, :-1] < 0) & (given[:, 1:] >= 0))
        if len(holes):
            row, thread = holes[0].tolist()
            raise OptionError(
                f"threads of a component that run must be its first: in assignment {row}, "
                f"{str(self.setup.possible[thread + 1])!r} runs and {str(self.setup.possible[thread])!r} does not"
            )
        out = np.zeros((len(given), len(self.setup.applications)))
        now = self.rates if rates is None else self._checked_rates(rates)
        placed_times(self.deployed.placing, given, now, *self._room, out)
        return out

    def _checked_rates(self, rates: Floats) -> Floats:
        found = np.array(rates, dtype=np.float64)
        if found.shape != (len(self.setup.applications),):
            raise OptionError(f"rates are one for each of {len(self.setup.applications)} applications, got {rates!r}")
        for one in found.tolist():
            require_above_0("a rate of source tuples", one)
        return found

    def times_of_counts(self, counts: Ints, rates: Floats | None = None) -> Floats:
        """The same for int64[B, components, machines] of numbers of threads."""
        given = np.asarray(counts, dtype=np.int64)
        shape = (len(self.setup.operators), self.setup.machines)
        if given.ndim != 3 or given.shape[1:] != shape or (given < 0).any():
            raise OptionError(
                f"counts are numbers of 0 or more of the shape (B, {shape[0]}, {shape[1]}), got {counts!r}"
            )
        wrong = np.argwhere(given.sum(axis=2) > self.setup.most)
        if len(wrong):
            row, number = wrong[0].tolist()
            one, running = self.setup.operators[number], int(given[row, number].sum())
            raise OptionError(f"{one.name!r} has at most {one.most} threads, got {running} in counts {row}")
        found = np.full((len(given), self.setup.threads), NOWHERE, dtype=np.int64)
        # thread number k of a component is on the machine where the running total of threads first passes k
        ends = np.cumsum(given, axis=2)
        for number in range(len(self.setup.operators)):
            first, most = int(self.setup.first[number]), int(self.setup.most[number])
            threads = np.arange(most)
            at = (ends[:, number, :, None] <= threads).sum(axis=1)
            found[:, first : first + most] = np.where(at < self.setup.machines, at, NOWHERE)
        return self.times(found, rates)

    def deploy(self, assignment: Ints) -> int:
        """Put an assignment into force, moving only threads that differ; how many those were. They are cold."""
        wanted = self.setup.checked(assignment)
        moved = self.setup.moved(self.assignment, wanted)
        self._since[(wanted != self.assignment) & (wanted >= 0)] = self.now
        self.assignment = wanted
        return moved

    def run(self, seconds: float) -> None:
        """Let time go on, without a look."""
        require_above_0("seconds to run", seconds)
        self.now += seconds

    def measure(self, seconds: float = EVERY) -> Reading:
        """Let time go on, and tell what happened meanwhile."""
        require_above_0("seconds of a reading", seconds)
        middle = self.now + seconds / 2
        self.now += seconds
        stable = self.times(self.assignment[None])[0]
        warm = self.deployed.costs
        runs = self.assignment >= 0
        cold = np.where(runs, np.exp(-(middle - self._since) / warm.warm), 0.0)
        owner = self.setup.application_of[self.setup.component_of]
        applications = len(self.setup.applications)
        share = np.bincount(owner, cold, applications) / np.bincount(owner, runs, applications)
        noise = np.exp(self._rng.normal(0.0, warm.noise * np.sqrt(EVERY / seconds), applications))
        processed = self._processed() * seconds
        return Reading(
            self.now,
            seconds,
            self.assignment.copy(),
            stable * (1.0 + warm.cold * share) * noise,
            self.rates.copy(),
            self.rates.copy(),
            processed,
        )

    def _processed(self) -> Floats:
        """float64[threads]: tuples per second that come to each thread."""
        placing, setup = self.deployed.placing, self.setup
        running = setup.parallelism_of(self.assignment)
        found = np.zeros(setup.threads)
        visits = np.zeros(len(setup.operators))
        for number in range(len(visits)):
            first, count = int(setup.first[number]), int(running[number])
            if placing.source[number]:
                own = (placing.source > 0) & (placing.application == placing.application[number])
                visits[number] = self.rates[placing.application[number]] * count / running[own].sum()
            for edge in range(placing.first_edge[number], placing.first_edge[number + 1]):
                receiver = placing.receiver[edge]
                copies = running[receiver] if placing.grouping[edge] == 2 else 1
                visits[receiver] += visits[number] * placing.outputs[edge] * copies
            shares = np.full(count, 1.0 / count)
            if placing.first_share[number] >= 0:
                begin = placing.first_share[number] + count * (count - 1) // 2
                shares = placing.shares[begin : begin + count]
            found[first : first + count] = visits[number] * shares
        return found
