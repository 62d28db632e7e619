"""The experiments on Prompt: the model of a cluster, the verdicts, and what each benchmark gives back."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from steelyard.bench import Run
from steelyard.bench.claims import FAILS, HOLDS, OPEN, SEEDS, Claim, Interval, claims_table, tally
from steelyard.bench.progress import Reporter
from steelyard.bench.prompt import ablation as prompt_ablation
from steelyard.bench.prompt import buffering as prompt_buffering
from steelyard.bench.prompt import cluster_model, shapes
from steelyard.bench.prompt import latency as prompt_latency
from steelyard.bench.prompt import metrics as prompt_metrics
from steelyard.bench.prompt import overhead as prompt_overhead
from steelyard.bench.prompt import rate as prompt_rate
from steelyard.bench.prompt import skew as prompt_skew
from steelyard.bench.prompt.cluster_model import Shape, sustainable, through
from steelyard.bench.prompt.operators import OPERATORS, worth
from steelyard.bench.prompt.oracle import gap_report
from steelyard.bench.prompt.policies import PROMPT, RIVALS, TIME, Wave, dearer_keys, rates_of, shapes_of
from steelyard.bench.prompt.shapes import Stream, shape_of
from steelyard.bench.registry import choose
from steelyard.core import BlockPlan, KeyCounts
from steelyard.partition import Hash, HashAllocator, Prompt, PromptAllocator
from steelyard.partition.affinity import Affinity
from steelyard.partition.two_choices import TwoChoices
from steelyard.sim.task_times import TaskCosts

COSTS = TaskCosts(1e-3, 1e-4, 5e-5, 1e-3, 1e-5, 1e-5)
SLOW = replace(COSTS, map_row=1e-3)
"""Rows that cost so much that batches are short."""
BOTH_COSTS = {"sum": SLOW, "histogram": dearer_keys(SLOW, 8)}
NAMES = ("prompt-metrics", "prompt-rate", "prompt-skew", "prompt-latency", "prompt-overhead")


@pytest.fixture
def run():
    return Run(quick=True, seed=3, progress=Reporter(Console(quiet=True)))


@pytest.fixture(scope="module")
def stream():
    return Stream.drawn(exponent=1.2, keys=300, rows=6_000, slots=4, seed=5)


def drawn(name, result, tmp_path):
    return choose([name])[0].save_picture(result, tmp_path / "picture.png").stat().st_size


def claims_in(result):
    table = result.tables[0]
    assert table.title.startswith("claims (")
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


# Verdicts


def test_a_verdict_flips_with_the_numbers():
    def verdict(values):
        return Claim("twice as fast", "2x, a paper", values, at_least=2.0).verdict

    assert verdict([2.4, 2.5, 2.6]) == HOLDS
    assert verdict([1.4, 1.5, 1.6]) == FAILS


def test_an_interval_that_contains_the_bound_shows_nothing():
    assert Claim("more", "a paper", [1.0, 3.1, 2.2], at_least=2.0).verdict == OPEN
    assert Claim("less", "a paper", [1.0, 3.1, 1.7], at_most=2.0).verdict == OPEN


def test_only_a_claim_that_does_not_hold_is_given_a_reason():
    held = Claim("a", "p", [1.0, 1.0], at_most=1.0, reason="why")
    broken = Claim("b", "p", [2.0, 2.0], at_most=1.0, reason="why")
    assert [row[-2:] for row in claims_table([held, broken]).rows] == [(HOLDS, ""), (FAILS, "why")]
    assert tally([held, broken]) == {"claims": 2, "claims_hold": 1, "claims_fail": 1, "claims_undecided": 0}


def test_a_claim_can_fail_and_has_numbers():
    with pytest.raises(ValueError, match="cannot fail: give at_least or at_most"):
        Claim("a", "p", [1.0])
    with pytest.raises(ValueError, match="needs numbers"):
        Claim("a", "p", [], at_least=1.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40))
def test_an_interval_lies_around_its_mean(values):
    mean, low, high = Interval.of(values)
    assert low <= mean <= high
    assert mean - low == pytest.approx(high - mean, abs=1e-6)


def test_a_full_run_has_ten_seeds_and_a_quick_one_three():
    assert (len(Run().seeds()), len(Run(quick=True).seeds())) == (10, 3)


# The model of a cluster


@given(st.floats(0, 1), st.floats(1e-4, 1e-2), st.floats(1.0, 3.0))
def test_the_sustainable_batch_is_where_processing_takes_the_interval(fixed, row, span):
    rows = sustainable(lambda n: fixed + row * n, span, most=1e6)
    assert rows == pytest.approx((span - fixed) / row, abs=1.0)


def test_what_is_never_done_in_time_sustains_nothing_and_what_always_is_the_most():
    assert sustainable(lambda _: 9.0, 1.0, 100.0) == 0
    assert sustainable(lambda _: 0.5, 1.0, 100.0) == 100


def test_processing_takes_the_slowest_map_and_then_the_slowest_reduce_task():
    shape = Shape(np.array([10, 30]), np.array([5, 1]), np.array([2, 8]), np.array([2, 2]))
    costs = TaskCosts(1.0, 0.1, 0.0, 2.0, 0.5, 0.0)
    assert shape.seconds(costs) == pytest.approx((1 + 3.0) + (2 + 4.0))


def test_times_between_the_points_of_a_grid_lie_on_lines():
    at = through([10, 20], np.array([1.0, 2.0]))
    assert [at(n) for n in (5, 10, 15, 20)] == pytest.approx([0.5, 1.0, 1.5, 2.0])


@given(st.tuples(*[st.floats(0.01, 10)] * 3))
def test_a_fit_finds_the_costs_that_made_the_times(costs):
    sizes = [(1, 20, 2), (1, 400, 10), (1, 400, 300), (1, 900, 30), (1, 900, 800)]
    cases = [(*size, float(np.dot(size, costs))) for size in sizes]
    assert cluster_model.fitted(cases) == pytest.approx(costs, rel=1e-3)


def test_no_cost_is_negative():
    assert min(cluster_model.fitted([(1, 10, 1, 1.0), (1, 20, 1, 2.0), (1, 20, 9, 1.5), (1, 40, 30, 2.5)])) >= 0


def test_operators_run_in_the_tasks_of_spark_and_give_the_right_answers(monkeypatch):
    from steelyard.bench.prompt.operators import result_schema, state_schema, use_of
    from steelyard.spark.combine import combiner
    from steelyard.spark.reduce import finisher

    block = cluster_model.event_block(np.random.default_rng(1), rows=50, keys=5)
    for operator in OPERATORS:
        use = {"total": use_of(operator)}
        combined = next(combiner(("key",), use, state_schema(operator), 4, PromptAllocator(), None, 10)(iter([block])))
        assert combined.num_rows == 5
        bucket = cluster_model.bucket_of(combined, keys=1)  # all five states as one key's
        total = next(finisher(use, result_schema(operator))(iter([bucket]))).column("total")[0].as_py()
        events = [worth(event) for event in block.column("event").to_pylist()]
        expected = sum(events) if operator == "sum" else np.median(events)
        assert total == pytest.approx(expected, abs=1e-6 if operator == "sum" else 200)


def test_measured_costs_are_positive_where_rows_and_keys_are(monkeypatch):
    monkeypatch.setattr(cluster_model, "MAP_SIZES", ((20, 5), (200, 10), (200, 200)))
    monkeypatch.setattr(cluster_model, "REDUCE_SIZES", ((10, 10), (100, 20), (100, 100)))
    assert cluster_model.measure_costs("sum", repetitions=1).map_row > 0


# Shapes


def test_a_stream_shapes_hash_blocks_as_its_plan_does(stream):
    shape = stream.hash()
    there = np.flatnonzero(stream.counts[-1])
    names = pa.array(there + stream.first_name)
    plan = Hash().plan(KeyCounts(names, stream.counts[-1][there]), stream.slots)
    assert shape.rows[-1].tolist() == plan.sizes.tolist()
    assert shape.keys[-1].tolist() == plan.cardinalities.tolist()


def test_a_stream_shapes_routed_blocks_as_counting_does(stream, monkeypatch):
    monkeypatch.setattr(shapes, "AT_ONCE", 1_700)
    shape = stream.routed(TwoChoices(window=0))
    for point, length in enumerate(stream.grid.tolist()):
        keys = stream.keys[:length]
        block = TwoChoices(window=0).router(stream.slots).route(stream.ids[keys], np.zeros(length, np.int64)).block
        pairs = set(zip(keys.tolist(), block.tolist(), strict=True))
        assert shape.rows[point].tolist() == np.bincount(block, minlength=stream.slots).tolist()
        assert shape.keys[point].sum() == shape.records[point].sum() == len(pairs)
        assert shape.bucket_keys[point].sum() == len(set(keys.tolist()))


@pytest.mark.parametrize("allocator", [HashAllocator(), PromptAllocator()])
def test_every_cluster_of_a_plan_is_one_record_and_every_key_is_reduced_once(stream, allocator):
    there = np.flatnonzero(stream.counts[-1])
    plan = Prompt().plan(KeyCounts(pa.array(there), stream.counts[-1][there]), stream.slots)
    shape = shape_of(plan, stream.ids[there], allocator)
    assert shape.records.sum() == len(plan.rows)
    assert shape.bucket_keys.sum() == len(there)


def test_another_seed_gives_other_names_and_so_other_hash_blocks():
    first, other = (Stream.drawn(1.2, keys=50, rows=100, slots=4, seed=seed) for seed in (1, 2))
    assert not set(first.ids.tolist()) & set(other.ids.tolist())


def test_equal_shares_by_arrival_are_shuffling(stream):
    by_arrival = stream.by_arrival(float(stream.grid[-1]), np.full(stream.slots, 1 / stream.slots))
    assert by_arrival.keys.tolist() == stream.shuffle().keys[-1].tolist()


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 16), st.floats(0, 1))
def test_a_wave_has_the_rows_of_its_mean(period, parts, amplitude):
    batches = Wave(2.0, 2.0 * period, amplitude).batches(parts)
    assert batches.shape == (period, parts)
    assert batches.sum() == pytest.approx(period)
    assert batches.min() >= 0


def test_a_wave_within_the_interval_slows_time_based_blocks_alone(stream):
    shapes, plans = shapes_of(stream, Affinity())
    even = rates_of(stream, shapes, plans * 0, COSTS, Wave(0.1, 0.1, amplitude=0.0))
    swinging = rates_of(stream, shapes, plans * 0, COSTS, Wave(0.1, 0.1, amplitude=0.5))
    assert swinging[TIME] < 0.85 * even[TIME]
    assert {policy: rate for policy, rate in swinging.items() if policy != TIME} == pytest.approx(
        {policy: rate for policy, rate in even.items() if policy != TIME}
    )
    assert even[PROMPT] >= 0.999 * max(even.values())


def test_a_plan_that_does_not_fit_into_the_slack_costs_rate(stream):
    shapes, plans = shapes_of(stream, Affinity())
    wave = Wave(0.1, 0.1, amplitude=0.0)
    in_time = rates_of(stream, shapes, np.full(len(plans), 0.004), COSTS, wave)
    late = rates_of(stream, shapes, np.full(len(plans), 0.02), COSTS, wave)
    assert late[PROMPT] < in_time[PROMPT]


# The benchmarks


def test_all_five_are_registered():
    assert [one.name for one in choose(NAMES)] == list(NAMES)


def test_rates_of_a_tiny_cluster(run, monkeypatch, tmp_path):
    monkeypatch.setattr(prompt_rate, "PERIODS", (1, 5))
    found = prompt_rate.simulate(run, BOTH_COSTS, words=200, slots=4)
    result = prompt_rate.result_of(found, found)
    assert {f"prompt_vs_{rival}" for rival in RIVALS} <= set(result.metrics)
    assert {f"prompt_vs_{rival}_histogram" for rival in RIVALS} <= set(result.metrics)
    verdicts = [row["verdict"] for row in claims_in(result).values()]
    assert [result.metrics[f"claims_{one}"] for one in ("hold", "fail", "undecided")] == [
        verdicts.count(one) for one in (HOLDS, FAILS, OPEN)
    ]
    assert result.kind_of("prompt_vs_time") == "simulated"
    assert [(row[0], row[1]) for row in result.tables[3].rows] == [
        (op, t) for op in BOTH_COSTS for t in (1.0, 2.0, 3.0)
    ]
    assert drawn("prompt-rate", result, tmp_path) > 1000


def test_few_slots_have_all_seeds_and_the_testbed_few(monkeypatch):
    monkeypatch.setattr(prompt_rate, "PERIODS", (1,))
    full = Run(quick=False, seed=3, progress=Reporter(Console(quiet=True)))
    few = prompt_rate.simulate(full, {"sum": SLOW}, words=20, slots=2)
    testbed = prompt_rate.simulate(full, {"sum": SLOW}, words=20, slots=2, seeds=prompt_rate.TESTBED_SEEDS)
    assert (len(few.headline), len(testbed.headline)) == (SEEDS, prompt_rate.TESTBED_SEEDS)
    assert testbed.headline == few.headline[: prompt_rate.TESTBED_SEEDS]


def test_a_rate_claim_follows_the_rates(run):
    found = prompt_rate.simulate(run, {"sum": SLOW}, words=100, slots=2)
    text = "sum: Prompt sustains 2x the rate of time, at its best over T and period"

    def verdict(factor):
        made_up = {
            wave: [{**one, TIME: 10.0, PROMPT: 10.0 * factor + seed} for seed, one in enumerate(rates)]
            for wave, rates in found.rates.items()
        }
        changed = prompt_rate.SustainedRates(made_up, found.dearer, found.cam, found.costs, found.rows, 100, 2)
        return {claim.claim: claim.verdict for claim in prompt_rate.claims_of(changed)}[text]

    assert (verdict(3.0), verdict(1.2)) == (HOLDS, FAILS)


def test_skew_of_a_tiny_cluster(run, tmp_path):
    found = prompt_skew.simulate(run, BOTH_COSTS, keys=200, slots=4, exponents=(0.1, 2.0))
    result = prompt_skew.result_of(found, quick=True)
    assert result.metrics["prompt_vs_hash"] > 1.5
    assert claims_in(result)["sum: Prompt's rate is flat (lowest over highest)"]["verdict"] == HOLDS
    assert drawn("prompt-skew", result, tmp_path) > 1000


def test_metrics_of_small_batches(tmp_path):
    made = prompt_metrics.workloads(rows=4_000, keys=200)
    found = {
        name: prompt_metrics.measure([made[name](seed) for seed in (1, 2)], blocks=8)
        for name in (prompt_metrics.TWEETS, prompt_metrics.ITEMS, "Zipf 1")
    }
    gaps = {order: gap_report(Prompt(residual_order=order), cases=3) for order in prompt_metrics.ORDERS}
    result = prompt_metrics.result_of(found, gaps, quick=True)
    claims = claims_in(result)
    assert claims["Zipf 1: Prompt's BSI is at shuffle's level (difference, over hash's)"]["verdict"] == HOLDS
    assert claims["Zipf 1: Prompt makes fewer fragments than pk5 (difference of KSR)"]["verdict"] == HOLDS
    assert result.kind_of("prompt_relative_bci") == "measured"
    assert result.metrics["optimality_gap"] >= 0
    assert drawn("prompt-metrics", result, tmp_path) > 1000


def test_a_claim_on_metrics_follows_the_measures():
    numbers = {measure: [1.0, 1.0] for measure in prompt_metrics.MEASURES}
    measured = {policy: {**numbers} for policy in prompt_metrics.POLICIES}
    fewer = "w: Prompt makes fewer fragments than pk2 (difference of KSR)"

    def verdict(ksr):
        changed = measured | {PROMPT: numbers | {"ksr": [ksr, ksr]}}
        return {claim.claim: claim.verdict for claim in prompt_metrics.claims_of("w", changed)}[fewer]

    assert (verdict(0.9), verdict(1.1)) == (HOLDS, FAILS)


def test_blocks_by_arrival_have_the_keys_that_cutting_rows_gives():
    draws = np.random.default_rng(3)
    rows = draws.integers(1, 12, 2_000)
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    home = np.arange(2_000) % 4
    shape = prompt_latency.blocks_by_arrival(rows, home, weights, draws)
    arrived = draws.permutation(np.repeat(np.arange(2_000), rows))
    ends = np.cumsum(np.rint(weights * len(arrived)).astype(int))[:-1]
    parts = [np.unique(part) for part in np.split(arrived, ends)]
    assert shape.keys == pytest.approx([len(part) for part in parts], rel=0.05)
    assert shape.records == pytest.approx(np.bincount(home[np.concatenate(parts)], minlength=4), rel=0.05)
    assert shape.rows.sum() == rows.sum()


def test_latency_of_a_tiny_cluster(tmp_path):
    costs = BOTH_COSTS["histogram"]
    largest = 0.8 * prompt_latency.prompt_limit(costs, words=200, slots=4, seed=1)
    found = [prompt_latency.timelines(costs, largest, 20, words=200, slots=4, seed=seed) for seed in (1, 2)]
    result = prompt_latency.result_of(found, costs, largest, quick=True)
    assert result.metrics["prompt_violations"] <= result.metrics["time_violations"]
    assert result.parameters["batches"] == 40
    for one in result.panel(prompt_latency.PROCESSING):
        longest = max(each[one.name].processing.max() for each in found)
        assert (one.x[-1], one.y[0], one.y[-1]) == (pytest.approx(longest), 0, 1)
    assert drawn("prompt-latency", result, tmp_path) > 1000


def test_one_seed_gives_the_same_timeline_twice():
    first, again = (prompt_latency.timelines(COSTS, 5_000, 3, 100, 4, seed=9)[PROMPT] for _ in range(2))
    assert first.processing.tolist() == again.processing.tolist()


def test_early_release_misses_what_takes_longer_than_the_slack():
    fine, late = (prompt_buffering.release([seconds] * 4, 1.0, fixed=True) for seconds in (0.04, 0.06))
    assert (fine.misses, late.misses) == (0.0, 1.0)
    assert late.overrun == pytest.approx(0.01)
    assert prompt_buffering.release([0.01] * 4, 1.0, fixed=False).largest_slack <= 0.05


def test_overhead_of_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(prompt_overhead, "SLOTS", 4)
    monkeypatch.setattr(prompt_buffering, "SLOTS", 4)
    timed = [prompt_buffering.time_keys(keys, [1, 2]) for keys in (50, 200)]
    taken = [prompt_buffering.partition_times(100, seed, releases=2) for seed in (1, 2)]
    rates = [prompt_overhead.rates_after(timed, COSTS, keys=200, seed=seed) for seed in (1, 2)]
    budgets = [prompt_ablation.study_budgets(seed, rows=4_000, keys=200, blocks=8) for seed in (1, 2)]
    allocators = [prompt_ablation.study_allocator(seed, rows=4_000, keys=200, buckets=4) for seed in (1, 2)]
    result = prompt_overhead.result_of(timed, taken, rates, COSTS, budgets, allocators, quick=True)
    assert result.kind_of("rate_tree_over_sort") == "simulated"
    assert result.kind_of("tree_after_cut_off_ms") == "measured"
    assert [table.title.split(":")[0] for table in result.tables[2:]] == [
        "budget of the tree",
        "bucket allocation (Algorithm 3)",
    ]
    verdicts = [row["verdict"] for row in claims_in(result).values()]
    assert [result.metrics[f"claims_{one}"] for one in ("hold", "fail", "undecided")] == [
        verdicts.count(one) for one in (HOLDS, FAILS, OPEN)
    ]
    assert drawn("prompt-overhead", result, tmp_path) > 1000


def test_a_first_batch_with_one_move_a_key_misses_hot_keys_where_the_scan_is_literal():
    found = prompt_ablation.study_budgets(seed=7, rows=20_000, keys=1_000, blocks=8)
    assert found[1]["BSI, to first small, first batch"] > found[16]["BSI, to first small, first batch"]
    assert found[1]["BSI, full scan, first batch"] < 0.01


def test_a_sort_is_charged_after_the_cut_off_and_the_tree_is_walked_there():
    timed = prompt_buffering.Timed(10, [10], {}, {"tree": [0.25], "sort": [0.5]}, [1.0])
    assert (timed.after_cut_off("tree").tolist(), timed.after_cut_off("sort").tolist()) == ([1.25], [1.5])


def test_prompt_allots_records_more_evenly_than_hashing():
    found = prompt_ablation.study_allocator(seed=2, rows=5_000, keys=400, buckets=4)
    assert found["prompt"]["largest/mean, records"] < found["hash"]["largest/mean, records"]


def test_rows_become_the_plan_of_where_they_went():
    rows = prompt_metrics.Rows.of(pa.array(["a", "b", "a"]))
    plan = rows.plan(np.array([0, 1, 1]), 2, "by hand")
    assert isinstance(plan, BlockPlan)
    assert (plan.ksr, plan.sizes.tolist()) == (1.5, [1, 2])
