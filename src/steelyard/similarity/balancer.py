"""Which worksets move to which worker, so that all workers have about the same load.

Definitions and Algorithm 1 are those of the dissertation on adaptive dataflow engines (Siachamis 2024, chapter
2). Worksets are jobs and workers are processors: the exact problem is NP-hard, so a plan is greedy.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.core.worksets import WorksetId, WorksetLoad

ACCEPT = ("benefit", "current_load")
"""Two readings of the test that a receiver must pass in Algorithm 1."""


@dataclass(frozen=True, slots=True)
class Move:
    """One workset goes from one worker to another."""

    partition: int
    workset: int
    source: int
    target: int
    size: int = 0

    @property
    def id(self) -> WorksetId:
        """Which workset moves."""
        return self.partition, self.workset


@runtime_checkable
class Balancer(Protocol):
    """Decides which worksets move. Called in the driver between two batches or windows."""

    def moves(self, loads: Sequence[WorksetLoad], workers: int) -> list[Move]:
        """A plan for workers 0 to `workers` - 1; each workset moves once at most.

        Raises OptionError where a workset is given twice, is on a worker that does not exist, or has a load that
        is negative or not finite.
        """
        ...


def worker_loads(loads: Sequence[WorksetLoad], workers: int) -> Floats:
    """float64[workers]: the load of each worker, the sum of its worksets' loads.

    >>> worker_loads([WorksetLoad(0, 1, 0, 3.0), WorksetLoad(0, 2, 2, 1.0), WorksetLoad(1, 1, 0, 2.0)], workers=3)
    array([5., 0., 1.])
    """
    where = np.fromiter((each.worker for each in loads), dtype=np.int64, count=len(loads))
    weights = np.fromiter((each.load for each in loads), dtype=np.float64, count=len(loads))
    return np.asarray(np.bincount(where, weights=weights, minlength=workers), dtype=np.float64)


def imbalance(loads: Sequence[WorksetLoad], workers: int) -> float:
    """The degree of imbalance (Definition 2.11), in the unit of the loads.

    >>> imbalance([WorksetLoad(0, 1, 0, 3.0), WorksetLoad(0, 2, 0, 1.0)], workers=2)
    4.0
    """
    # DI = sum over workers |L_n - L_avg|
    of_workers = worker_loads(loads, workers)
    return float(np.abs(of_workers - of_workers.mean()).sum()) if workers else 0.0


def after(loads: Sequence[WorksetLoad], moves: Sequence[Move]) -> list[WorksetLoad]:
    """The same worksets where they are once the moves are done.

    >>> [one.worker for one in after([WorksetLoad(0, 1, 0, 3.0)], [Move(0, 1, source=0, target=1)])]
    [1]
    """
    where = {each.id: each.worker for each in loads}
    for move in moves:
        if where.get(move.id) != move.source:
            raise ValueError(f"{move} does not start where the workset is, which is worker {where.get(move.id)}")
        where[move.id] = move.target
    return [replace(each, worker=where[each.id]) for each in loads]


def irremovable(loads: Sequence[WorksetLoad], workers: int) -> set[WorksetId]:
    """The heaviest workset of each overloaded worker, where it alone is above the average load of a worker.

    Such a workset would make any other worker as overloaded as its own; it stays, and lighter ones leave it.

    >>> irremovable([WorksetLoad(0, 1, 0, 9.0), WorksetLoad(0, 2, 0, 1.0), WorksetLoad(1, 1, 1, 2.0)], workers=2)
    {(0, 1)}
    """
    of_workers = worker_loads(loads, workers)
    average = of_workers.mean()
    heaviest: dict[int, WorksetLoad] = {}
    for each in loads:
        if each.load > average and of_workers[each.worker] >= average:
            best = heaviest.get(each.worker)
            if best is None or (-each.load, each.id) < (-best.load, best.id):
                heaviest[each.worker] = each
    return {each.id for each in heaviest.values()}


def in_order(loads: Sequence[WorksetLoad], workers: int) -> list[WorksetLoad]:
    """The worksets in the order of their ids, so that a plan does not depend on theirs; OptionError if one is wrong."""
    if workers < 1:
        raise OptionError(f"option 'workers' must be at least 1, got {workers}")
    seen: set[WorksetId] = set()
    for each in loads:
        if not 0 <= each.worker < workers:
            raise OptionError(
                f"workset {each.id} is on worker {each.worker}, and there are workers 0 to {workers - 1}: "
                "move it before its worker goes"
            )
        if not (isfinite(each.load) and each.load >= 0):
            raise OptionError(f"the load of workset {each.id} must be finite and not negative, got {each.load!r}")
        if each.id in seen:
            raise OptionError(f"workset {each.id} is given twice: add up its loads first")
        seen.add(each.id)
    return sorted(loads, key=lambda each: each.id)


def never_worse(loads: Sequence[WorksetLoad], moves: list[Move], workers: int) -> list[Move]:
    """The plan, or none where sums that are rounded otherwise make its imbalance higher than it was."""
    return moves if imbalance(after(loads, moves), workers) <= imbalance(loads, workers) else []


@dataclass(frozen=True)
class Greedy:
    """Algorithm 1: the workset whose leaving helps most goes to the worker whom it helps most, until none helps.

    Overloaded workers (at or above the average) only give, underloaded ones only take, so it ends. Work is
    `n log n` in the number of worksets.

    Parameters
    ----------
    accept
        When a worker may take a workset: `benefit`, where this brings it nearer to the average, as the text
        demands; or `current_load`, where it is below the average before it takes, as the authors' program tests.
        The second can make things worse, so its plan is cut after the move with the lowest imbalance.
    migration
        The factor f: what a byte moved costs, in the unit of loads. The authors' programs have 0 and 0.1.

    Examples
    --------
    >>> loads = [WorksetLoad(0, n, worker=0, load=load) for n, load in enumerate([4.0, 3.0, 2.0, 1.0])]
    >>> Greedy().moves(loads, workers=2)
    [Move(partition=0, workset=0, source=0, target=1, size=0),
     Move(partition=0, workset=3, source=0, target=1, size=0)]
    """

    accept: str = "benefit"
    migration: float = 0.0

    name: ClassVar[str] = "greedy"
    paper: ClassVar[str] = "Siachamis 2024, Algorithm 1"

    def __post_init__(self) -> None:
        if self.accept not in ACCEPT:
            raise OptionError.unknown("value of option 'accept':", self.accept, ACCEPT)
        if not (isfinite(self.migration) and self.migration >= 0):
            raise OptionError(f"option 'migration' must be a finite number from 0, got {self.migration!r}")

    def moves(self, loads: Sequence[WorksetLoad], workers: int) -> list[Move]:
        """The plan of Algorithm 1, best move first."""
        known = in_order(loads, workers)
        if not known:
            return []
        of_workers = worker_loads(known, workers)
        average = float(of_workers.mean())
        givers = _givers(known, of_workers, average, irremovable(known, workers), self.migration)
        # The least loaded worker has the highest addition benefit for every workset, so no other is asked.
        takers = [(load, u) for u, load in enumerate(of_workers.tolist()) if load < average]
        heapq.heapify(takers)
        plan = self._plan(givers, takers, average) if takers else []
        if self.accept == "current_load":
            plan = _best_prefix(known, plan, of_workers)
        return never_worse(known, plan, workers)

    def _plan(self, givers: Mapping[int, _Giver], takers: list[tuple[float, int]], average: float) -> list[Move]:
        plan: list[Move] = []
        turns = [turn for giver in givers.values() if (turn := giver.best(self._limit(takers[0][0], average)))]
        heapq.heapify(turns)
        while turns:
            _, _, best = heapq.heappop(turns)
            giver = givers[best.worker]
            least, target = takers[0]
            limit = self._limit(least, average)
            if best.load < limit:
                plan.append(Move(best.partition, best.workset, best.worker, target, best.size))
                heapq.heapreplace(takers, (least + best.load, target))
                giver.remove(best)
                limit = self._limit(takers[0][0], average)
            turn = giver.best(limit)
            if turn is not None:
                heapq.heappush(turns, turn)
        return plan

    def _limit(self, least: float, average: float) -> float:
        """Worksets lighter than this may go to the least loaded worker. It never rises while worksets move."""
        room = average - least
        if self.accept == "current_load":
            return float("inf") if room > 0 else 0.0
        # Addition benefit |L_u - L_avg| - |L_u + L_w - L_avg| > 0  <=>  L_w < 2 (L_avg - L_u)
        return 2 * room


_Turn = tuple[float, WorksetId, WorksetLoad]
"""Net removal benefit (negative, so that the best is first), the id for ties, and the workset."""


class _Giver:
    """An overloaded worker, with its worksets in two heaps.

    With the excess E = L_o - L_avg, the net removal benefit of a workset is

        |E| - |E - L_w| - f size(w)  =  L_w - f size(w)            where L_w <= E
                                        2 E - (L_w + f size(w))    where L_w > E

    The brackets do not change as worksets leave, and E only falls. So each workset is in the first heap until
    it is larger than E, then in the second; and what is too heavy for the takers once is too heavy for good.
    """

    def __init__(self, excess: float) -> None:
        self._excess = excess
        self._below: list[_Turn] = []
        self._above: list[_Turn] = []
        self._cost: dict[WorksetId, float] = {}

    def add(self, workset: WorksetLoad, cost: float) -> None:
        self._cost[workset.id] = cost
        self._below.append((cost - workset.load, workset.id, workset))

    def ready(self) -> None:
        heapq.heapify(self._below)

    def remove(self, workset: WorksetLoad) -> None:
        """It has left: the heap that has it at its top loses it."""
        heapq.heappop(self._below if self._below and self._below[0][2] is workset else self._above)
        self._excess -= workset.load

    def best(self, limit: float) -> _Turn | None:
        """The workset below the limit whose leaving has the highest benefit, if that is positive."""
        excess, below, above = self._excess, self._below, self._above
        while below and (below[0][2].load > excess or below[0][2].load >= limit):
            _, key, workset = heapq.heappop(below)
            if workset.load < limit:
                heapq.heappush(above, (workset.load + self._cost[key], key, workset))
        while above and above[0][2].load >= limit:
            heapq.heappop(above)
        turns = [below[0]] if below else []
        if above:
            sum_, key, workset = above[0]
            turns.append((sum_ - 2 * excess, key, workset))
        best = min(turns, default=None)
        return best if best is not None and best[0] < 0 else None


def _givers(
    loads: Sequence[WorksetLoad], of_workers: Floats, average: float, stay: set[WorksetId], migration: float
) -> dict[int, _Giver]:
    givers = {o: _Giver(load - average) for o, load in enumerate(of_workers.tolist()) if load >= average}
    for each in loads:
        if each.worker in givers and each.id not in stay:
            givers[each.worker].add(each, migration * each.size)
    for giver in givers.values():
        giver.ready()
    return givers


def _best_prefix(loads: Sequence[WorksetLoad], plan: list[Move], of_workers: Floats) -> list[Move]:
    """The plan up to the move after which the imbalance was lowest."""
    weight = {each.id: each.load for each in loads}
    current = of_workers - of_workers.mean()
    lowest = now = float(np.abs(current).sum())
    keep = 0
    for i, move in enumerate(plan, start=1):
        for worker, change in ((move.source, -weight[move.id]), (move.target, weight[move.id])):
            now += abs(current[worker] + change) - abs(current[worker])
            current[worker] += change
        if now < lowest:
            lowest, keep = now, i
    return plan[:keep]
