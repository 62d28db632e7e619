"""The benchmark that holds the simulator against theory."""

from dataclasses import replace

from rich.console import Console

from steelyard.bench import Run
from steelyard.bench.progress import Reporter
from steelyard.bench.simulator import theory as sim_theory
from steelyard.bench.simulator import theory_cases


def run_with(monkeypatch, cases):
    monkeypatch.setattr(sim_theory, "cases", lambda: cases)
    monkeypatch.setattr(sim_theory, "QUICK_SECONDS", 20.0)
    return sim_theory.sim_theory(Run(quick=True, progress=Reporter(Console(quiet=True))))


def test_theory_that_is_wrong_is_told_of(monkeypatch):
    case = theory_cases.cases()[0]
    wrong = replace(case, name="wrong", figures=(replace(case.figures[0], theory=1.5 * case.figures[0].theory),))
    result = run_with(monkeypatch, [case, wrong])
    assert result.metrics["figures"] == 3
    assert result.metrics["figures_outside"] == 1
    assert [target.explanation for target in result.missed if target.metric == "figures_outside"] == [
        "outside: wrong: mean wait, ms"
    ]
    assert [row[0] for row in result.tables[0].rows if "outside" in row[3]] == ["wrong"]


def test_runs_too_short_to_tell_anything_miss_their_target(monkeypatch):
    monkeypatch.setattr(sim_theory, "RUNS", 3)
    result = run_with(monkeypatch, [theory_cases.three_queues(theory_cases.PRODUCT_FORM)])
    assert "widest_interval" in [target.metric for target in result.missed]
