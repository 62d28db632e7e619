"""Somebody in the middle: passes on what two ends send to each other, or changes it, or swallows it."""

import contextlib
import select
import socket
import subprocess
import threading

from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.security import Tls


def authority(folder):
    """A certificate authority, as a function that makes certificates."""
    key, certificate = folder / "ca.key", folder / "ca.pem"
    _openssl("req", "-x509", *_KEY, "-days", "2", "-subj", "/CN=authority", "-keyout", key, "-out", certificate)

    def made(name):
        own, request, signed = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", own, "-out", request)
        by = ("-CA", certificate, "-CAkey", key, "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *by, "-days", "2", "-out", signed)
        return Tls(str(signed), str(own), str(certificate))

    return made


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Relay:
    """Listens for connections to `target`; `change(connection, inward, data)` gives what is passed on of what came.

    `connection` counts from 0; `inward` is whether data goes to the target. With `tls` it speaks TLS to both ends.
    """

    def __init__(self, target, change=lambda connection, inward, data: data, tls=None):
        self._target, self._change, self._tls = target, change, tls
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._socks = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._join, args=(near, self.connections), daemon=True).start()
                self.connections += 1

    def _join(self, near, number):
        with contextlib.suppress(OSError):
            far = socket.create_connection(self._target)
            if self._tls is not None:
                near = self._tls.context(True).wrap_socket(near, server_side=True)
                far = self._tls.context(False).wrap_socket(far)
            self._socks += [near, far]
            self._pass_on(near, far, number)
            near.close()
            far.close()

    def _pass_on(self, near, far, number):
        """One thread for both directions: a socket with TLS must not be used by two."""
        while True:
            ready = [one for one in (near, far) if self._tls is not None and one.pending()]
            for one in ready or select.select([near, far], [], [])[0]:
                data = one.recv(1 << 16)
                if not data:
                    return
                changed = self._change(number, one is near, data)
                if changed:
                    (far if one is near else near).sendall(changed)

    def close(self):
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._socks:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)


class RelayedLauncher(ThreadLauncher):
    """Workers as threads that reach each other through relays, in the first `generations`; `between` makes a relay."""

    def __init__(self, between, generations=1, **options):
        super().__init__(**options)
        self._between, self._generations = between, generations
        self.relays = []

    def among(self, peers, generation):
        if generation >= self._generations:
            return peers
        made = [self._between(address) for address in peers]
        self.relays += made
        return [relay.address for relay in made]

    def close(self):
        for relay in self.relays:
            relay.close()
