"""Bucket plans: loads, numbers of clusters, and what `check` finds."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.core import BucketPlan


def bucket_plan(bucket, weights, buckets):
    return BucketPlan(np.array(bucket, np.int32), np.array(weights, np.int64), buckets)


def test_loads_and_cardinalities_are_those_of_each_bucket():
    plan = bucket_plan([0, 2, 0], [5, 1, 2], 4)
    plan.check()
    assert plan.loads.tolist() == [7, 0, 1, 0]
    assert plan.cardinalities.tolist() == [2, 0, 1, 0]
    assert plan.bsi == 7 - 2
    assert repr(plan) == "BucketPlan(3 clusters in 4 buckets of 0 to 7; BSI 5.0)"


def test_a_map_task_without_clusters_has_empty_buckets():
    plan = bucket_plan([], [], 2)
    plan.check()
    assert (plan.loads.tolist(), plan.bsi) == ([0, 0], 0.0)


def test_loads_are_exact_where_floats_are_not():
    assert bucket_plan([0, 0], [2**53 + 1, 2**53 + 3], 1).loads.tolist() == [2**54 + 4]


@pytest.mark.parametrize(
    ("bucket", "weights", "told"),
    [([0], [1, 2], "one bucket a cluster"), ([2], [1], "no bucket"), ([-1], [1], "no bucket")],
)
def test_check_finds_what_is_wrong(bucket, weights, told):
    with pytest.raises(AssertionError, match=told):
        bucket_plan(bucket, weights, 2).check()
