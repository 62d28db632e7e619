"""The join of one worker: the members of its worksets, by window, and the pairs that new ones make with them.

G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, section 2.5.4. Deviation: a record that is
in several sliding windows is stored and compared once, and its pairs are reported for each window that holds both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError, SteelyardError
from steelyard.similarity.blocks import Matches, Meetings, Run, ranges, search
from steelyard.similarity.members import RIGHT, Members
from steelyard.similarity.protocol import Bools, Floats, Ints, Metric
from steelyard.similarity.worksets import NEVER

#: Bytes of a pair that is found: two ids, distance, window, workset, whether it was free.
PAIR_BYTES = 41


@dataclass(frozen=True)
class Windows:
    """Time windows, numbered: window w is [w * slide, w * slide + length).

    Parameters
    ----------
    length, slide
        In the unit of the times. Without `slide` windows do not overlap.

    Examples
    --------
    >>> Windows(10).of(np.array([0, 9, 10])).tolist()
    [[0, 0], [0, 0], [1, 1]]
    >>> Windows(10, slide=5).of(np.array([4, 5])).tolist()
    [[-1, 0], [0, 1]]
    """

    length: int
    slide: int = 0

    def __post_init__(self) -> None:
        if self.length < 1 or not 0 <= self.slide <= self.length:
            raise OptionError(f"window={self.length} with slide={self.slide}: need 0 < slide <= window")

    @property
    def step(self) -> int:
        """Time from one window's start to the next one's."""
        return self.slide or self.length

    def of(self, times: Ints) -> Ints:
        """int64[n, 2]; the first and the last window that holds each time."""
        return np.column_stack([(times - self.length) // self.step + 1, times // self.step]).astype(np.int64)

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """Start (inclusive) and end (exclusive) of windows."""
        start = windows * self.step
        return start, start + self.length


@dataclass(frozen=True)
class Pairs:
    """Pairs that were found: one row for each pair and window that holds both.

    Attributes
    ----------
    left, right
        int64[n]; ids. In a self-join the smaller one is on the left.
    distance
        float64[n]; NaN where a pair was free and distances of such pairs are not wanted.
    window
        int64[n].
    worksets
        int64[n]; the global key of the workset that found the pair.
    free
        bool[n]; both are inner members of it: a match that nobody had to compare.
    left_carried, right_carried
        The carried columns of both sides, or None.
    """

    left: Ints
    right: Ints
    distance: Floats
    window: Ints
    worksets: Ints
    free: Bools
    left_carried: pa.Table | None = None
    right_carried: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.left)

    @classmethod
    def none(cls) -> Pairs:
        """No pairs."""
        ints = np.zeros(0, dtype=np.int64)
        return cls(ints, ints, np.zeros(0), ints, ints, np.zeros(0, dtype=bool))

    @classmethod
    def join(cls, parts: list[Pairs]) -> Pairs:
        """All of `parts`."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls.none()
        names = ("left", "right", "distance", "window", "worksets", "free")
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
        lefts = [part.left_carried for part in parts if part.left_carried is not None]
        rights = [part.right_carried for part in parts if part.right_carried is not None]
        return cls(*columns, *(pa.concat_tables(tables) if tables else None for tables in (lefts, rights)))


@dataclass(frozen=True)
class Loads:
    """What each workset of a worker cost and holds, as arrays of equal length.

    Attributes
    ----------
    worksets
        int64; global keys, ascending.
    comparisons, free
        int64; distances between records, and pairs that needed none, since the counters were last reset.
    records, bytes
        int64; members that are stored now.
    """

    worksets: Ints
    comparisons: Ints
    free: Ints
    records: Ints
    bytes: Ints


