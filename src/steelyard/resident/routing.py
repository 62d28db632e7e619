"""Which instance a row goes to: each edge of each instance has a distributor that cuts batches up."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.dataflow import Edge, Route
from steelyard.core.key_groups import DEFAULT_GROUPS, KeyGroups
from steelyard.core.policies import Observing, Router, State, identity, require_blocks
from steelyard.core.topology import Instance
from steelyard.core.weights import dealt, lowest
from steelyard.grouping.protocol import Chosen, Report, Requests, Scheduler, weighs
from steelyard.partition.registry import edge_policy
from steelyard.resident.channel import Outlet, StoppedError
from steelyard.resident.keys import key_ids
from steelyard.resident.queues import Queues
from steelyard.resident.reports import (
    MOST_REQUESTS,
    arrays_bytes,
    bytes_arrays,
    now,
    packed_requests,
    unpacked_reports,
)
from steelyard.resident.rounds import Rounds
from steelyard.resident.wire import WireError

_POLICY = "__policy"
"""Beside the arrays of a router: its policy."""
Parts = Iterator[tuple[int, pa.RecordBatch]]
Messages = Iterator[tuple[int, pa.RecordBatch, bytes]]


class Distributor(ABC):
    """Cuts batches into a part for each receiving instance."""

    waited: float = 0.0
    """Seconds in which it kept rows back."""
    called: str = "a grouping"
    """The grouping that it follows, in errors."""
    weighs: bool = False
    """Whether it can be given weights."""

    @abstractmethod
    def split(self, batch: pa.RecordBatch) -> Parts:
        """(number of the instance, rows) for each instance that gets any, in the order of the batch."""

    def addressed(self, batch: pa.RecordBatch) -> Messages:
        """The same, with what a part carries to its instance as a note."""
        return ((receiver, part, b"") for receiver, part in self.split(batch))

    def prepare(self, schema: pa.Schema) -> None:  # noqa: B027 - most have nothing to load
        """Load what the first rows would have to wait for; called while a worker is deployed."""

    def state(self) -> bytes:
        """What the next `split` depends on; empty where it depends on nothing."""
        return b""

    def restore(self, state: bytes) -> None:  # noqa: B027 - most keep no state
        """Go on as the distributor that gave this state would."""

    def weigh(self, weights: tuple[int, ...]) -> None:
        """Deal rows out in proportion to these, one number per instance; the same again change nothing."""
        raise NotImplementedError

    def stop(self) -> None:  # noqa: B027 - most keep no rows back
        """Wake a sender that waits; it gets a StoppedError."""


class Forward(Distributor):
    """All rows to one instance."""

    def __init__(self, receiver: int) -> None:
        self._receiver = receiver

    def split(self, batch: pa.RecordBatch) -> Parts:
        """The batch as it is."""
        yield self._receiver, batch


class Broadcast(Distributor):
    """All rows to every instance."""

    def __init__(self, receivers: int) -> None:
        self._receivers = receivers

    def split(self, batch: pa.RecordBatch) -> Parts:
        """The batch as it is, for each."""
        return ((receiver, batch) for receiver in range(self._receivers))


class InTurn(Distributor):
    """One row after the other to the next instance, also from batch to batch; with weights, to some more often.

    >>> turns = InTurn(2, first=0)
    >>> for rows in ([1], [2, 3]):
    ...     print([(to, part["x"].to_pylist()) for to, part in turns.split(pa.record_batch({"x": rows}))])
    [(0, [1])]
    [(0, [3]), (1, [2])]
    """

    weighs = True

    def __init__(self, receivers: int, first: int) -> None:
        self._receivers, self._first = receivers, first
        self._weights: tuple[int, ...] = ()
        self.weigh((1,) * receivers)

    def weigh(self, weights: tuple[int, ...]) -> None:
        """Begin a cycle of these weights."""
        if (wanted := lowest(weights)) != self._weights:
            self._weights, self._order = wanted, dealt(wanted)
            self._next = self._first % len(self._order)

    def prepare(self, schema: pa.Schema) -> None:
        """Load the compiled order."""
        list(self.split(_no_rows(schema)))

    def split(self, batch: pa.RecordBatch) -> Parts:
        """Rows in turn, those of an instance together."""
        chosen = self._order[(self._next + np.arange(batch.num_rows)) % len(self._order)]
        self._next = (self._next + batch.num_rows) % len(self._order)
        return parted(batch, chosen, self._receivers)


class ByHash(Distributor):
    """Rows of a key to the instance that owns its group, by Spark's hash of the key."""

    def __init__(self, owners: KeyGroups, columns: tuple[str, ...]) -> None:
        self._groups, self._columns = owners, columns

    def prepare(self, schema: pa.Schema) -> None:
        """Load the compiled hash and the compiled order."""
        list(self.split(_no_rows(schema)))

    def split(self, batch: pa.RecordBatch) -> Parts:
        """Rows by the hash of their keys."""
        return parted(batch, self._groups.owners(key_ids(batch, self._columns)), self._groups.parallelism)


