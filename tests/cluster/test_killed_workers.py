"""Resident workers on Spark that are killed with `kill -9` again and again lose nothing and double nothing."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.killed_flow import eventually, require_right
from tests.cluster.programs import Program, family, kill_nine, report_of

pytestmark = [pytest.mark.spark, pytest.mark.crash]


KILLED = {"worker": ("local[4]", 30), "supervisor": ("local[4]", 3), "jvm": ("local-cluster[2,2,1024]", 3)}
"""By what is killed: where the job runs, and how often."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """All of them side by side, since each mostly waits for workers that come again: folders, and what will be told."""

    def killed(victim, folder):
        master, kills = KILLED[victim]
        words = (master, victim, str(kills), str(folder))
        return report_of("tests.cluster.killed_job", *words, log=folder / "log", seconds=400)

    folders = {victim: tmp_path_factory.mktemp(victim) for victim in KILLED}
    with ThreadPoolExecutor(len(folders)) as pool:
        yield {victim: (folder, pool.submit(killed, victim, folder)) for victim, folder in folders.items()}


@pytest.mark.parametrize("victim", KILLED)
def test_workers_that_are_killed_at_random_moments_change_no_answer(jobs, victim):
    folder, told = jobs[victim]
    report = told.result()
    assert report["restarts"] >= KILLED[victim][1]
    # only the death of a supervisor, by itself or with its executor, costs a new Spark job
    assert report["jobs"] == 1 if victim == "worker" else report["jobs"] > KILLED[victim][1]
    require_right(folder, report["rows"])


def test_a_driver_that_is_killed_leaves_no_process_behind(tmp_path):
    words = [sys.executable, "-m", "tests.cluster.killed_job", "local[4]", "driver", "0", str(tmp_path), "none"]
    with Program(words, tmp_path / "log") as program:
        eventually(lambda: "workers have come" in program.said() or program.process.poll() is not None, "workers")
        assert len(family(program.process.pid)) >= 7, program.said()  # JVM, daemon, supervisors, workers
        kill_nine(program.process.pid)
        program.process.wait(60)
        eventually(lambda: not family(program.process.pid), "the end of all")
