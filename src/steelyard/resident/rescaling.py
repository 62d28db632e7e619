"""Other numbers of instances for a dataflow, where forward edges lead from instance i to instance i."""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.core import OptionError
from steelyard.core.dataflow import Dataflow, Route


def rescaled(dataflow: Dataflow, parallelism: Mapping[str, int]) -> Dataflow:
    """The dataflow with these numbers; OptionError, with the remedy, where they do not go together."""
    for name in parallelism:
        dataflow.operator(name)
    for edge in dataflow.edges:
        sender, receiver = (_wanted(dataflow, parallelism, name) for name in (edge.sender, edge.receiver))
        if edge.grouping.route is Route.FORWARD and sender != receiver:
            raise OptionError(
                f"edge {edge} is forward, and {edge.sender!r} would have {sender} instances and {edge.receiver!r} "
                f"{receiver}: rescale all that forward edges join, as in {together(dataflow, parallelism)}, or write "
                "shuffle() between them"
            )
    return dataflow.rescaled(parallelism)


def _wanted(dataflow: Dataflow, parallelism: Mapping[str, int], name: str) -> int:
    return parallelism.get(name, dataflow.by_name[name].parallelism)


def together(dataflow: Dataflow, parallelism: Mapping[str, int]) -> dict[str, int]:
    """Numbers for all that forward edges join with those that are named: the largest that one of them is to have."""
    group = {one.name: {one.name} for one in dataflow.operators}
    for edge in dataflow.edges:
        if edge.grouping.route is Route.FORWARD:
            both = group[edge.sender] | group[edge.receiver]
            group |= dict.fromkeys(both, both)
    return {
        name: max(_wanted(dataflow, parallelism, other) for other in group[name])
        for name in group
        if group[name] & set(parallelism)
    }
