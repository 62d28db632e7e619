"""Topics that drift: worksets that stay, move by Algorithm 1, or move as learnt; and centroids that retire.

The dissertation names concept drift as its reason and shows no experiment of it. Here space partitions, worksets and
the join's bookkeeping are the real ones, in one process and without Spark, and loads are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.bench import Result, Run, Series, Table, Target, WrongAnswerError, charts, experiment, mean
from steelyard.similarity import (
    Balancer,
    Bandit,
    Formulation,
    Greedy,
    Members,
    Rows,
    SpacePartitions,
    WindowJoin,
    WorksetLoad,
    metric,
)
from steelyard.similarity.members import SELF, split_key, workset_key
from steelyard.workloads.vectors import Vectors

if TYPE_CHECKING:
    from steelyard.similarity.protocol import Floats, Ints

WORKERS = 5
T = 0.0002
ROWS, QUICK_ROWS = 4_000, 1_500
"""Of a window."""
WINDOWS, QUICK_WINDOWS = 24, 12
DRIFT = 4
"""Windows between two drifts."""
TURN = 5.0
"""Degrees by which all topics turn at a drift: vectors come where there were none."""
EXPONENT = 2.0
RETIRE_AFTER = 2
"""Windows without a record after which a centroid retires."""
SEEDS, QUICK_SEEDS = 10, 2
NONE, GREEDY, LEARNT = "none", "greedy", "learnt"
KEEP, RETIRE = "centroids kept", "centroids retire"


@dataclass(frozen=True)
class Window:
    """What one window cost."""

    loads: Floats
    """Comparisons and free pairs of each worker."""
    worksets: int
    """How many have a centroid at its end."""
    distances: int
    """Of records to centroids."""
    moves: int
    moved_bytes: int
    """Worksets that changed their worker at its end, and the bytes that were stored in them."""
    pairs: int
    checksum: int
    """How many pairs were found, and a number that other pairs would not have."""

    @property
    def critical(self) -> float:
        """Load of the most loaded worker, in fair shares of the whole."""
        return float(self.loads.max() / self.loads.mean())


class LocalJoin:
    """A join of a stream with itself in one process, window by window; worksets are balanced at the end of each.

    Parameters
    ----------
    workers, dimension, t
        Of the join.
    balancer
        Which worksets move; None moves none.
    retire_after
        See `Formulation`.
    """

    def __init__(
        self, workers: int, dimension: int, t: float, balancer: Balancer | None, retire_after: int | None = None
    ) -> None:
        self.metric = metric("angular")
        self.workers = workers
        self.balancer = balancer
        self.space = SpacePartitions.random(workers, dimension, self.metric, t)
        self.parts = [Formulation(self.metric, t, part, retire_after=retire_after) for part in range(workers)]
        self.joins = [WindowJoin(self.metric, t, self_join=True, distances=False) for _ in range(workers)]
        self.assignment: dict[int, int] = {}
        self.number = 0

    def window(self, vectors: Floats, first: int) -> Window:
        """Join one window, whose records have ids from `first` on."""
        routed = self.space.route(vectors)
        distances, placed = routed.distances, []
        for part, formulation in enumerate(self.parts):
            records, outer = routed.of(part)
            span = np.full((len(records), 2), self.number, dtype=np.int64)
            sides = np.full(len(records), SELF, dtype=np.int8)
            found = formulation.add(Rows(first + records, sides, span, vectors[records]), outer)
            distances += found.distances
            placed.append(found.members)
        pairs, checksum = self._join(Members.join(self.metric, placed))
        loads = self._loads()
        moves, size = self._balance(loads)
        for formulation in self.parts:
            formulation.close(self.number)
        for join in self.joins:
            join.close(self.number)
        self.number += 1
        worksets = sum(len(formulation.worksets) for formulation in self.parts)
        totals = np.zeros(self.workers)
        for one in loads:
            totals[one.worker] += one.load
        return Window(totals, worksets, distances, moves, size, pairs, checksum)

    def _join(self, members: Members) -> tuple[int, int]:
        keys, place = np.unique(members.worksets, return_inverse=True)
        homes = split_key(keys)[0] % self.workers
        where = np.array([self.assignment.get(k, h) for k, h in zip(keys.tolist(), homes.tolist(), strict=True)])
        worker: Ints = where[place]
        pairs = checksum = 0
        for number, join in enumerate(self.joins):
            found = join.add(members.take(self.metric, np.flatnonzero(worker == number)))
            pairs += len(found)
            mixed = (found.left * 1_000_003 + found.right) * 2_654_435_761 % (1 << 31)
            checksum += int(mixed.sum())
        return pairs, checksum

    def _loads(self) -> list[WorksetLoad]:
        loads = []
        for worker, join in enumerate(self.joins):
            cost = join.loads(reset=True)
            partitions, worksets, _ = split_key(cost.worksets)
            columns = (partitions, worksets, cost.comparisons + cost.free, cost.bytes)
            for partition, workset, load, size in zip(*(c.tolist() for c in columns), strict=True):
                loads.append(WorksetLoad(partition, workset, worker, float(load), size))
        return loads

    def _balance(self, loads: Sequence[WorksetLoad]) -> tuple[int, int]:
        moves = self.balancer.moves(loads, self.workers) if self.balancer is not None else []
        for move in moves:
            self.assignment[int(workset_key(move.partition, move.workset))] = move.target
        return len(moves), sum(move.size for move in moves)


Variants = Mapping[str, Callable[[int], LocalJoin]]


def balancers() -> Variants:
    """Joins that differ in who moves worksets, by the seed of a run."""
    return {
        NONE: lambda seed: LocalJoin(WORKERS, 2, T, None),
        GREEDY: lambda seed: LocalJoin(WORKERS, 2, T, Greedy()),
        LEARNT: lambda seed: LocalJoin(WORKERS, 2, T, Bandit(seed=seed)),
    }


def retiring() -> Variants:
    """Joins that differ in what becomes of old centroids."""
    return {
        KEEP: lambda seed: LocalJoin(WORKERS, 2, T, Greedy()),
        RETIRE: lambda seed: LocalJoin(WORKERS, 2, T, Greedy(), RETIRE_AFTER),
    }


def course(join: LocalJoin, law: Vectors, rows: int, windows: int) -> list[Window]:
    """All windows of one stream."""
    found = []
    for number in range(windows):
        column = law.rows(number * rows, rows, np.zeros(rows, dtype=np.int64)).column("vector")
        found.append(join.window(np.array(column.flatten()).reshape(rows, -1), number * rows))
    return found


def courses(
    variants: Variants, seeds: Sequence[int], rows: int, windows: int, run: Run
) -> dict[str, list[list[Window]]]:
    """Every variant over the same streams, one for each seed; all must find the same pairs."""
    found: dict[str, list[list[Window]]] = {name: [] for name in variants}
    for seed in run.progress.track(seeds, ", ".join(variants)):
        law = Vectors(distribution="topics", exponent=EXPONENT, drift_every=DRIFT * rows, drift_turn=TURN, seed=seed)
        for name, make in variants.items():
            found[name].append(course(make(seed), law, rows, windows))
        answers = {name: [(one.pairs, one.checksum) for one in found[name][-1]] for name in variants}
        first, right = next(iter(answers.items()))
        for name, answer in answers.items():
            if answer != right:
                raise WrongAnswerError(f"{name} and {first} found different pairs with seed {seed}")
    return found


@experiment("s3j-drift", title="Topics that drift: balancers against each other, and centroids that retire")
def s3j_drift(run: Run) -> Result:
    """Load of the busiest worker while the hot topic changes, and what old centroids cost."""
    rows, windows = run.pick((ROWS, WINDOWS), (QUICK_ROWS, QUICK_WINDOWS))
    seeds = run.seeds(SEEDS, QUICK_SEEDS)
    moved = courses(balancers(), seeds, rows, windows, run)
    retired = courses(retiring(), seeds, rows, windows, run)
    return result_of(moved, retired, rows)


def critical_path(found: Sequence[Sequence[Window]], windows: Sequence[int]) -> float:
    """The busiest worker's load in these windows, in fair shares: mean over windows and seeds."""
    return mean(one[window].critical for one in found for window in windows)


