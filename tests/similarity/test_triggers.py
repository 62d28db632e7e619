import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.core.worksets import JoinObservation
from steelyard.policies import spelled_out
from steelyard.similarity.registry import TRIGGERS
from steelyard.similarity.triggers import (
    EveryWindow,
    ImbalanceAbove,
    LatencyAbove,
    LatencySpread,
    Trigger,
)

CASES = [spelled_out(entry).replace("...", "1") for entry in TRIGGERS.entries.values()]
loads = st.lists(st.floats(0, 1e9), max_size=8)
latencies = st.lists(st.none() | st.floats(0, 1e4), max_size=8)


@pytest.mark.parametrize("trigger", CASES)
@settings(deadline=None)
@given(loads=loads, latencies=latencies, started=st.booleans())
def test_every_trigger_answers_with_a_reason_whatever_was_seen(
    trigger: str, loads: list[float], latencies: list[float | None], started: bool
) -> None:
    verdict = TRIGGERS.named(trigger).should(JoinObservation(loads, latencies, started))
    assert bool(verdict) is verdict.balance
    assert verdict.reason


@pytest.mark.parametrize("trigger", CASES)
def test_nothing_seen_is_no_reason_to_balance(trigger: str) -> None:
    made = TRIGGERS.named(trigger)
    assert isinstance(made, Trigger)
    assert not made.should(JoinObservation(loads=[]))


def test_every_window_balances_when_a_window_starts_and_only_then() -> None:
    assert EveryWindow().should(JoinObservation([1.0, 1.0], window_started=True))
    assert not EveryWindow().should(JoinObservation([9.0, 1.0]))


def test_imbalance_is_measured_in_average_loads() -> None:
    # Average 2, DI = |3 - 2| + |1 - 2| = 2, which is one average load.
    for scale in (1, 1000):
        seen = JoinObservation([3.0 * scale, 1.0 * scale])
        assert ImbalanceAbove(0.99).should(seen)
        assert not ImbalanceAbove(1.0).should(seen)


@settings(deadline=None)
@given(st.integers(1, 20), st.floats(1, 1e6))
def test_all_load_on_one_worker_is_the_most_imbalance_there_is(workers: int, load: float) -> None:
    seen = JoinObservation([load] + [0.0] * (workers - 1))
    assert not ImbalanceAbove(2 * (workers - 1) + 1e-6).should(seen)
    if workers > 1:
        assert ImbalanceAbove(2 * (workers - 1) - 1e-6).should(seen)


def test_idle_workers_are_balanced() -> None:
    assert not ImbalanceAbove(0).should(JoinObservation([0.0, 0.0]))


def test_the_reason_names_the_workers_that_differ() -> None:
    reason = ImbalanceAbove(0.2).should(JoinObservation([2.0, 9.0, 1.0])).reason
    assert "worker 1 has 2.25 of one, worker 2 0.25" in reason


def test_one_slow_worker_is_enough_for_a_latency_limit() -> None:
    assert LatencyAbove(0.5).should(JoinObservation([1.0, 1.0], latencies=[0.1, 0.6]))
    assert not LatencyAbove(0.6).should(JoinObservation([1.0, 1.0], latencies=[None, 0.6]))


def test_latencies_may_differ_by_the_share_and_no_more() -> None:
    assert not LatencySpread(0.25).should(JoinObservation([], latencies=[1.0, 1.25]))
    assert LatencySpread(0.2).should(JoinObservation([], latencies=[1.0, 1.25]))


def test_a_worker_without_pairs_among_others_with_some_is_a_reason() -> None:
    verdict = LatencySpread().should(JoinObservation([], latencies=[1.0, None, 1.0]))
    assert verdict
    assert "worker 1 had no pair" in verdict.reason
    assert not LatencySpread().should(JoinObservation([], latencies=[None, None]))


@pytest.mark.parametrize(
    ("kind", "value", "option"),
    [
        (ImbalanceAbove, -0.1, "limit"),
        (ImbalanceAbove, float("nan"), "limit"),
        (LatencyAbove, 0.0, "seconds"),
        (LatencyAbove, float("inf"), "seconds"),
        (LatencySpread, -1.0, "share"),
    ],
)
def test_a_wrong_limit_is_named(kind: type, value: float, option: str) -> None:
    with pytest.raises(OptionError, match=f"option '{option}'"):
        kind(value)
