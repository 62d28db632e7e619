"""The experiments on Dalton: their model, their streams, their verdicts, and small runs of each."""

import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.partition.streaming_metrics import RoutedWindows

from steelyard.bench.claims import FAILS, HOLDS, OPEN, Claim, Interval, claims_table, tally
from steelyard.bench.dalton import adaptivity as dalton_adaptivity
from steelyard.bench.dalton import batches as dalton_batches
from steelyard.bench.dalton import convergence as dalton_convergence
from steelyard.bench.dalton import overhead as dalton_overhead
from steelyard.bench.dalton import partitioners as dalton_partitioners
from steelyard.bench.dalton import rates as dalton_rates
from steelyard.bench.dalton import scalability as dalton_scalability
from steelyard.bench.dalton import stage_model
from steelyard.bench.dalton import streams as dalton_streams
from steelyard.bench.dalton import sync as dalton_sync
from steelyard.bench.dalton.cooperation import ALONE, COOPERATIVE, shared, syncing
from steelyard.bench.dalton.policies import ALL, contenders, evaluate, timeline
from steelyard.bench.dalton.stage_model import OperatorCosts, Plan, Stages, Trace, Window
from steelyard.bench.registry import choose, experiments
from steelyard.workloads.ranks import rank_table

ROW_AT_A_TIME = OperatorCosts(2.0, 0.0, 4.0)
COSTS = {"windows": ROW_AT_A_TIME, "queues": ROW_AT_A_TIME, "panes": OperatorCosts(11.0, 150.0, 12.0)}
SEEDS = [1, 2]
NAMES = ["scalability", "adaptivity", "overhead", "rates", "partitioners", "sync", "convergence"]


def rows_of(seed, count=400, keys=20, blocks=4):
    rng = np.random.default_rng(seed)
    return rng.integers(0, keys, count), rng.integers(0, blocks, count).astype(np.int32), rng.random(count) < 0.2


# the stage model


def test_the_slowest_stage_sets_the_rate():
    stages = Stages(partitioner=0.5, combiner=4.0, reducer=10.0)
    assert stages.rate == pytest.approx(100_000)
    assert stages.slowest == "reducer"


@pytest.mark.parametrize(("slots", "combiners"), [(8, 7), (16, 14), (32, 28), (64, 56)])
def test_one_slot_in_eight_is_a_reducer(slots, combiners):
    assert Plan.of(slots) == (combiners, slots // 8)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_partials_of_a_window_are_those_of_the_library(seed, reducers):
    keys, block, split = rows_of(seed)
    window = Window(keys, block, split, 4, slide=100)
    library = RoutedWindows(keys, block, np.arange(400), blocks=4, window=400, slide=100)
    assert len(window.partials.key) == library.partials(reducers)[-1].sum()
    assert window.loads.tolist() == library.loads[-1].tolist()
    by_slide = RoutedWindows(keys, block, np.arange(400), blocks=4, window=100, slide=100)
    assert len(window.pane_partials.key) == by_slide.partials(1).sum()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000))
def test_only_keys_with_a_marked_row_go_through_the_reducers_when_partials_are_forwarded(seed):
    keys, block, split = rows_of(seed, count=60)
    window = Window(keys, block, split, 4, slide=60)
    marked = set(keys[split].tolist())
    assert window.shared(window.partials.key).tolist() == [key in marked for key in window.partials.key.tolist()]


def test_a_plan_of_one_step_spends_nothing_in_reducers_and_forwarding_never_costs_them_more():
    window = Window(*rows_of(3), 4, slide=100)
    for engine, cost in COSTS.items():
        options = {"engine": engine, "partitioner_us": 0.1}
        assert window.stages(0, cost, forwarding=False, **options).reducer == 0
        everything = window.stages(2, cost, forwarding=False, **options)
        assert window.stages(2, cost, forwarding=True, **options).reducer <= everything.reducer


def hand_window(*, exact=False):
    """Four rows in two slides: key 0 in both blocks, keys 1 and 2 in block 1; the router had marked keys 0 and 2."""
    keys, block = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1], np.int32)
    return Window(keys, block, np.array([True, False, False, True]), 2, slide=2, exact=exact)


