"""Dalton: heavy hitters by their definition, balance as published, and the same answer however it is run."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError, Router, TuplePolicy
from steelyard.partition.dalton import Dalton
from tests.partition.heavy_hitters import heavy_hitters, hot_until
from tests.partition.mdp import bandit_values, load_vectors, rows_between_influences, state_actions, states
from tests.partition.streaming_metrics import RoutedWindows, imbalance

WINDOW, SLIDE, ROWS = 60_000, 1_000, 120_000


def probabilities(exponent: float, keys: int = 100_000) -> np.ndarray:
    weights = np.arange(1, keys + 1) ** -exponent
    return weights / weights.sum()


def zipf(exponent: float, rows: int = ROWS, keys: int = 100_000, seed: int = 0) -> np.ndarray:
    """Keys drawn from a bounded Zipf law; their ids are spread, as hashed keys' are."""
    ends = np.cumsum(probabilities(exponent, keys))
    rank = np.searchsorted(ends, np.random.default_rng(seed).random(rows)).clip(max=keys - 1)
    return np.random.default_rng(99).permutation(keys)[rank].astype(np.int64)


def routed_windows(policy: Dalton, keys: np.ndarray, blocks: int) -> tuple[RoutedWindows, np.ndarray]:
    times = np.arange(len(keys))
    routed = policy.router(blocks).route(keys, times)
    return RoutedWindows(keys, routed.block, times, blocks, policy.window, policy.slide), routed.split


# Heavy hitters


@given(
    rows=st.lists(st.integers(0, 1000), max_size=60),
    blocks=st.integers(1, 70),
)
def test_there_are_never_more_heavy_hitters_than_blocks(rows, blocks):
    hot = heavy_hitters(np.array(rows, np.int64), blocks)
    assert hot.sum() <= blocks
    total = sum(rows)
    assert hot.tolist() == [count > 0 and count * blocks >= total for count in rows]


@pytest.mark.parametrize(
    ("keys", "exponent", "top_share", "distinct", "expected"),
    [
        (100_000, 1.0, 0.0827, 622, [0, 1, 2, 4]),
        (100_000, 1.5, 0.3837, 139, [1, 3, 4, 7]),
        (1_000_000, 1.0, 0.0695, 694, [0, 0, 1, 3]),
        (1_000_000, 1.5, 0.3831, 140, [1, 3, 4, 7]),
    ],
)
def test_zipf_laws_have_as_many_heavy_hitters_as_the_definition_says(keys, exponent, top_share, distinct, expected):
    share = probabilities(exponent, keys)
    assert share[0] == pytest.approx(top_share, abs=5e-5)
    assert (1 - (1 - share) ** 1000).sum() == pytest.approx(distinct, abs=1)
    rows = np.round(share * 10**12).astype(np.int64)
    assert [int(heavy_hitters(rows, blocks, 10**12).sum()) for blocks in (7, 14, 28, 56)] == expected


def test_the_bandit_holds_the_heavy_hitters_of_the_interval_before_and_of_this_one():
    # interval 100: key 1 is hot in the second, key 2 in the third; nothing can be hot in the first
    keys = np.concatenate([np.full(100, 1), np.full(100, 1), np.full(100, 2), np.full(100, 3), np.full(100, 3)])
    router = Dalton(window=1000, slide=100).router(4)
    held = []
    for interval in range(5):
        rows = slice(100 * interval, 100 * interval + 100)
        router.route(keys[rows], np.arange(500)[rows])
        held.append(router.q_table().keys.tolist())
    assert held == [[], [1], [1, 2], [2, 3], [3]]
    assert router.q_table().expiry.tolist() == [hot_until(499, 100)] == [599]


def test_a_key_that_stays_hot_keeps_its_experience_and_one_that_was_away_starts_anew():
    router = Dalton(window=1000, slide=100, epsilon=0.0).router(4)
    router.route(np.full(300, 1), np.arange(300))
    learnt = router.q_table().values[0, 1]
    router.route(np.full(100, 1), np.arange(300, 400))
    assert router.q_table().values[0, 1] != learnt
    router.route(np.full(300, 2), np.arange(400, 700))
    assert router.q_table().keys.tolist() == [2]
    router.route(np.array([1]), np.array([700]))
    assert router.q_table().keys.tolist() == [2]


