"""A hundred thousand mutations of real frames, notes, rows and messages: each is refused, or is what it could be.

Seeded, so that they are the same on every machine. None may raise anything but a WireError, take memory for what it
only claims, or end the interpreter.
"""

import contextlib
import decimal
import json
import random
import socket
from collections import Counter

import pyarrow as pa
import pytest

from steelyard import count, sum
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Generated, Memory, Rows, Settings
from steelyard.resident.connection import Connection
from steelyard.resident.control import message
from steelyard.resident.coordinator import Coordinator
from steelyard.resident.deployment import Deployment, Events
from steelyard.resident.groups import BatchProgram, Scheduling, run_batches
from steelyard.resident.groups.messages import require_due, unpacked
from steelyard.resident.groups.protocol import EVENTS as GROUP_EVENTS
from steelyard.resident.groups.protocol import ORDERS as GROUP_ORDERS
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.operator import Attempt
from steelyard.resident.seal import Seal
from steelyard.resident.security import Credentials
from steelyard.resident.wire import (
    HEADER,
    Frame,
    Kind,
    WireError,
    batch_bytes,
    batch_from,
    encoded,
    frame,
    head,
    small_frame,
)
from steelyard.resident.worker import EVENTS, ORDERS
from steelyard.workloads import Zipf
from tests.resident.relay import Relay, RelayedLauncher
from tests.resident.test_doors import QUICK, answer, job_through, right_answer, run_within

LENGTHS = [number.to_bytes(size, order) for size in (4, 8) for order in ("big", "little")
           for number in (0, 1, 2**31 - 1, 2**32 - 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1))]  # fmt: skip
WORDS = [b"null", b"-1", b"1e999", b"NaN", b'"\\ud800"', b"[" * 50, b"{" * 9, b"99999999999999999999", b"true", b'"x"']


