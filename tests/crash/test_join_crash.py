"""A similarity join whose driver or workers are killed at any moment gives every pair once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from steelyard.spark.join_engine import JoinEngine
from tests.crash.driver import BEGUN, COMMITTED, COMMITTING, WRITING
from tests.crash.join_driver import BATCHES, FAILED, SHIPPING, start, write_input
from tests.crash.killing import Driver, batches_of, newest_commit, place_of_death, results
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
    """A run that nobody disturbed, and what it read."""

    source: Path
    pairs: list[dict]


def pairs_of(folder: Path) -> list[dict]:
    """The pairs that a join wrote, without how late each was."""
    return results(folder, "latency")


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("join")
    source, shipped = folder / "in", []
    write_input(source)
    with pytest.MonkeyPatch.context() as patched:
        ship = JoinEngine._shipped
        patched.setattr(JoinEngine, "_shipped", lambda *given: shipped.append(SHIPPING) or ship(*given))
        start(spark, folder / "undisturbed", source).await_termination()
    assert newest_commit(folder / "undisturbed") == BATCHES - 1
    assert len(shipped) > 1, "worksets must move"
    pairs = pairs_of(folder / "undisturbed")
    assert pairs[0].keys() == COLUMNS
    return Undisturbed(source, pairs)


def same_pairs(folder: Path, undisturbed: Undisturbed) -> None:
    pairs = pairs_of(folder)
    assert len({(pair["left_id"], pair["right_id"], pair["window_start"]) for pair in pairs}) == len(pairs)
    same(pairs, undisturbed.pairs, ["left_id", "right_id", "window_start"])


class Killed(NamedTuple):
    """A run that somebody disturbed."""

    folder: Path
    places: Counter[str]
    """Where in a batch drivers were killed."""
    workers: int
    """That were killed."""
    said: list[str]
    """By the driver that came to the end."""


def with_killed_drivers(new: Callable[[], Driver], folder: Path) -> Killed:
    rng = random.Random(6)
    places: Counter[str] = Counter()
    following = new()
    for _ in range(KILLS):
        driver, following = following, new()  # the next one gets ready meanwhile
        driver.live(rng.randint(1, LONGEST_LIFE), rng.choice([0.0, rng.random()]), LONGEST_PAUSE)
        assert driver.process.returncode == -signal.SIGKILL
        places[place_of_death(folder, BATCHES)] += 1
    return Killed(folder, places, 0, following.finish())


def with_killed_workers(new: Callable[[], Driver], folder: Path) -> Killed:
    driver, rng, killed = new(), random.Random(3), 0

    def kill_in_a_while(said: str) -> None:
        nonlocal killed
        if said in (BEGUN, SHIPPING) and killed < WORKER_KILLS:
            driver.ends_within(rng.random() * LONGEST_PAUSE[said])
            killed += driver.kill_a_worker(rng)

    said = driver.finish(kill_in_a_while)
    return Killed(folder, Counter(), killed, said)


@pytest.fixture(scope="module")
def killed(tmp_path_factory, new_driver, undisturbed):
    """Both kinds side by side: who is killed mostly waits."""
    with ThreadPoolExecutor() as pool:
        runs = {}
        for kind in (with_killed_drivers, with_killed_workers):
            folder = tmp_path_factory.mktemp(kind.__name__)
            new = partial(new_driver, MODULE, folder, undisturbed.source)
            runs[kind] = pool.submit(kind, new, folder)
        yield runs


def test_a_join_whose_driver_is_killed_gives_every_pair_once(killed, undisturbed):
    run = killed[with_killed_drivers].result()
    assert len(run.places) > 1, run.places
    assert 0 < batches_of(run.said) < BATCHES, "the last driver goes on where the others were"
    same_pairs(run.folder, undisturbed)


def test_a_join_whose_python_workers_are_killed_gives_every_pair_once(killed, undisturbed):
    run = killed[with_killed_workers].result()
    assert run.workers == WORKER_KILLS
    assert batches_of(run.said) == BATCHES
    assert int(run.said[-1].removeprefix(FAILED)) > 0, "some of them were at work"
    same_pairs(run.folder, undisturbed)
