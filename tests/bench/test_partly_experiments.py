"""What the experiments on PartLy compute: the optimum, reduce times, and results from figures."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.prompt import partly_metrics, partly_runtime, partly_training
from steelyard.bench.prompt.metrics import Rows
from steelyard.bench.prompt.partly_batches import BLOCKS, SOURCES, batches
from steelyard.bench.prompt.partly_optimum import beside_optimum, least_mpi
from steelyard.bench.prompt.partly_runtime import ASCENDING, INSERTION, PARTLY
from steelyard.core import BlockPlan, KeyCounts
from steelyard.partition import Prompt
from steelyard.sim.microbatch import TaskCosts


def every_plan(counts, blocks):
    """All ways to divide the rows of each key."""
    of_key = [[cut for cut in product(range(rows + 1), repeat=blocks) if sum(cut) == rows] for rows in counts.rows]
    for cuts in product(*of_key):
        rows = np.array(cuts)
        key, block = np.nonzero(rows)
        yield BlockPlan.of(counts, blocks, key=key, block=block, rows=rows[key, block])


@settings(deadline=None, max_examples=8)
@given(rows=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_the_least_mpi_is_that_of_the_best_of_all_plans(rows):
    counts = KeyCounts.of(dict(enumerate(rows)))
    assert least_mpi(counts, 2) == pytest.approx(min(plan.mpi_normalised() for plan in every_plan(counts, 2)), abs=1e-6)


def test_no_plan_is_below_the_optimum():
    own, least = beside_optimum(Prompt().plan, cases=6, seed=3)
    assert (own >= least - 1e-6).all()


def test_every_workload_is_a_batch_and_differs_by_seed():
    for name, make in batches(rows=2_000, keys=300).items():
        one, other = make(1), make(2)
        assert one.counts.total == 2_000, name
        assert one.counts.keys.to_pylist() != other.counts.keys.to_pylist(), name


def test_ratios_are_of_a_batch_and_nothing_over_nothing_is_one():
    measured = {
        policy: {measure: [0.0, 2.0] for measure in partly_metrics.MEASURES} for policy in partly_metrics.POLICIES
    }
    measured[partly_metrics.PARTLY]["mpi"] = [0.0, 1.0]
    assert partly_metrics.against({"x": measured}, partly_metrics.PARTLY) == [1.0, 0.5]
    result = partly_metrics.result_of({"x": measured}, 10, quick=True)
    assert result.metrics["mpi_vs_prompt"] == 0.75
    assert result.claims[0].verdict == "undecided"


def test_reduce_tasks_take_what_their_records_and_keys_cost():
    counts = KeyCounts.of({"a": 4, "b": 2})
    plan = BlockPlan.of(counts, 2, key=[0, 0, 1], block=[0, 1, 1], rows=[2, 2, 2])
    costs = TaskCosts(reduce_record=1.0, reduce_key=10.0)
    seconds = partly_runtime.reduce_seconds(plan, np.array([0, 1]), costs)
    assert sorted(seconds)[-2:] == [11.0, 12.0]
    assert seconds.sum() == 3 + 2 * 10


def test_cuts_are_shares_of_prompts():
    one = {PARTLY: (1.0, 3.0), ASCENDING: (2.0, 4.0), INSERTION: (4.0, 30.0)}
    assert partly_runtime.cut({"x": [one]}, 0, ASCENDING) == [0.5]
    assert partly_runtime.cut({"x": [one]}, 1, INSERTION) == [0.9]


def test_figures_of_a_real_text_cut_each_key_as_its_plan_does():
    batch: Rows = batches(rows=3_000)[SOURCES](1)
    found = partly_runtime.figures(batch, TaskCosts())
    assert found[ASCENDING][1] == float(Prompt().plan(batch.counts, BLOCKS).split.sum())


def test_what_was_saved_is_counted_in_episodes():
    found = {"none": [([1.0], 100.0)], "rewards": [([1.0], 40.0)]}
    assert partly_training._saved(found, "rewards") == pytest.approx([0.6])
