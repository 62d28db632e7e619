"""A real Kafka broker on this machine, for tests and benchmarks; its jars come from a Maven repository, once."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from steelyard.core.errors import SteelyardError
from steelyard.spark.java import java_executable
from steelyard.spark.kafka import resolve

PACKAGES = ["org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"]
START_SECONDS = 60
STOP_SECONDS = 20
POLL_SECONDS = 0.1
ATTEMPTS = 3
"""Somebody else may take a free port before the broker binds it."""


class BrokerError(SteelyardError):
    """A broker that did not start; says what its log said last."""


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
            # by default a broker that gets no processor for 9 seconds is fenced, and topics made then have no leader
            "broker.session.timeout.ms": 120_000,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        """Prepare the folder for its first start."""
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = [
            "format",
            "--standalone",
            f"--cluster-id={cluster}",
            "-c",
            str(self.properties),
        ]  # may begin with "-"
        command = self._java("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if done.returncode:
            raise BrokerError(f"the broker's folder could not be made: {(done.stdout + done.stderr)[-1000:]}")

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
        """End it, and wait until it has ended."""
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


@contextmanager
def running_broker() -> Iterator[str]:
    """The bootstrap address of a broker that lives as long as the block.

    Raises
    ------
    ArtifactError
        Where Kafka's jars cannot be had.
    BrokerError
        Where it does not start.
    """
    jars = resolve(PACKAGES)
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
    raise BrokerError(f"the broker did not start {ATTEMPTS} times; its last log:\n{log[-4000:]}")
