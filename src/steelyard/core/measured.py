"""A cluster whose placements are measured, simulated or real, and the policies that choose them.

`deploy` puts an assignment into force, time goes on with `run`, `measure` tells what tuples took meanwhile. A policy of
placement sees a `Setup` and a `Reading`, and gives an `Action`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from steelyard.core.control import Action, InstanceObservation, Observation, OperatorObservation, WorkerObservation
from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats

READINGS, EVERY, SETTLING = 5, 10.0, 600.0
"""A placement is judged by five readings, ten seconds apart, when what deploying stirred up has settled."""


@dataclass(frozen=True)
class Reading:
    """What was measured over some seconds.

    Parameters
    ----------
    time, seconds
        When it ended, in the cluster's own time, and how long it was.
    assignment
        int64[threads]: the machine of each thread, -1 for one that does not run; see `Setup`.
    times
        float64[applications]: mean seconds of a tuple from the source that emits it until all that it became is done;
        NaN where no tuple was done.
    throughput
        float64[applications]: source tuples done per second.
    arrivals
        float64[applications]: source tuples that came per second; w of the papers.
    processed
        float64[threads]: tuples that each thread took (that a thread of a source emitted).
    """

    time: float
    seconds: float
    assignment: Ints
    times: Floats
    throughput: Floats
    arrivals: Floats
    processed: Floats

    @property
    def reward(self) -> float:
        """The sum of the applications' times, negative: what learners want high."""
        return -float(self.times.sum())

    def observation(self, setup: Setup) -> Observation:
        """As any engine shows it."""
        rate = self.processed / max(self.seconds, 1e-9)
        operators = []
        for number, one in enumerate(setup.operators):
            first = int(setup.first[number])
            running = int((self.assignment[first : int(setup.first[number + 1])] >= 0).sum())
            each = [
                InstanceObservation(f"{one.name}#{at}", processed_per_second=float(rate[first + at]))
                for at in range(running)
            ]
            senders = {edge.sender: float(np.nan) for edge in setup.into(one.name)}
            operators.append(OperatorObservation.of(one.name, each, senders))
        workers = tuple(WorkerObservation(at, 0.0, host.cores) for at, host in enumerate(setup.hosts))
        return Observation(
            self.time, self.seconds, tuple(operators), placement=setup.where(self.assignment), workers=workers
        )


