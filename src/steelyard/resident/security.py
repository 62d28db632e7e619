"""Who may talk: both ends prove that they know the job's secret, and say who they are, before anything else.

The one that listens sends a random challenge; the one that connects answers with a challenge of its own, its
identity, and an HMAC over all of it; the listener answers with another HMAC. Nothing is read of an unknown
peer but these few bytes of fixed length. The secret itself is never sent. Frames behind the handshake are not
encrypted, unless there is TLS as well.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from steelyard.core import OptionError, SteelyardError

GREETING = b"steelyard-1\n"
_CHALLENGE = 32
_DIGEST = hashlib.sha256().digest_size
_IDENTITY = struct.Struct("!IiI")
_LEAST_SECRET = 16
HANDSHAKE_SECONDS = 10.0
"""How long a peer may take to prove itself, from its first byte to its last."""


class RefusedError(SteelyardError):
    """A peer that did not prove that it knows the secret, or is of another generation."""


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
        return made


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

    def _proof(self, role: bytes, *parts: bytes) -> bytes:
        return hmac.new(self.secret, role + b"".join(parts), hashlib.sha256).digest()

    def accept(self, plain: socket.socket) -> tuple[socket.socket, Identity]:
        """The listener's half: the socket to go on with, and who is at its other end. RefusedError, or OSError."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        plain.settimeout(HANDSHAKE_SECONDS)
        sock = self.tls.context(True).wrap_socket(plain, server_side=True) if self.tls else plain
        challenge = secrets.token_bytes(_CHALLENGE)
        sock.sendall(GREETING + challenge)
        answer = _exactly(sock, _CHALLENGE + _IDENTITY.size + _DIGEST, deadline)
        said, proof = answer[:-_DIGEST], answer[-_DIGEST:]
        if not hmac.compare_digest(proof, self._proof(b"connects", challenge, said)):
            raise RefusedError("it does not know the secret")
        sock.sendall(self._proof(b"listens", challenge, said))
        sock.settimeout(None)
        return sock, Identity(*_IDENTITY.unpack(said[_CHALLENGE:]))

    def connect(self, address: tuple[str, int], me: Identity) -> socket.socket:
        """The other half: a socket to a listener that has proved itself. RefusedError, or OSError."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        plain = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
        try:
            sock = self.tls.context(False).wrap_socket(plain) if self.tls else plain
            greeting = _exactly(sock, len(GREETING) + _CHALLENGE, deadline)
            if not greeting.startswith(GREETING):
                raise RefusedError(f"{address[0]}:{address[1]} does not listen for workers")
            challenge = greeting[len(GREETING) :]
            said = secrets.token_bytes(_CHALLENGE) + _IDENTITY.pack(*me)
            sock.sendall(said + self._proof(b"connects", challenge, said))
            if not hmac.compare_digest(_exactly(sock, _DIGEST, deadline), self._proof(b"listens", challenge, said)):
                raise RefusedError(f"{address[0]}:{address[1]} does not know the secret")
            sock.settimeout(None)
        except BaseException:
            plain.close()
            raise
        return sock


def _exactly(sock: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes; TimeoutError where they are not here by then, however regularly single ones come."""
    data = b""
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"it did not prove itself within {HANDSHAKE_SECONDS:g} s")
        sock.settimeout(left)
        part = sock.recv(size - len(data))
        if not part:
            raise RefusedError("it closed the connection before it had proved itself")
        data += part
    return data
