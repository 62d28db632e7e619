"""A real Kafka broker on this machine, and the jars that Spark needs to talk to it."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from steelyard.spark.java import java_executable
from steelyard.spark.kafka import STAND_IN_PACKAGES, ArtifactError, kafka_jars, kafka_packages, resolve

BROKER_PACKAGES = ["org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"]
START_SECONDS = 60
STOP_SECONDS = 20
PROGRAM_SECONDS = 240
POLL_SECONDS = 0.1
# Somebody else may take a free port before the broker binds it.
ATTEMPTS = 3


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now, each another one."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Broker:
    """One node that is both broker and controller (KRaft), with all its files in `directory`."""

    def __init__(self, jars: list[Path], directory: Path) -> None:
        self.classpath = os.pathsep.join(map(str, jars))
        self.directory = directory
        self.log = directory / "broker.log"
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self.properties = directory / "server.properties"
        listeners = f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": directory / "data",
            "num.partitions": 3,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ["format", "--standalone", "-t", cluster, "-c", str(self.properties)]
        command = self._java("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> bool:
        """Whether the broker came up; it did not if it ended by itself, say for a port that was taken."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self._java("kafka.Kafka", str(self.properties)), stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if "Kafka Server started" in self.log.read_text(errors="replace"):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _java(self, main: str, *arguments: str) -> list[str]:
        log = "-Dorg.slf4j.simpleLogger"
        levels = [f"{log}.defaultLogLevel=warn", f"{log}.log.kafka.server.KafkaRaftServer=info"]
        heap = ["-Xms128m", "-Xmx384m"]
        return [str(java_executable()), *heap, *levels, "-cp", self.classpath, main, *arguments]


@pytest.fixture(scope="session")
def kafka_servers() -> Iterator[str]:
    """The bootstrap address of a broker that lives as long as the tests."""
    try:
        jars = resolve(BROKER_PACKAGES)
    except ArtifactError as error:
        pytest.skip(f"Kafka's jars cannot be had: {error}")
    log = ""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="steelyard-kafka-", ignore_cleanup_errors=True) as directory:
            broker = Broker(jars, Path(directory))
            try:
                broker.format()
                if broker.start():
                    yield broker.servers
                    return
                log = broker.log.read_text(errors="replace")
            finally:
                broker.stop()
    pytest.fail(f"the broker did not start {ATTEMPTS} times; its last log:\n{log[-4000:]}")


@pytest.fixture(scope="session")
def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka connector, or of a stand-in that a warning names."""
    try:
        return kafka_jars()
    except ArtifactError:
        try:
            jars = kafka_jars(STAND_IN_PACKAGES)
        except ArtifactError as error:
            pytest.skip(f"the jars of Spark's Kafka connector cannot be had: {error}")
    warnings.warn(
        f"{kafka_packages()[0]} is not in the Maven repository: these tests ran with {', '.join(STAND_IN_PACKAGES)}",
        stacklevel=1,
    )
    return jars


@pytest.fixture
def run_program(kafka_servers: str, connector_jars: list[Path], tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run a function of `spark_programs.py` in a process of its own; its answer, and a directory to keep.

    The connector must be there when Spark's JVM starts, so pytest's own session cannot be used.
    """

    def run(name: str, **options: object) -> dict[str, object]:
        request = {
            "servers": kafka_servers,
            "jars": ",".join(map(str, connector_jars)),
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
