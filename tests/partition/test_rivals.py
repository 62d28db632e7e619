"""The policies that Dalton and Prompt are compared with, row by row."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BlockPlan, KeyCounts, OptionError, Router, TuplePolicy
from steelyard.kernels import choices, greedy
from steelyard.partition.affinity import Affinity, best_d
from steelyard.partition.cardinality import Cardinality
from steelyard.partition.d_choices import DChoices
from steelyard.partition.dagreedy import DAGreedy
from steelyard.partition.simple_routers import HashRouter, ShuffleRouter, slides_in
from steelyard.partition.two_choices import ManyChoices, TwoChoices
from steelyard.partition.w_choices import WChoices
from tests.kernels.twins.choices import route_head_plain, route_many_plain
from tests.kernels.twins.greedy import route_by_holders_plain, route_greedily_plain
from tests.kernels.twins.mixing import choice_plain

SMALL = {"window": 25, "slide": 10}
POLICIES = [
    TwoChoices(**SMALL),
    TwoChoices(window=0),
    ManyChoices(**SMALL),
    ManyChoices(choices=1, **SMALL),
    ManyChoices(head_only=True, **SMALL),
    DChoices(counters=4, refresh=3, **SMALL),
    WChoices(counters=4, estimate="lower", **SMALL),
    Affinity(),
    Affinity(**SMALL),
    Affinity("cardinality", choices=3, **SMALL),
    Affinity("weighted", choices=3, alpha=0.3, **SMALL),
    Cardinality(**SMALL),
    Cardinality(window=0),
    DAGreedy(**SMALL),
    DAGreedy(window=10, slide=10),
    DAGreedy(window=0, slide=10),
]
BOUND_TO_CANDIDATES = [
    policy
    for policy in POLICIES
    if not isinstance(policy, DAGreedy | DChoices | WChoices) and not getattr(policy, "head_only", False)
]
ROUTERS = [HashRouter, ShuffleRouter, *(policy.router for policy in POLICIES)]
each_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)
each_router = pytest.mark.parametrize("make", ROUTERS, ids=lambda make: repr(getattr(make, "__self__", make)))


@st.composite
def streams(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Keys, some of them hot and any id possible, and times with pauses of several slides."""
    key = st.integers(-2, 3) | st.integers(-50, 50) | st.sampled_from([-(2**63), 2**63 - 1])
    rows = draw(st.lists(st.tuples(key, st.sampled_from([0, 0, 1, 1, 4, 60])), max_size=70))
    start = draw(st.integers(-100, 100))
    pauses = np.array([pause for _, pause in rows], np.int64)
    return np.array([key for key, _ in rows], np.int64), start + np.cumsum(pauses)


