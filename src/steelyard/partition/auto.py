"""A policy that needs no choice: it predicts what each candidate would take, and learns the prices from reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from steelyard.core import BatchReport, BlockPlan, KeyCounts, OptionError, Partitioner, RowRule, State
from steelyard.partition.hash import Hash
from steelyard.partition.in_place import InPlace
from steelyard.partition.prompt import Prompt
from steelyard.partition.shuffle import Shuffle

Floats = np.ndarray[Any, np.dtype[np.float64]]

_CANDIDATES: dict[str, type[Any]] = {kind.name: kind for kind in (InPlace, Hash, Prompt, Shuffle)}
PULL = 0.01
"""How strongly prices are held where they were, in so far as batches are too alike to tell them apart."""
SLIP = 0.05
"""Least weight of the newest batch in what plans are known to miss: a shift of hot keys is rare and counts for long."""
DOUBT = 0.04
"""What is added to what plans by key counts are known to miss: the next shift of the stream is not in the past."""
MARGIN = 0.02
"""A candidate must promise to be this much faster before the policy changes: predictions are not better."""


@dataclass(eq=False)
class Auto:
    """Try what promises most, remember what it took, and stay with what is best.

    The time of a batch is the longest map task, which prices of a row and of a key predict from the rows and keys
    of its blocks, and all the rest (moving rows, merging records, writing, stragglers), which prices of a moved row
    and of a record predict, and what each candidate took beyond that. Skew and cardinality enter by the plans of the
    batch's key counts and by how far plans missed; prices are learnt from what tasks and batches reported, and at
    first divided kindly, so that what may gain is tried. A candidate that was not used for long is tried again, if it
    is close.

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
        self._followed: BlockPlan | None = None  # of the batch that is under way

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """The plan of the candidate that promises the shortest batch."""
        self._followed = None
        if not len(counts) or not self._learnt.batches:
            self._chosen = next(iter(self._policies))
            return _renamed(self._policies[self._chosen].plan(counts, blocks))
        plans = {name: policy.plan(counts, blocks) for name, policy in self._policies.items()}
        self._chosen = self._best({name: self.promise(plan) for name, plan in plans.items()})
        self._followed = plans[self._chosen]
        return _renamed(self._followed)

    def promise(self, plan: BlockPlan) -> float:
        """Seconds that a batch would take by a plan of one of the candidates."""
        return self._learnt.promise(plan)

    def observe(self, report: BatchReport) -> None:
        """Learn from a batch that followed the last plan."""
        self._learnt.learn(self._chosen, report, self._followed)

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


