"""Dalton's compiled loop does what the plain one says, for any stream and any parameters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.kernels.bandit import GOLDEN
from steelyard.kernels.bandit_state import first_random
from steelyard.kernels.heavy import (
    NO_ROW,
    VACANT,
    ExactCounts,
    empty_table,
    find,
    settle,
    shift_of,
    sketch_add,
    sketch_rows,
    sweep,
)
from steelyard.partition.cooperation import CooperativeDalton
from steelyard.partition.dalton import Dalton
from tests.fuzz import first_seed
from tests.kernels.twins.bandit import PlainBandit
from tests.kernels.twins.heavy import sketch_add_plain

EXTREME = st.sampled_from([-(1 << 63), (1 << 63) - 1, -1, 0])


@st.composite
def policies(draw: Any) -> Dalton:
    """Windows of a few rows, so that keys turn hot and cold, and slides leave, all the time."""
    slide = draw(st.integers(1, 8))
    hybrid_keys = draw(st.booleans()) or draw(st.booleans())
    return Dalton(
        epsilon=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        step=draw(st.sampled_from([0.1, 0.5, 1.0])),
        p1=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        initial=draw(st.sampled_from([-2.0, 0.0])),
        window=slide * draw(st.integers(1, 5)) + draw(st.integers(0, slide - 1)),
        slide=slide,
        stats_window=draw(st.integers(0, 20)),
        split_cap=draw(st.sampled_from(["2", "6", "n", "none"])),
        statistics=draw(st.sampled_from(["map", "sketch", "hybrid"])),
        sketch_width=draw(st.integers(1, 8)),
        sketch_depth=draw(st.integers(1, 3)),
        hybrid_at=draw(st.integers(0, 5)),
        heavy_hitters=draw(st.sampled_from([0, 0, 1, 3])) if hybrid_keys else 0,
        hybrid_keys=hybrid_keys,
        seed=draw(st.integers(0, 1 << 40)),
    )


@st.composite
def streams(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a few favourite keys; times stand still, walk or jump."""
    key = st.one_of(st.integers(0, 2), st.integers(-4, 12), EXTREME)
    rows = draw(st.lists(st.tuples(key, st.sampled_from([0, 0, 1, 1, 1, 2, 9, 100])), max_size=150))
    start = draw(st.integers(-50, 50))
    keys = np.array([key for key, _ in rows], np.int64)
    return keys, start + np.cumsum(np.array([step for _, step in rows], np.int64))


def plain_twin(policy: Dalton, blocks: int) -> PlainBandit:
    depth, width = policy.sketch_size(blocks)
    return PlainBandit(policy.rule(blocks), first_random(policy.seed, 0), width, depth)


@settings(deadline=None, max_examples=300)
@given(policy=policies(), stream=streams(), blocks=st.integers(1, 7), cut=st.integers(0, 150))
def test_the_compiled_loop_equals_the_plain_one_in_routes_values_loads_and_fragmentation(policy, stream, blocks, cut):
    keys, times = stream
    router, twin = policy.router(blocks), plain_twin(policy, blocks)
    for part in (slice(0, cut), slice(cut, None)):
        routed = router.route(keys[part], times[part])
        router.check()
        expected = twin.route(keys[part].tolist(), times[part].tolist())
        assert list(zip(routed.block.tolist(), routed.split.tolist(), strict=True)) == expected
        hot = router.q_table()
        assert dict(zip(hot.keys.tolist(), hot.values.tolist(), strict=True)) == twin.q
        assert router.loads.tolist() == twin.loads()
        seen = np.unique(keys)
        assert router.fragmentation(seen).tolist() == [len(twin.blocks_of(int(key))) for key in seen]
        assert router.frequencies(seen).tolist() == [twin.counts[int(key)] for key in seen]
        assert router.max_split == min(twin.max_split, blocks)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(first_seed(), first_seed() + 5))
def test_the_best_block_is_right_after_each_row_where_values_are_often_equal(seed):
    # with a step of 1 and fragmentation alone, values are -1/n, -2/n, ...
    policy = Dalton(epsilon=0.7, step=1.0, p1=0.0, window=12, slide=3, split_cap="none", hybrid_keys=False, seed=seed)
    router, twin = policy.router(5), plain_twin(policy, 5)
    for row in range(300):
        key = row % 3 + seed
        (block,) = router.route(np.array([key]), np.array([row])).block.tolist()
        router.check()
        assert [block] == [block for block, _ in twin.route([key], [row])]


