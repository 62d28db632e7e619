"""The door: takes connections, lets in who proves itself, and logs who does not."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from steelyard.resident.connection import Connection
from steelyard.resident.security import Credentials, Identity, RefusedError

log = logging.getLogger(__name__)

MAX_PENDING = 64
"""Handshakes at once; who comes then is turned away unheard, so that strangers cannot use up threads."""
_BREATH = 0.1
"""Seconds before the next try where a connection could not be taken: without free file numbers none can."""


class Listener:
    """Listens at one interface until it is closed.

    Parameters
    ----------
    host
        The address of the interface; all others stay shut.
    credentials
        What a peer must know.
    generation
        Peers of other generations of the job are refused: they are left over from before a failure.
    welcome
        Called, in a thread of its own, with each connection that was let in.
    """

    def __init__(
        self,
        host: str,
        credentials: Credentials,
        generation: int,
        welcome: Callable[[Identity, Connection], None],
    ) -> None:
        self._credentials, self._generation, self._welcome = credentials, generation, welcome
        self._closed = threading.Event()
        self._sock = socket.create_server((host, 0), family=_family(host), backlog=MAX_PENDING)
        self._pending = threading.BoundedSemaphore(MAX_PENDING)
        self.address: tuple[str, int] = self._sock.getsockname()[:2]
        self.refused = 0
        """Peers that were turned away."""
        self._thread = threading.Thread(target=self._accept, name=f"listen:{self.address[1]}", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, peer = self._sock.accept()
            except OSError as error:
                if not self._closed.is_set():
                    log.warning("a connection could not be taken: %s", error)
                    self._closed.wait(_BREATH)
                continue
            if not self._pending.acquire(blocking=False):
                self._refuse(sock, peer, f"{MAX_PENDING} others have not proved themselves yet")
                continue
            try:
                threading.Thread(target=self._greet, args=(sock, peer), name="handshake", daemon=True).start()
            except RuntimeError as error:  # no more threads
                self._pending.release()
                self._refuse(sock, peer, str(error))

    def _greet(self, plain: socket.socket, peer: tuple[str, int]) -> None:
        try:
            sock, identity = self._credentials.accept(plain)
            if identity.generation != self._generation:
                raise RefusedError(f"it is of generation {identity.generation}, and this is {self._generation}")
        except (RefusedError, OSError) as error:
            self._refuse(plain, peer, str(error))
            return
        finally:
            self._pending.release()
        self._welcome(identity, Connection(sock))

    def _refuse(self, sock: socket.socket, peer: tuple[str, int], why: str) -> None:
        self.refused += 1
        log.warning("refused a connection from %s:%s: %s", peer[0], peer[1], why)
        sock.close()

    def close(self) -> None:
        """Take no more connections; those that were let in stay."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._sock.close()
        self._thread.join()


def _family(host: str) -> socket.AddressFamily:
    """Of an address or a name: a name is what it resolves to first."""
    return socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
