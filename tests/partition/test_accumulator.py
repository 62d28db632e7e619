"""Frequency-aware buffering: what a batch is when it ends, and what Algorithm 2 makes of it without a sort."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import KeyCounts, OptionError
from steelyard.partition.accumulator import Accumulated, Accumulator
from steelyard.partition.post_sort import PostSort
from steelyard.partition.prompt import Prompt
from tests.kernels.twins.count_tree import buffer_rows_plain
from tests.partition.key_counts import key_counts

ROWS, KEYS = 200_000, 10_000


def zipf_keys(rows: int, keys: int, exponent: float, seed: int) -> np.ndarray:
    shares = np.cumsum(np.arange(1, keys + 1) ** -float(exponent))
    return np.searchsorted(shares / shares[-1], np.random.default_rng(seed).random(rows)).astype(np.int64)


def accumulated(accumulator: Accumulator, batches: list[np.ndarray], parts: int = 1) -> Accumulated:
    """The last of several batches, one row a tick."""
    last = None
    for number, keys in enumerate(batches):
        start = number * len(keys)
        accumulator.begin(start, start + len(keys))
        for part in np.array_split(np.arange(len(keys)), parts):
            accumulator.add(keys[part], start + part)
        accumulator.check()
        last = accumulator.finish()
    assert last is not None
    return last


@pytest.fixture(scope="module", name="stream")
def _stream() -> list[np.ndarray]:
    return [zipf_keys(ROWS, KEYS, 1.0, seed) for seed in (1, 2)]


@settings(deadline=None, max_examples=60)
@given(
    batches=st.lists(
        st.lists(st.sampled_from([3, -9, 2**63 - 1, 7, 7, 7, 0]), min_size=1, max_size=60), min_size=1, max_size=4
    ),
    budget=st.integers(1, 6),
    both=st.booleans(),
    parts=st.integers(1, 5),
)
def test_batch_after_batch_is_what_the_plain_loop_gives(batches, budget, both, parts):
    accumulator = Accumulator(budget, refresh_both=both)
    for keys in map(np.array, batches):
        step, expected = accumulator.first_step, accumulator.expected_rows
        batch = accumulated(accumulator, [keys], parts)
        ids, rows, updates = buffer_rows_plain(
            keys, np.arange(len(keys)), 0.0, float(len(keys)), budget, step, expected, both
        )
        assert (batch.ids.tolist(), batch.rows.tolist(), batch.updates.tolist()) == (ids, rows, updates)


def test_counts_are_exact_and_updates_within_the_budget(stream):
    batch = accumulated(Accumulator(budget=4), stream)
    known, rows = np.unique(stream[-1], return_counts=True)
    assert batch.total == ROWS
    assert batch.distinct == len(known)
    assert batch.counts.to_dict() == dict(zip(known.tolist(), rows.tolist(), strict=True))
    assert batch.updates.max() == 4


@pytest.mark.parametrize("both", [True, False])
def test_the_order_gets_better_with_the_budget(stream, both):
    errors, updates = [], []
    for budget in (1, 2, 4, 8, 16):
        batch = accumulated(Accumulator(budget, refresh_both=both), stream)
        errors.append(batch.count_error)
        updates.append(batch.updates.mean())
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.5, "one update is as good as none"
    assert updates == pytest.approx([0.1, 0.95, 2.0, 3.5, 5.0], rel=0.15)
    assert errors[1:] == pytest.approx([0.2, 0.063, 0.027, 0.013], rel=0.6)


def test_rows_given_in_parts_are_one_batch(stream):
    whole = accumulated(Accumulator(), stream)
    parts = accumulated(Accumulator(), stream, parts=37)
    assert np.array_equal(whole.ids, parts.ids)
    assert np.array_equal(whole.rows, parts.rows)


def test_expectations_are_the_mean_of_the_last_batches():
    accumulator = Accumulator(budget=2, history=2)
    assert (accumulator.expected_rows, accumulator.expected_keys, accumulator.first_step) == (0, 0, 1)
    for keys in ([1] * 100, [1, 2, 3, 4], [1, 2, 1, 2, 1, 2, 1, 2]):
        accumulated(accumulator, [np.array(keys)])
    assert (accumulator.expected_rows, accumulator.expected_keys) == (6, 3)
    assert accumulator.first_step == 6 / (3 * 2)


def test_an_idle_interval_is_a_batch_without_rows_and_changes_no_expectation():
    accumulator = Accumulator()
    accumulated(accumulator, [np.array([5, 5, 6])])
    accumulator.begin(10, 20)
    accumulator.add(np.empty(0, np.int64), np.empty(0, np.int64))
    batch = accumulator.finish()
    assert (batch.total, batch.distinct, batch.count_error) == (0, 0, 0)
    assert (accumulator.expected_rows, accumulator.expected_keys) == (3, 2)
    Prompt().plan_sorted(batch.counts, 3).check()


def test_a_finished_batch_does_not_change_while_the_next_one_fills():
    accumulator = Accumulator()
    batch = accumulated(accumulator, [np.array([5, 5, 6])])
    accumulator.begin(0, 100)
    accumulator.add(np.full(50, 6), np.arange(50))
    assert batch.counts.to_dict() == {5: 2, 6: 1}


@pytest.mark.parametrize(("last", "order"), [(50, [1, 2]), (52, [2, 1])])
def test_a_key_below_its_frequency_step_moves_when_its_time_step_has_passed(last, order):
    accumulator = Accumulator(budget=2)
    accumulated(accumulator, [np.arange(1000) % 2])  # the frequency step is 1000 / (2 * 2) rows
    accumulator.begin(0, 100)
    accumulator.add(np.array([1, 2, 2, 2]), np.array([0, 3, 10, last]))  # key 2 has a time step of (100 - 3) / 2
    batch = accumulator.finish()
    assert batch.ids.tolist() == order
    assert batch.updates.sum() == (last >= 3 + 97 / 2)


def test_a_row_outside_of_the_batch_is_refused():
    accumulator = Accumulator()
    accumulator.begin(100, 200)
    for time in (99, 200):
        with pytest.raises(ValueError, match=rf"a row of time {time} is not of the batch \[100, 200\)"):
            accumulator.add(np.array([1]), np.array([time]))
    with pytest.raises(ValueError, match="2 keys, 1 times"):
        accumulator.add(np.array([1, 2]), np.array([150]))
    assert accumulator.finish().total == 0


def test_a_batch_is_begun_once_and_finished_once():
    accumulator = Accumulator()
    with pytest.raises(ValueError, match="no batch is open"):
        accumulator.add(np.array([1]), np.array([1]))
    with pytest.raises(ValueError, match="no batch is open"):
        accumulator.finish()
    with pytest.raises(ValueError, match="ends after it starts"):
        accumulator.begin(5, 5)
    accumulator.begin(0, 5)
    with pytest.raises(ValueError, match="still open"):
        accumulator.begin(5, 10)


@pytest.mark.parametrize("option", ["budget", "history"])
def test_options_that_make_no_sense_are_refused_by_name(option):
    with pytest.raises(OptionError, match=f"{option} of the accumulator must be 1 or more, got 0"):
        Accumulator(**{option: 0})


@settings(deadline=None, max_examples=100)
@given(
    order=st.sampled_from(["ascending", "insertion"]),
    start=st.sampled_from(["restart", "continue"]),
    scan=st.sampled_from(["all", "first_small"]),
    counts=key_counts(),
    blocks=st.integers(1, 40),
)
def test_keys_in_exact_order_need_no_sort_and_no_full_scan(order, start, scan, counts, blocks):
    prompt = Prompt(order, start)
    by_count = Prompt.order(counts)
    in_order = KeyCounts(counts.keys.take(pa.array(by_count)), counts.rows[by_count])
    planned, expected = prompt.plan_sorted(in_order, blocks, scan), prompt.plan(counts, blocks)
    placed = sorted(zip(by_count[planned.key].tolist(), planned.block.tolist(), planned.rows.tolist(), strict=True))
    assert placed == list(zip(expected.key.tolist(), expected.block.tolist(), expected.rows.tolist(), strict=True))


@settings(deadline=None, max_examples=150)
@given(order=st.sampled_from(["ascending", "insertion"]), counts=key_counts(tail=False), blocks=st.integers(1, 40))
def test_with_a_full_scan_blocks_are_equal_in_whatever_order_keys_come(order, counts, blocks):
    plan = Prompt(order).plan_sorted(counts, blocks)
    plan.check()
    assert plan.sizes.max() == -(-counts.total // blocks)


@settings(deadline=None, max_examples=100)
@given(counts=key_counts(), blocks=st.integers(1, 40))
def test_a_literal_scan_loses_no_row_either(counts, blocks):
    plan = Prompt().plan_sorted(counts, blocks, scan="first_small")
    plan.check()
    assert plan.counts is counts


def test_a_scan_that_there_is_not_is_refused():
    with pytest.raises(OptionError, match=r"unknown scan of prompt 'first'.*did you mean 'first_small'"):
        Prompt().plan_sorted(KeyCounts.of({"a": 1}), 2, scan="first")


@pytest.mark.parametrize("budget", [1, 2, 4, 8])
def test_with_a_full_scan_a_nearly_sorted_batch_is_planned_as_well_as_a_sorted_one(stream, budget):
    counts = accumulated(Accumulator(budget), stream).counts
    nearly, exact = Prompt().plan_sorted(counts, 32), Prompt().plan(counts, 32)
    assert nearly.bsi == exact.bsi == 0
    assert nearly.bci <= exact.bci + 3
    assert nearly.ksr == pytest.approx(exact.ksr, abs=0.002)


def test_a_literal_scan_cuts_more_keys_where_the_order_is_poor():
    stream = [zipf_keys(ROWS, KEYS, 0.6, seed) for seed in (1, 2)]
    split = {}
    for budget in (1, 8):
        counts = accumulated(Accumulator(budget), stream).counts
        for scan in ("all", "first_small"):
            split[budget, scan] = int(Prompt().plan_sorted(counts, 32, scan).split.sum())
    assert split[1, "first_small"] > 3 * split[1, "all"]
    assert split[8, "first_small"] < 1.5 * split[8, "all"]


def test_a_literal_scan_leaves_a_large_key_that_it_missed_in_one_block():
    counts = KeyCounts.of({"warm": 30, "rare": 2, "missed": 80, "last": 3})
    literal = Prompt().plan_sorted(counts, 2, scan="first_small")
    assert literal.fragments_of_key[2] == 1
    assert literal.bsi > 20
    assert Prompt().plan_sorted(counts, 2).bsi < 1


def test_post_sort_makes_the_plan_of_prompt_and_charges_its_sort():
    counts = KeyCounts.of({"K1": 140, "K2": 88, "K3": 45, "K4": 40, "K5": 30, "K6": 22, "K7": 12, "K8": 8})
    ours, theirs = PostSort().plan(counts, 4), Prompt().plan(counts, 4)
    assert (ours.key.tolist(), ours.block.tolist(), ours.rows.tolist()) == (
        theirs.key.tolist(),
        theirs.block.tolist(),
        theirs.rows.tolist(),
    )
    assert (ours.policy, PostSort.name) == ("prompt_postsort", "prompt_postsort")
    assert PostSort().after_cut_off(2.0, 1.0) - Prompt().after_cut_off(2.0, 1.0) == 2.0
    with pytest.raises(OptionError, match="residual_order of prompt_postsort"):
        PostSort(residual_order="descending")