def zipf(exponent: float, keys: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks drawn from a Zipf law, and the ids of the ranks: any 64 bits."""
    draws = np.random.default_rng(seed)
    shares = np.arange(1, keys + 1) ** -float(exponent)
    ranks = np.searchsorted(np.cumsum(shares / shares.sum()), draws.random(rows)).clip(0, keys - 1)
    return ranks, draws.integers(-(2**63), 2**63 - 1, keys)[ranks]


def twin(policy: Any, keys: list[int], times: list[int], blocks: int) -> list[int]:
    """What the plain loops say."""
    stream = keys, times, blocks, slides_in(policy.window, policy.slide), policy.slide
    if isinstance(policy, DAGreedy):
        return route_greedily_plain(*stream)[0]
    if isinstance(policy, Cardinality):
        return route_by_holders_plain(*stream, 2, greedy.FEWEST_KEYS, 0.0)
    if isinstance(policy, Affinity):
        rule = ["affinity", "cardinality", "weighted"].index(policy.mode)
        return route_by_holders_plain(*stream, policy.choices, rule, policy.alpha)
    threshold = 1 / (5 * blocks)
    if isinstance(policy, DChoices):
        return route_head_plain(*stream, policy.counters, 0, threshold, 1, 1e-3, policy.refresh)
    if isinstance(policy, WChoices):
        return route_head_plain(*stream, policy.counters, blocks, threshold, -1, 0.0, 1)
    if isinstance(policy, ManyChoices) and policy.head_only:
        return route_head_plain(*stream, 100, policy.choices, threshold, 1, 0.0, 1)
    return route_many_plain(*stream, getattr(policy, "choices", 2))


@each_policy
@settings(deadline=None, max_examples=25)
@given(stream=streams(), blocks=st.integers(1, 7))
def test_the_compiled_loop_equals_the_plain_one(policy, stream, blocks):
    keys, times = stream
    routed = policy.router(blocks).route(keys, times)
    assert routed.block.tolist() == twin(policy, keys.tolist(), times.tolist(), blocks)


@each_router
@settings(deadline=None, max_examples=15)
@given(stream=streams(), blocks=st.integers(1, 7), cuts=st.lists(st.integers(0, 70), max_size=3))
def test_a_stream_in_parts_with_states_handed_on_is_routed_as_a_whole(make, stream, blocks, cuts):
    keys, times = stream
    whole = make(blocks).route(keys, times)
    router, block, split = make(blocks), [], []
    edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    for first, last in pairwise(edges):
        part = router.route(keys[first:last], times[first:last])
        block += part.block.tolist()
        split += part.split.tolist()
        state = router.state()
        router.route(np.arange(40), np.full(40, 10**6))  # what the old router does next is its own affair
        router = make(blocks)
        router.restore(state)
    assert (block, split) == (whole.block.tolist(), whole.split.tolist())


@each_router
@settings(deadline=None, max_examples=15)
@given(stream=streams(), blocks=st.integers(1, 7))
def test_a_key_none_of_whose_rows_is_marked_split_stands_in_one_block(make, stream, blocks):
    keys, times = stream
    routed = make(blocks).route(keys, times)
    assert (routed.block.dtype, routed.split.dtype) == (np.int32, np.bool_)
    assert np.all((routed.block >= 0) & (routed.block < blocks))
    for key in np.unique(keys):
        if not routed.split[keys == key].any():
            assert len(np.unique(routed.block[keys == key])) == 1


@each_policy
def test_policies_and_routers_speak_the_common_vocabulary(policy):
    assert isinstance(policy, TuplePolicy)
    assert isinstance(policy.router(3), Router)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert policy.name in repr(policy.router(3))


@each_router
def test_read_only_keys_and_no_keys_are_routed(make):
    keys = np.array([4, 4, 9])
    keys.flags.writeable = False
    assert len(make(3).route(keys, keys).block) == 3
    assert len(make(3).route(keys[:0], keys[:0]).block) == 0


@each_router
def test_a_state_for_other_blocks_and_times_that_are_missing_are_refused(make):
    with pytest.raises(OptionError, match="3 blocks cannot go on with blocks=4"):
        make(4).restore(make(3).state())
    with pytest.raises(ValueError, match="one time a key"):
        make(4).route(np.arange(3), np.arange(2))


@pytest.mark.parametrize("policy", BOUND_TO_CANDIDATES, ids=repr)
@settings(deadline=None, max_examples=15)
@given(stream=streams(), blocks=st.integers(1, 7))
def test_rows_stay_within_a_keys_candidates(policy, stream, blocks):
    keys, times = stream
    number = getattr(policy, "choices", 2)
    for key, block in zip(keys.tolist(), policy.router(blocks).route(keys, times).block.tolist(), strict=True):
        assert block in {choice_plain(key, i, blocks) for i in range(number)}


def test_many_keys_need_more_room_than_a_router_begins_with():
    keys, times = np.arange(20_000) * 7, np.arange(20_000)
    for policy in (Affinity(), Cardinality(), DAGreedy()):
        routed = policy.router(5).route(keys, times)
        assert np.bincount(routed.block, minlength=5).sum() == 20_000


def test_two_choices_forget_rows_that_left_the_window():
    key = next(key for key in range(100) if choice_plain(key, 0, 8) != choice_plain(key, 1, 8))
    first, second = choice_plain(key, 0, 8), choice_plain(key, 1, 8)
    keys, times = np.full(5, key), np.array([0, 1, 2, 100, 101])
    assert TwoChoices(**SMALL).router(8).route(keys, times).block.tolist() == [second, first, second, second, first]
    assert TwoChoices(window=0).router(8).route(keys, times).block.tolist() == [second, first, second, first, second]


@settings(deadline=None, max_examples=25)
@given(stream=streams(), blocks=st.integers(1, 7))
def test_affinity_without_a_window_never_splits_a_key(stream, blocks):
    keys, times = stream
    routed = Affinity(choices=3).router(blocks).route(keys, times)
    assert not routed.split.any()
    assert all(len(np.unique(routed.block[keys == key])) == 1 for key in np.unique(keys))


@settings(deadline=None, max_examples=25)
@given(stream=streams(), blocks=st.integers(1, 7))
def test_dagreedys_marks_are_those_of_a_scan_of_the_window(stream, blocks):
    keys, times = stream
    for policy in (DAGreedy(**SMALL), DAGreedy(window=10, slide=10), DAGreedy(window=0, slide=10)):
        slides = slides_in(policy.window, policy.slide)
        _, split = route_greedily_plain(keys.tolist(), times.tolist(), blocks, slides, policy.slide)
        assert policy.router(blocks).route(keys, times).split.tolist() == split


def test_dagreedy_hashes_what_is_cold():
    flat = np.arange(50_000) % 25_000
    routed = DAGreedy(window=40_000, slide=20_000).router(4).route(flat, np.arange(50_000))
    assert routed.block.tolist() == (flat % 4).tolist()
    assert not routed.split.any()


def test_a_hot_key_of_dagreedy_is_spread_and_whole_again_after_a_window_at_home():
    keys = np.r_[np.arange(2_000), np.zeros(2_000, np.int64), np.arange(16_000) % 2_000]
    routed = DAGreedy(window=4_000, slide=2_000).router(4).route(keys, np.arange(20_000))
    at = np.flatnonzero(keys == 0)
    crowd = at[1:2_001]
    assert len(np.unique(routed.block[crowd])) > 1
    assert routed.split[crowd].tolist() == [False] * 5 + [True] * 1_995  # hot above 2000 / (100 * 4) rows
    assert routed.split[at[2_001]]  # the slide after
    assert not routed.split[at[2_003:]].any()
    assert set(routed.block[at[2_003:]]) == {0}


def test_more_choices_are_solved_for_as_the_inequalities_say():
    assert choices.choices_needed(10, 0, 0.0, 0.0, 1e-3) == 2
    assert choices.choices_needed(10, 1, 1.0, 1.0, 1e-3) == 10
    for largest, others in ((0.1, 0.0), (0.2, 0.1), (0.384, 0.3)):
        head, n = largest + others, 56
        size, tail = (1 if not others else 4), 1 - head

        def fits(d: int, head=head, size=size, tail=tail, largest=largest, n=n) -> bool:
            v, V = 1 - ((n - 1) / n) ** d, 1 - ((n - 1) / n) ** (size * d)
            whole = head + tail * V**2 <= V + 1e-3
            return whole and largest + (head - largest) * v**d + tail * v**2 <= v + 1e-3

        found = choices.choices_needed(n, size, head, largest, 1e-3)
        assert found == n or fits(found)
        assert not any(fits(d) for d in range(max(2, round(largest * n)), found))


def test_a_larger_head_takes_more_blocks_for_its_first_key():
    ranks, keys = zipf(1.5, 10_000, 30_000, seed=1)
    used = {}
    for policy in (TwoChoices(), ManyChoices(), DChoices(), WChoices()):
        block = policy.router(56).route(keys, np.arange(30_000)).block
        used[policy.name] = len(np.unique(block[ranks == 0]))
    assert used["pk2"] == 2
    assert used["pk5"] <= 5
    assert used["pk5"] < used["d_choices"] < used["w_choices"] == 56


def test_counts_plus_errors_take_rare_keys_for_frequent_ones_and_counts_minus_errors_do_not():
    _, keys = zipf(0.0, 10_000, 30_000, seed=1)
    pairs = {}
    for estimate in ("upper", "lower"):
        block = WChoices(estimate=estimate).router(56).route(keys, np.arange(30_000)).block
        pairs[estimate] = len(np.unique(np.c_[keys, block], axis=0))
    two = len(np.unique(np.c_[keys, TwoChoices().router(56).route(keys, np.arange(30_000)).block], axis=0))
    assert pairs["lower"] < 1.02 * two < 1.2 * two < pairs["upper"]


def test_candidates_are_added_until_that_no_longer_helps():
    _, keys = zipf(1.2, 1_000, 5_000, seed=2)
    times = np.arange(5_000)
    found = best_d(Affinity("weighted"), 16, keys, times, lambda routed: float(np.bincount(routed.block).max()))
    tried = list(found.costs)
    assert tried == list(range(2, tried[-1] + 1))
    assert found.costs[found.policy.choices] == min(found.costs.values())
    falling = [found.costs[d] for d in range(2, found.policy.choices + 1)]
    assert falling == sorted(falling, reverse=True)
    assert list(best_d(Affinity(), 16, keys, times, lambda routed: 1.0).costs) == [2, 3]
    assert list(best_d(Affinity(), 16, keys, times, lambda routed: 1.0, most=2).costs) == [2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TwoChoices(window=-1), "window of pk2 must be 0 or more, got -1"),
        (lambda: TwoChoices(slide=0), "slide of pk2 must be 1 or more, got 0"),
        (lambda: DAGreedy(window=5, slide=6), "slide=6 of dagreedy is longer than window=5"),
        (lambda: ManyChoices(choices=0), "choices of pk5 must be 1 or more, got 0"),
        (lambda: Affinity("afinity"), "did you mean 'affinity'"),  # type: ignore[arg-type]
        (lambda: Affinity(alpha=1.5), "alpha of cam must be between 0 and 1, got 1.5"),
        (lambda: Affinity(choices=0), "choices of cam"),
        (lambda: DChoices(head_factor=0), "head_factor of d_choices must be above 0, got 0"),
        (lambda: DChoices(counters=0), "counters of d_choices"),
        (lambda: DChoices(estimate="uper"), "did you mean 'upper'"),  # type: ignore[arg-type]
        (lambda: DChoices(tolerance=float("nan")), "tolerance of d_choices"),
        (lambda: DChoices(refresh=0), "refresh of d_choices"),
        (lambda: WChoices(counters=0), "counters of w_choices"),
        (lambda: Cardinality(slide=-1), "slide of cm"),
    ],
)
def test_an_option_that_cannot_be_is_named(make, message):
    with pytest.raises(OptionError, match=message):
        make()


WINDOW_SLIDES, SLIDE, ROWS = 60, 1_000, 120_000


def largest_share(block: np.ndarray, blocks: int) -> float:
    """Mean over all full windows of the largest block's share, in percent."""
    slides = np.zeros((ROWS // SLIDE, blocks), np.int64)
    np.add.at(slides, (np.arange(ROWS) // SLIDE, block), 1)
    until = np.cumsum(slides, axis=0)
    windows = until[WINDOW_SLIDES:] - until[:-WINDOW_SLIDES]
    return float(100 * (windows.max(axis=1) / windows.sum(axis=1)).mean())


def fragments_of_top_key(ranks: np.ndarray, block: np.ndarray) -> int:
    last = slice(ROWS - WINDOW_SLIDES * SLIDE, ROWS)
    return len(np.unique(block[last][ranks[last] == 0]))


@pytest.mark.parametrize(
    ("exponent", "make", "blocks", "share", "slack", "fragments"),
    [
        (0.0, HashRouter, 64, 1.69, 0.15, None),
        (0.0, ShuffleRouter, 56, 1.79, 0.01, None),
        (0.0, TwoChoices().router, 56, 1.79, 0.02, None),
        (1.0, HashRouter, 64, 9.43, 0.6, 1),
        (1.0, TwoChoices().router, 56, 4.20, 0.3, 2),
        (1.0, DAGreedy().router, 56, 2.52, 0.2, 4),
        (1.5, HashRouter, 64, 38.5, 0.5, 1),
        (1.5, ShuffleRouter, 56, 1.79, 0.01, 56),
        (1.5, TwoChoices().router, 56, 19.2, 0.5, 2),
        (1.5, DAGreedy().router, 56, 2.60, 0.2, 16),
    ],
)
def test_the_largest_share_of_a_window_is_what_a_simulation_of_the_published_rules_gave(
    exponent, make, blocks, share, slack, fragments
):
    ranks, keys = zipf(exponent, 100_000, ROWS, seed=0)
    block = make(blocks).route(keys, np.arange(ROWS)).block
    assert largest_share(block, blocks) == pytest.approx(share, abs=slack)
    if fragments is not None:
        assert fragments_of_top_key(ranks, block) == pytest.approx(fragments, abs=1 if fragments > 2 else 0)


@pytest.fixture(scope="module", params=[0.8, 1.0, 1.6])
def plans(request: Any) -> dict[str, BlockPlan]:
    """One batch of 200,000 rows over 10,000 keys in 32 blocks, by each of the dissertation's rivals."""
    ranks, keys = zipf(request.param, 10_000, 200_000, seed=3)
    present, number, rows = np.unique(ranks, return_inverse=True, return_counts=True)
    counts = KeyCounts(pa.array(present), rows)
    routers: dict[str, Router] = {
        "shuffle": ShuffleRouter(32),
        "hash": HashRouter(32),
        "pk2": TwoChoices(window=0).router(32),
        "pk5": ManyChoices(window=0).router(32),
        "affinity": Affinity().router(32),
        "cardinality": Affinity("cardinality", choices=5).router(32),
    }
    return {
        name: BlockPlan.of(
            counts, 32, key=number, block=router.route(keys, np.arange(200_000)).block, rows=np.ones(200_000)
        )
        for name, router in routers.items()
    }


def test_more_choices_balance_rows_better_and_affinity_hardly_at_all(plans):
    bsi = {name: plan.bsi for name, plan in plans.items()}
    assert bsi["shuffle"] < 1
    assert bsi["shuffle"] <= bsi["pk5"] + 1 <= bsi["pk2"] + 2 < bsi["hash"]
    assert bsi["pk2"] < bsi["affinity"] < bsi["hash"]
    assert bsi["cardinality"] < 0.35 * bsi["hash"]


def test_more_choices_cost_key_fragments_and_keys_a_block(plans):
    ksr = {name: plan.ksr for name, plan in plans.items()}
    assert ksr["hash"] == ksr["affinity"] == 1
    assert 1 < ksr["pk2"] < ksr["pk5"] < ksr["shuffle"]
    bci = {name: plan.bci / plans["shuffle"].bci for name, plan in plans.items()}
    assert bci["hash"] < bci["cardinality"] + 0.05 < bci["pk2"] + 0.05 < bci["pk5"] + 0.05 < 1.05
