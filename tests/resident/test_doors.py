"""Doors under attack: floods, relays, dead links and malformed words end in the right answer or a refusal, in time."""

import contextlib
import json
import logging
import socket
import threading
import time
from collections import Counter
from dataclasses import replace

import numba
import pyarrow as pa
import pytest

from steelyard import count
from steelyard.core import OptionError
from steelyard.core.topology import Placement
from steelyard.kernels import nh
from steelyard.resident import Flow, Generated, Memory, Rows, Settings, listener, security
from steelyard.resident.connection import Connection
from steelyard.resident.coordinator import Coordinator
from steelyard.resident.gang import GenerationError
from steelyard.resident.groups import BatchProgram, Scheduling
from steelyard.resident.groups.job import GroupJob
from steelyard.resident.groups.program import Batches
from steelyard.resident.groups.worker import GroupWorker
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.listener import MAX_PENDING, Listener
from steelyard.resident.peers import TO_COORDINATOR, WorkerError
from steelyard.resident.pulse import Pulse
from steelyard.resident.seal import CHECK, Seal, Sums, compiled
from steelyard.resident.security import COORDINATOR, GREETING, Credentials, Identity, RefusedError
from steelyard.resident.wire import HEADER, Kind, WireError, encoded_small
from steelyard.resident.worker import Worker
from steelyard.workloads import Zipf
from tests.resident.relay import Relay, RelayedLauncher, authority

SECONDS = 30
"""Within which everything here must end."""
ROWS = 4000
QUICK = Settings(heartbeat=0.05, silence=1.0, restarts=10)
"""Soon takes a link for dead; on a slow machine one that is alive, too: restarts beside the one that must come."""
PATIENT = replace(QUICK, silence=2 * SECONDS)
"""Takes no link for dead in the time of a test: a restart has another reason."""


