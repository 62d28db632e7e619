"""Splitting: a workset that is too heavy for any one worker is cut into pieces, each of which can move.

The future work of G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, section 2.12.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from steelyard.core.control import ActionRefusedError
from steelyard.similarity.blocks import ranges
from steelyard.similarity.members import ID_BITS, LEFT, PIECE_BITS, RIGHT, SELF, Members, split_key
from steelyard.similarity.protocol import Ints, Metric

#: Pieces are numbered from 1, k * k of them at most.
MOST_PARTS = int((2**PIECE_BITS - 1) ** 0.5)


class Splits:
    """Which worksets are cut, and which pieces a member of one goes to.

    The members of a workset are dealt into k parts by their ids. Of two streams, piece (p, q) gets part p of the
    left and part q of the right one: k * k pieces. Of one stream, piece (p, p) is part p with itself, and piece
    (p, q) is part p against part q, p < q: k * (k + 1) / 2 pieces. Either way a member goes to k pieces, and two
    members meet in exactly one of them, in which they have the roles that they had: no pair is lost, none is found
    twice.

    A workset may be cut in mid-window: take it out of its worker, `cut` it, `apply` the cut to what was taken out,
    and put the pieces in where they shall be. It stays cut, with the same number of parts.

    Parameters
    ----------
    self_join
        Whether the join is of one stream with itself.

    Examples
    --------
    >>> splits = Splits(self_join=True)
    >>> splits.cut(7, parts=3)
    >>> splits
    Splits(self_join=True, parts={7: 3})
    """

    def __init__(self, *, self_join: bool) -> None:
        self.self_join = self_join
        self._parts: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"Splits(self_join={self.self_join}, parts={self._parts})"

    def __contains__(self, workset: int) -> bool:
        return workset in self._parts

    def cut(self, workset: int, parts: int) -> None:
        """Cut a workset, given by its global key, into the pieces that `parts` parts make."""
        if not 2 <= parts <= MOST_PARTS:
            raise ActionRefusedError(f"parts={parts}: a workset is cut into 2 to {MOST_PARTS} parts")
        if workset in self._parts or int(split_key(np.array(workset))[2]):
            raise ActionRefusedError(f"workset {workset} is cut already: choose how many parts when it is cut first")
        self._parts[workset] = parts

    def apply(self, metric: Metric, members: Members) -> Members:
        """Members of worksets that are cut, as members of their pieces; all others as they are."""
        if not self._parts:
            return members
        cut = np.array(sorted(self._parts), dtype=np.int64)
        parts = np.array([self._parts[int(key)] for key in cut], dtype=np.int64)
        place = np.minimum(np.searchsorted(cut, members.worksets), len(cut) - 1)
        inside = cut[place] == members.worksets
        copies = np.where(inside, parts[place], 1)
        row = np.repeat(np.arange(len(members)), copies)
        other = ranges(np.zeros(len(members), dtype=np.int64), copies)
        spread = members.take(metric, row)
        k = copies[row]
        own = part_of(spread.rows.ids, k)
        sides = spread.rows.sides.copy()
        if self.self_join:
            low, high = np.minimum(own, other), np.maximum(own, other)
            dealt = np.where(low == high, SELF, np.where(own == low, LEFT, RIGHT)).astype(np.int8)
            sides = np.where(inside[row], dealt, sides)  # a piece's own members keep theirs
        else:
            low, high = np.where(sides == LEFT, own, other), np.where(sides == LEFT, other, own)
        piece = np.where(inside[row], 1 + low * k + high, 0)
        rows = dataclasses.replace(spread.rows, sides=sides)
        return Members(spread.worksets | (piece << ID_BITS), spread.roles, rows)

    def state(self) -> dict[str, pa.Table]:
        """Everything that `restore` needs, as Arrow tables."""
        keys, parts = list(self._parts), list(self._parts.values())
        return {"parts": pa.table({"workset": pa.array(keys, pa.int64()), "parts": pa.array(parts, pa.int64())})}

    def restore(self, state: Mapping[str, pa.Table]) -> None:
        """Become what the splits were that made `state`."""
        workset, parts = (column.to_pylist() for column in state["parts"].columns)
        self._parts = dict(zip(workset, parts, strict=True))


def part_of(ids: Ints, parts: Ints) -> Ints:
    """Which of `parts` parts an id is dealt to: the same one wherever it is asked.

    Neighbouring ids come together in many streams, so that ids are mixed first.
    """
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((mixed >> np.uint64(33)).astype(np.int64) % parts)
