"""The experiment with near-duplicate text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from steelyard.bench.registry import choose
from steelyard.bench.s3j import real as s3j_real
from steelyard.bench.s3j.real import KINDS, SHARES, Answer, Case
from steelyard.similarity import metric


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [s3j_real.measured(kind, copies, 150, seed=3) for kind in KINDS for copies in SHARES]


def test_join_scan_and_brute_force_find_the_same_pairs(cases):
    for case in cases:
        assert len(case.brute.pairs) > 0
        assert np.array_equal(case.joined.pairs, case.brute.pairs)
        assert np.array_equal(case.scan.pairs, case.brute.pairs)
        assert case.planted_found == case.planted > 0
        assert case.joined.seconds > case.joined.longest > 0


def test_brute_force_compares_each_text_with_each_later_one(monkeypatch):
    monkeypatch.setattr(s3j_real, "BLOCK", 2)
    column = pa.chunked_array([["abc", "abd", "xyz", "abc", "xy"]])
    assert (
        s3j_real.brute_force(metric("edit"), 1, column).pairs.tolist()
        == s3j_real.codes(np.array([0, 0, 1, 2]), np.array([1, 3, 3, 4])).tolist()
    )


def test_a_pair_that_is_lost_found_twice_or_wrong_is_counted(cases):
    case = cases[0]
    pairs = case.brute.pairs
    lost = replace(case, joined=replace(case.joined, pairs=pairs[1:]))
    assert lost.recall < 1
    assert lost.extra == 0
    twice = replace(case, joined=replace(case.joined, pairs=np.sort(np.append(pairs, pairs[0]))))
    assert twice.recall == 1
    assert twice.extra == 1
    wrong = replace(case, brute=Answer(pairs[1:], 1.0))
    assert wrong.extra == 1


def test_the_result_has_targets_tables_and_a_picture(cases, tmp_path):
    result = s3j_real.result_of(cases)
    assert not result.missed
    assert result.metrics["edit_recall"] == result.metrics["jaccard_recall"] == 1
    assert [len(table.rows) for table in result.tables] == [len(cases)] * 3
    assert choose(["s3j-real"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000
    lossy = [replace(case, joined=replace(case.joined, pairs=case.joined.pairs[1:])) for case in cases]
    assert {target.metric for target in s3j_real.result_of(lossy).missed} == {"edit_recall", "jaccard_recall"}
