"""ClusterJoin: exact with a key for each cell; with shared keys it repeats pairs and compares strangers."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.s3j.clusterjoin import COLLAPSED, TRUE, ClusterJoin
from steelyard.core.errors import OptionError
from steelyard.similarity.members import LEFT, RIGHT, SELF, Rows
from steelyard.similarity.metrics import metric as metric_of
from steelyard.similarity.partitions import SpacePartitions


def window_of(seed, metric, count=80, dimension=2, self_join=False, grid=False):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (count, dimension)) / 2 if grid else rng.uniform(-1, 1, (count, dimension))
    vectors[~vectors.any(axis=1)] = 1.0
    records, bad = metric.records(pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dimension))
    assert not bad.any()
    sides = np.full(count, SELF) if self_join else rng.choice([LEFT, RIGHT], count)
    return Rows(np.arange(count), sides.astype(np.int8), np.zeros((count, 2), np.int64), records)


def brute(metric, t, rows):
    table = metric.pairwise(rows.records, rows.records) <= t
    sides = rows.sides.astype(int)
    if sides[0] == SELF:
        return {(i, j) for i, j in zip(*np.nonzero(table), strict=True) if i < j}
    return {(i, j) for i, j in zip(*np.nonzero(table), strict=True) if sides[i] == LEFT and sides[j] == RIGHT}


def joined(join, rows, batches=3):
    found = []
    for part in np.array_split(np.arange(len(rows)), batches):
        pairs = join.add(rows.take(join.space.metric, part))
        found += list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    return found


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["angular", "euclidean", "manhattan", "chebyshev"]),
    t=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    cells=st.sampled_from([1, 7, 150]),
    dimension=st.integers(1, 5),
    self_join=st.booleans(),
    grid=st.booleans(),
)
def test_a_key_for_each_cell_gives_every_pair_once(seed, name, t, cells, dimension, self_join, grid):
    metric = metric_of(name)
    rows = window_of(seed, metric, dimension=dimension, self_join=self_join, grid=grid)
    join = ClusterJoin.random(dimension, metric, t, cells=cells, self_join=self_join)
    found = joined(join, rows)
    assert len(found) == len(set(found))
    assert set(found) == brute(metric, t, rows)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), t=st.sampled_from([0.0, 0.01, 0.2]), self_join=st.booleans())
def test_shared_keys_lose_no_pair_and_make_none_up(seed, t, self_join):
    metric = metric_of("angular")
    rows = window_of(seed, metric, self_join=self_join)
    join = ClusterJoin.random(2, metric, t, keys=COLLAPSED, self_join=self_join)
    assert set(joined(join, rows)) == brute(metric, t, rows)


def test_shared_keys_repeat_pairs_and_compare_more():
    metric = metric_of("angular")
    rows = window_of(3, metric, count=300)
    true, collapsed = (ClusterJoin.random(2, metric, 0.01, keys=keys) for keys in (TRUE, COLLAPSED))
    once, often = joined(true, rows), joined(collapsed, rows)
    assert len(often) > len(set(often)) == len(once)
    assert collapsed.comparisons > true.comparisons
    assert collapsed.copies == true.copies


def test_500_cells_collapse_to_129_keys_and_128_cells_to_as_many():
    metric = metric_of("angular")
    assert ClusterJoin.random(2, metric, 0.1, keys=COLLAPSED).key_count == 129
    few = ClusterJoin.random(2, metric, 0.1, cells=128, keys=COLLAPSED)
    assert few.keys_of(np.arange(128)).tolist() == list(range(128))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    keys=st.sampled_from([TRUE, COLLAPSED]),
    cells=st.sampled_from([5, 500]),
    self_join=st.booleans(),
)
def test_a_window_counted_from_sizes_costs_what_the_join_does(seed, keys, cells, self_join):
    metric = metric_of("angular")
    rows = window_of(seed, metric, self_join=self_join)
    join = ClusterJoin.random(2, metric, 0.02, cells=cells, keys=keys, self_join=self_join)
    cost = join.cost(rows)
    joined(join, rows)
    assert cost.comparisons.sum() == join.comparisons
    assert (cost.copies, cost.distances) == (join.copies, join.centroid_distances) == (join.copies, len(rows) * cells)


def test_a_closed_window_meets_nobody():
    metric = metric_of("euclidean")
    rows = window_of(1, metric, self_join=True)
    join = ClusterJoin.random(2, metric, 0.5, cells=10, self_join=True)
    first = rows.take(metric, np.arange(40))
    join.add(first)
    join.close(0)
    later = Rows(first.ids + 100, first.sides, first.windows + 1, first.records)
    assert min(join.add(later).left) >= 100


def test_centroids_may_be_records_so_that_text_can_be_joined():
    metric = metric_of("edit")
    words = ["stream", "streams", "steam", "join", "joins", "joint", "cell"]
    records, _ = metric.records(pa.array(words))
    rows = Rows(np.arange(7), np.zeros(7, np.int8), np.zeros((7, 2), np.int64), records)
    join = ClusterJoin(SpacePartitions.farthest(records, 3, metric, 1.0), self_join=True)
    assert set(joined(join, rows)) == brute(metric, 1.0, rows) == {(0, 1), (0, 2), (3, 4), (3, 5)} | {(4, 5)}


def test_an_unknown_kind_of_keys_is_refused():
    with pytest.raises(OptionError, match="collapsed"):
        ClusterJoin.random(2, metric_of("angular"), 0.1, keys="colapsed")
