"""What a policy is: a small object with one or two verbs, no input or output, and a readable `repr`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from steelyard.core.control import Observation
from steelyard.core.counts import Ints, KeyCounts
from steelyard.core.plans import BlockPlan, BucketPlan


@runtime_checkable
class Partitioner(Protocol):
    """Cuts a batch into blocks.

    An engine calls `plan` once per batch, in the driver, before the rows move. The plan may be for other rows
    than those that come (statistics carried over), so an engine must treat unknown keys by the plan's rule.
    """

    @property
    def name(self) -> str:
        """How it is called in reports and in the registry."""
        ...

    @property
    def needs_counts(self) -> bool:
        """Whether `plan` looks at the counts; where it does not, an engine gathers none."""
        ...

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The blocks of a batch with these counts. Raises nothing for empty counts or one block."""
        ...


class Moves(Enum):
    """When rows leave the place where they are read for the sake of a policy, which says so in an attribute `moves`."""

    ALWAYS = "always"
    """Also where a policy says nothing."""
    IF_IT_PAYS = "where it pays"
    """The policy finds out from batches; where none are to come, or the JVM combines rows for less, nothing moves."""
    NEVER = "never"

    @classmethod
    def of(cls, policy: object) -> Moves:
        """What a policy says."""
        return cls(getattr(policy, "moves", cls.ALWAYS))


