"""The other workers: how a worker meets them, hears them, and loses them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from steelyard.core import SteelyardError
from steelyard.resident.connection import Connection, Traffic
from steelyard.resident.listener import Listener
from steelyard.resident.pulse import Pulse
from steelyard.resident.security import Credentials, Identity, RefusedError
from steelyard.resident.wire import Frame, Kind, WireError

log = logging.getLogger(__name__)

Address = tuple[str, int]
Lost = Callable[[str, float], None]
"""Hears why nothing comes any more, and how many seconds ago that began."""
ADDRESS = (str, int)
"""The shape of one in a message."""

TO_PEER, TO_COORDINATOR = 0, 1
"""What a connection is for."""
PEER_SECONDS = 60.0
"""How long workers wait for each other."""


class WorkerError(SteelyardError):
    """A worker that cannot go on; it says what happened where."""


class Peers:
    """One connection to each of the other workers of a generation.

    Parameters
    ----------
    number
        Which worker this is.
    credentials, host, generation
        As for a `Worker`.
    """

    def __init__(self, number: int, credentials: Credentials, host: str, generation: int) -> None:
        self._number, self._credentials, self._generation = number, credentials, generation
        self._connections: dict[int, Connection] = {}
        self._changed = threading.Condition()
        self._pulse: Pulse | None = None
        self.given_up = threading.Event()
        """Set when nobody is to be met any more."""
        self._listener = Listener(host, credentials, generation, number, self._welcome)
        self.address: Address = self._listener.address

    @property
    def refused(self) -> int:
        """Connections that were turned away."""
        return self._listener.refused

    def beat(self, pulse: Pulse) -> None:
        """Give a sign of life to all, those included that come later, and want one of them."""
        with self._changed:
            self._pulse = pulse
            for connection in self._connections.values():
                pulse.watch(connection)

    def meet(self, addresses: Sequence[Address]) -> None:
        """Connect to workers with lower numbers, and wait for those with higher ones; else WorkerError."""
        identity = Identity(self._generation, self._number, TO_PEER)
        for number in range(self._number):
            try:
                made = self._credentials.reach(addresses[number], identity, number, self.given_up)
            except (RefusedError, OSError) as error:
                raise WorkerError(f"worker {number} cannot be reached: {error}") from error
            if not self._add(number, made):
                made.close()
        with self._changed:
            self._changed.wait_for(lambda: self.given_up.is_set() or self._complete(addresses), PEER_SECONDS)
            if self.given_up.is_set():
                raise WorkerError("it was stopped while it waited for other workers")
            if not self._complete(addresses):
                missing = set(range(len(addresses))) - set(self._connections) - {self._number}
                raise WorkerError(f"workers {sorted(missing)} did not come within {PEER_SECONDS:g} s")

    def _complete(self, addresses: Sequence[Address]) -> bool:
        return len(self._connections) == len(addresses) - 1

    def _add(self, number: int, connection: Connection) -> bool:
        with self._changed:
            if self.given_up.is_set() or number in self._connections:
                return False
            self._connections[number] = connection
            if self._pulse is not None:
                self._pulse.watch(connection)
            self._changed.notify_all()
            return True

    def _welcome(self, identity: Identity, connection: Connection) -> None:
        known = identity.purpose == TO_PEER and identity.worker > self._number
        if not known or not self._add(identity.worker, connection):
            log.warning("worker %d refused a second or unasked connection of %s", self._number, identity)
            connection.close()

    def listen(self, take: Callable[[int, Frame], None], lost: Lost) -> None:
        """Give `take` each frame, with the number of its worker, in a thread per worker, until `lost`."""
        for number, connection in self._connections.items():
            threading.Thread(
                target=self._listen, args=(number, connection, take, lost), name=f"from worker {number}", daemon=True
            ).start()

    def _listen(
        self,
        number: int,
        connection: Connection,
        take: Callable[[int, Frame], None],
        lost: Lost,
    ) -> None:
        me = f"worker {self._number}"
        try:
            while True:
                take(number, connection.receive())
        except WireError as error:
            if not self.given_up.is_set():
                log.warning("%s refuses what worker %d sends: %s", me, number, error)
            lost(f"{me} refused what worker {number} sent: {error}", 0.0)
        except OSError as error:
            lost(f"{me} lost worker {number}: {error}", getattr(error, "ago", 0.0))
        except Exception as error:  # noqa: BLE001 - nobody else would notice that this worker hears nothing any more
            lost(f"{me} cannot read what worker {number} sends: {type(error).__name__}: {error}", 0.0)

    def send(self, worker: int, kind: Kind, channel: int, number: int, payload: Any, note: bytes = b"") -> None:
        """A frame to another worker; WorkerError where it is gone."""
        try:
            self._connections[worker].send(kind, channel, number, payload, note)
        except OSError as error:
            raise WorkerError(f"worker {worker} is gone: {error}") from error

    def traffic(self) -> tuple[Traffic, Traffic]:
        """What went to all of them, and what came."""
        sent, received = Traffic(), Traffic()
        for connection in list(self._connections.values()):
            for total, part in ((sent, connection.sent), (received, connection.received)):
                for name, value in part.to_dict().items():
                    setattr(total, name, getattr(total, name) + value)
        return sent, received

    def give_up(self) -> None:
        """Wake whoever waits for others; any thread may call it."""
        self.given_up.set()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of all."""
        self.give_up()
        if self._pulse is not None:
            self._pulse.stop()
        for connection in list(self._connections.values()):
            connection.close()
        self._listener.close()
