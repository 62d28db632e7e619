"""From a session to the first result: what is made of the seconds that new processes took."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from steelyard.bench.engine import first_batch_program
from steelyard.bench.engine.first_batch import AHEAD, ALONE, PLAIN, result_of
from steelyard.bench.registry import choose, spark_for


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


ALONE_IN_ITS_PROCESS = """
import runpy, sys
before = set(sys.modules)
runpy.run_path(sys.argv[1])
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
"""


def test_what_is_timed_begins_before_anything_of_ours_or_of_spark_is_loaded():
    command = [sys.executable, "-P", "-c", ALONE_IN_ITS_PROCESS, first_batch_program.__file__]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split() == []


def test_nothing_is_loaded_beside_what_benchmarks_time(monkeypatch):
    given = {}
    spark = SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda level: None), stop=lambda: None)
    monkeypatch.setattr("steelyard.session", lambda name, **options: given.update(options) or spark, raising=False)
    with spark_for("test", 2):
        assert given["ahead"] is False
