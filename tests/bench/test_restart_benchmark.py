"""Workers that are killed while rows come: what is measured, on processes, and what is made of it."""

import pytest

from steelyard.bench.engine import restart
from steelyard.resident.gang import Recovery
from steelyard.resident.launchers import ProcessLauncher


@pytest.mark.parametrize(("whose", "gangs"), [(restart.CHILD, 1), (restart.RESUBMIT, 3)])
def test_restarts_are_timed_from_the_kill_to_new_rows(tmp_path, whose, gangs):
    launcher = ProcessLauncher()
    taken, told, counted = restart.restarts(launcher, tmp_path / "job", whose, 2)
    assert len(taken) == len(told) == 2
    assert min(taken) > 0
    assert all(one.detected >= 0 and one.restarted > 0 for one in told)
    assert launcher.gangs == counted == gangs
    assert not launcher.supervisors


class Another(ProcessLauncher):
    """A launcher that counts more gangs than there were, as if some had been lost on the way."""

    def release(self):
        self.gangs += 1
        super().release()


def test_a_kill_that_took_more_gangs_than_one_is_not_timed_as_one(tmp_path):
    with pytest.raises(restart.RestartError, match="1 kills of a supervisor took"):
        restart.restarts(Another(), tmp_path / "job", restart.RESUBMIT, 1)


@pytest.mark.parametrize(("child", "missed"), [(100.0, []), (900.0, ["restart_vs_resubmit"])])
def test_a_restart_that_takes_more_than_a_quarter_of_a_new_job_misses_its_target(child, missed):
    told = [Recovery(0, 0.001, 0.1, "gone")]
    found = {
        restart.CHILD: restart.Restarts([child, 2 * child, 1.0], told, 1),
        restart.RESUBMIT: restart.Restarts([2000.0], told, 2),
        restart.BESIDE: restart.Restarts([3000.0], told, 2),
        restart.EXECUTOR: restart.Restarts([2700.0], told, 3),
    }
    result = restart.result_of(found)
    assert result.metrics["lost_executor_vs_resubmit"] == 0.9
    assert result.metrics["restart_ms_child"] == child
    assert result.metrics["restart_vs_resubmit"] == child / 2000
    assert [row["gangs"] for row in result.tables[0].records()] == [1, 2, 2, 3]
    assert [target.metric for target in result.missed] == missed
