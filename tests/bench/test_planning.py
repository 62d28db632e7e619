"""The benchmark of plans: its data, its clock and its figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from steelyard.bench import Run
from steelyard.bench.progress import Reporter
from steelyard.bench.prompt import planning


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(50, 80), st.floats(0.0, 1.0), st.integers(0, 9))
def test_counts_follow_the_law_and_add_up(keys, rows_a_key, exponent, seed):
    counts = planning.zipf_counts(keys, keys * rows_a_key, exponent, seed)
    assert counts.total == keys * rows_a_key
    assert sorted(counts.keys.to_pylist()) == list(range(keys))
    by_rank = counts.rows[np.argsort(counts.keys.to_numpy())]
    assert np.all(np.diff(by_rank) <= 0)


def test_one_seed_gives_the_same_order_and_another_seed_another():
    first, again, other = (planning.zipf_counts(100, 5000, 1.0, seed).keys for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_actions_take_turns_and_warm_up_first():
    calls = []
    times = planning.median_ms({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * (planning.WARM_UPS + 3)
    assert set(times) == {"a", "b"}


def test_the_figures_come_from_the_case_of_the_title(monkeypatch):
    monkeypatch.setattr(planning, "SIZES", (200, 400))
    monkeypatch.setattr(planning, "HEADLINE_KEYS", 200)
    result = planning.planning(Run(quick=True, progress=Reporter(Console(quiet=True))))
    metrics = result.metrics
    assert metrics["plan_vs_sort"] == pytest.approx(metrics["sort_ms"] / metrics["prompt_plan_ms"])
    assert metrics["largest_over_mean"] < metrics["hash_largest_over_mean"]
    assert result.parameters["rows"] == 200 * planning.ROWS_A_KEY
    assert [len(table.rows) for table in result.tables] == [6, 12]
    (target,) = result.targets
    assert (target.metric, target.at_most) == ("prompt_plan_ms", 50)
