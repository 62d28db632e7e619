"""What a grouping is: a scheduler that chooses an instance for every tuple, and instances that report to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from steelyard.core import OptionError, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats

Numbers = np.ndarray[Any, np.dtype[np.int32]]
EIGHT_BYTES = 8
"""What a number takes on the wire."""
REPLY_NUMBERS, MATRICES_NUMBERS, REQUEST_NUMBERS = 8, 3, 2
"""Numbers in a reply, beside the cells in a message with matrices, and in a request."""


def traffic_bytes(matrices: int, requests: int, replies: int, cells: int) -> int:
    """Bytes of so many messages, where matrices have so many numbers."""
    numbers = matrices * (cells + MATRICES_NUMBERS) + replies * REPLY_NUMBERS + requests * REQUEST_NUMBERS
    return EIGHT_BYTES * numbers


class Requests(NamedTuple):
    """Requests for synchronisation that tuples of a batch carry to their instances."""

    position: Ints
    """int64[r]: which tuples of the batch, rising."""
    epoch: Ints
    """int64[r]"""
    load: Floats
    """float64[r]: what the scheduler thinks the instance has been given, with this tuple."""

    @classmethod
    def none(cls) -> Requests:
        """No requests."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

    @classmethod
    def joined(cls, parts: Sequence[Requests], sizes: Sequence[int]) -> Requests:
        """The requests of several batches that become one: their requests, and how many tuples each has.

        >>> asked = Requests(np.array([1]), np.array([5]), np.array([0.5]))
        >>> Requests.joined([Requests.none(), asked], [3, 2]).position.tolist()
        [4]
        """
        if not any(len(one.position) for one in parts):
            return cls.none()
        starts = np.cumsum([0, *sizes[:-1]])
        return cls(
            np.concatenate([one.position + start for one, start in zip(parts, starts, strict=True)]),
            np.concatenate([one.epoch for one in parts]),
            np.concatenate([one.load for one in parts]),
        )

    def between(self, start: int, end: int) -> Requests:
        """Those of the tuples from one place to the one before another, whose positions count from there."""
        if not len(self.position):
            return self
        first, after = np.searchsorted(self.position, [start, end])
        return Requests(self.position[first:after] - start, self.epoch[first:after], self.load[first:after])


class Chosen(NamedTuple):
    """Where the tuples of a batch go, and what some of them carry."""

    to: Numbers
    """int32[tuples]: the instance of each."""
    requests: Requests

    def share(self, instance: int) -> tuple[Ints, Requests]:
        """The rows of one instance in their order, and its requests, whose positions count these rows.

        >>> chosen = Chosen(np.array([1, 0, 1], np.int32), Requests(np.array([2]), np.array([5]), np.array([0.5])))
        >>> rows, requests = chosen.share(1)
        >>> rows.tolist(), requests.position.tolist()
        ([0, 2], [1])
        """
        rows = np.flatnonzero(self.to == instance)
        mine = self.to[self.requests.position] == instance
        position = np.searchsorted(rows, self.requests.position[mine])
        return rows, Requests(position.astype(np.int64), self.requests.epoch[mine], self.requests.load[mine])


@dataclass(frozen=True, eq=False)
class Matrices:
    """An instance's F and W, for every scheduler."""

    sender: int
    cells: Floats
    """float64[rows, columns, 2]: count and summed time of each cell."""
    tuples: float
    """Tuples executed of late, and"""
    time: float
    """the time they took."""

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return EIGHT_BYTES * (self.cells.size + MATRICES_NUMBERS)


@dataclass(frozen=True)
class Reply:
    """An instance's answer to a request of one scheduler."""

    sender: int
    scheduler: int
    epoch: int
    delta: float
    """C_op minus the load that the request carried."""
    tuples: float
    """Tuples executed of late, and"""
    time: float
    """the time they took."""
    own: float = 0.0
    """Time spent on the scheduler's tuples since the last reply to it, and"""
    everything: float = 0.0
    """on anything."""

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return EIGHT_BYTES * REPLY_NUMBERS


Report = Matrices | Reply


