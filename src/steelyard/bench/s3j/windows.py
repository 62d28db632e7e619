"""One window of two streams through S3J and through ClusterJoin, in this process, and what each of them counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.bench import Cell, Number, Table, charts
from steelyard.bench.s3j.clusterjoin import COLLAPSED, KEY_GROUPS, TRUE, ClusterJoin
from steelyard.similarity.members import LEFT, RIGHT, Rows
from steelyard.similarity.metrics import metric as metric_of
from steelyard.similarity.partitions import SpacePartitions, java_doubles
from steelyard.similarity.protocol import Floats, Ints, Metric
from steelyard.similarity.window_join import Pairs, WindowJoin
from steelyard.similarity.worksets import Formulation
from steelyard.workloads.vectors import Vectors

Figures = Mapping[str, Sequence[Number | None]]
"""Published figures by method, None where there is none."""
SOURCE = "Siachamis 2024"
WINDOW_SECONDS = 60
"""The run files say 60 s for both tables; the text of the second experiment says five minutes."""
QUICK_SHARE = 10
"""A quick run has this part of the published rate."""
PUBLISHED_SEED = 42
"""Of the published centroids and of both published streams."""
CENTROID_SEED = 42
S3J, CJ, CJ_TRUE = "S3J", "ClusterJoin, shared keys", "ClusterJoin, a key a cell"
METHODS = (S3J, CJ, CJ_TRUE)
FIGURES = (
    "duplication",
    "published",
    "comparisons, nominal pairs",
    "counted pairs",
    "published",
    "difference (nominal)",
    "of it to centroids",
)
"""Columns of both tables of the chapter, beside what was printed."""


@dataclass(frozen=True)
class Cost:
    """What a method did with one window."""

    records: int
    copies: int
    """Records that came in, and members that they became: of worksets, or of virtual partitions."""
    to_centroids: int
    """Distances between records and centroids."""
    comparisons: int
    """Distances between records."""
    free: int
    """Pairs that needed no distance."""
    workers: Ints
    """int64[P]; both kinds of distances that each worker computes. Those to space partitions are spread evenly."""

    @property
    def duplication(self) -> float:
        """Copies of a record, on average; 1 is none but itself."""
        return self.copies / self.records

    @property
    def largest_share(self) -> float:
        """The busiest worker's share of all distances."""
        return float(self.workers.max() / self.workers.sum())

    def ratio(self, pairs: float, faster: int = 1) -> float:
        """The comparisons ratio: all distances over pairs.

        Parameters
        ----------
        pairs
            The denominator, for this window.
        faster
            At so many times the rate. Comparisons and pairs grow with its square, distances to a fixed set of
            centroids with the rate itself, so their share falls.
        """
        return (self.comparisons + self.to_centroids / faster) / pairs


@dataclass(frozen=True)
class Denominators:
    """The two numbers of pairs that a comparisons ratio may be divided by."""

    counted: int
    """Pairs that match, as the text defines the ratio."""
    nominal: float
    """Selectivity times all pairs. The published ratios agree with this one."""

    @classmethod
    def of(cls, rows: Rows, t: float) -> Denominators:
        """For vectors of two dimensions and the angular distance, whose nominal selectivity is t."""
        left, right = (rows.records[rows.sides == side] for side in (LEFT, RIGHT))
        return cls(pairs_on_circle(left, right, t), t * len(left) * len(right))


def uniform_window(a_side: int, seed: int, dimension: int = 2) -> Rows:
    """One window of two uniform streams that take turns, `a_side` records each."""
    return two_sided([vectors_of(Vectors(dimension=dimension, seed=2 * seed + k), a_side) for k in range(2)])


def published_window(a_side: int, dimension: int = 2) -> Rows:
    """The window of the published generator: both streams are the same numbers, and the first are the centroids."""
    vectors = 2 * java_doubles(PUBLISHED_SEED, dimension * a_side).reshape(a_side, dimension) - 1
    return two_sided([vectors, vectors])


