"""Drawn dataflows in Spark's tasks give plain Spark's answers, on one machine and on a cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cluster.equal_answers import KINDS
from tests.cluster.programs import report_of
from tests.cluster.standalone import standalone

pytestmark = pytest.mark.spark
MODULE = "tests.cluster.equal_answers"
CASES = 30


def unequal(report):
    return [case for case in report["cases"] if not case["equal"]]


def test_drawn_dataflows_give_plain_sparks_answers(tmp_path):
    report = report_of(MODULE, "local[4]", "4", str(CASES), log=tmp_path / "log", seconds=400)
    assert not unequal(report)
    assert Counter(case["kind"] for case in report["cases"]) == dict.fromkeys(KINDS, CASES // len(KINDS))
    answers = Counter(case["kind"] for case in report["cases"] if case["rows"])
    assert set(answers) == set(KINDS)  # no kind has nothing but empty answers
    assert {case["workers"] for case in report["cases"]} == {1, 2, 3, 4}


def test_a_window_and_a_join_on_a_standalone_cluster_give_plain_sparks_answers(tmp_path):
    with standalone(tmp_path) as master:
        report = report_of(MODULE, master, "4", "2", log=tmp_path / "log", seconds=300)
    assert [case["kind"] for case in report["cases"]] == ["windows", "join"]
    assert not unequal(report)
    assert all(case["rows"] for case in report["cases"])
    assert [case["workers"] for case in report["cases"]] == [4, 4]  # two on each machine
    assert report["executors"] == 2
