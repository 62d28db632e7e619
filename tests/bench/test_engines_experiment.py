"""Figures of the designs of engines, from rates that are made up."""

from __future__ import annotations

import pytest

from steelyard.bench import Result
from steelyard.bench.claims import FAILS, HOLDS
from steelyard.bench.prompt.engines import ALL, FIFTH, NONE, PARTS, PROMPT, STEPS, EngineRates, claims_of, result_of
from steelyard.sim import ENGINES, Ingestion


def found(spark: tuple[float, float], others: tuple[float, float]) -> EngineRates:
    """Rates with Prompt, and with all techniques, where each engine sustains 100 rows per second without."""
    rates = {
        (engine, name): {PROMPT: given[0], ALL: given[1]}.get(name, 100.0)
        for engine, given in (("spark", spark), ("flink", others), ("storm", others))
        for name in STEPS
    }
    parts = {(engine, name): dict.fromkeys(PARTS, 0.1) for engine in ENGINES for name in (NONE, PROMPT, ALL)}
    parts["spark", NONE] = {**parts["spark", NONE], "driver": 0.6}
    return EngineRates(rates, parts)


def test_gains_are_ratios_and_rankings_are_judged_by_them():
    as_published = [found((120, 480), (150, 180))] * 3
    result = result_of(as_published, Ingestion(1e-8, 1e-8, 1e-8), quick=True)
    assert result.metrics["spark_prompt_gain"] == pytest.approx(1.2)
    assert result.metrics["spark_scheduling_gain"] == pytest.approx(4.0)
    assert result.metrics["flink_scheduling_gain"] == pytest.approx(1.2)
    assert [claim.verdict for claim in claims_of(as_published)] == [HOLDS] * 5
    assert isinstance(result, Result)
    assert as_published[0].gain("spark", FIFTH) == 1


def test_the_other_way_round_they_do_not_hold_and_say_why():
    verdicts = claims_of([found((150, 150), (120, 240))] * 3)
    assert [claim.verdict for claim in verdicts[:4]] == [FAILS] * 4
    assert all(claim.reason for claim in verdicts)
