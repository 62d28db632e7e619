"""Who may talk: both ends prove that they know the job's secret, and say who they are, before anything else.

The one that listens sends a random challenge; the one that connects answers with a challenge of its own, its
identity, and an HMAC over all of it; the listener answers with another HMAC. Nothing is read of an unknown
peer but these few bytes of fixed length. The secret itself is never sent.

Whoever stands between the two and passes the proofs on gains nothing. Both proofs name the listener that is meant.
Without TLS, keys made of the secret and both challenges seal every frame behind them. With TLS, the proofs also cover
the client's Finished message, a MAC over the TLS handshake with all its keys and certificates: it is different in
any two sessions, so proofs of one are worth nothing in another. (That is what `tls-unique` gives. RFC 9266 would rather
export a key, which Python 3.11 cannot; the message serves as well where sessions are never resumed, as here.)
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from steelyard.core import OptionError, SteelyardError
from steelyard.resident.connection import Connection
from steelyard.resident.seal import Seal

GREETING = b"steelyard-2\n"
COORDINATOR = -1
"""The listener that is no worker."""
LAUNCHER = -2
"""The one of whoever starts workers."""
_CHALLENGE = 32
_DIGEST = hashlib.sha256().digest_size
_IDENTITY = struct.Struct("!IiI")
_LISTENER = struct.Struct("!i")
_LEAST_SECRET = 16
HANDSHAKE_SECONDS = 10.0
"""How long a peer may take to prove itself, from its first byte to its last."""
REACH_SECONDS = 60.0
"""How long a worker tries to be let in."""
_LOOK_SECONDS = 0.1
"""How often one who waits looks whether it is still wanted."""
_DIAL_SECONDS = 2.0
_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.5

Made = TypeVar("Made")


class RefusedError(SteelyardError):
    """A peer that did not prove that it knows the secret, or is of another generation."""


class TurnedAwayError(RefusedError):
    """A listener that closed the connection: it does not like the proof, or it is crowded, and may be tried again."""


class Identity(NamedTuple):
    """Who connects: a worker of a generation of the job, and for what."""

    generation: int
    worker: int
    purpose: int = 0


@dataclass(frozen=True)
class Tls:
    """Certificate files for encrypted connections; both ends show a certificate that `authority` has signed."""

    certificate: str
    key: str
    authority: str

    def context(self, server: bool) -> ssl.SSLContext:
        """The settings of one end."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.load_cert_chain(self.certificate, self.key)
        made.load_verify_locations(self.authority)
        made.check_hostname = False  # workers are known by the secret, and have no names of their own
        made.verify_mode = ssl.CERT_REQUIRED
        if server:
            made.num_tickets = 0  # sessions are never resumed
        return made


class _Session(NamedTuple):
    """What the proofs and keys of one connection are made of."""

    secret: bytes
    about: bytes
    """Which listener, both challenges, the identity, and the TLS session."""

    def proof(self, role: bytes) -> bytes:
        return hmac.new(self.secret, role + b"\0" + self.about, hashlib.sha256).digest()

    def connection(self, sock: socket.socket, listens: bool) -> Connection:
        """Frames that only this session's other end can send; inside TLS that is so anyhow."""
        if isinstance(sock, ssl.SSLSocket):
            return Connection(sock)
        inward, outward = Seal(self.proof(b"frames to the listener")), Seal(self.proof(b"frames from the listener"))
        return Connection(sock, checks=(outward, inward) if listens else (inward, outward))


