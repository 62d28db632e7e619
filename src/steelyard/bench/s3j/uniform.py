"""Fig 2.6 of Siachamis 2024 on its own streams: uniform vectors at the published rate, counted and not executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard.bench import Claim, Number, Table, mean
from steelyard.bench.s3j.windows import WINDOW_SECONDS, space_of, uniform_window
from steelyard.core.plans import Floats
from steelyard.similarity import Greedy, WorksetLoad
from steelyard.similarity.balancer import after, worker_loads
from steelyard.similarity.members import split_key
from steelyard.similarity.window_join import WindowJoin
from steelyard.similarity.worksets import Formulation

RATE = 4_000
"""Records per second of each of the two streams."""
T = 0.001
"""A selectivity of 0.1 %."""
WORKERS, WINDOWS = 5, 4
QUICK_SHARE = 20
"""A quick run has this part of the records."""
STILL, MOVING = "uniform, without balancing", "uniform, with balancing"
IDLE = 0.5
"""A worker with less than this part of an even share counts as nearly idle."""


@dataclass(frozen=True, eq=False)
class Uniform:
    """Loads of the workers, window by window: comparisons and free pairs."""

    still: Floats
    moving: Floats
    """float64[windows, workers]: with every workset where it was made, and with the plans carried out."""
    moves: Sequence[int]
    """Worksets that each window began with moving."""
    heaviest: float
    """Load of the heaviest workset of the last window, over the mean load of a worker."""

    def shares(self, loads: Floats) -> Floats:
        """Of an even share: 1 for all would be perfect balance."""
        return np.asarray(loads / loads.mean(axis=1, keepdims=True))


def workset_loads(a_side: int, seed: int, windows: int = WINDOWS) -> list[list[WorksetLoad]]:
    """What every workset costs in each window, on the worker of its partition; geometry stays from window to window."""
    space = space_of(WORKERS, T)
    made = [Formulation(space.metric, T, partition) for partition in range(len(space))]
    found = []
    for window in range(windows):
        rows = uniform_window(a_side, seed * windows + window)
        rows = replace(rows, windows=np.full((len(rows), 2), window))
        routed = space.route(rows.records)
        loads: list[WorksetLoad] = []
        for partition, formulation in enumerate(made):
            index, outer = routed.of(partition)
            join = WindowJoin(space.metric, T)
            join.add(formulation.add(rows.take(space.metric, index), outer).members, find=False)
            formulation.close(window)
            costs = join.loads()
            numbers = split_key(costs.worksets)[1]
            for workset, load in zip(numbers.tolist(), (costs.comparisons + costs.free).tolist(), strict=True):
                loads.append(WorksetLoad(partition, workset, partition, float(load)))
        found.append(loads)
    return found


def balanced(windows: Sequence[Sequence[WorksetLoad]], workers: int = WORKERS) -> Uniform:
    """Each window begins with the moves that the loads of the one before ask for.

    >>> one = [WorksetLoad(0, 1, 0, 4.0), WorksetLoad(0, 2, 0, 2.0), WorksetLoad(1, 1, 1, 0.0)]
    >>> found = balanced([one, one], workers=2)
    >>> found.still.tolist(), found.moving.tolist(), found.moves
    ([[6.0, 0.0], [6.0, 0.0]], [[6.0, 0.0], [4.0, 2.0]], [0, 1])
    """
    where: dict[tuple[int, int], int] = {}
    still, moving, moves = [], [], []
    before: list[WorksetLoad] = []
    for loads in windows:
        planned = Greedy().moves(before, workers) if before else []
        where |= {each.id: each.worker for each in after(before, planned)}
        before = [replace(each, worker=where.get(each.id, each.worker)) for each in loads]
        still.append(worker_loads(loads, workers))
        moving.append(worker_loads(before, workers))
        moves.append(len(planned))
    even = mean(moving[-1]) or 1.0
    return Uniform(np.array(still), np.array(moving), moves, max(each.load for each in before) / even)


def measure(seed: int, quick: bool) -> Uniform:
    """The published rate, or a part of it."""
    return balanced(workset_loads(RATE * WINDOW_SECONDS // (QUICK_SHARE if quick else 1), seed))


def metrics_of(found: Uniform) -> dict[str, Number]:
    """The busiest and the idlest worker."""
    still, moving = found.shares(found.still), found.shares(found.moving)
    return {
        "uniform_critical_path_reduction_last": 1 - float(found.moving[-1].max() / found.still[-1].max()),
        "uniform_last_over_first": float(found.moving[-1].max() / found.moving[0].max()),
        "uniform_idlest_without": float(still[-1].min()),
        "uniform_idlest_with": float(moving[-1].min()),
        "uniform_busiest_with": float(moving[-1].max()),
        "uniform_moves": sum(found.moves),
    }


def claims_of(found: Uniform) -> list[Claim]:
    """What the text on Fig 2.6 says, beside what was found."""
    figures = metrics_of(found)
    return [
        Claim(
            "uniform: without balancing one of five workers is nearly idle (its part of an even share)",
            "one worker receives hardly any load",
            [figures["uniform_idlest_without"]],
            at_most=IDLE,
            reason="the published centroids cut the space more evenly than that",
        ),
        Claim(
            "uniform: with it that worker takes part (the idlest worker's part of an even share)",
            "participates actively after the first action",
            [figures["uniform_idlest_with"]],
            IDLE,
            reason="what moved to it was light in the next window",
        ),
        Claim(
            "uniform: the busiest worker's load falls (last window over first)",
            "highest latency 3 s in the first window, about 2 s in the last",
            [figures["uniform_last_over_first"]],
            at_most=0.99,
            reason="no plan took load from the busiest worker",
        ),
        Claim(
            "uniform: one worker stays heavier than the others (the busiest worker's part of an even share)",
            "four of five end alike; one has a big workset that may not move",
            [figures["uniform_busiest_with"]],
            1.1,
            reason=f"the heaviest workset of uniform vectors has {found.heaviest:.1%} of a worker's mean load, so that "
            "none is too big to move",
        ),
    ]


def table_of(found: Uniform) -> Table:
    """Loads of all workers."""
    rows: list[tuple[Any, ...]] = []
    for name, loads in ((STILL, found.still), (MOVING, found.moving)):
        for window, each in enumerate(loads):
            moved = found.moves[window] if name == MOVING else 0
            rows.append((name, window, ", ".join(f"{load:.0f}" for load in each), float(each.max()), moved))
    columns = ("course", "window", "loads", "critical load", "moves")
    return Table("Fig 2.6 on its own streams: two uniform ones, counted", columns, rows)
