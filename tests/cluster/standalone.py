"""A standalone cluster on this machine: a master and its workers, at free ports of the loopback interface."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from steelyard.spark.java import require_java
from tests import tiny_spark
from tests.cluster.programs import ROOT, Program

HOME = Path(pyspark.__file__).parent
PATIENCE = 120.0
"""Seconds for a JVM to say what is awaited."""


def _heard(program: Program, found: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + PATIENCE
    while not found(program.said()):
        assert program.process.poll() is None, f"it ended: {program.said()[-3000:]}"
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s in vain: {program.said()[-3000:]}"
        time.sleep(0.05)
    return program.said()


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[str]:
    """The master's address, while it runs; in the end everything is killed, executors too.

    The package reaches executors by what workers have in their environment: their `PYTHONPATH` and `PYSPARK_PYTHON`.
    """
    require_java()
    env = {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": tiny_spark.java(),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
    }
    start = [str(HOME / "bin" / "spark-class")]
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as running:
        command = [*start, "org.apache.spark.deploy.master.Master", *ports]
        master = running.enter_context(Program(command, folder / "master.log", env))
        address = re.compile(r"Starting Spark master at (spark://\S+)")
        said = _heard(master, lambda text: address.search(text) is not None)
        found = address.search(said)
        assert found is not None
        for number in range(workers):
            room = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / f"worker-{number}")]
            command = [*start, "org.apache.spark.deploy.worker.Worker", *ports, *room, found[1]]
            running.enter_context(Program(command, folder / f"worker-{number}.log", env))
        _heard(master, lambda text: text.count("Registering worker") >= workers)
        yield found[1]
