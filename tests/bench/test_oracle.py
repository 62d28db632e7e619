"""The exact solver against the heuristics, on batches that are small enough to be solved."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.bench.prompt.oracle import GapReport, NoPlanError, exact_plan, gap_report, small_cases
from steelyard.core import KeyCounts
from steelyard.partition.first_fit import FirstFitDecreasing
from steelyard.partition.fragmentation import FragmentationMinimisation
from steelyard.partition.prompt import Prompt

HEURISTICS = [Prompt(), Prompt("insertion"), FirstFitDecreasing(), FragmentationMinimisation()]


@pytest.fixture(scope="module", name="solved")
def _solved():
    return [(counts, blocks, exact_plan(counts, blocks, even_keys=False)) for counts, blocks in small_cases(200, 1)]


def test_no_heuristic_has_fewer_fragments_than_the_optimum(solved):
    for counts, blocks, best in solved:
        for policy in HEURISTICS:
            assert len(policy.plan(counts, blocks).rows) >= len(best.rows), (policy, counts.rows, blocks)


def test_all_plans_keep_to_the_capacity(solved):
    for counts, blocks, best in solved:
        capacity = -(-counts.total // blocks)
        best.check()
        for plan in (best, *(policy.plan(counts, blocks) for policy in HEURISTICS)):
            assert plan.sizes.max() <= capacity


def test_an_even_share_of_keys_costs_fragments_and_never_saves_them(solved):
    for counts, blocks, best in solved[:40]:
        even = exact_plan(counts, blocks)
        even.check()
        assert even.cardinalities.min() >= len(counts) // blocks
        assert len(even.rows) >= len(best.rows)


def test_the_optimum_of_the_worked_example_cuts_one_key():
    counts = KeyCounts.of({"K1": 140, "K2": 88, "K3": 45, "K4": 40, "K5": 30, "K6": 22, "K7": 12, "K8": 8})
    best = exact_plan(counts, 4)
    assert (len(best.rows), best.split.tolist()) == (9, [True] + [False] * 7)


def test_a_report_tells_the_distribution_of_the_gap():
    report = GapReport("p", np.array([4, 6, 5, 9]), np.array([4, 5, 5, 6]))
    assert report.gaps.tolist() == pytest.approx([0, 0.2, 0, 0.5])
    assert (report.mean, report.largest, report.share_optimal) == pytest.approx((0.175, 0.5, 0.5))
    assert repr(report) == "GapReport(p: 4 cases, 17.5 % fragments too many, 50.0 % at most, 50.0 % optimal)"


def test_prompt_is_near_the_optimum_and_the_packer_that_looks_at_cuts_alone_is_nearer():
    prompt, packer = (gap_report(policy, cases=60) for policy in (None, FragmentationMinimisation()))
    assert 0 <= packer.mean < prompt.mean < 0.15
    assert prompt.share_optimal > 0.4
    assert np.array_equal(prompt.optimum, packer.optimum)


def test_edges():
    assert len(exact_plan(KeyCounts.of({}), 3).rows) == 0
    assert len(exact_plan(KeyCounts.of({"a": 9, "b": 1}), 1).rows) == 2
    assert exact_plan(KeyCounts.of({"a": 9}), 3).rows.tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="21 keys in 2 blocks are too many"):
        exact_plan(KeyCounts.of(dict.fromkeys(range(21), 1)), 2)
    with pytest.raises(ValueError, match="too many"):
        exact_plan(KeyCounts.of({"a": 1}), 5)
    with pytest.raises(NoPlanError, match="no plan of 20 keys in 4 blocks"):
        exact_plan(KeyCounts.of(dict.fromkeys(range(20), 7)), 4, seconds=0.0)
