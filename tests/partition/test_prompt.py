"""Prompt's Algorithm 2: the worked example, how equal its blocks are, and what its options change."""

from __future__ import annotations

from collections import defaultdict
from math import ceil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.core import BlockPlan, KeyCounts
from steelyard.partition import Hash, Prompt, Shuffle
from steelyard.partition.prompt import _zigzag
from tests.partition.key_counts import key_counts, zipf_counts

EIGHT_KEYS = KeyCounts.of({"K1": 140, "K2": 88, "K3": 45, "K4": 40, "K5": 30, "K6": 22, "K7": 12, "K8": 8})
OPTIONS = st.builds(Prompt, st.sampled_from(["ascending", "insertion"]), st.sampled_from(["restart", "continue"]))


def contents(plan: BlockPlan) -> list[dict[str, int]]:
    names = plan.counts.keys.to_pylist()
    blocks: list[dict[str, int]] = [{} for _ in range(plan.blocks)]
    for key, block, rows in zip(plan.key, plan.block, plan.rows, strict=True):
        blocks[block][names[key]] = int(rows)
    return blocks


def algorithm_2(counts: dict[str, int], blocks: int) -> list[dict[str, int]]:
    """Algorithm 2 with ascending residuals, step by step; for input on which nothing overflows."""
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    size = ceil(sum(counts.values()) / blocks)
    cut = max(1, int(size / max(1, len(counts) / blocks)))
    plan: list[dict[str, int]] = [defaultdict(int) for _ in range(blocks)]
    large = [(key, rows) for key, rows in ordered if rows > cut]
    for i, (key, _) in enumerate(large):
        plan[i % blocks][key] += cut
    order = list(range(blocks))
    small = ordered[len(large) :]
    for first in range(0, len(small), blocks):
        for block, (key, rows) in zip(order, small[first : first + blocks], strict=False):
            plan[block][key] += rows
        order.reverse()

    def hole(block: int) -> int:
        return size - sum(plan[block].values())

    for i, (key, rows) in reversed(list(enumerate(large))):
        left = rows - cut
        home = min(left, max(0, hole(i % blocks)))
        plan[i % blocks][key] += home
        left -= home
        while left:
            fitting = [block for block in range(blocks) if hole(block) >= left]
            target = min(fitting, key=hole) if fitting else max(range(blocks), key=hole)
            part = min(left, max(1, hole(target)))
            plan[target][key] += part
            left -= part
    return [{key: rows for key, rows in block.items() if rows} for block in plan]


def test_the_worked_example_of_eight_keys_in_four_blocks():
    plan = Prompt().plan(EIGHT_KEYS, 4)
    assert contents(plan) == [
        {"K1": 52, "K3": 45},
        {"K2": 57, "K4": 40},
        {"K5": 30, "K8": 8, "K1": 25, "K2": 31},
        {"K6": 22, "K7": 12, "K1": 63},
    ]
    assert plan.sizes.tolist() == [97, 97, 94, 97]
    assert len(plan.rows) == 11
    assert plan.split.tolist() == [True, True] + [False] * 6
    assert (plan.bsi, plan.ksr) == (97 - 385 / 4, 11 / 8)


def test_the_worked_example_does_not_depend_on_the_order_of_the_keys():
    turned = KeyCounts.of(dict(reversed(EIGHT_KEYS.to_dict().items())))
    assert contents(Prompt().plan(turned, 4)) == contents(Prompt().plan(EIGHT_KEYS, 4))


@pytest.mark.parametrize("exponent", [0.3, 0.8, 1.2, 2.0])
@pytest.mark.parametrize("blocks", [1, 2, 7, 16])
def test_plans_are_those_of_the_listing(exponent, blocks):
    drawn = zipf_counts(400, 20_000, exponent, seed=blocks)
    expected = algorithm_2(drawn.to_dict(), blocks)
    assert max(sum(block.values()) for block in expected) == ceil(20_000 / blocks), "the listing overflows here"
    assert contents(Prompt().plan(drawn, blocks)) == expected