def result_of(
    moved: Mapping[str, Sequence[Sequence[Window]]], retired: Mapping[str, Sequence[Sequence[Window]]], rows: int
) -> Result:
    """Critical paths by balancer, right after a drift and later; centroids and distances by retirement."""
    windows = range(1, len(moved[NONE][0]))  # before the first plan all are alike
    fresh = [window for window in windows if window % DRIFT == 0]
    settled = [window for window in windows if window % DRIFT]
    metrics: dict[str, float] = {}
    for name, found in moved.items():
        metrics[f"{name}_critical_path"] = critical_path(found, windows)
        metrics[f"{name}_critical_path_after_drift"] = critical_path(found, fresh)
        metrics[f"{name}_critical_path_settled"] = critical_path(found, settled)
        metrics[f"{name}_moved_bytes"] = mean(sum(one.moved_bytes for one in course) for course in found)
    for name in (GREEDY, LEARNT):
        metrics[f"{name}_critical_path_reduction"] = 1 - critical_path(moved[name], windows) / critical_path(
            moved[NONE], windows
        )
    kept, gone = (retired[name] for name in (KEEP, RETIRE))
    metrics["worksets_kept"] = mean(course[-1].worksets for course in kept)
    metrics["worksets_after_retirement"] = mean(course[-1].worksets for course in gone)
    metrics["retirement_distances_share"] = _distances(gone) / _distances(kept)
    return Result(
        parameters={
            "workers": WORKERS,
            "t": T,
            "rows": rows,
            "windows": len(moved[NONE][0]),
            "drift_windows": DRIFT,
            "drift_turn": TURN,
            "exponent": EXPONENT,
            "retire_after": RETIRE_AFTER,
            "seeds": len(moved[NONE]),
        },
        metrics=metrics,
        tables=[_table(moved), _table(retired)],
        series=[Series(name, list(range(len(found[0]))), _mean_path(found)) for name, found in moved.items()],
        targets=_targets(),
        notes=[
            "Everything is counted, in one process: comparisons and free pairs of each worker, distances to centroids. "
            "No clock is involved. All variants found the same pairs in every window.",
            f"Every {DRIFT} windows another topic is the hottest, and all of them turn by {TURN:g} degrees. A plan is "
            "made from the loads of a window at its end and serves the next, so it can know nothing of a drift.",
            "A critical path of 1 is perfect balance: the busiest worker has its fair share.",
        ],
    )


