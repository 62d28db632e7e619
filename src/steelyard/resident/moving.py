"""Key groups that go from instance to instance while rows come: who gives, who takes, and what waits meanwhile.

An operator's state moves in one of three ways. Where all of its rows go by hash and its step can give away a part of
what it knows (`Step.give`), only groups with another owner move, and only their rows wait. Where it cannot, as a step
of a user's own cannot, every new instance gets the states of all old ones and deals them out as from a snapshot; rows
of the whole operator wait so long. Where there is no state, nothing waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.dataflow import Dataflow, Route
from steelyard.core.key_groups import KeyGroups
from steelyard.core.topology import Channel
from steelyard.resident.channel import Message
from steelyard.resident.keys import key_ids, table_key_ids
from steelyard.resident.operator import State
from steelyard.resident.shares import Share
from steelyard.resident.wire import Kind

HELD_BYTES = 64 << 20
"""Rows that an instance holds for groups whose state has not come; beyond, their senders have to wait."""


class Way(Enum):
    """How what an operator knows goes to other instances."""

    GROUPS = "groups"
    """Key groups that have another owner, and nothing else."""
    WHOLE = "whole"
    """All of it to all."""
    NOTHING = "nothing"
    """It knows nothing."""


@dataclass(frozen=True)
class Reassigned:
    """Another number of instances for one operator.

    Parameters
    ----------
    logic
        What the operator is.
    before, now
        Who had which key, and who has it from now on.
    way
        How its state moves.
    keys
        For each input the columns of its key, where it has one.
    everywhere
        Inputs whose rows go to all instances.

    Examples
    --------
    >>> more = Reassigned(None, KeyGroups(8, 2), KeyGroups(8, 3), Way.GROUPS, (("k",),))
    >>> [more.takers(number) for number in range(2)], [more.givers(number) for number in range(3)]
    ([[2], [2]], [[], [], [0, 1]])
    """

    logic: Any
    before: KeyGroups
    now: KeyGroups
    way: Way
    keys: tuple[tuple[str, ...] | None, ...]
    everywhere: frozenset[int] = frozenset()

    @classmethod
    def of(cls, then: Dataflow, before: int, name: str) -> Reassigned:
        """What becomes of an operator that had so many instances."""
        operator = then.by_name[name]
        logic: Any = operator.logic
        routes = [{edge.grouping.route for edge in then.into(name) if edge.port == port} for port in range(logic.ports)]
        by_hash = all(found == {Route.HASH} for found in routes)
        way = Way.WHOLE if logic.deals else Way.NOTHING
        if way is Way.WHOLE and by_hash and logic.gives_groups:
            way = Way.GROUPS
        everywhere = frozenset(port for port, found in enumerate(routes) if found == {Route.BROADCAST})
        keys = tuple(logic.keys(port) for port in range(logic.ports))
        return cls(
            logic,
            KeyGroups(max(then.groups, before), before),
            KeyGroups(max(then.groups, operator.parallelism), operator.parallelism),
            way,
            keys,
            everywhere,
        )

    @cached_property
    def _pairs(self) -> set[tuple[int, int]]:
        """(old owner, new owner) of groups that move."""
        if self.way is Way.NOTHING:
            return set()
        if self.way is Way.WHOLE:
            old, new = range(self.before.parallelism), range(self.now.parallelism)
            return {(giver, taker) for giver in old for taker in new if giver != taker}
        both = zip(self.before.owner.tolist(), self.now.owner.tolist(), strict=True)
        return {(giver, taker) for giver, taker in both if giver != taker}

    def givers(self, number: int) -> list[int]:
        """The instances from which one of the new ones gets something."""
        return sorted(giver for giver, taker in self._pairs if taker == number)

    def takers(self, number: int) -> list[int]:
        """The instances to which one of the old ones gives something."""
        return sorted(taker for giver, taker in self._pairs if giver == number)

    @property
    def moved(self) -> int:
        """How many groups get another owner."""
        return int((self.before.owner != self.now.owner).sum())

    def owners(self, rows: pa.Table, keys: Sequence[str]) -> Ints:
        """Which instance has the key of each row from now on."""
        return np.asarray(self.now.owners(table_key_ids(rows, keys)), np.int64)

    def share(self, number: int) -> Share:
        """What one of the new instances takes of the states of all old ones."""
        return Share(number, self.before, self.now, self.everywhere)

    def waits(self, number: int, port: int, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows are of a group that comes to an instance from another."""
        keys = self.keys[port]
        assert keys is not None, "groups move where all rows go by hash"
        return np.asarray(self.before.owners(key_ids(batch, keys)) != number)


def parted(rows: pa.Table, owners: Ints, takers: Sequence[int]) -> dict[int, pa.Table]:
    """Rows by their new owner, for each of these.

    >>> found = parted(pa.table({"x": [1, 2, 3]}), np.array([2, 0, 2]), [1, 2])
    >>> {to: rows["x"].to_pylist() for to, rows in found.items()}
    {1: [], 2: [1, 3]}
    """
    return {taker: rows.take(pa.array(np.flatnonzero(owners == taker))) for taker in takers}


class Held(NamedTuple):
    """Something that waits until all states have come."""

    channel: Channel | None
    """None where event time has come somewhere."""
    what: Any
    """A message, or a time."""
    owed: bool
    """Whether its sender has not got its room back."""


class Awaiting:
    """What an instance awaits from others, and what it holds meanwhile.

    Rows of groups that stay are worked off at once, and event time comes to them; rows of groups that come, and what is
    told behind the instance of event time, are held in their order; it ends when they are worked off. An instance that
    had no groups before, and one that deals states out, holds all.

    Parameters
    ----------
    reassigned, number
        What the instance gets, and which it is.
    everything
        Whether nothing is worked off meanwhile.
    """

    def __init__(self, reassigned: Reassigned, number: int, everything: bool, owes: bool = False) -> None:
        self._reassigned, self._number = reassigned, number
        self.missing = set(reassigned.givers(number))
        """From whom something is to come."""
        self.everything, self._owes = everything, owes
        self.held: list[Held] = []
        self._bytes, self._full = 0, False

    def let_through(self, channel: Channel, message: Message) -> tuple[Message | None, bool]:
        """What of a message is worked off now, and whether its sender may have its room back."""
        if self.everything or self._full:
            return None, self._hold(channel, message)
        if message.kind is not Kind.DATA:
            return message, True
        waits = self._reassigned.waits(self._number, channel.port, message.value)
        if not waits.any():
            return message, True
        if waits.all():
            return None, self._hold(channel, message)
        rows = message.value
        self._hold(channel, message._replace(value=rows.filter(pa.array(waits))), always=True)
        return message._replace(value=rows.filter(pa.array(~waits))), True

    def _hold(self, channel: Channel, message: Message, always: bool = False) -> bool:
        size = message.value.nbytes if message.kind is Kind.DATA else 0
        self._bytes += size
        given_back = always or not (self._full or self._owes)
        self.held.append(Held(channel, message, not given_back))
        self._full = self._full or self._bytes > HELD_BYTES
        return given_back

    def hold_time(self, reached: int) -> None:
        """Event time has come so far for groups that stay."""
        self.held.append(Held(None, reached, False))


def state_bytes(state: State) -> int:
    """Bytes of the rows of a state."""
    return sum(value.nbytes for value in state.values() if isinstance(value, pa.Table))


def of_step(part: Mapping[str, Any]) -> State:
    """What a step gave, out of a part that came with what its instance adds."""
    return {name.removeprefix("step "): value for name, value in part.items() if name.startswith("step ")}
