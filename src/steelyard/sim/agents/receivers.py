"""The agents' world: queries of several receivers, each of which cuts its own input for its own blocks.

A batch takes the slowest map task and then the slowest reduce task (Abdelhamid 2021, Eq 2.1), and one that is not done
when the next is closed makes it wait. How uneven tasks are comes from plans of the library's own partitioners
(`plans.py`). Times are in intervals, and many queries run at once, in NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition.learned.cutting import HEURISTIC, features
from steelyard.scaling.learned.looks import STEPS, WINDOW, Looks, allowed
from steelyard.scaling.learned.looks import features as scheduler_features
from steelyard.sim.agents.plans import Plans

SLOTS = 32
NOISE = 0.05
"""Standard deviation of the logarithm of a task's time."""
LATE, OVER, IDLE, CHANGE = 2.0, 2.0, 1.0, 0.03
"""What the scheduler pays for a batch that ends too late, for load above 1, for tasks that are not needed, over those
that are, and for each number that it changes."""
FRAGMENTS = 1.0
"""What a partitioner pays for records beyond one a key, where the reduce stage has as much to do as the map stage."""


class Seen(NamedTuple):
    """What the agents of each query observe."""

    scheduler: Any
    """float32[queries, features]"""
    partitioners: Any
    """float32[queries, partitioners, features]"""
    allowed: Any
    """bool[queries, actions]: of the scheduler."""


class Receivers:
    """Queries beside each other, whose rows, keys and skew change.

    Parameters
    ----------
    plans
        What ways of cutting lead to.
    queries, partitioners, batches
        How many there are.
    random
        Draws what happens.
    """

    def __init__(
        self, plans: Plans, queries: int, partitioners: int, batches: int, random: np.random.Generator
    ) -> None:
        self.plans, self.random = plans, random
        self.queries, self.partitioners, self.batches = queries, partitioners, batches
        self.uneven: Floats = np.zeros((queries, partitioners))
        """Of each partitioner's own blocks: the longest task over the mean, less 1."""
        self.extra: Floats = np.zeros((queries, partitioners))
        """Of its own records: those beyond one a key, over the keys."""
        self.load: Floats = np.zeros(queries)
        self.late = np.zeros(queries, np.bool_)
        self.reset()

    def reset(self) -> Seen:
        """New queries, whose first batch was cut as Prompt cuts."""
        draw, many = self.random, self.queries
        self._blocks = np.rint(np.exp(draw.uniform(np.log(2), np.log(26), many)))
        self._buckets = np.maximum(1, np.rint(self._blocks * np.exp(draw.uniform(-1.5, 0.3, many))))
        self._rows, self._keys = _courses(draw, many, self.batches + 1, self._blocks)
        mapped = draw.uniform(0.3, 0.97, many) * draw.uniform(0.6, 1.0, many)
        fixed = draw.uniform(0, 0.03, (2, many))
        self._fixed = fixed
        self._map_work = np.maximum(0.05, mapped - fixed[0]) * self._blocks
        self._reduce_work = np.maximum(0.01, draw.uniform(0.6, 1.0, many) - mapped - fixed[1]) * self._buckets
        self._key_share = draw.uniform(0, 0.7, many)
        self._known = draw.random(many) < 0.7
        each = draw.uniform(0.8, 1.2, (many, self.partitioners))
        self._shares = each / each.sum(axis=1, keepdims=True)
        inputs = len(self.plans.rows)
        self._inputs = draw.integers(inputs, size=(2, many, self.partitioners))
        self._turn = draw.integers(1, 2 * self.batches, (many, self.partitioners))  # when the skew is another
        self._now = 0
        self._waiting = np.zeros(many)
        self._before = np.full(many, -1.0)
        self._history = np.repeat(np.stack([self._rows[:, 0], self._keys[:, 0]])[..., None], WINDOW, axis=2)
        self._run(np.full((many, self.partitioners), HEURISTIC))
        return self.seen()

    def step(self, scheduler: Ints, ways: Ints) -> Floats:
        """One batch by what the agents chose: float64[queries, 1 + partitioners], the reward of each of them.

        Parameters
        ----------
        scheduler
            int[queries]: a row of `STEPS`.
        ways
            int[queries, partitioners]: a position in `WAYS`.
        """
        steps = STEPS[scheduler]
        self._blocks = np.clip(self._blocks + steps[:, 0], 1, SLOTS)
        self._buckets = np.clip(self._buckets + steps[:, 1], 1, SLOTS)
        self._now += 1
        self._changes = np.abs(steps).sum(axis=1)
        self._run(ways)
        return np.concatenate([self._scheduler_reward()[:, None], self._own_rewards()], axis=1)

    @property
    def tasks(self) -> Floats:
        """Of both stages, of each query."""
        return np.asarray(self._blocks + self._buckets)

    def seen(self) -> Seen:
        """What the agents observe after a batch."""
        mapped = np.where(self._known, self._stages[0] / self._stages.sum(axis=0), 0.5)
        most = np.full(self.queries, SLOTS)
        rows, keys = self._history
        looks = Looks(
            self.load, self._before, mapped, self._known, rows, keys,
            self._blocks, self._buckets, most, most, self._waiting,
        )  # fmt: skip
        place = self.plans.at(self._blocks / self.partitioners)[:, None]
        own = features(self.plans.input[self._input(), place], self._shares_of_keys()[:, None], self.uneven)
        return Seen(scheduler_features(looks), own, allowed(looks))

    # -- what a batch takes

    def _input(self) -> Ints:
        """int[queries, partitioners]: which input each partitioner has now."""
        return np.asarray(np.where(self._now < self._turn, *self._inputs))

    def _shares_of_keys(self) -> Floats:
        """float64[queries]: of the time of a map task, what its keys take."""
        keys = self._key_share * self._keys[:, self._now]
        return np.asarray(keys / (keys + (1 - self._key_share) * self._rows[:, self._now]))

    def _run(self, ways: Ints) -> None:
        rows, keys = self._rows[:, self._now], self._keys[:, self._now]
        place = self.plans.at(self._blocks / self.partitioners)[:, None]
        which = self._input(), place, ways
        share = self._shares_of_keys()[:, None]
        longest = (1 - share) * self.plans.rows[which] + share * self.plans.keys[which]
        # keys that are cut count in each of their blocks, which is work too: the mean has it
        self.extra = self.plans.fragments[which] - 1
        self.uneven = np.maximum(longest / (1 + share * self.extra) - 1, 0)
        work = self._map_work * ((1 - self._key_share) * rows + self._key_share * keys)
        slowest = (longest * self._shares * self.partitioners).max(axis=1)
        records = keys * (1 + (self.extra * self._shares).sum(axis=1))
        self._least = np.sqrt(work) + np.sqrt(self._reduce_work * keys)
        mapped = (self._fixed[0] + work / self._blocks * slowest) * self._noise(self._blocks)
        reduced = (self._fixed[1] + self._reduce_work * records / self._buckets) * self._noise(self._buckets)
        self._stages = np.stack([mapped, reduced])
        # of a record, and nothing that another partitioner could change
        self._price = self._reduce_work * keys / self._buckets / (work / self._blocks)
        load = mapped + reduced
        self._before = np.where(self._before < 0, load, self.load)
        self.load = load
        self.late = self._waiting + load > 1
        self._waiting = np.maximum(0, self._waiting + load - 1)
        self._history = np.concatenate([self._history[..., 1:], np.stack([rows, keys])[..., None]], axis=2)

    def _noise(self, tasks: Floats) -> Floats:
        """The slowest of so many tasks, over one that is as usual."""
        drawn = self.random.normal(0, NOISE, (self.queries, SLOTS))
        drawn[np.arange(SLOTS) >= tasks[:, None]] = -np.inf
        return np.asarray(np.exp(drawn.max(axis=1)))

    # -- rewards

    def _scheduler_reward(self) -> Floats:
        """Late batches, and tasks beyond the fewest that could do: p + r with A / p + B / r = 1 less what is fixed."""
        needed = self._least**2 / (1 - self._fixed.sum(axis=0))
        idle = np.clip(self.tasks / np.maximum(needed, 2) - 1, 0, 2)
        over = np.clip(self.load - 1, 0, 1)
        return np.asarray(-(LATE * self.late + OVER * over + IDLE * idle + CHANGE * self._changes))

    def _own_rewards(self) -> Floats:
        """Of each partitioner, from its own blocks alone: how uneven they were, and records beyond one a key."""
        weight = np.clip(self._price, 0, 2)[:, None]
        return np.asarray(-np.clip(self.uneven, 0, 2) - FRAGMENTS * weight * np.clip(self.extra, 0, 2))


