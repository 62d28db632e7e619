"""A socket between two that trust each other: frames in order, their bytes counted, and whether they still come."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

import pyarrow as pa

from steelyard.resident.seal import LARGE, Check, Sums
from steelyard.resident.tls_stream import TlsStream
from steelyard.resident.wire import (
    DATA,
    HEADER,
    MAX_PAYLOAD,
    Frame,
    Kind,
    WireError,
    encoded,
    encoded_small,
    frame,
    head,
    small_frame,
)

_AHEAD = 1 << 16
"""Bytes that are read at once; frames that fit need no read of their own."""
_PROGRESS = 512
"""Bytes of a frame that came at once and count as a sign of life: beats inside what should be a body do not."""
_BEAT, _RESULT = Kind.BEAT, Kind.RESULT


@dataclass(slots=True)
class Traffic:
    """What went over a connection in one direction; beats are left out."""

    frames: int = 0
    batches: int = 0
    payload: int = 0
    """Bytes of record batches."""
    overhead: int = 0
    """All other bytes: headers, notes, credits, watermarks, markers, control."""

    def count(self, kind: Kind, payload: int, rest: int) -> None:
        """One more frame."""
        self.frames += 1
        self.overhead += rest
        if kind is DATA or kind is _RESULT:
            self.batches += 1
            self.payload += payload
        else:
            self.overhead += payload

    def to_dict(self) -> dict[str, int]:
        """As plain values."""
        return asdict(self)


class ClosedError(ConnectionError):
    """The other end has closed the connection between two frames, or was given up.

    Parameters
    ----------
    why
        What happened.
    ago
        Seconds since it did, as far as this end can tell.
    """

    def __init__(self, why: str, ago: float = 0.0) -> None:
        super().__init__(why)
        self.ago = ago


class Connection:
    """Frames over a socket that is connected and trusted. Any thread may send; one receives.

    Parameters
    ----------
    sock
        The socket; the connection owns it.
    limit
        The most bytes of a payload that are believed.
    checks
        What makes the checks of frames that are sent, and of those that are received.
    """

    def __init__(
        self, sock: socket.socket, limit: int = MAX_PAYLOAD, checks: tuple[Check, Check] | None = None
    ) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = TlsStream(sock) if isinstance(sock, ssl.SSLSocket) else sock
        self._plain = isinstance(self._sock, socket.socket)
        self._sendall, self._recv_into = self._sock.sendall, self._sock.recv_into
        self._limit = limit
        self._outward, self._inward = checks or (Sums(), Sums())
        self._sending = threading.Lock()
        self._ahead = bytearray(_AHEAD)
        self._view = memoryview(self._ahead)
        self._start = self._end = 0
        self._heard: float | None = None
        self._alive = False
        """Whether something has come since somebody last asked."""
        self._given_up: ClosedError | None = None
        self.sent, self.received = Traffic(), Traffic()

    def send(self, kind: Kind, channel: int = 0, number: int = 0, payload: Any = b"", note: bytes = b"") -> None:
        """Send a frame whole; OSError where the other end is gone."""
        if not note and not isinstance(payload, list) and len(payload) < LARGE:
            with self._sending:  # a frame has its place among the others from its check on
                self._sendall(encoded_small(kind, channel, number, payload, self._outward))
                self.sent.count(kind, len(payload), HEADER)
            return
        with self._sending:
            start = encoded(kind, channel, number, payload, note, self._outward)
            parts = [start, *payload] if isinstance(payload, list) else [start, payload]
            size = sum(map(len, parts))
            if self._plain:
                gone = self._sock.sendmsg(parts)  # type: ignore[union-attr]
                if gone < size:
                    self._rest(parts, gone)
            else:
                for part in parts:
                    self._sock.sendall(part)
            self.sent.count(kind, size - len(start), len(start))

    def _rest(self, parts: list[Any], gone: int) -> None:
        """Send what a call that was cut short has left."""
        for part in parts:
            if gone < len(part):
                self._sock.sendall(memoryview(part).cast("B")[gone:])
            gone = max(gone - len(part), 0)

    def beat(self) -> None:
        """Show that this end is there, unless something is being sent anyhow, or there is no room. Never waits."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            number = self._sock.fileno()
            if number >= 0:
                room = select.poll()
                room.register(number, select.POLLOUT)
                if room.poll(0):
                    self._sock.sendall(encoded_small(_BEAT, 0, 0, b"", self._outward))
        finally:
            self._sending.release()

    @property
    def silence(self) -> float:
        """Seconds since the look that saw the last sign of life of the other end; 0 until somebody here listens."""
        if self._heard is None:
            return 0.0
        if self._alive:
            self._alive, self._heard = False, monotonic()
        return monotonic() - self._heard

    def give_up(self, why: str, ago: float = 0.0) -> None:
        """End the connection for a reason, which began so many seconds ago; senders that wait are woken.

        Whoever receives gets to hear it behind what came before.
        """
        self._given_up = self._given_up or ClosedError(why, ago)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def receive(self) -> Frame:
        """The next frame. ClosedError where none comes any more; WireError where what comes is none."""
        if self._heard is None:
            self._heard = monotonic()
        try:
            while (found := self._next()).kind is _BEAT:
                pass
            return found
        except (OSError, WireError):
            if self._given_up is not None:
                raise self._given_up from None
            raise

    def fileno(self) -> int:
        """Of the socket, for one who waits for several things at once."""
        return self._sock.fileno()

    @property
    def is_readable(self) -> bool:
        """Whether `take` would find something."""
        if self._start < self._end:
            return True
        ready = select.poll()
        ready.register(self._sock.fileno(), select.POLLIN)
        return bool(ready.poll(0))

    def take(self) -> Frame | None:
        """As `receive`, but a beat is nothing, instead of being passed over for the frame behind it."""
        if self._heard is None:
            self._heard = monotonic()
        found = self._next()
        return None if found.kind is _BEAT else found

    def _next(self) -> Frame:
        if self._start == self._end:  # mostly a frame comes whole, and alone
            self._start, self._end = 0, self._recv_into(self._view)
        if self._end - self._start < HEADER and not self._fill(HEADER):
            if self._start == self._end:
                raise ClosedError("the other end has closed the connection")
            raise WireError(f"the connection ended inside a header, after {self._end - self._start} bytes")
        found = small_frame(self._view, self._start, self._end, self._limit, self._inward)
        if found is not None:
            size = len(found.payload)
            self._start += HEADER + size
            self._alive = True
            if found.kind is not _BEAT:
                self.received.count(found.kind, size, HEADER)
            return found
        start = head(self._view[self._start : self._start + HEADER], self._limit)
        self._start += HEADER
        size = start.body
        if self._end - self._start >= size:  # it came together with its header
            data = self._view[self._start : self._start + size].tobytes()
            self._start += size
            found = frame(start, data, self._inward)
        else:
            found = frame(start, self._body(size), self._inward)
        self._alive = True
        self.received.count(start.kind, start.payload, HEADER + size - start.payload)
        return found

    def _fill(self, size: int) -> bool:
        """Read until so many bytes are at hand; False where the connection ends before."""
        while self._end - self._start < size:
            if self._start == self._end:
                self._start = self._end = 0
            elif self._start + size > _AHEAD:
                rest = self._view[self._start : self._end].tobytes()
                self._start, self._end = 0, len(rest)
                self._view[: len(rest)] = rest
            got = self._sock.recv_into(self._view[self._end :] if self._end else self._view)
            if not got:
                return False
            self._end += got
            self._came(got)
        return True

    def _came(self, got: int) -> None:
        if got >= _PROGRESS:
            self._alive = True

    def _body(self, size: int) -> Any:
        at_hand = min(self._end - self._start, size)
        if size <= _AHEAD // 2:
            if not self._fill(size):
                raise WireError(f"the connection ended {self._end - self._start} bytes into {size}")
            data = self._view[self._start : self._start + size].tobytes()
            self._start += size
            return data
        buffer = pa.allocate_buffer(size)
        view = memoryview(buffer).cast("B")
        view[:at_hand] = self._view[self._start : self._start + at_hand]
        self._start += at_hand
        while at_hand < size:
            got = self._sock.recv_into(view[at_hand:])
            if not got:
                raise WireError(f"the connection ended {at_hand} bytes into {size}")
            at_hand += got
            self._came(got)
        return buffer

    def close(self) -> None:
        """End the connection; whoever waits in `receive` or `send` is woken."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
