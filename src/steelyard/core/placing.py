"""Threads on machines: applications that share a cluster, and where each of their threads runs.

A `Setup` is what a placement policy knows beforehand: components in threads, streams between them, machines. An
*assignment* is an int64 array with the machine of every thread that there may be, -1 for one that does not run.
*Counts* are an int64 matrix of components and machines: how many threads of each are on each. An engine gets an
`Action`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.control import Action
from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.topology import Instance, Link, Topology, Vertex, require_operator

NOWHERE = -1
"""The machine of a thread that does not run."""
SHUFFLE, FIELDS, ALL, GLOBAL, DIRECT = GROUPINGS = ("shuffle", "fields", "all", "global", "direct")
"""How a thread chooses among those of the next component: evenly; by key; all of them; the first; as it says itself."""


@dataclass(frozen=True)
class Host:
    """A machine, as a placement policy sees it."""

    cores: float = 4
    memory_gb: float = 4.0
    slots: int = 10
    """Processes that it may have at most: one for each application with a thread on it."""

    def __post_init__(self) -> None:
        for name, least in (("cores", 0.0), ("memory_gb", 0.0), ("slots", 0.5)):
            if not getattr(self, name) > least:
                raise OptionError(f"{name} of a host must be above 0, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Component(Vertex):
    """Part of an application, in parallel threads.

    Parameters
    ----------
    name
        Unique in the setup.
    parallelism
        Threads at the start.
    most
        Threads that it may have at most, C_i of EXTRA; 0, as many as at the start.
    source
        Whether tuples begin here.
    application
        Number of its application, from 0.
    """

    name: str
    parallelism: int = 1
    most: int = 0
    source: bool = False
    application: int = 0

    def __post_init__(self) -> None:
        require_operator(self.name, self.parallelism)
        object.__setattr__(self, "most", self.most or self.parallelism)
        if self.most < self.parallelism:
            raise OptionError(f"{self.name!r} has {self.parallelism} threads, more than its most={self.most}")

    @property
    def kind(self) -> str:
        """What a picture calls it."""
        return "source" if self.source else "unit"

    @property
    def ports(self) -> int:
        """Inputs."""
        return 0 if self.source else 1


@dataclass(frozen=True)
class Stream(Link):
    """Tuples from one component to another."""

    sender: str
    receiver: str
    grouping: str = SHUFFLE
    feedback: bool = False

    def __post_init__(self) -> None:
        if self.grouping not in GROUPINGS:
            raise OptionError.unknown("grouping", self.grouping, GROUPINGS)


@dataclass(frozen=True)
class Setup(Topology[Component, Stream]):
    """Applications on machines, as a placement policy sees them.

    Parameters
    ----------
    operators
        Components of all applications, one application after the other, senders before their receivers.
    edges
        Streams between components of the same application.
    hosts
        The machines.
    applications
        What applications are called, in the order of their numbers.

    Examples
    --------
    >>> setup = Setup(
    ...     (Component("spout", 2, source=True), Component("query", 3)), (Stream("spout", "query"),), 2 * (Host(),)
    ... )
    >>> setup.round_robin()
    array([0, 1, 0, 1, 0])
    >>> setup.counts(setup.round_robin())
    array([[1, 1],
           [2, 1]])
    """

    operators: tuple[Component, ...]
    edges: tuple[Stream, ...]
    hosts: tuple[Host, ...]
    applications: tuple[str, ...] = ("application",)

    name: ClassVar[str] = "setup"  # type: ignore[misc]

    def __post_init__(self) -> None:
        self.check_graph()
        if not self.hosts:
            raise OptionError("a setup needs at least one machine: hosts is empty")
        order = [one.application for one in self.operators]
        if [number for number, _ in groupby(order)] != list(range(len(self.applications))):
            raise OptionError(
                f"components are listed one application after the other, {len(self.applications)} in all, got {order}"
            )
        place = {one.name: at for at, one in enumerate(self.operators)}
        for edge in self.edges:
            if edge.feedback or place[edge.sender] >= place[edge.receiver]:
                raise OptionError(f"edge {edge} goes backwards: applications have no cycles, list senders first")
            if self.by_name[edge.sender].application != self.by_name[edge.receiver].application:
                raise OptionError(f"edge {edge} leads from one application to another")

    # ---- sizes and numbers

    @property
    def machines(self) -> int:
        """M."""
        return len(self.hosts)

    @cached_property
    def most(self) -> Ints:
        """int64[components]: C_i, threads of each at most."""
        return _fixed([one.most for one in self.operators])

    @cached_property
    def first(self) -> Ints:
        """int64[components + 1]: the first thread of each component; the last entry is the number of threads."""
        return _fixed([0, *np.cumsum(self.most)])

    @property
    def threads(self) -> int:
        """N: threads that there may be; an assignment is so long."""
        return int(self.first[-1])

    @cached_property
    def component_of(self) -> Ints:
        """int64[threads]: the component of each thread."""
        return _fixed(np.repeat(np.arange(len(self.operators)), self.most))

    @cached_property
    def application_of(self) -> Ints:
        """int64[components]: the application of each component."""
        return _fixed([one.application for one in self.operators])

    @cached_property
    def links(self) -> Ints:
        """int64[edges, 2]: numbers of the components that each stream joins."""
        place = {one.name: at for at, one in enumerate(self.operators)}
        return _fixed(np.array([[place[one.sender], place[one.receiver]] for one in self.edges]).reshape(-1, 2))

    @cached_property
    def possible(self) -> tuple[Instance, ...]:
        """Every thread that there may be, as an instance, in the order of an assignment."""
        return tuple(Instance(one.name, number) for one in self.operators for number in range(one.most))

    @property
    def fingerprint(self) -> str:
        """What a trained policy must agree with: components, threads, streams, and machines."""
        parts = [f"{one.application}:{one.name}:{one.most}" for one in self.operators]
        streams = [f"{one.sender}-{one.grouping}-{one.receiver}" for one in self.edges]
        hosts = [f"{one.cores:g}/{one.memory_gb:g}/{one.slots}" for one in self.hosts]
        return " ".join([*parts, "|", *streams, "|", *hosts])

    def paths(self, application: int = 0) -> list[tuple[int, ...]]:
        """All ways of an application from a source to where tuples end, as numbers of components."""
        after: dict[int, list[int]] = {}
        for sender, receiver in self.links.tolist():
            after.setdefault(sender, []).append(receiver)
        found: list[tuple[int, ...]] = []
        numbers = [at for at, one in enumerate(self.operators) if one.application == application and one.source]
        waiting: list[tuple[int, ...]] = [(number,) for number in reversed(numbers)]
        while waiting:
            way = waiting.pop()
            if way[-1] not in after:
                found.append(way)
            waiting += [(*way, onward) for onward in reversed(after.get(way[-1], []))]
        return found

    # ---- assignments

    def round_robin(self) -> Ints:
        """Storm's default: the threads of each application, in the order of components, to the machines in turn."""
        return self.dealt([one.parallelism for one in self.operators])

    def dealt(self, parallelism: ArrayLike) -> Ints:
        """Round robin with other numbers of threads of each component."""
        found = np.full(self.threads, NOWHERE, dtype=np.int64)
        at, before = 0, 0
        for number, running in enumerate(np.asarray(parallelism).tolist()):
            application = int(self.application_of[number])
            at = at if application == before else 0
            found[self.first[number] : self.first[number] + running] = np.arange(at, at + running) % self.machines
            at, before = at + running, application
        return self.checked(found)

    def parallelism_of(self, assignment: Ints) -> Ints:
        """int64[components]: threads that run."""
        return np.add.reduceat((assignment >= 0).astype(np.int64), self.first[:-1])

    def checked(self, assignment: ArrayLike) -> Ints:
        """The assignment as int64[threads]; OptionError where it is none, with what is wrong."""
        found = np.asarray(assignment)
        if found.shape != (self.threads,) or not np.issubdtype(found.dtype, np.integer):
            raise OptionError(
                f"an assignment has a whole number for each of {self.threads} threads, got {found.dtype} {found.shape}"
            )
        found = found.astype(np.int64)
        if found.min() < NOWHERE or found.max() >= self.machines:
            wrong = int(found[(found < NOWHERE) | (found >= self.machines)][0])
            raise OptionError(
                f"a thread is on machine {wrong}: there are {self.machines}, from 0 ({NOWHERE}: not at all)"
            )
        running = self.parallelism_of(found)
        for number, count in enumerate(running.tolist()):
            name, first = self.operators[number].name, int(self.first[number])
            if not count:
                raise OptionError(f"{name!r} has no thread that runs: it needs at least one")
            if (found[first : first + count] < 0).any():
                raise OptionError(f"{name!r} has {count} threads, and they must be its first: the others do not run")
        self._check_slots(found)
        return found

    def _check_slots(self, assignment: Ints) -> None:
        processes = np.bincount(self.processes(assignment) % self.machines, minlength=self.machines)
        for machine, host in enumerate(self.hosts):
            if processes[machine] > host.slots:
                raise OptionError(
                    f"machine {machine} has {host.slots} slots and would have {processes[machine]} processes, one for "
                    "each application: give it more slots, or place fewer applications there"
                )

    def feasible(self, assignments: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """bool[B]: in which of int64[B, threads] every machine has a slot for each application with a thread there."""
        slots = np.array([host.slots for host in self.hosts])
        if len(self.applications) <= slots.min():
            return np.ones(len(assignments), dtype=bool)
        rows, threads = np.nonzero(assignments != NOWHERE)
        there = np.zeros((len(assignments), len(self.applications), self.machines), dtype=bool)
        there[rows, self.application_of[self.component_of[threads]], assignments[rows, threads]] = True
        return np.asarray((there.sum(axis=1) <= slots).all(axis=1))

    def processes(self, assignment: Ints) -> Ints:
        """One process for each application and machine with threads: sorted, as application * machines + machine."""
        runs = assignment >= 0
        return np.unique(self.application_of[self.component_of[runs]] * self.machines + assignment[runs])

    # ---- counts of threads, as EXTRA has them

    def counts(self, assignment: Ints) -> Ints:
        """int64[components, machines]: how many threads of each component are on each machine.

        Also for many assignments at once: int64[B, threads] gives int64[B, components, machines].
        """
        given = np.atleast_2d(assignment)
        found = np.zeros((len(given), len(self.operators), self.machines), dtype=np.int64)
        rows, threads = np.nonzero(given >= 0)
        np.add.at(found, (rows, self.component_of[threads], given[rows, threads]), 1)
        return found[0] if np.ndim(assignment) == 1 else found

    def from_counts(self, counts: ArrayLike, before: Ints | None = None) -> Ints:
        """An assignment with these counts that moves as few threads as can be from the one before.

        Threads of a component are alike, so those that may stay do, the surplus of machines goes where threads are
        wanting, and the rest is begun or ended.
        """
        wanted = self._checked_counts(counts)
        found = np.full(self.threads, NOWHERE, dtype=np.int64)
        for number in range(len(self.operators)):
            first, running = int(self.first[number]), int(wanted[number].sum())
            left = wanted[number].copy()
            places = np.full(running, NOWHERE, dtype=np.int64)
            old = before[first : first + int(self.most[number])] if before is not None else places[:0]
            for at in range(min(running, len(old))):
                if old[at] >= 0 and left[old[at]]:
                    places[at] = old[at]
                    left[old[at]] -= 1
            places[places < 0] = np.repeat(np.arange(self.machines), left)
            found[first : first + running] = places
        return self.checked(found)

    def _checked_counts(self, counts: ArrayLike) -> Ints:
        wanted = np.asarray(counts)
        shape = (len(self.operators), self.machines)
        if wanted.shape != shape or not np.issubdtype(wanted.dtype, np.integer) or wanted.min() < 0:
            raise OptionError(f"counts are whole numbers of 0 or more in a matrix of shape {shape}, got {counts!r}")
        together = wanted.sum(axis=1)
        for one, count in zip(self.operators, together.tolist(), strict=True):
            if not 1 <= count <= one.most:
                raise OptionError(f"{one.name!r} has from 1 to {one.most} threads, got {count}")
        return wanted.astype(np.int64)

    def moved(self, before: Ints, after: Ints) -> int:
        """Threads that a deployment of only what differs moves, begins or ends.

        With the numbers of threads unchanged that is the number of threads with another machine. Where a component has
        another number of threads, its threads are numbered anew: those that can stay on their machine do.
        """
        changed = 0
        for number in range(len(self.operators)):
            old = before[self.first[number] : self.first[number + 1]]
            new = after[self.first[number] : self.first[number + 1]]
            running = int((old >= 0).sum()), int((new >= 0).sum())
            if running[0] == running[1]:
                changed += int((old != new).sum())
            else:
                was, shall = (np.bincount(one[one >= 0], minlength=self.machines) for one in (old, new))
                changed += max(running) - int(np.minimum(was, shall).sum())
        return changed

    # ---- to and from what an engine does

    def action(self, assignment: ArrayLike, reason: str, before: Ints | None = None) -> Action:
        """What an engine is told: machines of all threads, or of those that differ from before, and changed numbers."""
        wanted = self.checked(assignment)
        numbers = self.parallelism_of(wanted)
        was = self.parallelism_of(before) if before is not None else np.zeros_like(numbers)
        changed = {self.operators[at].name: int(numbers[at]) for at in np.flatnonzero(numbers != was).tolist()}
        differ = wanted != (before if before is not None else np.full_like(wanted, NOWHERE))
        places = {str(self.possible[at]): int(wanted[at]) for at in np.flatnonzero(differ & (wanted >= 0)).tolist()}
        return Action(changed, reason, places)

    def assignment(self, action: Action, before: Ints) -> Ints:
        """The assignment that an action leads to."""
        found = before.copy()
        names = {one.name: at for at, one in enumerate(self.operators)}
        for name, running in action.parallelism.items():
            if name not in names:
                raise OptionError.unknown("component", name, names)
            found[self.first[names[name]] + running : self.first[names[name] + 1]] = NOWHERE
        for text, machine in action.placement.items():
            one = Instance.parse(text)
            if one.operator not in names or one.number >= self.most[names[one.operator]]:
                raise OptionError(f"there is no thread {text!r}: {one.operator!r} may not have so many")
            found[self.first[names[one.operator]] + one.number] = machine
        made = self.checked(found)
        for name, running in action.parallelism.items():
            if int(self.parallelism_of(made)[names[name]]) != running:
                raise OptionError(f"{name!r} shall have {running} threads, and other threads of it have a machine")
        return made

    def where(self, assignment: Ints) -> dict[str, int]:
        """The machine of each thread that runs, by its name, as in `{"query#0": 3}`."""
        return {str(self.possible[at]): int(assignment[at]) for at in np.flatnonzero(assignment >= 0).tolist()}

    def located(self, places: Mapping[str, int]) -> Ints:
        """The assignment of threads by name: `where` the other way round."""
        found = np.full(self.threads, NOWHERE, dtype=np.int64)
        spots = {str(one): at for at, one in enumerate(self.possible)}
        for text, machine in places.items():
            if text not in spots:
                raise OptionError.unknown("thread", text, spots)
            found[spots[text]] = machine
        return self.checked(found)

    def on(self, hosts: Sequence[Host]) -> Self:
        """The same applications on other machines."""
        made: Any = self
        changed: Self = replace(made, hosts=tuple(hosts))
        return changed


def together(setups: Mapping[str, Setup] | Iterable[tuple[str, Setup]]) -> Setup:
    """Setups of one application each, all on the machines of the first; names of components get the application's.

    >>> one = Setup((Component("spout", source=True), Component("query", 2)), (Stream("spout", "query"),), (Host(),))
    >>> [one.name for one in together([("a", one), ("b", one)]).operators]
    ['a.spout', 'a.query', 'b.spout', 'b.query']
    """
    named = list(setups.items() if isinstance(setups, Mapping) else setups)
    parts = [
        replace(one, name=f"{name}.{one.name}", application=number)
        for number, (name, setup) in enumerate(named)
        for one in setup.operators
    ]
    streams = [
        replace(edge, sender=f"{name}.{edge.sender}", receiver=f"{name}.{edge.receiver}")
        for name, setup in named
        for edge in setup.edges
    ]
    return Setup(tuple(parts), tuple(streams), named[0][1].hosts, tuple(name for name, _ in named))


def _fixed(values: ArrayLike) -> Ints:
    found = np.array(values, dtype=np.int64)
    found.setflags(write=False)
    return found
