"""Frames: how a message looks on a socket.

A frame is a header of fixed length, an optional note (what a protocol adds to a message) and a payload. The
header carries the lengths of all and a check (`seal`), so that whatever is not a frame of this connection is told
from one before anything looks into it. Numbers are big-endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hmac import compare_digest
from typing import Any, NamedTuple

import pyarrow as pa

from steelyard.core import SteelyardError
from steelyard.resident.seal import CHECK, LARGE, Check, Sums

MAGIC = b"SY"
VERSION = 2
MAX_PAYLOAD = 256 << 20
"""Bytes above which a length is not believed."""
MAX_NOTE = (1 << 16) - 1
_ALIGNMENT = 8
"""Notes are padded to a multiple of this, so that Arrow's buffers behind them stay aligned."""
_FIELDS = struct.Struct("!2sBBIQIH")
"""Magic, version, kind, channel, number, payload's length, note's length; the check is behind them."""
_WHOLE = struct.Struct(f"!2sBBIQIH{CHECK}s")
_SIZE = _FIELDS.size
HEADER = _SIZE + CHECK
_FEW_ROWS = 256
"""Rows of which nobody asks how many bytes they have: that takes longer than to pack them."""
_SUMS = Sums()
_OTHER = "a {} frame is not as it was sent, or not the next one: its check is another"


class Kind(IntEnum):
    """What a frame is."""

    DATA = 1
    """A record batch."""
    WATERMARK = 2
    """How far event time has come in a channel."""
    MARKER = 3
    """Where a snapshot cuts a channel."""
    END = 4
    """Nothing comes behind it in this channel."""
    CREDIT = 5
    """Room for so many more batches, from the receiver to the sender."""
    CONTROL = 6
    """JSON between a worker and the coordinator."""
    RESULT = 7
    """A record batch from a sink to the coordinator."""
    REPORT = 8
    """What rows of a channel cost, from the receiver to the sender."""
    BEAT = 9
    """Nothing but that the sender is there; `Connection` keeps these to itself."""
    PROBE = 10
    """When rows came that are beside it in a channel: whoever it comes to at last knows how long they took."""
    CUT = 11
    """Nothing comes behind it in this channel: from here on rows go through another."""
    STATE = 12
    """A piece of what an instance knew, to the one whose rows it is of from now on."""


_KINDS = {int(kind): kind for kind in Kind}
DATA, CREDIT = Kind.DATA, Kind.CREDIT
"""Names for what is asked of every message: to look into an enumeration takes longer than all else in some loops."""


class WireError(SteelyardError):
    """Bytes that are no frame, or a frame that cannot come now. Its connection is not used any more."""


class Frame(NamedTuple):
    """One frame as it was read."""

    kind: Kind
    channel: int
    number: int
    payload: Any
    """A buffer."""
    note: bytes = b""


class Head(NamedTuple):
    """What a header says of the bytes behind it."""

    kind: Kind
    channel: int
    number: int
    payload: int
    note: int
    fields: bytes
    """The bytes that say all that."""
    check: bytes

    @property
    def body(self) -> int:
        """Bytes behind the header."""
        return self.payload + padded(self.note) if self.note else self.payload


