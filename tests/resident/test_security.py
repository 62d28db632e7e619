"""The door: who knows the secret comes in, and nobody else; strangers are logged, and harm nobody."""

import contextlib
import errno
import logging
import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard.core import OptionError
from steelyard.resident import Flow, Generated, Memory, run, security
from steelyard.resident.listener import Listener
from steelyard.resident.security import GREETING, Credentials, Identity, RefusedError, Tls
from steelyard.resident.wire import Kind
from steelyard.workloads import Zipf

JOB = Credentials.new()
ME = Identity(generation=4, worker=2, purpose=1)
DOOR = 7


@contextmanager
def listening(credentials=JOB, generation=4, host="127.0.0.1"):
    guests = []
    came = threading.Event()

    def welcome(identity, connection):
        guests.append((identity, connection))
        came.set()

    listener = Listener(host, credentials, generation, DOOR, welcome)
    listener.came, listener.guests = came, guests
    try:
        yield listener
    finally:
        listener.close()
        for _, connection in guests:
            connection.close()


def test_a_worker_that_knows_the_secret_is_let_in_with_its_identity():
    with listening() as door:
        mine = JOB.connect(door.address, ME, DOOR)
        assert door.came.wait(10)
        identity, theirs = door.guests[0]
        assert identity == ME
        mine.send(Kind.CONTROL, payload=b"{}")
        assert bytes(theirs.receive().payload) == b"{}"
        mine.close()


def eventually(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def turned_away(door):
    eventually(lambda: door.refused)
    return door.refused


def test_a_wrong_secret_is_refused_and_logged(caplog):
    with listening() as door, caplog.at_level(logging.WARNING):
        with pytest.raises(RefusedError):
            Credentials.new().connect(door.address, ME, DOOR)
        assert turned_away(door) == 1
        assert not door.guests
    assert "it does not know the secret" in caplog.text


def test_a_worker_of_a_generation_that_failed_is_refused(caplog):
    with listening(generation=5) as door, caplog.at_level(logging.WARNING):
        with pytest.raises(RefusedError):
            JOB.connect(door.address, ME, DOOR)
        turned_away(door)
        assert not door.guests
    assert "it is of generation 4, and this is 5" in caplog.text


def test_a_listener_that_does_not_know_the_secret_is_refused_too():
    server = socket.create_server(("127.0.0.1", 0))

    def pretend():
        sock, _ = server.accept()
        sock.sendall(GREETING + bytes(32))
        sock.recv(1000)
        sock.sendall(bytes(32))
        sock.close()

    thread = threading.Thread(target=pretend, daemon=True)
    thread.start()
    with pytest.raises(RefusedError, match="does not know the secret"):
        JOB.connect(server.getsockname(), ME, DOOR)
    thread.join()
    server.close()


def test_a_proof_cannot_be_sent_back_to_whom_it_came_from():
    with listening() as door:
        sock = socket.create_connection(door.address)
        greeting = sock.recv(1000)
        sock.sendall(greeting[len(GREETING) :] + bytes(12) + greeting[len(GREETING) :])
        assert sock.recv(1000) == b""
        sock.close()
        assert not door.guests


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_strangers_who_send_anything_are_refused_and_others_still_come_in(noise):
    with listening() as door:
        for turned, data in enumerate(noise, 1):
            stranger = socket.create_connection(door.address)
            with contextlib.suppress(ConnectionError):  # who is refused with bytes unread gets a reset
                stranger.sendall(data)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
            stranger.close()
            eventually(lambda turned=turned: door.refused == turned)
        mine = JOB.connect(door.address, ME, DOOR)
        assert door.came.wait(10)
        assert len(door.guests) == 1
        assert door.refused == len(noise)
        mine.close()


def test_a_stranger_who_sends_a_byte_now_and_then_is_refused_in_the_end(monkeypatch, caplog):
    monkeypatch.setattr(security, "HANDSHAKE_SECONDS", 0.3)
    with listening() as door, caplog.at_level(logging.WARNING):
        stranger = socket.create_connection(door.address)
        for _ in range(60):  # fewer bytes than a proof has
            if door.refused:
                break
            with contextlib.suppress(ConnectionError):
                stranger.sendall(b"?")
            time.sleep(0.02)
        assert door.refused == 1
        stranger.close()
    assert "it did not prove itself within 0.3 s" in caplog.text or "timed out" in caplog.text


def test_a_listener_that_sends_a_byte_now_and_then_is_given_up(monkeypatch):
    monkeypatch.setattr(security, "HANDSHAKE_SECONDS", 0.3)
    server = socket.create_server(("127.0.0.1", 0))
    given_up = threading.Event()

    def drip():
        sock, _ = server.accept()
        with contextlib.suppress(OSError):
            while not given_up.wait(0.02):
                sock.sendall(b"s")
        sock.close()

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    with pytest.raises((TimeoutError, RefusedError)):
        JOB.connect(server.getsockname(), ME, DOOR)
    given_up.set()
    thread.join()
    server.close()


class Stumbling:
    """A listening socket whose first calls fail."""

    def __init__(self, sock, errors):
        self._sock, self._errors = sock, errors

    def accept(self):
        if self._errors:
            raise self._errors.pop(0)
        return self._sock.accept()

    def __getattr__(self, name):
        return getattr(self._sock, name)


def test_a_connection_that_cannot_be_taken_is_logged_and_the_next_one_is(monkeypatch, caplog):
    errors = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError(errno.ECONNABORTED, "aborted")]
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda *given, **named: Stumbling(create(*given, **named), errors))
    with caplog.at_level(logging.WARNING), listening() as door:
        mine = JOB.connect(door.address, ME, DOOR)
        assert door.came.wait(10)
        mine.close()
    assert not errors
    assert "could not be taken: [Errno 24] Too many open files" in caplog.text


