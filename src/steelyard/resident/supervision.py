"""Supervisors as the driver sees them: they come, fork workers when they are told to, and tell how these ended."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, NamedTuple, Protocol

from steelyard.resident.child import End
from steelyard.resident.connection import Connection
from steelyard.resident.control import message, packed
from steelyard.resident.listener import Listener
from steelyard.resident.peers import Address
from steelyard.resident.pulse import Pulse
from steelyard.resident.security import LAUNCHER, Credentials, Identity
from steelyard.resident.supervisor import BEAT_SECONDS, EVENTS, SILENCE_SECONDS, TO_LAUNCHER
from steelyard.resident.wire import Frame, Kind

log = logging.getLogger(__name__)

_KILL_SECONDS = 5.0
"""How long supervisors have to end processes."""


class Awaiting(Protocol):
    """Whoever awaits workers."""

    def abort(self, why: str) -> None:
        """They will not come, or not all."""
        ...

    def bury(self, worker: int, how: str) -> None:
        """The process of one has ended."""
        ...


class _Wanted(NamedTuple):
    """A generation of workers that there are to be."""

    number: int
    coordinator: Address
    director: Awaiting


class Supervision:
    """A gang of supervisors, one for each worker.

    Parameters
    ----------
    workers
        How many there are to be.
    credentials, host
        As for a `Listener`.
    number
        Of the gang, among those of its launcher.
    """

    def __init__(self, workers: int, credentials: Credentials, host: str, number: int) -> None:
        self.workers, self.number = workers, number
        self.lost: str | None = None
        """Why no other generation can be forked, if so."""
        self.pids: dict[int, int] = {}
        """By worker: the process of its supervisor, as its own machine numbers it."""
        self._changed = threading.Condition()
        self._links: dict[int, Connection] = {}
        self._living: dict[int, int] = {}
        """By worker that was to be forked and has not ended: its generation."""
        self._ends: dict[int, End] = {}
        """By worker of the newest generation that has ended without being killed from here: how."""
        self._newest = -1
        self._killed: set[int] = set()
        self._wanted: _Wanted | None = None
        self._stopped = False
        self._pulse = Pulse(BEAT_SECONDS, SILENCE_SECONDS)
        self._listener = Listener(host, credentials, number, LAUNCHER, self._welcome)
        self.address = self._listener.address

    def fork(self, generation: int, coordinator: Address, director: Awaiting) -> None:
        """Have all workers of a generation forked, by whoever is here and whoever comes."""
        with self._changed:
            self._wanted, self._newest = _Wanted(generation, coordinator, director), generation
            self._ends.clear()
            self._killed.clear()
            lost = self.lost
            for worker in self._links if lost is None else ():
                self._fork(worker, self._wanted)
        if lost is not None:
            director.abort(lost)

    def _fork(self, worker: int, wanted: _Wanted) -> None:
        self._living[worker] = wanted.number
        self._order(worker, "fork", generation=wanted.number, coordinator=wanted.coordinator)

    def _order(self, worker: int, what: str, **details: Any) -> None:
        with contextlib.suppress(OSError):  # whoever receives from it hears of it
            self._links[worker].send(Kind.CONTROL, payload=packed("do", what, details))

    def gather(self, seconds: float) -> str:
        """Wait until no worker is left, and have those killed that do not end in time; how those ended that died."""
        with self._changed:
            self._wanted = None
            if not self._changed.wait_for(self._is_settled, seconds):
                for worker, generation in self._living.items():
                    log.warning("worker %d did not end within %g s, and is killed", worker, seconds)
                    self._killed.add(worker)
                    self._order(worker, "kill", generation=generation)
                if not self._changed.wait_for(self._is_settled, _KILL_SECONDS):
                    missing = sorted(set(range(self.workers)) - set(self._links) | set(self._living))
                    self.lost = self.lost or f"the supervisors of workers {missing} do not answer"
            return "; ".join(f"worker {worker} {end}" for worker, end in sorted(self._ends.items()) if end.status < 0)

    def _is_settled(self) -> bool:
        return not self._living and (self.lost is not None or len(self._links) == self.workers)

    def lose(self, why: str) -> None:
        """No other generation can be forked; any thread may call it."""
        with self._changed:
            if self._stopped:
                return
            self.lost = self.lost or why
            wanted = self._wanted
            self._changed.notify_all()
        if wanted is not None:
            wanted.director.abort(why)

    def _welcome(self, identity: Identity, link: Connection) -> None:
        """A supervisor has come; stays with it until it goes."""
        worker = identity.worker
        with self._changed:
            known = identity.purpose == TO_LAUNCHER and 0 <= worker < self.workers
            if self._stopped or not known or worker in self._links:
                log.warning("the launcher refused %s, which is not awaited", identity)
                link.close()
                return
            self._links[worker] = link
            if self._wanted is not None:
                self._fork(worker, self._wanted)
            self._changed.notify_all()
        self._pulse.watch(link)
        try:
            while True:
                self._hear(worker, link.receive())
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would notice that it is not heard
            with self._changed:
                self._living.pop(worker, None)  # it ends with its supervisor
            gone = "is gone" if isinstance(error, OSError) else "was not understood"
            self.lose(f"the supervisor of worker {worker} {gone}: {error}")
        finally:
            link.close()

    def _hear(self, worker: int, frame: Frame) -> None:
        what = message(frame, "event", EVENTS)
        if what["event"] == "hello":
            self.pids[worker] = what["pid"]
            return
        end, generation = End(what["status"], what["why"]), what["generation"]
        with self._changed:
            if self._living.get(worker) == generation:
                del self._living[worker]
            wanted = self._wanted if self._wanted is not None and self._wanted.number == generation else None
            if generation == self._newest and worker not in self._killed:
                self._ends[worker] = end
            self._changed.notify_all()
        log.log(logging.INFO if end.status else logging.DEBUG, "worker %d of generation %d %s", worker, generation, end)
        if wanted is not None:
            wanted.director.bury(worker, str(end))

    def stop(self) -> None:
        """Tell all supervisors to end, and take nobody in any more."""
        with self._changed:
            self._stopped = True
            for worker in self._links:
                self._order(worker, "stop")
        self._listener.close()

    def close(self) -> None:
        """Let go of all sockets."""
        self._pulse.stop()
        for link in list(self._links.values()):
            link.close()