class Hearing(Distributor):
    """One that instances report to. Reports come from threads that read connections, and count as worked off at once.

    All else is called by the thread that sends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._receiver_of: Mapping[int, int] = {}
        self.received: dict[int, int] = {}
        """By channel: reports so far."""

    def listen(self, receiver_of: Mapping[int, int]) -> None:
        """Reports will come through these channels, which lead to these instances."""
        self._receiver_of, self.received = receiver_of, dict.fromkeys(receiver_of, 0)

    def hear(self, channel: int, number: int, payload: Any) -> None:
        """A report came back through a channel; WireError where it is none, or not the next one."""
        with self._lock:
            if number != self.received[channel] + 1:
                raise WireError(f"report {number} of channel {channel} came behind report {self.received[channel]}")
            self._take_in(channel, payload)
            self.received[channel] = number

    @abstractmethod
    def _take_in(self, channel: int, payload: Any) -> None:
        """Do with a report what is to be done; WireError where it is none."""


class ByPolicy(Hearing):
    """Rows where a router sends them, which decides row by row and may learn, also from what its rows cost."""

    def __init__(
        self, receivers: int, columns: tuple[str, ...], router: Router, senders: int = 1, policy: str = ""
    ) -> None:
        super().__init__()
        self._receivers, self._columns, self._router, self._senders = receivers, columns, router, senders
        self._policy = policy
        """What tells the router's policy from another."""
        self._rounds: Rounds | None = None

    def listen(self, receiver_of: Mapping[int, int]) -> None:
        """Instances will tell what rows cost them, which the router observes."""
        super().listen(receiver_of)
        if receiver_of:
            self._rounds = Rounds(self._receivers, self._senders)

    def prepare(self, schema: pa.Schema) -> None:
        """Load the compiled hash, the compiled policy and the compiled order."""
        list(self.split(_no_rows(schema)))

    def split(self, batch: pa.RecordBatch) -> Parts:
        """Rows as the router says; all rows of a batch come at one moment."""
        return ((receiver, part) for receiver, part, _ in self.addressed(batch))

    def addressed(self, batch: pa.RecordBatch) -> Messages:
        """Rows as the router says, with the number of the round that they are of."""
        begun, rounds, note = time.perf_counter(), self._rounds, b""
        if rounds is not None and (seen := rounds.over()) is not None:
            assert isinstance(self._router, Observing), "nobody else listens"
            self._router.observe(seen.at(time.monotonic()))
        keys = key_ids(batch, self._columns)
        moment = np.full(batch.num_rows, int(time.monotonic() * 1000), dtype=np.int64)
        chosen = self._router.route(keys, moment).block
        require_blocks(self.called, chosen, batch.num_rows, self._receivers)
        if rounds is not None:
            note = rounds.note(keys, chosen)
        sending = 0.0
        for receiver, part in parted(batch, chosen, self._receivers):
            before = time.perf_counter()
            yield receiver, part, note
            sending += time.perf_counter() - before
        if rounds is not None and note:
            rounds.spent(time.perf_counter() - begun - sending, sending)

    def _take_in(self, channel: int, payload: Any) -> None:
        assert self._rounds is not None, "reports come to those who listen"
        self._rounds.hear(self._receiver_of[channel], payload)

    def state(self) -> bytes:
        """The router's arrays, and of which policy it is."""
        return arrays_bytes({**self._router.state(), _POLICY: np.array(self._policy)})

    def restore(self, state: bytes) -> None:
        """Go on with what the router had learnt; where that was another policy's, begin anew."""
        learnt = bytes_arrays(state)
        if str(learnt.pop(_POLICY, "")) == self._policy:
            self._router.restore(learnt)


