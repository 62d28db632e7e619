"""A stream whose rows and keys change, batch by batch on a simulated cluster whose numbers of tasks a policy chooses.

What tasks cost is measured (`cluster_model`). How even Prompt's blocks and buckets are is measured too, on plans of the
run's own batches. A batch is closed every interval; one that is not done when the next is closed makes it wait.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from steelyard.bench import mean
from steelyard.bench.prompt.shapes import Stream, shape_of
from steelyard.core import BLOCKS, BUCKETS, BatchObservation, KeyCounts, Partitioner, ScalingPolicy
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition import Prompt, PromptAllocator
from steelyard.sim.task_times import TaskCosts
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.rates import Constant, Ramp, Rate

INTERVAL = 1.0
SLOTS = 32
"""Eight executors of four cores, as the experiment's have."""
FEW, MANY = (4, 2), (24, 12)
"""Map and reduce tasks before a rise, and before a fall."""
LOAD = 0.85
"""At which a run begins, in the middle of zone 2."""
GROWTH = MANY[0] / FEW[0]
KEYS_OF_ROWS = 0.25
"""Distinct keys for each row of a batch, before anything changes."""
BEFORE, CHANGE, AFTER = 10, 60, 30
"""Batches of a run: as it was, while it changes, and as it then is."""
EXPONENT = 1.0
TASK_NOISE = 0.05
"""Standard deviation of the logarithm of a task's time."""
SAMPLE = 40_000
"""Most rows of a plan that evenness is measured with; a longer batch is more even."""


@dataclass(frozen=True)
class Pattern:
    """How the input changes, in multiples of what `FEW` tasks can just do."""

    name: str
    """In words."""
    rows: tuple[float, float]
    keys: tuple[float, float]
    """(first, last) multiple."""
    tasks: tuple[int, int]
    """Map and reduce tasks that the run begins with."""

    def batches(self, rows: float) -> tuple[Ints, Ints]:
        """Rows and distinct keys of each batch, where multiple 1 is so many rows.

        >>> counts, keys = PATTERNS["rate falls"].batches(1_000)
        >>> counts[[0, -1]].tolist(), keys[[0, -1]].tolist()
        ([6000, 1000], [1500, 1500])
        """
        edges = np.arange(-BEFORE, CHANGE + AFTER + 1, dtype=np.float64) * INTERVAL
        counts, keys = (np.diff(_until(_ramp(*ends), edges)) for ends in (self.rows, self.keys))
        return np.rint(rows * counts).astype(np.int64), np.rint(KEYS_OF_ROWS * rows * keys).astype(np.int64)


def _ramp(first: float, last: float) -> Rate:
    return Ramp(first, last, CHANGE * INTERVAL) if first != last else Constant(first)


def _until(rate: Rate, edges: Floats) -> Floats:
    """Rows until each edge; before the start the rate is what it is at the start."""
    return np.asarray(np.minimum(edges, 0.0) * float(rate.rate(0.0)) + rate.rows_until(edges))


RISE, FALL, KEYS_RISE, KEYS_FALL, RATE_RISES = "both rise", "rate falls", "keys rise", "keys fall", "rate rises"
PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern(RISE, (1, GROWTH), (1, GROWTH), FEW),
        Pattern(FALL, (GROWTH, 1), (GROWTH, GROWTH), MANY),
        Pattern(KEYS_FALL, (GROWTH, GROWTH), (GROWTH, 1), MANY),
        Pattern(RATE_RISES, (1, GROWTH), (1, 1), FEW),
        Pattern(KEYS_RISE, (1, 1), (1, GROWTH), FEW),
    )
}


@dataclass(frozen=True)
class Evenness:
    """Rows and keys of the fullest block, and records of the fullest bucket, over the mean."""

    rows: float
    keys: float
    records: float

    @classmethod
    def measured(cls, seed: int, cutter: Partitioner | None = None) -> Evenness:
        """The worst of plans that Prompt, or another, makes of drawn batches, for the fewest and the most tasks."""
        draws = np.random.default_rng([seed, SAMPLE])
        keys = int(KEYS_OF_ROWS * SAMPLE)
        ids = Stream(np.empty(0, np.int32), keys, 1, first_name=seed * keys).ids
        # Every key comes, so that their number is the pattern's; the rest follows Zipf's law.
        counts = 1 + draws.multinomial(SAMPLE - keys, rank_table(EXPONENT, keys, 0.0).shares)
        found = []
        for blocks, buckets in (FEW, MANY):
            plan = (cutter or Prompt()).plan(KeyCounts(pa.array(np.arange(keys)), counts), blocks)
            shape = shape_of(plan, ids, PromptAllocator(), buckets)
            found.append([each.max() / each.mean() for each in (shape.rows, shape.keys, shape.records)])
        return cls(*np.max(found, axis=0).tolist())


