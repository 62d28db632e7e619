"""What the experiments on PartLy compute: the optimum, reduce times, and results from figures."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.prompt import partly_metrics, partly_overhead, partly_runtime, partly_teacher, partly_training
from steelyard.bench.prompt.metrics import Rows
from steelyard.bench.prompt.partly_batches import BLOCKS, SOURCES, batches
from steelyard.bench.prompt.partly_optimum import beside_optimum, least_mpi
from steelyard.bench.prompt.partly_runtime import ASCENDING, INSERTION, PARTLY
from steelyard.core import BlockPlan, KeyCounts
from steelyard.partition import Prompt
from steelyard.partition.learned import inference
from steelyard.partition.learned.environment import Environment
from steelyard.partition.learned.learner import as_numpy
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.teacher import HELD_BACK, advise
from steelyard.partition.learned.training import Trainer
from steelyard.sim.task_times import TaskCosts


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


def test_ablations_are_whole_plans_and_the_search_never_makes_the_teacher_worse():
    counts = KeyCounts.of(dict(enumerate([90, 70, 40, 22, 9, 9, 8, 7, 5, 3, 2, 2, 1, 1])))
    best = partly_teacher.searched(counts, 5, "searched")
    best.check()
    first = partly_teacher.taught(counts, 5, HELD_BACK)
    assert best.mpi_normalised() <= first.mpi_normalised()
    batch = Rows.of(pa.array(np.repeat(np.arange(14), counts.rows)))
    plans = list(partly_metrics.plans(batch, 5))
    assert len(plans) == len(partly_metrics.POLICIES)
    by_name = dict(zip(partly_metrics.POLICIES, plans, strict=True))
    own, one = by_name[partly_metrics.PARTLY], by_name[partly_metrics.NO_SEARCH]
    assert own.mpi_normalised() <= one.mpi_normalised()


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.integers(1, 400), min_size=1, max_size=16), blocks=st.integers(1, 6))
def test_the_teacher_in_one_loop_decides_as_the_one_that_is_imitated(rows, blocks):
    counts = KeyCounts.of(dict(enumerate(rows)))
    stepped = Environment([counts], blocks)
    while not stepped.done.all():
        stepped.step(*advise(stepped.level, stepped.batches, stepped.state, stepped.allowed()))
    expected, found = stepped.plans("")[0], partly_teacher.taught(counts, blocks, HELD_BACK)
    assert sorted(zip(found.key, found.block, found.rows, strict=True)) == sorted(
        zip(expected.key, expected.block, expected.rows, strict=True)
    )


def test_every_way_to_plan_is_timed():
    taken = partly_overhead.times_of(300, seed=1, turns=1)
    assert set(taken) == {
        partly_overhead.PROMPT,
        partly_overhead.ONE_PASS,
        partly_overhead.CHECKED,
        partly_overhead.CAM,
        partly_overhead.KEY_BY_KEY,
    }
    assert min(taken.values()) > 0


def test_training_experiments_run_on_a_handful_of_keys(monkeypatch):
    pytest.importorskip("jax")
    tiny = Training(actions=3, keys=4, blocks=3, batches=32, hidden=32, imitated=4, minibatches=2)
    monkeypatch.setattr(partly_training, "TOY", tiny)
    own, least, weights = partly_training.toy(seed=1, updates=2, cases=3)
    assert (own >= least - 1e-6).all()
    assert weights.actor[0][0].shape[1] == 32
    monkeypatch.setattr(partly_training, "ANEW_UPDATES", 4)
    to_prompts, to_shipped = partly_training.minutes_anew(5.0, tiny, every=2)
    assert np.isnan(to_shipped) or to_shipped >= to_prompts > 0


def test_ppo_comes_near_the_optimum_of_a_toy():
    """As `partly_vs_optimal` judges it, on few cases and after a short training."""
    pytest.importorskip("jax")
    options = Training(actions=3, keys=6, blocks=3, batches=64, imitated=30, rate=1e-3, minibatches=2)
    trainer = Trainer(options, Samples(6, 3, rows=25.0, fewest_keys=3))
    list(trainer.run(90))
    weights = as_numpy(trainer.weights)

    def first(counts, blocks):
        """What the network says, without the search for better plans."""
        return inference.plan(weights, counts, blocks, "sequential", "partly", patience=(0.0,))

    own, least = beside_optimum(first, cases=12, seed=1)
    assert np.mean((own + 1) / (least + 1)) < 1.1
