"""Programs that a test starts, and that leave nothing behind, whatever happens: with all that they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def family(session: int) -> dict[int, int]:
    """Every process of a session, with its parent; Spark's daemons make groups of their own, but no sessions."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,sid="], capture_output=True, text=True, check=True)
    rows = (map(int, line.split()) for line in listed.stdout.splitlines())
    return {pid: parent for pid, parent, its_session in rows if its_session == session}


class Program:
    """A process that leads a session of its own.

    Parameters
    ----------
    command
        What to start.
    log
        The file that its standard output and errors go to.
    env
        What its environment has beside this one's.
    """

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("a") as file:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill -9 whatever is left of the session."""
        while left := family(self.process.pid):
            for pid in left:
                kill_nine(pid)
            self.process.wait()

    def said(self) -> str:
        """Its output so far."""
        return self.log.read_text()


def kill_nine(pid: int) -> None:
    """Kill -9, unless the process has ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def report_of(module: str, *words: str, log: Path, seconds: float, env: Mapping[str, str] | None = None) -> Any:
    """Run a Python module to its end; gives what it wrote, as JSON, into the file that its last word names."""
    report = log.with_suffix(".json")
    paths = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    wanted = {"PYTHONPATH": paths, **(env or {})}
    with Program([sys.executable, "-m", module, *words, str(report)], log, wanted) as program:
        try:
            status = program.process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        assert status == 0, f"{module} ended with {status} within {seconds:g} s: {program.said()[-4000:]}"
    return json.loads(report.read_text())