@dataclass(frozen=True)
class Cluster:
    """What a batch takes: the slowest map task and then the slowest reduce task (Eq 2.1), each a little off."""

    costs: TaskCosts
    even: Evenness

    def stages(self, rows: float, keys: float, tasks: tuple[int, int]) -> tuple[float, float]:
        """Seconds of both stages, without noise."""
        blocks, buckets = tasks
        mapped = self.costs.map_seconds(rows / blocks * self.even.rows, keys / blocks * self.even.keys)
        records = keys / buckets * self.even.records
        return float(mapped), float(self.costs.reduce_seconds(records, records))

    @cached_property
    def unit(self) -> float:
        """Rows of the batch that `FEW` tasks do at `LOAD`."""
        fixed = sum(self.stages(0, 0, FEW))
        return (LOAD * INTERVAL - fixed) / (sum(self.stages(1, KEYS_OF_ROWS, FEW)) - fixed)


@dataclass(frozen=True, eq=False)
class Course:
    """What happened, batch by batch."""

    rows: Ints
    keys: Ints
    blocks: Ints
    buckets: Ints
    load: Floats
    """W."""
    delay: Floats
    """Seconds from the close of a batch to its end."""

    @property
    def tracked(self) -> float:
        """Of the rows that came while the input changed, the share done within one interval of the change's end."""
        during = slice(BEFORE, BEFORE + CHANGE)
        closed = np.arange(len(self.rows)) * INTERVAL
        ended = (closed + self.delay)[during] <= closed[BEFORE + CHANGE - 1] + INTERVAL
        return float(self.rows[during][ended].sum() / self.rows[during].sum())

    @property
    def stable(self) -> float:
        """Share of the batches, from the first change on, that took no longer than the interval."""
        return mean(self.load[BEFORE:] <= 1.0)

    @property
    def tasks(self) -> float:
        """Mean number of tasks of a batch, of both stages."""
        return mean(self.blocks + self.buckets)

    @property
    def reversals(self) -> int:
        """How often tasks were added after tasks had been removed, or the other way round."""
        moves = np.sign(np.diff(self.blocks + self.buckets))
        moves = moves[moves != 0]
        return int(np.sum(moves[1:] != moves[:-1]))

    def moved(self) -> tuple[int, int]:
        """Map and reduce tasks at the end, less those at the start."""
        return int(self.blocks[-1] - self.blocks[0]), int(self.buckets[-1] - self.buckets[0])


def simulate(cluster: Cluster, pattern: Pattern, policy: ScalingPolicy, tasks: tuple[int, int], seed: int) -> Course:
    """A run that begins with so many tasks, under a copy of the policy."""
    policy = copy.deepcopy(policy)
    draws = np.random.default_rng([seed, len(pattern.name)])
    rows, keys = pattern.batches(cluster.unit)
    rows = draws.poisson(rows)
    blocks, buckets, load, delay = [], [], [], []
    free = 0.0
    for number, (count, distinct) in enumerate(zip(rows.tolist(), keys.tolist(), strict=True)):
        noise = [float(draws.lognormal(0.0, TASK_NOISE, SLOTS)[:many].max()) for many in tasks]
        mapped, reduced = np.multiply(cluster.stages(count, distinct, tasks), noise).tolist()
        closed = number * INTERVAL
        free = max(free, closed) + mapped + reduced
        blocks.append(tasks[0])
        buckets.append(tasks[1])
        load.append((mapped + reduced) / INTERVAL)
        delay.append(free - closed)
        seen = BatchObservation(number, count, distinct, *tasks, mapped + reduced, INTERVAL, SLOTS, mapped, reduced)
        wanted = policy.decide(seen.at(free)).parallelism
        tasks = wanted.get(BLOCKS, tasks[0]), wanted.get(BUCKETS, tasks[1])
    return Course(rows, keys, np.array(blocks), np.array(buckets), np.array(load), np.array(delay))


Courses = Mapping[tuple[str, str], Course]
"""By pattern and policy."""