def loopbacks():
    """A name, and the addresses that this machine has: some have no IPv6."""
    yield "localhost"
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            socket.create_server((host, 0), family=family).close()
            yield host


def test_a_host_may_be_a_name_or_an_address_of_either_family():
    for host in loopbacks():
        with listening(host=host) as door:
            assert host == "localhost" or door.address[0] == host
            mine = JOB.connect(door.address, ME, DOOR)
            assert door.came.wait(10)
            mine.close()


def test_only_the_given_interface_is_open():
    with listening() as door:
        assert door.address[0] == "127.0.0.1"
        with pytest.raises(OSError, match=r".*"):
            socket.create_connection(("127.0.0.2", door.address[1]), timeout=2)


def test_a_short_secret_is_refused_and_none_is_shown():
    with pytest.raises(OptionError, match="at least 16 bytes, got 5"):
        Credentials(b"12345")
    assert "secret" not in repr(JOB)


def certificates(folder):
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made = ["openssl", "req", "-x509", *kind, "-days", "2", "-subj", "/CN=steelyard"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return Tls(str(certificate), str(key), str(certificate))


def test_a_dataflow_runs_over_tls_in_both_directions_at_once(tmp_path):
    flow = Flow(parallelism=2)
    read = flow.source(Generated(Zipf(keys=100), rows=200_000), batch_rows=10_000)
    read.key_by("key").aggregate(n=count(), emit="end").sink(Memory(), name="out")
    outcome = run(flow.dataflow(), workers=2, tls=certificates(tmp_path)).outcome
    assert sum(n.as_py() for batch in outcome.results["out"] for n in batch["n"]) == 200_000
    assert outcome.restarts == 0


def test_with_tls_frames_are_encrypted_and_strangers_without_a_certificate_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(security, "HANDSHAKE_SECONDS", 2.0)  # each end waits for the other to begin
    secured = Credentials.new(certificates(tmp_path))
    with listening(secured) as door:
        mine = secured.connect(door.address, ME, DOOR)
        assert door.came.wait(10)
        theirs = door.guests[0][1]
        mine.send(Kind.DATA, 1, 1, b"x" * 200_000)
        assert bytes(theirs.receive().payload) == b"x" * 200_000
        mine.close()
        plain = Credentials(secured.secret)
        with pytest.raises((RefusedError, OSError)):
            plain.connect(door.address, ME, DOOR)
        assert turned_away(door) == 1
