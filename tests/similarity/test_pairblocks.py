"""Blocks of pairs: every pair once, few copies, fair shares; and when worksets are given up for them."""

import math

import numpy as np
import pyarrow as pa
import pytest

from steelyard.similarity import Formulation, Rows, SpacePartitions, WindowJoin, metric
from steelyard.similarity.members import LEFT, RIGHT, SELF, split_key
from steelyard.similarity.pairblocks import EVERYTHING, PairBlocks, copies_by_space, copies_by_worksets, everything
from steelyard.similarity.placed import CrowdedError, all_in_rest
from steelyard.similarity.splitting import Splits

EUCLIDEAN = metric("euclidean")


def rows_of(points, sides=SELF):
    count = len(points)
    sides = np.broadcast_to(np.asarray(sides, dtype=np.int8), count).copy()
    return Rows(np.arange(count), sides, np.zeros((count, 2), dtype=np.int64), points)


@pytest.mark.parametrize("self_join", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 20])
def test_each_pair_meets_on_one_worker_and_records_have_few_copies(workers, self_join):
    blocks = PairBlocks(workers, self_join)
    assert blocks.parts <= 2 * math.sqrt(workers) + 1
    splits = Splits(self_join=self_join)
    for workset, parts in blocks.splits.items():
        splits.cut(workset, parts)
    count = 150
    sides = SELF if self_join else np.arange(count) % 2 + LEFT
    members = splits.apply(EUCLIDEAN, everything(rows_of(np.zeros((count, 1)), sides)))
    assert len(members) == count * blocks.parts
    owner = np.array([blocks.assignment[key] for key in members.worksets.tolist()])
    assert set(owner.tolist()) <= set(range(workers))
    found, loads = [], []
    for worker in range(workers):
        join = WindowJoin(EUCLIDEAN, 1.0, self_join=self_join)
        pairs = join.add(members.take(EUCLIDEAN, np.flatnonzero(owner == worker)))
        found += zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
        loads.append(int(join.loads().comparisons.sum()))
    pairs = {(i, j) for i in range(count) for j in range(count) if (i < j if self_join else i % 2 < j % 2)}
    assert len(found) == len(pairs)
    assert set(found) == pairs
    assert max(loads) <= 2 * sum(loads) / workers  # parts are dealt by chance


def test_the_workset_of_all_records_is_that_of_no_space_partition():
    assert int(split_key(np.array(EVERYTHING))[0]) == 1 << 14


def texts(count, seed=1):
    rng = np.random.default_rng(seed)
    words = np.array([f"w{n}" for n in range(200)])
    return metric("jaccard").records(pa.array([" ".join(rng.choice(words, 7)) for _ in range(count)]))[0]


def test_worksets_are_given_up_where_everything_is_near_and_nothing_at_home():
    jaccard = metric("jaccard")
    assert copies_by_worksets(jaccard, 0.5, texts(300)) > 100
    assert copies_by_worksets(jaccard, 0.2, texts(300)) == 0  # hardly anything is near
    copies = jaccard.take(texts(10), np.arange(300) % 10)
    assert copies_by_worksets(jaccard, 0.5, copies) == 0  # each workset has thirty at home
    flat = np.random.default_rng(2).uniform(-1, 1, (500, 2))
    assert copies_by_worksets(EUCLIDEAN, 0.05, flat) == 0
    assert copies_by_worksets(EUCLIDEAN, 0.0, np.zeros((3, 2))) == 0


def test_a_cut_of_the_space_is_given_up_where_it_copies_everything_to_everywhere():
    huge = np.random.default_rng(2).uniform(-1e9, 1e9, (100, 3))  # as near to one centroid of the box as to another
    for workers, threshold, given_up in ((32, 10.0, True), (2, 10.0, False)):
        space = SpacePartitions.random(workers, 3, EUCLIDEAN, threshold)
        assert bool(copies_by_space(space, huge, PairBlocks(workers, self_join=True))) == given_up
    near = np.random.default_rng(2).uniform(-1, 1, (100, 3))
    space = SpacePartitions.random(32, 3, EUCLIDEAN, 1e-3)
    assert not copies_by_space(space, near, PairBlocks(32, self_join=True))


@pytest.mark.parametrize("options", [{}, {"balanced_ids": True}, {"crowd": 3}])
def test_what_is_placed_in_portions_makes_the_same_pairs(options):
    rng = np.random.default_rng(3)
    points = rng.uniform(-1, 1, (3000, 2))
    rows, outer = rows_of(points, rng.choice([LEFT, RIGHT], 3000)), rng.random(3000) < 0.2
    found = []
    for room in (None, 1 << 40):
        formulation = Formulation(EUCLIDEAN, 0.06, 0, room=room, **options)
        pairs = WindowJoin(EUCLIDEAN, 0.06).add(formulation.add(rows, outer).members)
        formulation.check()
        found.append(sorted(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)))
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) > 1000


def test_copies_without_room_are_refused_before_they_are_made():
    jaccard, rows = metric("jaccard"), rows_of(texts(3000))
    outer = np.arange(3000) % 5 == 0
    with pytest.raises(CrowdedError, match="blocks of pairs") as refused:
        Formulation(jaccard, 0.5, 0, room=1 << 20).add(rows, outer)
    assert refused.value.copies > 100
    pairs = WindowJoin(jaccard, 0.5, self_join=True).add(all_in_rest(0, rows, outer))
    i, j, _ = jaccard.within(rows.records, rows.records, 0.5)
    met = (i < j) & ~(outer[i] & outer[j])
    expected = sorted(zip(i[met].tolist(), j[met].tolist(), strict=True))
    assert sorted(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == expected
