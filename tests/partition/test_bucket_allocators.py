"""Prompt's Algorithm 3 and hashing: to which reduce bucket each key cluster of a map task goes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BucketAllocator
from steelyard.partition import HashAllocator, PromptAllocator

ALLOCATORS = [HashAllocator(), PromptAllocator(), PromptAllocator(rotate=False)]
LONGS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def clusters(draw: Any, split: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, whether split, and hashes of the clusters of one map task."""
    weights = draw(st.lists(st.integers(1, 1000), max_size=40))
    flags = [split and draw(st.booleans()) for _ in weights]
    hashes = [draw(LONGS) for _ in weights]
    return np.array(weights, np.int64), np.array(flags, bool), np.array(hashes, np.int64)


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=repr)
@settings(deadline=None, max_examples=50)
@given(given_=clusters(), buckets=st.integers(1, 9), task=st.integers(0, 20))
def test_every_cluster_has_one_bucket_and_no_weight_is_lost(allocator, given_, buckets, task):
    plan = allocator.allot(*given_, buckets, task)
    plan.check()
    assert (len(plan.bucket), plan.buckets) == (len(given_[0]), buckets)
    assert (plan.loads.sum(), plan.cardinalities.sum()) == (given_[0].sum(), len(given_[0]))


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=repr)
@settings(deadline=None, max_examples=50)
@given(
    one=clusters(),
    other=clusters(),
    key=LONGS,
    buckets=st.integers(1, 9),
    tasks=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_a_split_key_goes_to_the_same_bucket_whatever_the_task(allocator, one, other, key, buckets, tasks):
    chosen = set()
    for (weights, split, hashes), task in zip((one, other), tasks, strict=True):
        plan = allocator.allot(np.r_[weights, 7], np.r_[split, True], np.r_[hashes, key], buckets, task)
        chosen.add(int(plan.bucket[-1]))
    assert chosen == {key % buckets}


@settings(deadline=None, max_examples=100)
@given(given_=clusters(split=False), buckets=st.integers(1, 9), task=st.integers(0, 20))
def test_with_rotation_and_nothing_split_buckets_differ_by_one_cluster(given_, buckets, task):
    plan = PromptAllocator().allot(*given_, buckets, task)
    assert plan.cardinalities.max() - plan.cardinalities.min() <= 1


@settings(deadline=None, max_examples=100)
@given(given_=clusters(split=False), buckets=st.integers(1, 9), task=st.integers(0, 20))
def test_with_nothing_split_loads_differ_by_no_more_than_the_largest_cluster(given_, buckets, task):
    for rotate in (True, False):
        loads = PromptAllocator(rotate).allot(*given_, buckets, task).loads
        assert loads.max() - loads.min() <= given_[0].max(initial=0)


def test_the_worked_example_of_five_clusters_and_a_split_key():
    weights = np.array([10, 9, 7, 5, 3, 6])
    split = np.array([False] * 5 + [True])
    plan = PromptAllocator().allot(weights, split, np.array([0, 0, 0, 0, 0, 2]), buckets=3)
    assert plan.bucket.tolist() == [0, 1, 2, 1, 0, 2]
    assert plan.loads.tolist() == [13, 14, 13]


def test_the_order_of_clusters_only_matters_for_ties():
    weights = np.array([6, 3, 5, 7, 9, 10])
    split = np.array([True] + [False] * 5)
    plan = PromptAllocator().allot(weights, split, np.array([2, 0, 0, 0, 0, 0]), buckets=3)
    assert plan.bucket.tolist() == [2, 0, 1, 2, 1, 0]


def test_tasks_start_from_different_buckets():
    hashes, split = np.zeros(1, np.int64), np.zeros(1, bool)
    first = [int(PromptAllocator().allot(np.array([5]), split, hashes, 4, task).bucket[0]) for task in range(6)]
    assert first == [0, 1, 2, 3, 0, 1]


def test_without_rotation_sizes_are_more_even_and_numbers_of_clusters_less():
    weights = np.array([100, 90, *([1] * 60)])
    nothing = np.zeros(len(weights), bool), np.zeros(len(weights), np.int64)
    rotated, free = (PromptAllocator(rotate).allot(weights, *nothing, buckets=4) for rotate in (True, False))
    assert free.bsi < rotated.bsi
    assert np.ptp(free.cardinalities) > np.ptp(rotated.cardinalities)


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=repr)
def test_allocators_pickle(allocator):
    assert isinstance(allocator, BucketAllocator)
    assert pickle.loads(pickle.dumps(allocator)) == allocator
