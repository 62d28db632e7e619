"""The workers of one generation, as whoever watches over them sees them: they come, say something, and go."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from steelyard.core import SteelyardError
from steelyard.resident.connection import Connection
from steelyard.resident.control import packed
from steelyard.resident.listener import Listener
from steelyard.resident.peers import TO_COORDINATOR, Address
from steelyard.resident.pulse import Pulse
from steelyard.resident.security import COORDINATOR, Credentials, Identity
from steelyard.resident.wire import Frame, Kind

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
"""How often it is looked whether workers are late."""
OUTSIDE = -1
"""Who says something without being a worker."""


class GenerationError(SteelyardError):
    """A generation of workers that could not finish; the next one goes on from the last snapshot.

    Unless the failure is `final`: then the next would fail as this one did. `at` is the moment of `time.monotonic()`
    at which it happened, as far as anybody can tell.
    """

    def __init__(self, why: str, final: bool = False, at: float | None = None) -> None:
        super().__init__(why)
        self.final = final
        self.at = time.monotonic() if at is None else at


class Said(NamedTuple):
    """Something that a worker said."""

    worker: int
    event: str
    what: Mapping[str, Any]
    at: float
    """The moment of `time.monotonic()` at which it came: the one who decides may hear of it later."""


class Recovery(NamedTuple):
    """What it took to go on after a generation that failed."""

    generation: int
    """The one that failed."""
    detected: float
    """Seconds from the failure, as far as anybody saw it, until it was decided to go on without this generation."""
    restarted: float
    """Seconds from there until the first worker of one that followed began to work."""
    why: str
    """What failed."""

    @property
    def seconds(self) -> dict[str, float]:
        """By phase, with their `total`."""
        return {"detect": self.detected, "restart": self.restarted, "total": self.detected + self.restarted}


class Gang:
    """Takes workers in, brings what they say to one thread, and notices who is gone, silent or not understood.

    Parameters
    ----------
    workers
        How many there are to be.
    credentials, host, generation
        As for a `Listener`.
    pulse
        What gives signs of life, and wants them.
    understood
        What a frame of a worker says: (event, what), or None where that is nobody else's concern. What it raises ends
        the generation.
    greeting
        The first order for whoever comes, where there is one: others may take long to.
    """

    def __init__(
        self,
        workers: int,
        credentials: Credentials,
        host: str,
        generation: int,
        pulse: Pulse,
        understood: Callable[[int, Frame], tuple[str, Mapping[str, Any]] | None],
        greeting: bytes | None = None,
    ) -> None:
        self.workers = workers
        self._pulse, self._understood, self._greeting = pulse, understood, greeting
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, Address] = {}
        self._joining = threading.Lock()
        self._dismissed = False
        self._listener = Listener(host, credentials, generation, COORDINATOR, self._welcome)
        self.address = self._listener.address

    def say(self, event: str, worker: int = OUTSIDE, **what: Any) -> None:
        """Have the one who decides hear something; any thread may call it."""
        self._said.put(Said(worker, event, what, time.monotonic()))

    def hear(self, seconds: float) -> Said | None:
        """The next thing that somebody says, if it comes in time. GenerationError where a worker has failed."""
        try:
            said = self._said.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None
        if said.event == "failed":
            happened = said.at - (said.what.get("ago") or 0.0)
            raise GenerationError(said.what["why"], said.what.get("final", False), happened)
        return said

    @property
    def addresses(self) -> list[Address]:
        """Where workers reach each other, as they said when they came."""
        return [self._addresses[worker] for worker in range(self.workers)]

    def send(self, worker: int, kind: Kind, channel: int, payload: Any) -> None:
        """A frame to a worker; GenerationError where it is gone."""
        try:
            self._connections[worker].send(kind, channel, payload=payload)
        except OSError as error:
            while self.hear(0.0) is not None:  # whoever reads from it said why before he closed it
                pass
            raise GenerationError(f"worker {worker} is gone: {error}") from error

    def order(self, worker: int, what: str, details: Mapping[str, Any]) -> None:
        """Tell a worker to do something; GenerationError where it is gone."""
        self.send(worker, Kind.CONTROL, 0, packed("do", what, details))

    def _welcome(self, identity: Identity, connection: Connection) -> None:
        """A worker has come; stays with it until it goes."""
        number = identity.worker
        with self._joining:
            known = identity.purpose == TO_COORDINATOR and 0 <= number < self.workers
            if self._dismissed or not known or number in self._connections:
                log.warning("the coordinator refused %s, which is not awaited", identity)
                connection.close()
                return
            self._connections[number] = connection
        self._pulse.watch(connection)
        try:
            if self._greeting is not None:
                connection.send(Kind.CONTROL, payload=self._greeting)
            while True:
                said = self._understood(number, connection.receive())
                if said is None:
                    continue
                event, what = said
                if event == "hello":
                    self._addresses[number] = what["address"][0], what["address"][1]
                self._said.put(Said(number, event, what, time.monotonic()))
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would notice that a worker is not heard
            gone = "is gone" if isinstance(error, OSError) else "was not understood"
            self.say("failed", number, why=f"worker {number} {gone}: {error}", ago=getattr(error, "ago", 0.0))
        finally:
            connection.close()

    def bury(self, worker: int, how: str) -> None:
        """Its process has ended; what it said before is heard first."""
        with self._joining:
            connection = self._connections.get(worker)
        if connection is None:
            self.say("failed", worker, why=f"worker {worker} {how}")
        else:
            connection.give_up(f"worker {worker} {how}")

    def dismiss(self, why: str) -> None:
        """Tell all to stop, for a reason where there is one, and take nobody in any more."""
        with self._joining:
            self._dismissed = True
        order = packed("do", "stop", {"why": why} if why else {})
        for connection in list(self._connections.values()):
            with contextlib.suppress(OSError):
                connection.send(Kind.CONTROL, payload=order)
        self._listener.close()

    def close(self) -> None:
        """Let go of all sockets; called when the workers are gone, or will never come."""
        with self._joining:
            self._dismissed = True
        self._listener.close()
        self._pulse.stop()
        for connection in list(self._connections.values()):
            connection.close()


class Director(ABC):
    """Who watches over one generation of workers, from the driver."""

    _gang: Gang
    started: Callable[[float], None] | None = None
    """Called with the moment at which the first worker began to work."""

    def abort(self, why: str) -> None:
        """Give this generation up. Any thread may call it."""
        self._gang.say("failed", why=why)

    def bury(self, worker: int, how: str) -> None:
        """The process of a worker has ended. Any thread may call it."""
        self._gang.bury(worker, how)

    def request_stop(self) -> None:
        """Read no more, and end when what was read has come to its end. Any thread may call it."""
        self._gang.say("stop")

    def close(self) -> None:
        """Let go of all sockets; called when the workers are gone, or will never come."""
        self._gang.close()

    def _has_started(self, said: Said) -> None:
        started, self.started = self.started, None
        if started is not None:
            started(said.at)

    @abstractmethod
    def _hear(self, seconds: float) -> Said | None:
        """The next thing that a worker says, if it says one in time. GenerationError where one has failed."""

    @contextmanager
    def _attended(self) -> Iterator[None]:
        """Workers are there for so long, and are dismissed with why it ended."""
        why = "the driver was interrupted"
        try:
            yield
            why = ""
        except GenerationError as error:
            why = str(error)
            raise
        finally:
            self._gang.dismiss(why)

    def _await(self, event: str, seconds: float) -> None:
        """Wait until every worker has said it."""
        deadline = time.monotonic() + seconds
        missing = set(range(self._gang.workers))
        while missing:
            if time.monotonic() > deadline:
                some = sorted(missing)
                raise GenerationError(f"workers {some} did not come within {seconds:g} s: are there enough slots?")
            said = self._hear(_LOOK_SECONDS)
            if said is not None and said.event == event:
                missing.discard(said.worker)
