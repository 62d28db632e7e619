"""After `kill -9` at any moment, a restart gives the results of a run that was never disturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.crash.driver import BATCHES, BEGUN, COMMITTED, COMMITTING, STEPS, WRITING, write_input
from tests.spark.cases import same

pytestmark = [pytest.mark.spark, pytest.mark.crash]
KILLS = 20
LONGEST_LIFE = 2 * len(STEPS)
"""Steps of a driver's life, at most: about two batches. Twenty lives must end before the input does."""
LONGEST_PAUSE = {BEGUN: 1.5, WRITING: 0.5, COMMITTING: 0.05, COMMITTED: 0.05}
"""Seconds from a step to the kill, at most: about as long as the step takes just after a driver's start."""
WRITTEN, UNSAID = "results are written and not committed", "the batch is committed and Spark does not know it"
ROOT = Path(__file__).parents[2]


class Driver:
    """A driver in a session of its own, with all that it starts: the JVM, and Python's workers."""

    def __init__(self, folder: Path, source: Path, java: str) -> None:
        self.log = folder / "driver.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.driver", str(folder), str(source), java],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def begin(self) -> None:
        """Let it begin, as soon as it is ready."""
        assert self.next_line() == "ready"
        assert self.process.stdin is not None
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()

    def next_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the driver ended: {self.log.read_text()[-3000:]}"
        return line.strip()

    def kill(self) -> None:
        """Kill -9, first the driver and its JVM; then what made a group of its own, as Python's workers do."""
        os.killpg(self.process.pid, signal.SIGKILL)
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True)
        for pid in map(int, listed.stdout.split()):
            try:
                if os.getsid(pid) == self.process.pid:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has ended
        self.process.communicate()

    def live(self, steps: int, pause: float) -> None:
        """Work for some steps and a part of the next, then die."""
        self.begin()
        for _ in range(steps):
            said = self.next_line()
        try:
            self.process.wait(timeout=pause * LONGEST_PAUSE[said])
        except subprocess.TimeoutExpired:
            self.kill()

    def finish(self) -> int:
        """Work to the end of the input, and wait for the JVM's end too; gives the number of batches."""
        self.begin()
        said = list(iter(self.next_line, "finished"))
        self.process.communicate()
        return said.count(BEGUN)


@pytest.fixture
def new_driver():
    """Starts drivers, and leaves none behind."""
    drivers = []

    def new(folder: Path, source: Path, java: str) -> Driver:
        drivers.append(Driver(folder, source, java))
        return drivers[-1]

    yield new
    for driver in drivers:
        if driver.process.poll() is None:
            driver.kill()


def newest(paths: Iterable[Path]) -> int:
    """The largest number that a file or a folder is named by; -1 without any."""
    return max((int(path.stem.removeprefix("batch_id=")) for path in paths), default=-1)


def place_of_death(folder: Path) -> str:
    """Where in a batch a driver died, by what it left behind."""
    written = newest((folder / "out").glob("batch_id=*"))
    committed = newest((folder / "checkpoint" / "steelyard" / "commits").glob("[0-9]*.json"))
    known = newest((folder / "checkpoint" / "spark" / "commits").glob("[0-9]*"))
    assert known < BATCHES - 1, "the driver died after its last batch: make lives shorter"
    return WRITTEN if written > committed else UNSAID if committed > known else "before results are written"


def results(folder: Path) -> list[dict]:
    return pq.read_table(folder / "out").drop_columns("batch_id").to_pylist()


def test_a_driver_that_is_killed_twenty_times_gives_every_result_once(tmp_path, new_driver):
    undisturbed, killed, source = tmp_path / "undisturbed", tmp_path / "killed", tmp_path / "in"
    classes = tmp_path / "classes.jsa"  # Java starts in half the time from classes that another JVM has loaded
    write_input(source)
    undisturbed.mkdir()
    killed.mkdir()
    assert new_driver(undisturbed, source, f"-XX:ArchiveClassesAtExit={classes}").finish() == BATCHES

    rng = random.Random(4)
    places: Counter[str] = Counter()
    following = new_driver(killed, source, f"-XX:SharedArchiveFile={classes}")
    for _ in range(KILLS):
        driver, following = following, new_driver(killed, source, f"-XX:SharedArchiveFile={classes}")
        driver.live(rng.randint(1, LONGEST_LIFE), rng.choice([0.0, rng.random()]))  # the next one gets ready meanwhile
        assert driver.process.returncode == -signal.SIGKILL
        places[place_of_death(killed)] += 1
    assert places.total() == KILLS
    assert places[WRITTEN] > 0, places
    assert places[UNSAID] > 0, places
    following.finish()
    classes.unlink(missing_ok=True)
    same(results(killed), results(undisturbed), ["window_start", "key"])
