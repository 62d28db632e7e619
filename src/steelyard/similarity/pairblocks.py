"""Blocks of pairs: the plan of a join whose records are all near to each other, so that no cut of the space helps.

The pairs of all records are a matrix. Records are dealt into k parts, and a block of the matrix, a part against a part,
is a piece of one large workset (`Splits`): each pair meets in one piece, and each record is in k of them. For w workers
k is about the root of 2w, while a cut of the space that has everything near everything copies a record w / 2 times.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from steelyard.similarity.members import OUTLIER, REST_ID, SELF, Members, Rows, workset_key
from steelyard.similarity.partitions import SpacePartitions
from steelyard.similarity.placed import MOST_COPIES
from steelyard.similarity.protocol import Metric, Records
from steelyard.similarity.worksets import Formulation

EVERYTHING = int(workset_key(1 << 14, REST_ID))
"""The workset of all records, of a space partition that no other plan has."""
TRIED = 500
"""Records of a sample that worksets are tried on."""
FEW = 4
"""A workset with fewer records at home than this saves no work: finding it costs as much as it saves."""
FEW_PARTS = 4
"""Copies of a record that a cut of the space may make in any case."""
UNEVEN = 1.25
"""How much more than its share a worker may get."""


@dataclass(frozen=True)
class PairBlocks:
    """Which piece of the matrix is whose.

    Parameters
    ----------
    workers
        How many there are.
    self_join
        Whether a stream is joined with itself: half of the matrix is enough then.

    Examples
    --------
    >>> [PairBlocks(workers, self_join=True).parts for workers in (1, 2, 8, 32)]
    [1, 2, 4, 8]
    """

    workers: int
    self_join: bool

    @property
    def parts(self) -> int:
        """How many parts records are dealt into, and how many copies of a record there are."""
        parts = 1
        while self.workers > 1:
            parts += 1
            loads = self._deal(parts)[1]
            if max(loads) * self.workers <= UNEVEN * sum(loads):
                break
        return parts

    @property
    def splits(self) -> dict[int, int]:
        """The one workset, and into how many parts it is cut."""
        return {EVERYTHING: self.parts} if self.parts > 1 else {}

    @property
    def assignment(self) -> dict[int, int]:
        """The worker of each piece, and of the whole: that it is there says that this is the plan."""
        return {EVERYTHING: 0} | self._deal(self.parts)[0]

    def _deal(self, parts: int) -> tuple[dict[int, int], list[float]]:
        """Pieces to workers, larger ones first, each to whoever has least."""
        pieces = [(p, q) for p in range(parts) for q in range(p if self.self_join else 0, parts)]
        sizes = {(p, q): 0.5 if self.self_join and p == q else 1.0 for p, q in pieces}
        heap = [(0.0, worker) for worker in range(self.workers)]
        dealt, loads = {}, [0.0] * self.workers
        for p, q in sorted(pieces, key=lambda piece: -sizes[piece]):
            load, worker = heapq.heappop(heap)
            loads[worker] = load + sizes[p, q]
            heapq.heappush(heap, (loads[worker], worker))
            dealt[EVERYTHING | int(workset_key(0, 0, 1 + p * parts + q))] = worker
        return dealt, loads


def everything(rows: Rows) -> Members:
    """All records as members of the one workset, to be compared each with each."""
    return Members(np.full(len(rows), EVERYTHING), np.full(len(rows), OUTLIER, dtype=np.int8), rows)


def copies_by_worksets(metric: Metric, t: float, records: Records) -> float:
    """How many copies of a record worksets make among some records; 0 where they are few, or well spent.

    They are in vain where hardly two records have one home: every record is then compared with nearly as many centroids
    as there are records, and copied to all that are near.
    """
    count = min(len(records), TRIED)
    sample = metric.take(records, np.arange(count))
    ids = np.arange(count)
    rows = Rows(ids, np.full(count, SELF, dtype=np.int8), np.zeros((count, 2), dtype=np.int64), sample)
    formulation = Formulation(metric, t, 0)
    copies = len(formulation.add(rows, np.zeros(count, dtype=bool)).members) / max(1, count)
    return copies if copies > MOST_COPIES and len(formulation.worksets) * FEW > count else 0.0


def copies_by_space(space: SpacePartitions, records: Records, blocks: PairBlocks) -> float:
    """How many copies of a record a cut of the space makes among some records; 0 where blocks make more."""
    copies = len(space.route(records).record) / max(1, len(records))
    return copies if copies > max(FEW_PARTS, blocks.parts) else 0.0
