"""A real Kafka broker on this machine, and the jars that Spark needs to talk to it."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from steelyard.bench.engine.broker import running_broker
from steelyard.bench.engine.connector import connector_jars
from steelyard.spark.kafka import ArtifactError

PROGRAM_SECONDS = 240


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


@pytest.fixture
def run_program(kafka_servers: str, connector: str, tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run a function of `spark_programs.py` in a process of its own; its answer, and a directory to keep.

    The connector must be there when Spark's JVM starts, so pytest's own session cannot be used.
    """

    def run(name: str, **options: object) -> dict[str, object]:
        request = {
            "servers": kafka_servers,
            "jars": connector,
            "directory": str(tmp_path),
            **options,
        }
        answer = tmp_path / "answer.json"
        program = Path(__file__).with_name("spark_programs.py")
        done = subprocess.run(
            [sys.executable, str(program), name, json.dumps(request), str(answer)],
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        # Spark's log goes on after the error: show it from Python's own account of what went wrong.
        error = done.stderr[max(done.stderr.find("Traceback"), 0) :]
        assert done.returncode == 0, error[:8000]
        found: dict[str, object] = json.loads(answer.read_text())
        return found

    return run
