"""What the contest on real workers makes of what it saw."""

import pytest

from steelyard.bench.checkmate.live import QUERIES, Seen, dataflow, protocols, result_of
from steelyard.resident.recovery_line import CheckpointTotals


def steady(age, until=10.0):
    return [(at / 20, age) for at in range(int(until * 20))]


def test_latency_is_back_to_normal_when_three_windows_in_a_row_are():
    slow = [(at, 0.5 if 5.0 <= at < 7.0 else 0.01) for at, _ in steady(0.0)]
    seen = Seen(slow, killed=5.0)
    assert seen.recovery(warm=1.0) == pytest.approx(2.0)
    assert list(seen.took(warm=1.0)) == [10.0] * 80
    assert Seen([(at, 0.5 if at >= 5.0 else 0.01) for at, _ in slow], killed=5.0).recovery(1.0) is None


def test_ratios_are_those_of_the_usual_protocol():
    names = protocols(quick=False)
    assert names[:2] == ["none", "stop_the_world"]
    calm = {name: [Seen(steady(0.010), totals=CheckpointTotals())] for name in names}
    calm["unaligned"] = [Seen(steady(0.012))]
    calm["stop_the_world"] = [Seen(steady(0.060))]
    failed = {"unaligned": Seen(steady(0.012), killed=5.0, restart=0.2)}
    found = result_of(calm, failed, 1.0, {"rows_per_s": 100.0})
    assert found.metrics["p99_vs_none"] == pytest.approx(1.2)
    assert found.metrics["p99_vs_stop_the_world"] == pytest.approx(0.2)
    assert found.metrics["restart_ms_unaligned"] == pytest.approx(200.0)
    assert found.metrics["recovery_ms_unaligned"] == pytest.approx(0.0)


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_contest_are_whole_dataflows(query):
    made = dataflow(QUERIES[query], 1000.0, 500, began=None)
    assert [one.name for one in made.sinks] == ["results"]