def together(readings: list[Reading]) -> Reading:
    """Several readings as one: the mean time of all tuples, each reading counted by its tuples."""
    last, seconds = readings[-1], sum(one.seconds for one in readings)
    done = np.array([one.throughput * one.seconds for one in readings])
    sums = np.where(done > 0, np.nan_to_num(np.array([one.times for one in readings])) * done, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = np.where(done.sum(axis=0) > 0, sums / done.sum(axis=0), np.nan)
    return Reading(
        last.time,
        seconds,
        last.assignment,
        times,
        done.sum(axis=0) / seconds,
        np.sum([one.arrivals * one.seconds for one in readings], axis=0) / seconds,
        np.sum([one.processed for one in readings], axis=0),
    )


TRANSFER = np.dtype(
    [("tuple_id", "i8"), ("root_id", "i8"), ("edge", "i4"), ("sender", "i4"), ("receiver", "i4"),
     ("sender_machine", "i4"), ("receiver_machine", "i4"), ("sent", "f8"), ("received", "f8"), ("schedule", "i4")]
)  # fmt: skip
"""A hop of a tuple: from when its sender put it out until its receiver began with it, each by its machine's clock.
`edge` is the number of the stream in the setup, `sender` and `receiver` are threads, `schedule` the number of the
deployment."""
PROCESS = np.dtype(
    [("tuple_id", "i8"), ("root_id", "i8"), ("component", "i4"), ("thread", "i4"), ("machine", "i4"),
     ("began", "f8"), ("ended", "f8"), ("schedule", "i4")]
)  # fmt: skip
"""The work of a thread on a tuple, by its machine's clock."""
ACK = np.dtype([("root_id", "i8"), ("application", "i4"), ("emitted", "f8"), ("acked", "f8"), ("schedule", "i4")])
"""A source tuple, from its emission until all that it became is done; both by the clock of the source's machine."""


class Records(NamedTuple):
    """What was recorded of single tuples: arrays of the three types above, in no particular order."""

    transfer: np.ndarray[Any, np.dtype[Any]]
    process: np.ndarray[Any, np.dtype[Any]]
    ack: np.ndarray[Any, np.dtype[Any]]


@runtime_checkable
class Measured(Protocol):
    """A cluster that has applications deployed on it; both levels of the simulator are one."""

    @property
    def setup(self) -> Setup:
        """Applications and machines."""
        ...

    @property
    def assignment(self) -> Ints:
        """int64[threads]: what is in force."""
        ...

    @property
    def now(self) -> float:
        """Seconds since it began, in its own time."""
        ...

    @property
    def rates(self) -> Floats:
        """float64[applications]: source tuples per second that come now."""
        ...

    def deploy(self, assignment: Ints) -> int:
        """Put an assignment into force, moving only threads that differ; how many those were."""
        ...

    def scale_rates(self, factor: float) -> None:
        """From now on so many times as many source tuples come as at the start."""
        ...

    def run(self, seconds: float) -> None:
        """Let time go on, without a look."""
        ...

    def measure(self, seconds: float = EVERY) -> Reading:
        """Let time go on, and tell what happened meanwhile."""
        ...


class Fast(Measured, Protocol):
    """A cluster that can tell of many placements at once what their times will be."""

    def times(self, assignments: Ints, rates: Floats | None = None) -> Floats:
        """Stable mean tuple times in seconds, without noise: float64[B, applications] for int64[B, threads].

        Rates are float64[applications], those of now where they are not given. Always finite: a placement that cannot
        keep up has a time that grows with what it lacks.
        """
        ...

    def times_of_counts(self, counts: Ints, rates: Floats | None = None) -> Floats:
        """The same for int64[B, components, machines] of numbers of threads."""
        ...


class Recorded(Measured, Protocol):
    """A cluster that records single tuples, by clocks of its machines that differ."""

    def record(self, share: float = 1.0) -> None:
        """Record this share of all source tuples and what they become from now on; 0 ends it."""
        ...

    def records(self) -> Records:
        """What was recorded since the last call."""
        ...

    def exchange(self, machine: int, times: int = 1) -> Floats:
        """float64[times, 4]: the clocks of a two-way exchange between the master and a machine: t1, t2, t3, t4.

        The master sends at t1, the machine receives at t2 and answers at t3, the master receives at t4, each by its own
        clock. The master's clock is the cluster's `now`.
        """
        ...


def settled(cluster: Measured, assignment: Ints, settle: float = SETTLING, readings: int = READINGS) -> Reading:
    """Deploy, wait until what that stirred up has settled, and measure as the papers do: so many readings, averaged."""
    cluster.deploy(assignment)
    cluster.run(settle)
    return together([cluster.measure(EVERY) for _ in range(readings)])


@runtime_checkable
class PlacementPolicy(Protocol):
    """Chooses the machine of each thread, and, if it can, how many threads there are.

    One that must learn before it can say anything also has `train` (`Trainable`). What it learnt it writes to a file
    with `save`, from which its option `file` takes it; one without such a file, and any other that has a memory, has
    `state` and `restore` (`core.policies.Learning`).
    """

    name: ClassVar[str]

    def place(self, setup: Setup, seen: Reading) -> Action:
        """Called after each reading: what shall be different, and why, in words. Nothing, where all is well.

        The action names only threads that differ from `seen.assignment` (`Setup.action` makes it). A policy that has
        not learnt what it needs gives an action that is nothing, whose reason says so, and never a guess.
        """
        ...


@runtime_checkable
class Trainable(Protocol):
    """A policy that learns on a cluster before it is used."""

    def train(self, cluster: Measured, seed: int) -> None:
        """Learn on a cluster: deploy there, measure, and remember. The assignment that it leaves there is any."""
        ...


class UntrainedError(OptionError):
    """A policy that learns was asked for what only a trained one knows."""


@dataclass
class Placed:
    """What a policy did to a cluster, look by look."""

    readings: list[Reading] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)


def placed_by(policy: PlacementPolicy, cluster: Measured, looks: int = 1, seconds: float = EVERY) -> Placed:
    """A policy in charge of a cluster: measure, ask, deploy what it says, so many times."""
    found = Placed()
    for _ in range(looks):
        seen = cluster.measure(seconds)
        action = policy.place(cluster.setup, seen)
        found.readings.append(seen)
        found.actions.append(action)
        assignment = cluster.setup.assignment(action, cluster.assignment)
        found.moved.append(cluster.deploy(assignment) if not action.is_nothing else 0)
    return found