def _targets() -> list[Target]:
    new = "worksets that a drift creates start on the worker of their space partition, whoever balances the old ones"
    return [
        Target("greedy_critical_path_reduction", at_least=0.30, explanation=new),
        Target("retirement_distances_share", at_most=1.0, explanation="no centroid was idle for long enough"),
    ]


def _distances(found: Sequence[Sequence[Window]]) -> float:
    return mean(sum(one.distances for one in course) for course in found)


def _mean_path(found: Sequence[Sequence[Window]]) -> list[float]:
    return [critical_path(found, [window]) for window in range(len(found[0]))]


def _table(variants: Mapping[str, Sequence[Sequence[Window]]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, found in variants.items():
        for window in range(len(found[0])):
            ones = [course[window] for course in found]
            means = [
                mean(getattr(one, column) for one in ones)
                for column in ("critical", "worksets", "distances", "moves", "moved_bytes", "pairs")
            ]
            rows.append((name, window, *means))
    columns = ("variant", "window", "critical path", "worksets", "distances", "moves", "moved bytes", "pairs")
    return Table(" against ".join(variants), columns, rows)


@s3j_drift.picture
def draw(figure: charts.Figure, result: Result) -> None:
    """The busiest worker with and without balancing, and worksets with and without retiring."""
    panels = charts.panels(figure, 2, (14, 4.5))
    views = (
        ("Load of the busiest worker", "critical path", "load / mean load"),
        ("Worksets with a centroid", "worksets", "worksets"),
    )
    for axes, table, (title, column, y) in zip(panels, result.tables, views, strict=True):
        lines = table.lines("variant", "window", column)
        charts.lines(axes, lines, title=title, x="window (dotted: topics drift)", y=y)
        for drift in lines[0].x[DRIFT::DRIFT]:
            axes.axvline(drift - 0.5, color=charts.GREY, linestyle=":", linewidth=1)
