"""After `kill -9` at any moment, a restart gives the results of a run that was never disturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.driver import BATCHES, start, write_input
from tests.spark.cases import same

pytestmark = [pytest.mark.spark, pytest.mark.crash]
KILLS = 20
LONGEST_LIFE = 4.0
"""Seconds from a driver's start of the query to its death, at most: a few batches."""
ROOT = Path(__file__).parents[2]


def live(folder: Path, source: Path, seconds: float | None) -> bool:
    """Run the driver; kill it and all its children after `seconds` of work. Whether it finished by itself."""
    with (folder / "driver.log").open("a") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.driver", str(folder), str(source)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        assert driver.stdout is not None
        assert driver.stdout.readline() == "started\n", (folder / "driver.log").read_text()[-3000:]
        try:
            driver.wait(timeout=seconds if seconds is not None else 600)
        except subprocess.TimeoutExpired:
            if seconds is None:
                raise
        os.killpg(driver.pid, signal.SIGKILL) if driver.poll() is None else None
        driver.wait()
        return driver.stdout.read() == "finished\n"


def results(spark, folder: Path) -> list[dict]:
    return spark.read.parquet(str(folder / "out")).drop("batch_id").toArrow().to_pylist()


def test_a_driver_that_is_killed_twenty_times_gives_every_result_once(spark, tmp_path):
    undisturbed, killed, source = tmp_path / "undisturbed", tmp_path / "killed", tmp_path / "in"
    write_input(source)
    undisturbed.mkdir()
    killed.mkdir()
    query = start(spark, undisturbed, source)
    query.await_termination()
    assert len(query.recent_progress) == BATCHES

    rng = random.Random(4)
    kills = 0
    finished = False
    while not finished and kills < KILLS:
        finished = live(killed, source, rng.uniform(0.0, LONGEST_LIFE))
        kills += not finished
    assert kills == KILLS, f"the run ended after {kills} kills: make lives shorter"
    assert live(killed, source, None)
    same(results(spark, killed), results(spark, undisturbed), ["window_start", "key"])