class Fit:
    """Prices of some things, from sums of them that took so many seconds; newer sums weigh more.

    Parameters
    ----------
    things
        How many prices there are.
    memory
        Weight of what was known, when sums come in.

    Examples
    --------
    >>> fit = Fit(2, memory=0.9)
    >>> fit.learn(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 5.0]), first=np.ones(2))
    >>> fit.prices.round(1).tolist()
    [2.0, 2.9]
    """

    def __init__(self, things: int, memory: float) -> None:
        self.memory = memory
        self.prices = np.zeros(things)
        self._square = np.zeros((things, things))
        self._product = np.zeros(things)

    def learn(self, sums: Floats, seconds: Floats, first: Floats) -> None:
        """Take in sums; `first` are the prices that are believed before any other."""
        if not self._square.any():
            self.prices = first
        self._square = self.memory * self._square + sums.T @ sums
        self._product = self.memory * self._product + sums.T @ seconds
        # Where sums do not tell things apart, their prices stay in the proportion that they had.
        pull = PULL * self._square.diagonal()
        known = np.flatnonzero(pull)
        while len(known):
            square = self._square[np.ix_(known, known)] + np.diag(pull[known])
            found = np.linalg.solve(square, self._product[known] + pull[known] * self.prices[known])
            if found.min() >= 0:
                self.prices = self.prices.copy()
                self.prices[known] = found
                return
            self.prices = np.where(np.isin(np.arange(len(pull)), known[found < 0]), 0.0, self.prices)
            known = known[found >= 0]  # nothing takes less than no time

    def state(self) -> Floats:
        """As one array."""
        return np.vstack([self.prices, self._product, self._square])

    def restore(self, state: Floats) -> None:
        """The inverse of `state`."""
        self.prices, self._product, self._square = state[0].copy(), state[1].copy(), state[2:].copy()


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
        self.followed = dict.fromkeys(names, 0)
        """How many plans of each candidate were compared with what came of them."""
        self.slip = dict.fromkeys(names, 1.0)
        """The longest task of the blocks that came over that of those planned: counts of batches before grow old."""
        self.denser = dict.fromkeys(names, 1.0)
        """Key clusters that came over those planned."""
        self.beyond = dict.fromkeys(names, 0.0)
        """Seconds of a batch that no price explains."""
        self.source = np.zeros((0, 2))
        """Rows and key clusters of each task of the newest batch whose rows stayed in place, a row of the batch."""
        self.source_planned = 0.0
        """Key clusters that were planned for that batch."""
        self.tasks = Fit(2, memory)  # a row, a key cluster
        self.rests = Fit(3, memory)  # a batch, a moved row, a record to merge

    def promise(self, plan: BlockPlan) -> float:
        """Seconds of a batch by a plan, if it is as the counts say."""
        name, planned = plan.policy, float(plan.cardinalities.sum())
        if plan.rule is not RowRule.IN_PLACE:
            doubt = 0.0 if plan.rule is RowRule.ROUND_ROBIN else DOUBT
            rest = np.array([1.0, self.rows, planned * self.denser[name]]) @ self.rests.prices + self.beyond[name]
            return (self.slip[name] + doubt) * self.longest(plan) + float(rest)
        # As the source last dealt rows, with keys in proportion to what is planned now.
        source = self.source * self.rows
        if self.source_planned:
            source = source * (1.0, planned / self.source_planned)
        rest = np.array([1.0, 0.0, source[:, 1].sum()]) @ self.rests.prices + self.beyond[name]
        return float((source @ self.tasks.prices).max(initial=0.0) + rest)

    def longest(self, plan: BlockPlan) -> float:
        """Seconds of the longest map task by a plan, if the next batch is as the counts say."""
        # Counts may be sums over several batches; a batch has as many rows as the one before.
        share = self.rows / plan.counts.total
        return float((np.column_stack([share * plan.sizes, plan.cardinalities]) @ self.tasks.prices).max())

    def learn(self, name: str, report: BatchReport, followed: BlockPlan | None) -> None:
        """Take in a batch that a candidate ran, by a plan if one was followed.

        A batch without rows, or without reports of tasks, says nothing.
        """
        tasks = [task for task in report.tasks if task.rows]
        if not tasks or not report.rows:
            return
        self.batches += 1
        self.rows = report.rows
        self.last_used[name] = self.batches
        self.current = name
        taken = np.array([[task.rows, task.clusters] for task in tasks], dtype=np.float64)
        seconds = np.array([task.seconds for task in tasks])
        self.tasks.learn(taken, seconds, first=seconds.sum() / 2 / np.maximum(taken.sum(axis=0), 1))
        # By prices and not by the clock: the slowest of many tasks is slow by chance too, and what chance adds
        # belongs to the rest, or candidates that were tried would look worse than those that were not.
        longest = float((taken @ self.tasks.prices).max())
        rest = max(0.0, report.seconds.get("total", 0.0) - longest)
        records = float(taken[:, 1].sum())
        parts = np.array([1.0, 0.0 if name == InPlace.name else report.rows, records])
        self.rests.learn(parts[None], np.array([rest]), first=np.array([rest / 2, 0.0, rest / 2 / max(records, 1)]))
        missing = rest - float(parts @ self.rests.prices)
        self.beyond[name] = self.memory * self.beyond[name] + (1 - self.memory) * missing
        if followed is not None:
            self._compare(name, followed, longest, records)
        if name == InPlace.name:
            self.source = taken / report.rows
            self.source_planned = float(followed.cardinalities.sum()) if followed is not None else 0.0

    def _compare(self, name: str, plan: BlockPlan, longest: float, records: float) -> None:
        """Remember how far a plan was from what came of it."""
        self.followed[name] += 1
        weight = max(SLIP, 1 / self.followed[name])  # the mean of the first plans, and then newer ones weigh more
        planned = self.longest(plan)
        if planned:
            self.slip[name] += weight * (longest / planned - self.slip[name])
        weight = max(1 - self.memory, 1 / self.followed[name])
        self.denser[name] += weight * (records / max(1, int(plan.cardinalities.sum())) - self.denser[name])

    def state(self) -> State:
        """As arrays."""
        by_name = {name: np.array([getattr(self, name)[one] for one in self.names]) for name in _BY_NAME}
        return {
            **by_name,
            "names": np.array(self.names),
            "counts": np.array([self.batches, self.rows]),
            "current": np.array(self.current),
            "source": self.source.copy(),
            "source_planned": np.array(self.source_planned),
            "tasks": self.tasks.state(),
            "rests": self.rests.state(),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`; of other candidates nothing is taken."""
        if state["names"].tolist() != self.names:
            return
        for name in _BY_NAME:
            setattr(self, name, dict(zip(self.names, state[name].tolist(), strict=True)))
        self.batches, self.rows = state["counts"].tolist()
        self.current = str(state["current"])
        self.source = state["source"].copy()
        self.source_planned = float(state["source_planned"])
        self.tasks.restore(state["tasks"])
        self.rests.restore(state["rests"])


_BY_NAME = ("last_used", "followed", "slip", "denser", "beyond")
"""What is known of each candidate."""


def _renamed(plan: BlockPlan) -> BlockPlan:
    return BlockPlan(
        plan.counts, plan.blocks, plan.key, plan.block, plan.rows, plan.rule, f"{Auto.name} ({plan.policy})"
    )
