"""Worksets: the fine cut of a space partition, made on the fly, and the unit that moves between workers.

G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, sections 2.2 and 2.5.3. A workset has a
centroid and three kinds of members: inner ones (within t/2 of it), outliers (farther, but it is the nearest), and
outer ones (within 2t, at home elsewhere). Deviation: Definition 2.10 keeps records nearer than t/2 out of the outer
set. A guest from another space partition can lie there and would then be in no set at all, so the bound is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError
from steelyard.similarity.members import (
    INNER,
    OUTER,
    OUTLIER,
    REST_ID,
    Members,
    Rows,
    from_column,
    row_bytes,
    to_column,
    workset_key,
)
from steelyard.similarity.partitions import Radii, routes
from steelyard.similarity.placed import Copied, Placed
from steelyard.similarity.protocol import Bools, Floats, Ints, Metric, Records

#: Records that are tried as centroids against one another at a time.
CANDIDATES = 256
#: Where a record is at home that is the guest of a partition, and one that has no centroid (both: no workset).
GUEST, REST = -1, -2
#: Rows that are placed first, where what they need is bounded; and pairs of a row and a centroid at a time.
FIRST_PLACED, NEAR_PAIRS = 1024, 1 << 22
#: Before the first window.
NEVER = np.iinfo(np.int64).min // 2


@dataclass(frozen=True)
class _Near:
    """Records and centroids that are near to each other, as arrays of equal length."""

    record: Ints
    centroid: Ints
    distance: Floats

    def only(self, which: Bools) -> _Near:
        return _Near(self.record[which], self.centroid[which], self.distance[which])


def _no_near() -> _Near:
    none = np.zeros(0, dtype=np.int64)
    return _Near(none, none, np.zeros(0))


class Formulation:
    """The worksets of one space partition: their geometry for ever, its guests for as long as a window is open.

    A record that arrives at its home and has no centroid within t becomes the centroid of a new workset. Ids count
    up from 1 in the order of creation, and a record is copied only to worksets with a smaller id than its own, so
    that a stored record of the partition never has to be looked at again; guests are stored, for worksets to come.

    Parameters
    ----------
    metric
        The metric of the join.
    t
        The threshold distance.
    partition
        Which space partition this is.
    literal
        Apply Definition 2.10's lower bound to guests, as printed. Loses pairs; here to show that it does.
    balanced_ids
        Of two worksets the parity rule of the space partitions says which one hosts the pairs, not the smaller id
        always: low ids carry no more than high ones. Every record of an open window is then stored here.
    retire_after
        Forget a centroid that had no record at home for so many windows; None keeps every one for ever.
    crowd
        A record with more than so many centroids within 2t becomes no centroid itself; None sets no limit. In many
        dimensions nearly everything lies within 2t, and a record would be copied to half of all worksets.
    room
        Bytes that the copies of a batch may have where there are more than MOST_COPIES of a record; beyond it `add`
        raises CrowdedError before it makes them, and what it leaves behind is of no use. None sets no bound.

    Notes
    -----
    Records that a crowd keeps from becoming centroids are members of workset 0, the rest, as outliers. From the
    first of them on, every other record of the partition is an outer member of it: they meet all, by brute force.

    Retiring is exact: a workset is forgotten only when no open window holds a record that is at home in it, so
    there is nobody left that a new record could meet there, and its id is never used again.
    """

    def __init__(
        self,
        metric: Metric,
        t: float,
        partition: int,
        *,
        literal: bool = False,
        balanced_ids: bool = False,
        retire_after: int | None = None,
        crowd: int | None = None,
        room: int | None = None,
    ) -> None:
        if t < 0:
            raise OptionError(f"threshold distance {t}: must not be negative")
        if retire_after is not None and retire_after < 0:
            raise OptionError(f"retire_after={retire_after}: must be a number of windows, or None to keep centroids")
        if crowd is not None and crowd < 0:
            raise OptionError(f"crowd={crowd}: must be a number of centroids, or None for no limit")
        self.metric = metric
        self.t = t
        self.partition = partition
        self.literal = literal
        self.balanced_ids = balanced_ids
        self.retire_after = retire_after
        self.crowd = crowd
        self.room = room
        self.closed = NEVER
        self._radii = Radii.of(metric, t)
        self._centroids: Records = None
        self._ids = np.zeros(0, dtype=np.int64)
        self._busy_until = np.zeros(0, dtype=np.int64)  # the last window in which a record was at home here
        self._next_id = 1
        self._kept: Rows | None = None
        self._kept_home = np.zeros(0, dtype=np.int64)  # an id, or GUEST
        self._rest = False  # whether there is a workset of records without centroid

    def __repr__(self) -> str:
        return f"Formulation(partition={self.partition}, t={self.t}, worksets={len(self._ids)}, kept={self.kept})"

    @property
    def worksets(self) -> Ints:
        """Global keys of the worksets that have a centroid, in the order of creation."""
        return workset_key(self.partition, self._ids)

    @property
    def centroids(self) -> Records:
        """The centroids, in the order of `worksets`; None before the first."""
        return self._centroids

    @property
    def kept(self) -> int:
        """How many records of open windows are stored for worksets to come."""
        return len(self._kept_home)

    @property
    def bytes(self) -> int:
        """Bytes of the stored records."""
        return 0 if self._kept is None else int(row_bytes(self.metric, self._kept).sum())

    def add(self, rows: Rows, outer: Bools) -> Placed:
        """Place a batch, in its order.

        Parameters
        ----------
        rows
            The records of this partition, with id, side and windows. None may be of closed windows only.
        outer
            bool[n]; which of them are guests, at home in another space partition.
        """
        if self.room is None:
            return self._add(rows, outer, Copied())
        each = int(row_bytes(self.metric, rows).sum()) / max(1, len(rows))
        copied, portions = Copied(each, self.room), []
        step = FIRST_PLACED
        while copied.rows < len(rows):
            index = np.arange(copied.rows, min(len(rows), copied.rows + step))
            portions.append(self._add(rows.take(self.metric, index), outer[index], copied))
            near = 2 * len(portions[-1].members) / len(index)  # to centroids with smaller numbers, and with larger ones
            step *= 2
            while step > 1 and step * near * (1 + step / copied.rows) > NEAR_PAIRS:
                step //= 2
        return Placed.join(self.metric, portions) if portions else self._add(rows, outer, copied)

    def _add(self, rows: Rows, outer: Bools, copied: Copied) -> Placed:
        count, old = len(rows), len(self._ids)
        near = self._near(rows.records, count, self._centroids, old)
        new = self._found(rows.records, outer, near)
        born = np.concatenate([np.full(old, -1, dtype=np.int64), new])
        if len(new):
            near = self._extend(rows, near, new)
        home, distance = self._homes(near, count, outer, born)
        copies = self._copies(near, home)
        replay = self._replay(new, old)
        distances = count * old + self._distances(count, new, home)
        roles = np.where(distance <= self._radii.inner, INNER, OUTLIER)
        roles[new] = INNER  # a centroid is an inner record of its workset, however small t is
        copied.count(count, count + len(copies.record) + len(replay.record))
        placed = self._members(rows, home, roles, copies, replay)
        self._keep(rows, home)
        return Placed(*placed, distances, self.worksets[old:])

    def close(self, window: int) -> Ints:
        """End every window up to `window`: stored records go, geometry stays. Returns the worksets that retired."""
        self.closed = max(self.closed, window)
        if self._kept is not None:
            open_still = np.flatnonzero(self._kept.windows[:, 1] > self.closed)
            self._kept = self._kept.take(self.metric, open_still) if len(open_still) else None
            self._kept_home = self._kept_home[open_still]
        if self.retire_after is None or not len(self._ids):
            return np.zeros(0, dtype=np.int64)
        stay = self._busy_until + self.retire_after > self.closed
        retired = self.worksets[~stay]
        if len(retired):
            self._centroids = self.metric.take(self._centroids, np.flatnonzero(stay)) if stay.any() else None
            self._ids, self._busy_until = self._ids[stay], self._busy_until[stay]
        return retired

    def check(self) -> None:
        """Raise AssertionError where an invariant does not hold: centroids lie more than t apart, ids count up."""
        assert (np.diff(self._ids) > 0).all(), "workset ids count up"
        assert not len(self._ids) or self._ids[-1] < self._next_id, "the next id is new"
        assert len(self._kept_home) == (0 if self._kept is None else len(self._kept)), "each kept record has a home"
        if len(self._ids):
            apart = self.metric.pairwise(self._centroids, self._centroids)
            np.fill_diagonal(apart, np.inf)
            assert (apart > self.t).all(), "centroids lie more than t apart"

    def state(self) -> dict[str, pa.Table]:
        """Everything that `restore` needs, as Arrow tables."""
        columns = {"id": pa.array(self._ids), "busy_until": pa.array(self._busy_until)}
        if len(self._ids):
            columns["record"] = to_column(self.metric, self._centroids)
        state = {
            "worksets": pa.table(columns),
            "counters": pa.table({"next_id": [self._next_id], "closed": [self.closed], "rest": [self._rest]}),
        }
        if self._kept is not None:
            state["kept"] = self._kept.to_table(self.metric).append_column("home", pa.array(self._kept_home))
        return state

    def restore(self, state: Mapping[str, pa.Table]) -> None:
        """Become what the formulation was that made `state`."""
        worksets, counters, kept = state["worksets"], state["counters"], state.get("kept")
        self._ids = worksets["id"].to_numpy()
        self._busy_until = worksets["busy_until"].to_numpy().copy()
        self._centroids = from_column(self.metric, worksets["record"]) if len(self._ids) else None
        self._next_id, self.closed, self._rest = (column[0].as_py() for column in counters.columns)
        self._kept = None if kept is None else Rows.from_table(self.metric, kept.drop_columns(["home"]))
        self._kept_home = np.zeros(0, dtype=np.int64) if kept is None else kept["home"].to_numpy()

    def _near(self, records: Records, count: int, centroids: Records, worksets: int) -> _Near:
        """Every record and centroid within the outer radius of each other."""
        if not count or not worksets:
            return _no_near()
        return _Near(*self.metric.within(records, centroids, self._radii.outer))

    def _found(self, records: Records, outer: Bools, near: _Near) -> Ints:
        """Positions of the records that become centroids (Criterion 2.2, and no crowd), in order."""
        lonely = ~outer
        lonely[near.record[near.distance <= self.t]] = False
        crowd = np.bincount(near.record, minlength=len(outer))
        reach = self.t if self.crowd is None else self._radii.outer
        left = np.flatnonzero(lonely)
        found: list[Ints] = []
        while len(left):
            if self.crowd is not None:
                left = left[crowd[left] <= self.crowd]
            block, left = left[:CANDIDATES], left[CANDIDATES:]
            found.append(block[self._chosen(self.metric.take(records, block), crowd[block])])
            if len(left) and len(found[-1]):
                centroids = self.metric.take(records, found[-1])
                hit, _, distance = self.metric.within(self.metric.take(records, left), centroids, reach)
                np.add.at(crowd, left[hit], 1)
                left = np.delete(left, np.unique(hit[distance <= self.t]))
        return np.concatenate(found) if found else left

    def _chosen(self, tried: Records, crowd: Ints) -> list[int]:
        """Which of some records become centroids, each before the next."""
        i, j, apart = self.metric.within(tried, tried, self.t if self.crowd is None else self._radii.outer)
        near = np.zeros((len(crowd), len(crowd)), dtype=bool)
        near[i, j] = True
        close = near.copy()
        close[i, j] = apart <= self.t
        covered = np.zeros(len(crowd), dtype=bool)
        chosen: list[int] = []
        for k in range(len(crowd)):
            if not covered[k] and (self.crowd is None or crowd[k] <= self.crowd):
                chosen.append(k)
                covered |= close[k]
                crowd = crowd + near[k]
        return chosen

    def _extend(self, rows: Rows, near: _Near, new: Ints) -> _Near:
        """Add the new centroids to the geometry, and what is near to them."""
        old = len(self._ids)
        centroids = self.metric.take(rows.records, new)
        fresh = self._near(rows.records, len(rows), centroids, len(new))
        self._centroids = self.metric.join(self._centroids, centroids) if old else centroids
        self._ids = np.concatenate([self._ids, self._next_id + np.arange(len(new), dtype=np.int64)])
        self._busy_until = np.concatenate([self._busy_until, np.full(len(new), NEVER, dtype=np.int64)])
        self._next_id += len(new)
        return _Near(
            np.concatenate([near.record, fresh.record]),
            np.concatenate([near.centroid, fresh.centroid + old]),
            np.concatenate([near.distance, fresh.distance]),
        )

    def _homes(self, near: _Near, count: int, outer: Bools, born: Ints) -> tuple[Ints, Floats]:
        """The nearest centroid of each record that is at home here (else GUEST or REST), and its distance."""
        home, distance = np.where(outer, GUEST, REST), np.full(count, np.inf)
        fit = near.only((near.distance <= self.t) & ~outer[near.record] & (born[near.centroid] <= near.record))
        np.minimum.at(distance, fit.record, fit.distance)
        fit = fit.only(fit.distance == distance[fit.record])
        order = np.argsort(-fit.centroid, kind="stable")  # of many writes the last one stays: the smallest number
        home[fit.record[order]] = fit.centroid[order]
        creators = np.flatnonzero(born >= 0)
        home[born[creators]], distance[born[creators]] = creators, 0.0
        return home, distance

    def _copies(self, near: _Near, home: Ints) -> _Near:
        """Outer members: guests wherever they are near, the others by the routing rule."""
        own = home[near.record]
        guest = own == GUEST
        if self.literal:
            guest &= near.distance > self.t / 2
        if self.balanced_ids:
            elsewhere = (own >= 0) & (own != near.centroid)
            travels = elsewhere & routes(self._ids[np.maximum(own, 0)], self._ids[near.centroid])
        else:
            travels = near.centroid < own
        return near.only(guest | travels)

    def _replay(self, new: Ints, old: int) -> _Near:
        """Stored records that a new workset adopts."""
        adoptable = self._adoptable()
        if self._kept is None or not len(new) or not len(adoptable):
            return _no_near()
        records = self.metric.take(self._kept.records, adoptable)
        centroids = self.metric.take(self._centroids, np.arange(old, old + len(new)))
        near = self._near(records, len(adoptable), centroids, len(new))
        near = _Near(adoptable[near.record], near.centroid + old, near.distance)
        home = self._kept_home[near.record]
        adopted = (home == GUEST) & ((near.distance > self.t / 2) | (not self.literal))
        return near.only(adopted | ((home > REST_ID) & routes(home, self._ids[near.centroid])))

    def _adoptable(self) -> Ints:
        """Which stored records a workset to come may adopt."""
        return np.flatnonzero((self._kept_home == GUEST) | ((self._kept_home > REST_ID) & self.balanced_ids))

    def _members(self, rows: Rows, home: Ints, roles: Ints, copies: _Near, replay: _Near) -> tuple[Members, int]:
        """All copies as members, and how many of them are of earlier batches."""
        at_home = np.flatnonzero(home >= 0)
        np.maximum.at(self._busy_until, home[at_home], rows.windows[at_home, 1])
        rest, others, stored = self._rest_members(home)
        here = np.concatenate([at_home, rest, copies.record, others])
        earlier = np.concatenate([replay.record, stored])
        ids = [
            self._ids[home[at_home]],
            np.full(len(rest), REST_ID),
            self._ids[copies.centroid],
            np.full(len(others), REST_ID),
            self._ids[replay.centroid],
            np.full(len(stored), REST_ID),
        ]
        outers = len(copies.record) + len(others) + len(earlier)
        role = np.concatenate([roles[at_home], np.full(len(rest), OUTLIER), np.full(outers, OUTER)]).astype(np.int8)
        placed = rows.take(self.metric, here)
        if len(earlier) and self._kept is not None:
            placed = Rows.join(self.metric, [placed, self._kept.take(self.metric, earlier)])
        return Members(workset_key(self.partition, np.concatenate(ids)), role, placed), len(earlier)

    def _rest_members(self, home: Ints) -> tuple[Ints, Ints, Ints]:
        """Who is at home in the rest, which others of the batch visit it, and which stored records."""
        rest = np.flatnonzero(home == REST)
        none = np.zeros(0, dtype=np.int64)
        opens = bool(len(rest)) and not self._rest
        self._rest |= opens
        others = np.flatnonzero(home != REST) if self._rest else none
        return rest, others, np.arange(self.kept) if opens else none

    def _distances(self, count: int, new: Ints, home: Ints) -> int:
        """Distances to the new centroids: of later records, and of the records stored when each was created."""
        stored = np.concatenate([[0], np.cumsum((home == GUEST) | ((home >= 0) & self.balanced_ids))])
        return int((count - 1 - new).sum() + len(new) * len(self._adoptable()) + stored[new].sum())

    def _keep(self, rows: Rows, home: Ints) -> None:
        """Store what a workset to come may adopt: guests; by the parity rule anybody; for the rest everybody."""
        wanted = rows.windows[:, 1] > self.closed
        if not self.balanced_ids and (self.crowd is None or self._rest):
            wanted &= home == GUEST
        kept = np.flatnonzero(wanted)
        if not len(kept):
            return
        stored = rows.take(self.metric, kept)
        self._kept = stored if self._kept is None else Rows.join(self.metric, [self._kept, stored])
        home = home[kept]
        homes = np.where(home == REST, REST_ID, GUEST)
        homes[home >= 0] = self._ids[home[home >= 0]]
        self._kept_home = np.concatenate([self._kept_home, homes])
