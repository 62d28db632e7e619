"""What the contest on real workers makes of what it saw."""

import pytest

from steelyard.bench.checkmate.live import Live, Seen
from steelyard.bench.checkmate.live_cases import CASES, Rows, first_result
from steelyard.bench.checkmate.live_contest import protocols, result_of
from steelyard.resident.gang import Recovery
from steelyard.resident.launchers import ProcessLauncher
from steelyard.resident.recovery_line import CheckpointTotals


def steady(age, until=10.0):
    return [(at / 20, age) for at in range(int(until * 20))]


def test_latency_is_back_to_normal_when_three_windows_in_a_row_are():
    slow = [(at, 0.5 if 5.0 <= at < 7.0 else 0.01) for at, _ in steady(0.0)]
    seen = Seen(slow, killed=[5.0])
    assert seen.back(warm=1.0) == [pytest.approx(2.0)]
    assert list(seen.took(warm=1.0)) == [10.0] * 80
    assert Seen([(at, 0.5 if at >= 5.0 else 0.01) for at, _ in slow], killed=[5.0]).back(1.0) == [None]


def test_latency_that_is_back_after_the_next_kill_was_not_back_after_the_first():
    slow = [(at, 0.5 if 4.0 <= at < 7.0 else 0.01) for at, _ in steady(0.0)]
    assert Seen(slow, killed=[4.0, 6.0]).back(warm=1.0) == [None, pytest.approx(1.0)]


def test_ratios_are_those_of_the_usual_protocol():
    names = protocols(quick=False)
    assert names[:2] == ["none", "stop_the_world"]
    calm = {name: [Seen(steady(0.010))] for name in names}
    calm["unaligned"] = [Seen(steady(0.012))]
    calm["stop_the_world"] = [Seen(steady(0.060))]
    calm["hybrid"] = [Seen(steady(0.020))]
    told = [Recovery(number, 0.001, 0.05, "gone") for number in range(3)]
    failed = {"unaligned": Seen(steady(0.012), [5.0, 6.0, 8.0], [0.3, 0.1, 0.2], told)}
    found = result_of(calm, failed, 1.0, {"rows_per_s": 100.0}, {"coordinated": "it deadlocks"})
    assert found.metrics["p99_vs_none"] == pytest.approx(1.2)
    assert found.metrics["p99_vs_stop_the_world"] == pytest.approx(0.2)
    assert found.metrics["p99_vs_parts"] == pytest.approx(2.0)
    assert found.metrics["restart_ms_unaligned"] == pytest.approx(200.0)
    assert found.metrics["noticed_ms_unaligned"] == pytest.approx(1.0)
    assert found.metrics["recovery_ms_unaligned"] == pytest.approx(0.0)
    assert "coordinated is left out: it deadlocks." in found.notes


def test_a_recovery_that_most_kills_do_not_see_has_no_figure():
    late = [(at, 0.5 if at >= 5.0 else 0.01) for at, _ in steady(0.0)]
    calm = {name: [Seen(steady(0.010))] for name in protocols(quick=True)}
    found = result_of(calm, {"unaligned": Seen(late, [5.0, 7.0, 9.0], [0.1] * 3)}, 1.0, {}, {})
    assert "recovery_ms_unaligned" not in found.metrics
    (row,) = found.tables[1].records()
    assert (row["back to normal"], row["times back"]) == ("not before the next", 0)


def test_checkpoints_and_rounds_are_those_of_a_run():
    calm = {name: [Seen(steady(0.010)), Seen(steady(0.010))] for name in protocols(quick=True)}
    for seen in calm["unaligned"]:
        seen.totals = CheckpointTotals({"round": 12}, chains=6, stood=0.012, seconds=0.06, rounds=[0.05, 0.07])
    after = Seen(steady(0.01), [5.0], [0.1], totals=CheckpointTotals({"round": 20}, 3, chains=10))
    found = result_of(calm, {"unaligned": after}, 1.0, {}, {}).metrics
    assert (found["taken_unaligned"], found["rounds_unaligned"], found["useless_unaligned"]) == (12, 2, 3)
    assert found["round_ms_unaligned"] == pytest.approx(60)
    assert found["stands_still_ms_unaligned"] == pytest.approx(2)
    assert found["durable_ms_unaligned"] == pytest.approx(10)
    assert "taken_none" not in found


def test_the_first_result_is_that_of_a_process_that_was_not_there_before(tmp_path):
    file = tmp_path / "first"
    assert first_result(file, 5.0, {1, 2}) is None
    file.write_text("1 4.0\n2 6.0\n3 7.5\n4 7.0\n5 6.5")  # the last one is being written
    assert first_result(file, 5.0, {1, 2}) == 7.0
    assert first_result(file, 7.2, {1, 2}) == 7.5


@pytest.mark.parametrize("case", CASES)
def test_cases_of_the_contest_are_whole_dataflows(case):
    made = CASES[case].made(Rows(1000.0, 500, None), None)
    assert "results" in [one.name for one in made.sinks]
    assert set(CASES[case].placed(made).worker_of) == set(made.instances)


@pytest.mark.parametrize(("case", "protocol"), [("regions", "stop_the_world"), ("cyclic", "unaligned")])
def test_a_run_tells_latency_and_restarts(tmp_path, case, protocol):
    seen = Live(ProcessLauncher(), tmp_path, CASES[case]).run(200.0, protocol, 1.5, kills=[0.0])
    assert seen.ages
    assert len(seen.killed) == len(seen.restarts) == len(seen.recoveries) == 1
    assert 0 <= seen.recoveries[0].detected < seen.restarts[0]
