import math
import pickle
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.core.errors import OptionError, SteelyardError
from steelyard.similarity import METRICS, FunctionMetric, counterexample, metric, sets

VECTORS = ["angular", "cosine", "euclidean", "manhattan", "chebyshev", "hamming"]
TEXTS = ["hamming", "jaccard", "edit"]


def taxicab(a, b):
    return float(np.abs(np.asarray(a, dtype=float) - np.asarray(b, dtype=float)).sum())


def letters(a, b):
    return float(len(set(a) ^ set(b)))


def column_of_vectors(rng, rows, dimension, narrow):
    values = rng.normal(size=(rows, dimension))
    values[values == 0] = 1.0
    for i in range(1, rows):
        change = rng.integers(5)
        if change == 0:
            values[i] = values[i - 1]
        elif change == 1:
            values[i] = values[i - 1] * (1 + 1e-15 * rng.normal(size=dimension))
        elif change == 2:
            values[i] = np.sign(values[i])
    return pa.array(values.tolist(), pa.list_(pa.float32() if narrow else pa.float64()))


def column_of_texts(rng, rows):
    words = ["a", "fine", "day", "night", "naïve", "🙂", ""]
    texts = [" ".join(rng.choice(words, size=rng.integers(0, 5))) for _ in range(rows)]
    return pa.array(texts, pa.string())


