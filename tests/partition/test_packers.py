"""The packers that Prompt is contrasted with: equal blocks and few cuts, and no eye on numbers of keys."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BlockPlan, KeyCounts, Partitioner
from steelyard.kernels.best_fit import best_fit
from steelyard.kernels.xxhash import spark_hash
from steelyard.partition.allocator import HashAllocator, PromptAllocator
from steelyard.partition.first_fit import FirstFitDecreasing
from steelyard.partition.fragmentation import FragmentationMinimisation
from steelyard.partition.prompt import Prompt
from steelyard.partition.shuffle import Shuffle
from tests.kernels.twins.best_fit import best_fit_plain
from tests.partition.key_counts import key_counts, zipf_counts
from tests.partition.reference import ReferenceTables

EIGHT_KEYS = KeyCounts.of({"K1": 140, "K2": 88, "K3": 45, "K4": 40, "K5": 30, "K6": 22, "K7": 12, "K8": 8})
PACKERS = [FirstFitDecreasing(), FragmentationMinimisation()]
every_packer = pytest.mark.parametrize("packer", PACKERS, ids=lambda packer: packer.name)


def contents(plan: BlockPlan) -> list[dict[str, int]]:
    names = plan.counts.keys.to_pylist()
    blocks: list[dict[str, int]] = [{} for _ in range(plan.blocks)]
    for key, block, rows in zip(plan.key, plan.block, plan.rows, strict=True):
        blocks[block][names[key]] = int(rows)
    return blocks


def in_any_order(blocks: list[dict[str, int]]) -> list[list[tuple[str, int]]]:
    return sorted(sorted(block.items()) for block in blocks)


def test_first_fit_cuts_the_first_second_and_fourth_key_of_the_worked_example():
    plan = FirstFitDecreasing().plan(EIGHT_KEYS, 4)
    assert contents(plan) == [
        {"K1": 97},
        {"K1": 43, "K2": 54},
        {"K2": 34, "K3": 45, "K4": 18},
        {"K4": 22, "K5": 30, "K6": 22, "K7": 12, "K8": 8},
    ]
    assert plan.split.tolist() == [True, True, False, True, False, False, False, False]


def test_fragmentation_minimisation_cuts_only_the_first_key_of_the_worked_example():
    plan = FragmentationMinimisation().plan(EIGHT_KEYS, 4)
    assert in_any_order(contents(plan)) == in_any_order(
        [
            {"K1": 97},
            {"K1": 43, "K5": 30, "K6": 22},
            {"K2": 88, "K8": 8},
            {"K3": 45, "K4": 40, "K7": 12},
        ]
    )
    assert plan.split.tolist() == [True] + [False] * 7


def test_of_the_three_packers_only_prompt_evens_out_the_numbers_of_keys():
    counts = zipf_counts(2_000, 100_000, 1.0, seed=4)
    prompt, *others = (packer.plan(counts, 16) for packer in (Prompt(), *PACKERS))
    for plan in others:
        assert plan.bsi < 1
        assert plan.bci > 20 * prompt.bci
        assert plan.split.sum() <= 16


@every_packer
@settings(deadline=None, max_examples=150)
@given(counts=key_counts(), blocks=st.integers(1, 40))
def test_no_row_is_lost_and_none_is_doubled(packer, counts, blocks):
    plan = packer.plan(counts, blocks)
    plan.check()
    assert plan.counts is counts
    assert plan.sizes.sum() == counts.total


@every_packer
@settings(deadline=None, max_examples=150)
@given(counts=key_counts(tail=False), blocks=st.integers(1, 40))
def test_no_block_passes_the_mean_rounded_up_and_cuts_are_fewer_than_blocks(packer, counts, blocks):
    plan = packer.plan(counts, blocks)
    assert plan.sizes.max() == -(-counts.total // blocks)
    assert len(plan.rows) - len(counts) < blocks


@settings(deadline=None, max_examples=100)
@given(counts=key_counts(tail=False), blocks=st.integers(1, 40))
def test_fragmentation_minimisation_cuts_no_key_that_one_block_held_when_its_turn_came(counts, blocks):
    plan = FragmentationMinimisation().plan(counts, blocks)
    if len(counts) <= blocks:
        assert np.array_equal(plan.split, counts.rows > -(-counts.total // blocks))


@every_packer
def test_packers_are_partitioners_that_pickle(packer):
    assert isinstance(packer, Partitioner)
    assert pickle.loads(pickle.dumps(packer)) == packer
    with pytest.raises(ValueError, match="at least one block, got blocks=0"):
        packer.plan(EIGHT_KEYS, 0)
    assert len(packer.plan(KeyCounts.of({}), 3).rows) == 0


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    items=st.lists(st.integers(1, 40), max_size=25),
    capacity=st.integers(0, 60),
)
def test_the_compiled_best_fit_equals_the_plain_one(sizes, items, capacity):
    compiled, plain = np.array(sizes), np.array(sizes)
    blocks = best_fit(compiled, capacity, np.array(items, np.int64))
    assert blocks.tolist() == best_fit_plain(plain, capacity, np.array(items, np.int64)).tolist()
    assert compiled.tolist() == plain.tolist()


def test_a_reference_table_has_the_keys_of_its_block_and_whether_they_are_split():
    tables = ReferenceTables.of(Prompt().plan(EIGHT_KEYS, 4))
    names = np.array(EIGHT_KEYS.keys.to_pylist())
    third = tables.block(2)
    assert names[third.key].tolist() == ["K1", "K2", "K5", "K8"]
    assert third.split.tolist() == [True, True, False, False]
    assert third.rows.tolist() == [25, 31, 30, 8]
    with pytest.raises(ValueError, match="there is no block 4 among 4"):
        tables.block(4)


@settings(deadline=None, max_examples=100)
@given(counts=key_counts(), blocks=st.integers(1, 20))
def test_reference_tables_hold_each_fragment_once(counts, blocks):
    plan = Prompt().plan(counts, blocks)
    tables = ReferenceTables.of(plan)
    held: list[tuple[int, int, int]] = []
    for number in range(blocks):
        table = tables.block(number)
        held += [(key, number, rows) for key, rows in zip(table.key.tolist(), table.rows.tolist(), strict=True)]
    assert sorted(held) == list(zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True))


@pytest.mark.parametrize("policy", [Prompt(), Prompt("insertion"), Shuffle(), *PACKERS], ids=repr)
@pytest.mark.parametrize("allocator", [PromptAllocator(), PromptAllocator(rotate=False), HashAllocator()], ids=repr)
@settings(deadline=None, max_examples=25)
@given(counts=key_counts(), blocks=st.integers(1, 12), buckets=st.integers(1, 9))
def test_a_key_has_one_bucket_over_all_map_tasks(policy: Any, allocator: Any, counts, blocks, buckets):
    tables = ReferenceTables.of(policy.plan(counts, blocks))
    allotted = tables.allot(allocator, spark_hash(counts.keys), buckets)
    assert len(allotted) == blocks
    bucket_of: dict[int, int] = {}
    for number, plan in enumerate(allotted):
        plan.check()
        for key, bucket in zip(tables.block(number).key.tolist(), plan.bucket.tolist(), strict=True):
            assert bucket_of.setdefault(key, bucket) == bucket
    assert len(bucket_of) == len(counts)
