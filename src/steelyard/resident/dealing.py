"""Going on with other numbers of instances: states of a snapshot at rest are dealt out to the instances of now.

Workers do it, each for the instances that it hosts, from the files of all old instances. The commit stays as it is:
where workers fail before the next one, those that follow deal out the same states in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.core import OptionError, StateError
from steelyard.core.dataflow import Dataflow, Operator, Route
from steelyard.core.durable import Described
from steelyard.core.key_groups import KeyGroups
from steelyard.core.topology import Instance
from steelyard.resident.manifest import Manifest
from steelyard.resident.operator import MIN_WATERMARK, State, owned
from steelyard.resident.shares import Share
from steelyard.resident.snapshot import SnapshotStore

_STEP = "step "
"""Before the names of what a step keeps, in the state of its instance."""


class Dealing:
    """Deals the states of a snapshot out to the instances of a dataflow.

    **Event time.** An instance goes on from where the old one of its operator was that was furthest behind; a source
    begins anew, since it tells how far it is by its splits when it reads. No channel is known to have come anywhere:
    each instance tells once more where it is, before anything else (`own` has `tell`). So nobody is further than he was
    told, and no row that was in time becomes late; what was given is known key by key (`floors.py`).

    **What was learnt** of costs and routes begins anew around operators whose numbers changed.

    Parameters
    ----------
    dataflow
        What runs now.
    store, files
        By instance of before: the file of its state.
    groups
        The key groups of before; 0 where there were none.
    """

    def __init__(self, dataflow: Dataflow, store: SnapshotStore, files: Mapping[str, Described], groups: int) -> None:
        self._dataflow, self._store, self._groups = dataflow, store, groups
        self._before = files_before(files)
        self._changed = {one.name for one in dataflow.operators if self._is_changed(one)}
        self._forgets = {edge.receiver for edge in dataflow.edges if {edge.sender, edge.receiver} & self._changed}
        """Operators to which rows no longer come from whom they came, or in which they go to others."""
        self._loaded: tuple[str, list[State]] = ("", [])

    def _is_changed(self, operator: Operator) -> bool:
        before = len(self._before.get(operator.name, ()))
        by_hash = any(edge.grouping.joins_keys for edge in self._dataflow.into(operator.name))
        others = by_hash and operator.parallelism > 1 and self._groups != self._dataflow.groups
        return before > 0 and (before != operator.parallelism or others)

    def state(self, instance: Instance) -> State:
        """From what an instance goes on."""
        name = instance.operator
        if name not in self._before:  # one that keeps nothing may be new
            return {"own": {"tell": True}}
        if name not in self._changed:
            state = self._store.load(self._before[name][instance.number])
            return {**self._kept(name, state), "own": self._own([state], name)}
        states = self._states(name)
        operator = self._dataflow.by_name[name]
        logic: Any = operator.logic
        steps = [{part.removeprefix(_STEP): value for part, value in one.items() if _is_step(part)} for one in states]
        dealt = owned(logic.dealt(steps, self._share(operator, instance.number, len(states))))
        return {"own": self._own(states, name), **{f"{_STEP}{part}": value for part, value in dealt.items()}}

    def _states(self, operator: str) -> list[State]:
        """Of all old instances; of one operator at a time, since they may be large."""
        if self._loaded[0] != operator:
            self._loaded = ("", [])
            self._loaded = (operator, [self._store.load(file) for file in self._before[operator]])
        return self._loaded[1]

    def _kept(self, name: str, state: State) -> State:
        """What an instance keeps whose operator has as many as before."""
        kept = {part: value for part, value in state.items() if _is_step(part)}
        for number, edge in enumerate(self._dataflow.out_of(name)):
            part = f"edge {number}"
            if part in state and edge.receiver not in self._forgets:
                kept[part] = state[part]
        if name not in self._forgets:
            kept |= {part: value for part, value in state.items() if part.startswith("costs ")}
        return kept

    def _own(self, states: Sequence[State], name: str) -> dict[str, Any]:
        own = [state.get("own", {}) for state in states]
        watermark = min(one.get("watermark", MIN_WATERMARK) for one in own)
        if name in self._changed and not self._dataflow.by_name[name].ports:
            watermark = MIN_WATERMARK
        known = [one["checkpoints"] for one in own if "checkpoints" in one]
        done = all(one.get("done", False) for one in own)
        return {"watermark": watermark, "done": done, "tell": True} | ({"checkpoints": max(known)} if known else {})

    def _share(self, operator: Operator, number: int, before: int) -> Share:
        now = operator.parallelism
        return Share(
            number,
            KeyGroups(max(self._groups, before), before),  # without groups: one for each instance
            KeyGroups(max(self._dataflow.groups, now), now),
            frozenset(port for port in range(operator.ports) if _routes(self._dataflow, operator, port) == {_ALL}),
        )


_ALL = Route.BROADCAST


def _is_step(part: str) -> bool:
    return part.startswith(_STEP)


def _routes(dataflow: Dataflow, operator: Operator, port: int) -> set[Route]:
    return {edge.grouping.route for edge in dataflow.into(operator.name) if edge.port == port and not edge.feedback}


def files_before(files: Mapping[str, Described]) -> dict[str, list[Described]]:
    """By operator: the files of its instances, in their order.

    >>> files_before({"a#1": Described("one", 0, 0), "a#0": Described("null", 0, 0)})["a"][0].name
    'null'
    """
    found: dict[str, list[Described]] = {}
    for instance in sorted(Instance.parse(name) for name in files):
        found.setdefault(instance.operator, []).append(files[str(instance)])
    return found


def require_dealt(dataflow: Dataflow, store: SnapshotStore, files: Mapping[str, Described]) -> None:
    """OptionError for an operator that has other instances than its states are of, and cannot deal these out."""
    before = files_before(files)
    for operator in dataflow.operators:
        known = before.get(operator.name, [])
        if len(known) in (0, operator.parallelism):
            continue
        ports = [_routes(dataflow, operator, port) for port in range(operator.ports)]
        if any(_ALL in routes and len(routes) > 1 for routes in ports):
            raise OptionError(
                f"operator {operator.name!r} keeps its number of instances: an input of it gets rows that go to all "
                "instances, and others that go to one; join them one after the other"
            )
        if getattr(operator.logic, "deals", False):
            continue
        for file in known:
            kept = sorted(part.removeprefix(_STEP) for part in store.load(file) if _is_step(part))
            if kept:
                raise OptionError(
                    f"operator {operator.name!r} keeps its number of instances, {len(known)}: it has a state "
                    f"({', '.join(kept)}), and does not say how that is dealt out; give process(..., deal=...)"
                )


def scaled_as(dataflow: Dataflow, newest: Manifest | None) -> Dataflow:
    """A dataflow with the numbers of instances that its newest commit has."""
    before = files_before(newest.files) if newest is not None else {}
    return dataflow.rescaled({name: len(files) for name, files in before.items() if name in dataflow.by_name})


def others_told(dataflow: Dataflow, files: Mapping[str, Described]) -> str:
    """What numbers of instances are others than in a commit, in words."""
    before = files_before(files)
    told = [
        f"{one.name!r} had {len(before[one.name])} instances, and has {one.parallelism}"
        for one in dataflow.operators
        if len(before.get(one.name, ())) not in (0, one.parallelism)
    ]
    return f" ({'; '.join(told)})" if told else ""


def require_newest_dealt(dataflow: Dataflow, store: SnapshotStore) -> None:
    """The same for the newest commit, if there is one; another may be written meanwhile."""
    newest = store.newest()
    while newest is not None:
        try:
            require_dealt(dataflow, store, newest.files)
            return
        except StateError:
            before, newest = newest, store.newest()
            if newest is None or newest.epoch == before.epoch:
                raise
