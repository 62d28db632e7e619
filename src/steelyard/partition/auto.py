"""A policy that needs no choice: it predicts what each candidate would take, and learns the prices from reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from steelyard.core import BatchReport, BlockPlan, KeyCounts, OptionError, Partitioner, State
from steelyard.partition.hash import Hash
from steelyard.partition.in_place import InPlace
from steelyard.partition.prompt import Prompt
from steelyard.partition.shuffle import Shuffle

Floats = np.ndarray[Any, np.dtype[np.float64]]

_CANDIDATES: dict[str, type[Any]] = {kind.name: kind for kind in (InPlace, Hash, Prompt, Shuffle)}
RIDGE = 0.01
"""How strongly prices of rows and keys are held together while blocks are too alike to tell them apart."""
SLIP = 0.05
"""Weight of the newest batch in what plans are known to miss: a shift of hot keys is rare and counts for long."""
MARGIN = 0.02
"""A candidate must promise to be this much faster before the policy changes: predictions are not better."""


@dataclass(eq=False)
class Auto:
    """Try what promises most, remember what it took, and stay with what is best.

    The time of a batch is the longest map task, which a plan predicts from prices of a row and of a key, and
    all the rest (moving rows, merging, writing), which is measured for each candidate. Skew and cardinality
    enter by the plans of the batch's key counts and by how far plans missed, cost per row and per merge by what
    tasks reported. A candidate that was never tried is judged kindly by the others, so that it is tried where it
    may gain; one that was not used for long is tried again, if it is close.

    Parameters
    ----------
    candidates
        Names, separated by commas; the first is used until there are key counts.
    retry_every
        Batches after which a candidate that lost by less than 20 % is tried once more.
    memory
        Weight of what was known when a new batch comes in, between 0 and 1.

    Examples
    --------
    >>> policy = Auto()
    >>> policy.plan(KeyCounts.of({}), 4).policy
    'auto (in_place)'
    """

    candidates: str = "in_place,hash,prompt,shuffle"
    retry_every: int = 50
    memory: float = 0.8

    name: ClassVar[str] = "auto"
    needs_counts: ClassVar[bool] = True

    _learnt: Prices = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = self.candidates.split(",")
        for name in names:
            if name not in _CANDIDATES:
                raise OptionError.unknown("candidate of auto", name, _CANDIDATES)
        if not 0 <= self.memory < 1:
            raise OptionError(f"memory of auto must be at least 0 and below 1, got {self.memory}")
        if self.retry_every < 1:
            raise OptionError(f"retry_every of auto must be at least 1 batch, got {self.retry_every}")
        self._policies: dict[str, Partitioner] = {name: _CANDIDATES[name]() for name in names}
        self._learnt = Prices(names, self.memory)
        self._chosen = names[0]
        self._expected = 0.0  # planned seconds of the longest task, a row of the batch

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The plan of the candidate that promises the shortest batch."""
        self._expected = 0.0
        if not len(counts) or not self._learnt.batches:
            self._chosen = next(iter(self._policies))
            return _renamed(self._policies[self._chosen].plan(counts, blocks))
        plans = {name: policy.plan(counts, blocks) for name, policy in self._policies.items()}
        promised = {name: self.promise(plan) for name, plan in plans.items()}
        self._chosen = self._best(promised)
        if self._chosen != InPlace.name:
            self._expected = self._planned_longest(plans[self._chosen]) / self._learnt.rows
        return _renamed(plans[self._chosen])

    def promise(self, plan: BlockPlan) -> float:
        """Seconds that a batch would take by a plan of one of the candidates."""
        known = self._learnt
        return known.slip[plan.policy] * self._planned_longest(plan) + known.rest_of(
            plan.policy, plan.counts.total, int(plan.cardinalities.sum())
        )

    def _planned_longest(self, plan: BlockPlan) -> float:
        """Seconds of the longest map task, if the rows are as the counts say."""
        known = self._learnt
        if plan.policy == InPlace.name:
            return known.source_longest * known.rows
        # Counts may be sums over several batches; a batch has as many rows as the one before.
        share = known.rows / plan.counts.total
        return float((known.row * share * plan.sizes + known.key * plan.cardinalities).max())

    def observe(self, report: BatchReport) -> None:
        """Learn from a batch that followed the last plan."""
        self._learnt.learn(self._chosen, report, self._expected)

    def _best(self, promised: dict[str, float]) -> str:
        best = min(promised, key=lambda name: promised[name])
        for name, last in self._learnt.last_used.items():
            stale = last >= 0 and self._learnt.batches - last >= self.retry_every
            if stale and promised[name] < 1.2 * promised[best]:
                return name
        current = self._learnt.current
        if current in promised and promised[current] <= promised[best] * (1 + MARGIN):
            return current
        return best

    def state(self) -> State:
        """What was learnt, for a checkpoint."""
        return self._learnt.state()

    def restore(self, state: State) -> None:
        """Go on from what was learnt."""
        self._learnt.restore(state)


