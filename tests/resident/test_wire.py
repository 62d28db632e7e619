"""Frames and connections: what is sent comes, and what is no frame goes no further."""

import socket
import threading
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.resident.connection import ClosedError, Connection
from steelyard.resident.seal import checksum
from steelyard.resident.wire import (
    HEADER,
    Frame,
    Kind,
    Packer,
    WireError,
    batch_bytes,
    batch_from,
    encoded,
    head,
)

SCHEMA = pa.schema({"key": pa.int64(), "word": pa.string()})
BATCH = pa.record_batch({"key": [1, 2, None], "word": ["a", None, "long " * 50]}, schema=SCHEMA)


def frame_bytes(kind=Kind.DATA, channel=3, number=17, payload=b"rows", note=b""):
    return encoded(kind, channel, number, payload, note) + bytes(payload)


def read(data, limit=1 << 20):
    """What a connection makes of these bytes and then the end."""
    ours, theirs = socket.socketpair()
    sender = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()), daemon=True)
    sender.start()
    connection, found = Connection(ours, limit), []
    try:
        while True:
            found.append(connection.receive())
    except (ClosedError, WireError) as error:
        return found, error
    finally:
        connection.close()
        sender.join()


frames = st.builds(
    Frame,
    st.sampled_from([kind for kind in Kind if kind is not Kind.BEAT]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.one_of(st.binary(max_size=100), st.integers(0, 200_000).map(bytes)),
    st.binary(max_size=40),
)


@given(st.lists(frames, max_size=5))
@settings(max_examples=60)
def test_frames_come_as_they_were_sent_and_in_order(sent):
    ours, theirs = socket.socketpair()
    left, right = Connection(ours), Connection(theirs)

    def send():
        for one in sent:
            left.send(one.kind, one.channel, one.number, one.payload, one.note)
        left.close()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    got = [right.receive() for _ in sent]
    with pytest.raises(ClosedError):
        right.receive()
    sender.join()
    assert [one._replace(payload=bytes(one.payload)) for one in got] == sent
    assert left.sent == right.received


@given(st.binary(max_size=300))
def test_random_bytes_are_no_frames(data):
    found, error = read(data)
    assert not found
    assert isinstance(error, ClosedError if not data else WireError)


@given(st.data())
def test_a_frame_with_any_byte_changed_is_refused(data):
    whole = bytearray(frame_bytes(payload=bytes(batch_bytes(BATCH)), note=b"note"))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found, error = read(bytes(whole))
    assert not found
    assert isinstance(error, WireError)


@given(st.integers(0, 10_000))
def test_a_frame_that_is_cut_short_is_refused(length):
    whole = frame_bytes(payload=b"x" * 70_000)
    cut = length * (len(whole) - 1) // 10_000
    found, error = read(whole[:cut])
    assert not found
    assert isinstance(error, ClosedError if not cut else WireError)


def test_a_length_that_is_too_large_is_refused_before_memory_is_taken_for_it():
    found, error = read(frame_bytes(payload=b"x" * 1001), limit=1000)
    assert not found
    assert "1001 bytes, and 1000 are the most" in str(error)


def test_another_version_and_an_unknown_kind_are_named():
    with pytest.raises(WireError, match="no frame of kind 99"):
        head(frame_bytes(kind=99)[:HEADER])
    assert len(frame_bytes()) == HEADER + 4


@given(st.binary(max_size=400))
def test_a_payload_that_is_no_batch_is_refused(payload):
    with pytest.raises(WireError, match=r"is not a batch of \(key, word\)"):
        batch_from(payload, SCHEMA)


def test_a_batch_keeps_its_rows_and_needs_its_schema():
    assert batch_from(batch_bytes(BATCH), SCHEMA).equals(BATCH)
    with pytest.raises(WireError):
        batch_from(batch_bytes(BATCH), pa.schema({"key": pa.int64(), "a": pa.string(), "b": pa.string()}))


def test_bytes_of_batches_and_of_protocol_are_counted_apart():
    ours, theirs = socket.socketpair()
    left, right = Connection(ours), Connection(theirs)
    left.send(Kind.DATA, 1, 1, b"x" * 100, note=b"12345")
    left.send(Kind.CREDIT, 1, 4)
    for _ in range(2):
        right.receive()
    assert left.sent.to_dict() == {"frames": 2, "batches": 1, "payload": 100, "overhead": 2 * HEADER + 8}
    assert left.sent == right.received
    left.close()
    right.close()


@given(st.integers(0, 200_000), st.lists(st.integers(0, 200_000), max_size=4))
@settings(max_examples=40)
def test_a_checksum_does_not_depend_on_how_a_payload_is_cut(size, cuts):
    data = bytes(i % 251 for i in range(1000)) * (size // 1000) + b"\x07" * (size % 1000)
    bounds = [0, *sorted(min(cut, size) for cut in cuts), size]
    parts = [data[start:end] for start, end in pairwise(bounds)]
    assert checksum(parts, size, b"note") == checksum([data], size, b"note")


@given(st.integers(0, 150_000), st.integers(1, 255))
def test_a_large_payload_with_any_byte_changed_has_another_checksum(at, change):
    data = bytearray(bytes(range(256)) * 600)
    before = checksum([bytes(data)], len(data))
    data[at] ^= change
    assert checksum([bytes(data)], len(data)) != before


@given(st.integers(0, 30_000), st.integers(0, 30_000), st.booleans())
@settings(max_examples=40)
def test_what_is_packed_without_a_copy_is_read_as_it_was(start, length, first_small):
    whole = pa.record_batch(
        {"key": list(range(30_000)), "word": [None if i % 7 == 0 else "w" * (i % 5) for i in range(30_000)]},
        schema=SCHEMA,
    )
    packer = Packer(SCHEMA)
    if first_small:
        packer.payload(whole.slice(0, 1))
    part = whole.slice(start, length)
    for _ in range(2):
        payload = packer.payload(part)
        joined = b"".join(bytes(one) for one in payload) if isinstance(payload, list) else payload
        assert batch_from(joined, SCHEMA).equals(part)
