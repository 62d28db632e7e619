"""Figures of the group-ahead benchmarks, from times that are made up."""

import pyarrow as pa
import pytest

from steelyard.bench import Result, breakdown, charts, promptplus_groups, promptplus_spike, promptplus_violations
from steelyard.bench.aggregate import WrongAnswerError
from steelyard.bench.breakdown import Parts
from steelyard.bench.promptplus_techniques import (
    BOUNDARY,
    FIXED,
    ONE_BY_ONE,
    PROMPTPLUS,
    Course,
    Ran,
    resident_course,
    spark_course,
    waiting,
)
from steelyard.workloads.rates import Constant


def course(name, blocks, loads, delay=0.5):
    return Course(name, [Ran(i, 100, b, load, delay) for i, (b, load) in enumerate(zip(blocks, loads, strict=True))])


def test_effect_and_stability_are_counted_from_one():
    ran = course(PROMPTPLUS, [4] * 16 + [8] * 14, [0.7] * 14 + [1.5] * 2 + [0.8] * 14)
    assert ran.effect(15) == 17
    assert ran.stable(15) == 17


def test_a_technique_that_never_recovers_is_past_the_last_batch():
    ran = course(PROMPTPLUS, [4] * 30, [0.7] * 14 + [1.5] * 16)
    assert ran.effect(15) == ran.stable(15) == 31


def test_the_spike_prints_a_miss_with_what_was_decided():
    fast = course(PROMPTPLUS, [4] * 16 + [8] * 14, [0.7] * 14 + [1.5] * 2 + [0.8] * 14)
    slow = course(BOUNDARY, [4] * 20 + [8] * 10, [0.7] * 14 + [1.5] * 6 + [0.8] * 10)
    result = promptplus_spike.result_of({promptplus_spike.STEP: {PROMPTPLUS: fast, BOUNDARY: slow}}, 1.0)
    assert result.metrics["effect_batch"] == 17
    assert result.metrics["boundary_effect_batch"] == 21
    assert all(target.met(result.metrics) for target in result.targets)
    result = promptplus_spike.result_of({promptplus_spike.STEP: {PROMPTPLUS: slow, BOUNDARY: slow}}, 1.0)
    assert not result.targets[0].met(result.metrics)


def test_late_batches_are_those_that_end_an_interval_after_their_own():
    late = course(FIXED, [4] * 4, [1] * 4, delay=1.2)
    early = course(PROMPTPLUS, [4] * 4, [1] * 4)
    result = promptplus_violations.result_of({PROMPTPLUS: early, FIXED: late, ONE_BY_ONE: late}, 1.0)
    assert result.metrics["prompt_plus_late"] == 0
    assert result.metrics["fixed_late"] == result.metrics["late_less_than_best_rival"] == 1
    figure = charts.new_figure()
    charts.draw_result("promptplus-violations", Result.from_dict(result.to_dict()))(figure)
    loads, delays = ([line.get_ydata().tolist() for line in axes.lines[:-1]] for axes in figure.axes[1:])
    assert loads == [[1] * 4] * 3
    assert delays[1:] == [[1.2] * 4] * 2


def test_a_rate_that_spark_cannot_sustain_gives_a_bound():
    seconds = {
        promptplus_groups.SPARK: {1_000: 0.15, 1_000_000: 0.5},
        promptplus_groups.HEADLINE_WAY: {1_000: 0.01, 1_000_000: 0.2},
    }
    result = promptplus_groups.result_of(seconds, 1)
    assert result.metrics["spark_rows_per_s_100ms"] == 0
    ours = result.metrics["group_ahead_rows_per_s_100ms"]
    assert result.metrics["group_ahead_vs_spark_100ms"] == pytest.approx(ours / 10_000)
    assert any("a bound from below" in note for note in result.notes)


def test_different_answers_stop_the_run():
    right = pa.table({"key": [1, 2], "n": [1, 1], "total": [5, 6]})
    promptplus_groups.require_equal(right.take([1, 0]), right, "ours")
    with pytest.raises(WrongAnswerError, match="ours"):
        promptplus_groups.require_equal(pa.table({"key": [1, 2], "n": [1, 2], "total": [5, 6]}), right, "ours")
    with pytest.raises(WrongAnswerError, match="ours"):
        promptplus_groups.require_equal(right.slice(0, 1), right, "ours")


def test_parts_of_a_batch_add_up():
    parts = Parts.of([(3.0, [1.0, 2.0]), (5.0, [1.0, 1.0]), (4.0, [1.0, 3.0])])
    assert parts.total == pytest.approx(1.5 + 0.5 + 1.0)
    found = dict.fromkeys((breakdown.BASELINE, breakdown.PROMPT, breakdown.AHEAD, breakdown.ELASTIC), parts)
    assert breakdown.result_of(found, 8).metrics["all_vs_baseline"] == 1


def test_both_kinds_of_courses_run_every_row(spark):
    interval = 0.1
    ours = resident_course(spark, PROMPTPLUS, Constant(1_000), 4, interval)
    theirs = spark_course(spark, Constant(1_000), 4, interval)
    assert [ran.batch for ran in ours.ran] == [ran.batch for ran in theirs.ran] == [0, 1, 2, 3]
    assert sum(ran.rows for ran in theirs.ran) == 400
    assert 300 <= sum(ran.rows for ran in ours.ran) <= 400, "what came after the last cut is not read"
    assert waiting(1.0, fixed=2.0) == 0