@st.composite
def samples(draw):
    """A metric and a column that it can work on."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.integers(2, 14))
    if draw(st.booleans()):
        name = draw(st.sampled_from([*VECTORS, taxicab]))
        dimension = draw(st.sampled_from([1, 2, 3, 8, 16, 17, 128, 384]))
        return metric(name), column_of_vectors(rng, rows, dimension, draw(st.booleans()))
    return metric(draw(st.sampled_from([*TEXTS, letters]))), column_of_texts(rng, rows)


def triples(pairs):
    found = list(zip(*(array.tolist() for array in pairs), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


def in_table(table, t):
    return {(i, j, table[i, j].item()) for i, j in np.argwhere(table <= t).tolist()}


@given(sample=samples(), cut=st.integers(0, 14))
@settings(max_examples=200, deadline=None)
def test_every_method_gives_the_same_distances(sample, cut):
    measure, column = sample
    records, bad = measure.records(column)
    assert not bad.any()
    cut = min(cut, len(records))
    left, right = measure.take(records, np.arange(cut)), measure.take(records, np.arange(cut, len(records)))
    whole = measure.pairwise(records, records)
    assert whole.tolist() == whole.T.tolist()
    assert not np.diagonal(whole).any()
    table = measure.pairwise(left, right)
    assert table.tolist() == whole[:cut, cut:].tolist()
    i, j = (side.ravel() for side in np.indices(table.shape))
    assert measure.rows(left, i, right, j).tolist() == table.ravel().tolist()
    some = np.unique(whole)
    for t in [0.0, 0.3, 1.0, -1.0, *some[:: max(1, len(some) // 4)].tolist(), math.inf]:
        assert triples(measure.within(left, right, t)) == in_table(table, t)
        below = math.nextafter(t, -math.inf)
        assert triples(measure.within(left, right, below)) == in_table(table, below)
    joined = measure.join(left, right)
    assert measure.pairwise(joined, joined).tolist() == whole.tolist()


@given(sample=samples(), places=st.lists(st.integers(0, 14), max_size=5), t=st.sampled_from([0.0, 0.2, 0.5, 1.0, 3.0]))
@settings(max_examples=100, deadline=None)
def test_blocks_are_searched_as_if_each_were_alone(sample, places, t):
    measure, column = sample
    records, _ = measure.records(column)
    starts = np.array([0, *sorted(min(place, len(records)) for place in places), len(records)])
    others = np.array([0, *sorted((place * 7) % (len(records) + 1) for place in places), len(records)])
    whole = measure.pairwise(records, records)
    expected = set()
    for g in range(len(starts) - 1):
        block = whole[starts[g] : starts[g + 1], others[g] : others[g + 1]]
        expected |= {(i + starts[g], j + others[g], d) for i, j, d in in_table(block, t)}
    assert triples(measure.within_groups(records, starts, records, others, t)) == expected


@pytest.mark.parametrize("name", ["angular", "euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [1, 2, 11, 12, 128])
def test_large_blocks_are_searched_exactly(name, kind, dimension):
    rng = np.random.default_rng(dimension)
    left = rng.normal(size=(130, dimension)).round(2).astype(kind)
    right = np.concatenate([left[:40], rng.normal(size=(90, dimension)).astype(kind), -left[:9], left[:9] * 2])
    left[~left.any(axis=1)] = 1
    right[~right.any(axis=1)] = 1
    measure = metric(name)
    table = measure.pairwise(left, right)
    exact = float(table[5, 60])
    for t in [0.0, 1e-9, exact, math.nextafter(exact, 0), float(np.quantile(table, 0.01)), 1.0, math.inf]:
        assert triples(measure.within(left, right, t)) == in_table(table, t)
    starts, others = np.array([0, 3, 125, 130]), np.array([0, 5, 140, 148])
    found = measure.within_groups(left, starts, right, others, exact)
    parts = [table[a:b, c:d] for a, b, c, d in zip(starts[:-1], starts[1:], others[:-1], others[1:], strict=True)]
    assert len(triples(found)) == sum(int((part <= exact).sum()) for part in parts)
    assert all(table[i, j] == d for i, j, d in triples(found))


def test_large_blocks_of_sets_and_texts_are_searched_exactly():
    column = column_of_texts(np.random.default_rng(4), 120)
    for name in TEXTS:
        measure = metric(name)
        records, _ = measure.records(column)
        table = measure.pairwise(records, records)
        for t in [0.0, 0.25, 1 / 3, 0.5, 0.999, 1.0, 2.0]:
            assert triples(measure.within(records, records, t)) == in_table(table, t)


def test_distances_are_those_of_the_textbook():
    points = np.array([[0.0, 3.0], [4.0, 0.0]])
    known = {"euclidean": 5.0, "manhattan": 7.0, "chebyshev": 4.0, "angular": 0.5, "hamming": 1.0}
    for name, expected in known.items():
        assert metric(name).pairwise(points[:1], points[1:])[0, 0] == expected


@pytest.mark.parametrize("name", VECTORS)
def test_bad_vectors_are_told_from_good_ones(name):
    values = [[1.0, 2.0], None, [1.0, math.nan], [1.0, None], [math.inf, 1.0], [3.0, 4.0]]
    measure = metric(name)
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 2)):
        column = pa.array([[9.0, 9.0], *values], kind)[1:]
        records, bad = measure.records(column)
        assert bad.tolist() == [False, True, True, True, True, False]
        assert len(records) == 6
        assert measure.value(records, 5) == [3.0, 4.0]


@pytest.mark.parametrize("name", ["angular", "euclidean"])
def test_a_vector_of_another_length_is_bad(name):
    column = pa.chunked_array([pa.array([[], [1.0, 2.0]], pa.list_(pa.float64())), pa.array([[1.0], [2.0, 2.0]])])
    assert metric(name).records(column)[1].tolist() == [True, False, True, False]
    assert metric(name).records(column, dimension=1)[1].tolist() == [True, True, False, True]


def test_a_vector_of_zeros_has_no_direction_but_a_place():
    column = pa.array([[0.0, 0.0], [1.0, 0.0]])
    assert metric("angular").records(column)[1].tolist() == [True, False]
    assert metric("cosine").records(column)[1].tolist() == [True, False]
    assert metric("euclidean").records(column)[1].tolist() == [False, False]


def test_vectors_keep_the_precision_that_they_come_in():
    assert metric("angular").records(pa.array([[1.0]], pa.list_(pa.float32())))[0].dtype == np.float32
    assert metric("angular").records(pa.array([[1.0]], pa.list_(pa.float64())))[0].dtype == np.float64
    assert metric("euclidean").records(pa.array([[1, 2]]))[0].tolist() == [[1.0, 2.0]]


def test_empty_columns_and_sides_have_no_pairs():
    for name in METRICS:
        kind = pa.list_(pa.float64()) if name in VECTORS else pa.string()
        measure = metric(name)
        records, bad = measure.records(pa.array([], kind))
        assert len(records) == len(bad) == 0
        assert [len(found) for found in measure.within(records, records, 1.0)] == [0, 0, 0]
        assert measure.pairwise(records, records).shape == (0, 0)


@given(given_=st.floats(0, 2) | st.floats(2 - 1e-14, 2) | st.floats(0, 1e-300), near=st.floats(-1e-12, 1e-12))
@example(given_=1.9999999999999998, near=3.535330008741895e-13)
@example(given_=1.9999999999999998, near=-1e-12)
@example(given_=2.0, near=0.0)
@example(given_=0.0, near=1e-12)
@example(given_=5e-324, near=1e-12)
@example(given_=1.0, near=3e-16)
@settings(max_examples=200, deadline=None)
def test_a_cosine_threshold_admits_exactly_the_angles_that_read_as_less(given_, near):
    cosine = metric("cosine")
    t = cosine.threshold(given_)
    angle = min(1.0, max(0.0, t * (1 + near)))
    assert (angle <= t) == (cosine.surface(np.array([angle]))[0] <= given_)


@given(given_=st.floats(0, 1) | st.sampled_from([0.1, 0.9, 0.1 + 0.2, 1.0, 0.0, 2 / 3]), near=st.integers(-9, 9))
@example(given_=0.9, near=0)
@pytest.mark.parametrize("name", ["angular", "cosine"])
@settings(max_examples=100, deadline=None)
def test_a_similarity_admits_exactly_what_reads_as_at_least_as_much(name, given_, near):
    measure = metric(name)
    t = measure.threshold_of(given_)
    step = np.array([t]).view(np.int64) + near
    distance = np.clip(step, 0, np.ones(1).view(np.int64)).view(np.float64)
    assert (distance[0] <= t) == (measure.similarities(measure.surface(distance))[0] >= given_)


@pytest.mark.parametrize("name", ["jaccard", "hamming"])
def test_a_share_is_admitted_by_the_similarity_that_python_computes_for_it(name):
    measure = metric(name)
    parts = [(same, all_) for all_ in range(1, 25) for same in range(all_ + 1)]
    similar = np.array([same / all_ for same, all_ in parts])
    distances = np.array([(all_ - same) / all_ for same, all_ in parts])
    assert measure.similarities(distances).tolist() == similar.tolist()
    for given_ in {
        *similar.tolist(),
        0.1 + 0.2,
        1 - 0.9,
        *np.nextafter(similar, 2).clip(0, 1),
        *np.nextafter(similar, 0),
    }:
        assert ((distances <= measure.threshold_of(given_)) == (similar >= given_)).all(), given_
        assert ((distances <= measure.threshold(given_)) == (distances <= given_)).all()


@given(k=st.integers(0, 2**26 - 1), more=st.integers(0, 2**26 - 1))
@settings(max_examples=200, deadline=None)
def test_the_share_that_is_left_is_rounded_once(k, more):
    n = max(1, min(k + more, 2**26 - 1))
    k = min(k, n)
    assert metric("jaccard").similarities(np.array([k / n, np.nan]))[0] == (n - k) / n


def test_empty_sets_are_alike_and_share_nothing_with_others():
    for name in ("jaccard", "hamming"):
        measure = metric(name)
        records, bad = measure.records(pa.array(["", "", "a"]))
        assert not bad.any()
        table = measure.pairwise(records, records)
        assert table.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
        for t in (0.0, 0.5, math.nextafter(1, 0), 1.0):
            assert triples(measure.within(records, records, t)) == in_table(table, t)


def exact_euclidean(x, y):
    """The distance of two vectors in a hundred digits."""
    with localcontext() as context:
        context.prec = 1000
        squares = sum(((Decimal(a) - Decimal(b)) ** 2 for a, b in zip(x, y, strict=True)), Decimal(0))
        return squares.sqrt()


@given(
    scale=st.sampled_from([1e149, 1e100, 1.0, 1e-100, 1e-153, 1e-160, 1e-200, 1e-300, 1e-315, 5e-324]),
    base=st.sampled_from([0.0, 1.0]),
    rows=st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=2, max_size=4),
)
@example(scale=1e-170, base=0.0, rows=[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
@settings(max_examples=150, deadline=None)
def test_no_euclidean_distance_is_lost_to_large_or_small_numbers(scale, base, rows):
    euclidean = metric("euclidean")
    points, bad = euclidean.records(pa.array((np.array(rows) * scale + base).tolist()))
    assert not bad.any()
    table = euclidean.pairwise(points, points)
    for i, x in enumerate(points.tolist()):
        for j, y in enumerate(points.tolist()):
            exact = exact_euclidean(x, y)
            assert (table[i, j] == 0) == (x == y)
            assert abs(Decimal(table[i, j].item()) - exact) <= exact * Decimal("1e-15") + Decimal("5e-324")
    many = np.tile(points, (40, 1))  # enough for every kind of search
    whole = np.tile(table, (40, 40))
    for t in {0.0, *table.ravel().tolist()}:
        assert len(euclidean.within(points, points, t)[0]) == (table <= t).sum()
        assert len(euclidean.within(many, many, t)[0]) == (whole <= t).sum()


def test_a_number_that_cannot_be_squared_makes_a_bad_row():
    column = pa.array([[1e151, 0.0], [1e150, 0.0], [-1e308, 1.0]])
    for name in ("angular", "euclidean", "manhattan", "chebyshev"):
        assert metric(name).records(column)[1].tolist() == [True, False, True]


def test_a_cosine_distance_is_one_minus_the_cosine():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(20, 6))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosine = metric("cosine")
    found = cosine.surface(cosine.pairwise(points, points).ravel())
    assert found == pytest.approx((1 - unit @ unit.T).ravel(), abs=1e-12)


@pytest.mark.parametrize("value", [-0.1, math.nan, 1.1])
def test_a_threshold_that_no_distance_can_have_is_refused(value):
    with pytest.raises(OptionError, match="threshold is"):
        metric("angular").threshold(value)
    if value != 1.1:
        with pytest.raises(OptionError, match="cosine"):
            metric("cosine").threshold(value)
    else:
        assert metric("edit").threshold(value) == value


def test_sets_are_of_words_or_of_list_members():
    jaccard = metric("jaccard")
    words, bad = jaccard.records(pa.array(["  b a  a ", None, ""]))
    assert bad.tolist() == [False, True, False]
    assert [jaccard.value(words, i) for i in range(3)] == [["a", "b"], [], []]
    numbers, bad = jaccard.records(pa.array([[3, 1, 3], [1, None], None, []]))
    assert bad.tolist() == [False, True, True, False]
    assert jaccard.value(numbers, 0) == [1, 3]
    assert jaccard.records(pa.array(["x y", "x y"]).dictionary_encode())[0].starts.tolist() == [0, 2, 4]
    with pytest.raises(OptionError, match="cast the two columns"):
        jaccard.pairwise(words, numbers)


DRAWN_SETS = {
    "texts": st.lists(st.none() | st.text("ab \u00e9\t", max_size=9), max_size=12),
    "numbers": st.lists(st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=5), max_size=12),
}


@pytest.mark.parametrize("of", DRAWN_SETS)
@given(st.data())
@settings(max_examples=60)
def test_sets_are_what_python_makes_of_them_however_they_are_cut_and_put_together(of, data):
    kind = pa.string() if of == "texts" else pa.list_(pa.int64())
    given_ = [data.draw(DRAWN_SETS[of]) for _ in range(3)]
    jaccard = metric("jaccard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_SLICE_BYTES", data.draw(st.sampled_from([1, 40, 1 << 20])))
        parts = [jaccard.records(pa.array(values, kind)) for values in given_]
    known = []
    for values, (records, bad) in zip(given_, parts, strict=True):
        holed = [value is None or (of == "numbers" and None in value) for value in values]
        assert bad.tolist() == holed
        wanted = [
            set() if none else set(value.split() if of == "texts" else value)
            for value, none in zip(values, holed, strict=True)
        ]
        assert [set(jaccard.value(records, i)) for i in range(len(values))] == wanted
        assert [set(value) for value in records.to_column().to_pylist()] == wanted
        known.append(wanted)
    first, second = parts[0][0], jaccard.join(parts[1][0], parts[2][0])
    others = known[1] + known[2]
    assert [set(jaccard.value(second, i)) for i in range(len(others))] == others
    far = [[1 - len(a & b) / len(a | b) if a | b else 0.0 for b in others] for a in known[0]]
    found = jaccard.pairwise(first, second)
    assert found.shape == (len(known[0]), len(others))
    assert np.allclose(found, np.array(far).reshape(found.shape))
    t = data.draw(st.sampled_from([0.0, 0.5, 0.75]))
    assert triples(jaccard.within(first, second, t)) == in_table(found, t)
    assert [set(jaccard.value(pickle.loads(pickle.dumps(second)), i)) for i in range(len(others))] == others


def test_hamming_compares_numbers_as_numbers():
    hamming = metric("hamming")
    records, bad = hamming.records(pa.array([[0.0, 1.0], [-0.0, 1.0], [2.0]]))
    assert not bad.any()
    assert hamming.pairwise(records, records)[0].tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(OptionError, match="cannot compare numbers with integers"):
        hamming.pairwise(records, hamming.records(pa.array([[0, 1]]))[0])


@pytest.mark.parametrize("name", list(METRICS))
def test_metrics_and_records_travel(name):
    column = pa.array([[1.0, 2.0], [2.0, 1.0]]) if name in VECTORS else pa.array(["a b", "b c"])
    measure = metric(name)
    records, _ = measure.records(column)
    again, copied = pickle.loads(pickle.dumps((measure, records)))
    assert again.pairwise(copied, copied).tolist() == measure.pairwise(records, records).tolist()


@pytest.mark.parametrize("name", list(METRICS))
def test_a_column_without_records_is_refused(name):
    with pytest.raises(OptionError, match=name):
        metric(name).records(pa.array([True, False]))


def test_vectors_of_two_lengths_are_not_compared():
    with pytest.raises(OptionError, match="one length"):
        metric("euclidean").within(np.ones((2, 3)), np.ones((2, 4)), 1.0)


@given(sample=samples(), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_metrics_have_no_counterexample(sample, seed):
    measure, column = sample
    assert counterexample(measure, measure.records(column)[0], seed) is None


def test_a_broken_triangle_is_told_with_its_values():
    def squared(a, b):
        return float((a[0] - b[0]) ** 2)

    measure = metric(squared)
    records, _ = measure.records(pa.array([[0.0], [10.0], [5.0]]))
    assert counterexample(measure, records) == (
        "metric 'squared' breaks the triangle inequality: the distance of [0.0] and [10.0] is 100, "
        "but over [5.0] it is 25 + 25 = 50"
    )


def test_a_distance_that_depends_on_the_order_is_told():
    found = counterexample(FunctionMetric(lambda a, b: max(a - b, 0.0), name="ahead"), [1.0, 4.0])
    assert found == "metric 'ahead' is not symmetric: the distance of 1.0 to 4.0 is 0, and back it is 3"


def test_a_record_away_from_itself_is_told():
    found = counterexample(FunctionMetric(lambda a, b: 1.0, name="one"), ["x"])
    assert found == "metric 'one' puts 'x' at distance 1 from itself, not at 0"


def test_what_is_no_distance_is_told_and_refused():
    wrong = FunctionMetric(lambda a, b: math.nan, name="wrong")
    assert "a distance is a finite number" in (counterexample(wrong, [1, 2]) or "")
    with pytest.raises(SteelyardError, match="metric 'wrong' gave nan for 1 and 2"):
        wrong.within([1], [2], 1.0)


def test_a_function_sees_each_pair_in_one_order():
    skewed = FunctionMetric(lambda a, b: 1.0 if a < b else 2.0 if a > b else 0.0, name="skewed")
    assert skewed.pairwise([1, 2], [1, 2]).tolist() == skewed.pairwise([1, 2], [1, 2]).T.tolist()


def test_a_function_gets_rows_text_and_structs():
    assert isinstance(metric(taxicab).records(pa.array([[1.0, 2.0]]))[0][0], np.ndarray)
    assert metric(letters).records(pa.array(["abc", None]))[1].tolist() == [False, True]
    assert metric(letters).records(pa.array([{"x": 1}]))[0] == [{"x": 1}]
    assert metric(taxicab).records(pa.array([[1.0], [2.0, 1.0], [math.nan]]), dimension=1)[1].tolist() == [
        False,
        True,
        True,
    ]


def test_what_is_no_metric_is_refused():
    with pytest.raises(OptionError, match="did you mean 'cosine'"):
        metric("cosin")
    with pytest.raises(OptionError, match="metric is 3"):
        metric(3)
    angular = metric("angular")
    assert metric(angular) is angular


def test_vectors_have_the_length_of_most_that_can_be_used():
    wild = [[float("nan"), 1.0]] * 3
    column = pa.array([[1.0, 2.0, 3.0], [1.0, 2.0], [3.0, 4.0], [], None, *wild])
    vectors, bad = metric("euclidean").records(column)
    assert vectors[~bad].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert metric("euclidean").records(pa.array([*wild, [1.0, 2.0, 3.0]]))[0][-1].tolist() == [1.0, 2.0, 3.0]
    assert metric("euclidean").records(pa.array(wild))[1].all()
