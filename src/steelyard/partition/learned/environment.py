"""The environment in NumPy: hundreds of batches in step, with the matrix of fractions and the plans that come of it.

Abdelhamid 2021, section 4.4. Training has the same transition traced by JAX, without the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from steelyard.core import BlockPlan, KeyCounts, OptionError
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition.learned import rewards, transition
from steelyard.partition.learned.actions import LATER, level
from steelyard.partition.learned.features import full, observe
from steelyard.partition.learned.transition import Batches, State

OBSERVATIONS = ("full", "compact")


class Environment:
    """Episodes of several batches, one step for all of them at a time.

    Parameters
    ----------
    counts
        The batches' key counts.
    blocks
        Blocks of each batch, or of all.
    actions
        The level of actions, 0 to 3.
    obs
        What `observation` gives: `"full"` (counts, fractions, which key) or `"compact"`.
    reward
        `"terminal"`, or `"partial"` with what Prompt's constraints give at every step besides.
    cost
        What the terminal reward is the negative of: `"mpi"` or `"pk2"`.

    Examples
    --------
    >>> environment = Environment([KeyCounts.of({"a": 6, "b": 4})], blocks=2)
    >>> environment.step(block=[0], kind=[0]), environment.step(block=[1], kind=[0])
    (array([0.]), array([-0.0...]))
    >>> environment.fractions[0].tolist(), bool(environment.done.all())
    ([[1.0, 0.0], [0.0, 1.0]], True)
    >>> environment.plans("by hand")[0].sizes.tolist()
    [6, 4]
    """

    def __init__(
        self,
        counts: Sequence[KeyCounts],
        blocks: int | Sequence[int],
        *,
        actions: int = 3,
        obs: Literal["full", "compact"] = "compact",
        reward: Literal["terminal", "partial"] = "terminal",
        cost: rewards.Cost = "mpi",
    ) -> None:
        if obs not in OBSERVATIONS:
            raise OptionError.unknown("observation", obs, OBSERVATIONS)
        if reward not in ("terminal", "partial"):
            raise OptionError.unknown("reward", reward, ("terminal", "partial"))
        if cost not in rewards.COSTS:
            raise OptionError.unknown("cost", cost, rewards.COSTS)
        self.counts = list(counts)
        self.level, self.obs, self.reward, self.cost = level(actions), obs, reward, cost
        # stable, so that equal keys stay as they are listed
        self.orders = [np.argsort(-one.rows, kind="stable") for one in counts]
        self.batches = Batches.of([one.rows for one in counts], blocks)
        if self.batches.blocks.min(initial=1) < 1:
            raise OptionError(f"a batch is cut into at least one block, got {int(self.batches.blocks.min())}")
        self._width = int(self.batches.blocks.max(initial=1))
        self.reset()

    def reset(self) -> None:
        """All batches from the beginning."""
        batches, keys = self.batches.rows.shape
        # where a trained policy is used, all keys may be put off; so here
        self.state: State = transition.begin(self.batches, self._width, put_off=keys)
        self.placed = np.zeros((batches, keys, self._width), np.int64)

    @property
    def done(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool[batches]: which episodes have ended."""
        ended: np.ndarray[Any, np.dtype[np.bool_]] = self.state.done
        return ended

    @property
    def fractions(self) -> Floats:
        """float64[batches, keys, blocks]: the matrix M; rows of keys that are assigned add up to 1."""
        return np.asarray(self.placed / np.maximum(self.batches.rows, 1)[:, :, None])

    def observation(self) -> Any:
        """What the agent sees: one array if it is full; of each block, of the batch, and of the critic if compact."""
        if self.obs == "full":
            return full(self.batches, self.fractions, self.state.index)
        return observe(self.batches, self.state)

    def allowed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool[batches, blocks, kinds]: which actions there are."""
        found: np.ndarray[Any, np.dtype[np.bool_]] = transition.allowed(self.level, self.batches, self.state)
        return found

    def step(self, block: Any, kind: Any) -> Floats:
        """Do an action in every batch that has not ended; gives the rewards."""
        block, kind = np.asarray(block, np.int64), np.asarray(kind, np.int64)
        possible = self.allowed()[np.arange(len(block)), block, kind] | self.done
        if not possible.all():
            at = int(np.flatnonzero(~possible)[0])
            raise OptionError(f"batch {at} has no action of kind {kind[at]} at block {block[at]} now: see `allowed`")
        put = transition.amounts(self.level, self.batches, self.state, block, kind)
        return self.place(put, self.level.modes[kind] == LATER)

    def place(self, put: Ints, later: Any = False) -> Floats:
        """Put rows of the keys shown into blocks, int64[batches, blocks], whatever the level of actions."""
        put = np.where(self.done[:, None], 0, put)
        if put.min(initial=0) < 0 or (put.sum(axis=1) > self.state.rest).any():
            raise OptionError("rows that are placed must be of the key that is shown, and no more than are left of it")
        before = self.state
        later = np.broadcast_to(later, before.done.shape)
        self.placed[np.arange(len(put)), before.index] += put
        self.state = transition.advance(self.batches, before, put, later)
        gained = np.where(self.state.done & ~before.done, rewards.terminal(self.batches, self.state, self.cost), 0.0)
        if self.reward == "partial":
            gained = gained + rewards.partial(self.batches, before, self.state, put)
        return np.asarray(gained, np.float64)

    def plans(self, policy: str) -> list[BlockPlan]:
        """The plan of each batch; keys that no block has yet are missing from it."""
        made = []
        for number, counts in enumerate(self.counts):
            key, block = np.nonzero(self.placed[number])
            rows = self.placed[number, key, block]
            where = self.orders[number][key]
            made.append(
                BlockPlan.of(counts, int(self.batches.blocks[number]), key=where, block=block, rows=rows, policy=policy)
            )
        return made