@pytest.mark.parametrize(
    ("engine", "forwarding", "exact", "reducers", "combiner", "reducer"),
    [
        # Block 1 has 3/4 of the rows, each is added to 2 windows at 1 + 2 us: 4.5. Four partials of 8 us over 4 rows,
        # sent twice: 16. Marked are keys 0 and 2 with three partials: 12. In two blocks is key 0 alone, with two: 8.
        ("windows", False, False, 1, 4.5, 16.0),
        ("windows", True, False, 1, 4.5, 12.0),
        ("windows", True, True, 1, 4.5, 8.0),
        ("windows", False, False, 0, 4.5, 0.0),
        # Block 1 has 3 rows of 1 us and 3 groups of 2 us: 9 over 4 rows. What is not sent on it merges, 8 us a key:
        # key 1 (17 over 4 rows), or keys 1 and 2 (25), or all three (33). Partials are sent once.
        ("panes", False, False, 1, 2.25, 8.0),
        ("panes", True, False, 1, 4.25, 6.0),
        ("panes", True, True, 1, 6.25, 4.0),
        ("panes", False, False, 0, 8.25, 0.0),
    ],
)
def test_stages_of_a_window_are_those_computed_by_hand(engine, forwarding, exact, reducers, combiner, reducer):
    costs = OperatorCosts(row=1.0, group=2.0, merge=8.0)
    found = hand_window(exact=exact).stages(reducers, costs, engine=engine, forwarding=forwarding, partitioner_us=0.25)
    assert found == pytest.approx((0.25, combiner, reducer))


def test_the_reducer_with_most_partials_is_the_one_that_counts():
    keys = np.array([key for key in range(100) if stage_model.hashed(np.array([key]), 2)[0] == 0][:3])
    other = next(key for key in range(100) if stage_model.hashed(np.array([key]), 2)[0] == 1)
    window = Window(np.array([*keys, other]), np.zeros(4, np.int32), np.ones(4, bool), 1, slide=4)
    costs = OperatorCosts(row=1.0, group=0.0, merge=8.0)
    found = window.stages(2, costs, engine="windows", forwarding=False, partitioner_us=0.0)
    assert found.reducer == pytest.approx(3 * 8 / 4)


def test_short_queues_feel_a_block_that_is_full_for_a_while():
    block = np.repeat(np.arange(2, dtype=np.int32), stage_model.QUEUE)
    window = Window(np.zeros(len(block), np.int64), block, np.ones(len(block), bool), 2, slide=stage_model.QUEUE)
    costs = OperatorCosts(row=1.0, group=2.0, merge=8.0)
    deep, short = (
        window.stages(1, costs, engine=engine, forwarding=False, partitioner_us=0.0) for engine in ("windows", "queues")
    )
    assert (deep.combiner, short.combiner) == (0.5 * 2 * 3, 1.0 * 2 * 3)
    assert deep.reducer == short.reducer == pytest.approx(2 * 8 / len(block) * 2)


def test_costs_of_both_engines_come_from_running_operators(monkeypatch):
    monkeypatch.setattr(stage_model, "TEXTS", 100)
    stage_model.word_count_costs.cache_clear()
    for engine in stage_model.ENGINES:
        cost = stage_model.word_count_costs(engine, repetitions=1)
        assert cost.alone > 0
        assert cost.merge > 0
    stage_model.word_count_costs.cache_clear()


def test_a_batch_takes_all_stages_after_each_other():
    keys, block, _ = rows_of(5)
    stages = stage_model.micro_batch_us(keys, block, Plan(4, 2), COSTS["panes"], partition_us=7.0)
    assert stages.partitioner == 7.0
    assert dalton_batches.batch_rate(stages) == pytest.approx(dalton_batches.BATCH * 1e6 / sum(stages))


def test_a_block_that_takes_turns_is_even_over_the_window_and_full_at_each_time():
    block = np.repeat(np.arange(4, dtype=np.int32), 100)
    window = Window(np.zeros(400, np.int64), block, np.ones(400, bool), 4, slide=100)
    assert window.largest_share == 0.25
    assert window.passing_share(queue=100) == 1.0
    assert window.passing_share(queue=400) == 0.25


# streams


@pytest.mark.parametrize(
    ("stream", "share"),
    [(dalton_streams.T4SA, 0.0269), (dalton_streams.ELECTIONS, 0.072), (dalton_streams.ZIPF_15, 0.3837)],
)
def test_stand_ins_have_the_share_of_the_most_frequent_key(stream, share):
    assert rank_table(stream.exponent, stream.keys).shares[0] == pytest.approx(share, rel=0.01)


def test_a_seed_chooses_which_keys_are_hot():
    hot = [np.bincount(dalton_streams.ZIPF_15.draw(2_000, seed)).argmax() for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]


# verdicts


def test_verdicts_follow_from_the_values_alone():
    ahead, behind, mixed = [1.4, 1.5, 1.45], [0.7, 0.72, 0.69], [0.7, 1.4, 1.1]
    assert [Claim("", "", values, at_least=1).verdict for values in (ahead, behind, mixed)] == [HOLDS, FAILS, OPEN]
    assert [Claim("", "", values, at_most=1).verdict for values in (ahead, behind, mixed)] == [FAILS, HOLDS, OPEN]
    assert tally([Claim("", "", ahead, 1.0)] * 2 + [Claim("", "", behind, 1.0)]) == {
        "claims": 3,
        "claims_hold": 2,
        "claims_fail": 1,
        "claims_undecided": 0,
    }


