"""What an application on placed threads costs, tuple by tuple, and what its cluster adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.placing import FIELDS, GROUPINGS, SHUFFLE, Component, Host, Setup, Stream, together
from steelyard.core.plans import Floats
from steelyard.kernels.placed_state import Placing

MEASURED_NOISE = 0.02
"""Of a reading of ten seconds: the standard deviation of its factor."""


@dataclass(frozen=True, kw_only=True)
class ClusterCosts:
    """What machines and the network between them take, in seconds where nothing else is said.

    Parameters
    ----------
    local
        For a tuple from thread to thread inside a process.
    process
        Between two processes on a machine.
    remote
        From machine to machine.
    per_worker
        More for a remote tuple for each further machine that its application uses: the sender goes round all of them.
    per_thread
        More for a remote tuple, on average, for each thread of the receiving component that is elsewhere: batches are
        filled and sent in turn, and the more there are the longer one waits. It waits from 0 to twice that.
    serialise
        Of a core, at each end, for a tuple that changes machines.
    thread_cpu
        Cores that each thread on a machine takes for itself, at work or not.
    crowding
        Everything on a machine takes `1 + crowding * (processes - 1)` times as long.
    cold, warm
        A thread that was just put somewhere takes `1 + cold` times as long, and so do tuples that go to it; that is
        over in about `warm` seconds: `1 + cold * exp(-age / warm)`.
    processes
        Of each application on a machine; 1, as all schedulers of the papers have it, or more as plain Storm may.
    noise
        Standard deviation of the factor by which a reading of ten seconds is off.
    """

    local: float
    process: float
    remote: float
    per_worker: float
    per_thread: float
    serialise: float
    thread_cpu: float
    crowding: float
    cold: float
    warm: float
    processes: int = 1
    noise: float = MEASURED_NOISE

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 <= value < np.inf:
                raise OptionError(f"{one.name} of a cluster must be 0 or more, got {value!r}")
        if self.processes < 1 or self.warm == 0:
            raise OptionError("a cluster has processes of at least 1, and warm above 0")

    def array(self) -> Floats:
        """As compiled loops read them."""
        names = "local process remote per_worker per_thread serialise thread_cpu crowding cold warm processes"
        return np.array([float(getattr(self, name)) for name in names.split()])


@dataclass(frozen=True)
class Unit:
    """A component with its costs.

    Parameters
    ----------
    name, threads
        What it is called, and in how many threads it runs at the start, and at most.
    seconds
        Of a core, on average, for a tuple.
    spread
        Standard deviation over mean: 0, always the same; 1, exponential.
    source
        Whether tuples begin here.
    """

    name: str
    threads: int
    seconds: float = 0.0
    spread: float = 0.5
    source: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.seconds < np.inf and 0 <= self.spread <= 1):
            raise OptionError(f"{self.name!r} needs seconds of 0 or more and a spread from 0 to 1, got {self!r}")


@dataclass(frozen=True)
class Flow:
    """An edge: each tuple of the sender becomes so many of the receiver, on average."""

    sender: str
    receiver: str
    grouping: str = SHUFFLE
    outputs: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.outputs < np.inf:
            raise OptionError(f"outputs of {self.sender} -> {self.receiver} must be above 0, got {self.outputs!r}")


@dataclass(frozen=True)
class Application:
    """An application with its costs.

    Parameters
    ----------
    units, flows
        Senders before their receivers.
    rate
        Source tuples per second; sources get it in proportion to their threads.
    keys
        How often each key comes, for the grouping by fields; the key's place is what is hashed.
    """

    units: tuple[Unit, ...]
    flows: tuple[Flow, ...]
    rate: float
    keys: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not 0 < self.rate < np.inf:
            raise OptionError(f"rate of an application must be above 0, got {self.rate!r}")

    def setup(self, hosts: Sequence[Host]) -> Setup:
        """What a policy sees of it."""
        components = [Component(one.name, one.threads, source=one.source) for one in self.units]
        streams = [Stream(one.sender, one.receiver, one.grouping) for one in self.flows]
        return Setup(tuple(components), tuple(streams), tuple(hosts))

    def with_threads(self, **threads: int) -> Application:
        """The same with other numbers of threads."""
        units = tuple(replace(one, threads=threads.get(one.name, one.threads)) for one in self.units)
        return replace(self, units=units)


@dataclass(frozen=True)
class Deployed:
    """Applications with costs on machines: what both levels of the simulator run."""

    applications: tuple[tuple[str, Application], ...]
    hosts: tuple[Host, ...]
    costs: ClusterCosts

    @classmethod
    def of(cls, application: Application, costs: ClusterCosts, machines: int = 10, times: int = 1) -> Deployed:
        """One application, or several instances of it, on machines of four cores."""
        named = tuple((f"{chr(ord('a') + number)}", application) for number in range(times))
        return cls(named, machines * (Host(),), costs)

    @cached_property
    def setup(self) -> Setup:
        """What a policy sees."""
        if len(self.applications) == 1:
            return self.applications[0][1].setup(self.hosts)
        return together([(name, one.setup(self.hosts)) for name, one in self.applications])

    @property
    def rates(self) -> Floats:
        """float64[applications]: source tuples per second at the start."""
        return np.array([one.rate for _, one in self.applications])

    @cached_property
    def key_tables(self) -> list[Floats]:
        """For each application how often its keys come, so that they add up to 1."""
        return [np.asarray(one.keys, dtype=np.float64) / sum(one.keys) for _, one in self.applications]

    @cached_property
    def placing(self) -> Placing:
        """As compiled loops read it."""
        setup = self.setup
        units = [unit for _, one in self.applications for unit in one.units]
        flows = [flow for _, one in self.applications for flow in one.flows]
        order = np.argsort(setup.links[:, 0], kind="stable") if flows else np.zeros(0, dtype=np.int64)
        senders, receivers = setup.links[order, 0], setup.links[order, 1]
        first_share, shares = self._shares()
        return Placing(
            np.array(setup.first),
            np.array(setup.application_of),
            np.array([int(one.source) for one in units]),
            np.array([one.seconds for one in units], dtype=np.float64),
            np.array([one.spread for one in units], dtype=np.float64),
            np.searchsorted(senders, np.arange(len(units) + 1)).astype(np.int64),
            receivers.astype(np.int64),
            np.array([GROUPINGS.index(flows[at].grouping) for at in order], dtype=np.int64),
            np.array([flows[at].outputs for at in order], dtype=np.float64),
            first_share,
            shares,
            np.array([float(host.cores) for host in self.hosts]),
            self.costs.array(),
        )

    @cached_property
    def edge_order(self) -> Ints:
        """int64[edges]: the number in the setup of each edge of `placing`."""
        return np.argsort(self.setup.links[:, 0], kind="stable").astype(np.int64)

    def _shares(self) -> tuple[Ints, Floats]:
        """Shares of threads that get tuples by key, or that are the only ones to get any."""
        setup = self.setup
        first = np.full(len(setup.operators), -1, dtype=np.int64)
        tables: list[Floats] = []
        for number, one in enumerate(setup.operators):
            groupings = {edge.grouping for edge in setup.into(one.name)}
            if not groupings & {FIELDS, "global"}:
                continue
            first[number] = sum(len(table) for table in tables)
            keys = self.key_tables[one.application]
            for running in range(1, one.most + 1):
                if FIELDS in groupings:
                    tables.append(
                        np.bincount(np.arange(len(keys)) % running, keys, minlength=running).astype(np.float64)
                    )
                else:
                    tables.append(np.eye(1, running)[0])
        return first, np.concatenate(tables) if tables else np.zeros(1)
