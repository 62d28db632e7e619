"""Tables 2.2 and 2.3 of S3J, and the run over dimensions: what is counted is what the join does, at tiny sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.claims import FAILS, HOLDS
from steelyard.bench.registry import Run, choose, experiments
from steelyard.bench.s3j import dimensions as s3j_dimensions
from steelyard.bench.s3j import parallelism as s3j_parallelism
from steelyard.bench.s3j import selectivity as s3j_selectivity
from steelyard.bench.s3j import uniform as s3j_uniform
from steelyard.bench.s3j import windows
from steelyard.bench.s3j.claims import parallelism_claims, selectivity_claims
from steelyard.bench.s3j.clusterjoin import COLLAPSED, TRUE
from steelyard.similarity import WorksetLoad
from steelyard.similarity.members import LEFT, RIGHT
from steelyard.similarity.metrics import metric as metric_of
from steelyard.similarity.window_join import Pairs

ANGULAR = metric_of("angular")


def sides_of(rows):
    return (rows.records[rows.sides == side] for side in (LEFT, RIGHT))


# one window


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.001, 0.1, 0.7, 0.999, 1.0]))
def test_pairs_counted_by_sorting_are_those_of_the_metric(seed, t):
    left, right = sides_of(windows.uniform_window(40, seed))
    assert windows.pairs_on_circle(left, right, t) == len(ANGULAR.within(left, right, t)[0])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([0.005, 0.05, 0.3]), st.integers(1, 8))
def test_what_is_counted_without_a_search_is_what_the_search_costs(seed, t, parts):
    rows, space = windows.uniform_window(60, seed), windows.space_of(parts, t)
    counted, nothing = windows.s3j(rows, space)
    done, pairs = windows.s3j(rows, space, find=True)
    assert len(nothing) == 0
    assert (counted.copies, counted.comparisons, counted.free) == (done.copies, done.comparisons, done.free)
    assert windows.check(rows, pairs, ANGULAR, t).wrong == 0


def test_a_check_sees_what_is_missing_extra_and_twice():
    rows = windows.uniform_window(50, 1)
    _, pairs = windows.s3j(rows, windows.space_of(3, 0.1), find=True)
    broken = Pairs.join([pairs, pairs])
    assert windows.check(rows, broken, ANGULAR, 0.1).repeated == len(pairs)
    assert windows.check(rows, Pairs.none(), ANGULAR, 0.1).missing == len(pairs)
    assert windows.check(rows, pairs, ANGULAR, 0.05).extra > 0


def test_the_published_streams_are_equal_and_begin_with_the_centroids():
    rows = windows.published_window(20)
    left, right = sides_of(rows)
    assert (left == right).all()
    assert np.allclose(left[:5], windows.space_of(5, 0.1).centroids)


def test_streams_of_one_seed_differ_from_each_other_and_are_the_same_again():
    left, right = sides_of(windows.uniform_window(30, 5))
    assert (left != right).all()
    assert (windows.uniform_window(30, 5).records == windows.uniform_window(30, 5).records).all()


def test_the_workers_of_clusterjoin_share_all_its_distances():
    found = windows.clusterjoin(windows.uniform_window(300, 2), 0.01, [1, 5], ANGULAR)
    for keys in (TRUE, COLLAPSED):
        one, five = found[keys][1], found[keys][5]
        assert one.workers.sum() == one.comparisons + one.to_centroids == five.workers.sum()
        assert len(five.workers) == 5
    assert found[COLLAPSED][5].comparisons > found[TRUE][5].comparisons


def test_a_ratio_at_ten_times_the_rate_has_a_tenth_of_the_centroids():
    cost = windows.Cost(10, 20, 500, 100, 7, np.array([600]))
    assert cost.ratio(100) == 6.0
    assert cost.ratio(100, faster=10) == 1.5
    assert cost.duplication == 2.0


# the tables; duplication of ClusterJoin and ratios with few centroids can be compared at any size


def test_the_published_ratios_come_out_on_the_published_streams():
    rows = windows.published_window(12_000)
    for row in s3j_selectivity.PRINTED[:2]:
        cost, _ = windows.s3j(rows, windows.space_of(5, row.t))
        nominal = windows.Denominators.of(rows, row.t).nominal
        assert cost.duplication == pytest.approx(row.s3j[0], abs=0.02)
        assert cost.ratio(nominal, faster=10) == pytest.approx(row.s3j[1], rel=0.01)


def test_the_published_clusterjoin_had_shared_keys():
    rows = windows.uniform_window(4_000, 7)
    found = s3j_selectivity.measure(rows, 0.01)
    shared, true = (found.costs[name].ratio(found.pairs.nominal, 30) for name in s3j_selectivity.METHODS[1:])
    assert shared == pytest.approx(9.70, rel=0.05)
    assert true < 4
    assert found.costs[s3j_selectivity.CJ].duplication == pytest.approx(6.17, rel=0.03)


def test_copies_explode_with_dimensions_as_in_the_replica():
    for dimension, t, cost in s3j_dimensions.unlimited():
        if (dimension, t) in s3j_dimensions.REPLICA:
            assert cost.duplication == pytest.approx(s3j_dimensions.REPLICA[dimension, t], rel=0.02)


# small runs of each


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(s3j_selectivity, "RATE", 100)
    monkeypatch.setattr(s3j_parallelism, "RATE", 100)
    monkeypatch.setattr(s3j_dimensions, "QUICK_A_SIDE", 60)
    monkeypatch.setattr(s3j_dimensions, "QUICK_DIMENSIONS", (2, 16))
    monkeypatch.setattr(s3j_dimensions, "QUICK_SIZES", (40, 80))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["s3j-selectivity", "s3j-parallelism", "s3j-dimensions"])
def test_a_small_run_finds_every_pair_and_draws_its_picture(name, tmp_path):
    result = experiments()[name].function(Run(quick=True, out=tmp_path))
    assert result.metrics["pairs_wrong"] == 0
    assert all(one.source for one in result.published)
    assert choose([name])[0].save_picture(result, tmp_path / "picture.png").stat().st_size > 10_000
    result.to_dict()


def test_verdicts_on_the_tables_follow_the_figures():
    off = ("s3j_duplication_off", "clusterjoin_duplication_off", "s3j_comparisons_off", "clusterjoin_comparisons_off")
    off += ("published_streams_duplication_off", "published_streams_comparisons_off")
    fewer = {"fewer_than_shared_keys_least": 4.2, "fewer_than_true_least": 4.1}
    copies = {"s3j_duplication_10_percent": 1.97, "s3j_duplication_5_percent": 1.95, "s3j_comparisons_0_1_percent": 5.8}
    good = selectivity_claims(dict.fromkeys(off, 0.001) | fewer | copies)
    assert {claim.verdict for claim in good} == {HOLDS}
    bad = selectivity_claims(dict.fromkeys((*off, *copies), 9.0) | dict.fromkeys(fewer, 3.9))
    assert {claim.verdict for claim in bad} == {FAILS}
    assert all(claim.reason for claim in bad)


def test_verdicts_on_workers_follow_the_figures():
    good = {
        "s3j_duplication_5_workers": 1.96,
        "s3j_duplication_20_workers": 2.62,
        "clusterjoin_duplication": 1.49,
        "s3j_comparisons_off": 0.001,
        "clusterjoin_comparisons_off": 0.001,
        "s3j_comparisons_least_fall": 0.2,
        "fewer_than_shared_keys_5_workers": 4.5,
        "fewer_than_true_5_workers": 4.1,
        "busiest_worker_vs_shared_keys": 1.9,
        "busiest_worker_vs_true": 1.9,
    }
    assert {claim.verdict for claim in parallelism_claims(good)} == {HOLDS}
    ends = {"s3j_duplication_20_workers": 1.96, "s3j_comparisons_least_fall": -0.1, "clusterjoin_duplication": 1.6}
    off = {"s3j_comparisons_off": 0.1, "clusterjoin_comparisons_off": 0.1}
    slower = {name: 1.4 for name in good if name.startswith(("fewer", "busiest"))}
    bad = parallelism_claims(good | ends | off | slower)
    assert {claim.verdict for claim in bad} == {FAILS}
    assert all(claim.reason for claim in bad)


def test_a_worker_that_is_idle_gets_worksets_and_the_verdicts_follow():
    light = [WorksetLoad(0, n, worker=0, load=1.0) for n in range(6)]
    even = s3j_uniform.claims_of(s3j_uniform.balanced([light] * 3, workers=3))
    assert [claim.verdict for claim in even] == [HOLDS, HOLDS, HOLDS, FAILS]
    heavy = [WorksetLoad(0, 1, worker=0, load=9.0), WorksetLoad(1, 1, worker=1, load=1.0)]
    stuck = s3j_uniform.claims_of(s3j_uniform.balanced([heavy] * 3, workers=2))
    assert [claim.verdict for claim in stuck] == [HOLDS, FAILS, FAILS, HOLDS]


def test_loads_of_worksets_are_those_of_the_window_that_is_counted_by_partition():
    (loads,) = s3j_uniform.workset_loads(400, seed=1, windows=1)
    cost, _ = windows.s3j(windows.uniform_window(400, 1), windows.space_of(5, s3j_uniform.T))
    assert sum(each.load for each in loads) == cost.comparisons + cost.free
    assert {each.worker for each in loads} == set(range(5))


def test_a_full_run_has_targets_that_a_quick_one_cannot_have():
    for module in (s3j_selectivity, s3j_parallelism):
        quick, full = ({target.metric for target in module._targets(faster)} for faster in (10, 1))
        assert full - quick == {"s3j_comparisons_off"}