@pytest.mark.parametrize("statistics", ["map", "sketch", "hybrid"])
def test_all_statistics_find_the_heavy_hitters(statistics):
    router = Dalton(statistics=statistics, hybrid_at=200, sketch_width=500).router(14)
    keys = zipf(1.5, 20_000)
    router.route(keys, np.arange(len(keys)))
    common, rows = np.unique(keys, return_counts=True)
    assert set(common[np.argsort(-rows)[:3]].tolist()) <= set(router.q_table().keys.tolist())
    assert len(router.q_table().keys) <= 14


def test_a_number_of_heavy_hitters_can_be_forced_and_all_keys_sent_through_the_bandit():
    keys = zipf(1.0, 10_000)
    times = np.arange(len(keys))
    for number in (1, 4, 20):
        router = Dalton(heavy_hitters=number).router(56)
        router.route(keys, times)
        assert len(router.q_table().keys) == number
    routed = Dalton(hybrid_keys=False).router(56).route(keys, times)
    assert routed.split.all()


# Balance and fragmentation, against a simulation of the published algorithm


@pytest.mark.parametrize(
    ("exponent", "cap", "share", "fragments"),
    [(1.5, "6", 0.070, 6), (1.5, "none", 0.036, 56), (1.0, "6", 0.031, 6)],
)
def test_hot_keys_are_split_as_far_as_the_cap_lets_them(exponent, cap, share, fragments):
    windows, split = routed_windows(Dalton(split_cap=cap), zipf(exponent), 56)
    settled = slice(WINDOW // SLIDE, None)
    assert windows.largest_share[settled].mean() == pytest.approx(share, rel=0.15)
    assert windows.fragmentation(windows.top_key)[settled].mean() == pytest.approx(fragments, abs=1)
    assert split.any()


def test_uniform_keys_are_never_split():
    windows, split = routed_windows(Dalton(), zipf(0.0), 56)
    settled = slice(WINDOW // SLIDE, None)
    assert not split.any()
    assert windows.largest_share[settled].mean() == pytest.approx(0.019, abs=0.001)
    assert windows.partials(8)[settled].sum(axis=1).mean() == pytest.approx(45_159, rel=0.01)
    assert windows.partials(8, forwarding=True).sum() == 0


def test_splitting_costs_few_partials():
    windows, _ = routed_windows(Dalton(), zipf(1.5), 56)
    settled = slice(WINDOW // SLIDE, None)
    assert windows.partials(8, forwarding=True)[settled].sum(axis=1).mean() < 100
    assert np.all(windows.aggregation_cost(8, forwarding=True) <= windows.aggregation_cost(8))


# How it is run


@st.composite
def streams(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    keys = draw(st.lists(st.one_of(st.integers(0, 2), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=200))
    steps = draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys)))
    return np.array(keys, np.int64), np.cumsum(np.array(steps, np.int64))


@settings(deadline=None, max_examples=60)
@given(stream=streams(), cut=st.integers(0, 200), statistics=st.sampled_from(["map", "sketch", "hybrid"]))
def test_a_restored_router_goes_on_as_the_first_would_and_calls_may_be_cut_anywhere(stream, cut, statistics):
    keys, times = stream
    policy = Dalton(window=50, slide=7, statistics=statistics, hybrid_at=3, epsilon=0.3)
    whole = policy.router(5).route(keys, times)
    first, second = policy.router(5), policy.router(5)
    before = first.route(keys[:cut], times[:cut])
    second.restore(pickle.loads(pickle.dumps(first.state())))
    for router in (first, second):
        after = router.route(keys[cut:], times[cut:])
        assert np.array_equal(np.r_[before.block, after.block], whole.block)
        assert np.array_equal(np.r_[before.split, after.split], whole.split)
        router.check()
    assert {name: part.tolist() for name, part in first.state().items() if name != "table"} == {
        name: part.tolist() for name, part in second.state().items() if name != "table"
    }


def test_a_state_is_plain_arrays_and_small_and_goes_only_to_an_equal_router():
    policy = Dalton(window=5_000)
    router = policy.router(8)
    keys = zipf(1.2, 30_000)
    router.route(keys, np.arange(len(keys)))
    state = router.state()
    assert all(part.dtype.names is None and part.dtype != object for part in state.values())
    assert len(state["table"]) <= len(np.unique(keys[-6_000:])) + 8
    with pytest.raises(ValueError, match="same policy and blocks"):
        policy.router(9).restore(state)


def test_the_table_grows_and_lets_go_of_keys_that_left_the_window():
    policy = Dalton(window=20, slide=10)
    router = policy.router(4)
    keys = np.arange(50_000, dtype=np.int64) * 7919
    routed = router.route(keys, np.arange(len(keys)))
    assert np.array_equal(routed.block, keys % 4)
    assert len(router.state()["table"]) <= 20


def test_partitioners_explore_differently_and_seeds_repeat():
    keys, times = np.zeros(3000, np.int64), np.arange(3000)
    policy = Dalton(window=500, slide=50)
    blocks = [policy.router(8, number).route(keys, times).block for number in (0, 0, 1)]
    assert np.array_equal(blocks[0], blocks[1])
    assert not np.array_equal(blocks[0], blocks[2])


def test_batches_are_windows_where_times_are_their_numbers():
    policy = Dalton.of_batches(window=3)
    router = policy.router(4)
    for batch in range(6):
        router.route(np.full(100, 5), np.full(100, batch))
        assert router.loads.sum() == 100 * min(batch + 1, 3)
    assert router.fragmentation(np.array([5, 6])).tolist()[1] == 0
    assert policy.split_cap == "n"


def test_a_router_is_a_router_and_takes_no_rows_and_one_block():
    policy = Dalton()
    assert isinstance(policy, TuplePolicy)
    router = policy.router(1)
    assert isinstance(router, Router)
    none = np.empty(0, np.int64)
    assert len(router.route(none, none).block) == 0
    assert router.route(np.array([-5]), np.array([3])).block.tolist() == [0]
    with pytest.raises(ValueError, match="one key and one time"):
        router.route(np.array([1, 2]), np.array([1]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 1.5}, "epsilon of dalton"),
        ({"p1": -0.1}, "p1 of dalton"),
        ({"step": 0.0}, "step of dalton"),
        ({"initial": float("nan")}, "initial of dalton"),
        ({"window": 0}, "window of dalton"),
        ({"slide": 70_000}, "slide of dalton"),
        ({"split_cap": "1"}, "split_cap of dalton"),
        ({"split_cap": "many"}, "split_cap of dalton"),
        ({"statistics": "maps"}, "did you mean 'map'"),
        ({"heavy_hitters": 3, "hybrid_keys": False}, "give one of the two"),
    ],
)
def test_a_wrong_parameter_is_named(parameters, message):
    with pytest.raises(OptionError, match=message):
        Dalton(**parameters)


