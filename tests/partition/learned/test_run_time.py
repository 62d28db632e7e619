"""Training by run time: the plans of a rollout, rewards from their tasks' times, and that they are learnt from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import nnls

from steelyard.core import BatchObservation, KeyCounts, OptionError, ReduceObservation, TaskObservation
from steelyard.learning import libraries
from steelyard.partition import Prompt, PromptAllocator
from steelyard.partition.learned.learner import as_jax, as_numpy, by_halves, drawn
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.rewards import larger_variance
from steelyard.partition.learned.run_time import RunTimeRewards, plans_of
from steelyard.partition.learned.samples import Samples
from steelyard.partition.learned.training import Trainer
from steelyard.sim.task_times import PlanTimes, TaskCosts, fitted, reduce_work

pytest.importorskip("jax")
TINY = Training(
    actions=1, keys=5, blocks=3, batches=64, hidden=8, minibatches=2, bootstrap="none", cost="runtime", modelled=0,
    rate=3e-3,
)  # fmt: skip
ROWS_ONLY = PlanTimes(TaskCosts(0.0, 1.0, 0.0, 0.0, 0.0, 0.0), buckets=2)


def rolled_out(options):
    batches = Samples(options.keys, options.blocks, rows=20).draw(options.batches, np.random.default_rng(0))
    _, act, _ = by_halves(options)
    last, seen = act(drawn(options), as_jax(batches), libraries().jax.random.PRNGKey(1))
    return batches, last, seen


@pytest.mark.parametrize("actions", [1, 3])
def test_the_plans_of_a_rollout_are_what_the_agent_did(actions):
    batches, last, seen = rolled_out(replace(TINY, actions=actions))
    plans = plans_of(replace(TINY, actions=actions), batches, np.asarray(seen.action))
    ended = np.flatnonzero(np.asarray(last.done))
    assert len(ended) > len(plans) / 2
    for at in ended.tolist():
        plans[at].check()
        assert plans[at].sizes.tolist() == np.asarray(last.load)[at, : plans[at].blocks].tolist()
        assert plans[at].cardinalities.tolist() == np.asarray(last.card)[at, : plans[at].blocks].tolist()


@pytest.mark.parametrize("average", ["none", "smooth", "baseline"])
def test_rewards_stand_at_the_ends_and_follow_the_variances_in_the_range_of_the_costs(average):
    batches, last, seen = rolled_out(TINY)
    options = replace(TINY, average=average)
    rewards = RunTimeRewards(options, ROWS_ONLY)
    rewards.saw(np.array([0.5, 2.0]))
    alive = np.asarray(seen.alive)
    found, costs = rewards.of(batches, np.asarray(seen.action), np.asarray(last.done), alive)
    plans = plans_of(options, batches, np.asarray(seen.action))
    variances = np.array([larger_variance(*ROWS_ONLY(plan)) for plan in plans])
    np.testing.assert_allclose(costs, np.interp(variances, [variances.min(), variances.max()], [0.5, 2.0]))
    at = alive.sum(axis=0) - 1
    given = found[at, np.arange(len(at))]
    assert np.count_nonzero(found) == np.count_nonzero(given)
    mean, expected = None, []
    for cost in costs:
        before = -cost if mean is None else mean
        mean = before + 0.05 * (-cost - before)
        expected.append({"none": -cost, "smooth": mean, "baseline": -cost - before}[average])
    np.testing.assert_allclose(given, expected, rtol=1e-5)


@pytest.mark.parametrize("average", ["none", "baseline"])
def test_training_by_run_time_evens_out_the_times_of_tasks(average):
    trainer = Trainer(replace(TINY, average=average), Samples(5, 3, rows=20), times=ROWS_ONLY)
    list(trainer.run(60))
    assert trainer.run_time is not None
    variances = trainer.run_time.variances
    assert np.mean(variances[-10:]) < 0.7 * np.mean(variances[:10])


def test_run_time_follows_the_cost_model_and_goes_on_where_it_was_stopped(tmp_path):
    options = replace(TINY, modelled=2, average="smooth")
    whole, first, second = (Trainer(options, times=ROWS_ONLY) for _ in range(3))
    list(whole.run(6))
    list(first.run(4))
    second.resume(first.save(tmp_path / "half.npz"))
    list(second.run(6))
    assert len(whole.run_time.variances) == 4  # those behind the first two
    assert second.costs == whole.costs
    assert second.run_time.variances == whole.run_time.variances
    for one, other in zip(as_numpy(whole.weights).actor, as_numpy(second.weights).actor, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize(
    "wrong", [{"average": "smoth"}, {"cost": "mpi", "average": "smooth"}, {"bootstrap": "imitation", "modelled": 3}]
)
def test_what_cannot_be_by_run_time_is_refused(wrong):
    with pytest.raises(OptionError):
        replace(TINY, **wrong)


def test_without_times_there_is_nothing_to_learn_from():
    with pytest.raises(OptionError, match="needs to know what tasks take"):
        Trainer(TINY)


def test_costs_of_reports_are_those_that_tasks_had():
    costs = TaskCosts(0.002, 1e-6, 3e-6, 0.001, 2e-6, 5e-6)
    times = PlanTimes(costs, buckets=3)
    batches = []
    for number, counts in enumerate(Samples(60, 8).draw(20, np.random.default_rng(2)).rows):
        plan = Prompt().plan(KeyCounts.of(dict(enumerate(counts.tolist()))), 4)
        maps, reduces = times(plan)
        work = zip(plan.sizes.tolist(), plan.cardinalities.tolist(), maps.tolist(), strict=True)
        tasks = tuple(TaskObservation(block, *one, 0.0) for block, one in enumerate(work))
        each = zip(reduces.tolist(), *map(np.ndarray.tolist, reduce_work(plan, PromptAllocator(), 3)), strict=True)
        reduce_tasks = tuple(ReduceObservation(bucket, *one) for bucket, one in enumerate(each))
        batches.append(BatchObservation(number, 1, 1, 4, 3, 1.0, 1.0, tasks=tasks, reduce_tasks=reduce_tasks))
    found = TaskCosts.reported(batches)
    for name, value in vars(costs).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-3), name
    with pytest.raises(OptionError, match="no reduce task"):
        TaskCosts.reported([replace(batches[0], reduce_tasks=())])


def test_costs_are_those_with_the_least_error_and_none_is_negative():
    random = np.random.default_rng(6)
    for _ in range(250):
        x, y, noise = random.uniform(0, 1000, (3, int(random.integers(4, 12))))
        true = random.choice([0.0, 0.001, 0.01], 2)
        seconds = 0.01 + np.abs(0.5 + true[0] * x + true[1] * y + 0.001 * (noise - 500))
        cases = np.stack([np.ones(len(x)), x, y, seconds], axis=1)
        relative = cases[:, :3] / seconds[:, None]
        found = np.array(fitted(cases.tolist()))
        least = nnls(relative, np.ones(len(x)))[1] ** 2
        assert found.min() >= 0
        assert np.square(relative @ found - 1).sum() <= least * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(
    "cases",
    [
        [(1, 5, 5, 1.0), (1, 6, 6, 1.2), (1, 9, 9, 2.0)],
        [(1, 5, 0, 1.0), (1, 6, 0, 1.2), (1, 9, 0, 2.0)],
        [(1, 5, 2, 1.0), (1, 6, 4, 1.2)],
    ],
)
def test_tasks_that_are_too_much_alike_are_refused(cases):
    with pytest.raises(OptionError, match=f"{len(cases)} tasks are too much alike"):
        fitted(cases)