class Prices:
    """What rows, keys and everything else take, from the reports of batches, newer ones weighing more.

    Parameters
    ----------
    names
        The candidates.
    memory
        Weight of what was known, when a batch comes in.
    """

    def __init__(self, names: list[str], memory: float) -> None:
        self.names = names
        self.memory = memory
        self.batches = 0
        self.rows = 0
        """Of the newest batch."""
        self.current = ""
        self.last_used = dict.fromkeys(names, -1)
        self.slip = dict.fromkeys(names, 1.0)
        """The longest task that came over the one that was planned: counts of the batch before grow old."""
        self.source_longest = 0.0
        """Seconds of the longest task a row of the batch, where rows stay in place."""
        self._sums = np.zeros((len(names), 4))  # weight, seconds of the rest, rows, records: decayed, by candidate
        self._square = np.zeros((2, 2))  # decayed normal equations of: seconds of a task ~ rows, clusters
        self._product = np.zeros(2)

    @property
    def row(self) -> float:
        """Seconds a row in a map task."""
        return float(self._task_prices[0])

    @property
    def key(self) -> float:
        """Seconds a key cluster in a map task."""
        return float(self._task_prices[1])

    @property
    def _task_prices(self) -> Floats:
        """Least squares over the tasks seen, neither price below 0."""
        if not self._square[0, 0]:
            return np.zeros(2)
        # Equal blocks do not tell rows from keys: then each gets its share, until other blocks were seen.
        ridge = RIDGE * np.diag(np.maximum(self._square.diagonal(), 1e-12))
        both = np.linalg.solve(self._square + ridge, self._product)
        if both.min() >= 0:
            return np.asarray(both)
        alone = self._product / np.maximum(self._square.diagonal(), 1e-300)
        only = 0 if both[1] < 0 else 1
        return np.array([alone[0], 0.0] if only == 0 else [0.0, alone[1]])

    def rest_of(self, name: str, rows: int, records: int) -> float:
        """Seconds of a batch beside its longest map task.

        An untried candidate is judged by those that were tried, and kindly: as if all of their rest were merging,
        which shrinks with the records to merge. One that moves rows is judged by others that do, so that a
        source that is dear to move is moved once.
        """
        at = self.names.index(name)
        if self._sums[at, 0]:
            return self._seconds(at, rows, 1.0)
        tried = [i for i in range(len(self.names)) if self._sums[i, 0]]
        alike = [i for i in tried if (self.names[i] == InPlace.name) == (name == InPlace.name)] or tried
        return min((self._seconds(i, rows, self._fewer(i, records)) for i in alike), default=0.0)

    def _fewer(self, at: int, records: int) -> float:
        weight, _, _, seen = self._sums[at]
        return min(1.0, records * weight / seen) if seen else 1.0

    def _seconds(self, at: int, rows: int, share: float) -> float:
        weight, seconds, seen, _ = self._sums[at]
        # Half of the rest grows with the rows, half does not: jobs start and commit whatever their size.
        return float(seconds / weight * (0.5 + 0.5 * rows * weight / seen) * share)

    def learn(self, name: str, report: BatchReport, expected: float) -> None:
        """Take in a batch that a candidate ran, `expected` being the longest task that was planned, a row.

        A batch without rows, or without reports of tasks, says nothing.
        """
        tasks = [task for task in report.tasks if task.rows]
        if not tasks or not report.rows:
            return
        longest = max(task.seconds for task in tasks)
        rest = max(0.0, report.seconds.get("total", 0.0) - longest)
        at = self.names.index(name)
        first = self.last_used[name] < 0
        self.batches += 1
        self.rows = report.rows
        self.last_used[name] = self.batches
        self.current = name
        records = sum(task.clusters for task in tasks)
        self._sums[at] = self.memory * self._sums[at] + (1.0, rest, report.rows, records)
        taken = np.array([[task.rows, task.clusters] for task in tasks], dtype=np.float64)
        seconds = np.array([task.seconds for task in tasks])
        self._square = self.memory * self._square + taken.T @ taken
        self._product = self.memory * self._product + taken.T @ seconds
        if expected:
            slipped = longest / report.rows / expected
            self.slip[name] += SLIP * (slipped - self.slip[name])
        if name == InPlace.name:
            share = longest / report.rows
            self.source_longest = share if first else self.memory * self.source_longest + (1 - self.memory) * share

    def state(self) -> State:
        """As arrays."""
        return {
            "names": np.array(self.names),
            "batches": np.array(self.batches),
            "rows": np.array(self.rows),
            "current": np.array(self.current),
            "last_used": np.array([self.last_used[name] for name in self.names]),
            "slip": np.array([self.slip[name] for name in self.names]),
            "source_longest": np.array(self.source_longest),
            "sums": self._sums.copy(),
            "square": self._square.copy(),
            "product": self._product.copy(),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`; of other candidates nothing is taken."""
        if state["names"].tolist() != self.names:
            return
        self.batches = int(state["batches"])
        self.rows = int(state["rows"])
        self.current = str(state["current"])
        self.last_used = dict(zip(self.names, state["last_used"].tolist(), strict=True))
        self.slip = dict(zip(self.names, state["slip"].tolist(), strict=True))
        self.source_longest = float(state["source_longest"])
        self._sums = state["sums"].copy()
        self._square = state["square"].copy()
        self._product = state["product"].copy()


def _renamed(plan: BlockPlan) -> BlockPlan:
    return BlockPlan(
        plan.counts, plan.blocks, plan.key, plan.block, plan.rows, plan.rule, f"{Auto.name} ({plan.policy})"
    )
