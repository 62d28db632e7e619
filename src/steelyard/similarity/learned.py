"""A balancer that learns which kinds of moves keep what they promise: a bandit over moves.

The dissertation on adaptive dataflow engines names a learned map from worksets to workers as future work
(Siachamis 2024, chapter 2). A plan is made from the loads of the last window and serves the next, so a move
is worth what it brings under loads that are not yet known. That is what is learnt here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.core.policies import State
from steelyard.core.worksets import WorksetId, WorksetLoad
from steelyard.similarity.balancer import Move, in_order, irremovable, never_worse, worker_loads

ARMS = ("fit", "steady", "thrift", "swap")
"""Kinds of steps: the workset that fits best, one whose load varies little, one that is cheap to ship for what it
brings, and an exchange of two worksets."""
MOST_STEPS = 256
LEAST = 1e-3
"""The imbalance that Algorithm 1 leaves, in average loads of a worker, where worksets are many and light."""
WORST, BEST = -1.0, 2.0
"""Bounds of what steps brought over what they promised, so that one odd window does not outweigh all others."""


class _Step(NamedTuple):
    """One or two moves that were chosen together."""

    arm: int
    promised: float
    """By how much they lower the imbalance, less what they cost, in average loads of a worker."""
    moves: tuple[Move, ...]


class _Offer(NamedTuple):
    """What an arm would do now: move one workset from the most loaded worker, and of a swap one back to it."""

    promised: float
    worksets: tuple[int, ...]


class Bandit:
    """Makes a plan step by step; an epsilon-greedy bandit says of which kind each step is.

    A plan is for the loads that are expected: of each workset a mean over the windows so far, in which old ones
    fade. Each step takes load from the most loaded worker to the least loaded one, and is of the kind whose offer
    promises most, each promise taken at the value of its arm. The plan is cut where the imbalance under the loads
    that are given is lowest, so it is never worse than not to move. When the next loads come, its steps are tried
    on them, and an arm's value moves towards what its steps brought over what they promised: the fall of the
    imbalance less `migration` times the bytes, in average loads of a worker.

    Parameters
    ----------
    explore
        Share of the steps whose kind is drawn, 0 to 1.
    rate
        How far a value moves towards a new reward, above 0 and up to 1; also how fast old loads are forgotten.
    migration
        The factor f: what a byte moved costs, in the unit of loads.
    least
        Steps that promise less than so many average loads of a worker are not taken: they would ship worksets for
        what the next window undoes.
    steps
        The most steps of a plan. Where many thousands of light worksets must move, `Greedy` is the better choice.
    seed
        Chooses when to explore, and what.

    Examples
    --------
    >>> loads = [WorksetLoad(0, n, worker=0, load=load) for n, load in enumerate([4.0, 3.0, 2.0, 1.0])]
    >>> bandit = Bandit(seed=1)
    >>> [(move.workset, move.target) for move in bandit.moves(loads, workers=2)]
    [(0, 1), (3, 1)]
    >>> again = Bandit(seed=1)
    >>> again.restore(bandit.state())
    >>> again.moves(loads, workers=2) == bandit.moves(loads, workers=2)
    True
    """

    name: ClassVar[str] = "bandit"

    def __init__(
        self,
        explore: float = 0.1,
        rate: float = 0.2,
        migration: float = 0.0,
        least: float = LEAST,
        steps: int = MOST_STEPS,
        seed: int = 0,
    ) -> None:
        if not 0 <= explore <= 1:
            raise OptionError(f"option 'explore' must be between 0 and 1, got {explore!r}")
        if not 0 < rate <= 1:
            raise OptionError(f"option 'rate' must be above 0 and at most 1, got {rate!r}")
        if not (isfinite(migration) and migration >= 0):
            raise OptionError(f"option 'migration' must be a finite number from 0, got {migration!r}")
        if not (isfinite(least) and least > 0):
            raise OptionError(f"option 'least' must be a finite number above 0, got {least!r}")
        if steps < 1:
            raise OptionError(f"option 'steps' must be at least 1, got {steps!r}")
        if seed < 0:
            raise OptionError(f"option 'seed' must not be negative, got {seed!r}")
        self.explore = explore
        self.rate = rate
        self.migration = migration
        self.least = least
        self.steps = steps
        self.seed = seed
        self._plans = 0
        self._values: Floats = np.ones(len(ARMS))
        self._plays: Ints = np.zeros(len(ARMS), dtype=np.int64)
        self._habits: dict[WorksetId, tuple[float, float]] = {}  # mean and variance of the load
        self._pending: list[_Step] = []

    def __repr__(self) -> str:
        return (
            f"Bandit(explore={self.explore}, rate={self.rate}, migration={self.migration}, least={self.least}, "
            f"steps={self.steps}, seed={self.seed})"
        )

    @property
    def values(self) -> dict[str, float]:
        """What steps of each kind brought lately, over what they promised; 1 before there was any."""
        return dict(zip(ARMS, self._values.tolist(), strict=True))

    def moves(self, loads: Sequence[WorksetLoad], workers: int) -> list[Move]:
        """Learn from these loads what the last plan was worth, and make the next."""
        known = in_order(loads, workers)
        self._learn(known, workers)
        expected = [replace(each, load=self._habits[each.id][0]) for each in known]
        stay = irremovable(known, workers) | irremovable(expected, workers)
        steps = self._steps(expected, workers, stay) if any(each.load for each in expected) else []
        steps = _best_start(known, steps, workers)
        plan = never_worse(known, [move for step in steps for move in step.moves], workers)
        self._pending = steps if plan else []
        self._plans += 1
        return plan

    def state(self) -> State:
        """All that the next plan depends on, besides the parameters."""
        moves = [
            (number, step.arm, move.partition, move.workset, move.source, move.target, move.size)
            for number, step in enumerate(self._pending)
            for move in step.moves
        ]
        return {
            "plans": np.array([self._plans], dtype=np.int64),
            "values": self._values.copy(),
            "plays": self._plays.copy(),
            "worksets": np.array(list(self._habits), dtype=np.int64).reshape(-1, 2),
            "habits": np.array(list(self._habits.values()), dtype=np.float64).reshape(-1, 2),
            "pending": np.array(moves, dtype=np.int64).reshape(-1, 7),
            "promised": np.array([step.promised for step in self._pending], dtype=np.float64),
        }

    def restore(self, state: State) -> None:
        """Go on as the balancer that gave this state would."""
        self._plans = int(state["plans"][0])
        self._values = np.array(state["values"], dtype=np.float64)
        self._plays = np.array(state["plays"], dtype=np.int64)
        ids = [(int(partition), int(workset)) for partition, workset in state["worksets"].tolist()]
        self._habits = {key: (mean, spread) for key, (mean, spread) in zip(ids, state["habits"].tolist(), strict=True)}
        rows = state["pending"].tolist()
        self._pending = []
        for number, promised in enumerate(state["promised"].tolist()):
            mine = [row for row in rows if row[0] == number]
            self._pending.append(_Step(mine[0][1], promised, tuple(Move(*row[2:]) for row in mine)))

    def _learn(self, loads: Sequence[WorksetLoad], workers: int) -> None:
        self._reward(loads, workers)
        # Worksets that are gone are forgotten, so that what is kept stays as large as what is there.
        habits: dict[WorksetId, tuple[float, float]] = {}
        for each in loads:
            mean, variance = self._habits.get(each.id, (each.load, 0.0))
            off = each.load - mean
            # Exponentially weighted mean and variance (West 1979, with a fixed weight).
            habits[each.id] = mean + self.rate * off, (1 - self.rate) * (variance + self.rate * off * off)
        self._habits = habits

    def _reward(self, loads: Sequence[WorksetLoad], workers: int) -> None:
        """Try the last plan's steps on the loads that came, and value their arms by it."""
        where = {each.id: each.worker for each in loads}
        weight = {each.id: each.load for each in loads}
        moves = [move for step in self._pending for move in step.moves]
        if any(max(move.source, move.target) >= workers for move in moves):
            return  # workers have gone: the plan cannot be tried
        where.update((move.id, move.source) for move in moves if move.id in where)
        of_workers = np.zeros(workers)
        for key, worker in where.items():
            of_workers[worker] += weight[key]
        average = float(of_workers.mean())
        if average <= 0:
            return
        brought, promised = np.zeros(len(ARMS)), np.zeros(len(ARMS))
        for step in self._pending:
            before = np.abs(of_workers - average).sum()
            for move in step.moves:
                of_workers[move.source] -= weight.get(move.id, 0.0)
                of_workers[move.target] += weight.get(move.id, 0.0)
            cost = self.migration * sum(move.size for move in step.moves)
            brought[step.arm] += (before - np.abs(of_workers - average).sum() - cost) / average
            promised[step.arm] += step.promised
        # Over all steps of an arm together: a small promise is easily broken, and matters little.
        played = promised > 0
        kept = np.clip(brought[played] / promised[played], WORST, BEST)
        self._plays[played] += 1
        weight_of_new = np.maximum(self.rate, 1 / (1 + self._plays[played]))
        self._values[played] += weight_of_new * (kept - self._values[played])

    def _steps(self, loads: Sequence[WorksetLoad], workers: int, stay: set[WorksetId]) -> list[_Step]:
        # The seed and the number of the plan are all of the generator's state, so a restart goes on the same way.
        random = np.random.default_rng([self.seed, self._plans])
        board = _Board.of(loads, workers, stay, self._habits, self.migration, self.least)
        steps: list[_Step] = []
        while len(steps) < self.steps:
            offers = board.offers()
            if not offers:
                break
            arm = self._choose(offers, random)
            steps.append(_Step(arm, offers[arm].promised, board.do(offers[arm].worksets)))
        return steps

    def _choose(self, offers: Mapping[int, _Offer], random: np.random.Generator) -> int:
        """One of the arms that have an offer: drawn at times, else by its value times what it promises."""
        if random.random() < self.explore:
            return int(random.choice(sorted(offers)))
        return max(offers, key=lambda arm: (self._values[arm] * offers[arm].promised, -arm))


