"""After `kill -9` at any moment, a restart gives the results of a run that was never disturbed."""

from __future__ import annotations

import random
import signal
from collections import Counter

import pytest

from tests.crash.driver import BATCHES, BEGUN, COMMITTED, COMMITTING, STEPS, WRITING, start, write_input
from tests.crash.killing import UNSAID, WRITTEN, newest_commit, place_of_death, results
from tests.spark.cases import same

pytestmark = [pytest.mark.spark, pytest.mark.crash]
KILLS = 10
LONGEST_LIFE = 2 * len(STEPS)
"""Steps of a driver's life, at most: about two batches. Ten lives must end before the input does."""
LONGEST_PAUSE = {BEGUN: 1.5, WRITING: 0.5, COMMITTING: 0.05, COMMITTED: 0.05}
"""Seconds from a step to the kill, at most: about as long as the step takes just after a driver's start."""
MODULE = "tests.crash.driver"


def test_a_driver_that_is_killed_ten_times_gives_every_result_once(spark, tmp_path, new_driver):
    undisturbed, killed, source = tmp_path / "undisturbed", tmp_path / "killed", tmp_path / "in"
    write_input(source)
    rng = random.Random(4)
    places: Counter[str] = Counter()
    following = new_driver(MODULE, killed, source)
    for _ in range(KILLS):
        driver, following = following, new_driver(MODULE, killed, source)  # the next one gets ready meanwhile
        driver.live(rng.randint(1, LONGEST_LIFE), rng.choice([0.0, rng.random()]), LONGEST_PAUSE)
        assert driver.process.returncode == -signal.SIGKILL
        places[place_of_death(killed, BATCHES)] += 1
    assert places.total() == KILLS
    assert places[WRITTEN] > 0, places
    assert places[UNSAID] > 0, places
    following.finish()
    start(spark, undisturbed, source).await_termination()
    assert newest_commit(killed) == newest_commit(undisturbed) == BATCHES - 1
    same(results(killed), results(undisturbed), ["window_start", "key"])