def padded(length: int) -> int:
    """A note's length on the wire."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def encoded(
    kind: Kind, channel: int, number: int, payload: Any = b"", note: bytes = b"", check: Check = _SUMS
) -> bytes:
    """Header and note of a frame: what is sent before its payload, a buffer or a list of buffers.

    >>> len(encoded(Kind.END, 3, 17)) == HEADER
    True
    """
    parts = payload if isinstance(payload, list) else [payload]
    size = sum(map(len, parts))
    if size > MAX_PAYLOAD or len(note) > MAX_NOTE:
        raise WireError(f"a frame has at most {MAX_PAYLOAD} bytes and a note of {MAX_NOTE}, got {size}, {len(note)}")
    filled = note.ljust(padded(len(note)), b"\0") if note else b""
    fields = _FIELDS.pack(MAGIC, VERSION, kind, channel, number, size, len(note))
    return fields + check.of(fields, filled, parts, size) + filled


def encoded_small(kind: Kind, channel: int, number: int, payload: Any, check: Check = _SUMS) -> bytes:
    """A whole frame without a note, whose payload is one buffer of less than `LARGE` bytes; faster.

    >>> encoded_small(Kind.DATA, 3, 17, b"rows") == encoded(Kind.DATA, 3, 17, b"rows") + b"rows"
    True
    """
    fields = _FIELDS.pack(MAGIC, VERSION, kind, channel, number, len(payload), 0)
    return b"".join((fields, check.small(fields, payload), payload))


def head(data: Any, limit: int = MAX_PAYLOAD) -> Head:
    """A header, read from its `HEADER` bytes; WireError where it is none, or its payload is above `limit`.

    >>> head(encoded(Kind.DATA, 3, 17, b"rows")).payload
    4
    >>> head(b"GET / HTTP/1.1" + bytes(HEADER - 14))
    Traceback (most recent call last):
    steelyard.resident.wire.WireError: no frame begins with b'GE'
    """
    whole = bytes(data)
    magic, version, kind, channel, number, size, note = _FIELDS.unpack_from(whole)
    if magic != MAGIC:
        raise WireError(f"no frame begins with {bytes(magic)!r}")
    if version != VERSION:
        raise WireError(f"a frame of version {version} came, and version {VERSION} is spoken here")
    if size > limit:
        raise WireError(f"a frame says that it has {size} bytes, and {limit} are the most")
    known = _KINDS.get(kind)
    if known is None:
        raise WireError(f"there is no frame of kind {kind}")
    return Head(known, channel, number, size, note, whole[:_SIZE], whole[_SIZE:])


def frame(start: Head, body: Any, check: Check = _SUMS) -> Frame:
    """A frame from its header and the buffer behind it; WireError where its check is not what it must be."""
    note, payload = b"", body
    if start.note:
        view = memoryview(body)
        note, payload = view[: padded(start.note)].tobytes(), view[padded(start.note) :]
    if not compare_digest(check.of(start.fields, note, [payload], start.payload), start.check):
        raise WireError(_OTHER.format(start.kind.name))
    return Frame(start.kind, start.channel, start.number, payload, note[: start.note])


def small_frame(data: Any, start: int, end: int, limit: int = MAX_PAYLOAD, check: Check = _SUMS) -> Frame | None:
    """The frame that begins at `start` of a memoryview, if it is small, without a note, and whole before `end`.

    None for all others, which `head` and `frame` read; WireError where its check is not what it must be.

    >>> sent = encoded_small(Kind.DATA, 3, 17, b"rows")
    >>> small_frame(memoryview(sent), 0, len(sent)) == frame(head(sent[:HEADER]), b"rows")
    True
    >>> small_frame(memoryview(sent), 0, len(sent) - 1)
    """
    magic, version, kind, channel, number, size, note, said = _WHOLE.unpack_from(data, start)
    body = start + HEADER
    known = _KINDS.get(kind)
    if note or size >= LARGE or size > limit or body + size > end or known is None:
        return None
    if magic != MAGIC or version != VERSION:
        return None
    payload = data[body : body + size].tobytes()
    if not compare_digest(check.small(data[start : start + _SIZE], payload), said):
        raise WireError(_OTHER.format(known.name))
    return Frame(known, channel, number, payload)


def batch_from(payload: Any, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch of a payload, looked at in full; WireError where it is none, or one with other columns.

    A peer's offsets, lengths, texts and counts of nulls are believed only after Arrow has followed all of them; a body
    that is compressed is refused, since nobody here sends one, and it could be of any size once it is not.
    """
    try:
        if payload[8:40] != _PLAIN_MESSAGE or payload[48:64] != _PLAIN_BATCH:
            _require_plain(payload)
        batch = _read(_buffer(payload), schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, StopIteration, EOFError, struct.error) as error:
        raise WireError(f"a frame's payload is not a batch of ({', '.join(schema.names)}): {error}") from error
    if batch.num_rows > _ROWS_OF_NOTHING and batch.num_rows > 8 * len(payload):
        raise WireError(f"a batch says that it has {batch.num_rows} rows, in {len(payload)} bytes")
    return batch


_read, _buffer = pa.ipc.read_record_batch, pa.py_buffer
_ROWS_OF_NOTHING = 1 << 24
"""Rows that a batch may have without as many bits: a column of nulls has none."""
_CONTINUES = 0xFFFFFFFF
_START = struct.Struct("<IiI")
_OFFSET = struct.Struct("<i")
_PLACE = struct.Struct("<H")
_HEADER_PLACE, _COMPRESSION_PLACE = 4 + 2 * 2, 4 + 3 * 2
"""In the tables of a Message and of a RecordBatch (Arrow's `Message.fbs`): where the places of these fields are."""


_A_MESSAGE = pa.record_batch({"": [0]}).serialize().to_pybytes()
_PLAIN_MESSAGE, _PLAIN_BATCH = _A_MESSAGE[8:40], _A_MESSAGE[48:64]
"""Where these bytes are as Arrow itself writes them, there is no compression; the lengths between them may be any."""


def _require_plain(payload: Any) -> None:
    """ValueError where an IPC message is no record batch with a plain body. What else is wrong with it, Arrow says."""
    marker, _, root = _START.unpack_from(payload)
    if marker != _CONTINUES:
        raise ValueError("it does not begin as a message does")
    table = 8 + root
    fields = table - _OFFSET.unpack_from(payload, table)[0]
    place = _PLACE.unpack_from(payload, fields + _HEADER_PLACE)[0] + table
    batch = place + _OFFSET.unpack_from(payload, place)[0]
    fields = batch - _OFFSET.unpack_from(payload, batch)[0]
    if _PLACE.unpack_from(payload, fields)[0] > _COMPRESSION_PLACE and any(
        _PLACE.unpack_from(payload, fields + _COMPRESSION_PLACE)
    ):
        raise ValueError("its body is compressed")


def batch_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    """A record batch as a payload, without its schema, which both ends know."""
    return batch.serialize()


class Packer:
    """Record batches of one schema as payloads; columns of large ones are not copied. For one thread.

    Examples
    --------
    >>> batch = pa.record_batch({"x": list(range(100_000))})
    >>> b"".join(Packer(batch.schema).payload(batch)) == batch_bytes(batch).to_pybytes()
    True
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Parts()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._begun = False

    def payload(self, batch: pa.RecordBatch) -> Any:
        """A buffer, or the buffers that make it up one behind the other."""
        if batch.num_rows <= _FEW_ROWS or batch.nbytes < LARGE:
            return batch_bytes(batch)
        if not self._begun:  # the first batch brings the schema with it
            self._writer.write_batch(batch.slice(0, 0))
            self._begun = True
        self._sink.taken.clear()
        self._writer.write_batch(batch)
        parts = list(self._sink.taken)
        self._sink.taken.clear()
        return parts if len(parts) <= _MAX_PARTS else batch_bytes(batch)


_MAX_PARTS = 512
"""Buffers that are sent in one call; systems allow a thousand."""


class _Parts:
    """A file that keeps what is written to it, as it is."""

    closed = False

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def write(self, data: Any) -> int:
        self.taken.append(data)
        return len(data)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True
