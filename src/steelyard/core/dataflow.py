"""A dataflow: a topology whose operators have code.

This is the graph alone. What an operator does with rows is its `Logic`, of which the graph knows no more than
how many inputs it has, which columns go in and come out, and by which columns rows must meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from steelyard.core.key_groups import DEFAULT_GROUPS
from steelyard.core.topology import DataflowError, Link, Topology, Vertex, require_operator


@runtime_checkable
class Logic(Protocol):
    """What an operator does, as far as the graph needs to know. Called while a dataflow is checked."""

    @property
    def kind(self) -> str:
        """`source`, `map`, `filter` …: what a picture calls it."""
        ...

    @property
    def ports(self) -> int:
        """How many inputs it tells apart: 0 for a source, 2 for a join."""
        ...

    @property
    def emits(self) -> bool:
        """False for a sink."""
        ...

    @property
    def waits_for_time(self) -> bool:
        """Whether it gives results when event time has passed them, as windows do."""
        ...

    def keys(self, port: int) -> tuple[str, ...] | None:
        """The columns by which rows of this input must meet in one instance; None where any instance will do."""
        ...

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that come out, from those that go in at each port. OptionError for one that is not there."""
        ...


class Route(Enum):
    """How an edge chooses the instance that a row goes to, in dataflows and in scenarios of the simulator.

    The first four are wirings: the graph and the row's key say all.
    """

    FORWARD = "forward"
    """Instance i to instance i: both sides of a dataflow have the same parallelism; in scenarios i to i mod n."""
    HASH = "hash"
    """By a hash of the key, so that rows of a key meet."""
    BROADCAST = "broadcast"
    """To every instance."""
    GLOBAL = "global"
    """All to the first instance."""
    SHUFFLE = "shuffle"
    """In turn."""
    POLICY = "policy"
    """As a partitioner or tuple policy says, which may split a key over instances."""
    COST = "cost"
    """As a grouping of shuffle edges says, which weighs what rows will cost the instances."""

    @property
    def is_wiring(self) -> bool:
        """Whether nobody has to decide anything."""
        return self in (Route.FORWARD, Route.HASH, Route.BROADCAST, Route.GLOBAL)


@dataclass(frozen=True)
class Grouping:
    """The grouping of an edge.

    Parameters
    ----------
    route
        How an instance is chosen.
    columns
        The key, where the choice depends on one; what costs depend on, for `Route.COST`.
    policy
        For `Route.POLICY`: a name in `steelyard.partition`, with parameters, or an object. For `Route.COST`: a grouping
        of `steelyard.grouping`.

    Examples
    --------
    >>> print(Grouping(Route.HASH, ("user", "day")), Grouping(Route.POLICY, ("user",), "dalton"))
    hash(user, day) dalton(user)
    """

    route: Route
    columns: tuple[str, ...] = ()
    policy: Any = None

    def __post_init__(self) -> None:
        if self.route in (Route.HASH, Route.POLICY) and not self.columns:
            raise DataflowError(f"grouping {self.route.value!r} needs the columns of a key: key_by('user')")
        if (self.route in (Route.POLICY, Route.COST)) != (self.policy is not None):
            raise DataflowError(f"grouping {self.route.value!r} with policy={self.policy!r}: give both, or neither")

    @property
    def joins_keys(self) -> bool:
        """Whether all rows of a key reach one instance."""
        return self.route is Route.HASH

    def __str__(self) -> str:
        name = self.route.value
        if self.policy is not None:
            name = self.policy if isinstance(self.policy, str) else str(getattr(self.policy, "name", self.policy))
        return f"{name}({', '.join(self.columns)})" if self.columns else name


FORWARD, BROADCAST, GLOBAL = Grouping(Route.FORWARD), Grouping(Route.BROADCAST), Grouping(Route.GLOBAL)
SHUFFLE = Grouping(Route.SHUFFLE)


@dataclass(frozen=True)
class Operator(Vertex):
    """An operator by name, its logic, and in how many instances it runs."""

    name: str
    logic: Logic
    parallelism: int = 1

    def __post_init__(self) -> None:
        require_operator(self.name, self.parallelism)

    @property
    def kind(self) -> str:
        """What a picture calls it."""
        return self.logic.kind

    @property
    def ports(self) -> int:
        """How many inputs it tells apart."""
        return self.logic.ports


@dataclass(frozen=True)
class Edge(Link):
    """Rows from one operator to an input of another.

    `feedback` marks the edge that closes a cycle. Rows on it are taken before others and are never held back,
    since an operator that waits for room in its own input would wait for ever.
    """

    sender: str
    receiver: str
    grouping: Grouping = FORWARD
    port: int = 0
    feedback: bool = False

    def reached(self, sender: int, receivers: int) -> Sequence[int]:
        """One instance where it leads forward, otherwise all: also those that get no rows hear of time and ends."""
        return (sender,) if self.grouping.route is Route.FORWARD else range(receivers)


@dataclass(frozen=True)
class Dataflow(Topology[Operator, Edge]):
    """A topology with code, checked when made.

    Parameters
    ----------
    name
        For pictures and logs.
    operators, edges
        The graph. Several edges may lead to one input, which then gets the rows of all.
    groups
        Key groups that instances of an operator share where rows go by hash: as many instances as groups, at most.

    Raises
    ------
    DataflowError
        For anything that keeps it from running; the operator, edge or column is named.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    groups: int = DEFAULT_GROUPS
    schemas: Mapping[str, pa.Schema] = field(init=False, repr=False, compare=False)
    """The columns that each operator gives; those that it takes, for a sink."""

    def __post_init__(self) -> None:
        from steelyard.core.dataflow_checks import checked_schemas  # noqa: PLC0415 - it checks what is defined here

        object.__setattr__(self, "schemas", checked_schemas(self))

    @property
    def sinks(self) -> tuple[Operator, ...]:
        """Operators that nothing comes out of."""
        return tuple(one for one in self.operators if not one.logic.emits)