def vectors_of(workload: Vectors, count: int) -> Floats:
    """float64[count, dimension]; the first vectors of a workload."""
    column = workload.rows(0, count, np.zeros(count, dtype=np.int64)).column("vector")
    return np.asarray(column.flatten()).reshape(count, workload.dimension)


def two_sided(sides: Sequence[Floats]) -> Rows:
    """Vectors of two streams as rows of one window: first of the left, first of the right, second of the left ..."""
    count = len(sides[0])
    records = np.stack(sides, axis=1).reshape(2 * count, -1)
    side = np.tile(np.array([LEFT, RIGHT], dtype=np.int8), count)
    return Rows(np.repeat(np.arange(count), 2), side, np.zeros((2 * count, 2), dtype=np.int64), records)


def pairs_on_circle(left: Floats, right: Floats, t: float) -> int:
    """How many pairs of two-dimensional vectors are within the angular distance `t`: by sorting, not by comparing.

    A pair whose distance is `t` but for its last bits may be counted otherwise than the metric would.
    """
    angles, others = (np.arctan2(side[:, 1], side[:, 0]) / np.pi for side in (left, right))
    if t >= 1:
        return len(angles) * len(others)
    others = np.sort(others)
    around = np.concatenate([others - 2, others, others + 2])
    last = np.searchsorted(around, angles + t, side="right")
    return int((last - np.searchsorted(around, angles - t, side="left")).sum())


def s3j(rows: Rows, space: SpacePartitions, *, find: bool = False, crowd: int | None = None) -> tuple[Cost, Pairs]:
    """A window through space partitions, worksets and the join, with one worker for each space partition.

    Without `find` the comparisons are counted from the sizes of the worksets and no pair is looked for.
    """
    metric, t = space.metric, space.t
    routed = space.route(rows.records)
    copies, to_centroids, comparisons, free = np.zeros((4, len(space)), dtype=np.int64)
    found: list[Pairs] = []
    for partition in range(len(space)):
        index, outer = routed.of(partition)
        if not len(index):
            continue
        placed = Formulation(metric, t, partition, crowd=crowd).add(rows.take(metric, index), outer)
        join = WindowJoin(metric, t)
        found.append(join.add(placed.members, find=find))
        loads = join.loads()
        copies[partition], to_centroids[partition] = len(placed.members), placed.distances
        comparisons[partition], free[partition] = loads.comparisons.sum(), loads.free.sum()
    workers = comparisons + to_centroids + routed.distances // len(space)
    centroids = int(to_centroids.sum()) + routed.distances
    cost = Cost(len(rows), int(copies.sum()), centroids, int(comparisons.sum()), int(free.sum()), workers)
    return cost, Pairs.join(found)


