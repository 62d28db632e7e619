"""Who starts workers: in threads and in processes of this machine; Spark does it in tasks."""

from __future__ import annotations

import json
import logging
import multiprocessing
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from steelyard.resident.gang import GenerationError
from steelyard.resident.peers import Address, WorkerError
from steelyard.resident.security import Credentials
from steelyard.resident.worker import Worker

log = logging.getLogger(__name__)

START_SECONDS = 60.0
"""How long processes have to tell their addresses."""
LEAVE_SECONDS = 5.0
"""How long processes have to end by themselves before they are ended."""


class Launcher(Protocol):
    """Starts workers somewhere: in threads, in processes, in the tasks of a Spark job."""

    host: str
    """The interface that the coordinator listens at."""

    def launch(self, dataflow: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """Start all workers of a generation; what keeps them from starting is told to `coordinator.abort`."""
        ...

    def gather(self, failed: bool = False) -> None:
        """Wait until all workers of the last generation are gone; `failed` where some may hang."""
        ...

    def require(self, workers: int) -> None:
        """OptionError where there is no room for so many workers."""
        ...


class ThreadLauncher:
    """Workers as threads of this process: for tests, and for dataflows that are mostly Arrow's own work.

    `kind` is what a worker is: something that is made as a `Worker` is.
    """

    host = "127.0.0.1"

    def __init__(self, kind: Any = Worker) -> None:
        self._kind = kind
        self.workers: list[Any] = []
        self._threads: list[threading.Thread] = []

    def launch(self, dataflow: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """One thread per worker."""
        count = coordinator.workers
        self.workers = [self._kind(number, dataflow, credentials, self.host, generation) for number in range(count)]
        peers = self.among([worker.address for worker in self.workers], generation)
        self._threads = [
            threading.Thread(target=_served, args=(worker, coordinator.address, peers), daemon=True)
            for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    def among(self, peers: list[Address], generation: int) -> list[Address]:
        """Where workers reach each other."""
        return peers

    def gather(self, failed: bool = False) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join()

    def require(self, workers: int) -> None:
        """There is always room."""


def _served(worker: Any, coordinator: Address, peers: Sequence[Address]) -> None:
    try:
        worker.run(coordinator, peers)
    except WorkerError as error:
        log.info("worker %d ended: %s", worker.number, error)


class ProcessLauncher:
    """Workers as processes, forked, so that a dataflow with functions of any kind reaches them."""

    host = "127.0.0.1"

    def __init__(self, kind: Any = Worker) -> None:
        self._kind = kind
        self.processes: list[Any] = []

    def launch(self, dataflow: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """One process a worker; they tell each other their addresses through pipes."""
        context = multiprocessing.get_context("fork")
        pipes = [context.Pipe() for _ in range(coordinator.workers)]
        self.processes = [
            context.Process(
                target=_forked,
                args=(self._kind, number, dataflow, credentials, generation, coordinator.address, pipe),
                daemon=True,
            )
            for number, (_, pipe) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()  # else a child that dies would not be noticed
        peers = [_address(number, ours) for number, (ours, _) in enumerate(pipes)]
        for ours, _ in pipes:
            ours.send_bytes(json.dumps(peers).encode())

    def gather(self, failed: bool = False) -> None:
        """Wait for the processes; one that does not end is ended."""
        for process in self.processes:
            process.join(LEAVE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    def require(self, workers: int) -> None:
        """There is always room."""


def _address(number: int, pipe: Any) -> Address:
    try:
        if not pipe.poll(START_SECONDS):
            raise GenerationError(f"worker {number} did not start within {START_SECONDS:g} s")
        host, _, port = pipe.recv_bytes().decode().rpartition(" ")
    except (EOFError, OSError) as error:
        raise GenerationError(f"worker {number} died before it had an address: {error}") from error
    return host, int(port)


def _forked(
    kind: Any, number: int, dataflow: Any, credentials: Credentials, generation: int, coordinator: Address, pipe: Any
) -> None:
    worker = kind(number, dataflow, credentials, ProcessLauncher.host, generation)
    pipe.send_bytes(f"{worker.address[0]} {worker.address[1]}".encode())
    peers = [(host, port) for host, port in json.loads(pipe.recv_bytes())]
    _served(worker, coordinator, peers)