# Metrics and the full problem


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=60),
    slide=st.integers(1, 4),
    panes=st.integers(1, 4),
    reducers=st.integers(1, 3),
)
def test_window_metrics_equal_counting_by_hand(rows, slide, panes, reducers):
    keys, block = (np.array(part, np.int64) for part in list(zip(*rows, strict=True))[:2])
    times = np.cumsum([step for *_, step in rows])
    windows = RoutedWindows(keys, block, times, 4, slide * panes, slide)
    slides = times // slide - times[0] // slide
    for last in range(windows.slides):
        inside = (slides > last - panes) & (slides <= last)
        pairs = set(zip(keys[inside].tolist(), block[inside].tolist(), strict=True))
        held = {key: sum(1 for of, _ in pairs if of == key) for key, _ in pairs}
        loads = np.bincount(block[inside], minlength=4)
        assert windows.loads[last].tolist() == loads.tolist()
        assert imbalance(windows.loads)[last] == pytest.approx(loads.max() - loads.mean())
        for forwarding, shown in ((False, pairs), (True, {pair for pair in pairs if held[pair[0]] > 1})):
            expected = np.bincount([key % reducers for key, _ in shown], minlength=reducers)
            assert windows.partials(reducers, forwarding=forwarding)[last].tolist() == expected.tolist()
            assert windows.aggregation_cost(reducers, forwarding=forwarding)[last] == expected.max(initial=0)
        for key in (-3, 0, 77):
            assert windows.fragmentation(key)[last] == held.get(key, 0)


def test_the_full_problem_is_as_large_as_the_paper_says():
    assert states(10, 8, 100) == pytest.approx(3.15e35, rel=0.01)
    assert states(8, 8, 100, quantum=10) == 8 * 2**64 * load_vectors(10, 8) == pytest.approx(2.87e24, rel=0.01)
    assert state_actions(8, 8, 100, quantum=10) == 8 * states(8, 8, 100, quantum=10)
    assert rows_between_influences(8, 10) == (10, 73)
    assert bandit_values(56) == 56**2
    with pytest.raises(OptionError, match="quantum"):
        states(8, 8, 100, quantum=0)
    with pytest.raises(OptionError, match="rows"):
        load_vectors(-1, 8)