def clusterjoin(rows: Rows, t: float, workers: Sequence[int], metric: Metric) -> dict[str, dict[int, Cost]]:
    """What ClusterJoin with 500 cells counts, in both forms and for some numbers of workers; routed once."""
    joins = {keys: ClusterJoin.random(rows.records.shape[1], metric, t, keys=keys) for keys in (TRUE, COLLAPSED)}
    routed = joins[TRUE].space.route(rows.records)
    found: dict[str, dict[int, Cost]] = {}
    for keys, join in joins.items():
        cost = join.cost(rows, routed)
        groups = len(join.space) if keys == TRUE else KEY_GROUPS
        found[keys] = {}
        for count in workers:
            # Ranges of keys that follow each other; the 129th key belongs to the last range.
            worker = np.minimum(np.arange(len(cost.comparisons)) * count // groups, count - 1)
            loads = np.bincount(worker, cost.comparisons, count).astype(np.int64) + cost.distances // count
            total = int(cost.comparisons.sum())
            found[keys][count] = Cost(len(rows), cost.copies, cost.distances, total, 0, loads)
    return found


@dataclass(frozen=True)
class Check:
    """A join beside brute force over the same records."""

    pairs: int
    missing: int
    extra: int
    repeated: int

    @property
    def wrong(self) -> int:
        """Pairs that are not as they should be."""
        return self.missing + self.extra + self.repeated


def check(rows: Rows, pairs: Pairs, metric: Metric, t: float) -> Check:
    """Compare what a join found with every pair that there is."""
    left, right = (np.flatnonzero(rows.sides == side) for side in (LEFT, RIGHT))
    i, j, _ = metric.within(metric.take(rows.records, left), metric.take(rows.records, right), t)
    span = int(rows.ids.max()) + 1
    wanted = rows.ids[left[i]] * span + rows.ids[right[j]]
    found = pairs.left * span + pairs.right
    once = np.unique(found)
    common = len(np.intersect1d(once, wanted, assume_unique=True))
    return Check(len(wanted), len(wanted) - common, len(once) - common, len(found) - len(once))


def figures_of(
    cost: Cost, pairs: Denominators, faster: int, printed: tuple[float | None, float | None] | None
) -> tuple[Cell, ...]:
    """What is under `FIGURES`, where the published rate is so many times as high."""
    copies, comparisons = printed or (None, None)
    nominal, counted = (cost.ratio(count, faster) for count in (pairs.nominal, pairs.counted))
    off = nominal / comparisons - 1 if comparisons else None
    return cost.duplication, copies, nominal, counted, comparisons, off, cost.to_centroids / faster / pairs.nominal


def parameters(a_side: int, faster: int, workers: Any, **more: Any) -> dict[str, Any]:
    """What both tables depend on."""
    return {
        "records_a_side": a_side,
        "published_records_a_side": a_side * faster,
        "window_s": WINDOW_SECONDS,
        "workers": workers,
        **more,
        "virtual_partitions": 500,
        "dimension": 2,
        "metric": "angular",
    }


def checks_table(what: str, checks: Sequence[tuple[Cell, Check]]) -> Table:
    """The pairs that S3J really finds, beside brute force."""
    rows = [(name, one.pairs, one.missing, one.extra, one.repeated) for name, one in checks]
    return Table("pairs of S3J beside brute force", (what, "pairs", "missing", "extra", "twice"), rows)


def space_of(parts: int, t: float, dimension: int = 2) -> SpacePartitions:
    """The published centroids."""
    return SpacePartitions.random(parts, dimension, metric_of("angular"), t, CENTROID_SEED)


def largest_difference(ours: Sequence[Number], published: Sequence[Number]) -> float:
    """The largest relative difference of figures that belong together.

    >>> largest_difference([1.1, 2.0], [1.0, 2.0])
    0.1...
    """
    return max(abs(a - b) / abs(b) for a, b in zip(ours, published, strict=True))


def beside(axes: charts.Axes, x: Sequence[str], ours: Mapping[str, Sequence[Number]], published: Figures) -> None:
    """A line for each method over named cases, and crosses of the same colour where a figure was published."""
    places = range(len(x))
    for number, (name, values) in enumerate(ours.items()):
        colour = charts.COLOURS[number % len(charts.COLOURS)]
        axes.plot(places, values, marker="o", markersize=4, color=colour, label=name)
        marks = {place: value for place, value in enumerate(published.get(name, ())) if value is not None}
        if marks:
            label = f"{name}, published"
            axes.scatter(list(marks), list(marks.values()), marker="x", s=70, color=colour, label=label, zorder=3)
    axes.set_xticks(places, x)


def columns_of(table: Table, method: int, value: int) -> dict[str, list[Any]]:
    """The values of a column for each method, by the places of both columns: two are called `published`."""
    found: dict[str, list[Any]] = {}
    for row in table.rows:
        found.setdefault(str(row[method]), []).append(row[value])
    return found