@pytest.mark.parametrize(("policy", "last"), [(Dalton(), (1 << 63) - 1), (CooperativeDalton(), (1 << 62) + 1)])
def test_times_at_the_end_of_all_numbers_are_routed(policy, last):
    router = policy.router(4)
    assert len(router.route(np.array([1, 2, 1]), np.array([5, last - 1, last])).block) == 3


@pytest.mark.parametrize("new_keys", [True, False])
@pytest.mark.parametrize("hybrid_keys", [True, False])
def test_the_compiled_loop_equals_the_plain_one_while_its_table_is_swept_and_its_rows_grow(hybrid_keys, new_keys):
    draws = np.random.default_rng(4)
    tail = np.arange(4000) if new_keys else draws.integers(0, 3000, 4000)  # the latter leave the window and come back
    keys = np.where(draws.random(4000) < 0.4, draws.integers(0, 3, 4000), tail) * 7919
    policy = Dalton(window=400, slide=40, hybrid_keys=hybrid_keys, epsilon=0.3)
    router, twin = policy.router(6), plain_twin(policy, 6)
    routed = router.route(keys, np.arange(4000))
    assert routed.block.tolist() == [block for block, _ in twin.route(keys.tolist(), range(4000))]
    assert router.loads.tolist() == twin.loads()
    router.check()


CROWDED = st.integers(-8, 8).map(lambda number: (number * pow(int(GOLDEN), -1, 2**64) + 2**63) % 2**64 - 2**63)
"""Keys whose search begins at the first or the last two slots of a table."""


@settings(deadline=None, max_examples=200)
@given(
    entries=st.dictionaries(
        st.one_of(CROWDED, st.integers(-700, 700), EXTREME),
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([NO_ROW, 5])),
        max_size=300,
    )
)
def test_a_sweep_keeps_the_keys_that_matter_and_all_of_them_are_found(entries):
    table = empty_table()
    shift = shift_of(table)
    for key, (stamp, seen, row) in entries.items():
        slot = find(table, shift, key)
        settle(table, slot, key, 7)
        table[slot]["stamp"], table[slot]["seen"], table[slot]["row"] = stamp, seen, row
    living = {key for key, (stamp, seen, row) in entries.items() if stamp > 1 or seen > 2 or row != NO_ROW}
    assert sweep(table, 1, 2) == len(living) == (table["home"] != VACANT).sum()
    for key in living:
        found = table[find(table, shift, key)]
        assert (found["key"], found["home"]) == (key, key % 7)
        assert (found["stamp"], found["seen"], found["row"]) == entries[key]


@settings(deadline=None, max_examples=100)
@given(policy=policies(), stream=streams(), blocks=st.integers(1, 7))
def test_rewards_stay_in_their_bounds(policy, stream, blocks):
    keys, times = stream
    twin = plain_twin(policy, blocks)
    twin.route(keys.tolist(), times.tolist())
    p1, p2 = policy.p1, 1 - policy.p1
    # CI is above -1 and at most 1 - 1/n, CA from 1/n to 1
    assert all(-(p1 * (1 - 1 / blocks) + p2) - 1e-12 <= reward <= p1 - p2 / blocks + 1e-12 for reward in twin.rewards)


@settings(deadline=None, max_examples=100)
@given(
    keys=st.lists(st.one_of(st.integers(-3, 9), EXTREME), max_size=80),
    width=st.integers(1, 30),
    depth=st.integers(1, 4),
)
def test_a_sketch_never_estimates_too_little_and_equals_its_plain_twin(keys, width, depth):
    sketch, plain = np.zeros((depth, width), np.int64), np.zeros((depth, width), np.int64)
    true: Counter[int] = Counter()
    for row, key in enumerate(keys):
        true[key] += 1
        estimate = sketch_add(sketch, key)
        assert estimate == sketch_add_plain(plain, key)
        assert true[key] <= estimate <= row + 1
    again = np.zeros_like(sketch)
    sketch_rows(again, np.array(keys, np.int64))
    assert np.array_equal(again, sketch)


@pytest.mark.parametrize("distinct", [1, 700, 5000])
def test_exact_counts_are_exact_while_the_table_grows(distinct):
    keys = np.random.default_rng(1).integers(-distinct, distinct, 20_000) * 7919
    counts = ExactCounts()
    counts.add(keys[:9000])
    counts.add(keys[9000:])
    assert counts.to_dict() == dict(Counter(keys.tolist()))
