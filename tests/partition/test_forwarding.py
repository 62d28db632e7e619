"""Forwarded partials and reduced ones together are the exact counts, also while the hot keys change."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.partition.cooperation import CooperativeDalton
from steelyard.partition.dalton import Dalton
from tests.partition.forwarding import SharedSplits, forwardable, whole

BLOCKS, SLIDE, PANES = 5, 40, 4


def drifting(slides: int, seed: int, rows: int = SLIDE) -> list[np.ndarray]:
    """Rows of each slide; which key is hot changes every 1.5 slides, and so inside windows and intervals."""
    draws = np.random.default_rng(seed)
    row = np.arange(slides * rows)
    hot = (row // (rows * 3 // 2)) % 4
    keys = np.where(draws.random(len(row)) < 0.6, hot, draws.integers(0, 60, len(row)))
    return np.split(keys.astype(np.int64), slides)


def result(keys: np.ndarray, blocks: np.ndarray, forward: np.ndarray) -> dict[int, int]:
    """What a window gives: forwarded partials as they are, the others summed by the reducers."""
    partials = Counter(zip(keys.tolist(), blocks.tolist(), strict=True))
    skips = dict(zip(keys.tolist(), forward.tolist(), strict=True))
    output: list[tuple[int, int]] = [(key, rows) for (key, _), rows in partials.items() if skips[key]]
    reduced: Counter[int] = Counter()
    for (key, _), rows in partials.items():
        if not skips[key]:
            reduced[key] += rows
    output += reduced.items()
    assert len(dict(output)) == len(output), "a key has two results"
    return dict(output)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), epsilon=st.sampled_from([0.1, 0.5]), cap=st.sampled_from(["6", "none"]))
def test_a_single_partitioners_split_keys_keep_every_window_exact_under_drift(seed, epsilon, cap):
    policy = Dalton(window=SLIDE * PANES, slide=SLIDE, epsilon=epsilon, split_cap=cap, seed=seed)
    router = policy.router(BLOCKS)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    forwarded = 0
    for slide, keys in enumerate(drifting(12, seed)):
        kept.append((keys, router.route(keys, np.arange(SLIDE) + slide * SLIDE).block))
        window = kept[-PANES:]
        all_keys, blocks = (np.concatenate(part) for part in zip(*window, strict=True))
        marked = forwardable(all_keys, router.split_keys())
        assert result(all_keys, blocks, marked) == Counter(all_keys.tolist())
        assert np.all(whole(all_keys, blocks)[marked]), "what is forwarded is in one block"
        assert result(all_keys, blocks, whole(all_keys, blocks)) == Counter(all_keys.tolist())
        forwarded += int(marked.sum())
    assert forwarded > 0


def test_going_by_what_is_hot_now_would_give_a_key_two_results():
    # what the paper forwards: keys without a Q row at the window's end; they may have been split before
    policy = Dalton(window=SLIDE * PANES, slide=SLIDE, epsilon=0.5)
    router = policy.router(BLOCKS)
    kept = []
    wrong = 0
    for slide, keys in enumerate(drifting(12, 1)):
        kept.append((keys, router.route(keys, np.arange(SLIDE) + slide * SLIDE).block))
        all_keys, blocks = (np.concatenate(part) for part in zip(*kept[-PANES:], strict=True))
        cold = forwardable(all_keys, router.q_table().keys)
        wrong += int((cold & ~whole(all_keys, blocks)).sum())
    assert wrong > 0


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_several_partitioners_keep_every_window_exact_however_late_the_feedback(seed, late):
    policy = CooperativeDalton(window=SLIDE * PANES, slide=SLIDE, epsilon=0.4, seed=seed, sync="fixed")
    partitioners = [policy.router(BLOCKS, number) for number in range(2)]
    reducer, shared = policy.reducer(BLOCKS, 2), SharedSplits(SLIDE)
    streams = [drifting(14, seed), drifting(14, seed + 100)]
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    on_the_way: list[tuple[int, object]] = []
    forwarded = refused = 0
    for slide in range(14):
        times = np.arange(SLIDE) + slide * SLIDE
        for partitioner, stream in zip(partitioners, streams, strict=True):
            kept.append((stream[slide], partitioner.route(stream[slide], times).block))
            partitioner.advance((slide + 1) * SLIDE)
            for message in partitioner.take_messages():
                reducer.receive(message)
        while reducer.ready:
            on_the_way.append((slide + late, reducer.merge()))
        while on_the_way and on_the_way[0][0] <= slide:
            feedback = on_the_way.pop(0)[1]
            shared.learn(
                feedback.split, covers=feedback.covers, reaches=feedback.reaches, sync_every=feedback.sync_every
            )
            for partitioner in partitioners:
                partitioner.receive(feedback)
        window = kept[-2 * PANES :]
        all_keys, blocks = (np.concatenate(part) for part in zip(*window, strict=True))
        start = max(0, slide + 1 - PANES) * SLIDE
        marked = shared.forwardable(all_keys, start=start, end=(slide + 1) * SLIDE)
        shared.forget(before=start)
        assert result(all_keys, blocks, marked) == Counter(all_keys.tolist())
        forwarded, refused = forwarded + int(marked.sum()), refused + int((~marked).sum())
    assert refused > 0
    assert (forwarded > 0) == (late == 0), "without the round that covers the window nothing is forwarded"


def test_nothing_is_forwarded_where_rounds_are_longer_than_a_slide():
    shared = SharedSplits(slide=10)
    shared.learn(np.array([1]), covers=20, reaches=20, sync_every=20)
    assert not shared.forwardable(np.array([2]), start=0, end=20).any()


def test_empty_windows_have_nothing_to_forward():
    none = np.empty(0, np.int64)
    assert len(whole(none, none)) == len(forwardable(none, none)) == 0
    assert len(SharedSplits(1).forwardable(none, start=0, end=1)) == 0