class WindowJoin:
    """The members of one worker's worksets, and the pairs that new members make.

    Two members of a workset meet when they are of opposite sides (or both of a self-join) and a window that is
    still open holds both. Inner ones match without a comparison; outer ones meet elsewhere; all others are compared.

    Parameters
    ----------
    metric
        The metric of the join.
    t
        The threshold distance: a pair matches when its distance is at most `t`.
    self_join
        Show the smaller id of a pair on the left; else the record of side LEFT.
    distances
        Compute the distances of free pairs too, for the output. They do not count as comparisons.
    max_bytes
        Bound on what is stored and what one batch finds, in bytes; beyond it `add` and `put_in` raise and change
        nothing.
    """

    def __init__(
        self,
        metric: Metric,
        t: float,
        *,
        self_join: bool = False,
        distances: bool = True,
        max_bytes: int | None = None,
    ) -> None:
        self.metric = metric
        self.t = t
        self.self_join = self_join
        self.distances = distances
        self.max_bytes = max_bytes
        self.closed = NEVER
        self.late = 0
        self._runs: list[Run] = []
        self._counted: tuple[Ints, Ints, Ints] = _no_counts()

    def __repr__(self) -> str:
        return f"WindowJoin(t={self.t}, members={self.records}, bytes={self.bytes}, closed={self.closed})"

    @property
    def records(self) -> int:
        """Members that are stored; a record counts once for each workset that it is a member of."""
        return sum(len(run) for run in self._runs)

    @property
    def bytes(self) -> int:
        """Bytes of the stored members."""
        return int(sum(run.sizes.sum() for run in self._runs))

    def add(self, members: Members, *, find: bool = True) -> Pairs:
        """Store new members and return every pair that they make, with stored ones and with each other.

        Members of closed windows only are left out and counted in `late`. Without `find` comparisons are counted
        but not done: loads at a scale at which the pairs themselves would not fit.
        """
        return Pairs.join(list(self.portions(members, find=find)))

    def portions(self, members: Members, *, find: bool = True) -> Iterator[Pairs]:
        """What `add` returns, a portion at a time: pairs can go on while others are looked for.

        Members are stored, and comparisons counted, when the last portion was taken.
        """
        in_time = members.rows.windows[:, 1] > self.closed
        if not in_time.all():
            self.late += int((~in_time).sum())
            members = members.take(self.metric, np.flatnonzero(in_time))
        if not len(members):
            return
        new = Run.of(self.metric, members)
        stored = self.bytes + int(new.sizes.sum())
        self._bound(stored, 0)
        found = 0
        counted = [self._counted]
        for run in (new, *self._runs):
            meetings = Meetings.of(new, run, self.closed)
            if find:
                self._bound(stored, found + meetings.free_pairs)
                for matches in search(self.metric, self.t, new, run, meetings, distances=self.distances):
                    for some in matches.pieces(meetings.spans[matches.group]):
                        pairs = self._pairs(new, run, meetings, some)
                        found += len(pairs)
                        self._bound(stored, found)
                        yield pairs
            counted.append((meetings.worksets, meetings.cells * ~meetings.free, meetings.cells * meetings.free))
        self._store(new)
        self._counted = _sum_counts(counted)

    def loads(self, *, reset: bool = False) -> Loads:
        """What each workset cost since the last reset, and holds now."""
        worksets, comparisons, free = self._counted
        kept = [(run.members.worksets, np.ones(len(run), dtype=np.int64), run.sizes) for run in self._runs]
        holds, records, sizes = _sum_counts([_no_counts(), *kept])
        every = np.union1d(worksets, holds)
        columns = np.zeros((4, len(every)), dtype=np.int64)
        columns[:2, np.searchsorted(every, worksets)] = comparisons, free
        columns[2:, np.searchsorted(every, holds)] = records, sizes
        if reset:
            self._counted = _no_counts()
        return Loads(every, *columns)

    def take_out(self, worksets: Ints) -> Members | None:
        """Remove the members of some worksets and return them, for `put_in` elsewhere; None if there are none."""
        taken = []
        for run in self._runs:
            index = np.flatnonzero(np.isin(run.members.worksets, worksets))
            if len(index):
                taken.append(run.members.take(self.metric, index))
        self._keep_only(lambda run: ~np.isin(run.members.worksets, worksets))
        return Members.join(self.metric, taken) if taken else None

    def put_in(self, members: Members) -> None:
        """Store members whose pairs with each other were found before: the other half of a move."""
        run = Run.of(self.metric, members) if len(members) else None
        run = run and run.only(self.metric, run.members.rows.windows[:, 1] > self.closed)
        if run:
            self._bound(self.bytes + int(run.sizes.sum()), 0)
            self._store(run)

    def close(self, window: int) -> None:
        """End every window up to `window`: what is in no open window is dropped."""
        self.closed = max(self.closed, window)
        self._keep_only(lambda run: run.members.rows.windows[:, 1] > self.closed)

    def state(self) -> dict[str, pa.Table]:
        """Everything that `restore` needs, as Arrow tables."""
        names = ("workset", "comparisons", "free")
        state = {
            "counted": pa.table(dict(zip(names, map(pa.array, self._counted), strict=True))),
            "counters": pa.table({"closed": [self.closed], "late": [self.late]}),
        }
        if self._runs:
            members = Members.join(self.metric, [run.members for run in self._runs])
            state["members"] = members.to_table(self.metric)
        return state

    def restore(self, state: Mapping[str, pa.Table]) -> None:
        """Become what the join was that made `state`."""
        workset, comparisons, free = (column.to_numpy() for column in state["counted"].columns)
        self._counted = (workset, comparisons, free)
        self.closed, self.late = (column[0].as_py() for column in state["counters"].columns)
        members = state.get("members")
        self._runs = [] if members is None else [Run.of(self.metric, Members.from_table(self.metric, members))]

    def _bound(self, stored: int, pairs: int) -> None:
        if self.max_bytes is not None and stored + pairs * PAIR_BYTES > self.max_bytes:
            raise SteelyardError(
                f"a worker's windows need {stored} bytes, and {pairs} pairs of this batch {pairs * PAIR_BYTES} more: "
                f"beyond max_bytes={self.max_bytes}. Raise max_bytes, use more workers, smaller batches or a shorter "
                f"window, or a smaller threshold than {self.t}"
            )

    def _store(self, run: Run) -> None:
        """Add a run, and merge runs of like size: a member is copied a logarithmic number of times."""
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            both = Members.join(self.metric, [part.members for part in self._runs[-2:]])
            self._runs[-2:] = [Run.of(self.metric, both)]

    def _keep_only(self, which: Callable[[Run], Bools]) -> None:
        kept = (run.only(self.metric, which(run)) for run in self._runs)
        self._runs = [run for run in kept if run]

    def _pairs(self, a: Run, b: Run, meetings: Meetings, matches: Matches) -> Pairs:
        """Matches as rows of output: turned the right way round, and once for each window that holds both."""
        mine, theirs = a.members.rows, b.members.rows
        i, j, group = matches.i, matches.j, matches.group
        distance, free = matches.distance, matches.free
        window = meetings.first[group]
        spans = meetings.spans[group]
        if len(spans) and spans.max() > 1:
            i, j, group = np.repeat(i, spans), np.repeat(j, spans), np.repeat(group, spans)
            distance, free = np.repeat(distance, spans), np.repeat(free, spans)
            window = ranges(window, spans)
        left, right = mine.ids[i], theirs.ids[j]
        if self.self_join and mine.carried is None:  # nothing else has to turn with the ids
            ids = np.minimum(left, right), np.maximum(left, right)
            return Pairs(*ids, distance, window, meetings.worksets[group], free)
        turned = left > right if self.self_join else mine.sides[i] == RIGHT
        carried: list[pa.Table | None] = [None, None]
        if mine.carried is not None and theirs.carried is not None:
            both = mine.carried
            if theirs is not mine:
                both, j = pa.concat_tables([mine.carried, theirs.carried]), j + len(mine)
            carried = [both.take(pa.array(np.where(turned, *ends))) for ends in ((j, i), (i, j))]
        ids = np.where(turned, right, left), np.where(turned, left, right)
        return Pairs(*ids, distance, window, meetings.worksets[group], free, *carried)


def _no_counts() -> tuple[Ints, Ints, Ints]:
    none = np.zeros(0, dtype=np.int64)
    return none, none, none


def _sum_counts(parts: list[tuple[Ints, Ints, Ints]]) -> tuple[Ints, Ints, Ints]:
    """Two counters for each workset, summed over `parts`."""
    keys, first, second = (np.concatenate(column) for column in zip(*parts, strict=True))
    worksets, position = np.unique(keys, return_inverse=True)
    sums = np.zeros((2, len(worksets)), dtype=np.int64)
    np.add.at(sums[0], position, first)
    np.add.at(sums[1], position, second)
    return worksets, sums[0], sums[1]
