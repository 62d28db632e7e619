"""A partitioner agent: a trained network chooses for every batch how it is cut.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, section 4.8.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from steelyard.core import BlockPlan, KeyCounts, Observation, State, StateError
from steelyard.core.plans import at_least_one_block
from steelyard.learning import Network
from steelyard.partition.fit import Fit
from steelyard.partition.learned.cutting import HEURISTIC, POLICY, SHIPPED, WAYS, features, load, of_input

_LOG = logging.getLogger(__name__)
MEMORY = 0.9
"""Weight of what was known of prices when a batch comes in."""
UNKNOWN = 0.5
"""Share of keys in a block's time while nobody has measured tasks."""


@dataclass(eq=False)
class PartitionerAgent:
    """A trained network chooses, batch by batch, how to cut: by hash, with few cuts, as Prompt does, or with more cuts.

    It sees its own input (how large the largest keys are beside a block, how many keys there are) and its own blocks
    (how uneven the last ones were, and what keys take of their time), so that each receiver of a stream may have an
    agent of its own. Agents were trained together with the policy `scheduler`, each for its own blocks alone.

    Parameters
    ----------
    weights
        File of a trained network; empty for the one that comes with the package. Where it cannot be used, a warning
        says why, and plans are Prompt's.

    Examples
    --------
    >>> counts = KeyCounts.of(dict(K1=140, K2=88, K3=45, K4=40, K5=30, K6=22, K7=12, K8=8))
    >>> plan = PartitionerAgent().plan(counts, blocks=4)
    >>> plan.policy.partition(" ")[0], int(plan.sizes.sum())
    ('agent', 385)
    """

    weights: str = ""

    name: ClassVar[str] = POLICY
    paper: ClassVar[str] = "Abdelhamid 2021, section 4.8"
    needs_counts: ClassVar[bool] = True

    fallbacks: int = field(default=0, init=False, repr=False)
    """Plans that were Prompt's, since there was no network that could be used."""

    def __post_init__(self) -> None:
        self._prices = Fit(2, MEMORY)
        self._key_share, self._uneven = UNKNOWN, 0.0
        self._network: Network | None = None
        try:
            self._network = load(Path(self.weights) if self.weights else SHIPPED)
        except StateError as problem:
            _LOG.warning("agent plans as prompt does, since its network cannot be used: %s", problem)

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """A plan by the way that the network chooses."""
        at_least_one_block(blocks)
        way = HEURISTIC
        if self._network is None:
            self.fallbacks += 1
        elif len(counts):
            seen = features(of_input(counts.rows, blocks), self._key_share, self._uneven)
            way = int(self._network(seen).argmax())
        made = WAYS[way].plan(counts, blocks)
        named = f"{self.name} ({made.policy})"
        return BlockPlan(made.counts, made.blocks, made.key, made.block, made.rows, made.rule, named)

    def observe(self, observation: Observation) -> None:
        """Learn from a batch what rows and keys take, and how uneven its own blocks were."""
        learnt = self._prices.learn_tasks(observation)
        if learnt is None:
            return
        sums, seconds = learnt
        parts = self._prices.prices * sums
        self._key_share = float(parts[1] / parts.sum()) if parts.sum() > 0 else UNKNOWN
        self._uneven = float(seconds.max() / seconds.mean() - 1)

    def state(self) -> State:
        """What was learnt, for a checkpoint."""
        return {"prices": self._prices.state(), "blocks": np.array([self._key_share, self._uneven])}

    def restore(self, state: State) -> None:
        """Go on from it."""
        prices, blocks = state["prices"], state["blocks"]
        if prices.shape != self._prices.state().shape or blocks.shape != (2,) or not np.isfinite(blocks).all():
            raise StateError(f"what {self.name} had learnt is of another form: {prices.shape} and {blocks.shape}")
        self._prices.restore(prices)
        self._key_share, self._uneven = (float(value) for value in blocks)
