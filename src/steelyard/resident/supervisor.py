"""A supervisor: a process without threads that forks a worker for each generation, and tells how it ended.

What a worker needs (the dataflow, what was imported and compiled) is there already when it is forked, so that one that
died is followed by another within milliseconds. Forking is safe, since nobody else runs in this process.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

from steelyard.resident.child import Child, die_with
from steelyard.resident.connection import ClosedError, Connection
from steelyard.resident.control import message, packed
from steelyard.resident.peers import ADDRESS, Address, WorkerError
from steelyard.resident.seal import compiled
from steelyard.resident.security import LAUNCHER, Credentials, Identity, RefusedError
from steelyard.resident.wire import Kind, WireError

log = logging.getLogger(__name__)

TO_LAUNCHER = 2
"""What its connection is for."""
BEAT_SECONDS, SILENCE_SECONDS = 0.5, 30.0
"""Between two signs of life, and without one before the other end counts as dead."""
_ABOUT_TO_END = 0.001
"""How soon to look again at a process that ends."""
ORDERS: dict[str, dict[str, Any]] = {
    "fork": {"generation": int, "coordinator": ADDRESS},
    "kill": {"generation": int},
    "stop": {},
}
"""What a launcher may say."""
EVENTS: dict[str, dict[str, Any]] = {
    "hello": {"host": str, "pid": int},
    "ended": {"generation": int, "status": int, "why": str},
}
"""What a supervisor may say."""


class Supervisor:
    """Forks the processes of one worker, one generation after the other.

    Parameters
    ----------
    number
        Of the worker.
    kind
        What a worker is: something that is made as a `Worker` is.
    given
        What the worker is given to run.
    credentials
        The job's secret.
    host
        The interface that the worker listens at.
    gang
        Which gang of its launcher it is of.
    foreign
        Files of this process that workers must not hold.
    """

    def __init__(
        self,
        number: int,
        kind: Any,
        given: Any,
        credentials: Credentials,
        host: str,
        gang: int,
        foreign: Iterable[int] = (),
    ) -> None:
        self._number, self._kind, self._given, self._credentials = number, kind, given, credentials
        self._host, self._gang, self._foreign = host, gang, list(foreign)
        self._child: Child | None = None
        self._generation = 0
        self._beaten = 0.0

    def run(self, launcher: Address) -> str:
        """Do what the launcher says until it says stop; gives why it ended where it was for another reason."""
        self._warm()
        identity = Identity(self._gang, self._number, TO_LAUNCHER)
        try:
            link = self._credentials.reach(launcher, identity, LAUNCHER, threading.Event())
        except (RefusedError, OSError) as error:
            return f"worker {self._number}: the driver cannot be reached: {error}"
        try:
            self._tell(link, "hello", host=socket.gethostname(), pid=os.getpid())
            while self._obeyed(link):
                self._wait(link)
                self._look_after(link)
        except (OSError, WireError) as error:
            return f"worker {self._number}: the driver is gone: {error}"
        finally:
            self._end()
            link.close()
        return ""

    def _warm(self) -> None:
        """Load once what else every worker would."""
        if self._credentials.tls is None:
            compiled()
        try:
            self._kind.warm(self._given)
        except Exception as error:  # noqa: BLE001 - the worker meets it too, and tells it
            log.info("worker %d will not be ready at once: %s: %s", self._number, type(error).__name__, error)

    def _tell(self, link: Connection, event: str, **what: Any) -> None:
        link.send(Kind.CONTROL, payload=packed("event", event, what))

    def _wait(self, link: Connection) -> None:
        """Until an order comes, the worker ends, or it is time for a sign of life."""
        poll = select.poll()
        poll.register(link.fileno(), select.POLLIN)
        seconds = BEAT_SECONDS
        if self._child is not None and self._child.is_silent:
            seconds = _ABOUT_TO_END
        elif self._child is not None:
            poll.register(self._child.fileno(), select.POLLIN)
        poll.poll(1000 * seconds)

    def _look_after(self, link: Connection) -> None:
        """Tell that the worker has ended, if it has, and that this process is there."""
        end = self._child.ended() if self._child is not None else None
        if end is not None:
            self._child = None
            self._tell(link, "ended", generation=self._generation, status=end.status, why=end.why)
        now = time.monotonic()
        if now - self._beaten >= BEAT_SECONDS / 2:
            self._beaten = now
            link.beat()
        if link.silence > SILENCE_SECONDS:
            raise ClosedError(f"it has been silent for {link.silence:.1f} s")

    def _obeyed(self, link: Connection) -> bool:
        """Carry out what was said so far; False where that is to stop."""
        while link.is_readable:
            frame = link.take()
            if frame is None:
                continue
            order = message(frame, "do", ORDERS)
            if order["do"] == "stop":
                return False
            if order["do"] == "fork":
                self._fork(order["generation"], (order["coordinator"][0], order["coordinator"][1]), link)
            elif self._child is not None and self._generation == order["generation"]:
                self._child.kill()
        return True

    def _fork(self, generation: int, coordinator: Address, link: Connection) -> None:
        self._end()
        self._generation = generation

        def work(line: socket.socket) -> str:
            die_with(line)
            try:
                worker = self._kind(self._number, self._given, self._credentials, self._host, generation)
                worker.run(coordinator)
            except (WorkerError, OSError) as error:
                return str(error)
            return ""

        try:
            self._child = Child(work, [link.fileno(), *self._foreign])
        except OSError as error:
            self._tell(link, "ended", generation=generation, status=1, why=f"it could not be forked: {error}")

    def _end(self) -> None:
        """End the worker, if there is one, and wait until it has ended."""
        child, self._child = self._child, None
        if child is not None and child.ended() is None:
            child.kill()
            child.wait(SILENCE_SECONDS)