class ByCost(Hearing):
    """Each row to the instance that a scheduler chooses by what it has heard of costs; it is one of several.

    Where instances tell at once of every message that they have worked off (`follow`), rows are kept back while all of
    them have enough to do: what is known when an instance will soon want rows is more than what was known before.
    """

    def __init__(self, receivers: int, column: str, scheduler: Scheduler) -> None:
        super().__init__()
        self._receivers, self._column, self._scheduler = receivers, column, scheduler
        self._room = threading.Condition(self._lock)
        self._queues: Queues | None = None
        self._stopped = False

    def follow(self, outlets: Mapping[int, Outlet]) -> None:
        """Hear from the outlets to instances what these have worked off, if the scheduler makes use of it."""
        if getattr(self._scheduler, "follows", False):
            self._queues = Queues(self._scheduler)  # type: ignore[arg-type]
            for receiver, outlet in outlets.items():
                outlet.worked_off = partial(self._worked_off, receiver)

    def _worked_off(self, receiver: int, messages: int) -> None:
        assert self._queues is not None
        with self._room:
            if self._queues.worked_off(receiver, messages, now()):
                self._room.notify()

    def _choose(self, items: Ints) -> Chosen:
        """Instances for all items; or, as soon as an instance has room, for those that there is room for."""
        if self._queues is None:
            return self._scheduler.choose(items, times=np.full(len(items), now()))
        begun = time.perf_counter()
        while (patience := self._queues.patience(moment := now())) > 0.0:
            if self._stopped:
                raise StoppedError("it was stopped while all instances had enough to do")
            self._room.wait(patience)
        self.waited += time.perf_counter() - begun
        return self._queues.choose(items, moment)

    def weigh(self, weights: tuple[int, ...]) -> None:
        """Have the scheduler do so."""
        with self._lock:
            self._scheduler.weigh(weights)  # type: ignore[attr-defined]  # its grouping says that it can

    def stop(self) -> None:
        """Wake a sender that waits; it gets a StoppedError."""
        with self._room:
            self._stopped = True
            self._room.notify_all()

    def prepare(self, schema: pa.Schema) -> None:
        """Load the compiled hash, the compiled choice and the compiled order."""
        list(self.split(_no_rows(schema)))

    def _items(self, batch: pa.RecordBatch) -> Ints:
        return key_ids(batch, (self._column,)) if self._column else np.zeros(batch.num_rows, np.int64)

    def split(self, batch: pa.RecordBatch) -> Parts:
        """Rows as the scheduler says; all rows of a batch come at one moment."""
        return ((receiver, part) for receiver, part, _ in self.addressed(batch))

    def addressed(self, batch: pa.RecordBatch) -> Messages:
        """Rows as the scheduler says, with its requests to their instances."""
        items, start = self._items(batch), 0
        while True:
            with self._room:  # not while a part waits for credit: reports come meanwhile
                chosen = self._choose(items[start:])
            wanted = len(items) - start if self._queues is None else len(chosen.to)  # for fewer only where it follows
            require_blocks(self.called, chosen.to, wanted, self._receivers)
            yield from self._messages(batch.slice(start, len(chosen.to)), chosen)
            start += len(chosen.to)
            if start >= len(items):
                return

    def _messages(self, batch: pa.RecordBatch, chosen: Chosen) -> Messages:
        """Rows that were chosen for, in a message to each instance, or in several where it has many requests."""
        asked = set(chosen.to[chosen.requests.position].tolist())
        for receiver, part in parted(batch, chosen.to, self._receivers):
            if receiver not in asked:
                self._count(receiver)
                yield receiver, part, b""
                continue
            for start, end, requests in _shares(chosen.share(receiver)[1], part.num_rows):
                self._count(receiver)
                yield receiver, part.slice(start, end - start), packed_requests(requests)

    def _count(self, receiver: int) -> None:
        if self._queues is not None:
            with self._room:
                self._queues.sent(receiver, now())

    def _take_in(self, channel: int, payload: Any) -> None:
        reports: list[Report] = unpacked_reports(payload)
        try:
            self._scheduler.feedback(reports)
        except ValueError as error:
            raise WireError(f"a report of channel {channel} does not fit: {error}") from error

    def know(self, state: State) -> None:
        """Go on with what another scheduler of the same policy knew."""
        self._scheduler.restore(state)
        if self._queues is not None:
            self._queues = Queues(self._queues.scheduler)

    def state(self) -> bytes:
        """The scheduler's arrays."""
        with self._lock:
            return arrays_bytes(self._scheduler.state())

    def restore(self, state: bytes) -> None:
        """Go on with what the scheduler knew."""
        self.know(bytes_arrays(state))


