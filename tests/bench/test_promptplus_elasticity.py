"""The experiment on elasticity zones: the input's patterns, the simulated cluster, and the verdicts."""

import numpy as np
import pytest

from steelyard.bench import Result, charts
from steelyard.bench.claims import FAILS, HOLDS, OPEN
from steelyard.bench.prompt import plus_elasticity as promptplus_elasticity
from steelyard.bench.prompt import plus_on_spark as promptplus_spark
from steelyard.bench.prompt.plus_elasticity import FIXED, SLOW, SWIFT, courses, result_of
from steelyard.bench.prompt.plus_model import (
    BEFORE,
    FALL,
    FEW,
    GROWTH,
    KEYS_RISE,
    LOAD,
    MANY,
    PATTERNS,
    RISE,
    SLOTS,
    Cluster,
    Evenness,
    simulate,
)
from steelyard.bench.prompt.plus_on_spark import Measured
from steelyard.bench.registry import choose
from steelyard.scaling import Fixed, Zones
from steelyard.sim.task_times import TaskCosts
from steelyard.spark.said import batch_progress

COSTS = TaskCosts(1e-3, 1e-5, 1e-5, 2e-4, 4e-6, 1e-5)
CLUSTER = Cluster(COSTS, Evenness(1.0, 1.0, 1.0))


@pytest.fixture(scope="module")
def found():
    return [courses(CLUSTER, seed) for seed in (3, 4, 5)]


def spark_run(blocks, load):
    """Reports as the engine gives them."""
    seconds = {"total": load * promptplus_spark.INTERVAL}
    return Measured(
        [
            batch_progress(i, rows=10, keys=2, blocks=many, buckets=2, policy="", seconds=seconds)
            for i, many in enumerate(blocks)
        ]
    )


def test_few_and_many_tasks_are_at_the_same_load_before_anything_changes():
    few = CLUSTER.stages(CLUSTER.unit, CLUSTER.unit / 4, FEW)
    many = CLUSTER.stages(GROWTH * CLUSTER.unit, GROWTH * CLUSTER.unit / 4, MANY)
    assert sum(few) == pytest.approx(LOAD)
    assert sum(many) == pytest.approx(LOAD)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda pattern: pattern.name)
def test_a_pattern_changes_along_a_line_from_its_first_to_its_last_multiple(pattern):
    rows, keys = pattern.batches(1_000)
    for counts, (first, last), one in ((rows, pattern.rows, 1_000), (keys, pattern.keys, 250)):
        assert np.all(counts[:BEFORE] == first * one)
        assert counts[-1] == last * one
        assert np.all(np.sign(np.diff(counts)) * np.sign(last - first) >= 0)


def test_a_batch_that_takes_too_long_makes_the_next_ones_wait():
    course = simulate(CLUSTER, PATTERNS[RISE], Fixed(), FEW, seed=1)
    late = course.load > 1
    assert np.all(course.delay[late] >= course.load[late] - 1e-9)
    assert np.all(np.diff(course.delay[-10:]) > 0)
    assert course.tracked < 0.6
    assert course.moved() == (0, 0)


def test_runs_of_one_seed_agree_and_leave_the_policy_as_it_was():
    policy = Zones()
    one, two = (simulate(CLUSTER, PATTERNS[FALL], policy, MANY, seed=2) for _ in range(2))
    assert np.array_equal(one.load, two.load)
    assert policy.state()["seen"].size == 0


def test_tasks_never_exceed_the_slots(found):
    for course in found[0].values():
        assert max(course.blocks.max(), course.buckets.max()) <= SLOTS


def test_elastic_tasks_keep_up_where_fixed_ones_do_not(found):
    assert found[0][RISE, SWIFT].tracked > 0.99 > found[0][RISE, FIXED].tracked
    assert found[0][RISE, SLOW].stable > 0.5 > found[0][RISE, FIXED].stable


def test_prompts_blocks_and_buckets_are_nearly_even():
    even = Evenness.measured(seed=1)
    assert 1 <= even.rows < 1.01
    assert 1 <= even.keys < 1.05
    assert 1 <= even.records < 1.05


def test_every_claim_has_a_verdict(found):
    blocks = [2, 2, 2, 3, 5, 7, 7, 7, 7, 6, 5, 4, 3]
    result = result_of(found, COSTS, spark_run(blocks, load=0.8), quick=True)
    claims = result.tables[0]
    verdict = claims.columns.index("verdict")
    for name, one in (("hold", HOLDS), ("fail", FAILS), ("undecided", OPEN)):
        assert result.metrics[f"claims_{name}"] == [row[verdict] for row in claims.rows].count(one)
    assert result.metrics["claims"] == len(claims.rows) == 22
    assert (result.metrics["spark_blocks_at_peak"], result.kind_of("spark_blocks_at_peak")) == (7, "measured")
    assert result.kind_of("stable_share_d1") == "simulated"


def test_tasks_and_loads_of_three_patterns_are_drawn_from_what_is_saved(found):
    result = result_of(found, COSTS, spark_run([2] * 13, load=0.8), quick=True)
    figure = charts.new_figure()
    choose(["promptplus-elasticity"])[0].draw(figure, Result.from_dict(result.to_dict()))
    lines = {axes.get_title("left"): {line.get_label(): line for line in axes.lines} for axes in figure.axes}
    assert list(lines) == [
        f"{what}: {part}" for part in ("tasks", "load") for what in ("Both rise", "Rate falls", "Keys fall", "On Spark")
    ]
    course = found[0][FALL, SWIFT]
    assert lines["Rate falls: load"][f"W, {SWIFT}"].get_ydata().tolist() == course.load.tolist()
    steps = lines["Rate falls: tasks"][f"map tasks, {SWIFT}"]
    held = np.searchsorted(steps.get_xdata(), np.arange(len(course.blocks)), side="right") - 1
    assert np.asarray(steps.get_ydata())[held].tolist() == course.blocks.tolist()


def test_a_claim_that_is_not_shown_says_why(found):
    dear = promptplus_elasticity.claims_of(found, SLOW, COSTS)
    (keys,) = [claim for claim in dear if claim.claim.startswith(f"{SLOW}: stable while {KEYS_RISE}")]
    assert keys.verdict == OPEN
    assert "a key costs 10 us in a map task and 14 us in a reduce task" in keys.reason


def test_a_load_above_one_at_the_peak_misses_the_target(found):
    result = result_of(found, COSTS, spark_run([2] * 13, load=1.2), quick=True)
    assert "spark_load_at_peak" in [target.metric for target in result.missed]
