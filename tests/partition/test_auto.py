"""The policy that chooses among policies, in worlds whose prices are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from steelyard.core import (
    BatchObservation,
    KeyCounts,
    Learning,
    Observation,
    Observing,
    OptionError,
    RowRule,
    TaskObservation,
)
from steelyard.core.plans import spread
from steelyard.partition import partitioner
from steelyard.partition.auto import Auto, Fit

BLOCKS = 8
ROWS = 100_000


def zipf(exponent: float, keys: int = 2_000, rows: int = ROWS) -> KeyCounts:
    weights = 1 / np.arange(1, keys + 1) ** exponent
    shares = np.maximum(1, (weights / weights.sum() * rows).astype(np.int64))
    return KeyCounts.of(dict(enumerate(shares.tolist())))


@dataclass(frozen=True)
class World:
    """What things cost: seconds per row, a key, a moved row and a merged record, and how even the source is."""

    row: float = 1e-5
    key: float = 1e-5
    moved: float = 1e-7
    merged: float = 1e-6
    fixed: float = 0.1
    largest_source: float = 1.0
    clusters: bool = True
    """Whether tasks report them; those of built-in aggregates do not."""

    def run(self, plan, number: int = 0) -> Observation:
        """A batch by a plan."""
        if plan.rule is RowRule.IN_PLACE:
            sizes = spread(plan.counts.total, BLOCKS) * 1.0
            sizes[0] *= self.largest_source
        else:
            sizes = plan.sizes * 1.0
        tasks = tuple(
            TaskObservation(i, int(rows), int(keys) * self.clusters, self.row * rows + self.key * keys, 0.0)
            for i, (rows, keys) in enumerate(zip(sizes, plan.cardinalities, strict=True))
        )
        longest = max(task.seconds for task in tasks)
        moving = 0.0 if plan.rule is RowRule.IN_PLACE else self.moved * plan.counts.total
        total = self.fixed + longest + moving + self.merged * int(plan.cardinalities.sum())
        return BatchObservation(number, plan.counts.total, 0, BLOCKS, 1, total, 0.0, tasks=tasks).at()


WORLDS = {
    "moving is dear": World(moved=1e-5),
    "the source is uneven": World(largest_source=4.0),
    "merging is dear": World(merged=1e-4),
    "keys are dear": World(key=1e-3),
    "rows are cheap": World(row=1e-8, key=1e-8),
    "rows wait": World(row=1e-3),
    "no clusters are reported": World(key=0.0, merged=0.0, clusters=False),
    "no clusters are reported and moving is dear": World(key=0.0, merged=0.0, moved=1e-5, clusters=False),
}


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2, 1.6])
@pytest.mark.parametrize("world", WORLDS)
def test_it_is_hardly_slower_than_the_best_candidate_in_any_world(world, exponent):
    costs, counts = WORLDS[world], zipf(exponent)
    auto = Auto()
    taken = []
    for number in range(100):
        known = counts if number else KeyCounts.of({})  # the first batch of a stream has no statistics
        planned = auto.plan(known, BLOCKS)
        if not number:
            planned = auto._policies[auto._chosen].plan(counts, BLOCKS)
        report = costs.run(planned, number)
        auto.observe(report)
        taken.append(report.batch.processing_seconds)
    fixed = {
        name: costs.run(partitioner(name).plan(counts, BLOCKS)).batch.processing_seconds
        for name in auto.candidates.split(",")
    }
    assert sum(taken) <= 1.05 * 100 * min(fixed.values()), (fixed, taken[:8], taken[-1])


@pytest.mark.parametrize("restarted", [False, True])
def test_what_the_first_batch_of_a_candidate_compiles_is_not_held_against_it(restarted):
    """Small batches first, one source partition, and seconds of compilation in the first batch of each candidate."""
    costs, auto, compiled = World(row=5e-4, key=2e-2, fixed=0.5, largest_source=BLOCKS), Auto(), set()
    small, large = zipf(1.3, keys=200, rows=1_500), zipf(1.3, keys=300, rows=12_000)
    for number, counts in enumerate([small] * 3 + [large] * 8):
        if restarted and number == 7:
            again = Auto()
            again.restore(auto.state())
            auto, compiled = again, set()
        plan = auto.plan(counts if number else KeyCounts.of({}), BLOCKS)
        if not number:
            plan = auto._policies[auto._chosen].plan(counts, BLOCKS)
        report = costs.run(plan, number)
        first = 0.0 if auto._chosen in compiled else 8.0
        compiled.add(auto._chosen)
        auto.observe(replace(report.batch, processing_seconds=report.batch.processing_seconds + first).at())
        if number >= 4:  # before, what rows cost could hardly be told from what keys do
            assert plan.policy == "auto (prompt)"


@pytest.mark.parametrize("exponent", [0.8, 1.2])
def test_batches_of_two_sizes_in_turn_do_not_lead_it_astray(exponent):
    costs, auto, taken = World(row=1e-5, moved=1e-6, fixed=0.3, largest_source=BLOCKS), Auto(), []
    sizes = [zipf(exponent, rows=10_000), zipf(exponent, rows=1_000_000)]
    for number in range(60):
        plan = auto.plan(sizes[(number - 1) % 2] if number else KeyCounts.of({}), BLOCKS)
        plan = auto._policies[auto._chosen].plan(sizes[number % 2], BLOCKS)  # what comes is of the other size
        report = costs.run(plan, number)
        auto.observe(report)
        taken.append(report.batch.processing_seconds)
    best = min(
        sum(
            costs.run(partitioner(name).plan(sizes[number % 2], BLOCKS)).batch.processing_seconds
            for number in range(60)
        )
        for name in auto.candidates.split(",")
    )
    assert sum(taken) <= 1.2 * best


def test_it_follows_when_the_stream_turns_skewed():
    costs, auto = WORLDS["rows wait"], Auto()
    for number in range(20):
        auto.observe(costs.run(auto.plan(zipf(0.0), BLOCKS), number))
    uneven = World(row=1e-3, largest_source=3.0)
    for number in range(20, 30):
        auto.observe(uneven.run(auto.plan(zipf(1.4), BLOCKS), number))
    plan = auto.plan(zipf(1.4), BLOCKS)
    assert plan.rule is not RowRule.IN_PLACE
    assert plan.largest_over_mean < 1.05  # and not by hash


def test_a_long_time_in_place_does_not_spoil_the_other_prices():
    auto, counts = Auto(), zipf(0.8, keys=100)
    even, uneven = World(row=1e-3, moved=1e-5), World(row=1e-3, moved=1e-5, largest_source=4.0)
    for number in range(1_000):
        auto.observe(even.run(auto.plan(counts, BLOCKS), number))
    chosen = []
    for number in range(1_000, 1_050):
        plan = auto.plan(counts, BLOCKS)
        chosen.append(plan.rule)
        auto.observe(uneven.run(plan, number))
    assert chosen.count(RowRule.IN_PLACE) < 10


def test_a_shift_of_the_stream_counts_against_every_plan_by_key_counts():
    auto, costs, even = Auto(candidates="hash,prompt,shuffle"), World(row=1e-3), zipf(0.0)
    for number in range(10):
        auto.observe(costs.run(auto.plan(even, BLOCKS), number))
    by_hash, by_counts = (partitioner(name).plan(even, BLOCKS) for name in ("hash", "prompt"))
    before = auto.promise(by_counts)
    auto._chosen, auto._followed = "hash", by_hash
    auto.observe(costs.run(partitioner("hash").plan(zipf(1.6), BLOCKS), 10))  # one block has most rows
    after = auto.promise(by_counts)
    assert after > 1.05 * before
    restored = Auto(candidates="hash,prompt,shuffle")
    restored.restore(auto.state())
    assert restored.promise(by_counts) == after


def test_one_odd_batch_does_not_ban_a_candidate():
    auto, counts, costs = Auto(), zipf(0.8), World(row=1e-4, moved=1e-4)
    for number in range(20):
        auto.observe(costs.run(auto.plan(counts, BLOCKS), number))
    plan = auto.plan(counts, BLOCKS)
    assert plan.rule is RowRule.IN_PLACE
    odd = (TaskObservation(0, 1_000, 10, 0.1, 0.0),)
    auto.observe(BatchObservation(20, 1_000, 10, BLOCKS, 1, 0.2, 0.0, tasks=odd).at())
    for number in range(21, 40):
        plan = auto.plan(counts, BLOCKS)
        auto.observe(costs.run(plan, number))
    assert plan.rule is RowRule.IN_PLACE


def test_a_source_that_became_even_is_noticed():
    auto, counts = Auto(retry_every=5), zipf(0.8)
    for number in range(20):
        auto.observe(World(row=1e-3, moved=1e-4, largest_source=6.0).run(auto.plan(counts, BLOCKS), number))
    rules = []
    for number in range(20, 100):
        plan = auto.plan(counts, BLOCKS)
        rules.append(plan.rule)
        auto.observe(World(row=1e-3, moved=1e-4).run(plan, number))
    assert rules[0] is not RowRule.IN_PLACE
    assert rules[-1] is RowRule.IN_PLACE


def test_prices_are_never_negative_and_stay_where_nothing_is_learnt():
    fit = Fit(2, memory=0.8)
    fit.learn(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 5.0]), first=np.ones(2))
    for _ in range(200):  # only the sum is seen: the proportion stays
        fit.learn(np.array([[1.0, 1.0]]), np.array([10.0]), first=np.ones(2))
    assert fit.prices.sum() == pytest.approx(10.0, rel=1e-3)
    assert fit.prices[0] < fit.prices[1]
    for _ in range(50):  # the second thing makes sums cheaper, which no thing can
        fit.learn(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([3.0, 1.0]), first=np.ones(2))
    assert fit.prices.min() == 0.0


def test_half_a_memory_is_none():
    auto, costs = Auto(), WORLDS["the source is uneven"]
    for number in range(6):
        auto.observe(costs.run(auto.plan(zipf(1.0), BLOCKS), number))
    torn = {name: array for name, array in auto.state().items() if name != "rests"}
    fresh = Auto()
    with pytest.raises(KeyError):
        fresh.restore(torn)
    assert fresh.plan(zipf(1.0), BLOCKS).rule is RowRule.IN_PLACE  # as if it had seen nothing


def test_without_counts_rows_stay_where_they_are():
    assert Auto().plan(KeyCounts.of({}), 4).rule is RowRule.IN_PLACE


def test_what_it_learnt_survives_a_round_trip():
    first, second, counts, costs = Auto(), Auto(), zipf(1.2), WORLDS["the source is uneven"]
    for number in range(6):
        first.observe(costs.run(first.plan(counts, BLOCKS), number))
    second.restore(first.state())
    assert isinstance(first, Learning)
    assert isinstance(first, Observing)
    for number in range(6, 12):
        plans = [policy.plan(counts, BLOCKS) for policy in (first, second)]
        assert plans[0].policy == plans[1].policy
        for policy, plan in zip((first, second), plans, strict=True):
            policy.observe(costs.run(plan, number))


def test_a_batch_without_rows_teaches_nothing():
    auto = Auto()
    auto.plan(zipf(1.0), BLOCKS)
    before = {name: array.tolist() for name, array in auto.state().items()}
    auto.observe(BatchObservation(0, 0, 0, BLOCKS, 1, 0.1, 0.0).at())
    auto.observe(Observation(1.0, 1.0))
    assert {name: array.tolist() for name, array in auto.state().items()} == before


@pytest.mark.parametrize("wrong", ["candidates=in_place,promt", "memory=1", "retry_every=0", "memory=x"])
def test_a_wrong_parameter_is_named(wrong):
    with pytest.raises(OptionError, match=wrong.partition("=")[0][:8]):
        partitioner(f"auto?{wrong}")


def test_partly_may_be_among_the_candidates():
    auto = Auto(candidates="hash,prompt,partly")
    plan = auto.plan(KeyCounts.of({"a": 6, "b": 3, "c": 2}), 2)
    plan.check()
    assert plan.policy == "auto (hash)"
    assert set(auto._policies) == {"hash", "prompt", "partly"}