def _shares(requests: Requests, rows: int) -> Iterator[tuple[int, int, Requests]]:
    """A part's requests, as many at a time as a note holds, with the rows from and to which they reach."""
    start = 0
    for first in range(0, len(requests.position), MOST_REQUESTS):
        after = first + MOST_REQUESTS
        position = requests.position[first:after]
        end = rows if after >= len(requests.position) else int(position[-1]) + 1
        yield start, end, Requests(position - start, requests.epoch[first:after], requests.load[first:after])
        start = end


def distributor(
    edge: Edge,
    sender: Instance,
    receivers: int,
    schedulers: tuple[int, int] | None = None,
    groups: int = DEFAULT_GROUPS,
) -> Distributor:
    """What an instance uses for one of its edges.

    `schedulers` is which of how many senders it is that feed the same instances alike; by default it is the only one.
    `groups` are the key groups of the dataflow.
    """
    route, columns = edge.grouping.route, edge.grouping.columns
    if route in (Route.FORWARD, Route.GLOBAL) or receivers == 1:
        return Forward(sender.number if route is Route.FORWARD else 0)
    if route is Route.BROADCAST:
        return Broadcast(receivers)
    if route is Route.SHUFFLE:
        return InTurn(receivers, sender.number)
    if route is Route.HASH:
        return ByHash(KeyGroups(groups, receivers), columns)
    number, several = schedulers or (0, 1)
    policy = edge.grouping.policy
    chooses: Distributor
    if route is Route.COST:
        chooses = ByCost(receivers, "".join(columns), policy.scheduler(receivers, number, several))
        chooses.weighs = weighs(policy)
    else:
        chosen = edge_policy(policy)
        router = chosen.router(receivers, sender.number)
        chooses = ByPolicy(receivers, columns, router, several, identity(chosen))
    chooses.called = f"grouping {edge.grouping} of edge {edge}"
    return chooses


def has_weights(edge: Edge) -> bool:
    """Whether rows of an edge can be dealt out by weights."""
    route = edge.grouping.route
    return route is Route.SHUFFLE or (route is Route.COST and weighs(edge.grouping.policy))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)


def parted(batch: pa.RecordBatch, chosen: np.ndarray[Any, Any], receivers: int) -> Parts:
    """Rows sorted by their instances, each instance's in their order, and sliced.

    >>> rows = pa.record_batch({"x": [1, 2, 3]})
    >>> [(to, part["x"].to_pylist()) for to, part in parted(rows, np.array([1, 0, 1]), 3)]
    [(0, [2]), (1, [1, 3])]
    """
    from steelyard.kernels.fragments import in_order  # noqa: PLC0415 - a graph is described without a compiler

    rows, counts = in_order(np.asarray(chosen, np.int32), receivers)
    if counts.max(initial=0) == batch.num_rows:
        if batch.num_rows:
            yield int(counts.argmax()), batch
        return
    ordered = batch.take(pa.array(rows))
    start = 0
    for receiver, size in enumerate(counts.tolist()):
        if size:
            yield receiver, ordered.slice(start, size)
            start += size