def test_an_interval_is_students():
    found = Interval.of([1.0, 2.0, 3.0, 4.0])
    assert found.mean == 2.5
    assert found.high - found.mean == pytest.approx(3.182 * math.sqrt(5 / 3) / 2, rel=1e-6)
    assert Interval.of([7.0]) == (7.0, 7.0, 7.0)


def test_the_claims_table_says_what_was_found_and_why():
    claim = Claim("a beats b", "2x", [1.0, 1.1], at_least=3.0, reason="b is good")
    (row,) = claims_table([claim]).rows
    assert row == ("a beats b", "2x", str(claim.interval), ">= 3", FAILS, "b is good")


# single parts


def trace_of(block, split=None, keys=None):
    block = np.asarray(block, np.int32)
    keys = np.zeros(len(block), np.int64) if keys is None else keys
    return Trace(keys, block, np.ones(len(block), bool) if split is None else split, 4, 0.1)


def test_recovery_counts_the_windows_until_the_fullest_block_is_as_full_as_later():
    even = np.tile([0, 1, 2, 3], 25)
    assert dalton_adaptivity.recovery(trace_of(np.tile(even, 10)), 0, 1000, 100) == 1
    late = np.concatenate([np.zeros(300), np.tile(even, 7)])
    assert dalton_adaptivity.recovery(trace_of(late), 0, 1000, 100) == 4


def test_detection_is_the_first_marked_row_of_the_new_top_key():
    split = np.arange(1000) >= 250
    assert dalton_adaptivity.detection(trace_of(np.zeros(1000), split), 100, 1000, 100) == 1.5


def test_a_plan_achieves_what_is_offered_up_to_its_capacity():
    stages = [Stages(0.1, 10.0, 1.0)] * 50
    assert dalton_rates.play(stages, 1000, 60_000).rate == 60_000
    above = dalton_rates.play(stages, 1000, 300_000)
    assert above.rate == pytest.approx(100_000, rel=0.02)
    assert above.lag > 0.3


def test_verdicts_on_rates_follow_the_figures():
    def verdicts(few, rival):
        rates = {share: dalton_rates.Achieved(100.0 * share, 0.0) for share in dalton_rates.SHARES}
        found = {(64, name): [[one] for one in rates.values()] for name in ALL}
        found |= {(64, name): [[dalton_rates.Achieved(rival, 0.0)]] * len(rates) for name in ("hash", "dagreedy")}
        found |= {(64, name): found[64, "hash"] for name in ALL if not name.startswith("dalton")}
        found[8, "dalton"] = [[dalton_rates.Achieved(few, 0.0)]] * len(rates)
        return [claim.verdict for claim in dalton_rates.claims_of(found)]

    assert verdicts(few=10.0, rival=60.0) == [HOLDS, HOLDS]
    assert verdicts(few=9.0, rival=80.0) == [FAILS, FAILS]


def test_the_adaptive_interval_follows_the_published_trajectory():
    rounds = dalton_sync.trajectory(scale=0.05, seed=1)
    assert tuple(dalton_sync.settled(rounds, 0.05)) == dalton_sync.SETTLED


def test_partitioners_that_never_synchronise_do_not_forward():
    assert shared()[COOPERATIVE].forwarding
    assert not shared()[ALONE].forwarding
    assert syncing(10_000).forwarding
    assert not syncing(40_000).forwarding
    assert not syncing(dalton_sync.NEVER).forwarding


def test_several_partitioners_route_every_row_once_in_its_place():
    sources = [np.arange(3_000) % 700, np.arange(3_000) % 50]
    for one in shared().values():
        trace = one.trace(sources, 8, seed=1)
        assert trace.keys[::2].tolist() == sources[0].tolist()
        assert trace.keys[1::2].tolist() == sources[1].tolist()
        assert 0 <= trace.block.min() <= trace.block.max() < one.plan(8).combiners


def test_skew_makes_hash_slower_and_hardly_matters_to_dalton():
    uniform, skewed = (stream.draw(4_000, 1) for stream in (dalton_streams.UNIFORM, dalton_streams.ZIPF_15))
    rate = {
        (name, skew): evaluate(one, keys, 16, COSTS, 1).rate()
        for name, one in contenders(["hash", "dalton"], 2_000, 500).items()
        for skew, keys in ((False, uniform), (True, skewed))
    }
    assert rate["hash", True] < 0.4 * rate["hash", False]
    assert rate["dalton", True] > rate["hash", True]


