"""From a session to the first result: what is made of the seconds that new processes took."""

import pytest

from steelyard.bench.engine.first_batch import AHEAD, ALONE, PLAIN, result_of
from steelyard.bench.registry import choose


def taken(*firsts):
    return [{"session": first / 2, "first": first, "second": first + 1} for first in firsts]


def test_ratios_are_of_processes_of_the_same_turn(tmp_path):
    result = result_of({PLAIN: taken(8, 10, 40), ALONE: taken(10, 20, 30), AHEAD: taken(9, 12, 30)})
    assert result.metrics["first_result_vs_nothing_ahead"] == pytest.approx(0.9)
    assert result.metrics["first_result_vs_plain_spark"] == pytest.approx(1.125)
    assert (result.metrics["first_result_s"], result.metrics["session_share"]) == (12, 0.5)
    assert not result.missed
    assert choose(["first-batch"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 5_000


def test_a_quick_run_has_no_plain_spark_and_a_miss_is_told():
    result = result_of({ALONE: taken(10), AHEAD: taken(12)})
    assert not any("plain" in name for name in result.metrics)
    assert [target.metric for target in result.missed] == ["first_result_vs_nothing_ahead"]
