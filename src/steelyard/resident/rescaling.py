"""Other numbers of instances for a dataflow: which go together, which way a running job gets them, what it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from steelyard.core import OptionError
from steelyard.core.control import for_all_joined
from steelyard.core.dataflow import Dataflow, Route
from steelyard.core.shown import counted
from steelyard.core.topology import Placement
from steelyard.resident.costs import learns_costs, observes_costs
from steelyard.resident.moving import Reassigned, Way
from steelyard.resident.stateless import Filter, FlatMap, Map, Select


def rescaled(dataflow: Dataflow, parallelism: Mapping[str, int]) -> Dataflow:
    """The dataflow with these numbers; OptionError, with the remedy, where they do not go together."""
    for name in parallelism:
        dataflow.operator(name)
    for edge in dataflow.edges:
        sender, receiver = (_wanted(dataflow, parallelism, name) for name in (edge.sender, edge.receiver))
        if edge.grouping.route is Route.FORWARD and sender != receiver:
            all_joined = for_all_joined(parallelism, joined_of(dataflow))
            raise OptionError(
                f"edge {edge} is forward, and {edge.sender!r} would have {sender} instances and {edge.receiver!r} "
                f"{receiver}: rescale all that forward edges join, as in {all_joined}, or write shuffle() between them"
            )
    return dataflow.rescaled(parallelism)


def _wanted(dataflow: Dataflow, parallelism: Mapping[str, int], name: str) -> int:
    return parallelism.get(name, dataflow.by_name[name].parallelism)


def joined_of(dataflow: Dataflow) -> tuple[tuple[str, ...], ...]:
    """The operators of each group that forward edges join, which have one number of instances."""
    group: dict[str, tuple[str, ...]] = {one.name: (one.name,) for one in dataflow.operators}
    for edge in dataflow.edges:
        if edge.grouping.route is Route.FORWARD:
            both = {*group[edge.sender], *group[edge.receiver]}
            group |= dict.fromkeys(both, tuple(name for name in dataflow.by_name if name in both))
    return tuple(dict.fromkeys(names for names in group.values() if len(names) > 1))


@dataclass(frozen=True)
class Wish:
    """Numbers of instances that a running generation of workers goes over to.

    Parameters
    ----------
    dataflow, placement
        What runs then, and where: whoever is there before stays where it is.
    done
        Told when all have gone over.
    """

    dataflow: Dataflow
    placement: Placement
    done: Callable[[Rescaling], None]


class Rescaling(NamedTuple):
    """How operators got other numbers of instances."""

    before: Mapping[str, int]
    now: Mapping[str, int]
    """By operator whose number is another."""
    why: str
    """Why all stopped for a snapshot, and other workers went on from it; "" where it was in place."""
    seconds: float
    """From when the engine began with it: until all states were where they belong, or until other workers worked."""
    groups: int
    """Key groups that got another owner, of all operators with states."""
    parts: int = 0
    """States that went from one instance to another, in place."""
    bytes: int = 0
    """Of their rows."""
    unweighed: tuple[str, ...] = ()
    """Edges whose weights do not fit any more: their rows are dealt out to all instances alike."""

    @property
    def in_place(self) -> bool:
        """Whether what had not to move went on."""
        return not self.why

    @classmethod
    def of(cls, was: Dataflow, then: Dataflow, why: str, seconds: float, parts: int = 0, size: int = 0) -> Rescaling:
        """From one dataflow to another that differs in its numbers."""
        changed = _changed(was, then)
        before = {name: was.by_name[name].parallelism for name in changed}
        moved = [Reassigned.of(then, before[name], name) for name in changed if then.by_name[name].logic.ports]
        groups = sum(one.moved for one in moved if one.way is not Way.NOTHING)
        now = {name: then.by_name[name].parallelism for name in changed}
        return cls(before, now, why, seconds, groups, parts, size)

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} has {now} instances and had {self.before[name]}" for name, now in self.now.items())
        alike = f"; all weights are 1 again of {', '.join(self.unweighed)}" if self.unweighed else ""
        if not self.in_place:
            return f"{numbers}: all stopped for a snapshot for {self.seconds:.2f} s, since {self.why}{alike}"
        moved = f"{counted(self.groups, 'key group')} with {self.bytes:,} bytes went to other instances"
        return f"{numbers}: in place, {moved} in {self.seconds:.2f} s{alike}"


def _changed(was: Dataflow, then: Dataflow) -> list[str]:
    return [one.name for one in then.operators if one.parallelism != was.by_name[one.name].parallelism]


def kept_placement(dataflow: Dataflow, there: Placement) -> Placement:
    """Whoever is there stays; instance i of those that are new on worker i mod as many as there are."""
    known = there.worker_of
    return Placement({one: known.get(one, one.number % there.workers) for one in dataflow.instances}, there.workers)


def not_in_place(was: Dataflow, then: Dataflow, there: Placement, where: Placement) -> str:
    """Why a running dataflow cannot go over to other numbers in place; "" where it can."""
    changed = _changed(was, then)
    if not changed:
        return "no number is another"
    if was.cyclic:
        return "the dataflow has a cycle, in which rows are under way at every moment"
    moves = [one for one, worker in where.worker_of.items() if there.worker_of.get(one, worker) != worker]
    if where.workers != there.workers or moves:
        return f"{moves[0]} goes to another worker" if moves else "there are to be more workers, or fewer"
    learning = [edge for number, edge in enumerate(was.edges) if _learns(was, number) or _learns(then, number)]
    if learning:
        return f"reports of what rows cost go against the direction of edge {learning[0]}"
    return next((why for name in changed if (why := _stays(then, name))), "")


def _learns(dataflow: Dataflow, number: int) -> bool:
    channels = [one for one in dataflow.channels() if one.edge == number]
    return observes_costs(dataflow.edges[number], dataflow) or any(learns_costs(one, dataflow) for one in channels)


def _stays(then: Dataflow, name: str) -> str:
    """Why an operator gets no other number in place; "" where it does."""
    logic: Any = then.by_name[name].logic
    if not logic.ports:
        return f"{name!r} is a source, whose splits are shared out anew"
    if not logic.emits:
        return f"{name!r} is a sink that keeps what a snapshot shows" if logic.deals else ""
    routes = [{edge.grouping.route for edge in then.into(name) if edge.port == port} for port in range(logic.ports)]
    if any(Route.BROADCAST in found and len(found) > 1 for found in routes):
        return f"an input of {name!r} gets rows that go to all instances, and others that go to one"
    if not (logic.deals or isinstance(logic, _STATELESS)):
        return f"{name!r} does not say how a state of it is dealt out"
    return ""


_STATELESS = (Map, FlatMap, Filter, Select)
