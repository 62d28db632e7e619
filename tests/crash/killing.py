"""Drivers that a test starts, kills with `kill -9`, and starts again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from tests.crash.driver import BEGUN

ROOT = Path(__file__).parents[2]
WRITTEN, UNSAID = "results are written and not committed", "the batch is committed and Spark does not know it"


class Driver:
    """A driver in a session of its own, with all that it starts: the JVM, and Python's workers."""

    def __init__(self, module: str, folder: Path, source: Path) -> None:
        self.log = folder / "driver.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder), str(source)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def begin(self, last: int = 0) -> None:
        """Let it begin, as soon as it is ready; it stops at step number `last`."""
        assert self.next_line() == "ready"
        assert self.process.stdin is not None
        self.process.stdin.write(f"begin {last}\n")
        self.process.stdin.flush()

    def next_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the driver ended: {self.log.read_text()[-3000:]}"
        return line.strip()

    def processes(self) -> dict[int, tuple[int, int]]:
        """Every process of its session, with its parent and its group."""
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,pgid="], capture_output=True, text=True, check=True)
        found = {}
        for pid, parent, group in (map(int, line.split()) for line in listed.stdout.splitlines()):
            try:
                if os.getsid(pid) == self.process.pid:
                    found[pid] = (parent, group)
            except ProcessLookupError:
                continue  # it has ended
        return found

    def kill(self) -> None:
        """Kill -9, first the driver and its JVM; then what made a group of its own, as Python's workers do."""
        os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self.processes():
            kill_nine(pid)
        self.process.communicate()

    def kill_a_worker(self, rng: random.Random) -> bool:
        """Kill -9 one of Python's workers, busy or idle; False if there is none."""
        family = self.processes()
        # Spark's daemon leads a group of its own, and workers are what it has forked.
        daemons = {pid for pid, (_, group) in family.items() if pid == group} - {self.process.pid}
        workers = sorted(pid for pid, (parent, _) in family.items() if parent in daemons)
        if workers:
            kill_nine(rng.choice(workers))
        return bool(workers)

    def live(
        self,
        steps: int,
        pause: float,
        longest: Mapping[str, float],
        each: Callable[[str], None] = lambda said: None,
    ) -> None:
        """Work for some steps and a share `pause` of the next, then die; `longest` has the seconds of each step.

        Without a pause it dies just there, and with one at the end of the next step at the latest: no machine is too
        fast or too slow for that. `each` is told each step.
        """
        self.begin(steps + 1 if pause else steps)
        for _ in range(steps):
            said = self.next_line()
            each(said)
        if not self.ends_within(pause * longest[said]):
            self.kill()

    def ends_within(self, seconds: float) -> bool:
        """Whether it comes to its end while so much time goes by."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def finish(self, each: Callable[[str], None] = lambda said: None) -> list[str]:
        """Work to the end of the input, and wait for the JVM's end too; gives the steps, and tells each as it comes."""
        self.begin()
        said = []
        for step in iter(self.next_line, "finished"):
            said.append(step)
            each(step)
        self.process.communicate()
        return said


def kill_nine(pid: int) -> None:
    """Kill -9, unless the process has ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def driver_starter() -> Iterator[Callable[..., Driver]]:
    """For a fixture: starts drivers, and leaves none behind."""
    drivers: list[Driver] = []

    def new(module: str, folder: Path, source: Path) -> Driver:
        folder.mkdir(exist_ok=True)
        drivers.append(Driver(module, folder, source))
        return drivers[-1]

    yield new
    for driver in drivers:
        if driver.process.poll() is None:
            driver.kill()


def newest(paths: Iterable[Path]) -> int:
    """The largest number that a file or a folder is named by; -1 without any."""
    return max((int(path.stem.removeprefix("batch_id=")) for path in paths), default=-1)


def newest_commit(folder: Path) -> int:
    """The last batch that a query committed; -1 before the first."""
    return newest((folder / "checkpoint" / "steelyard" / "commits").glob("[0-9]*.json"))


def place_of_death(folder: Path, batches: int) -> str:
    """Where in a batch a driver died, by what it left behind."""
    written = newest((folder / "out").glob("batch_id=*"))
    committed = newest_commit(folder)
    known = newest((folder / "checkpoint" / "spark" / "commits").glob("[0-9]*"))
    assert known < batches - 1, "the driver died after its last batch: make lives shorter"
    return WRITTEN if written > committed else UNSAID if committed > known else "before results are written"


def results(folder: Path, *without: str) -> list[dict]:
    """What a query wrote, but for columns that are never twice the same."""
    return pq.read_table(folder / "out").drop_columns(["batch_id", *without]).to_pylist()


def batches_of(said: list[str]) -> int:
    """How many batches a driver began."""
    return said.count(BEGUN)
