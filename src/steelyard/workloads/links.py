"""A graph that changes: links and sources that come and go, for the question what can be reached from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within

KINDS = ("new link", "new source", "delete link", "delete source")
NEW_LINK, NEW_SOURCE, DELETE_LINK, DELETE_SOURCE = range(4)
SHARES = (0.60, 0.15, 0.20, 0.05)
FROM_SOURCE, FROM_LINK = 0.1, 0.2
"""Shares of new links that begin at a source, and at the end of another link."""
TRIES = 64
"""Draws of an earlier row before it is taken that there is none of the kind: of sources, 1 in 30,000 is missed."""
MAX_NODES = 1 << 31

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Links(Workload):
    """One change a row: a link or a source is new, or an earlier one is deleted.

    A new link or source has the row's number as its `id`, and a deletion has that of what it deletes, so that it does
    not matter in which order changes come. A source has its node as `start` and `end`. Where a deletion finds nothing
    to delete, the row is a new link or source. (Something may be deleted twice, since a row knows no others.)

    Parameters
    ----------
    nodes
        Number of nodes, 2 to 2^31, numbered from 0.
    seed
        Chooses changes and nodes.

    Examples
    --------
    >>> for row in Links(nodes=4, seed=2).rows(20, 4, np.zeros(4)).to_pylist():
    ...     print(row["change"], row["id"], row["start"], row["end"])
    delete link 19 0 3
    new link 21 1 3
    new link 22 1 2
    new link 23 3 2
    """

    nodes: int = 1_000_000
    seed: int = 0

    name: ClassVar[str] = "links"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("event_time", TIMESTAMP),
            ("change", pa.string()),
            ("id", pa.int64()),
            ("start", pa.int64()),
            ("end", pa.int64()),
        ]
    )

    def __post_init__(self) -> None:
        require_within("nodes", self.nodes, 2, MAX_NODES)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        kind = _drawn_kind(draws)
        of = rows.copy()
        for deletes, made in ((DELETE_LINK, NEW_LINK), (DELETE_SOURCE, NEW_SOURCE)):
            at = np.flatnonzero(kind == deletes)
            earlier, found = self._earlier(rows[at], made, "deleted")
            of[at[found]] = earlier[found]
            kind[at[~found]] = made
        is_link = (kind == NEW_LINK) | (kind == DELETE_LINK)
        start, end = self._links(of)
        node = self._node(of)
        change = pa.array(KINDS).take(pa.array(kind))
        return [times, change, of.astype(np.int64), np.where(is_link, start, node), np.where(is_link, end, node)]

    def _node(self, rows: Bits) -> Ints:
        """int64[rows]: the node of the source that each row makes."""
        return Draws(self.seed, rows).integers("node", self.nodes)

    def _end(self, rows: Bits) -> Ints:
        """int64[rows]: the end of the link that each row makes."""
        return Draws(self.seed, rows).integers("end", self.nodes)

    def _links(self, rows: Bits) -> tuple[Ints, Ints]:
        """(start, end) of the link that each row makes; never equal."""
        draws, end = Draws(self.seed, rows), self._end(rows)
        other = draws.integers("start", self.nodes - 1)
        start = other + (other >= end)
        choice = draws.uniform("from")
        for chosen, made, node in (
            (choice < FROM_SOURCE, NEW_SOURCE, self._node),
            ((choice >= FROM_SOURCE) & (choice < FROM_SOURCE + FROM_LINK), NEW_LINK, self._end),
        ):
            at = np.flatnonzero(chosen)
            earlier, found = self._earlier(rows[at], made, "begins")
            known = node(earlier)
            use = found & (known != end[at])
            start[at[use]] = known[use]
        return start, end

    def _earlier(self, rows: Bits, kind: int, why: str) -> tuple[Bits, Mask]:
        """A row before each of these that was drawn to be of a kind; and where there is one."""
        earlier = np.zeros_like(rows)
        found = np.zeros(len(rows), dtype=np.bool_)
        still = np.flatnonzero(rows > 0)
        for number in range(TRIES):
            if not len(still):
                break
            here = rows[still]
            tried = (Draws(self.seed, here).uniform(f"{why} {number}") * here.astype(np.float64)).astype(np.uint64)
            fits = _drawn_kind(Draws(self.seed, tried)) == kind
            earlier[still[fits]], found[still[fits]] = tried[fits], True
            still = still[~fits]
        return earlier, found


def _drawn_kind(draws: Draws) -> Ints:
    return np.searchsorted(np.cumsum(SHARES)[:-1], draws.uniform("change"), side="right").astype(np.int64)