def _courses(draw: np.random.Generator, many: int, batches: int, blocks: Floats) -> tuple[Floats, Floats]:
    """float64[queries, batches]: rows and keys of each batch, over those of the first."""
    low, high = np.log(1.3 / blocks), np.log(0.85 * SLOTS / blocks)
    found = []
    for _ in range(2):
        kind = draw.integers(4, size=many)
        reach = np.clip(draw.normal(0, 1.2, many), low, high)
        begin, length = draw.integers(0, 30, many), draw.integers(15, 80, many)
        at = np.arange(batches)[None, :]
        ramp = 1 + (np.exp(reach) - 1)[:, None] * np.clip((at - begin[:, None]) / length[:, None], 0, 1)
        jump = np.where(at < begin[:, None] + 10, 1.0, np.exp(np.clip(reach, -0.7, 0.7))[:, None])
        period, phase = draw.integers(16, 80, many), draw.uniform(0, 2 * np.pi, many)
        swing = 1 + draw.uniform(0.1, 0.5, many)[:, None] * np.sin(2 * np.pi * at / period[:, None] + phase[:, None])
        flat = np.ones((many, batches))
        found.append(np.choose(kind[:, None], [flat, ramp, jump, swing]))
    rows, keys = found
    together = draw.random(many) < 0.3
    keys = np.where(together[:, None], rows, keys)
    return rows * draw.normal(1, 0.01, rows.shape), np.maximum(keys, 1e-3)
