"""What an agent is rewarded with (Abdelhamid 2021, sections 4.5.1 and 4.6), over NumPy and, traced, over JAX."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from steelyard.core import OptionError
from steelyard.core.plans import Floats
from steelyard.partition.learned.transition import Batches, State

Cost = Literal["mpi", "pk2"]
COSTS: tuple[Cost, ...] = ("mpi", "pk2")
READINGS = ("smooth", "baseline")
"""Of the running average."""


def cost(batches: Batches, load: Any, card: Any, kind: Cost = "mpi", xp: Any = np) -> Any:
    """float[batches]: what blocks of these rows and keys cost; 0 is best.

    `"mpi"` is `BlockPlan.mpi_normalised`: (BSI / (N/p) + BCI / (K/p) + KSR - 1) / 3. `"pk2"` is the first reward of the
    document, max - mean of the blocks' rows, here over N/p.
    """
    p = batches.blocks.astype(np.float32)
    exists = xp.arange(load.shape[1])[None, :] < batches.blocks[:, None]
    rows = xp.maximum(batches.total, 1) / p
    keys = xp.maximum(batches.keys, 1) / p
    size = xp.where(exists, load, 0).max(-1) / rows - load.sum(-1) / p / rows
    if kind == "pk2":
        return size
    cardinality = (xp.where(exists, card, 0).max(-1) - batches.keys / p) / keys
    split = (card.sum(-1) - batches.keys) / xp.maximum(batches.keys, 1)
    return (size + cardinality + split) / 3


def terminal(batches: Batches, state: State, kind: Cost = "mpi", xp: Any = np) -> Any:
    """float[batches]: the reward at the end, the cost in units of a mean key, K/p of which are in a block.

    Its logarithm is taken, so that a batch that went wrong does not drown the others.
    """
    unit = xp.maximum(batches.keys, 1) / batches.blocks.astype(np.float32)
    return -xp.log1p(xp.maximum(cost(batches, state.load, state.card, kind, xp), 0) * unit)


def partial(batches: Batches, before: State, after: State, put: Any, penalty: bool = False, xp: Any = np) -> Any:
    """float[batches]: +1/K where no block that got rows has more than N/p rows or K/p keys, half where one holds.

    Both are rounded up. With `penalty`, -1/K where none holds.
    """
    touched = put > 0
    keys = xp.maximum(batches.keys, 1)
    most_keys = -(-batches.keys // batches.blocks)
    size = (~touched | (after.load <= batches.capacity[:, None])).all(-1)
    cardinality = (~touched | (after.card <= most_keys[:, None])).all(-1)
    held = size.astype(np.float32) + cardinality
    reward = xp.where(held > 0, held / 2, -1.0 if penalty else 0.0) / keys
    return xp.where(before.done | ~touched.any(-1), 0, reward)


@dataclass
class RunTimeCost:
    """The variance of task times in the range of the cost that was learnt before, so that learning goes on from there.

    Cost = Cost_min + (Var - Var_min) / (Var_max - Var_min) (Cost_max - Cost_min); larger is worse. The document prints
    it as a reward; as one, its negative is meant. Bounds are those seen so far.

    Examples
    --------
    >>> scale = RunTimeCost(low=0.0, high=2.0)
    >>> scale.of(map_seconds=[1.0, 1.0], reduce_seconds=[1.0, 3.0])
    0.0
    >>> scale.of(map_seconds=[1.0, 5.0], reduce_seconds=[1.0, 1.0])
    2.0
    """

    low: float
    high: float
    least: float = field(default=np.inf)
    most: float = field(default=-np.inf)

    def of(self, map_seconds: Any, reduce_seconds: Any) -> float:
        """The cost of a batch by the times of its tasks: the larger variance of the two stages."""
        return float(self.rescaled(np.array([larger_variance(map_seconds, reduce_seconds)]))[0])

    def rescaled(self, variances: Floats) -> Floats:
        """The costs of several batches; NaN is refused."""
        if not np.isfinite(variances).all():
            raise OptionError(
                "the variance of task times must be a number, and one is not: leave out tasks without times"
            )
        self.least = min(self.least, float(variances.min()))
        self.most = max(self.most, float(variances.max()))
        span = self.most - self.least
        if span <= 0:
            return np.full(len(variances), self.low)
        return np.asarray(self.low + (variances - self.least) / span * (self.high - self.low))


def larger_variance(map_seconds: Any, reduce_seconds: Any) -> float:
    """The variance of task times of the stage where they differ more."""
    return max(float(np.var(map_seconds)), float(np.var(reduce_seconds)))


@dataclass
class RunningAverage:
    """A mean of earlier rewards that damps chance, in both readings of the document.

    Parameters
    ----------
    reading
        `"smooth"`: the reward is the mean itself, with the new one in it. `"baseline"`: the mean is taken off.
    weight
        Of the newest reward.

    Examples
    --------
    >>> smooth, off = RunningAverage("smooth", 0.5), RunningAverage("baseline", 0.5)
    >>> [smooth.of(reward) for reward in (4.0, 8.0)], [off.of(reward) for reward in (4.0, 8.0)]
    ([4.0, 6.0], [0.0, 4.0])
    """

    reading: Literal["smooth", "baseline"] = "smooth"
    weight: float = 0.05
    mean: float | None = None

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise OptionError.unknown("reading of the running average", self.reading, READINGS)

    def of(self, reward: float) -> float:
        """What to learn from instead of a reward."""
        before = reward if self.mean is None else self.mean
        self.mean = before + self.weight * (reward - before)
        return self.mean if self.reading == "smooth" else reward - before
