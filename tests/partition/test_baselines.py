"""Hash, shuffle and time-based blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import KeyCounts, RowRule
from steelyard.kernels.xxhash import spark_hash
from steelyard.partition import Hash, Shuffle, TimeBased
from tests.partition.key_counts import key_counts, zipf_counts


@settings(deadline=None, max_examples=50)
@given(counts=key_counts(), blocks=st.integers(1, 20))
def test_hash_puts_a_key_whole_where_its_hash_says(counts, blocks):
    plan = Hash().plan(counts, blocks)
    assert plan.key.tolist() == list(range(len(counts)))
    assert plan.block.tolist() == [int(value) % blocks for value in spark_hash(counts.keys)]
    assert (plan.ksr, plan.rule) == (1.0, RowRule.HASH)


def test_a_hot_key_makes_one_hash_block_large():
    counts = KeyCounts.of({"hot": 900} | {f"k{n}": 1 for n in range(100)})
    assert Hash().plan(counts, 10).largest_over_mean > 9


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(st.integers(1, 30), max_size=15), blocks=st.integers(1, 12))
def test_shuffle_deals_rows_like_cards(rows, blocks):
    plan = Shuffle().plan(KeyCounts(pa.array(range(len(rows)), pa.int64()), np.array(rows, np.int64)), blocks)
    dealt: dict[tuple[int, int], int] = {}
    cards = [key for key, number in enumerate(rows) for _ in range(number)]
    for position, key in enumerate(cards):
        dealt[key, position % blocks] = dealt.get((key, position % blocks), 0) + 1
    shown = zip(plan.key.tolist(), plan.block.tolist(), plan.rows.tolist(), strict=True)
    assert {(key, block): number for key, block, number in shown} == dealt


@settings(deadline=None, max_examples=50)
@given(counts=key_counts(tail=False), blocks=st.integers(1, 20))
def test_shuffled_and_time_based_blocks_differ_by_one_row(counts, blocks):
    for policy, rule in ((Shuffle(), RowRule.ROUND_ROBIN), (TimeBased(), RowRule.ARRIVAL)):
        plan = policy.plan(counts, blocks)
        assert plan.sizes.max() - plan.sizes.min() <= 1
        assert plan.fragments_of_key.tolist() == np.minimum(counts.rows, blocks).tolist()
        assert plan.rule is rule


def test_many_keys_in_many_blocks_need_no_table_of_all_pairs():
    plan = Shuffle().plan(zipf_counts(200_000, 200_000, 0.2, seed=1), 2_000)
    plan.check()
    assert len(plan.rows) == 200_000
