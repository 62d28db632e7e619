"""Correlation Clustering of the records of a block, in two stages (Zapridou, Mytilinis, Ailamaki 2022, section 5).

Two records attract each other by 2 * similarity - 1, or repel where that is negative; the similarity is
1 - edit distance / length of the longer. The best clustering has the largest sum over all pairs that are
together (`agreement`). To find it is NP-hard, so:

- map tasks run VOTE (Elsner and Schudy 2009): one record after the other joins the cluster that attracts it
  most, or opens one of its own; or BEST, where it joins the cluster of the one record that attracts it most;
- reduce tasks run GREEDY (Gruenheid, Dong and Srivastava 2014): where two tasks' clusters meet, these are
  merged, split, and records moved between them, as long as that makes the sum larger.

Both take time that grows with the square of a block's records, and GREEDY memory too: for n records, up to
three matrices of n * n doubles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pyspark.sql import DataFrame
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.spark.aggregator import Aggregator
from steelyard.spark.stream import Stream, stream

TOLERANCE = 1e-9
"""A smaller gain is a rounding error: to take it for one would let GREEDY run in circles."""
AT_ONCE = 256
"""Records that are compared with all before them in one call."""

ClusterState = tuple[list[str], list[int]]
FirstStage = Literal["vote", "best"]


def correlation_clusters(
    rows: DataFrame,
    block: str = "block",
    record: str = "record",
    time: str = "event_time",
    window: str = "60 seconds",
    slide: str = "20 seconds",
    delay: str = "10 seconds",
    first: FirstStage = "vote",
) -> Stream:
    """Of each block its records in `clusters`: arrays of records that are much alike.

    Parameters
    ----------
    rows
        Streaming or static rows with a block (such as a post code) and a record (such as name and address).
    block, record, time
        Columns of these, and of the event time.
    window, slide
        The paper's by default.
    delay
        How late rows may come.
    first
        What map tasks do: see `CorrelationClustering`.
    """
    windows = stream(rows).with_watermark(time, delay).group_by(block).window(window, slide=slide)
    return windows.agg(clusters=CorrelationClustering(first).of(record))


class CorrelationClustering(Aggregator):
    """Clusters of records that are much alike: VOTE or BEST in map tasks, GREEDY in reduce tasks.

    Parameters
    ----------
    first
        `"vote"`: a record joins the cluster whose members attract it most in sum; `"best"`: the cluster of the one
        member that attracts it most, which makes longer chains of records, each like the next.

    The state is the records, cluster by cluster, and the number of each one's cluster. Neither the order of the
    rows in a slice nor which of two states comes first changes anything. How rows were cut into slices, and in
    which order more than two states were merged, may: each way ends where no merge, split or move of what met
    makes the agreement larger, and there can be several such ends. With VOTE the agreement is never below 0, that
    of records all apart; BEST promises none, since it looks at one record of a cluster.

    Examples
    --------
    >>> import pyarrow as pa
    >>> block = CorrelationClustering()
    >>> one = block.add(block.zero(), pa.array(["anna smith", "bob jones", "ana smith"]))
    >>> one
    (['ana smith', 'anna smith', 'bob jones'], [0, 0, 1])
    >>> block.finish(block.merge(one, block.add(block.zero(), pa.array(["bob jonas"]))))
    [['ana smith', 'anna smith'], ['bob jonas', 'bob jones']]
    """

    state: ClassVar[str] = "records array<string>, clusters array<int>"
    result: ClassVar[str] = "array<array<string>>"

    def __init__(self, first: FirstStage = "vote") -> None:
        if first not in _FIRST_STAGES:
            raise OptionError.unknown("first of CorrelationClustering", first, tuple(_FIRST_STAGES))
        self.first = first

    def zero(self) -> ClusterState:
        """No records."""
        return ([], [])

    def add(self, state: ClusterState, *columns: Any) -> ClusterState:
        """Each record of a slice, an Arrow array of strings, joins in alphabetical order; nulls are left out."""
        (texts,) = columns
        records, clusters = state
        every = [*records, *sorted(texts.drop_null().to_pylist())]
        return _canonical(_members(every, _FIRST_STAGES[self.first](every, clusters)))

    def merge(self, left: ClusterState, right: ClusterState) -> ClusterState:
        """GREEDY over the clusters of both, from those on that have something in common with the other side."""
        if not left[0] or not right[0]:
            return left if left[0] else right
        sided = [(members, side) for side, state in enumerate((left, right)) for members in _members(*state)]
        sided.sort(key=lambda cluster: cluster[0])
        sizes = [len(members) for members, _ in sided]
        records = [record for members, _ in sided for record in members]
        labels = np.repeat(np.arange(len(sided)), sizes)
        is_right = np.repeat([side == 1 for _, side in sided], sizes)
        pull = attraction(records)
        # Attraction above -1 is similarity above 0.
        meets = ((pull > -1) & (is_right[:, None] != is_right)).any(axis=1)
        found = greedy(pull, labels, np.unique(labels[meets]).tolist())
        return _canonical(_members(records, found.tolist()))

    def finish(self, state: ClusterState) -> list[list[str]]:
        """The clusters, each in alphabetical order, and in the order of their first records."""
        return _members(*state)


def _members(records: Sequence[str], clusters: Sequence[int]) -> list[list[str]]:
    """The records of each cluster."""
    members: dict[int, list[str]] = {}
    for record, cluster in zip(records, clusters, strict=True):
        members.setdefault(cluster, []).append(record)
    return list(members.values())


def _canonical(members: list[list[str]]) -> ClusterState:
    """The state of a clustering: the same for the same clusters, however they came about."""
    ranked = sorted(sorted(cluster) for cluster in members)
    records = [record for cluster in ranked for record in cluster]
    return (records, [number for number, cluster in enumerate(ranked) for _ in cluster])


def _similarity(records: Sequence[str], others: Sequence[str]) -> Floats:
    """float64[records, others]: 1 - edit distance / length of the longer; two empty strings are the same."""
    # A list of its own: where both are the same object, cdist fills one triangle only, pair by pair and slower.
    second = list(others)
    return np.asarray(process.cdist(records, second, scorer=Levenshtein.normalized_similarity, dtype=np.float64))


def attraction(records: Sequence[str]) -> Floats:
    """float64[n, n]: 2 * similarity - 1 of each pair of records; 0 of a record with itself.

    >>> attraction(["abcd", "abce", "wxyz"]).tolist()
    [[0.0, 0.5, -1.0], [0.5, 0.0, -1.0], [-1.0, -1.0, 0.0]]
    """
    pull = _similarity(records, records)
    pull *= 2
    pull -= 1
    np.fill_diagonal(pull, 0)
    return pull


def agreement(clusters: Iterable[Sequence[str]]) -> float:
    """What correlation clustering makes large: the attraction of all pairs of records that are together.

    >>> agreement([["abcd", "abce"], ["wxyz"]])
    0.5
    """
    return sum(float(attraction(cluster).sum()) / 2 for cluster in clusters)


def vote(records: Sequence[str], clusters: Sequence[int] = ()) -> list[int]:
    """The cluster of each record: VOTE of Elsner and Schudy.

    Parameters
    ----------
    records
        In the order in which they vote.
    clusters
        Of the first records, where these have clusters already, numbered from 0 without gaps.

    Examples
    --------
    >>> vote(["abcd", "wxyz", "abce", "wxy"])
    [0, 1, 0, 1]
    """
    return _joined(records, clusters, _attraction_in_sum)


def best(records: Sequence[str], clusters: Sequence[int] = ()) -> list[int]:
    """The cluster of each record: BEST of Elsner and Schudy. Parameters are those of `vote`.

    >>> best(["abcd", "wxyz", "abce", "wxy"])
    [0, 1, 0, 1]
    """
    return _joined(records, clusters, _attraction_of_one)


_FIRST_STAGES = {"vote": vote, "best": best}


def _attraction_in_sum(labels: Ints, pull: Floats, count: int) -> Floats:
    return np.asarray(np.bincount(labels, weights=pull, minlength=count), np.float64)


def _attraction_of_one(labels: Ints, pull: Floats, count: int) -> Floats:
    strongest = np.full(count, -1.0)
    np.maximum.at(strongest, labels, pull)
    return strongest


def _joined(
    records: Sequence[str], clusters: Sequence[int], attraction_of: Callable[[Ints, Floats, int], Floats]
) -> list[int]:
    """The cluster of each record, which joins the one that attracts it most, or opens one where none does."""
    known = len(clusters)
    labels = np.zeros(len(records), dtype=np.int64)
    labels[:known] = clusters
    count = max(clusters, default=-1) + 1
    for start in range(known, len(records), AT_ONCE):
        end = min(start + AT_ONCE, len(records))
        pull = 2 * _similarity(records[start:end], records[:end]) - 1
        for i in range(start, end):
            by_cluster = attraction_of(labels[:i], pull[i - start, :i], count)
            most = int(by_cluster.argmax()) if count else 0
            joins = count > 0 and by_cluster[most] > TOLERANCE
            labels[i] = most if joins else count
            count += not joins
    return labels.tolist()


def greedy(pull: Floats, labels: Ints, queue: Iterable[int]) -> Ints:
    """Better clusters: merge, else split, else move, until no cluster of the queue can be made better.

    Each step makes the agreement larger, so there is an end. A cluster that a step changed is queued again.

    Parameters
    ----------
    pull
        `attraction` of the records.
    labels
        int64[n]: the cluster of each record, numbered from 0 without gaps.
    queue
        Clusters to begin with.

    Returns
    -------
    Ints
        int64[n]: the new cluster of each record; numbers may have gaps.

    Examples
    --------
    >>> greedy(attraction(["abcd", "wxyz", "abce"]), np.array([0, 0, 1]), [0, 1]).tolist()
    [2, 0, 2]
    """
    clusters = _Clusters(pull, labels)
    waiting = deque(dict.fromkeys(queue))
    while waiting:
        cluster = waiting.popleft()
        changed = clusters.merged(cluster) or clusters.split(cluster) or clusters.moved(cluster)
        waiting.extend(label for label in changed if label not in waiting)
    return clusters.labels


class _Clusters:
    """Clusters that change, with what each record feels for each of them.

    `felt[r, c]` is the attraction between record r and all of cluster c (without r itself). With it every gain is
    a difference of two numbers, and a step costs one column, not one matrix.
    """

    def __init__(self, pull: Floats, labels: Ints) -> None:
        self.labels = labels.astype(np.int64)
        self._pull = pull
        if np.any(np.diff(labels) < 0):  # else columns are in the order of clusters, and need no copy
            order = np.argsort(labels, kind="stable")
            pull, labels = pull[:, order], labels[order]
        self._felt = np.add.reduceat(pull, np.flatnonzero(np.diff(labels, prepend=-1)), axis=1)
        self._free: list[int] = []

    def merged(self, cluster: int) -> tuple[int, ...]:
        """Merge with the cluster that gains most by it. Gives the clusters that changed, none if nothing gains."""
        members = np.flatnonzero(self.labels == cluster)
        gains = self._felt[members].sum(axis=0)
        gains[cluster] = 0
        best = int(gains.argmax())
        if gains[best] <= TOLERANCE:
            return ()
        self._felt[:, best] += self._felt[:, cluster]
        self._felt[:, cluster] = 0
        self.labels[members] = best
        self._free.append(cluster)
        return (best,)

    def split(self, cluster: int) -> tuple[int, ...]:
        """The record that the others repel most leaves, and takes with it who would rather be there."""
        members = np.flatnonzero(self.labels == cluster)
        if len(members) == 0 or self._felt[members, cluster].min() >= -TOLERANCE:
            return ()
        new = self._new()
        leaver = members[self._felt[members, cluster].argmin()]
        while leaver is not None:
            self._move(leaver, new)
            members = members[members != leaver]
            gains = self._felt[members, new] - self._felt[members, cluster]
            leaver = members[gains.argmax()] if len(gains) and gains.max() > TOLERANCE else None
        return (cluster, new)

    def moved(self, cluster: int) -> tuple[int, ...]:
        """Move the one record that gains most by it, out of this cluster or into it."""
        members = np.flatnonzero(self.labels == cluster)
        if len(members) == 0:
            return ()
        target = np.full(len(self.labels), cluster)
        target[members] = self._felt[members].argmax(axis=1)
        every = np.arange(len(target))
        gains = self._felt[every, target] - self._felt[every, self.labels]
        mover = int(gains.argmax())
        if gains[mover] <= TOLERANCE:
            return ()
        source = int(self.labels[mover])
        self._move(mover, int(target[mover]))
        return (source, int(target[mover]))

    def _move(self, record: int, target: int) -> None:
        source = int(self.labels[record])
        self._felt[:, source] -= self._pull[:, record]
        self._felt[:, target] += self._pull[:, record]
        self.labels[record] = target

    def _new(self) -> int:
        """The number of an empty cluster."""
        if not self._free:
            count = self._felt.shape[1]
            self._felt = np.hstack([self._felt, np.zeros_like(self._felt)])
            self._free = list(range(2 * count - 1, count - 1, -1))
        label = self._free.pop()
        self._felt[:, label] = 0
        return label
