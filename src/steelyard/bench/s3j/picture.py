"""The picture of worksets in two dimensions: space partitions, guests, and the members of one workset.

`python -m steelyard.bench.s3j.picture docs/images/worksets.png` draws it; no Spark is needed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench import charts
from steelyard.bench.registry import DEFAULT_SEED
from steelyard.core.counts import Ints
from steelyard.similarity import Formulation, Rows, SpacePartitions, metric
from steelyard.similarity.members import INNER, OUTER, OUTLIER, SELF, split_key
from steelyard.similarity.partitions import Routed

Points = np.ndarray[Any, np.dtype[np.float64]]

RECORDS, PARTS, THRESHOLD = 320, 3, 0.2
SPACE_SEED = 114
SHOWN = 0
"""The space partition whose worksets are shown."""
RASTER = 800
"""Points along each side of the coloured background."""
MARGINS = {"left": 0.02, "right": 0.98, "top": 0.94, "bottom": 0.14, "wspace": 0.04}
TINTS = ("#dbeafe", "#ffedd5", "#dcfce7")
HOMES = (charts.COLOURS[0], charts.COLOURS[1], charts.COLOURS[2])
ROLES = {
    INNER: "inner: within t/2",
    OUTLIER: "outlier: nearest, but farther",
    OUTER: "outer: within 2t, at home elsewhere",
}
ROLE_COLOURS = {INNER: charts.COLOURS[0], OUTLIER: charts.COLOURS[4], OUTER: charts.COLOURS[3]}


@dataclass(frozen=True)
class Scene:
    """Records in the plane with what the policies made of them."""

    points: Points
    """float64[n, 2]."""
    routed: Routed
    """Their copies in space partitions."""
    space: SpacePartitions
    """The partitions."""
    centroids: Points
    """float64[w, 2]; of the worksets of the shown partition."""
    workset: Ints
    role: Ints
    record: Ints
    """int64; the members of its worksets: which workset (from 1), in which role, which record."""

    @property
    def richest(self) -> int:
        """The workset with the most of what it has least: inner members, outliers, outer ones, guests."""
        position, outer = self.routed.of(SHOWN)
        kind = np.where(np.isin(self.record, position[outer]), len(ROLES), self.role)
        counts = np.zeros((len(self.centroids) + 1, len(ROLES) + 1), np.int64)
        np.add.at(counts, (self.workset, kind), 1)
        return int(np.argmax(counts.min(axis=1) * len(self.points) + counts.sum(axis=1)))


def scene(seed: int = DEFAULT_SEED) -> Scene:
    """Uniform records in a square, routed and placed as a join does it.

    >>> made = scene()
    >>> len(made.points), bool((made.role == INNER).any())
    (320, True)
    """
    measure = metric("euclidean")
    drawn = np.random.default_rng(seed).uniform(-1, 1, (RECORDS, 2))
    points, _ = measure.records(pa.FixedSizeListArray.from_arrays(pa.array(drawn.ravel()), 2))
    space = SpacePartitions.random(PARTS, 2, measure, THRESHOLD, SPACE_SEED)
    routed = space.route(points)
    position, outer = routed.of(SHOWN)
    everything = Rows(np.arange(RECORDS), np.full(RECORDS, SELF, np.int8), np.zeros((RECORDS, 2), np.int64), points)
    formulation = Formulation(measure, THRESHOLD, SHOWN)
    members = formulation.add(everything.take(measure, position), outer).members
    _, workset, _ = split_key(members.worksets)
    return Scene(
        points, routed, space, formulation.centroids, workset, members.roles.astype(np.int64), members.rows.ids
    )


def draw(figure: charts.Figure, seed: int = DEFAULT_SEED) -> None:
    """Space partitions on the left, the worksets of one of them on the right."""
    figure.set_size_inches(11, 6.4)
    figure.set_layout_engine("none")  # it leaves no room for legends below square panels
    made = scene(seed)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True, gridspec_kw=MARGINS)
    for axes in (left, right):
        _regions(axes, made.space)
    _partitions(left, made)
    _worksets(right, made)


def _regions(axes: charts.Axes, space: SpacePartitions) -> None:
    """The background: which partition is home to each place."""
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - an extra, and slow to import

    side = np.linspace(-1, 1, RASTER)
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(side, side)])
    home = np.argmin(space.metric.pairwise(grid, space.centroids), axis=1).reshape(RASTER, RASTER)
    extent = (-1.0, 1.0, -1.0, 1.0)
    axes.imshow(
        home, origin="lower", extent=extent, cmap=ListedColormap(TINTS), vmin=0, vmax=PARTS - 1, interpolation="nearest"
    )
    axes.set_xlim(-1, 1)
    axes.set_ylim(-1, 1)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def _partitions(axes: charts.Axes, made: Scene) -> None:
    home = made.routed.home[~made.routed.outer]
    position, outer = made.routed.of(SHOWN)
    for part in range(PARTS):
        own = made.points[home == part]
        axes.scatter(own[:, 0], own[:, 1], s=12, color=HOMES[part], label=f"at home in {part + 1}")
    guests = made.points[position[outer]]
    axes.scatter(
        guests[:, 0],
        guests[:, 1],
        s=52,
        facecolors="none",
        edgecolors=HOMES[SHOWN],
        linewidths=1.2,
        label=f"copied to {SHOWN + 1}, as guests",
    )
    stars = made.space.centroids
    axes.scatter(stars[:, 0], stars[:, 1], s=170, marker="*", color=charts.INK, label="centroids")
    copies = len(made.routed.record) / len(made.points)
    title = f"{PARTS} space partitions: a record has {copies:.2f} copies on average"
    _finish(axes, title, columns=3)


def _worksets(axes: charts.Axes, made: Scene) -> None:
    from matplotlib.patches import Circle  # noqa: PLC0415 - an extra, and slow to import

    shown = made.richest
    for number, centroid in enumerate(made.centroids, start=1):
        ink = charts.INK if number == shown else charts.GREY
        axes.add_patch(
            Circle(centroid, THRESHOLD / 2, fill=False, color=ink, linewidth=1.6 if number == shown else 0.8)
        )
        weight = "bold" if number == shown else "normal"
        above = (centroid[0], centroid[1] + THRESHOLD / 2)
        axes.annotate(str(number), above, ha="center", va="bottom", fontsize=9, color=ink, weight=weight)
    middle = made.centroids[shown - 1]
    axes.add_patch(Circle(middle, 2 * THRESHOLD, fill=False, color=charts.INK, linewidth=1.2, linestyle="--"))
    others = np.setdiff1d(made.record, made.record[made.workset == shown])
    axes.scatter(made.points[others, 0], made.points[others, 1], s=8, color=charts.GREY, alpha=0.5)
    for role, label in ROLES.items():
        of_role = made.record[(made.workset == shown) & (made.role == role)]
        axes.scatter(
            made.points[of_role, 0], made.points[of_role, 1], s=22, color=ROLE_COLOURS[role], label=label, zorder=3
        )
    title = f"The {len(made.centroids)} worksets of partition {SHOWN + 1}, and the members of workset {shown}"
    _finish(axes, title, columns=2)


def _finish(axes: charts.Axes, title: str, *, columns: int) -> None:
    """A plane has no scale that a reader needs; its legend is below it."""
    charts.finish(axes, title=title, x="first coordinate", y="second coordinate")
    axes.grid(visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=columns, frameon=False, fontsize=9)


if __name__ == "__main__":
    charts.save(draw, Path(sys.argv[1]))
