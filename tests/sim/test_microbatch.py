"""Simulated micro-batches: their timeline, their schedulers, and the policies that they run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import BLOCKS, Action, OptionError
from steelyard.partition import PromptAllocator, partitioner_names
from steelyard.sim import BatchCosts, MicroBatches, Source, simulate_batches
from steelyard.sim.microbatch import makespan
from steelyard.workloads import Spike, Zipf

# a row costs 1 ms in a map task, and nothing else costs anything but the driver
ROWS_ONLY = BatchCosts(
    map_task=0, map_row=0.001, map_key=0, reduce_task=0, reduce_record=0, reduce_key=0, driver=0.1, driver_task=0
)


def query(**options):
    given_options = {"source": Source("log", 1000, keys=[1, 2, 3, 4]), "blocks": 2, "buckets": 2, "cores": 2}
    return MicroBatches(**{**given_options, "costs": ROWS_ONLY, "partitioner": "shuffle", **options})


def test_the_timeline_of_five_batches_that_are_too_slow():
    """1000 rows in two blocks on two cores take 0.5 s; with two stages of scheduling 0.7 s; here on one core 1.2 s."""
    table = simulate_batches(query(cores=1), 5)
    assert table["processing"].to_pylist() == pytest.approx([1.2] * 5)
    assert table["started"].to_pylist() == pytest.approx([1.0, 2.2, 3.4, 4.6, 5.8])
    assert table["finished"].to_pylist() == pytest.approx([2.2, 3.4, 4.6, 5.8, 7.0])
    assert table["load"].to_pylist() == pytest.approx([1.2] * 5)
    # rows of the first batch came at 0.4995 s on average
    assert table["latency"].to_pylist()[0] == pytest.approx(2.2 - 0.4995)


def test_a_group_that_is_scheduled_ahead_shares_the_drivers_work():
    central = simulate_batches(query(), 4)["driver"].to_pylist()
    ahead = simulate_batches(query(scheduler="group_ahead", group=10), 4)["driver"].to_pylist()
    assert central == pytest.approx([0.2] * 4)
    assert ahead == pytest.approx([0.02 + ROWS_ONLY.local] * 4)


class OneMore:
    """One block more after each batch."""

    def decide(self, observation):
        return Action({BLOCKS: observation.batch.blocks + 1}, "one more")


class Watching:
    """Changes nothing, and keeps what it saw."""

    def __init__(self):
        self.seen = []

    def decide(self, observation):
        self.seen.append(observation.batch)
        return Action()


def test_policies_see_every_task_of_both_stages():
    watching = Watching()
    costs = BatchCosts(map_row=1e-5, map_key=1e-3, reduce_record=1e-4, reduce_key=1e-2)
    source = Source("log", 500, keys=Zipf(1.0, 40))
    simulate_batches(query(elasticity=watching, partitioner="prompt", source=source, buckets=3, costs=costs), 2)
    for batch in watching.seen:
        assert [task.block for task in batch.tasks] == [0, 1]
        assert [task.bucket for task in batch.reduce_tasks] == [0, 1, 2]
        assert sum(task.rows for task in batch.tasks) == batch.rows
        assert sum(task.keys for task in batch.reduce_tasks) == batch.keys
        assert sum(task.records for task in batch.reduce_tasks) == sum(task.clusters for task in batch.tasks)
        maps = [task.seconds for task in batch.tasks]
        assert maps == costs.map_seconds(*zip(*[(one.rows, one.clusters) for one in batch.tasks], strict=True)).tolist()
        reduces = [task.seconds for task in batch.reduce_tasks]
        work = zip(*[(one.records, one.keys) for one in batch.reduce_tasks], strict=True)
        assert reduces == costs.reduce_seconds(*work).tolist()


def test_a_decision_holds_from_the_next_batch_on_or_from_the_next_group():
    central = simulate_batches(query(elasticity=OneMore()), 5)
    assert central["blocks"].to_pylist() == [2, 3, 4, 5, 6]
    assert central["reason"].to_pylist() == ["", *["one more"] * 4]
    ahead = simulate_batches(query(elasticity=OneMore(), scheduler="group_ahead", group=2), 5)
    assert ahead["blocks"].to_pylist() == [2, 2, 3, 3, 4]


@pytest.mark.parametrize("name", partitioner_names())
def test_every_partitioner_cuts_simulated_batches(name):
    table = simulate_batches(query(partitioner=name, source=Source("log", 300, keys=Zipf(1.0, 50))), 2)
    assert table["rows"].to_pylist() == [300, 300]
    assert min(table["map"].to_pylist()) >= 0.15 - 1e-9


def test_an_even_plan_beats_hashing_on_skewed_keys():
    source = Source("log", 5000, keys=Zipf(exponent=1.4, keys=1000, seed=1))
    loads = {
        name: np.mean(simulate_batches(query(source=source, partitioner=name, blocks=8, cores=8), 5)["load"])
        for name in ("hash", "prompt")
    }
    assert loads["prompt"] < loads["hash"] / 2


def test_noise_is_seeded_and_keeps_the_mean():
    noisy = query(blocks=64, cores=1, costs=BatchCosts(noise=0.05))
    first, again, other = (simulate_batches(noisy, 20, seed=seed)["map"].to_numpy() for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    plain = simulate_batches(query(blocks=64, cores=1, costs=BatchCosts()), 20)["map"].to_numpy()
    assert first.mean() == pytest.approx(plain.mean(), rel=0.01)


@settings(max_examples=20)
@given(rows=st.integers(0, 3000), interval=st.floats(0.2, 1.5), arrivals=st.sampled_from(["even", "poisson"]))
def test_every_row_is_in_one_batch(rows, interval, arrivals):
    source = Source("log", Spike(500, 2000, at=1, seconds=1), keys=[1, 2], rows=max(rows, 1), arrivals=arrivals)
    table = simulate_batches(query(source=source, interval=interval), int(12 / interval) + 1)
    assert sum(table["rows"].to_pylist()) == max(rows, 1)


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=30), st.integers(1, 8))
def test_a_makespan_is_within_the_greedy_bound(seconds, cores):
    found = makespan(seconds, cores)
    least = max(*seconds, sum(seconds) / cores)
    assert least - 1e-9 <= found <= (2 - 1 / cores) * least + 1e-9


def test_a_map_task_allots_its_clusters_by_the_allocator():
    options = {"costs": BatchCosts(reduce_record=0.001), "blocks": 1, "buckets": 4, "cores": 4}
    source = Source("log", 400, keys=list(range(0, 400)))
    hashed = simulate_batches(query(source=source, **options), 1)["reduce"].to_pylist()
    dealt = simulate_batches(query(source=source, allocator=PromptAllocator(), **options), 1)["reduce"].to_pylist()
    assert dealt[0] < hashed[0]


def test_a_mistyped_scheduler_is_told():
    with pytest.raises(OptionError, match="did you mean 'group_ahead'"):
        query(scheduler="group_ahed")


def test_making_rows_readable_and_cutting_them_delay_a_batch_unless_it_is_released_early():
    costs = replace(ROWS_ONLY, convert=0.02, convert_row=1e-5, cut_row=1e-5, cut_key=0.01)
    late = simulate_batches(query(costs=costs), 1).to_pylist()[0]
    assert late["convert"] == pytest.approx(0.02 + 1000 * 1e-5)
    assert late["cut"] == pytest.approx(1000 * 1e-5 + 4 * 0.01)
    early = simulate_batches(query(costs=costs, slack=0.04), 1).to_pylist()[0]
    assert early["cut"] == pytest.approx(late["cut"] - 0.04)
    assert early["processing"] == pytest.approx(late["processing"] - 0.04)
    assert simulate_batches(query(costs=costs, slack=0.05), 1)["cut"].to_pylist() == [0.0]


def test_where_stages_overlap_a_batch_takes_as_long_as_the_slower_one():
    costs = replace(ROWS_ONLY, reduce_task=0.7)
    blocking = simulate_batches(query(costs=costs), 1).to_pylist()[0]
    overlapping = simulate_batches(query(costs=costs, blocking=False), 1).to_pylist()[0]
    assert (blocking["map"], blocking["reduce"]) == pytest.approx((0.5, 0.7))
    assert overlapping["map"] + overlapping["reduce"] == pytest.approx(0.7)


def test_a_slack_that_is_no_share_is_told():
    with pytest.raises(OptionError, match="slack of MicroBatches"):
        query(slack=1.0)
