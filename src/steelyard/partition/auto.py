"""A policy that needs no choice: it predicts what each candidate would take, and learns the prices from reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from steelyard.core import (
    BatchObservation,
    BlockPlan,
    KeyCounts,
    Moves,
    Observation,
    OptionError,
    Partitioner,
    RowRule,
    State,
)
from steelyard.partition.fit import Fit
from steelyard.partition.hash import Hash
from steelyard.partition.in_place import InPlace
from steelyard.partition.partly import PartLy
from steelyard.partition.prompt import Prompt
from steelyard.partition.shuffle import Shuffle

Floats = np.ndarray[Any, np.dtype[np.float64]]

_CANDIDATES: dict[str, type[Any]] = {kind.name: kind for kind in (InPlace, Hash, Prompt, Shuffle, PartLy)}
SLIP = 0.05
"""Least weight of the newest batch in what plans are known to miss: a shift of hot keys is rare and counts for long."""
DOUBT = 0.04
"""What is added to what plans by key counts are known to miss: the next shift of the stream is not in the past."""
SHOCK = 1.5
"""A plan that was missed by more than this factor was made for another stream than the one that came..."""
SHOCK_MEMORY = 0.99
"""... which is remembered, from batch to batch, against all plans by key counts and not only against that one."""
MOST_SHOCK = 1.0
PATIENCE = 4
"""How many times longer rows in place wait for a trial that only an even source would reward."""
HOPE = 1.03
"""A candidate that was never tried is tried once if it promises to take no more than so much longer than the best."""
COLD = 0.5
"""Share of the first batch of a candidate that is held to come again, of what is not inside tasks: it compiles."""
REACH = 2.0
"""How many times larger than any batch that was seen a batch may be and still be priced by its rows and records."""
SIZES = 4
"""Newest batches whose sizes the next one may have."""
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
        Names, separated by commas; the first is used until there are key counts. `partly` may be among them.
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
    moves: ClassVar[Moves] = Moves.IF_IT_PAYS

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
        promised = {name: self.promise(plan) for name, plan in plans.items()}
        in_place = plans.get(InPlace.name)
        self._chosen = self._best(promised, self._learnt.promise_of_even(in_place) if in_place is not None else 0.0)
        self._followed = plans[self._chosen]
        return _renamed(self._followed)

    def promise(self, plan: BlockPlan) -> float:
        """Seconds that a batch would take by a plan of one of the candidates."""
        return self._learnt.promise(plan)

    def observe(self, observation: Observation) -> None:
        """Learn from a batch that followed the last plan."""
        if observation.batch is not None:
            self._learnt.learn(self._chosen, observation.batch, self._followed)

    def _best(self, promised: dict[str, float], even: float) -> str:
        """The candidate to follow; `even` is the promise of rows in place if the source should be even now."""
        best = min(promised, key=lambda name: promised[name])
        untried = [name for name, last in self._learnt.last_used.items() if last < 0]
        if untried:  # once, where it may be as good: what is thought of it is taken from the others
            hopeful = min(untried, key=lambda name: promised[name])
            if promised[hopeful] < HOPE * promised[best]:
                return hopeful
        for name, last in self._learnt.last_used.items():
            waited = (self._learnt.batches - last) / 2 ** self._learnt.failed[name]
            close = promised[name] < 1.2 * promised[best]
            if name == InPlace.name and not close:  # only a trial tells whether the source is even by now
                close = waited >= PATIENCE * self.retry_every and even < promised[best]
            if last >= 0 and waited >= self.retry_every and close:
                self._learnt.failed[name] += 1
                return name
        if best != self._learnt.current:
            self._learnt.failed[best] = 0
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
        self.sizes = np.zeros(0)
        """Rows of the newest batches that tasks worked on: the next one may be as any of them."""
        self.current = ""
        self.last_used = dict.fromkeys(names, -1)
        self.followed = dict.fromkeys(names, 0)
        """How many plans of each candidate were compared with what came of them."""
        self.slip = dict.fromkeys(names, 1.0)
        """The longest task of the blocks that came over that of those planned: counts of batches before grow old."""
        self.shock = 0.0
        """What shifts of the stream are held to add to the longest task of plans by key counts, as a share of it."""
        self.shocked = ""
        """The candidate whose plan the last batch missed so."""
        self.denser = dict.fromkeys(names, 1.0)
        """Key clusters that came over those planned."""
        self.beyond = dict.fromkeys(names, 0.0)
        """Seconds of a batch that no price explains."""
        self.source = np.zeros(3)
        """Tasks of the newest batch whose rows stayed in place; and, decayed, rows of such batches and of their
        largest tasks: a small batch says little of how even a source is."""
        self.failed = dict.fromkeys(names, 0)
        """Trials after a long time that did not make a candidate the choice; each makes the next one later."""
        self.cold = set(names)
        """Candidates without a batch in this process: the first one of each tells no price of what is outside tasks."""
        self.first_rest = dict.fromkeys(names, np.inf)
        """Seconds of that batch outside its longest task, until the candidate's next one."""
        self.largest = np.zeros(3)
        """The most of each thing that the rest of a batch was priced by."""
        self.tasks = Fit(2, memory)  # a row, a key cluster
        self.rests = Fit(3, memory)  # a batch, a moved row, a record to merge

    def promise(self, plan: BlockPlan) -> float:
        """Seconds of a batch by a plan, if it is as the counts say and as large as one of the newest."""
        return float(np.mean([self._promise(plan, rows, self.shape(plan, rows)) for rows in self.sizes]))

    def promise_of_even(self, plan: BlockPlan) -> float:
        """Seconds of a batch whose rows stay in place, if the source should have become even."""
        sizes = self.sizes
        return float(np.mean([self._promise(plan, rows, self.shape(plan, rows, even=True)) for rows in sizes]))

    def _promise(self, plan: BlockPlan, rows: float, shape: Floats) -> float:
        name = plan.policy
        by_counts = _by_counts(plan)
        moved = 0.0 if plan.rule is RowRule.IN_PLACE else rows
        rest = self._rest(name, np.array([1.0, moved, shape[:, 1].sum() * self.denser[name]]))
        return (self.slip[name] + by_counts * (DOUBT + self.shock)) * self._longest(shape) + rest

    def _rest(self, name: str, parts: Floats) -> float:
        """Seconds of a batch outside its longest task: by prices, or by the first batch of a candidate of its kind."""
        moves = name != InPlace.name
        if self.largest[int(moves)]:
            priced = float(np.minimum(parts, REACH * self.largest) @ self.rests.prices) + self.beyond[name]
            return min(max(0.0, priced), COLD * self.first_rest[name])
        first = self.first_rest[name]
        if not np.isfinite(first):
            first = min(self.first_rest[one] for one in self.names if (one != InPlace.name) == moves)
        return COLD * first if np.isfinite(first) else max(0.0, float(self.rests.prices[0]))

    def shape(self, plan: BlockPlan, batch: float, *, even: bool = False) -> Floats:
        """Rows and key clusters that tasks are expected to have by a plan: of n rows of a key, some come together.

        Rows in place are dealt as the source last did, or evenly.
        """
        counts = plan.counts
        rows = counts.rows * (batch / counts.total)  # counts may be sums over several batches
        tail = counts.tail_rows * (batch / counts.total) / max(1, counts.tail_keys)
        if plan.rule in (RowRule.IN_PLACE, RowRule.ROUND_ROBIN):
            shares = np.full(plan.blocks, 1 / plan.blocks)
            if plan.rule is RowRule.IN_PLACE and self.source[1] and not even:
                shares = self._source_shares()
            found, which = np.unique(shares, return_inverse=True)
            clusters = [counts.tail_keys * -np.expm1(-share * tail) - np.expm1(-share * rows).sum() for share in found]
            return np.column_stack([shares * batch, np.array(clusters)[which]])
        share = batch / counts.total
        listed = np.bincount(plan.block, -np.expm1(-share * plan.rows), plan.blocks)
        return np.column_stack([share * plan.sizes, listed + counts.tail_keys / plan.blocks * -np.expm1(-tail)])

    def _source_shares(self) -> Floats:
        tasks, rows, largest = self.source
        shares = np.full(int(tasks), largest / rows)
        shares[1:] = (1 - shares[0]) / max(1, len(shares) - 1)
        return shares

    def _longest(self, shape: Floats) -> float:
        return float((shape @ self.tasks.prices).max(initial=0.0))

    def learn(self, name: str, seen: BatchObservation, followed: BlockPlan | None) -> None:
        """Take in a batch that a candidate ran, by a plan if one was followed.

        A batch without rows, or without reports of tasks, says nothing.
        """
        tasks = [task for task in seen.tasks if task.rows]
        if not tasks or not seen.rows:
            return
        taken = np.array([[task.rows, task.clusters] for task in tasks], dtype=np.float64)
        seconds = np.array([task.seconds for task in tasks])
        rows, records = taken.sum(axis=0).tolist()
        self.batches += 1
        self.shock *= SHOCK_MEMORY
        self.sizes = np.r_[self.sizes, rows][-SIZES:]
        self.last_used[name] = self.batches
        self.current = name
        self.tasks.learn(taken, seconds, first=_halves(seconds.sum(), rows, records))
        # By prices and not by the clock: the slowest of many tasks is slow by chance too, and what chance adds
        # belongs to the rest, or candidates that were tried would look worse than those that were not.
        longest = self._longest(taken)
        # What surprised once fades: a candidate that is not followed is not held to it.
        self.denser = {
            one: 1 + (denser - 1) * (1 if one == name else self.memory) for one, denser in self.denser.items()
        }
        # What planning takes is known beforehand and small, but for the first time, when it may be compiled.
        rest = max(0.0, seen.processing_seconds - seen.planning_seconds - longest)
        if name in self.cold:
            self.cold.discard(name)
            self.first_rest[name] = rest
        else:
            self.first_rest[name] = np.inf
            self._learn_rest(name, rows, records, rest)
        if followed is not None and (name != InPlace.name or self.source[1]):
            self._compare(name, followed, longest, records)
        if name == InPlace.name:
            kept = self.memory * self.source[1:]
            self.source = np.array([len(tasks), kept[0] + rows, kept[1] + taken[:, 0].max()])

    def _learn_rest(self, name: str, rows: float, records: float, rest: float) -> None:
        """Take in the seconds of a batch that were not those of its longest task."""
        parts = np.array([1.0, 0.0 if name == InPlace.name else rows, records])
        each, merged = _halves(rest, 1.0, records)
        self.rests.learn(parts[None], np.array([rest]), first=np.array([each, 0.0, merged]))
        self.largest = np.maximum(self.largest, parts)
        missing = rest - float(parts @ self.rests.prices)
        self.beyond = {one: self.memory * seconds for one, seconds in self.beyond.items()}
        self.beyond[name] += (1 - self.memory) * missing

    def _compare(self, name: str, plan: BlockPlan, longest: float, records: float) -> None:
        """Remember how far a plan was from what came of it."""
        planned = self.shape(plan, self.sizes[-1])
        self.followed[name] += 1
        first = 1 / self.followed[name]  # the mean of the first plans, and then newer ones weigh more
        if records:  # built-in aggregates do not report them
            denser = records / max(1.0, planned[:, 1].sum())
            self.denser[name] += max(1 - self.memory, first) * (denser - self.denser[name])
            planned[:, 1] *= denser  # more or fewer keys than before are no fault of where rows went
        if expected := self._longest(planned):
            missed = longest / expected
            # A plan that is missed twice in a row was not surprised by a shift: its policy plans badly.
            shocked = missed > SHOCK and _by_counts(plan) and self.shocked != name
            if shocked:
                self.shock = min(self.shock + SLIP * (missed - 1), MOST_SHOCK)
            else:
                self.slip[name] += max(SLIP, first) * (missed - self.slip[name])
            self.shocked = name if shocked else ""

    def state(self) -> State:
        """As arrays."""
        by_name = {name: np.array([getattr(self, name)[one] for one in self.names]) for name in _BY_NAME}
        return {
            **by_name,
            "names": np.array(self.names),
            "batches": np.array(self.batches),
            "sizes": self.sizes.copy(),
            "shock": np.array(self.shock),
            "current": np.array(self.current),
            "source": self.source.copy(),
            "largest": self.largest.copy(),
            "tasks": self.tasks.state(),
            "rests": self.rests.state(),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`; of other candidates nothing is taken."""
        if state["names"].tolist() != self.names:
            return
        by_name = {name: dict(zip(self.names, state[name].tolist(), strict=True)) for name in _BY_NAME}
        batches, sizes = int(state["batches"]), state["sizes"].copy()
        current, source, shock = str(state["current"]), state["source"].copy(), float(state["shock"])
        tasks, rests, largest = state["tasks"], state["rests"], state["largest"].copy()
        # All of it was there: now it counts.
        for name, known in by_name.items():
            setattr(self, name, known)
        self.batches, self.sizes, self.current, self.source = batches, sizes, current, source
        self.shock, self.largest = shock, largest
        self.tasks.restore(tasks)
        self.rests.restore(rests)


_BY_NAME = ("last_used", "followed", "failed", "slip", "denser", "beyond", "first_rest")
"""What is known of each candidate."""


def _by_counts(plan: BlockPlan) -> bool:
    """Whether a plan is as good as its key counts."""
    return plan.rule not in (RowRule.IN_PLACE, RowRule.ROUND_ROBIN)


def _halves(seconds: float, first: float, second: float) -> Floats:
    """Prices of two things that took so many seconds together: half of them for each, or all for the one there is."""
    share = seconds / 2 if first and second else seconds
    return np.array([share / first if first else 0.0, share / second if second else 0.0])


def _renamed(plan: BlockPlan) -> BlockPlan:
    return BlockPlan(
        plan.counts, plan.blocks, plan.key, plan.block, plan.rows, plan.rule, f"{Auto.name} ({plan.policy})"
    )
