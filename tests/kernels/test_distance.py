import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels import distance as kernel
from steelyard.kernels import distance_ragged as ragged
from steelyard.kernels.distance_products import within_products
from steelyard.kernels.distance_sweep import within_sweep
from tests.kernels.twins import distance as twins
from tests.kernels.twins import distance_ragged as ragged_twins

KINDS = [kernel.ANGULAR, kernel.EUCLIDEAN, kernel.MANHATTAN, kernel.CHEBYSHEV]
DIMENSIONS = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 100, 128, 384]) | st.integers(1, 384)


@st.composite
def vectors(draw, most=12):
    """Two sides of one dimension, with copies, near copies, opposites, zeros and several scales."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dimension = draw(DIMENSIONS)
    scale = draw(st.sampled_from([1.0, 1e-3, 1e4, 1e-120, 1e120, 1e-161, 1e-300]))
    kind = draw(st.sampled_from([np.float32, np.float64])) if 1e-5 < scale < 1e5 else np.float64
    left = rng.normal(size=(draw(st.integers(1, most)), dimension)) * scale
    right = rng.normal(size=(draw(st.integers(1, most)), dimension)) * scale
    if draw(st.booleans()):
        left, right = np.round(left, 1), np.round(right, 1)
    for j in range(len(right)):
        source = left[rng.integers(len(left))]
        change = rng.integers(7)
        if change == 0:
            right[j] = source
        elif change == 1:
            right[j] = source * (1 + 1e-15 * rng.normal(size=dimension))
        elif change == 2:
            right[j] = -source
        elif change == 3:
            right[j] = source * 3
        elif change == 4:
            right[j] = source + 1e-5 * scale * rng.normal(size=dimension)
    left, right = left.astype(kind), right.astype(kind)
    left[0] = 0 if draw(st.booleans()) and draw(st.booleans()) else left[0]
    return left, right


def thresholds(table):
    """0, 1, distances that occur, and their neighbours."""
    some = np.unique(table)[:: max(1, table.size // 6)]
    around = [some, np.nextafter(some, -1), np.nextafter(some, np.inf)]
    return [0.0, 0.25, 1.0, *np.concatenate(around).tolist()]


def as_set(pairs):
    triples = list(zip(*(array.tolist() for array in pairs), strict=True))
    assert len(set(triples)) == len(triples)
    return set(triples)


def everything(left, right):
    """For each row on the left, all of the right."""
    return np.zeros(len(left), dtype=np.int64), np.full(len(left), len(right))


@pytest.mark.parametrize("kind", KINDS)
@given(sides=vectors(most=5))
@settings(max_examples=40, deadline=None)
def test_the_compiled_distance_is_its_plain_twin_to_the_bit(kind, sides):
    left, right = sides
    if kind == kernel.ANGULAR:
        assert kernel.units(left).tolist() == twins.units_plain(left).tolist()
        left, right = kernel.units(left), kernel.units(right)
    table = kernel.pairwise(kind, left, right)
    assert table.tolist() == [[twins.distance_plain(kind, x, y) for y in right] for x in left]
    assert table.tolist() == kernel.pairwise(kind, right, left).T.tolist()
    i, j = (side.ravel() for side in np.indices(table.shape))
    assert kernel.of_rows(kind, left, i, right, j).tolist() == table.ravel().tolist()


@pytest.mark.parametrize("kind", KINDS)
@given(sides=vectors())
@settings(max_examples=60, deadline=None)
def test_every_search_finds_what_the_distances_say(kind, sides):
    left, right = sides
    if kind == kernel.ANGULAR:
        left, right = kernel.units(left), kernel.units(right)
    table = kernel.pairwise(kind, left, right)
    columns = np.ascontiguousarray(right.T, dtype=np.float64)
    for t in thresholds(table):
        expected = {(i, j, table[i, j]) for i, j in np.argwhere(table <= t).tolist()}
        cut = kernel.cut_of(kind, t)
        found = kernel.within_stretches(kind, left, right, *everything(left, right), t, cut)
        assert as_set(found) == expected
        loose = cut * (1 + 1e-15 * (left.shape[1] + 8))
        assert as_set(kernel.within_columns(kind, left, right, columns, t, loose)) == expected
        assert as_set(within_sweep(kind, left, right, t, cut, 1.0)) == expected
        if kind <= kernel.EUCLIDEAN:
            products = within_products(kind, left, right, t, cut)
            assert products is None or as_set(products) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_agrees_with_the_plain_one(kind):
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(20, 5)), rng.normal(size=(30, 5))
    if kind == kernel.ANGULAR:
        left, right = kernel.units(left), kernel.units(right)
    t = float(np.quantile(kernel.pairwise(kind, left, right), 0.3))
    found = kernel.within_stretches(kind, left, right, *everything(left, right), t, kernel.cut_of(kind, t))
    assert as_set(found) == set(twins.within_plain(kind, left, right, t))
    assert len(found[0]) > 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_stretches_of_any_length_have_room(kind, share):
    rng = np.random.default_rng(4)
    left, right = rng.normal(size=(60, 3)), rng.normal(size=(900, 3))
    if kind == kernel.ANGULAR:
        left, right = kernel.units(left), kernel.units(right)
    starts, ends = np.sort(rng.integers(0, 901, (60, 2)), axis=1).T
    starts[::7] = ends[::7]  # some are empty
    starts[11], ends[11] = 0, 900
    table = kernel.pairwise(kind, left, right)
    t = float(np.quantile(table, share))
    i, j = np.nonzero(table <= t)
    inside = (starts[i] <= j) & (j < ends[i])
    found = kernel.within_stretches(kind, left, right, starts.copy(), ends.copy(), t, kernel.cut_of(kind, t))
    assert as_set(found) == set(zip(i[inside].tolist(), j[inside].tolist(), table[i, j][inside].tolist(), strict=True))


@pytest.mark.parametrize("kind", [kernel.ANGULAR, kernel.EUCLIDEAN])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_products_of_many_tiles_find_every_pair(kind, single, offset):
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(40, 24))
    left = centres[rng.integers(40, size=700)] + 0.01 * rng.normal(size=(700, 24)) + offset
    right = centres[rng.integers(40, size=5000)] + 0.01 * rng.normal(size=(5000, 24)) + offset
    if single:
        left, right = left.astype(np.float32), right.astype(np.float32)
    if kind == kernel.ANGULAR:
        left, right = kernel.units(left), kernel.units(right)
    table = kernel.pairwise(kind, left, right)
    for t in (0.0, float(np.quantile(table, 0.001)), float(np.quantile(table, 0.01))):
        found = within_products(kind, left, right, t, kernel.cut_of(kind, t))
        assert found is not None
        i, j = np.nonzero(table <= t)
        order = np.lexsort((found[1], found[0]))
        assert found[0][order].tolist() == i.tolist()
        assert found[1][order].tolist() == j.tolist()
        assert found[2][order].tolist() == table[i, j].tolist()


def test_a_sweep_gives_up_where_it_would_look_at_too_much():
    points = np.random.default_rng(1).uniform(size=(200, 2))
    assert within_sweep(kernel.EUCLIDEAN, points, points, 0.9, kernel.cut_of(kernel.EUCLIDEAN, 0.9), 0.2) is None
    assert within_sweep(kernel.EUCLIDEAN, points, points, 0.01, kernel.cut_of(kernel.EUCLIDEAN, 0.01), 0.2) is not None


def test_angles_are_exact_where_a_person_knows_them():
    axes = kernel.units(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 1.0], [5.0, 0.0]]))
    assert kernel.pairwise(kernel.ANGULAR, axes[:1], axes).tolist() == [[0.0, 0.5, 1.0, 0.25, 0.0]]


def test_a_small_angle_keeps_its_digits():
    pair = kernel.units(np.array([[1.0, 0.0], [1.0, 1e-12]]))
    assert kernel.pairwise(kernel.ANGULAR, pair[:1], pair[1:])[0, 0] == pytest.approx(1e-12 / math.pi, rel=1e-3)


def test_huge_and_tiny_vectors_have_a_direction():
    rows = np.array([[3e200, 4e200], [3e-200, 4e-200], [5e-324, 0.0]])
    assert kernel.units(rows).ravel() == pytest.approx([0.6, 0.8, 0.6, 0.8, 1.0, 0.0])


SEQUENCES = st.lists(st.lists(st.integers(0, 6), max_size=9), min_size=1, max_size=9)


def flat(sequences):
    values = np.array([value for sequence in sequences for value in sequence], dtype=np.int64)
    return values, np.cumsum([0, *map(len, sequences)], dtype=np.int64)


@pytest.mark.parametrize("kind", [ragged.JACCARD, ragged.HAMMING])
@given(left=SEQUENCES, right=SEQUENCES, t=st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 2 / 3, 0.75, 1.0]))
@settings(max_examples=150, deadline=None)
def test_ragged_distances_are_their_plain_twin(kind, left, right, t):
    if kind == ragged.JACCARD:
        left, right = [sorted(set(record)) for record in left], [sorted(set(record)) for record in right]
    plain = [[ragged_twins.distance_plain(kind, first, second) for second in right] for first in left]
    first, second = flat(left), flat(right)
    assert ragged.pairwise(kind, *first, *second).tolist() == plain
    expected = {(i, j, d) for i, row in enumerate(plain) for j, d in enumerate(row) if d <= t}
    groups = np.array([0, len(left)]), np.array([0, len(right)])
    assert as_set(ragged.within_groups(kind, *first, groups[0], *second, groups[1], t)) == expected
    if kind == ragged.JACCARD and t < 1:
        assert as_set(ragged.jaccard_within(first[0], second[0], 7, first[1], second[1], t)) == expected
