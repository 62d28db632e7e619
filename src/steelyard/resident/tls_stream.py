"""An encrypted socket that one thread may read while others write.

OpenSSL's connections must not be used by two threads at once, and a thread that waits for bytes would keep all
others out. So the socket does not block: whoever uses it holds a lock for one short call, and waits outside.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from typing import Any


class TlsStream:
    """The part of a socket's interface that a `Connection` uses.

    Parameters
    ----------
    sock
        A socket whose handshakes are over; the stream owns it.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._sock.settimeout(0)
        self._using = threading.Lock()
        self.family = sock.family

    def recv_into(self, buffer: Any) -> int:
        """Some bytes, at least one, as soon as there are any; 0 at the end."""
        while True:
            with self._using:
                try:
                    return self._sock.recv_into(buffer)
                except ssl.SSLWantReadError:
                    reading = True
                except ssl.SSLWantWriteError:
                    reading = False
            self._wait(reading)

    def sendall(self, data: Any) -> None:
        """All bytes."""
        view = memoryview(data).cast("B")
        while len(view):
            with self._using:
                try:
                    view = view[self._sock.send(view) :]
                    continue
                except ssl.SSLWantWriteError:
                    reading = False
                except ssl.SSLWantReadError:
                    reading = True
            self._wait(reading)

    def _wait(self, reading: bool) -> None:
        number = self._sock.fileno()
        if number < 0:
            raise ConnectionError("the connection was closed")
        ready = select.poll()  # select() itself takes no file numbers above 1023
        ready.register(number, select.POLLIN if reading else select.POLLOUT)
        ready.poll()

    def fileno(self) -> int:
        """As of a socket."""
        return self._sock.fileno()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """As of a socket."""
        self._sock.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End both directions at once, without OpenSSL's farewell; who waits is woken."""
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """Let go of the socket."""
        with self._using:
            self._sock.close()
