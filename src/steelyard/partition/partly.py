"""PartLy: blocks as a trained network cuts them.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, chapter 4.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from steelyard.core import BlockPlan, KeyCounts, Observation, OptionError, State, StateError
from steelyard.partition.fit import Fit
from steelyard.partition.learned import inference
from steelyard.partition.learned.weights import SHIPPED, Weights, load
from steelyard.partition.prompt import Prompt

_LOG = logging.getLogger(__name__)
MEMORY = 0.9
"""Weight of what was known of prices when a batch comes in."""
ENOUGH = 5
"""Batches with reports after which plans are judged by what tasks took, and no longer by MPI."""
CLOSE = 0.01
"""Plans that promise times so much alike are told apart by MPI."""


@dataclass(eq=False)
class PartLy:
    """A trained network decides, key by key, which block it goes to and which keys are cut last, to fill the holes.

    Trained on simulated batches for Prompt's measures, it serves any number of keys and blocks. Each plan is checked
    beside Prompt's, and the better one is used: by MPI at first, and once map tasks have reported their times, by the
    longest task that prices of rows and keys learnt from them promise. Those prices are what it learns while a query
    runs, and what a checkpoint keeps; the network itself is trained by `steelyard train partly`.

    Parameters
    ----------
    weights
        File of a trained network; empty for the one that comes with the package. Where it cannot be used, a warning
        says why, and plans are Prompt's.
    mode
        `"sequential"` asks the network for each key, `"one_shot"` once for as many keys as there are blocks; `"auto"`
        takes the second for more than 2,000 keys.
    net
        Whether Prompt's plan is used where it is the better one; without, plans are the network's own.

    Examples
    --------
    >>> counts = KeyCounts.of(dict(K1=140, K2=88, K3=45, K4=40, K5=30, K6=22, K7=12, K8=8))
    >>> policy = PartLy()
    >>> plan = policy.plan(counts, blocks=4)
    >>> plan.mpi_normalised() <= Prompt().plan(counts, 4).mpi_normalised()
    True
    >>> policy.plans, policy.fallbacks
    (1, 0)
    """

    weights: str = ""
    mode: Literal["auto", "sequential", "one_shot"] = "auto"
    net: bool = True

    name: ClassVar[str] = "partly"
    paper: ClassVar[str] = "Abdelhamid 2021, chapter 4"
    needs_counts: ClassVar[bool] = True

    plans: int = field(default=0, init=False, repr=False)
    """Plans of batches with keys."""
    netted: int = field(default=0, init=False, repr=False)
    """Plans that were Prompt's because they were better."""
    fallbacks: int = field(default=0, init=False, repr=False)
    """Plans that were Prompt's because there was no network that could be used."""

    def __post_init__(self) -> None:
        if self.mode not in inference.MODES:
            raise OptionError.unknown(f"mode of {self.name}", self.mode, inference.MODES)
        self._prices = Fit(2, MEMORY)
        self._reports = 0
        self._prompt = Prompt()
        self._network: Weights | None = None
        try:
            self._network = load(Path(self.weights) if self.weights else SHIPPED)
        except StateError as problem:
            _LOG.warning("partly plans as prompt does, since its network cannot be used: %s", problem)

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The network's plan, or Prompt's where that is better or nothing else can be had."""
        if len(counts):
            self.plans += 1
        if self._network is None:
            self.fallbacks += bool(len(counts))
            return _renamed(self._prompt.plan(counts, blocks), f"{self.name} (prompt)")
        own = inference.plan(self._network, counts, blocks, self.mode, self.name)
        if not self.net or not len(counts) or blocks == 1:
            return own
        other = self._prompt.plan(counts, blocks)
        # rows of keys that are not listed go by hash under either plan
        listed = KeyCounts(counts.keys, counts.rows)
        if not self._better(_of(listed, other), _of(listed, own)):
            return own
        self.netted += 1
        return _renamed(other, f"{self.name} (prompt)")

    def _better(self, one: BlockPlan, other: BlockPlan) -> bool:
        """Whether the first plan is."""
        if self._reports >= ENOUGH and self._prices.prices.any():
            times = [
                float((np.c_[plan.sizes, plan.cardinalities] @ self._prices.prices).max()) for plan in (one, other)
            ]
            if abs(times[0] - times[1]) > CLOSE * max(times):
                return times[0] < times[1]
        return one.mpi_normalised() < other.mpi_normalised()

    def observe(self, observation: Observation) -> None:
        """Learn from a batch what rows and keys take."""
        self._reports += self._prices.learn_tasks(observation) is not None

    def state(self) -> State:
        """What was learnt and counted, for a checkpoint."""
        return {
            "prices": self._prices.state(),
            "counted": np.array([self._reports, self.plans, self.netted, self.fallbacks]),
        }

    def restore(self, state: State) -> None:
        """Go on from it."""
        prices, counted = state["prices"], state["counted"].tolist()
        if prices.shape != self._prices.state().shape or len(counted) != 4 or not np.isfinite(prices).all():
            raise StateError(
                f"what {self.name} had learnt is of another form: {prices.shape} and {len(counted)} counts"
            )
        self._prices.restore(prices)
        self._reports, self.plans, self.netted, self.fallbacks = counted


def _of(listed: KeyCounts, plan: BlockPlan) -> BlockPlan:
    return BlockPlan(listed, plan.blocks, plan.key, plan.block, plan.rows)


def _renamed(plan: BlockPlan, name: str) -> BlockPlan:
    return BlockPlan(plan.counts, plan.blocks, plan.key, plan.block, plan.rows, plan.rule, name)
