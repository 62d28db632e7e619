"""Figures of the group-ahead benchmarks, from times that are made up."""

import pyarrow as pa
import pytest

from steelyard.bench import Result, charts
from steelyard.bench.claims import FAILS, HOLDS
from steelyard.bench.engine.aggregate import write_rows
from steelyard.bench.prompt import breakdown
from steelyard.bench.prompt import plus_groups as promptplus_groups
from steelyard.bench.prompt import plus_spike as promptplus_spike
from steelyard.bench.prompt import plus_violations as promptplus_violations
from steelyard.bench.prompt.breakdown import Parts
from steelyard.bench.prompt.plus_techniques import (
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
from steelyard.bench.registry import choose
from steelyard.bench.result import WrongAnswerError
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
    claims = result.table("claims").records()
    assert [row["verdict"] for row in claims] == [FAILS, FAILS, HOLDS, FAILS]
    assert all(bool(row["reason"]) == (row["verdict"] != HOLDS) for row in claims)


def test_verdicts_on_the_spike_follow_the_courses():
    fast = course(PROMPTPLUS, [4] * 16 + [8] * 14, [0.7] * 14 + [1.5] * 2 + [0.8] * 14)
    slow = course(BOUNDARY, [4] * 20 + [8] * 10, [0.7] * 14 + [1.5] * 6 + [0.8] * 10)
    spark = course(ONE_BY_ONE, [4] * 15 + [8] * 15, [0.7] * 14 + [1.5] * 1 + [0.8] * 15)
    held = promptplus_spike.claims_of({PROMPTPLUS: fast, BOUNDARY: slow, ONE_BY_ONE: spark})
    assert [claim.verdict for claim in held] == [HOLDS] * 5
    late = promptplus_spike.claims_of({PROMPTPLUS: slow, BOUNDARY: fast, ONE_BY_ONE: spark})
    assert [claim.verdict for claim in late] == [FAILS] * 5


def test_late_batches_are_those_that_end_an_interval_after_their_own():
    late = course(FIXED, [4] * 4, [1] * 4, delay=1.2)
    early = course(PROMPTPLUS, [4] * 4, [1] * 4)
    result = promptplus_violations.result_of({PROMPTPLUS: early, FIXED: late, ONE_BY_ONE: late}, 1.0)
    assert result.metrics["prompt_plus_late"] == 0
    assert result.metrics["fixed_late"] == result.metrics["late_less_than_best_rival"] == 1
    assert [row["verdict"] for row in result.table("claims").records()] == [HOLDS, HOLDS]
    worse = promptplus_violations.claims_of({PROMPTPLUS: 0.3, FIXED: 0.9, ONE_BY_ONE: 0.02}, changes=20)
    assert [claim.verdict for claim in worse] == [HOLDS, FAILS]
    figure = charts.new_figure()
    choose(["promptplus-violations"])[0].draw(figure, Result.from_dict(result.to_dict()))
    loads, delays = ([line.get_ydata().tolist() for line in axes.lines[:-1]] for axes in figure.axes[1:])
    assert loads == [[1] * 4] * 3
    assert delays[1:] == [[1.2] * 4] * 2


def test_a_rate_that_spark_cannot_sustain_gives_the_reason_and_no_ratio():
    result = promptplus_groups.result_of(times())
    assert result.metrics["spark_rows_per_s_100ms"] == 0
    assert "group_ahead_vs_spark_100ms" not in result.metrics
    assert all(target.metric != "group_ahead_vs_spark_100ms" for target in result.targets)
    assert any("cannot be told: a Spark job of 1,000 rows took 150.1 ms" in note for note in result.notes)
    gains = [row["gain, prompt"] for row in result.table("rows per second").records()]
    assert gains[:3] == [None] * 3  # 50, 100 and 200 ms
    assert gains[4] == result.metrics["group_ahead_vs_spark_1s_cheap_rows"]
    # Groups of 1,000,000 rows in 0.2 s and Spark's in 0.5 s; where rows cost the same, 0.5 s and 1 s.
    assert result.metrics["group_ahead_vs_spark_1s_cheap_rows"] > 2
    assert result.metrics["group_ahead_vs_spark_1s"] == pytest.approx(2, rel=0.05)
    figure = charts.new_figure()
    choose(["promptplus-groups"])[0].draw(figure, Result.from_dict(result.to_dict()))
    left, right = figure.axes
    assert {line.get_label() for line in left.lines} == set(times())
    assert {line.get_label() for line in right.lines[:4]} == {name for name in times() if "Spark" not in name}


@pytest.mark.parametrize(
    ("least", "second", "rate"),
    [
        # 85 ms with a thousand rows, 99.9 ms with 400,000: it has 0.1 ms of 35.1 ms for 1,600,000 more.
        (0.085, 0.0999, (400_000 + 1_600_000 * 0.1 / 35.1) / 0.1),
        # 102 ms with 400,000: the smallest batch is in time, and nobody knows how many rows are.
        (0.085, 0.102, None),
        # A job without rows leaves a millisecond of 100: that decides all.
        (0.0988, 0.0988, None),
    ],
)
def test_a_ratio_is_told_where_spark_has_room_for_the_second_smallest_batch(least, second, rate):
    changed = times() | {
        promptplus_groups.SPARK: {1_000: [least], 400_000: [second], 2_000_000: [0.135]},
        promptplus_groups.HEADLINE_WAY: {1_000: [0.005], 400_000: [0.01], 2_000_000: [0.1]},
        promptplus_groups.ONE_WAY: {1_000: [0.005], 400_000: [0.01], 2_000_000: [0.1]},
    }
    metrics = promptplus_groups.result_of(changed).metrics
    assert metrics.get("group_ahead_vs_spark_100ms") == (None if rate is None else pytest.approx(20_000_000 / rate))


def test_rows_that_cost_the_same_have_a_ratio_of_their_own():
    result = promptplus_groups.result_of(times())
    # 80 ms for rows, of 500 ms for 999,000, beside 90 ms of 490
    name = "group_ahead_vs_one_at_a_time_equal_cost_100ms"
    assert result.metrics[name] == pytest.approx(90 / 490 * 500 / 80, rel=0.01)
    assert [target.met(result.metrics) for target in result.targets if target.metric == name] == [False]
    without = {way: by for way, by in times().items() if way != promptplus_groups.EQUAL_ONE}
    assert not any("equal_cost" in metric for metric in promptplus_groups.result_of(without).metrics)


def times(one_at_a_time=0.02, equal_ahead=0.5):
    """Seconds of two rounds: groups ahead take 10 ms for a batch without rows."""
    groups = promptplus_groups
    found = {
        groups.SPARK: {1_000: 0.15, 1_000_000: 0.5},
        groups.HEADLINE_WAY: {1_000: 0.01, 1_000_000: 0.2},
        groups.ONE_WAY: {1_000: one_at_a_time, 1_000_000: 0.19 + one_at_a_time},
        groups.EQUAL_SPARK: {1_000: 0.2, 1_000_000: 1.0},
        groups.EQUAL_HEADLINE: {1_000: 0.01, 1_000_000: equal_ahead},
        groups.EQUAL_ONE: {1_000: 0.02, 1_000_000: 0.52},
    }
    return {name: {rows: [seconds, 1.001 * seconds] for rows, seconds in by.items()} for name, by in found.items()}


def test_verdicts_on_groups_ahead_follow_the_times():
    def verdicts(**changed):
        claims = promptplus_groups.claims_of(times(**changed))
        assert all(claim.reason for claim in claims)
        return [claim.verdict for claim in claims]

    # faster at 50 ms, 100 ms and 1 s, and so where rows wait; 4x at the best; faster than Spark at 1 s; 5x of it
    assert verdicts() == [HOLDS] * 6 + [FAILS, HOLDS, FAILS]
    assert verdicts(one_at_a_time=0.045)[6] == HOLDS
    assert verdicts(one_at_a_time=0.005)[:3] == [FAILS] * 3
    assert verdicts(one_at_a_time=0.005)[3:7] == [HOLDS] * 3 + [FAILS]
    assert verdicts(equal_ahead=0.1)[7:] == [HOLDS, HOLDS]
    assert verdicts(equal_ahead=2.0)[5:] == [FAILS] * 4


@pytest.mark.parametrize(
    ("seconds", "interval", "rate", "beyond"),
    [
        # 1,000 rows more take 0.1 s more, so the 0.8 s that are left take 8,000: 10,000 rows in a second.
        ({1_000: 0.1, 2_000: 0.2}, 1.0, 10_000, True),
        # The same line at another interval: 0.3 s that are left take 3,000 rows, 5,000 in half a second.
        ({1_000: 0.1, 2_000: 0.2}, 0.5, 10_000, True),
        # Only the ends of the line count: 3,000 rows more take 0.3 s more.
        ({1_000: 0.1, 2_000: 0.15, 4_000: 0.4}, 1.0, 10_000, True),
        # A line that does not rise is taken to rise by a millisecond: 2,000 rows a millisecond, 3,000 + 1,800,000.
        ({1_000: 0.1, 3_000: 0.1}, 1.0, 1_803_000, True),
        # A larger batch that was faster is taken to be as slow as the one before it.
        ({1_000: 0.2, 2_000: 0.1, 3_000: 0.4}, 0.3, 2_500 / 0.3, False),
        ({1_000: 0.1, 2_000: 0.2}, 0.2, 10_000, False),
        ({1_000: 0.1, 2_000: 0.2}, 0.1, 10_000, False),
    ],
)
def test_a_rate_beyond_the_largest_batch_follows_the_line_through_the_ends(seconds, interval, rate, beyond):
    assert promptplus_groups.sustained(seconds, interval) == (pytest.approx(rate), beyond)


def test_rows_that_cost_the_same_wait_in_python_on_spark_as_on_workers(spark, tmp_path):
    paths = promptplus_groups.linked(write_rows(tmp_path / "rows", 200, 20, 1.2, seed=1, files=2), 3)
    taken = {}
    promptplus_groups.one_round(spark, paths, 200, promptplus_groups.EQUAL_WAYS[:1], taken)
    assert list(taken) == [promptplus_groups.EQUAL_SPARK, promptplus_groups.EQUAL_HEADLINE]
    assert [len(times) for by in taken.values() for times in by.values()] == [1, 1]


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


def test_verdicts_on_where_time_goes_follow_the_parts():
    def verdicts(rest, *shares):
        parts = [Parts(1.0 - rest, 0.0, rest), *(Parts(share, 0.0, 1 - share) for share in shares)]
        names = (breakdown.BASELINE, breakdown.PROMPT, breakdown.AHEAD, breakdown.ELASTIC)
        return [claim.verdict for claim in breakdown.claims_of(dict(zip(names, parts, strict=True)))]

    assert verdicts(0.51, 0.5, 0.6, 0.7) == [FAILS, HOLDS, HOLDS, HOLDS]
    assert verdicts(0.61, 0.3, 0.6, 0.5) == [HOLDS, FAILS, HOLDS, FAILS]


def test_both_kinds_of_courses_run_every_row(spark):
    interval = 0.1
    ours = resident_course(spark, PROMPTPLUS, Constant(1_000), 4, interval)
    theirs = spark_course(spark, Constant(1_000), 4, interval)
    assert [ran.batch for ran in ours.ran] == [ran.batch for ran in theirs.ran] == [0, 1, 2, 3]
    assert sum(ran.rows for ran in theirs.ran) == 400
    assert 300 <= sum(ran.rows for ran in ours.ran) <= 400, "what came after the last cut is not read"
    assert waiting(1.0, fixed=2.0) == 0
