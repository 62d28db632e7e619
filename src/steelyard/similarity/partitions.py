"""Space partitions: the coarse cut of a metric space, one part for each worker.

G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, sections 2.2 and 2.5: every record has a
home, the partition whose centroid is nearest, and is copied to each other partition that could hold a match of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError
from steelyard.similarity.protocol import Bools, Floats, Ints, Metric, Records

#: Rounding errors that a geometric test may add up. Criterion 2.1 adds the most: four distances to centroids and
#: the pair's own, some of them twice, make six; eight leaves room.
ROUNDINGS = 8
#: Distances held at once while records are routed.
ROUTE_CELLS = 1 << 22


@dataclass(frozen=True)
class Radii:
    """The radii of the definitions, moved to the safe side by what rounding may have done to a distance.

    A record that is wrongly left out of an inner set or wrongly copied costs time; one that is wrongly let in, or
    wrongly not copied, costs a pair. So the inner radius shrinks and the outer radius grows.

    Attributes
    ----------
    inner
        Definition 2.8: two records this near to a centroid (t/2) are within t of each other.
    outer
        Definition 2.10: whatever matches a record of a workset is this near to its centroid (2t).
    """

    inner: float
    outer: float

    @classmethod
    def of(cls, metric: Metric, t: float) -> Radii:
        """The radii for a threshold distance."""
        margin = ROUNDINGS * float(metric.margin(2 * t))
        return cls(t / 2 - margin, 2 * t + margin)


def routes(home: Ints, other: Ints) -> Bools:
    """Whether a record of `home` is the one that travels to `other`: ROUTE(h, j) = (h < j) XOR (h + j is odd).

    For two different parts exactly one of the two directions holds, so that a pair meets once; the parity spreads
    the work over low and high numbers.

    Examples
    --------
    >>> routes(np.array([0, 1, 0, 2]), np.array([1, 0, 2, 0]))
    array([False,  True,  True, False])
    """
    return np.asarray((home < other) ^ ((home + other) % 2 == 1))


@dataclass(frozen=True)
class Routed:
    """Copies of a batch's records, in the order of the records.

    Attributes
    ----------
    record
        int64[m]; position of the record in the batch.
    partition
        int64[m]; the space partition that gets this copy.
    home
        int64[m]; the partition whose centroid is nearest to the record.
    distances
        How many distances to centroids were computed.
    """

    record: Ints
    partition: Ints
    home: Ints
    distances: int

    @property
    def outer(self) -> Bools:
        """Which copies are guests, away from home."""
        return np.asarray(self.partition != self.home)

    def of(self, partition: int) -> tuple[Ints, Bools]:
        """The records of one partition: their positions in the batch, and which of them are guests."""
        here = np.flatnonzero(self.partition == partition)
        return self.record[here], self.outer[here]


@dataclass(frozen=True)
class SpacePartitions:
    """A fixed set of centroids; a partition is what is nearest to one of them, and what may match it.

    Parameters
    ----------
    centroids
        Records of `metric`, one for each partition. Every place that routes must hold the same ones.
    metric
        The metric of the join.
    t
        The threshold distance: a pair matches when its distance is at most `t`.
    """

    centroids: Records
    metric: Metric
    t: float

    @classmethod
    def random(
        cls,
        parts: int,
        dimension: int,
        metric: Metric,
        t: float,
        seed: int = 42,
        low: float = -1.0,
        high: float = 1.0,
    ) -> SpacePartitions:
        """Centroids that are uniform in a box: no sample and no history is needed.

        The numbers are those of `java.util.Random`, so that seed 42 gives the centroids of the published runs.
        """
        if parts < 1 or dimension < 1:
            raise OptionError(f"partitions={parts} of dimension={dimension}: both must be at least 1")
        draws = java_doubles(seed, parts * dimension)
        column = pa.FixedSizeListArray.from_arrays(pa.array(low + (high - low) * draws), dimension)
        centroids, bad = metric.records(column)
        if bad.any():
            raise OptionError(
                f"centroids drawn from [{low}, {high}] are no records of metric {metric.name!r}: widen it"
            )
        return cls(centroids, metric, t)

    @classmethod
    def farthest(cls, records: Records, parts: int, metric: Metric, t: float, seed: int = 0) -> SpacePartitions:
        """Centroids taken from `records`: the first at random, each next one farthest from those before it.

        There are fewer than `parts` of them when the records have fewer different values.
        """
        if parts < 1:
            raise OptionError(f"partitions={parts}: must be at least 1")
        if len(records) == 0:
            raise OptionError("farthest-point centroids need at least one record: route with random ones, or wait")
        chosen = [int(np.random.default_rng(seed).integers(len(records)))]
        nearest = np.full(len(records), np.inf)
        while True:
            last = metric.take(records, np.array(chosen[-1:], dtype=np.int64))
            nearest = np.minimum(nearest, metric.pairwise(records, last)[:, 0])
            far = int(np.argmax(nearest))
            if len(chosen) == parts or nearest[far] <= 0:
                return cls(metric.take(records, np.array(chosen, dtype=np.int64)), metric, t)
            chosen.append(far)

    def __len__(self) -> int:
        return len(self.centroids)

    def route(self, records: Records) -> Routed:
        """The copies of a batch: one to the home of each record, and one to every partition of Criterion 2.1.

        Criterion 2.1: a record with home i goes to j when dist(r, c_j) <= dist(r, c_i) + 2t; of the two directions
        between i and j only one is used (`routes`).
        """
        count, parts = len(records), len(self)
        pieces = list(self._chunks(records, count, max(1, ROUTE_CELLS // parts)))
        if not pieces:
            none = np.zeros(0, dtype=np.int64)
            return Routed(none, none, none, 0)
        record, partition, home = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return Routed(record, partition, home, count * parts)

    def _chunks(self, records: Records, count: int, size: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        for start in range(0, count, size):
            chunk = np.arange(start, min(count, start + size), dtype=np.int64)
            distance = self.metric.pairwise(self.metric.take(records, chunk), self.centroids)
            home = np.argmin(distance, axis=1)[:, None]
            nearest = np.take_along_axis(distance, home, axis=1)
            part = np.arange(distance.shape[1])[None, :]
            reach = nearest + 2 * self.t + ROUNDINGS * self.metric.margin(distance)
            row, partition = np.nonzero((part == home) | ((distance <= reach) & routes(home, part) & (part != home)))
            yield chunk[row], partition.astype(np.int64), home[row, 0].astype(np.int64)


def java_doubles(seed: int, count: int) -> Floats:
    """The first `count` numbers of `new java.util.Random(seed).nextDouble()`.

    Examples
    --------
    >>> java_doubles(42, 2)
    array([0.72756368, 0.68322347])
    """
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    state = (seed ^ multiplier) & mask
    numbers = np.empty(count)
    for k in range(count):
        state = (state * multiplier + 0xB) & mask
        high = state >> 22
        state = (state * multiplier + 0xB) & mask
        numbers[k] = ((high << 27) + (state >> 21)) / (1 << 53)
    return numbers
