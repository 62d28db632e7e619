"""The door: takes connections, lets in who proves itself, and logs who does not."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

from steelyard.resident.connection import Connection
from steelyard.resident.seal import compiled
from steelyard.resident.security import Credentials, Identity, RefusedError

log = logging.getLogger(__name__)

MAX_PENDING = 64
"""Handshakes at once. Whoever comes then takes the place of the oldest of the address that has the most: strangers who
hold places cannot keep workers out, and workers who lose theirs try again."""
MAX_OF_ADDRESS = 48
"""Handshakes at once with one address."""
_MAX_THREADS = 2 * MAX_PENDING
"""Threads for handshakes, those included that are about to end."""
_BACKLOG = 512
_BREATH = 0.1
"""Seconds before the next try where a connection could not be taken: without free file numbers none can."""
_LOGGED, _LOG_SECONDS = 64, 1.0
"""Refusals that are logged one by one; of those behind them, one in so many seconds."""


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
    number
        Which listener of the job this is: a worker's number, or `security.COORDINATOR`.
    welcome
        Called, in a thread of its own, with each connection that was let in.
    """

    def __init__(
        self,
        host: str,
        credentials: Credentials,
        generation: int,
        number: int,
        welcome: Callable[[Identity, Connection], None],
    ) -> None:
        self._credentials, self._generation, self._number, self._welcome = credentials, generation, number, welcome
        self._tls = credentials.tls.context(True) if credentials.tls else None
        if self._tls is None:
            compiled()  # before anybody comes
        self._closed = threading.Event()
        self._sock = socket.create_server((host, 0), family=_family(host), backlog=_BACKLOG)
        self._pending: dict[socket.socket, str] = {}
        """Addresses of those that have not proved themselves, the oldest first."""
        self._threads = 0
        self._changing = threading.Lock()
        self._logged = 0.0
        self.address: tuple[str, int] = self._sock.getsockname()[:2]
        self.refused = 0
        """Peers that were turned away."""
        self._thread = threading.Thread(target=self._accept, name=f"listen:{self.address[1]}", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, peer = self._sock.accept()
                if self._tls is not None:
                    sock = self._tls.wrap_socket(sock, True, do_handshake_on_connect=False)
            except (OSError, ValueError) as error:
                if not self._closed.is_set():
                    log.warning("a connection could not be taken: %s", error)
                    self._closed.wait(_BREATH)
                continue
            if not self._placed(sock, peer[0]):
                self._refuse(sock, peer, f"{_MAX_THREADS} others are being heard or turned away")
                continue
            try:
                threading.Thread(target=self._greet, args=(sock, peer), name="handshake", daemon=True).start()
            except RuntimeError as error:  # no more threads
                self._left(sock)
                self._refuse(sock, peer, str(error))

    def _placed(self, sock: socket.socket, address: str) -> bool:
        """Give a newcomer a place, that of another if need be; False where there are too many at once."""
        with self._changing:
            if self._threads >= _MAX_THREADS:
                return False
            held = Counter(self._pending.values())
            crowd = address if held[address] >= MAX_OF_ADDRESS else None
            if crowd is None and len(self._pending) >= MAX_PENDING:
                crowd = held.most_common(1)[0][0]
            if crowd is not None:
                oldest = next(one for one, where in self._pending.items() if where == crowd)
                del self._pending[oldest]
                _shut(oldest)  # its thread wakes, and refuses it
            self._pending[sock] = address
            self._threads += 1
            return True

    def _left(self, sock: socket.socket) -> None:
        with self._changing:
            self._pending.pop(sock, None)
            self._threads -= 1

    def _greet(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        def admit(identity: Identity) -> None:
            if identity.generation != self._generation:
                raise RefusedError(f"it is of generation {identity.generation}, and this is {self._generation}")
            with self._changing:
                if self._pending.pop(sock, None) is None:
                    raise RefusedError("its place was given to another")

        try:
            identity, connection = self._credentials.accept(sock, self._number, admit)
        except (RefusedError, OSError, ValueError) as error:  # ValueError: TLS on what was closed meanwhile
            self._refuse(sock, peer, str(error))
            return
        finally:
            self._left(sock)
        self._welcome(identity, connection)

    def _refuse(self, sock: socket.socket, peer: tuple[str, int], why: str) -> None:
        sock.close()
        with self._changing:
            refused, now = self.refused + 1, time.monotonic()
            if refused <= _LOGGED or now - self._logged >= _LOG_SECONDS:
                self._logged = now
                log.warning("refused a connection from %s:%s (%d so far): %s", peer[0], peer[1], refused, why)
            self.refused = refused

    def close(self) -> None:
        """Take no more connections; those that were let in stay."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._sock.close()
        self._thread.join()
        with self._changing:
            for sock in self._pending:
                _shut(sock)


def _shut(sock: socket.socket) -> None:
    """Wake whoever reads from it. Not by OpenSSL's way, which must not be used by two threads at once."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _family(host: str) -> socket.AddressFamily:
    """Of an address or a name: a name is what it resolves to first."""
    return socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
