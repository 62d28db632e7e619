"""Who starts workers: in threads and in processes of this machine; Spark does it in tasks."""

from __future__ import annotations

import logging
import select
import threading
from abc import ABC, abstractmethod
from typing import Any, Protocol

from steelyard.resident.child import Child
from steelyard.resident.peers import Address, WorkerError
from steelyard.resident.security import Credentials
from steelyard.resident.supervision import Supervision
from steelyard.resident.supervisor import Supervisor
from steelyard.resident.worker import Worker

log = logging.getLogger(__name__)

LEAVE_SECONDS = 30.0
"""How long processes have to end by themselves before they are ended."""
FAILED_SECONDS = 2.0
"""The same after a failure."""
_WATCH_SECONDS = 0.1
"""Between two looks whether supervisors need to be watched any more."""


class Launcher(Protocol):
    """Starts workers somewhere: in threads, in processes, in the tasks of a Spark job."""

    host: str
    """The interface that the coordinator listens at."""

    def launch(self, given: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """Start all workers of a generation; what keeps them from starting is told to `coordinator.abort`."""
        ...

    def gather(self, failed: bool = False) -> str:
        """Wait until all workers of the last generation are gone; `failed` where some may hang. Says who died how."""
        ...

    def release(self) -> None:
        """Let go of all that was kept for the next generation: there is none."""
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

    def launch(self, given: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """One thread per worker."""
        count = coordinator.workers
        self.workers = [self._kind(number, given, credentials, self.host, generation) for number in range(count)]
        peers = self.among([worker.address for worker in self.workers], generation)
        for worker, address in zip(self.workers, peers, strict=True):
            worker.address = address
        self._threads = [
            threading.Thread(target=_served, args=(worker, coordinator.address), daemon=True) for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    def among(self, peers: list[Address], generation: int) -> list[Address]:
        """Where workers are told to reach each other."""
        return peers

    def gather(self, failed: bool = False) -> str:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join()
        return ""

    def release(self) -> None:
        """Nothing is kept."""

    def require(self, workers: int) -> None:
        """There is always room."""


def _served(worker: Any, coordinator: Address) -> None:
    try:
        worker.run(coordinator)
    except WorkerError as error:
        log.info("worker %d ended: %s", worker.number, error)


class SupervisedLauncher(ABC):
    """Workers as processes that supervisors fork; these stay, and fork the workers of the next generation, too.

    Others take their place where one of them is lost, for another number of workers, and for another job.

    Parameters
    ----------
    kind
        What a worker is: something that is made as a `Worker` is.
    """

    host: str = "127.0.0.1"

    def __init__(self, kind: Any = Worker) -> None:
        self._kind = kind
        self._gang: Supervision | None = None
        self._ours: tuple[Any, Credentials] | None = None
        """What the supervisors were given."""
        self.gangs = 0
        """How often supervisors were started."""

    @property
    def supervisors(self) -> dict[int, int]:
        """By worker: the process of its supervisor, as its own machine numbers it."""
        return dict(self._gang.pids) if self._gang is not None else {}

    def launch(self, given: Any, credentials: Credentials, generation: int, coordinator: Any) -> None:
        """Have supervisors fork all workers; start supervisors first where there are none that can."""
        if self._gang is None or not self._serves(self._gang, given, credentials, coordinator.workers):
            self.release()
            self.gangs += 1
            gang = self._gang = Supervision(coordinator.workers, credentials, self.host, self.gangs)
            self._ours = given, credentials
            self._start(gang, given, credentials)
        self._gang.fork(generation, self.reached(coordinator.address), coordinator)

    def _serves(self, gang: Supervision, given: Any, credentials: Credentials, workers: int) -> bool:
        """Whether supervisors that are there can fork these workers."""
        same = self._ours is not None and self._ours[0] is given and self._ours[1] is credentials
        return same and gang.lost is None and gang.workers == workers

    def reached(self, address: Address) -> Address:
        """Where a listener of the driver is reached from outside."""
        return address

    def gather(self, failed: bool = False) -> str:
        """Wait for the processes; one that does not end is ended."""
        if self._gang is None:
            return ""
        return self._gang.gather(FAILED_SECONDS if failed else LEAVE_SECONDS)

    def release(self) -> None:
        """End the supervisors."""
        gang, self._gang = self._gang, None
        if gang is not None:
            gang.stop()
            try:
                self._end(gang.lost is not None)
            finally:
                gang.close()

    @abstractmethod
    def _start(self, gang: Supervision, given: Any, credentials: Credentials) -> None:
        """Start a supervisor for each worker; what keeps them from starting is told to `gang.lose`."""

    @abstractmethod
    def _end(self, failed: bool) -> None:
        """Wait until all supervisors are gone, which they were told to; `failed` where some may hang."""

    @abstractmethod
    def require(self, workers: int) -> None:
        """OptionError where there is no room for so many workers."""


class ProcessLauncher(SupervisedLauncher):
    """Workers as processes of this machine, forked, so that a dataflow with functions of any kind reaches them."""

    def __init__(self, kind: Any = Worker) -> None:
        super().__init__(kind)
        self._processes: list[Child] = []
        self._ending = threading.Event()
        self._watcher = threading.Thread()

    def _start(self, gang: Supervision, given: Any, credentials: Credentials) -> None:
        for number in range(gang.workers):
            supervisor = Supervisor(number, self._kind, given, credentials, self.host, gang.number)
            self._processes.append(Child(lambda line, one=supervisor: one.run(gang.address)))  # type: ignore[misc]
        self._ending.clear()
        self._watcher = threading.Thread(target=self._watch, args=(gang,), name="supervisors", daemon=True)
        self._watcher.start()

    def _watch(self, gang: Supervision) -> None:
        """Notice one that ends before it has come: nobody has a connection to it yet."""
        poll = select.poll()
        lines = {process.fileno(): number for number, process in enumerate(self._processes)}
        for line in lines:
            poll.register(line, select.POLLIN)
        while not self._ending.is_set():
            for line, _ in poll.poll(1000 * _WATCH_SECONDS):
                poll.unregister(line)
                gang.lose(f"the supervisor of worker {lines[line]} has ended")

    def _end(self, failed: bool) -> None:
        self._ending.set()
        if self._watcher.ident is not None:
            self._watcher.join()  # before the numbers of files that it looks at are of others
        for process in self._processes:
            if process.wait(FAILED_SECONDS) is None:
                process.kill()
                process.wait(LEAVE_SECONDS)
        self._processes.clear()

    def require(self, workers: int) -> None:
        """There is always room."""
