"""What placing records in worksets gives, and how much of it there may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.errors import SteelyardError
from steelyard.similarity.members import OUTER, OUTLIER, REST_ID, Members, Rows, workset_key
from steelyard.similarity.protocol import Bools, Ints, Metric

#: Copies of a record in worksets beyond which a batch must not need more than ROOM bytes for them.
MOST_COPIES, ROOM = 8, 1 << 27


@dataclass(frozen=True)
class Placed:
    """What one batch adds to the worksets of a partition.

    Attributes
    ----------
    members
        The copies, each with its workset and its role.
    replayed
        How many members are stored records that a new workset adopted.
    distances
        How many distances to centroids the algorithm asks for (section 2.5.3), for the comparisons ratio.
    created
        int64; the worksets (global keys) that came into being.
    """

    members: Members
    replayed: int
    distances: int
    created: Ints

    @classmethod
    def join(cls, metric: Metric, parts: Sequence[Placed]) -> Placed:
        """What some batches add, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            Members.join(metric, [part.members for part in parts]),
            sum(part.replayed for part in parts),
            sum(part.distances for part in parts),
            np.concatenate([part.created for part in parts]),
        )


class CrowdedError(SteelyardError):
    """Worksets that would copy records so often that the copies have no room."""

    def __init__(self, copies: float) -> None:
        super().__init__(f"worksets would copy a record {copies:.0f} times: compare records in blocks of pairs instead")
        self.copies = copies


@dataclass
class Copied:
    """How many members a batch's rows have become so far, and whether there is room for them."""

    bytes: float = 0.0
    room: int | None = None
    rows: int = 0
    members: int = 0

    def count(self, rows: int, members: int) -> None:
        """So many rows more become so many members; CrowdedError where there is no room."""
        self.rows += rows
        self.members += members
        crowded = self.members > MOST_COPIES * self.rows
        if self.room is not None and crowded and self.members * self.bytes > self.room:
            raise CrowdedError(self.members / self.rows)


def all_in_rest(partition: int, rows: Rows, outer: Bools) -> Members:
    """Rows of a partition without worksets: those at home meet all, guests meet those at home, by brute force."""
    roles = np.where(outer, OUTER, OUTLIER).astype(np.int8)
    return Members(np.full(len(rows), workset_key(partition, REST_ID)), roles, rows)