def eventually(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def counted():
    """Rows that go from both workers to both."""
    flow = Flow("counted", parallelism=2)
    read = flow.source(Generated(Zipf(keys=50, seed=5), rows=ROWS, block_rows=100), batch_rows=100, name="read")
    read.key_by("key").aggregate(n=count(), emit="end", name="count").sink(Memory(), name="out")
    return flow.dataflow()


def right_answer():
    read = Generated(Zipf(keys=50, seed=5), rows=ROWS, pieces=1, block_rows=ROWS)
    read.splits(1)
    return Counter(read.read("0", 0, ROWS).batch["key"].to_pylist())


def run_within(job, seconds=SECONDS):
    """What a job gives or raises, in time."""
    ended = []

    def run():
        try:
            ended.append(job.run())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the job hangs"
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


def answer(outcome):
    return Counter({row["key"]: row["n"] for batch in outcome.results["out"] for row in batch.to_pylist()})


def job_through(launcher, settings=QUICK, credentials=None):
    dataflow = counted()
    return Job(dataflow, Placement.spread(dataflow, 2), launcher, settings, credentials)


class Flood:
    """Half-open connections to some doors: so many at once, and others that follow until it ends."""

    def __init__(self, addresses, at_once=2 * MAX_PENDING, most=3000):
        self._addresses, self._most = addresses, most
        self._socks, self._over = [], threading.Event()
        for _ in range(at_once):
            self._open()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _open(self):
        for address in self._addresses:
            with contextlib.suppress(OSError):
                self._socks.append(socket.create_connection(address, timeout=5))

    def _go_on(self):
        for _ in range(self._most):
            if self._over.wait(0.002):
                return
            self._open()
            if len(self._socks) > 500:
                self._socks.pop(0).close()

    def end(self):
        self._over.set()
        self._thread.join()
        for one in self._socks:
            one.close()


class FloodedLauncher(ThreadLauncher):
    def launch(self, dataflow, credentials, generation, coordinator):
        self.flood = Flood([coordinator.address])
        super().launch(dataflow, credentials, generation, coordinator)

    def among(self, peers, generation):
        self.floods = [self.flood, Flood(peers)]
        return peers


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_half_open_connections_before_and_during_a_run_keep_no_worker_out(tls, tmp_path):
    launcher = FloodedLauncher()
    credentials = Credentials.new(authority(tmp_path)("worker") if tls else None)
    settings = Settings(heartbeat=0.1, silence=10.0, restarts=0)
    try:
        assert answer(run_within(job_through(launcher, settings, credentials))) == right_answer()
    finally:
        for flood in launcher.floods:
            flood.end()


@contextlib.contextmanager
def listening(credentials, number=7):
    guests, came = [], threading.Event()

    def welcome(identity, connection):
        guests.append(connection)
        came.set()

    door = Listener("127.0.0.1", credentials, 0, number, welcome)
    door.guests, door.came = guests, came
    try:
        yield door
    finally:
        door.close()
        for one in guests:
            one.close()


ME = Identity(0, 9, 0)


def test_an_address_has_only_so_many_places_and_the_oldest_gives_way(monkeypatch):
    monkeypatch.setattr(listener, "MAX_OF_ADDRESS", 4)
    credentials = Credentials.new()
    with listening(credentials) as door:
        held = [socket.create_connection(door.address) for _ in range(10)]
        eventually(lambda: door.refused == 6)
        for one in held[:6]:
            one.settimeout(SECONDS)
            while one.recv(100):  # its greeting, and then the end
                pass
        mine = credentials.connect(door.address, ME, 7)
        assert door.came.wait(SECONDS)
        mine.close()
        for one in held:
            one.close()


def test_a_flood_is_not_written_to_the_log_line_by_line(monkeypatch, caplog):
    monkeypatch.setattr(listener, "_LOGGED", 5)
    with listening(Credentials.new()) as door, caplog.at_level(logging.WARNING):
        for _ in range(60):
            socket.create_connection(door.address).close()
        eventually(lambda: door.refused == 60)
    assert 5 <= caplog.text.count("refused a connection") < 30


def test_a_relay_with_a_certificate_of_the_same_authority_is_not_let_through(tmp_path, caplog):
    made = authority(tmp_path)
    credentials = Credentials.new(made("worker"))
    with listening(credentials) as door, caplog.at_level(logging.WARNING):
        relay = Relay(door.address, tls=made("stranger"))
        with pytest.raises((RefusedError, OSError)):
            credentials.connect(relay.address, ME, 7)
        eventually(lambda: door.refused)
        assert not door.guests
        same = Relay(door.address, tls=credentials.tls)  # even with the very key of a worker
        with pytest.raises((RefusedError, OSError)):
            credentials.connect(same.address, ME, 7)
        assert not door.guests
        relay.close()
        same.close()
    assert "it does not know the secret" in caplog.text


def test_a_job_does_not_run_through_a_tls_relay_and_is_right_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(security, "REACH_SECONDS", 0.5)
    made = authority(tmp_path)
    stranger = made("stranger")
    launcher = RelayedLauncher(lambda address: Relay(address, tls=stranger))
    outcome = run_within(job_through(launcher, PATIENT, Credentials.new(made("worker"))))
    launcher.close()
    assert outcome.restarts >= 1
    assert answer(outcome) == right_answer()


def forged(connection, inward, data):
    """Changes the first large enough frame, and makes checks anew as whoever knows no key can."""
    at = data.find(b"SY\x02\x01")
    if at < 0 or len(data) < at + HEADER + 200:
        return data
    frame = bytearray(data)
    frame[at + HEADER + 150] ^= 1
    size = int.from_bytes(frame[at + 16 : at + 20], "big")
    fields, body = bytes(frame[at : at + HEADER - CHECK]), bytes(frame[at + HEADER : at + HEADER + size])
    frame[at + HEADER - CHECK : at + HEADER] = Sums().small(fields, body)
    return bytes(frame)


def test_frames_that_are_changed_on_the_way_without_tls_are_refused_and_the_answer_is_right():
    launcher = RelayedLauncher(lambda address: Relay(address, forged))
    outcome = run_within(job_through(launcher, PATIENT))
    launcher.close()
    assert outcome.restarts >= 1
    assert answer(outcome) == right_answer()


def test_a_relay_that_changes_nothing_changes_nothing():
    launcher = RelayedLauncher(Relay)
    outcome = run_within(job_through(launcher, PATIENT))
    launcher.close()
    assert outcome.restarts == 0
    assert answer(outcome) == right_answer()


def swallowing(after):
    """Passes on so many bytes of each connection, and then nothing, without ever closing it."""
    seen = Counter()

    def change(connection, inward, data):
        seen[connection] += len(data)
        return data if seen[connection] < after else b""

    return change


@pytest.mark.parametrize("after", [400, 20_000])
def test_a_link_that_swallows_bytes_leads_to_the_next_generation(after):
    launcher = RelayedLauncher(lambda address: Relay(address, swallowing(after)))
    outcome = run_within(job_through(launcher))
    launcher.close()
    assert outcome.restarts >= 1
    assert answer(outcome) == right_answer()


def test_a_link_between_workers_of_groups_that_swallows_bytes_leads_to_the_next_generation():
    program = BatchProgram(Rows(pa.table({"k": [1, 2, 3, 4] * 500})), ("k",), {"n": count()})
    launcher = RelayedLauncher(lambda address: Relay(address, swallowing(600)), kind=GroupWorker)
    outcome = run_within(GroupJob(program, Scheduling(interval=0.05, silence=1.0, restarts=10), 2, launcher))
    launcher.close()
    assert outcome.restarts >= 1
    found = pa.concat_tables(outcome.results.values()).group_by("k").aggregate([("n", "sum")])
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [(k, 500) for k in (1, 2, 3, 4)]


def test_a_body_that_only_beats_trickle_into_counts_as_silence():
    ours, theirs = socket.socketpair()
    connection, pulse = Connection(ours), Pulse(0.05, 0.5)
    pulse.watch(connection)
    whole = encoded_small(Kind.DATA, 0, 1, bytes(60_000))
    theirs.sendall(whole[:HEADER])

    def beat():
        with contextlib.suppress(OSError):
            while True:
                theirs.sendall(encoded_small(Kind.BEAT, 0, 0, b""))
                time.sleep(0.02)

    threading.Thread(target=beat, daemon=True).start()
    with pytest.raises(ConnectionError, match="silent"):
        connection.receive()
    pulse.stop()
    connection.close()
    theirs.close()


def test_beats_keep_an_idle_connection_alive_and_nobody_sees_them():
    left, right = map(Connection, socket.socketpair())
    lonely, mute = map(Connection, socket.socketpair())
    pulses = [Pulse(0.02, 2.0) for _ in range(2)]
    pulses[0].watch(left)
    pulses[1].watch(right)
    got = []
    for one in (left, right):
        threading.Thread(target=lambda one=one: got.append(one.receive()), daemon=True).start()
    pulses[0].watch(lonely)
    with pytest.raises(ConnectionError, match="silent"):  # so long the others are idle, too
        lonely.receive()
    left.send(Kind.END, 1, 1)
    right.send(Kind.END, 2, 2)
    eventually(lambda: len(got) == 2)
    assert left.received.frames == right.received.frames == 1
    for one in (*pulses, left, right, lonely, mute):
        one.stop() if isinstance(one, Pulse) else one.close()


def test_a_heartbeat_that_is_no_shorter_than_silence_is_refused():
    with pytest.raises(OptionError, match="heartbeat must be above 0 and below silence, got heartbeat=5"):
        Settings(heartbeat=5, silence=5)


def test_a_connection_that_is_led_to_another_worker_is_refused():
    credentials = Credentials.new()
    with listening(credentials, number=3) as door:
        with pytest.raises(RefusedError):
            credentials.connect(door.address, ME, 7)
        eventually(lambda: door.refused)
        assert not door.guests


def recorded(credentials, door):
    """What a worker that was let in had sent, as somebody on the line saw it."""
    said = []

    def change(connection, inward, data):
        said.append(data) if inward else None
        return data

    relay = Relay(door.address, change)
    mine = credentials.connect(relay.address, ME, 7)
    mine.send(Kind.CONTROL, payload=b"{}")
    assert door.came.wait(SECONDS)
    assert bytes(door.guests[0].receive().payload) == b"{}"
    mine.close()
    relay.close()
    return b"".join(said)


def test_a_handshake_that_is_played_again_or_sent_back_opens_nothing():
    credentials = Credentials.new()
    with listening(credentials) as door:
        before = recorded(credentials, door)
        again = socket.create_connection(door.address)
        again.sendall(before)
        eventually(lambda: door.refused == 1)
        back = socket.create_connection(door.address)
        challenge = back.recv(1000)[len(GREETING) :]
        back.sendall(challenge + before[32:])  # its own challenge, and a proof that was right once
        eventually(lambda: door.refused == 2)
        assert len(door.guests) == 1
        again.close()
        back.close()


def test_frames_that_are_repeated_left_out_or_sent_back_are_refused():
    def sent(*sizes):
        seal = Seal(b"there" * 6)
        return [encoded_small(Kind.DATA, 0, 1, bytes(size), seal) for size in sizes]

    first, second, large = sent(10, 20, 9000)
    back = encoded_small(Kind.DATA, 0, 1, b"", Seal(b"back" * 6))
    for stream in (first + first, second, first + large, first + second + second, back, first + back):
        ours, theirs = socket.socketpair()
        connection = Connection(ours, checks=(Seal(b"back" * 6), Seal(b"there" * 6)))
        theirs.sendall(stream)
        with pytest.raises(WireError, match="not as it was sent, or not the next one"):
            list(iter(connection.receive, None))
        connection.close()
        theirs.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_what_seals_large_frames_is_loaded_before_anybody_connects_where_there_is_no_tls(tls, tmp_path, monkeypatch):
    hashed = []
    monkeypatch.setattr(nh, "_hash", lambda words, key, found: hashed.append(words))
    credentials = Credentials.new(authority(tmp_path)("worker") if tls else None)
    dataflow = counted()
    program = BatchProgram(Rows(pa.table({"k": [1]})), ("k",), {"n": count()})
    for made in (
        lambda: Coordinator(dataflow, Placement.spread(dataflow, 1), credentials, QUICK),
        lambda: Worker(0, dataflow, credentials)._peers,
        lambda: GroupWorker(0, Batches(program, Scheduling()), credentials)._peers,
    ):
        hashed.clear()
        made().close()
        assert len(hashed) == (0 if tls else 1)


def test_a_frame_of_any_memory_is_hashed_by_what_was_loaded_at_the_start(monkeypatch):
    fresh = numba.njit(nogil=True)(nh._hash.py_func)
    monkeypatch.setattr(nh, "_hash", fresh)
    compiled()
    known = list(fresh.signatures)
    assert len(known) == 1
    for payload in (bytes(9000), bytearray(9000), memoryview(bytes(9003))[3:], pa.allocate_buffer(9000)):
        Seal(b"k" * 32).of(b"", b"", [payload], 9000)
    assert fresh.signatures == known


def a_coordinator():
    dataflow = counted()
    credentials = Credentials.new()
    return Coordinator(dataflow, Placement.spread(dataflow, 1), credentials, QUICK), credentials


HELLO = {"event": "hello", "address": ["127.0.0.1", 1], "host": "here", "pid": 1}
MALFORMED = {
    "deep": b"[" * 100_000,
    "no JSON": b"\xff\xfe{",
    "no object": b"[1, 2]",
    "unknown": b'{"event": "explode"}',
    "no name": b'{"what": 1}',
    "a list for a name": b'{"event": ["hello"]}',
    "fields missing": b'{"event": "metrics"}',
    "text for a number": json.dumps(HELLO | {"pid": "one"}).encode(),
    "a number without end": json.dumps(HELLO | {"pid": 10**30}).encode(),
    "not a number": b'{"event": "failed", "why": NaN, "final": false}',
    "another's instance": b'{"event": "ended", "instance": "read#9", "sources": true, "all": true}',
    "another's metrics": b'{"event": "metrics", "instances": {"x#0": {}}, "sent": {}, "received": {}, '
    b'"refused_connections": 0}',
    "counters of three": b'{"event": "did", "what": "status", "round": 1, "sent": [[1, 2, 3]], "done": []}',
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_word_of_a_worker_ends_the_generation_at_once(payload):
    made, credentials = a_coordinator()
    guest = credentials.connect(made.address, Identity(0, 0, TO_COORDINATOR), COORDINATOR)
    guest.send(Kind.CONTROL, payload=payload)
    with pytest.raises(GenerationError, match="worker 0 was not understood"):
        run_within(made)
    guest.close()
    made.close()


def test_results_that_are_no_rows_or_of_nobody_end_the_generation_at_once():
    for channel, payload in ((2, b"rows"), (99, b""), (0, b"")):
        made, credentials = a_coordinator()
        guest = credentials.connect(made.address, Identity(0, 0, TO_COORDINATOR), COORDINATOR)
        guest.send(Kind.RESULT, channel, 5, payload)
        with pytest.raises(GenerationError, match="worker 0 was not understood"):
            run_within(made)
        guest.close()
        made.close()


def test_a_snapshot_whose_file_is_elsewhere_is_refused():
    made, _ = a_coordinator()
    names = [str(instance) for instance in made._dataflow.instances]
    for file in ("../../etc/passwd", "/etc/passwd", "epoch-00000001/..", "epoch-00000002/x", ""):
        with pytest.raises(GenerationError, match="which cannot be"):
            made._files(1, {0: {"files": {key: [file, 1, 2] for key in names}}})
    found = made._files(1, {0: {"files": {key: ["epoch-00000001/x.state", 1, 2] for key in names}}})
    assert {tuple(one) for one in found.values()} == {("epoch-00000001/x.state", 1, 2)}
    made.close()


class Driver:
    """Whoever coordinates, in a test: takes one worker in, and says what the test wants."""

    def __init__(self, credentials):
        self._came = threading.Event()
        self._listener = Listener("127.0.0.1", credentials, 0, COORDINATOR, self._welcome)
        self.address = self._listener.address

    def _welcome(self, identity, connection):
        self.connection = connection
        self._came.set()

    def say(self, **order):
        assert self._came.wait(SECONDS)
        self.connection.send(Kind.CONTROL, payload=json.dumps(order).encode())

    def heard(self):
        return json.loads(bytes(self.connection.receive().payload))

    def close(self):
        self.connection.close()
        self._listener.close()


def a_worker(kind, credentials, number=1):
    if kind is Worker:
        return Worker(number, counted(), credentials)
    program = BatchProgram(Rows(pa.table({"k": [1]})), ("k",), {"n": count()})
    return GroupWorker(number, Batches(program, Scheduling()), credentials)


def run_of(worker, driver):
    """A worker in a thread, and what it will raise."""
    raised = []

    def run():
        with pytest.raises(WorkerError) as error:
            worker.run(driver.address)
        raised.append(str(error.value))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


DEPLOY = {
    Worker: {
        "do": "deploy",
        "round": 1,
        "placement": {},
        "store": None,
        "attempt": "a-0",
        "parallelism": {},
        "weights": [],
        "line": None,
    },
    GroupWorker: {
        "do": "begin",
        "first": 0,
        "made": 0,
        "places": 0,
        "elapsed": 0.0,
        "ending": False,
        "counting": False,
        "windows": None,
        "frames": 0,
    },
}


@pytest.mark.parametrize("kind", [Worker, GroupWorker])
@pytest.mark.parametrize("number", [0, 1], ids=["waits", "knocks"])
def test_a_worker_that_waits_for_others_hears_a_stop(kind, number):
    credentials = Credentials.new()
    driver = Driver(credentials)
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, and says nothing
    worker = a_worker(kind, credentials, number)
    if number:
        worker.address = silent.getsockname()
    thread, raised = run_of(worker, driver)
    order = {**DEPLOY[kind], "peers": [worker.address, worker.address]}
    if kind is Worker:
        order["placement"] = {str(one): 0 for one in counted().instances}
    driver.say(**order)
    thread.join(0.5)  # it has begun to wait
    assert thread.is_alive()
    driver.say(do="stop", why="no longer wanted")
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert raised == ["no longer wanted"]
    silent.close()
    driver.close()


@pytest.mark.parametrize("kind", [Worker, GroupWorker])
@pytest.mark.parametrize("payload", [b"[" * 100_000, b'{"do": "explode"}', b'{"do": "snapshot"}', b"\x00", b"{}"])
def test_a_malformed_order_ends_a_worker_with_its_reason(kind, payload):
    credentials = Credentials.new()
    driver = Driver(credentials)
    thread, raised = run_of(a_worker(kind, credentials), driver)
    assert driver._came.wait(SECONDS)
    driver.connection.send(Kind.CONTROL, payload=payload)
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert "the coordinator was not understood" in raised[0]
    said = [driver.heard()["event"] for _ in range(2)]
    assert said == ["hello", "failed"]
    driver.close()


@pytest.mark.parametrize("kind", [Worker, GroupWorker])
def test_a_worker_whose_coordinator_falls_silent_ends(kind):
    credentials = Credentials.new()
    driver = Driver(credentials)
    program = BatchProgram(Rows(pa.table({"k": [1]})), ("k",), {"n": count()})
    patient = Batches(program, Scheduling(silence=0.5))
    worker = Worker(0, counted(), credentials) if kind is Worker else GroupWorker(0, patient, credentials)
    thread, raised = run_of(worker, driver)
    if kind is Worker:
        driver.say(do="beat", seconds=0.05, silence=0.5)
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert "it has been silent for" in raised[0]
    driver.close()


def test_no_secret_is_logged_or_shown(caplog):
    credentials = Credentials.new()
    with caplog.at_level(logging.DEBUG):
        outcome = run_within(job_through(ThreadLauncher(), credentials=credentials))
        with listening(credentials) as door, pytest.raises(RefusedError):
            credentials.connect(door.address, ME, 8)
    shown = caplog.text + repr(credentials) + repr(outcome) + repr(Seal(b"k" * 32))
    assert credentials.secret.hex() not in shown
    assert repr(credentials.secret)[2:-1] not in shown