def mutated(data, rng, splices=LENGTHS):
    """A few bytes changed, cut out or put in; lengths and words that others stumble over among them."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, how = rng.randrange(len(made) + 1), rng.random()
        if how < 0.4 and made:
            made[at % len(made)] ^= 1 << rng.randrange(8)
        elif how < 0.6:
            splice = rng.choice(splices)
            made[at : at + len(splice)] = splice
        elif how < 0.75:
            del made[at : at + rng.randint(1, 12)]
        elif how < 0.9:
            made[at:at] = rng.randbytes(rng.randint(1, 12))
        else:
            other = rng.randrange(len(made) + 1)
            made[at:at] = made[other : other + rng.randint(1, 24)]
    return bytes(made)


def dataflow():
    flow = Flow("fuzzed", parallelism=2)
    made = Generated(Zipf(keys=40, seed=3), rows=2000, block_rows=100)
    read = flow.source(made, time="event_time", batch_rows=100, name="read")
    counted = read.key_by("key").aggregate(n=count(), total=sum("value"), window="100 milliseconds", name="count")
    counted.sink(Memory(), name="out")
    return flow.dataflow()


PROGRAM = BatchProgram(Rows(pa.table({"k": [1, 2, 3] * 100})), ("k",), {"n": count()}, batch_rows=50)


@pytest.fixture(scope="module")
def recorded():
    """What workers and those who watch over them really send: frames of a dataflow, and of groups of batches."""
    kept, send = ([], []), Connection.send

    def record(into):
        def recording(self, kind, channel=0, number=0, payload=b"", note=b""):
            whole = b"".join(map(bytes, payload)) if isinstance(payload, list) else bytes(payload)
            into.append(Frame(kind, channel, number, whole, note))
            send(self, kind, channel, number, payload, note)

        return recording

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "send", record(kept[0]))
        made = dataflow()
        Job(made, Placement.spread(made, 2), ThreadLauncher(), Settings(heartbeat=0.05)).run()
        patch.setattr(Connection, "send", record(kept[1]))
        run_batches(PROGRAM, Scheduling(interval=0.02), workers=2)
    assert {one.kind for one in kept[0]} >= {Kind.DATA, Kind.CONTROL, Kind.RESULT, Kind.WATERMARK, Kind.END}
    assert {one.channel for one in kept[1] if one.kind is Kind.DATA} == {0, 1}
    return kept


def some(frames, rng, *kinds):
    """Frames in turn, without end, as many of rare kinds as of others."""
    by_kind = {}
    for one in frames:
        if not kinds or one.kind in kinds:
            by_kind.setdefault((one.kind, one.channel), []).append(one)
    pools = list(by_kind.values())
    while True:
        yield rng.choice(rng.choice(pools))


def parsed(data, check):
    """What a connection would make of bytes that have all come, once."""
    view = memoryview(data)
    found = small_frame(view, 0, len(data), 1 << 20, check)
    if found is None:
        start = head(view[:HEADER], 1 << 20)
        if len(data) < HEADER + start.body:
            raise WireError("it would wait for more")
        found = frame(start, data[HEADER : HEADER + start.body], check)
    return found


def test_mutated_frames_are_refused_or_are_as_they_were(recorded):
    rng = random.Random(11)
    taken = 0
    for _, sent in zip(range(40_000), some(recorded[0] + recorded[1], rng), strict=False):
        start = encoded(sent.kind, sent.channel, sent.number, sent.payload, sent.note, Seal(b"key" * 8))
        data = mutated(start + sent.payload, rng)
        if len(data) < HEADER:
            continue
        with contextlib.suppress(WireError):
            found = parsed(data, Seal(b"key" * 8))
            assert found._replace(payload=bytes(found.payload)) == sent
            taken += 1
    assert taken < 10_000  # those that have only something behind them


def test_mutated_frames_through_sockets_are_refused_or_are_as_they_were(recorded):
    rng = random.Random(12)
    refused = 0
    for turn, sent in zip(range(3000), some(recorded[0] + recorded[1], rng), strict=False):
        ours, theirs = socket.socketpair()
        connection = Connection(ours, limit=1 << 20, checks=(Seal(b"back" * 8), Seal(b"key" * 8)))
        seal = Seal(b"key" * 8)
        whole = [encoded(one.kind, one.channel, one.number, one.payload, one.note, seal) + one.payload
                 for one in (sent, sent)]  # fmt: skip
        first = mutated(whole[0], rng) if turn % 2 else whole[0]
        theirs.sendall(first + (whole[1] if turn % 2 else mutated(whole[1], rng)))
        theirs.close()
        try:
            while True:
                found = connection.receive()
                assert found._replace(payload=bytes(found.payload)) == sent
        except WireError:
            refused += 1
        except ConnectionError:
            pass
        connection.close()
    assert refused > 2500


MIXED = pa.record_batch(
    {
        "key": pa.array([1, 2, None, 4]),
        "word": pa.array(["a", None, "long " * 20, "zz"]),
        "list": pa.array([[1, 2], [], None, [3]]),
        "pair": pa.array([{"x": 1, "y": "q"}, None, {"x": 2, "y": None}, {"x": 3, "y": "e"}]),
        "time": pa.array([1, 2, 3, 4], pa.timestamp("us")),
        "nothing": pa.nulls(4),
        "flag": pa.array([True, False, None, True]),
        "price": pa.array([decimal.Decimal("1.2")] * 4, pa.decimal128(10, 2)),
        "bytes": pa.array([b"x", b"y", None, b"zz"], pa.large_binary()),
        "map": pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int64())),
        "two": pa.array([[1, 2]] * 4, pa.list_(pa.int32(), 2)),
        "view": pa.array(["x", "longer than twelve bytes", None, ""], pa.string_view()),
    }
)


def test_mutated_rows_are_refused_or_can_be_read_to_the_last():
    rng = random.Random(13)
    plain = batch_bytes(MIXED).to_pybytes()
    assert batch_from(plain, MIXED.schema).equals(MIXED)
    before, read = pa.total_allocated_bytes(), 0
    for _ in range(30_000):
        with contextlib.suppress(WireError):
            found = batch_from(mutated(plain, rng), MIXED.schema)
            assert found.schema.equals(MIXED.schema)
            assert found.num_rows <= 1 << 24
            if found.num_rows < 100:
                found.drop_columns(["time"]).to_pylist()
                read += 1
    assert 0 < read < 20_000
    assert pa.total_allocated_bytes() - before < 64 << 20


def test_mutated_notes_of_batches_are_refused_or_fit_their_plan(recorded):
    rng = random.Random(14)
    parts = [one for one in recorded[1] if one.kind is Kind.DATA]
    for _ in range(8000):
        one = rng.choice(parts)
        with contextlib.suppress(WireError):
            note = unpacked(mutated(one.note, rng))
            require_due(note, one.channel, rng.randrange(2), rng.randrange(2), 2, 25, 2)
            assert note.number < max(note.plan.blocks, note.plan.buckets)
            assert note.plan.workers == 2


@pytest.mark.parametrize("side", ["do", "event"])
def test_mutated_messages_are_refused_or_of_their_shape(recorded, side):
    rng = random.Random(15)
    for frames, known in ((recorded[0], (ORDERS, EVENTS)), (recorded[1], (GROUP_ORDERS, GROUP_EVENTS))):
        shapes = known[side == "event"]
        said = [one for one in frames if one.kind is Kind.CONTROL and side in json.loads(one.payload)]
        assert len({json.loads(one.payload)[side] for one in said}) > 3
        for _ in range(4000):
            one = rng.choice(said)
            with contextlib.suppress(WireError):
                found = message(one._replace(payload=mutated(one.payload, rng, WORDS)), side, shapes)
                assert found[side] in shapes


def test_mutated_frames_of_a_peer_that_knows_the_secret_never_do_more_than_end_the_connection(recorded):
    """With right checks, as a worker with a fault would send them: a deployment takes them, or refuses them."""
    rng = random.Random(16)
    made = dataflow()
    quiet = Events(lambda *_: None, lambda *_: None, lambda *_: None)
    ends = Counter()
    for _ in range(40):
        deployment = Deployment(made, Placement.spread(made, 2), 0, lambda *_: None, quiet)
        kinds = (Kind.DATA, Kind.WATERMARK, Kind.END, Kind.CREDIT)
        for _, sent in zip(range(250), some(recorded[0], rng, *kinds), strict=False):
            payload = mutated(sent.payload, rng) if rng.random() < 0.5 else sent.payload
            number = rng.choice((sent.number, 1, 2, 0, 2**64 - 1))
            broken = Frame(rng.choice((sent.kind, *Kind)), rng.choice((sent.channel, *range(9))), number, payload)
            try:
                deployment.receive(rng.randrange(3), broken)
                ends["taken"] += 1
            except WireError:
                ends["refused"] += 1
        assert all(outlet._granted - outlet._spent <= 16 for outlet in deployment._wiring.outlets.values())
    assert ends["refused"] > 5000


def test_mutated_words_of_a_worker_that_knows_the_secret_end_at_most_its_generation(recorded):
    rng = random.Random(17)
    made = dataflow()
    coordinator = Coordinator(made, Placement.spread(made, 2), Credentials.new(), QUICK, attempt=Attempt("fuzz", 0))
    kinds = (Kind.CONTROL, Kind.RESULT)
    for _, sent in zip(range(8000), some(recorded[0], rng, *kinds), strict=False):
        broken = sent._replace(
            payload=mutated(sent.payload, rng, LENGTHS + WORDS), channel=rng.choice((sent.channel, 2, 9))
        )
        with contextlib.suppress(WireError):
            coordinator._understood(rng.randrange(2), broken)
    coordinator.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_line_that_changes_bytes_now_and_then_leaves_the_answer_as_it_is(seed):
    rng = random.Random(seed)

    def noisy(connection, inward, data):
        return mutated(data, rng) if rng.random() < 0.2 else data

    launcher = RelayedLauncher(lambda address: Relay(address, noisy), generations=2)
    outcome = run_within(job_through(launcher))
    launcher.close()
    assert answer(outcome) == right_answer()


def compressed(codec):
    sink = pa.BufferOutputStream()
    zeros = pa.record_batch({"x": pa.array([0] * 1_000_000)})
    with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(zeros)
    reader = pa.BufferReader(sink.getvalue())
    pa.ipc.read_message(reader)
    return pa.ipc.read_message(reader).serialize().to_pybytes(), zeros.schema


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_rows_that_are_compressed_are_refused_before_they_take_memory(codec):
    bomb, schema = compressed(codec)
    assert len(bomb) < 100_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(WireError, match="its body is compressed"):
        batch_from(bomb, schema)
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_offsets_that_lead_elsewhere_in_the_middle_of_a_column_are_refused():
    batch = pa.record_batch({"word": ["aa", "bb", "cc", "dd"]})
    data = bytearray(batch_bytes(batch).to_pybytes())
    offsets = data.index(b"".join(number.to_bytes(4, "little") for number in (0, 2, 4, 6, 8)))
    data[offsets + 8 : offsets + 12] = (2**30).to_bytes(4, "little")
    with pytest.raises(WireError, match="is not a batch of"):
        batch_from(bytes(data), batch.schema)


def test_text_that_is_no_text_and_nulls_that_are_miscounted_are_refused():
    batch = pa.record_batch({"word": ["aaaaaaaa", None]})
    data = batch_bytes(batch).to_pybytes()
    with pytest.raises(WireError, match="is not a batch of"):
        batch_from(data.replace(b"aaaaaaaa", b"aaaa\xff\xfeaa"), batch.schema)


def test_a_column_of_nothing_cannot_have_more_rows_than_anybody_could_work_off():
    rows = pa.record_batch({"x": pa.nulls(5)})
    data = batch_bytes(rows).to_pybytes()
    many = data.replace((5).to_bytes(8, "little"), (2**40).to_bytes(8, "little"))
    assert many != data
    with pytest.raises(WireError):
        batch_from(many, rows.schema)
