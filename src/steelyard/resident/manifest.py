"""What a snapshot is of: the dataflow's shape, and the exact file of each instance's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.core.dataflow import Dataflow, Edge, Route
from steelyard.core.durable import Described, Link, damaged, opened, sealed

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
        By instance: the file of its state, under the store's folder. Files that no manifest names never happened.
    note
        What the one who started the job gave to be kept.
    before
        The commit before this one.
    results
        By epoch: the file of what it gave to sinks in the driver, of those that were not handed on yet.
    """

    epoch: int
    attempt: str
    shape: Shape
    files: Mapping[str, Described]
    note: str = ""
    before: Link | None = None
    results: Mapping[str, Described] = field(default_factory=dict)

    @property
    def described(self) -> list[Described]:
        """All files that it names."""
        return [*self.files.values(), *self.results.values()]

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
        return cls(**{**body, "files": files, "before": before, "results": results}), seal


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