@runtime_checkable
class Buffering(Partitioner, Protocol):
    """A partitioner that takes keys in the order of their frequency, which an engine may keep while rows come."""

    @property
    def buffers(self) -> bool:
        """Whether it wants that; else it sorts keys when a batch has ended."""
        ...

    def plan_sorted(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The blocks of a batch whose keys come nearly in descending order of their exact counts."""
        ...


Blocks = np.ndarray[Any, np.dtype[np.int32]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
State = Mapping[str, np.ndarray[Any, Any]]
"""What a policy has learnt, as named arrays: what a checkpoint keeps."""


class Routed(NamedTuple):
    """Where rows go, and whether their keys may be in other blocks too."""

    block: Blocks
    """int32[rows]: the block of each row."""
    split: Flags
    """bool[rows]: False only where every row of the key went to one and the same block."""


@runtime_checkable
class Router(Protocol):
    """Sends rows to blocks one by one, in their order, and may learn from what it did.

    One object is one partitioner with its state. Keys come as 64-bit ids (`kernels.xxhash.spark_hash` of a key
    column), so that a key is the same in every batch and in every partitioner, and its hash block is
    `id mod blocks`, where Spark's own hash would send it.
    """

    @property
    def blocks(self) -> int:
        """How many there are to send rows to."""
        ...

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Blocks for rows in order of arrival. `times` never falls: milliseconds, or a count of rows."""
        ...

    def state(self) -> State:
        """All that the next `route` depends on."""
        ...

    def restore(self, state: State) -> None:
        """Go on as the router that gave this state would."""
        ...


def require_blocks(policy: str, block: np.ndarray[Any, Any], rows: int, blocks: int) -> None:
    """ValueError unless there is a block for each row, and each exists: a compiled loop would not notice.

    >>> require_blocks("mine", np.array([0, 3]), 2, 3)
    Traceback (most recent call last):
    ValueError: mine sent rows to blocks 0 to 3, and there are 3
    """
    if len(block) != rows:
        raise ValueError(f"{policy} gave {len(block)} blocks for {rows} rows")
    if rows and not 0 <= block.min() <= block.max() < blocks:
        raise ValueError(f"{policy} sent rows to blocks {block.min()} to {block.max()}, and there are {blocks}")


@runtime_checkable
class TuplePolicy(Protocol):
    """Decides row by row. The policy is its parameters; a router is one partitioner that follows it."""

    @property
    def name(self) -> str:
        """How it is called in reports and in the registry."""
        ...

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        """A new partitioner. Several that share a stream have different numbers, and so different seeds."""
        ...


@runtime_checkable
class Batched(Protocol):
    """A tuple policy whose parameters have other defaults where rows come in batches."""

    def in_batches(self) -> TuplePolicy:
        """The same for a micro-batch engine."""
        ...


@runtime_checkable
class Cooperative(Protocol):
    """A tuple policy whose partitioners learn from each other between batches."""

    def synchronise(self, states: Mapping[int, State], blocks: int) -> Mapping[int, State]:
        """What each partitioner goes on with, from what each of them has learnt; called in the driver."""
        ...


class Learner(Protocol):
    """Learns what the rows of one block of a batch cost; lives in the task that executes them."""

    def executed(self, items: Ints, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Rows were executed, in this order, and each took so long."""
        ...

    def state(self) -> State:
        """What was learnt so far."""
        ...


@runtime_checkable
class Placer(Protocol):
    """A tuple policy for batches that tells rows apart by a column that their costs depend on, and not by their keys.

    Rows are placed before the function that costs. The keys of its routers are ids of the column's values. What the
    learners of a batch's blocks have found comes to `learn`, in the driver; so what it has learnt is in the next batch.
    """

    @property
    def name(self) -> str:
        """How it is called in reports."""
        ...

    @property
    def cost_of(self) -> str:
        """The column; empty where all rows are the same."""
        ...

    @property
    def learns(self) -> bool:
        """Whether it wants to know what rows cost."""
        ...

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        """As that of any tuple policy."""
        ...

    def learner(self, blocks: int, block: int) -> Learner:
        """What learns the costs of a block, with all that is known."""
        ...

    def learn(self, found: Mapping[int, State]) -> None:
        """Take in what the learners of a batch have found, by block; called in the driver."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A policy with a state: engines keep it in the checkpoint and give it back after a restart."""

    def state(self) -> State:
        """What was learnt."""
        ...

    def restore(self, state: State) -> None:
        """Go on from it."""
        ...


@runtime_checkable
class Insisting(Protocol):
    """A policy that begins to count anew when it gets what it wants, and goes on where it does not."""

    def refused(self) -> None:
        """Called right after `decide` where guards or the engine left nothing of the change that it wants."""
        ...


@runtime_checkable
class Watching(Protocol):
    """A policy that also learns from looks at which nobody decides."""

    def watch(self, observation: Observation) -> None:
        """Called instead of `decide` while a guard waits, as after a change."""
        ...


@runtime_checkable
class Observing(Protocol):
    """A policy, or a router, that looks at what its decisions cost."""

    def observe(self, observation: Observation) -> None:
        """Called after each batch, in the driver, before its commit.

        Where rows come without an end, each router that has it is called between two calls of `route`: the batch is a
        round of what it has sent since the last time, worked off by now, and its blocks are the instances.
        """
        ...


@runtime_checkable
class BucketAllocator(Protocol):
    """Sends key clusters to reduce buckets. Called inside every map task, without talking to the others."""

    @property
    def name(self) -> str:
        """How it is called."""
        ...

    def allot(
        self,
        weights: Ints,
        split: np.ndarray[Any, np.dtype[np.bool_]],
        hashes: Ints,
        buckets: int,
        task: int = 0,
    ) -> BucketPlan:
        """A bucket for each cluster: `hashes[i] mod buckets` where `split[i]`, free choice elsewhere."""
        ...


def identity(policy: Any) -> str:
    """What tells a policy from another, in every process: its kind, and its parameters where it is a dataclass.

    >>> from steelyard.partition import Prompt
    >>> identity(Prompt())
    "steelyard.partition.prompt.Prompt('ascending', 'restart')"
    """
    kind = type(policy)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not dataclasses.is_dataclass(policy):
        return name
    values = [getattr(policy, field.name) for field in dataclasses.fields(policy) if field.init]
    # what has no words of its own would be told by its place in memory
    words = [identity(one) if getattr(type(one), "__repr__", None) is object.__repr__ else repr(one) for one in values]
    return f"{name}({', '.join(words)})"