def test_costs_at_each_time_are_those_of_the_rows_then():
    keys = np.concatenate([np.arange(2_000), np.zeros(2_000, np.int64)])
    line = timeline(contenders(["hash"], 1_000, 250)["hash"], keys, 8, COSTS, 1_000)
    assert len(line.stages) == 4
    assert line.rates()[3] < line.rates()[0] / 4
    assert line.throughput([3]) == pytest.approx(line.rates()[3])


# small runs


def small_scalability():
    found = dalton_scalability.tuple_rates(dalton_streams.STREAMS, SEEDS, 1, COSTS, range(2))
    batches = dalton_scalability.batch_rates(dalton_streams.STREAMS, SEEDS, COSTS["panes"], 64)
    return dalton_scalability.result_of(found, batches, COSTS, SEEDS)


def small_adaptivity():
    streams = [dalton_streams.alternating(6_000, 4, seed) for seed in SEEDS]
    lines = dalton_adaptivity.lines_of(streams, SEEDS, COSTS)
    drifting = dalton_adaptivity.lines_of([dalton_streams.random_zipf(6_000, 4, seed) for seed in SEEDS], SEEDS, COSTS)
    batches = dalton_adaptivity.batch_ratios(3, SEEDS, COSTS)
    clusters = dalton_adaptivity.clustering_rates(6_000, SEEDS)
    names = ("dalton", "dalton, cap n", "dagreedy", dalton_adaptivity.DETECTED)
    recovered = {name: [1.0, 2.0] for name in names}
    return dalton_adaptivity.result_of(6_000, lines, drifting, batches, clusters, recovered, 2)


def small_overhead():
    counting = dalton_overhead.statistics_costs(4_000, 1, 1)
    forced, ablation = dalton_overhead.forced_rates(SEEDS, COSTS), dalton_overhead.ablation_rates(SEEDS, COSTS)
    return dalton_overhead.result_of(counting, forced, ablation, 4_000, 2)


def small_rates():
    return dalton_rates.result_of(dalton_rates.lines_of(SEEDS, COSTS), 2)


def small_partitioners():
    return dalton_partitioners.result_of(dalton_partitioners.rates_of(SEEDS, COSTS, rows=40_000), 2)


def small_sync():
    runs = [dalton_sync.trajectory(0.05, 1)]
    return dalton_sync.result_of(dalton_sync.sweep_of(SEEDS, COSTS, 10_000), runs, 0.05, 2)


def small_convergence():
    curves = dalton_convergence.converge(SEEDS, 80_000)
    return dalton_convergence.result_of(curves, dalton_convergence.first_figure(SEEDS, COSTS), 80_000, 2)


SMALLER = [
    (dalton_scalability, {"ROWS": 62_000, "WINDOWS": 1, "BATCHES": 3, "SLOTS": (8, 64)}),
    (dalton_adaptivity, {"EVERY": 2_000}),
    (dalton_overhead, {"ROWS": 62_000, "FORCED": (1, 4, 56)}),
    (dalton_rates, {"ROWS": 70_000, "SLOTS": (8, 64)}),
    (dalton_convergence, {"PART": 20_000}),
]


@pytest.fixture(scope="module")
def small():
    """Runs an experiment at a small size, each once."""
    with pytest.MonkeyPatch.context() as patch:
        for module, sizes in SMALLER:
            for name, size in sizes.items():
                patch.setattr(module, name, size)
        yield lru_cache(lambda name: globals()[f"small_{name}"]())


@pytest.mark.parametrize("name", NAMES)
def test_a_small_run_has_metrics_verdicts_and_a_picture(name, small, tmp_path):
    result = small(name)
    assert all(math.isfinite(value) for value in result.metrics.values())
    claims = result.tables[0]
    verdicts = [row[claims.columns.index("verdict")] for row in claims.rows]
    assert set(verdicts) <= {HOLDS, FAILS, OPEN}
    assert result.metrics["claims_hold"] == verdicts.count(HOLDS)
    assert all(one.source.startswith("Zapridou") for one in result.published)
    assert result.notes
    assert choose([f"dalton-{name}"])[0].save_picture(result, tmp_path / "picture.png").stat().st_size > 10_000


def test_every_experiment_is_a_benchmark_beside_its_figure():
    known = experiments()
    for name in NAMES:
        assert known[f"dalton-{name}"].figure.startswith("Zapridou et al. 2022, Fig")


def test_scalability_compares_every_policy_on_every_stream(small):
    result = small("scalability")
    rates = result.tables[1]
    assert rates.columns[2:] == ALL
    assert len(rates.rows) == 5 * 2
    assert result.kind_of("dalton_vs_hash_uniform") == "simulated"
    assert result.kind_of("dalton_route_ns") == "measured"
