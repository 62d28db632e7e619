"""Chains: instances that run in one thread, and are checkpointed together.

Where a forward edge leads to an instance of the same worker, and nothing else does, that instance runs in the thread of
the one who sends to it. Between two messages of the first one nothing is under way inside of a chain.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.checkpoint import Wire
from steelyard.core.dataflow import Dataflow, Route
from steelyard.core.topology import Channel, Instance, Placement

DEEPEST = 32
"""Instances that follow each other in one thread: each calls the next, and Python's stack has an end."""


class Chains:
    """Which instances run in whose thread.

    Parameters
    ----------
    dataflow, placement
        What runs where.
    """

    def __init__(self, dataflow: Dataflow, placement: Placement) -> None:
        self._dataflow, self._placement = dataflow, placement
        self._channels = dataflow.channels()
        into: dict[Instance, list[Channel]] = {}
        for channel in self._channels:
            into.setdefault(channel.receiver, []).append(channel)
        behind: dict[Instance, list[Channel]] = {}
        for channel in self._channels:
            if self._may_follow(channel, into):
                behind.setdefault(channel.sender, []).append(channel)
        led = {channel.receiver for channels in behind.values() for channel in channels}
        walked = [(instance, 1) for instance in behind if instance not in led]
        head_of = {instance: instance for instance in dataflow.instances}
        followed = set()
        for instance, depth in walked:  # grows while it is walked
            for channel in behind.get(instance, ()):
                if depth < DEEPEST:
                    followed.add(channel.number)
                    head_of[channel.receiver] = head_of[instance]
                walked.append((channel.receiver, depth % DEEPEST + 1))
        self.followed: frozenset[int] = frozenset(followed)
        """Channels whose receiver runs in the thread of the sender: where a chain is long, not all that could."""
        self.head_of: Mapping[Instance, Instance] = head_of
        """By instance: the first one of its chain."""

    def _may_follow(self, channel: Channel, into: Mapping[Instance, list[Channel]]) -> bool:
        """Whether the receiver could run in the thread of the sender, who is beside it and alone sends to it."""
        where = self._placement.worker_of
        forward = self._dataflow.edges[channel.edge].grouping.route is Route.FORWARD
        beside = where[channel.sender] == where[channel.receiver]
        return beside and forward and not channel.feedback and into[channel.receiver] == [channel]

    @property
    def heads(self) -> tuple[Instance, ...]:
        """The first instance of each chain, in the order of the dataflow."""
        return tuple(one for one, head in self.head_of.items() if one == head)

    def members(self, head: Instance) -> list[Instance]:
        """The instances of a chain, each behind the one that leads to it."""
        found = [head]
        leads = {channel.number: channel for channel in self._channels if channel.number in self.followed}
        for one in found:  # grows while it is walked
            found += [channel.receiver for channel in leads.values() if channel.sender == one]
        return found

    def wires(self) -> tuple[Wire, ...]:
        """The channels between chains, as a checkpoint protocol sees them."""
        return self._wired(inside=False)

    def inner(self) -> tuple[Wire, ...]:
        """Those inside of chains."""
        return self._wired(inside=True)

    def _wired(self, inside: bool) -> tuple[Wire, ...]:
        head_of = self.head_of
        return tuple(
            Wire(one.number, str(head_of[one.sender]), str(head_of[one.receiver]))
            for one in self._channels
            if (one.number in self.followed) == inside
        )
