"""Members of many worksets, sorted into blocks, and the search for matches in all of these blocks together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from steelyard.similarity.members import INNER, LEFT, OUTER, RIGHT, SELF, Members, Small, row_bytes
from steelyard.similarity.protocol import Bools, Floats, Ints, Metric, Records

#: Blocks with up to so many pairs are compared together, larger ones by one search each.
SMALL_CELLS = 1 << 14
#: Pairs of small blocks that are compared at once: what is made of them stays in the cache.
FLAT_CELLS = 1 << 18
#: Rows and columns of a large block that are compared at once: whatever matches, so much is found at a time.
TILE_ROWS, TILE_COLUMNS = 1024, 2048


def ranges(start: Ints, count: Ints) -> Ints:
    """`start[k], start[k] + 1, ...`, `count[k]` of them, for each k.

    Examples
    --------
    >>> ranges(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.repeat(start - ends + count, count) + np.arange(total, dtype=np.int64))


@dataclass(frozen=True)
class Run:
    """Members sorted by workset, windows, side and role; a block is a stretch in which all of these are equal.

    Attributes
    ----------
    members
        The sorted members.
    sizes
        int64[n]; bytes of each.
    starts, ends
        int64[blocks]; where each block begins and ends.
    """

    members: Members
    sizes: Ints
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, metric: Metric, members: Members) -> Run:
        """A run of at least one member."""
        rows = members.rows
        order = np.lexsort((members.roles, rows.sides, rows.windows[:, 1], rows.windows[:, 0], members.worksets))
        in_order = bool((order[1:] > order[:-1]).all())
        return cls._sorted(metric, members if in_order else members.take(metric, order))

    @classmethod
    def _sorted(cls, metric: Metric, members: Members) -> Run:
        rows = members.rows
        columns = (members.worksets, rows.windows[:, 0], rows.windows[:, 1], rows.sides, members.roles)
        cuts = np.flatnonzero(np.logical_or.reduce([column[1:] != column[:-1] for column in columns])) + 1
        starts, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(members)]])
        return cls(members, row_bytes(metric, rows), starts, ends)

    def __len__(self) -> int:
        return len(self.members)

    @property
    def lengths(self) -> Ints:
        """int64[blocks]; members of each block."""
        return self.ends - self.starts

    def of_blocks(self, column: Ints | Small) -> Ints:
        """A column's value for each block."""
        return column[self.starts].astype(np.int64)

    def only(self, metric: Metric, which: Bools) -> Run | None:
        """The run without some of its members; None if none is left."""
        if which.all():
            return self
        index = np.flatnonzero(which)
        return Run._sorted(metric, self.members.take(metric, index)) if len(index) else None


