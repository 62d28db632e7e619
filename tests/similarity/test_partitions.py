"""Space partitions: homes, guests, and the rule that lets a pair meet once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.similarity.metrics import metric
from steelyard.similarity.partitions import Radii, SpacePartitions, java_doubles, routes

EUCLIDEAN = metric("euclidean")


def test_of_two_partitions_exactly_one_sends_to_the_other():
    one, other = np.meshgrid(np.arange(30), np.arange(30))
    different = one != other
    assert (routes(one, other) ^ routes(other, one))[different].all()


def test_the_routing_rule_spreads_guests_over_all_partitions():
    one, other = np.meshgrid(np.arange(20), np.arange(20))
    received = (routes(one, other) & (one != other)).sum(axis=1)
    assert received.min() >= 9
    assert received.max() <= 10


def test_seed_42_draws_the_numbers_of_java():
    assert java_doubles(42, 3).tolist() == [0.7275636800328681, 0.6832234717598454, 0.30871945533265976]


def test_random_centroids_cover_the_box_and_repeat_with_the_seed():
    space = SpacePartitions.random(50, 3, EUCLIDEAN, 0.1, seed=7, low=-2, high=4)
    again = SpacePartitions.random(50, 3, EUCLIDEAN, 0.1, seed=7, low=-2, high=4)
    assert (space.centroids == again.centroids).all()
    assert space.centroids.min() < -1.5
    assert space.centroids.max() > 3.5
    assert len(space) == 50


def test_farthest_centroids_are_records_that_lie_apart():
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    records = corners[rng.integers(0, 4, 200)] + rng.normal(scale=0.1, size=(200, 2))
    space = SpacePartitions.farthest(records, 4, EUCLIDEAN, 0.1, seed=1)
    nearest = EUCLIDEAN.pairwise(space.centroids, corners)
    assert sorted(nearest.argmin(axis=1).tolist()) == [0, 1, 2, 3]


def test_farthest_centroids_are_no_more_than_there_are_different_records():
    assert len(SpacePartitions.farthest(np.array([[1.0], [2.0], [1.0]]), 8, EUCLIDEAN, 0.1)) == 2


def test_farthest_centroids_of_text():
    edit = metric("edit")
    assert len(SpacePartitions.farthest(["abc", "abd", "xyzzy"], 2, edit, 1.0)) == 2


@pytest.mark.parametrize("parts", [0, -1])
def test_a_number_of_partitions_that_cannot_be_is_refused(parts):
    with pytest.raises(OptionError, match=f"partitions={parts}"):
        SpacePartitions.random(parts, 2, EUCLIDEAN, 0.1)
    with pytest.raises(OptionError, match=f"partitions={parts}"):
        SpacePartitions.farthest(np.ones((3, 2)), parts, EUCLIDEAN, 0.1)


def test_farthest_centroids_of_nothing_are_refused():
    with pytest.raises(OptionError, match="at least one record"):
        SpacePartitions.farthest(np.ones((0, 2)), 2, EUCLIDEAN, 0.1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([0.0, 0.05, 0.5]))
def test_each_record_has_one_home_and_every_partition_that_holds_a_match_is_in_reach(seed, parts, t):
    records = np.random.default_rng(seed).uniform(-1, 1, (40, 2))
    space = SpacePartitions.random(parts, 2, EUCLIDEAN, t, seed=seed % 1000)
    routed = space.route(records)
    assert routed.distances == 40 * parts
    assert (np.diff(routed.record) >= 0).all()
    distance = EUCLIDEAN.pairwise(records, space.centroids)
    at_home = ~routed.outer
    assert routed.record[at_home].tolist() == list(range(40))
    assert (routed.home[at_home] == distance.argmin(axis=1)).all()
    copies = set(zip(routed.record.tolist(), routed.partition.tolist(), strict=True))
    assert len(copies) == len(routed.record)
    home = distance.argmin(axis=1)
    meetings = [(i, j) for i, j in zip(*np.nonzero(EUCLIDEAN.pairwise(records, records) <= t), strict=True) if i < j]
    for i, j in meetings:
        if home[i] != home[j]:
            assert ((int(i), int(home[j])) in copies) != ((int(j), int(home[i])) in copies)


def test_a_batch_of_nothing_goes_nowhere():
    routed = SpacePartitions.random(3, 2, EUCLIDEAN, 0.1).route(np.zeros((0, 2)))
    assert len(routed.record) == 0
    assert routed.distances == 0


def test_records_are_routed_alike_in_large_and_small_portions(monkeypatch):
    records = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    space = SpacePartitions.random(5, 2, EUCLIDEAN, 0.1)
    whole = space.route(records)
    monkeypatch.setattr("steelyard.similarity.partitions.ROUTE_CELLS", 35)
    parts = space.route(records)
    assert (whole.record == parts.record).all()
    assert (whole.partition == parts.partition).all()


def test_rounding_moves_radii_to_the_safe_side():
    radii = Radii.of(EUCLIDEAN, 1.0)
    assert radii.inner < 0.5
    assert radii.outer > 2.0
    assert Radii.of(metric("edit"), 2.0) == Radii(1.0, 4.0)
