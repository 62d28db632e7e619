"""Facts of the vectors that a similarity join relies on."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.workloads import Arrivals, workload
from steelyard.workloads.vectors import DISTRIBUTIONS, SLAB, Vectors, _directions

ROWS = 20_000
TIMES = Arrivals().times(0, ROWS)
"""1,000 rows per second."""


def vectors(**parameters: object) -> np.ndarray:
    column = workload("vectors", **parameters).rows(0, ROWS, TIMES).column("vector")
    return np.asarray(column.flatten()).reshape(ROWS, -1)


def hot_topics(made: Vectors, parts: int) -> list[int]:
    rows = np.arange(ROWS, dtype=np.uint64)
    topics = made._topics(rows, made._epochs(rows, TIMES))
    return [int(np.bincount(part).argmax()) for part in np.split(topics, parts)]


@settings(deadline=None, max_examples=40)
@given(
    distribution=st.sampled_from(DISTRIBUTIONS),
    dimension=st.sampled_from([1, 2, 3, 8, 129]),
    first=st.integers(0, 10**10),
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    drift=st.sampled_from([{}, {"drift_every": 7, "drift_turn": 31.7}, {"drift_every": 0.01, "drift_unit": "seconds"}]),
)
def test_vectors_do_not_depend_on_how_the_stream_is_cut(
    distribution: str, dimension: int, first: int, counts: list[int], drift: dict[str, object]
) -> None:
    drifts = drift if distribution == "topics" else {}
    made = workload("vectors", distribution=distribution, dimension=dimension, seed=3, **drifts)
    cuts = np.cumsum([first, *counts]).tolist()
    times = Arrivals(origin=10**15)
    parts = [made.rows(a, b - a, times.times(a, b - a)) for a, b in itertools.pairwise(cuts)]
    whole = made.rows(first, cuts[-1] - first, times.times(first, cuts[-1] - first))
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dimension", [1, 2, 17, 128])
def test_every_vector_has_the_dimension_and_finite_coordinates(distribution: str, dimension: int) -> None:
    column = workload("vectors", distribution=distribution, dimension=dimension).rows(0, 100, TIMES[:100])["vector"]
    assert set(column.value_lengths().to_pylist()) == {dimension}
    assert np.isfinite(np.asarray(column.flatten())).all()


def test_rows_are_the_same_on_both_sides_of_a_slab() -> None:
    made = workload("vectors", dimension=4096, seed=5)
    edge = SLAB // 4096
    whole = made.rows(0, edge + 3, TIMES[: edge + 3])
    assert made.rows(edge - 1, 3, TIMES[edge - 1 : edge + 2]).equals(whole.slice(edge - 1, 3))


def test_ids_are_row_numbers() -> None:
    assert workload("vectors").rows(7, 3, TIMES[:3])["id"].to_pylist() == [7, 8, 9]


def test_uniform_coordinates_are_spread_from_minus_one_to_one() -> None:
    made = vectors(dimension=3)
    assert made.min() >= -1
    assert made.max() < 1
    assert made.mean(axis=0) == pytest.approx([0, 0, 0], abs=0.02)
    assert made.var(axis=0) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert abs(np.corrcoef(made.T) - np.eye(3)).max() < 0.03


def test_the_share_of_uniform_pairs_within_an_angle_is_that_of_theory() -> None:
    one, other = vectors(seed=1)[:3000], vectors(seed=2)[:3000]
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (one, other)]
    distance = np.arccos(np.clip(unit[0] @ unit[1].T, -1, 1)) / np.pi
    assert (distance <= 0.01).mean() == pytest.approx(np.pi / 3 * 0.01, rel=0.03)


def test_gaussian_coordinates_have_the_mean_and_the_deviation() -> None:
    made = vectors(distribution="gaussian")
    assert made.mean() == pytest.approx(-1, abs=0.03)
    assert made.std() == pytest.approx(2, abs=0.03)
    other = vectors(distribution="gaussian", mean=3, deviation=0.5)
    assert other.mean() == pytest.approx(3, abs=0.02)
    assert other.std() == pytest.approx(0.5, abs=0.02)


def test_skewed_gaussian_vectors_all_point_the_same_way() -> None:
    made = vectors(distribution="skewed_gaussian")
    assert 0.980 < made.min() < made.max() < 0.992
    angle = np.degrees(np.arctan2(made[:, 1], made[:, 0]))
    assert abs(angle - 45).max() < 0.3


def test_pareto_coordinates_follow_the_law() -> None:
    made = vectors(distribution="pareto", shape=3, scale=2)
    assert made.min() >= 2
    assert np.quantile(made, [0.5, 0.9, 0.99]) == pytest.approx(
        [2 * (1 - p) ** (-1 / 3) for p in (0.5, 0.9, 0.99)], rel=0.03
    )


def test_there_are_eight_topics_in_eight_directions_by_zipf() -> None:
    made = vectors(distribution="topics", seed=1)
    directions = _directions(8, 2, 1)
    assert len({tuple(row) for row in directions.tolist()}) == 8
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (made, directions)]
    share = np.bincount((unit[0] @ unit[1].T).argmax(axis=1), minlength=8) / ROWS
    law = 1 / np.arange(1, 9) ** 2
    assert share == pytest.approx(law / law.sum(), abs=0.02)


def test_many_topics_in_many_dimensions_differ() -> None:
    directions = _directions(500, 64, seed=2)
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    closeness = unit @ unit.T - np.eye(500)
    assert closeness.max() < 0.93  # the first eight are as near to each other as in the plane


@pytest.mark.parametrize("drift", [{"drift_every": 2500}, {"drift_every": 2.5, "drift_unit": "seconds"}])
def test_every_topic_is_the_hottest_once_when_they_drift(drift: dict[str, object]) -> None:
    made = workload("vectors", distribution="topics", seed=4, **drift)
    assert sorted(hot_topics(made, 8)) == list(range(8))


def test_without_drift_one_topic_stays_the_hottest() -> None:
    assert hot_topics(workload("vectors", distribution="topics", seed=4), 8) == [0] * 8


def test_topics_that_turn_leave_the_places_where_they_were() -> None:
    made = vectors(distribution="topics", exponent=4, shape=100, drift_every=ROWS // 2, drift_turn=20, topics=1)
    angles = np.degrees(np.arctan2(made[:, 1], made[:, 0]))
    before, later = angles[: ROWS // 2], angles[ROWS // 2 :]
    assert later.mean() - before.mean() == pytest.approx(20, abs=0.1)
    assert later.min() > before.max()


def test_turning_keeps_lengths() -> None:
    parameters = {"distribution": "topics", "dimension": 5, "drift_every": 1000, "seed": 1}
    still, turned = vectors(**parameters), vectors(**parameters, drift_turn=33)
    assert np.linalg.norm(still, axis=1) == pytest.approx(np.linalg.norm(turned, axis=1))
    assert np.array_equal(still[:, 4], turned[:, 4])  # the odd one out has no plane to turn in


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"distribution": "unifrom"}, "did you mean 'uniform'"),
        ({"dimension": 0}, "option 'dimension' must be between 1 and 4096"),
        ({"topics": 9}, "option 'topics' must be between 1 and 8, got 9"),
        ({"shape": 0}, "option 'shape'"),
        ({"drift_every": 10}, "'drift_every' .* is for the distribution 'topics'"),
        ({"distribution": "topics", "drift_turn": 5}, "'drift_turn' .* needs 'drift_every'"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        workload("vectors", **parameters)


def test_too_many_coordinates_at_a_time_are_refused() -> None:
    with pytest.raises(ValueError, match="ask for fewer"):
        workload("vectors", dimension=4096).rows(0, 600_000, np.zeros(600_000, dtype=np.int64))