@runtime_checkable
class Scheduler(Protocol):
    """Chooses for every tuple; lives where tuples are sent from. One of several has its own number and state."""

    @property
    def instances(self) -> int:
        """How many there are to choose from."""
        ...

    def choose(self, items: Ints, costs: Floats | None = None, times: Floats | None = None) -> Chosen:
        """Instances for tuples in the order of sending.

        `items` are the values that costs depend on. `costs` (float64[tuples] or [tuples, instances]) are exact costs,
        for groupings that need them. `times` are when tuples are sent, on the clock of `Instance.executed`.
        """
        ...

    def feedback(self, reports: Sequence[Report]) -> None:
        """What instances reported, in the order of arrival; replies to other schedulers are passed over."""
        ...

    def state(self) -> State:
        """All that the next choice depends on."""
        ...

    def restore(self, state: State) -> None:
        """Go on as the scheduler that gave this state would."""
        ...


@runtime_checkable
class Instance(Protocol):
    """Learns what tuples cost; lives where they are executed."""

    def executed(
        self,
        items: Ints,
        seconds: Floats,
        finished: Floats,
        requests: Requests | None = None,
        scheduler: int = 0,
    ) -> list[Report]:
        """What to report after executing tuples of one scheduler, in the order in which they came.

        `seconds` is how long each took, `finished` when it ended, on a clock that instances share and that began with
        the stream.
        """
        ...

    def state(self) -> State:
        """All that the next report depends on."""
        ...

    def restore(self, state: State) -> None:
        """Go on as the instance that gave this state would."""
        ...


@runtime_checkable
class Sparing(Protocol):
    """An instance that need not look at every tuple; one that is none is told of all."""

    def space_out(self, seconds: float) -> None:
        """From now on, send matrices at most once in so many seconds of work."""
        ...

    def passed_over(self, seconds: float, scheduler: int = 0) -> None:
        """Tuples of a scheduler were executed, and not looked at: their time counts, and no more."""
        ...


@runtime_checkable
class Grouping(Protocol):
    """A policy of shuffle edges. The policy is its parameters; schedulers and instances follow it.

    All engines take any object with these three. What it may have besides, and what holds where it has not:

    - `cost_of`, a string: the column whose values are the items, where rows have columns. One that has it must be told
      which; to one that has not, all rows are the same item.
    - `learns` (True): whether instances are to report to schedulers what tuples took.
    - `needs_costs` (False): whether `choose` must be given exact costs, which only a simulator knows.
    - `needs_queues` (False): whether `choose` has a parameter `queues` and must be given it: int64[tuples, instances],
      how many tuples each instance has when each is sent, which only a simulator knows too.
    - `weighs` (False): whether its schedulers have `weigh(weights)`: from then on instances get tuples in proportion to
      these whole numbers, one for each; the same numbers again change nothing.
    - `in_batches()`: what stands for it in micro-batches (`core.Placer`).
    """

    @property
    def name(self) -> str:
        """How it is called in reports and in the registry."""
        ...

    def scheduler(self, instances: int, number: int = 0, schedulers: int = 1) -> Scheduler:
        """A new scheduler, one of so many that feed the same instances and have different numbers."""
        ...

    def instance(self, instances: int, number: int, schedulers: int = 1) -> Instance:
        """A new instance, one of so many, that is fed by so many schedulers."""
        ...


def item_column(policy: Grouping) -> str:
    """The column whose values are the items; empty where all rows are the same."""
    return str(getattr(policy, "cost_of", ""))


def learns(policy: Grouping) -> bool:
    """Whether instances report to schedulers what tuples took."""
    return bool(getattr(policy, "learns", True))


def needs_costs(policy: Grouping) -> bool:
    """Whether exact costs must be told, which no engine knows but a simulator."""
    return bool(getattr(policy, "needs_costs", False))


def needs_queues(policy: Grouping) -> bool:
    """Whether the tuples of every instance must be told, which no engine knows but a simulator."""
    return bool(getattr(policy, "needs_queues", False))


def weighs(policy: Grouping) -> bool:
    """Whether its schedulers can be given weights."""
    return bool(getattr(policy, "weighs", False))


def require_item_column(policy: Grouping, how: str) -> None:
    """Raise OptionError where a grouping learns by a column and was not told which; `how` is where to say it."""
    if learns(policy) and getattr(policy, "cost_of", None) == "":
        raise OptionError(
            f"grouping {policy.name!r} learns what rows cost by the values of a column: say which, "
            f'{how}("{policy.name}?cost_of=customer")'
        )


def require_knowable(policy: Grouping) -> None:
    """Raise OptionError where a grouping must be told what only a simulator knows."""
    if needs_costs(policy):
        raise OptionError(f"grouping {policy.name!r} must be told what each row costs, and an engine cannot know")
    if needs_queues(policy):
        raise OptionError(f"grouping {policy.name!r} must be told how long all queues are, and a sender cannot know")
