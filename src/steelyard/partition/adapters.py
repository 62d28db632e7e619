"""Each kind of policy in place of the other: routing as a plan, and a plan as routing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from steelyard.core import (
    Batched,
    BlockPlan,
    KeyCounts,
    Learning,
    OptionError,
    Partitioner,
    Routed,
    Router,
    State,
    TuplePolicy,
)
from steelyard.core.counts import Ints
from steelyard.core.plans import at_least_one_block
from steelyard.core.policies import require_blocks

_BLOCKS, _PLANNED, _ROUTER = "planned_by_routing/blocks", "planned_by_routing/plans", "router/"
"""Names in `PlannedByRouting.state`: its own arrays, and the prefix of its router's."""


@dataclass
class PlannedByRouting:
    """Plans a batch by routing its rows: what a policy that decides row by row would do with these counts.

    Counts do not tell the order of rows, so they are mixed well. Of a large batch a sample is routed, in which
    keys have their shares of the batch, and its blocks are scaled up again. The router goes on from batch to
    batch, with what it has learnt; for another number of blocks a new one begins.

    Parameters
    ----------
    policy
        Decides row by row.
    sample
        The most rows that are routed for a plan. Where there are more keys than that, the rarest are not
        routed and go to their hash block.
    seed
        Chooses the order of the rows.
    remember
        False begins with a new router for every plan, so that a plan depends on nothing but its counts.

    Examples
    --------
    >>> from steelyard.partition import Hash
    >>> by_hash = PlannedByRouting(RoutedByPlan(Hash()))
    >>> by_hash.plan(KeyCounts.of({"a": 900, "b": 60, "c": 40}), blocks=2).ksr
    1.0
    """

    policy: TuplePolicy
    sample: int = 1_000_000
    seed: int = 0
    remember: bool = True
    _router: Router | None = field(default=None, init=False, repr=False, compare=False)
    _planned: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise OptionError(f"sample must be 1 row or more, got {self.sample}")
        if self.seed < 0:
            raise OptionError(f"seed must be 0 or more, got {self.seed}")
        if isinstance(self.policy, Batched):
            self.policy = self.policy.in_batches()

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def needs_counts(self) -> bool:
        """Always: the rows to be routed are made of them."""
        return True

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Route the rows of `counts`, and count what went where."""
        from steelyard.kernels.fragments import tally  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415

        at_least_one_block(blocks)
        ids = spark_hash(counts.keys)
        laid = sampled(counts.rows, self.sample)
        mixing = np.random.default_rng([self.seed, self._planned])
        order = mixing.permutation(int(laid.sum()))
        key = np.repeat(np.arange(len(laid), dtype=np.int32), laid)
        router = self._router_for(blocks)
        # Rows of a plan come at one moment, and the next plan is one slide of the policy's window later.
        now = self._planned * int(getattr(self.policy, "slide", 1))
        times = np.full(len(order), now, dtype=np.int64)
        block = np.empty(len(order), dtype=np.int32)
        block[order] = router.route(ids[key[order]], times).block
        require_blocks(self.name, block, len(order), blocks)
        if self.remember:
            self._router, self._planned = router, self._planned + 1
        key_of, block_of, rows_of = tally(block, laid, counts.rows, blocks)
        unseen = np.flatnonzero(laid == 0)
        return BlockPlan.of(
            counts,
            blocks,
            key=np.r_[key_of, unseen],
            block=np.r_[block_of, np.mod(ids[unseen], blocks)],
            rows=np.r_[rows_of, counts.rows[unseen]],
            policy=self.name,
        )

    def state(self) -> State:
        """The router's state, for how many blocks it is, and the number of plans so far."""
        own = {_PLANNED: np.array(self._planned), _BLOCKS: np.array(self._router.blocks if self._router else 0)}
        return own | {_ROUTER + name: array for name, array in (self._router.state() if self._router else {}).items()}

    def restore(self, state: State) -> None:
        """Go on as the one that gave this state would."""
        blocks = int(state[_BLOCKS])
        self._planned, self._router = int(state[_PLANNED]), None
        if blocks:
            self._router = self.policy.router(blocks)
            self._router.restore(
                {name.removeprefix(_ROUTER): array for name, array in state.items() if name.startswith(_ROUTER)}
            )

    def _router_for(self, blocks: int) -> Router:
        if self._router is not None and self._router.blocks == blocks:
            return self._router
        return self.policy.router(blocks)


