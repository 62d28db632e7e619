"""A real Kafka broker on this machine, and the jars that Spark needs to talk to it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from steelyard.bench.engine.broker import running_broker
from steelyard.bench.engine.connector import connector_jars
from steelyard.spark.kafka import ArtifactError
from tests.kafka.spark_programs import DONE

ROOT = Path(__file__).parents[2]
PROGRAM_SECONDS, END_SECONDS = 240, 60


@pytest.fixture(scope="session")
def kafka_servers() -> Iterator[str]:
    """The bootstrap address of a broker that lives as long as the tests."""
    with ExitStack() as held:
        try:
            servers = held.enter_context(running_broker())
        except ArtifactError as error:
            pytest.skip(f"Kafka's jars cannot be had: {error}")
        yield servers


@pytest.fixture(scope="session")
def connector() -> str:
    """The jars of Spark's Kafka connector, or of a stand-in that a warning names."""
    try:
        jars, note = connector_jars()
    except ArtifactError as error:
        pytest.skip(f"the jars of Spark's Kafka connector cannot be had: {error}")
    if note:
        warnings.warn(note, stacklevel=1)
    return jars


class Programs:
    """A process that runs functions of `spark_programs.py`, as long as it is asked for some.

    The connector must be there when Spark's JVM starts, so pytest's own session cannot be used.
    """

    def __init__(self, jars: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.kafka.spark_programs", jars]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def run(self, program: str, **given: object) -> dict[str, object]:
        """The answer of one of them, which may keep files in the folder `directory`."""
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"program": program, **given}) + "\n")
        process.stdin.flush()
        too_long = threading.Timer(PROGRAM_SECONDS, process.kill)
        too_long.start()
        answered = any(line.strip() == DONE for line in process.stdout)
        too_long.cancel()
        if not answered:
            self.end()
            # Spark's log goes on after the error: show it from Python's own account of what went wrong.
            error = self._log.read_text()
            raise AssertionError(error[max(error.find("Traceback"), 0) :][:8000])
        found: dict[str, object] = json.loads(Path(str(given["directory"]), "answer.json").read_text())
        return found

    def _started(self) -> subprocess.Popen[str]:
        with self._log.open("w") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self._process = subprocess.Popen(self._command, cwd=ROOT, text=True, **pipes)
        return self._process

    def end(self) -> None:
        """The process comes to its end; what is asked for next runs in another one."""
        if self._process is not None:
            self._process.communicate(timeout=END_SECONDS)
        self._process = None


@pytest.fixture(scope="session")
def programs(connector: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Spark with the connector."""
    made = Programs(connector, tmp_path_factory.mktemp("programs") / "log")
    yield made
    made.end()


@pytest.fixture
def run_program(programs: Programs, kafka_servers: str, tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run a function of `spark_programs.py`; its answer. A folder is kept from one run to the next."""
    return partial(programs.run, servers=kafka_servers, directory=str(tmp_path))