@dataclass(frozen=True)
class Credentials:
    """A secret made for one job, and TLS where it is wanted.

    Examples
    --------
    >>> Credentials.new()
    Credentials(tls=None)
    """

    secret: bytes = field(repr=False)
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if len(self.secret) < _LEAST_SECRET:
            raise OptionError(f"a secret has at least {_LEAST_SECRET} bytes, got {len(self.secret)}")

    @classmethod
    def new(cls, tls: Tls | None = None) -> Credentials:
        """A random secret."""
        return cls(secrets.token_bytes(32), tls)

    def _session(self, sock: socket.socket, listener: int, challenge: bytes, said: bytes) -> _Session:
        bound = b""
        if isinstance(sock, ssl.SSLSocket):
            bound = sock.get_channel_binding("tls-unique") or b""
            if not bound or sock.session_reused:
                raise RefusedError("its TLS session has no handshake of its own to bind the proofs to")
        return _Session(self.secret, _LISTENER.pack(listener) + challenge + said + bound)

    def accept(
        self, sock: socket.socket, listener: int, admit: Callable[[Identity], None]
    ) -> tuple[Identity, Connection]:
        """The listener's half: who is at the other end, and the connection to it. RefusedError, or OSError.

        `sock` is wrapped where there is TLS, and has shaken no hands yet. `admit` is asked about a peer that has
        proved itself, and raises RefusedError where it is not wanted.
        """
        patience = _Patience(HANDSHAKE_SECONDS)
        if isinstance(sock, ssl.SSLSocket):
            patience.wait(sock, sock.do_handshake)
        challenge = secrets.token_bytes(_CHALLENGE)
        sock.settimeout(HANDSHAKE_SECONDS)
        sock.sendall(GREETING + challenge)
        answer = patience.exactly(sock, _CHALLENGE + _IDENTITY.size + _DIGEST)
        said, proof = answer[:-_DIGEST], answer[-_DIGEST:]
        session = self._session(sock, listener, challenge, said)
        if not hmac.compare_digest(proof, session.proof(b"connects")):
            raise RefusedError("it does not know the secret")
        identity = Identity(*_IDENTITY.unpack(said[_CHALLENGE:]))
        admit(identity)
        sock.settimeout(HANDSHAKE_SECONDS)
        sock.sendall(session.proof(b"listens"))
        sock.settimeout(None)
        return identity, session.connection(sock, True)

    def connect(
        self, address: tuple[str, int], me: Identity, listener: int, given_up: threading.Event | None = None
    ) -> Connection:
        """The other half: a connection to a listener that has proved itself. RefusedError, or OSError.

        `given_up` ends the wait for it.
        """
        context = self.tls.context(False) if self.tls else None
        sock = socket.create_connection(address, timeout=_DIAL_SECONDS)
        where = f"{address[0]}:{address[1]}"
        try:
            patience = _Patience(HANDSHAKE_SECONDS, given_up)
            if context is not None:
                sock = context.wrap_socket(sock, do_handshake_on_connect=False)
            if isinstance(sock, ssl.SSLSocket):
                patience.wait(sock, sock.do_handshake)
            greeting = patience.exactly(sock, len(GREETING) + _CHALLENGE)
            if not greeting.startswith(GREETING):
                raise RefusedError(f"{where} does not listen for workers")
            said = secrets.token_bytes(_CHALLENGE) + _IDENTITY.pack(*me)
            session = self._session(sock, listener, greeting[len(GREETING) :], said)
            sock.settimeout(HANDSHAKE_SECONDS)
            sock.sendall(said + session.proof(b"connects"))
            if not hmac.compare_digest(patience.exactly(sock, _DIGEST), session.proof(b"listens")):
                raise RefusedError(f"{where} does not know the secret")
            sock.settimeout(None)
            return session.connection(sock, False)
        except BaseException:
            sock.close()
            raise

    def reach(self, address: tuple[str, int], me: Identity, listener: int, given_up: threading.Event) -> Connection:
        """`connect`, again and again where a listener is crowded or slow. RefusedError, or OSError."""
        deadline = time.monotonic() + REACH_SECONDS
        pause = _FIRST_PAUSE
        while True:
            try:
                return self.connect(address, me, listener, given_up)
            except (TurnedAwayError, TimeoutError, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
                if time.monotonic() + pause > deadline or given_up.wait(pause * (0.5 + secrets.randbelow(1024) / 1024)):
                    raise
                pause = min(2 * pause, _LAST_PAUSE)


class _Patience:
    """Waits for a peer until a moment, however regularly single bytes come, or until it is not wanted any more."""

    def __init__(self, seconds: float, given_up: threading.Event | None = None) -> None:
        self._seconds, self._given_up = seconds, given_up
        self._deadline = time.monotonic() + seconds

    def wait(self, sock: socket.socket, action: Callable[[], Made]) -> Made:
        """What an action gives; TimeoutError at the end of patience."""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"it did not prove itself within {self._seconds:g} s")
            if self._given_up is not None and self._given_up.is_set():
                raise TimeoutError("it is not awaited any more")
            sock.settimeout(min(left, _LOOK_SECONDS) if self._given_up is not None else left)
            try:
                return action()
            except TimeoutError:
                continue

    def exactly(self, sock: socket.socket, size: int) -> bytes:
        """So many bytes; TurnedAwayError where the connection ends before."""
        data = b""
        while len(data) < size:
            part = self.wait(sock, lambda: sock.recv(size - len(data)))  # noqa: B023 - it is called here
            if not part:
                raise TurnedAwayError("it closed the connection before it had proved itself")
            data += part
        return data
