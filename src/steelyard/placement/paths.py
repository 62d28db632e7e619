"""From latencies of instances and pairs to the time of a tuple, along the paths of an application's graph.

Li 2018, section 2.2.2: t_i^PU = t_i^Proc + t_i^Tran (2.1), both of them means with the weights of the last ten minutes
(2.2 and 2.3); a path's time is their sum over its operators (2.4), the tuple's that of the slowest path (2.5). What the
source does and the way of the ack are in none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.core.topology import Topology, topological

Ends: TypeAlias = tuple[str, str]
"""Sender and receiver of an edge."""
MOST_PATHS = 10_000


def paths(topology: Topology[Any, Any]) -> list[tuple[str, ...]]:
    """Every way from a source to an operator that sends nothing on; feedback edges lead no way.

    >>> from steelyard.sim import Edge, Exactly, Operator, Scenario, Source
    >>> work = [Operator(name, Exactly(0.001)) for name in ("a", "b", "c")]
    >>> edges = Edge("log", "a"), Edge("log", "b"), Edge("a", "c"), Edge("b", "c")
    >>> paths(Scenario((Source("log", 10), *work), edges))
    [('log', 'a', 'c'), ('log', 'b', 'c')]
    """
    found: list[tuple[str, ...]] = []
    for source in topology.sources:
        for path in _from(topology, (source.name,)):
            found.append(path)
            if len(found) > MOST_PATHS:
                raise OptionError(f"the graph has more than {MOST_PATHS:,} paths: `tuple_time` needs no list of them")
    return found


def _from(topology: Topology[Any, Any], begun: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    after = dict.fromkeys(topology.after(begun[-1]))
    if not after:
        yield begun
    for name in after:
        yield from _from(topology, (*begun, name))


def path_time(path: tuple[str, ...], processing: Mapping[str, Floats], transfer: Mapping[Ends, Floats]) -> Any:
    """Eq 2.4 of one path: what each operator takes, and each edge to it."""
    total: Any = 0.0
    for sender, receiver in pairwise(path):
        total = total + processing[receiver] + transfer[sender, receiver]
    return total


def tuple_time(
    topology: Topology[Any, Any], processing: Mapping[str, Floats], transfer: Mapping[Ends, Floats]
) -> Floats:
    """Eq 2.5, the time of the slowest path, without listing them.

    Parameters
    ----------
    topology
        The application.
    processing
        By operator: float64[placements], t_i^Proc.
    transfer
        By edge: float64[placements], t_i^Tran.
    """
    reached: dict[str, Any] = {source.name: np.float64(0.0) for source in topology.sources}
    order, _ = topological((one.name for one in topology.operators), topology.after)
    for name in order:
        for after in dict.fromkeys(topology.after(name)):
            time = reached[name] + processing[after] + transfer[name, after]
            reached[after] = np.maximum(reached[after], time) if after in reached else time
    ends = [reached[one.name] for one in topology.operators if one.name in reached and not topology.after(one.name)]
    if not ends:
        raise OptionError("no path leads from a source to an end: there is no time of a tuple to predict")
    found: Floats = np.maximum.reduce([np.asarray(one, np.float64) for one in np.broadcast_arrays(*ends)])
    return found