@dataclass(frozen=True)
class RoutedByPlan:
    """Routes rows by a plan of them: what a policy that plans batches does in place of one that decides by row.

    Each call of `route` is a batch: its rows are counted, planned, and the i-th row of a key goes to the
    fragment that holds it when the key's fragments are laid end to end.

    Parameters
    ----------
    partitioner
        Plans a batch. Its keys are the 64-bit ids themselves.

    Examples
    --------
    >>> from steelyard.partition import Prompt
    >>> router = RoutedByPlan(Prompt()).router(blocks=2)
    >>> routed = router.route(np.array([5, 5, 9, 5]), np.arange(4))
    >>> routed.block.tolist(), routed.split.tolist()
    ([0, 0, 1, 1], [True, True, False, True])
    """

    partitioner: Partitioner

    @property
    def name(self) -> str:
        """The partitioner's."""
        return self.partitioner.name

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        """A router; all that share a stream plan alike, each for its own rows."""
        at_least_one_block(blocks)
        return PlanRouter(self.partitioner, blocks)


class PlanRouter:
    """Follows a plan that it makes for each call of `route`. Made by `RoutedByPlan.router`.

    Unlike other routers it takes every call for a whole batch, so rows that are given in two calls may go
    elsewhere than in one. It has no state of its own: its state is that of a partitioner that learns.
    """

    def __init__(self, partitioner: Partitioner, blocks: int) -> None:
        self.partitioner = partitioner
        self.blocks = blocks

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Plan these rows and send each to its fragment. Their times do not matter."""
        from steelyard.kernels.fragments import follow, number_keys  # noqa: PLC0415 - tasks need no compiler

        ids, rows, numbers = number_keys(keys)
        if not len(ids):
            return Routed(np.empty(0, np.int32), np.empty(0, np.bool_))
        plan = self.partitioner.plan(KeyCounts(pa.array(ids, pa.int64()), rows), self.blocks)
        starts = np.r_[0, np.cumsum(plan.fragments_of_key)]
        return Routed(follow(numbers, starts, plan.block, plan.rows), plan.split[numbers])

    def state(self) -> State:
        """What the partitioner has learnt."""
        return self.partitioner.state() if isinstance(self.partitioner, Learning) else {}

    def restore(self, state: State) -> None:
        """Give the partitioner back what it had learnt."""
        if isinstance(self.partitioner, Learning):
            self.partitioner.restore(state)


def sampled(rows: Ints, limit: int) -> Ints:
    """int64[keys]: at most `limit` rows in all, in the proportions of `rows`, and none more often than it is.

    Every key keeps at least one row where there are no more keys than `limit`. Rounding goes to the largest
    remainders, the first of equals.

    >>> sampled(np.array([60, 20, 12, 8]), limit=14).tolist()
    [7, 3, 2, 2]
    >>> sampled(np.array([3, 9, 1]), limit=2).tolist()
    [1, 1, 0]
    """
    if int(rows.sum()) <= limit:
        return rows.copy()
    least = int(len(rows) <= limit)
    free = rows - least
    target = limit - least * len(rows)
    # Shares are a little short, so that no rounding of floats can make their sum more than the target.
    shares = free * (target * (1 - 1e-12) / float(free.sum()))
    laid = np.floor(shares).astype(np.int64)
    missing = target - int(laid.sum())
    # Only what a share has behind the point is rounded up: no key gets more rows than it has.
    laid[np.argsort(-(shares - laid), kind="stable")[:missing]] += 1
    return np.asarray(laid + least, dtype=np.int64)
