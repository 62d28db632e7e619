"""What a snapshot is of: the dataflow's shape, and the exact file of each instance's state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from steelyard.core import SteelyardError
from steelyard.core.dataflow import Dataflow, Edge, Route

Shape = Mapping[str, Any]
"""What of a dataflow its states depend on, as plain values."""


@dataclass(frozen=True)
class Manifest:
    """The commit of a snapshot.

    Parameters
    ----------
    epoch
        The epoch that it ends.
    attempt
        The attempt of the job that took it.
    shape
        Of its dataflow; see `shape_of`.
    files
        By instance: where its state is, under the store's folder. Files that no manifest names never happened.
    """

    epoch: int
    attempt: str
    shape: Shape
    files: Mapping[str, str]

    def packed(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, data: bytes, where: str) -> Manifest:
        """What `packed` gave; SteelyardError where it is something else."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise SteelyardError(f"{where} is no commit of a snapshot that this release can read: {error}") from error


def shape_of(dataflow: Dataflow) -> Shape:
    """Operators by name, and edges in their order: what must be the same for states to go on.

    Functions are not compared, nor what sources read: a source goes on from its offsets.
    """
    return {
        "operators": {
            one.name: {
                "kind": one.logic.kind,
                "parallelism": one.parallelism,
                "columns": ", ".join(f"{column.name} {column.type}" for column in dataflow.schemas[one.name]),
                "settings": getattr(one.logic, "state_settings", ""),
            }
            for one in dataflow.operators
        },
        "edges": [_spoken(edge) for edge in dataflow.edges],
    }


def _spoken(edge: Edge) -> str:
    grouping = edge.grouping
    name = grouping.route.value
    if grouping.route is Route.POLICY:
        policy = grouping.policy
        name = policy if isinstance(policy, str) else str(getattr(policy, "name", type(policy).__name__))
    closing = ", feedback" if edge.feedback else ""
    return f"{edge} (input {edge.port}, {name} {', '.join(grouping.columns)}{closing})"


def difference(was: Shape, now: Shape) -> str | None:
    """The first thing in which two shapes differ, in words; None where they are the same.

    >>> one = {"kind": "map", "parallelism": 2, "columns": "x int64", "settings": ""}
    >>> difference({"operators": {"a": one}, "edges": []}, {"operators": {"a": one | {"parallelism": 3}}, "edges": []})
    "operator 'a' had parallelism 2, and has 3"
    """
    before, after = was["operators"], now["operators"]
    for name in before:
        if name not in after:
            return f"operator {name!r} is gone"
    for name, operator in after.items():
        if name not in before:
            return f"operator {name!r} is new"
        for what, value in operator.items():
            if before[name].get(what) != value:
                return f"operator {name!r} had {what} {before[name].get(what)}, and has {value}"
    for old, new in zip(was["edges"], now["edges"], strict=False):
        if old != new:
            return f"edge {old} is now {new}"
    if len(was["edges"]) != len(now["edges"]):
        return f"there were {len(was['edges'])} edges, and are {len(now['edges'])}"
    return None
