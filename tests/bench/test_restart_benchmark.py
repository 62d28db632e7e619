"""Workers that are killed while rows come: what is measured, on processes, and what is made of it."""

import pytest

from steelyard.bench.engine import restart
from steelyard.resident.gang import Recovery
from steelyard.resident.launchers import ProcessLauncher


@pytest.mark.parametrize(("whose", "gangs"), [(restart.CHILD, 1), (restart.RESUBMIT, 3)])
def test_restarts_are_timed_from_the_kill_to_new_rows(tmp_path, whose, gangs):
    launcher = ProcessLauncher()
    taken, told = restart.restarts(launcher, tmp_path / "job", whose, 2)
    assert len(taken) == len(told) == 2
    assert min(taken) > 0
    assert all(one.detected >= 0 and one.restarted > 0 for one in told)
    assert launcher.gangs == gangs
    assert not launcher.supervisors


@pytest.mark.parametrize(("child", "missed"), [(100.0, []), (900.0, ["restart_vs_resubmit"])])
def test_a_restart_that_takes_more_than_a_quarter_of_a_new_job_misses_its_target(child, missed):
    told = [Recovery(0, 0.001, 0.1, "gone")]
    found = {
        restart.CHILD: ([child, 2 * child, 1.0], told),
        restart.RESUBMIT: ([2000.0], told),
        restart.BESIDE: ([3000.0], told),
        restart.EXECUTOR: ([2700.0], told),
    }
    result = restart.result_of(found)
    assert result.metrics["lost_executor_vs_resubmit"] == 0.9
    assert result.metrics["restart_ms_child"] == child
    assert result.metrics["restart_vs_resubmit"] == child / 2000
    assert [target.metric for target in result.missed] == missed
