"""What a snapshot is of: the dataflow's shape, and the exact file of each instance's state."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.core.dataflow import Dataflow, Edge, Operator
from steelyard.core.durable import Described, Link, damaged, opened, sealed

_SPREAD = re.compile(r"(\(input \d+, )(?:forward|shuffle) ")
"""Of an edge in a shape: that rows go to any instance."""
Shape = Mapping[str, Any]
"""What of a dataflow its states depend on, as plain values."""


class Log(NamedTuple):
    """What a chain of instances sent between two of its checkpoints."""

    file: Described
    spans: Sequence[Sequence[int]]
    """(channel, number of the first message, number of the last)."""


@dataclass(frozen=True)
class Manifest:
    """The commit of a snapshot, or of a line of checkpoints that all instances may go back to together.

    Parameters
    ----------
    epoch
        The epoch that it ends.
    attempt
        The attempt of the job that took it.
    shape
        Of its dataflow; see `shape_of`.
    files
        By instance: the file of its state, under the store's folder. Files that no manifest names never happened.
    note
        What the one who started the job gave to be kept.
    before
        The commit before this one.
    results
        By epoch: the file of what it gave to sinks in the driver, of those that were not handed on yet.
    sent, received
        By channel: how many messages had been sent, and worked off. What is between the two was under way.
    logs
        Files of senders that have it, the oldest first; or it is in the states of the receivers.
    lossy
        Whether nobody has it, and that was wanted.
    channels
        Which channels have these numbers; see `channels_of`.
    """

    epoch: int
    attempt: str
    shape: Shape
    files: Mapping[str, Described]
    note: str = ""
    before: Link | None = None
    results: Mapping[str, Described] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    received: Mapping[str, int] = field(default_factory=dict)
    logs: Sequence[Log] = ()
    lossy: bool = False
    channels: str = ""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing was under way."""
        return self.sent == self.received and not self.logs

    @property
    def groups(self) -> int:
        """The key groups that its states are of; 0 where a key was with the instance that its hash gave by itself."""
        return int(self.shape.get("key_groups", 0))

    def fits(self, dataflow: Dataflow) -> bool:
        """Whether each instance of a dataflow goes on from a state of its own, and finds its channels as they were."""
        by_hash = (one for one in dataflow.edges if one.grouping.joins_keys)
        spread = any(dataflow.by_name[one.receiver].parallelism > 1 for one in by_hash)
        return self.channels == channels_of(dataflow) and (self.groups == dataflow.groups or not spread)

    @property
    def described(self) -> list[Described]:
        """All files that it names."""
        return [*self.files.values(), *self.results.values(), *(log.file for log in self.logs)]

    def spoken(self, fits: bool) -> dict[str, Any]:
        """Where all go on, as an order has it; what does not fit is dealt out, and messages are counted from 1."""
        return {
            "epoch": self.epoch,
            "files": dict(self.files),
            "sent": [(int(one), many) for one, many in self.sent.items()],
            "logs": [(log.file, log.spans) for log in self.logs],
            "lossy": self.lossy,
            "dealt": None if fits else self.groups,
        }

    def packed(self) -> str:
        """As a sealed text."""
        return sealed(vars(self))

    @classmethod
    def unpacked(cls, text: bytes, where: Path, epoch: int) -> tuple[Manifest, str]:
        """What `packed` gave, and its seal; StateError where it is something else."""
        of = f"epoch {epoch}"
        body, seal = opened(text, where, of)
        if body["epoch"] != epoch:
            raise damaged(where, f"of {of} is of epoch {body['epoch']}")
        files = dict(zip(body["files"], Described.listed(body["files"].values(), where), strict=True))
        before = Link(*body["before"]) if body["before"] else None
        given = body.get("results") or {}
        results = dict(zip(given, Described.listed(given.values(), where), strict=True))
        logs = [Log(Described.listed([file], where)[0], spans) for file, spans in body.get("logs") or ()]
        return cls(**{**body, "files": files, "before": before, "results": results, "logs": logs}), seal


def channels_of(dataflow: Dataflow) -> str:
    """A digest of who sends to whom, in the order of the channels' numbers: other channels have another one."""
    told = [f"{one.sender} {one.receiver} {one.port} {one.feedback}" for one in dataflow.channels()]
    return hashlib.blake2b("\n".join(told).encode(), digest_size=8).hexdigest()


def shape_of(dataflow: Dataflow) -> Shape:
    """Operators by name, and edges in their order: what must be the same for states to go on.

    Functions are not compared, nor what sources read: a source goes on from its offsets. Operators that keep nothing
    are left out, as are policies of edges, whose routers know of which policy their states are; and the order of
    columns, where states do not depend on it.
    """
    passed = {one.name for one in dataflow.operators if getattr(one.logic, "keeps_nothing", False)}
    return {
        "key_groups": dataflow.groups,
        "operators": {
            one.name: {
                "kind": one.logic.kind,
                "parallelism": one.parallelism,
                "columns": _columns(dataflow, one),
                "settings": getattr(one.logic, "state_settings", ""),
            }
            for one in dataflow.operators
            if one.name not in passed
        },
        "edges": [
            _spoken(replace(edge, sender=sender))
            for edge in dataflow.edges
            if edge.receiver not in passed
            for sender in _senders(dataflow, edge, passed)
        ],
    }


def _columns(dataflow: Dataflow, operator: Operator) -> str:
    told = [f"{column.name} {column.type}" for column in dataflow.schemas[operator.name]]
    return ", ".join(sorted(told) if getattr(operator.logic, "by_name", False) else told)


def _senders(dataflow: Dataflow, edge: Edge, passed: Collection[str]) -> list[str]:
    """The operators whose rows come over an edge, those in between left out."""
    if edge.sender not in passed:
        return [edge.sender]
    return [sender for before in dataflow.into(edge.sender) for sender in _senders(dataflow, before, passed)]


def _spoken(edge: Edge) -> str:
    grouping = edge.grouping
    closing = ", feedback" if edge.feedback else ""
    return f"{edge} (input {edge.port}, {grouping.route.value} {', '.join(grouping.columns)}{closing})"


def difference(was: Shape, now: Shape) -> str | None:
    """The first thing in which two shapes differ, in words; None where states of one can go on in the other.

    Numbers of instances and key groups may differ: states are dealt out anew. So may how rows are spread that need not
    meet, which goes with the numbers: `forward` where two are equal, in turn where they are not.

    >>> one = {"kind": "map", "parallelism": 2, "columns": "x int64", "settings": ""}
    >>> difference({"operators": {"a": one}, "edges": []}, {"operators": {"a": one | {"kind": "sink"}}, "edges": []})
    "operator 'a' had kind map, and has sink"
    """
    before, after = was["operators"], now["operators"]
    for name in before:
        if name not in after:
            return f"operator {name!r} is gone"
    for name, operator in after.items():
        if name not in before:
            return f"operator {name!r} is new"
        for what, value in operator.items():
            if what != "parallelism" and before[name].get(what) != value:
                return f"operator {name!r} had {what} {before[name].get(what)}, and has {value}"
    for old, new in zip(was["edges"], now["edges"], strict=False):
        if _SPREAD.sub(r"\1", old) != _SPREAD.sub(r"\1", new):
            return f"edge {old} is now {new}"
    if len(was["edges"]) != len(now["edges"]):
        return f"there were {len(was['edges'])} edges, and are {len(now['edges'])}"
    return None
