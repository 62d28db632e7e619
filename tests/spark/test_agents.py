"""Agents on Spark's micro-batches: the same policies as in the simulator, by their names."""

from __future__ import annotations

import pytest

import steelyard as sy
from tests.spark.test_elastic import NEVER_ENOUGH, engine, rows_of

pytestmark = pytest.mark.spark


def test_agents_cut_batches_and_choose_numbers_of_tasks_and_results_are_right(spark, tmp_path):
    rows = rows_of(spark)
    stream = sy.stream(rows).group_by("k").agg(total=sy.sum("v"), rows=sy.count())
    policy = f"scheduler?interval={NEVER_ENOUGH}&most_blocks=9&most_buckets=9"
    running = engine(spark, stream.partition_by("agent", blocks=2, buckets=2).elastic(policy), tmp_path)
    reports = [running.process(rows, batch) for batch in range(3)]
    assert all(report.policy.startswith("agent") for report in reports)
    assert max(running.blocks, running.buckets) > 2, "a load far above 1 brings tasks"
    assert any("the trained network chose" in report.decision for report in reports)
