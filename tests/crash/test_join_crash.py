"""A similarity join whose driver or workers are killed at any moment gives every pair once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.driver import BEGUN, COMMITTED, COMMITTING, WRITING
from tests.crash.join_driver import BATCHES, FAILED, SHIPPING, write_input
from tests.crash.killing import batches_of, place_of_death, results
from tests.spark.cases import same

pytestmark = [pytest.mark.spark, pytest.mark.crash]
MODULE = "tests.crash.join_driver"
KILLS = 4
LONGEST_LIFE = 8
"""Steps of a driver's life, at most: less than two batches. All lives must end before the input does."""
LONGEST_PAUSE = {BEGUN: 2.0, WRITING: 0.5, SHIPPING: 0.3, COMMITTING: 0.05, COMMITTED: 0.05}
"""Seconds from a step to the kill, at most: about as long as the step takes just after a driver's start."""
WORKER_KILLS = 10
COLUMNS = {"left_id", "right_id", "distance", "similarity", "window_start", "window_end"}


class Undisturbed(NamedTuple):
    """A run that nobody disturbed, what it read, and what makes the next JVM start faster."""

    source: Path
    pairs: list[dict]
    classes: str


def pairs_of(folder: Path) -> list[dict]:
    """The pairs that a join wrote, without how late each was."""
    return results(folder, "latency")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, new_driver):
    folder = tmp_path_factory.mktemp("join")
    source, classes = folder / "in", folder / "classes.jsa"
    write_input(source)
    said = new_driver(MODULE, folder / "undisturbed", source, f"-XX:ArchiveClassesAtExit={classes}").finish()
    assert batches_of(said) == BATCHES
    assert said.count(SHIPPING) > 1, "worksets must move"
    pairs = pairs_of(folder / "undisturbed")
    assert pairs[0].keys() == COLUMNS
    yield Undisturbed(source, pairs, f"-XX:SharedArchiveFile={classes}")
    classes.unlink(missing_ok=True)


def same_pairs(folder: Path, undisturbed: Undisturbed) -> None:
    pairs = pairs_of(folder)
    assert len({(pair["left_id"], pair["right_id"], pair["window_start"]) for pair in pairs}) == len(pairs)
    same(pairs, undisturbed.pairs, ["left_id", "right_id", "window_start"])


def test_a_join_whose_driver_is_killed_gives_every_pair_once(tmp_path, new_driver, undisturbed):
    def new():
        return new_driver(MODULE, tmp_path / "killed", undisturbed.source, undisturbed.classes)

    rng = random.Random(6)
    places: Counter[str] = Counter()
    following = new()
    for _ in range(KILLS):
        driver, following = following, new()  # the next one gets ready meanwhile
        driver.live(rng.randint(1, LONGEST_LIFE), rng.choice([0.0, rng.random()]), LONGEST_PAUSE)
        assert driver.process.returncode == -signal.SIGKILL
        places[place_of_death(tmp_path / "killed", BATCHES)] += 1
    assert len(places) > 1, places
    said = following.finish()
    assert 0 < batches_of(said) < BATCHES, "the last driver goes on where the others were"
    same_pairs(tmp_path / "killed", undisturbed)


def test_a_join_whose_python_workers_are_killed_gives_every_pair_once(tmp_path, new_driver, undisturbed):
    driver = new_driver(MODULE, tmp_path / "workers", undisturbed.source, undisturbed.classes)
    rng = random.Random(3)
    killed = 0

    def kill_in_a_while(said: str) -> None:
        nonlocal killed
        if said in (BEGUN, SHIPPING) and killed < WORKER_KILLS:
            driver.ends_within(rng.random() * LONGEST_PAUSE[said])
            killed += driver.kill_a_worker(rng)

    said = driver.finish(kill_in_a_while)
    assert killed == WORKER_KILLS
    assert batches_of(said) == BATCHES
    assert int(said[-1].removeprefix(FAILED)) > 0, "some of them were at work"
    same_pairs(tmp_path / "workers", undisturbed)