@settings(deadline=None, max_examples=200)
@given(prompt=OPTIONS, counts=key_counts(tail=False), blocks=st.integers(1, 70))
@example(prompt=Prompt(), counts=KeyCounts.of({**dict.fromkeys("abcde", 20), "f": 1}), blocks=4)
@example(prompt=Prompt(), counts=KeyCounts.of({**dict.fromkeys("abcdefghijkl", 100), "m": 1}), blocks=8)
def test_the_largest_block_is_the_mean_rounded_up(prompt, counts, blocks):
    """No block passes ceil(N/P), so BSI is what rounding leaves, ceil(N/P) - N/P < 1: no plan has less.

    Slices and whole keys are stopped at ceil(N/P), and the holes left then, P ceil(N/P) - placed, hold all
    that is still to be placed: as long as a row is left there is a hole, and no hole is ever overfilled.
    """
    plan = prompt.plan(counts, blocks)
    assert plan.sizes.max() == -(-counts.total // blocks)


@settings(deadline=None, max_examples=50)
@given(prompt=OPTIONS, counts=key_counts(), blocks=st.integers(1, 70))
def test_with_a_tail_the_largest_block_is_at_most_one_row_more(prompt, counts, blocks):
    assert prompt.plan(counts, blocks).sizes.max() <= -(-counts.total // blocks) + 1


@settings(deadline=None, max_examples=100)
@given(prompt=OPTIONS, counts=key_counts(tail=False), blocks=st.integers(1, 70))
def test_keys_of_one_row_are_never_split_and_no_key_more_often_than_it_has_rows(prompt, counts, blocks):
    plan = prompt.plan(counts, blocks)
    assert np.all(plan.fragments_of_key <= np.minimum(counts.rows, blocks))


@settings(deadline=None, max_examples=50)
@given(keys=st.integers(1, 200), each=st.integers(1, 9), blocks=st.integers(1, 20))
def test_equal_keys_that_can_be_dealt_evenly_are_not_split(keys, each, blocks):
    plan = Prompt().plan(KeyCounts.of(dict.fromkeys(range(keys * blocks), each)), blocks)
    assert plan.sizes.tolist() == [keys * each] * blocks
    assert plan.cardinalities.tolist() == [keys] * blocks
    assert plan.ksr == 1.0


@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.4])
def test_ascending_residuals_split_far_fewer_keys_than_insertion_order(exponent):
    for seed in range(5):
        counts = zipf_counts(10_000, 200_000, exponent, seed)
        ascending = Prompt("ascending").plan(counts, 32)
        insertion = Prompt("insertion").plan(counts, 32)
        assert ascending.split.sum() * 10 < insertion.split.sum()
        assert ascending.ksr < insertion.ksr
        assert ascending.bci * 10 < insertion.bci
        assert ascending.bci < 5
        assert ascending.ksr < 1.01
        assert ascending.bsi == insertion.bsi == 0


@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.4])
def test_prompt_beats_hash_on_sizes_and_shuffle_on_keys(exponent):
    counts = zipf_counts(10_000, 200_000, exponent, seed=9)
    prompt, by_hash, shuffled = (policy.plan(counts, 32) for policy in (Prompt(), Hash(), Shuffle()))
    assert prompt.bsi < by_hash.bsi / 100
    assert prompt.bci < shuffled.bci / 100
    assert prompt.bci < by_hash.bci
    assert prompt.ksr < shuffled.ksr / 2
    assert prompt.mpi_normalised() < min(by_hash.mpi_normalised(), shuffled.mpi_normalised())


def test_whole_keys_go_forward_and_backward():
    assert _zigzag(8, 3, 0).tolist() == [0, 1, 2, 2, 1, 0, 0, 1]


def test_whole_keys_continue_where_the_slices_ended():
    assert _zigzag(8, 3, 4).tolist() == [1, 2, 2, 1, 0, 0, 1, 2]
    counts = KeyCounts.of({"hot": 60, "a": 3, "b": 2, "c": 1})
    restart = contents(Prompt(zigzag_start="restart").plan(counts, 3))
    carry_on = contents(Prompt(zigzag_start="continue").plan(counts, 3))
    assert ["a" in block for block in restart] == [True, False, False]
    assert ["a" in block for block in carry_on] == [False, True, False]


@settings(deadline=None, max_examples=50)
@given(keys=st.integers(0, 60), blocks=st.integers(1, 9), start=st.integers(0, 30))
def test_zigzag_deals_each_round_once_to_every_block(keys, blocks, start):
    dealt = _zigzag(keys, blocks, start)
    first = blocks - start % blocks
    for at in range(first, keys - blocks + 1, blocks):
        assert sorted(dealt[at : at + blocks].tolist()) == list(range(blocks))


def test_one_hot_key_fills_every_block():
    plan = Prompt().plan(KeyCounts.of({"only": 10}), 4)
    assert plan.sizes.tolist() == [3, 3, 3, 1]
    assert plan.ksr == 4.0


def test_more_blocks_than_keys_cut_keys_to_equal_blocks():
    plan = Prompt().plan(KeyCounts.of({"a": 30, "b": 20, "c": 10}), 6)
    assert plan.sizes.tolist() == [10] * 6
    assert len(plan.rows) == 6