@dataclass
class _Board:
    """Where all worksets are while a plan is made. Arrays are over worksets, `of_workers` over workers."""

    loads: Sequence[WorksetLoad]
    of_workers: Floats
    weight: Floats
    bytes: Floats
    cost: Floats
    steadiness: Floats
    mine: list[Ints]
    """Of each worker, the worksets that may still leave it, lightest first."""
    average: float
    """Load of a worker, which moves do not change."""
    least: float

    @classmethod
    def of(
        cls,
        loads: Sequence[WorksetLoad],
        workers: int,
        stay: set[WorksetId],
        habits: dict[WorksetId, tuple[float, float]],
        migration: float,
        least: float,
    ) -> _Board:
        weight = np.array([each.load for each in loads])
        free = np.array([each.id not in stay for each in loads])
        worker = np.array([each.worker for each in loads])
        order = np.argsort(weight, kind="stable")
        order = order[free[order]]
        of_workers = worker_loads(loads, workers)
        return cls(
            loads,
            of_workers,
            weight,
            bytes=np.array([1.0 + each.size for each in loads]),  # one more, so that none is for nothing
            cost=np.array([migration * each.size for each in loads]),
            steadiness=np.array([_steadiness(*habits[each.id]) for each in loads]),
            mine=[order[worker[order] == n] for n in range(workers)],
            average=float(of_workers.mean()),
            least=least,
        )

    def offers(self) -> dict[int, _Offer]:
        """What each arm that can do any good would do now."""
        source, target = int(self.of_workers.argmax()), int(self.of_workers.argmin())
        there, offers = self.mine[source], dict[int, _Offer]()
        if not len(there):
            return offers
        gain = self._gain(self.weight[there]) - self.cost[there]
        good = np.flatnonzero(gain > self.least * self.average)
        if len(good):
            useful, net = there[good], gain[good]
            for arm, score in enumerate((net, net * self.steadiness[useful], net / self.bytes[useful])):
                i = int(score.argmax())
                offers[arm] = _Offer(float(net[i]) / self.average, (int(useful[i]),))
        exchange = self._exchange(there, self.mine[target])
        if exchange is not None:
            offers[ARMS.index("swap")] = exchange
        return offers

    def do(self, worksets: tuple[int, ...]) -> tuple[Move, ...]:
        """Move the first from the most to the least loaded worker, and the second, if any, the other way."""
        ends = int(self.of_workers.argmax()), int(self.of_workers.argmin())
        moves = []
        for i, (source, target) in zip(worksets, (ends, ends[::-1]), strict=False):
            each = self.loads[i]
            self.of_workers[source] -= each.load
            self.of_workers[target] += each.load
            self.mine[source] = self.mine[source][self.mine[source] != i]  # each moves once at most
            moves.append(Move(each.partition, each.workset, source, target, each.size))
        return tuple(moves)

    def _gain(self, load: Floats) -> Floats:
        """By how much the imbalance falls if so much goes from the most to the least loaded worker."""
        excess, room = self.of_workers.max() - self.average, self.average - self.of_workers.min()
        return np.asarray(excess - np.abs(excess - load) + room - np.abs(room - load))

    def _exchange(self, there: Ints, here: Ints) -> _Offer | None:
        """For each workset there the one here that leaves the best difference; the best pair of all."""
        if not len(here):
            return None
        wanted = min(self.of_workers.max() - self.average, self.average - self.of_workers.min())
        near = np.searchsorted(self.weight[here], self.weight[there] - wanted)
        best: _Offer | None = None
        for place in (near - 1, near):
            back = here[np.clip(place, 0, len(here) - 1)]
            gain = self._gain(self.weight[there] - self.weight[back]) - self.cost[there] - self.cost[back]
            i = int(gain.argmax())
            promised = float(gain[i]) / self.average
            if promised > self.least and (best is None or promised > best.promised):
                best = _Offer(promised, (int(there[i]), int(back[i])))
        return best


def _best_start(loads: Sequence[WorksetLoad], steps: list[_Step], workers: int) -> list[_Step]:
    """The steps up to the one after which the imbalance is lowest under these loads; none where all raise it."""
    weight = {each.id: each.load for each in loads}
    off = worker_loads(loads, workers)
    off -= off.mean()
    degrees = [float(np.abs(off).sum())]
    for step in steps:
        for move in step.moves:
            off[move.source] -= weight[move.id]
            off[move.target] += weight[move.id]
        degrees.append(float(np.abs(off).sum()))
    return steps[: degrees.index(min(degrees))]


def _steadiness(mean: float, variance: float) -> float:
    """1 where the load of a workset is always the same, towards 0 where it jumps."""
    return mean / (mean + sqrt(variance)) if mean > 0 else 1.0