@dataclass(frozen=True)
class Meetings:
    """Blocks of two runs whose members meet, as arrays of equal length.

    Attributes
    ----------
    x, y
        int64; blocks of the one run and of the other.
    worksets
        int64; where they meet.
    first, last
        int64; the windows that hold both.
    twin
        bool; a block that meets itself.
    free
        bool; both are inner: every pair is a match.
    cells
        int64; how many pairs there are.
    """

    x: Ints
    y: Ints
    worksets: Ints
    first: Ints
    last: Ints
    twin: Bools
    free: Bools
    cells: Ints

    @classmethod
    def of(cls, a: Run, b: Run, closed: int) -> Meetings:
        """Blocks in the same workset whose sides, roles and windows (after `closed`) let them meet; a may be b."""
        mine, theirs = a.members, b.members
        key, other = a.of_blocks(mine.worksets), b.of_blocks(theirs.worksets)
        low = np.searchsorted(other, key, side="left")
        count = np.searchsorted(other, key, side="right") - low
        x, y = np.repeat(np.arange(len(key)), count), ranges(low, count)
        side, other_side = a.of_blocks(mine.rows.sides)[x], b.of_blocks(theirs.rows.sides)[y]
        role, other_role = a.of_blocks(mine.roles)[x], b.of_blocks(theirs.roles)[y]
        first = np.maximum(a.of_blocks(mine.rows.windows[:, 0])[x], b.of_blocks(theirs.rows.windows[:, 0])[y])
        last = np.minimum(a.of_blocks(mine.rows.windows[:, 1])[x], b.of_blocks(theirs.rows.windows[:, 1])[y])
        first = np.maximum(first, closed + 1)
        meet = np.where(side == SELF, other_side == SELF, side + other_side == LEFT + RIGHT)
        meet &= (first <= last) & ((role != OUTER) | (other_role != OUTER))
        if a is b:
            meet &= x <= y
        free = ((role == INNER) & (other_role == INNER))[meet]
        x, y = x[meet], y[meet]
        twin = np.full(len(x), a is b) & (x == y)
        cells = np.where(twin, a.lengths[x] * (a.lengths[x] - 1) // 2, a.lengths[x] * b.lengths[y])
        return cls(x, y, key[x], first[meet], last[meet], twin, free, cells)

    @property
    def spans(self) -> Ints:
        """int64; in how many windows a pair is found."""
        return self.last - self.first + 1

    @property
    def free_pairs(self) -> int:
        """How many rows of output the free pairs make."""
        return int((self.cells * self.free * self.spans).sum())


@dataclass(frozen=True)
class Matches:
    """Members of two runs that match, as arrays of equal length.

    Attributes
    ----------
    i, j
        int64; positions in the one run and in the other.
    distance
        float64; NaN where it was not asked for.
    group
        int64; the meeting that found them.
    free
        bool; whether no comparison was needed.
    """

    i: Ints
    j: Ints
    distance: Floats
    group: Ints
    free: Bools

    def pieces(self, rows: Ints) -> Iterator[Matches]:
        """The same, cut where they make more than FLAT_CELLS rows of output, each so many."""
        if not len(rows):
            return
        cuts = np.flatnonzero(np.diff(np.cumsum(rows) // FLAT_CELLS)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
            some = slice(start, end)
            yield Matches(self.i[some], self.j[some], self.distance[some], self.group[some], self.free[some])


def search(metric: Metric, t: float, a: Run, b: Run, meetings: Meetings, *, distances: bool) -> Iterator[Matches]:
    """Every match of every meeting, a bounded number at a time. `distances` asks for those of free pairs as well."""
    mine, theirs = a.members.rows.records, b.members.rows.records
    for groups in _portions(np.flatnonzero(meetings.free), meetings.cells):
        for group, i, j in _every_pair(a, b, meetings, groups):
            distance = np.full(len(i), np.nan)
            if distances:
                low, other_low = int(i.min()), int(j.min())
                left = _stretch(metric, mine, low, int(i.max()) + 1)
                right = _stretch(metric, theirs, other_low, int(j.max()) + 1)
                distance = metric.rows(left, i - low, right, j - other_low)
            yield Matches(i, j, distance, group, np.ones(len(i), dtype=bool))
    small = ~meetings.free & (meetings.cells <= SMALL_CELLS)
    for some in (small & ~meetings.twin, small & meetings.twin):
        for groups in _portions(np.flatnonzero(some), meetings.cells):
            yield _search_groups(metric, t, a, b, meetings, groups)
    for large in np.flatnonzero(~meetings.free & ~small):
        yield from _search_large(metric, t, a, b, meetings, int(large))


def _portions(groups: Ints, cells: Ints) -> Iterator[Ints]:
    """Cut meetings into portions of not many more than FLAT_CELLS pairs."""
    groups = groups[cells[groups] > 0]
    if len(groups):
        portion = np.cumsum(cells[groups]) // FLAT_CELLS
        yield from np.split(groups, np.flatnonzero(np.diff(portion)) + 1)


def _every_pair(a: Run, b: Run, meetings: Meetings, groups: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Meeting and both positions of every pair of some meetings; of a block with itself, each pair once.

    About FLAT_CELLS of them at a time, or those of one row, however large a meeting is.
    """
    x, y = meetings.x[groups], meetings.y[groups]
    group, row = np.repeat(np.arange(len(groups)), a.lengths[x]), ranges(a.starts[x], a.lengths[x])
    low = np.where(meetings.twin[groups][group], row + 1, b.starts[y][group])
    count = b.ends[y][group] - low
    cuts = np.flatnonzero(np.diff(np.cumsum(count) // FLAT_CELLS)) + 1
    for some in np.split(np.arange(len(row)), cuts):
        pairs = count[some]
        if pairs.any():
            yield np.repeat(groups[group[some]], pairs), np.repeat(row[some], pairs), ranges(low[some], pairs)


def _search_groups(metric: Metric, t: float, a: Run, b: Run, meetings: Meetings, groups: Ints) -> Matches:
    """Small meetings in one search: the blocks are laid side by side, and each is compared with its partner."""
    x, y = meetings.x[groups], meetings.y[groups]
    mine, theirs = ranges(a.starts[x], a.lengths[x]), ranges(b.starts[y], b.lengths[y])
    starts, others = (np.concatenate([[0], np.cumsum(n)]) for n in (a.lengths[x], b.lengths[y]))
    left, right = metric.take(a.members.rows.records, mine), metric.take(b.members.rows.records, theirs)
    i, j, distance = metric.within_groups(left, starts, right, others, t)
    group = np.repeat(groups, a.lengths[x])
    if meetings.twin[groups].any():
        once = ~meetings.twin[group[i]] | (mine[i] < theirs[j])
        i, j, distance = i[once], j[once], distance[once]
    return Matches(mine[i], theirs[j], distance, group[i], np.zeros(len(i), dtype=bool))


def _search_large(metric: Metric, t: float, a: Run, b: Run, meetings: Meetings, group: int) -> Iterator[Matches]:
    x, y = meetings.x[group], meetings.y[group]
    start, end, other_start, other_end = (int(at) for at in (a.starts[x], a.ends[x], b.starts[y], b.ends[y]))
    twin = bool(meetings.twin[group])
    for low in range(start, end, TILE_ROWS):
        left = _stretch(metric, a.members.rows.records, low, min(end, low + TILE_ROWS))
        for other_low in range(low if twin else other_start, other_end, TILE_COLUMNS):
            right = _stretch(metric, b.members.rows.records, other_low, min(other_end, other_low + TILE_COLUMNS))
            i, j, distance = metric.within(left, right, t)
            i, j = i + low, j + other_low
            if twin and other_low < low + TILE_ROWS:
                once = i < j
                i, j, distance = i[once], j[once], distance[once]
            yield Matches(i, j, distance, np.full(len(i), group), np.zeros(len(i), dtype=bool))


def _stretch(metric: Metric, records: Records, low: int, high: int) -> Records:
    if isinstance(records, np.ndarray):
        return records[low:high]  # no copy
    return metric.take(records, np.arange(low, high))
