"""Nearest assignments and counts: all that brute force finds, and nothing that is not allowed."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.kernels.nearest import (
    nearest_assignments,
    nearest_assignments_of_each,
    nearest_counts,
    nearest_counts_of_each,
)
from tests.fuzz import first_seed
from tests.kernels.twins.nearest import (
    assignment_distances,
    assignments_by_milp,
    count_distances,
    one_hot,
)


def proto_of(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Of many kinds: even, wide, with ties, and with numbers far outside of what is allowed."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.random((rows, columns))
    if kind == 1:
        return rng.normal(0, 3, (rows, columns))
    if kind == 2:
        return rng.integers(0, 3, (rows, columns)) / 2.0
    if kind == 3:
        return np.full((rows, columns), rng.choice([-1e6, 0.0, 0.5, 1e6]))
    return rng.choice([-50.0, 0.0, 0.3, 50.0], (rows, columns))


@pytest.mark.drawn
def test_nearest_assignments_are_those_of_brute_force():
    for seed in range(first_seed(), first_seed() + 150):
        rng = np.random.default_rng(seed)
        proto = proto_of(rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        most = int(rng.integers(1, 40))
        found = nearest_assignments(proto, most)
        distances = ((one_hot(found, proto.shape[1]) - proto) ** 2).sum(axis=(1, 2))
        np.testing.assert_allclose(distances, assignment_distances(proto, most), rtol=1e-12, atol=1e-9)
        assert len({tuple(one) for one in found.tolist()}) == len(found)


@pytest.mark.drawn
def test_nearest_assignments_are_those_of_the_mixed_integer_program():
    for seed in range(first_seed(), first_seed() + 12):
        rng = np.random.default_rng(seed)
        proto = rng.random((int(rng.integers(2, 12)), int(rng.integers(2, 6))))
        found, exact = nearest_assignments(proto, 6), assignments_by_milp(proto, 6)
        columns = proto.shape[1]
        ours, theirs = (((one_hot(one, columns) - proto) ** 2).sum(axis=(1, 2)) for one in (found, np.array(exact)))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.drawn
def test_nearest_counts_are_those_of_brute_force():
    for seed in range(first_seed(), first_seed() + 150):
        rng = np.random.default_rng(seed)
        rows, columns = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        limits = rng.integers(1, 5, rows)
        proto = proto_of(rng, rows, columns) * rng.choice([1, 3])
        most = int(rng.integers(1, 25))
        exactly = bool(rng.integers(2))
        found = nearest_counts(proto, limits, exactly, most)
        distances = ((found - proto) ** 2).sum(axis=(1, 2))
        np.testing.assert_allclose(distances, count_distances(proto, limits, exactly, most), rtol=1e-12, atol=1e-9)
        assert len({one.tobytes() for one in found}) == len(found)


@pytest.mark.parametrize("value", [-1e6, -1.0, 0.0, 0.5, 3.0, 1e6])
def test_counts_are_allowed_whatever_is_wished_for(value):
    limits = np.array([1, 2, 45, 9])
    rng = np.random.default_rng(1)
    for proto in (np.full((4, 10), value), value * rng.normal(size=(4, 10)), value * rng.choice([-1, 1], (4, 10))):
        found = nearest_counts(proto, limits, False, 10)
        sums = found.sum(axis=2)
        assert found.min() >= 0
        assert sums.min() >= 1
        assert (sums <= limits).all()


def test_many_at_once_are_as_each_by_itself():
    rng = np.random.default_rng(2)
    protos = rng.random((3, 4, 2))
    many = nearest_assignments_of_each(protos, 20)
    for proto, found in zip(protos, many, strict=True):
        alone = nearest_assignments(proto, 20)
        assert np.array_equal(found[:16], alone)
        assert (found[16:] == alone[0]).all()
    limits = np.array([1, 1, 1, 1])
    counted = nearest_counts_of_each(protos, limits, False, 20)
    for proto, found in zip(protos, counted, strict=True):
        assert np.array_equal(found[:16], nearest_counts(proto, limits, False, 20))
        assert np.array_equal(found[16:], np.repeat(found[:1], 4, axis=0))
