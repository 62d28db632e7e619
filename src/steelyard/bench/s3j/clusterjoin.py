"""ClusterJoin on streams: many fixed cells, each compared in full. The rival of worksets, with the same kernels.

A. Das Sarma, Y. He, S. Chaudhuri, *ClusterJoin: a similarity joins framework using map-reduce*, PVLDB 2014, as adapted
to streams by G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, section 2.8: 500 virtual
partitions with random centroids, no worksets, no free pairs, no balancing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.similarity.members import LEFT, OUTER, OUTLIER, RIGHT, SELF, Members, Rows
from steelyard.similarity.partitions import Routed, SpacePartitions
from steelyard.similarity.protocol import Bools, Ints, Metric
from steelyard.similarity.window_join import Pairs, WindowJoin

#: Virtual partitions of the published runs.
VIRTUAL = 500
#: Key groups of the engine under the published runs: what cells collapse to.
KEY_GROUPS = 128
#: How cells become keys of the join's state.
TRUE, COLLAPSED = "true", "collapsed"


@dataclass(frozen=True)
class ClusterCost:
    """What one window costs, counted from the sizes of its cells.

    Attributes
    ----------
    copies
        Records that are sent, each once for every cell that it goes to.
    distances
        Distances to centroids.
    comparisons
        int64[keys]; distances between records under each key.
    """

    copies: int
    distances: int
    comparisons: Ints


class ClusterJoin:
    """A join in which records meet in the cell of one of them, and are all compared there.

    A record is at home in the cell of its nearest centroid, and a guest in every other cell of Criterion 2.1, by the
    same routing rule as space partitions have. Under a key those at home are compared with each other and with the
    guests, and guests never with guests.

    Parameters
    ----------
    space
        The cells: `SpacePartitions` with many centroids.
    keys
        `"true"`: each cell is a key, and the join is exact. `"collapsed"`: cell g of V has the key
        ceil(128 g / V), as in the published runs; from V = 129 on cells share keys, records of unrelated cells are
        compared, and a pair may be found more than once. It is never lost.
    self_join, max_bytes
        As in `WindowJoin`.

    Examples
    --------
    >>> from steelyard.similarity.metrics import metric
    >>> join = ClusterJoin(SpacePartitions.random(500, 2, metric("angular"), 0.001), keys="collapsed")
    >>> join.keys_of(np.array([0, 1, 3, 4, 499])).tolist(), join.key_count
    ([0, 1, 1, 2, 128], 129)
    """

    def __init__(
        self,
        space: SpacePartitions,
        *,
        keys: str = TRUE,
        self_join: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        if keys not in (TRUE, COLLAPSED):
            raise OptionError.unknown("keys", keys, (TRUE, COLLAPSED))
        self.space = space
        self.keys = keys
        self.self_join = self_join
        self.centroid_distances = 0
        self.copies = 0
        self._join = WindowJoin(space.metric, space.t, self_join=self_join, max_bytes=max_bytes)

    def __repr__(self) -> str:
        return f"ClusterJoin(cells={len(self.space)}, keys={self.keys!r}, t={self.space.t}, copies={self.copies})"

    @classmethod
    def random(
        cls,
        dimension: int,
        metric: Metric,
        t: float,
        *,
        cells: int = VIRTUAL,
        keys: str = TRUE,
        self_join: bool = False,
        seed: int = 42,
    ) -> ClusterJoin:
        """With centroids drawn as those of S3J are; seed 42 gives the published ones."""
        return cls(SpacePartitions.random(cells, dimension, metric, t, seed), keys=keys, self_join=self_join)

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return len(np.unique(self.keys_of(np.arange(len(self.space)))))

    @property
    def comparisons(self) -> int:
        """Distances between records so far."""
        return int(self._join.loads().comparisons.sum())

    def keys_of(self, cells: Ints) -> Ints:
        """int64[n]; the key of each cell."""
        if self.keys == TRUE:
            return cells
        # Whole numbers: the ceiling of a quotient of floats can be one too high.
        return np.asarray(-(-cells * KEY_GROUPS // len(self.space)))

    def place(self, rows: Rows) -> Members:
        """Every copy of a batch under its key. Nobody is INNER: that role would match without a comparison."""
        return self._members(rows, self.space.route(rows.records))

    def add(self, rows: Rows, *, find: bool = True) -> Pairs:
        """Store a batch and return the pairs that it makes, with stored records and with each other.

        Without `find` comparisons are counted and not done.
        """
        routed = self.space.route(rows.records)
        self.centroid_distances += routed.distances
        self.copies += len(routed.record)
        pairs = self._join.add(self._members(rows, routed), find=find)
        return _without_selves(pairs) if self.self_join and self.keys == COLLAPSED else pairs

    def close(self, window: int) -> None:
        """End every window up to `window`."""
        self._join.close(window)

    def cost(self, rows: Rows, routed: Routed | None = None) -> ClusterCost:
        """What one window with these rows costs. Copies are not made, so that any number of them can be counted.

        Parameters
        ----------
        rows
            The whole window.
        routed
            What `space.route` gave for them, where it is known.
        """
        routed = routed or self.space.route(rows.records)
        keys, sides = self.keys_of(routed.partition), rows.sides[routed.record]
        size = int(self.keys_of(np.array([len(self.space) - 1]))[0]) + 1

        def count(which: Bools) -> Ints:
            return np.bincount(keys[which], minlength=size).astype(np.int64)

        home, guest = ~routed.outer, routed.outer
        if self.self_join:
            mine = count(home & (sides == SELF))
            comparisons = mine * (mine - 1) // 2 + mine * count(guest & (sides == SELF))
        else:
            left, right = sides == LEFT, sides == RIGHT
            left_home, right_home = count(home & left), count(home & right)
            comparisons = left_home * (right_home + count(guest & right)) + right_home * count(guest & left)
        return ClusterCost(len(routed.record), routed.distances, comparisons)

    def _members(self, rows: Rows, routed: Routed) -> Members:
        roles = np.where(routed.outer, OUTER, OUTLIER).astype(np.int8)
        return Members(self.keys_of(routed.partition), roles, rows.take(self.space.metric, routed.record))


def _without_selves(pairs: Pairs) -> Pairs:
    """Under a shared key a record can be at home and a guest, and so meet itself."""
    other = pairs.left != pairs.right
    return Pairs(
        pairs.left[other],
        pairs.right[other],
        pairs.distance[other],
        pairs.window[other],
        pairs.worksets[other],
        pairs.free[other],
    )
