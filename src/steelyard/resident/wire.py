"""Frames: how a message looks on a socket.

A frame is a header of fixed length, an optional note (what a protocol adds to a message) and a payload. The
header carries the lengths and checksums of all, so that whatever is not a frame is told from one before
anything looks into it. Numbers are big-endian.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core import SteelyardError

MAGIC = b"SY"
VERSION = 1
MAX_PAYLOAD = 256 << 20
"""Bytes above which a length is not believed."""
MAX_NOTE = (1 << 16) - 1
_ALIGNMENT = 8
"""Notes are padded to a multiple of this, so that Arrow's buffers behind them stay aligned."""
_FIELDS = struct.Struct("!2sBBIQIHI")
"""Magic, version, kind, channel, number, payload's length, note's length, checksum of note and payload."""
_WHOLE = struct.Struct("!2sBBIQIHII")
"""The same, and the checksum of all that."""
HEADER = _WHOLE.size
LARGE = 1 << 16
"""Bytes from which a payload is folded before its checksum is taken, and sent from where its columns are."""
_WORD = 8
_SMALL_PART = 1 << 12
"""Bytes of a part that are copied faster than they are looked at alone."""
_FEW_ROWS = 256
"""Rows of which nobody asks how many bytes they have: that takes longer than to pack them."""


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
    checksum: int

    @property
    def body(self) -> int:
        """Bytes behind the header."""
        return self.payload + padded(self.note) if self.note else self.payload


def padded(length: int) -> int:
    """A note's length on the wire."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def encoded(kind: Kind, channel: int, number: int, payload: Any = b"", note: bytes = b"") -> bytes:
    """Header and note of a frame: what is sent before its payload, a buffer or a list of buffers.

    >>> len(encoded(Kind.END, 3, 17)) == HEADER
    True
    """
    parts = payload if isinstance(payload, list) else [payload]
    size = sum(map(len, parts))
    if size > MAX_PAYLOAD or len(note) > MAX_NOTE:
        raise WireError(f"a frame has at most {MAX_PAYLOAD} bytes and a note of {MAX_NOTE}, got {size}, {len(note)}")
    filled = note.ljust(padded(len(note)), b"\0") if note else b""
    fields = _FIELDS.pack(MAGIC, VERSION, kind, channel, number, size, len(note), checksum(parts, size, filled))
    return fields + zlib.crc32(fields).to_bytes(4, "big") + filled


def encoded_small(kind: Kind, channel: int, number: int, payload: Any) -> bytes:
    """A whole frame without a note, whose payload is one buffer of less than `LARGE` bytes; faster.

    >>> encoded_small(Kind.DATA, 3, 17, b"rows") == encoded(Kind.DATA, 3, 17, b"rows") + b"rows"
    True
    """
    fields = _FIELDS.pack(MAGIC, VERSION, kind, channel, number, len(payload), 0, zlib.crc32(payload))
    return b"".join((fields, zlib.crc32(fields).to_bytes(4, "big"), payload))


def checksum(parts: list[Any], size: int, note: bytes = b"") -> int:
    """CRC-32 of a small payload; of a large one, the CRC-32 of the exclusive or of its words, ten times as fast.

    A large payload that is damaged in one place never has the same; one whose words came in another order has, but
    a socket keeps their order. Where a payload is cut into parts makes no difference.

    >>> data = bytes(range(250)) * 1000
    >>> checksum([data[:70_001], data[70_001:]], len(data)) == checksum([data], len(data))
    True
    """
    found = zlib.crc32(note) if note else 0
    if size < LARGE:
        for part in parts:
            found = zlib.crc32(part, found)
        return found
    folded, carried = np.uint64(0), b""
    for part in _fewer(parts):
        view = memoryview(part).cast("B")
        missing = min(-len(carried) % _WORD, len(view))
        if missing:  # a word that began in the part before
            carried += view[:missing].tobytes()
            view = view[missing:]
        if len(carried) == _WORD:
            folded ^= np.frombuffer(carried, np.uint64)[0]
            carried = b""
        words = len(view) // _WORD
        folded ^= np.bitwise_xor.reduce(np.frombuffer(view, np.uint64, words)) if words else np.uint64(0)
        carried += view[words * _WORD :].tobytes()
    return zlib.crc32(carried, zlib.crc32(folded.tobytes(), found))


def _fewer(parts: list[Any]) -> list[Any]:
    """The same bytes, with neighbours that are small in one part."""
    if len(parts) == 1:
        return parts
    made: list[Any] = []
    for small, group in groupby(parts, lambda part: len(part) < _SMALL_PART):
        neighbours = list(group)
        made += [b"".join(neighbours)] if small else neighbours
    return made


def head(data: Any, limit: int = MAX_PAYLOAD) -> Head:
    """A header, read from its `HEADER` bytes; WireError where it is none, or its payload is above `limit`.

    >>> head(encoded(Kind.DATA, 3, 17, b"rows")).payload
    4
    >>> head(b"GET / HTTP/1.1" + bytes(HEADER - 14))
    Traceback (most recent call last):
    steelyard.resident.wire.WireError: no frame begins with b'GE'
    """
    magic, version, kind, channel, number, size, note, content, check = _WHOLE.unpack(data)
    if magic != MAGIC:
        raise WireError(f"no frame begins with {bytes(magic)!r}")
    if check != zlib.crc32(data[: _FIELDS.size]):
        raise WireError("a header does not have the checksum that it says")
    if version != VERSION:
        raise WireError(f"a frame of version {version} came, and version {VERSION} is spoken here")
    if size > limit:
        raise WireError(f"a frame says that it has {size} bytes, and {limit} are the most")
    known = _KINDS.get(kind)
    if known is None:
        raise WireError(f"there is no frame of kind {kind}")
    return Head(known, channel, number, size, note, content)


def frame(start: Head, body: Any) -> Frame:
    """A frame from its header and the buffer behind it; WireError where the checksum is wrong."""
    if not start.note:
        if start.payload < LARGE and zlib.crc32(body) == start.checksum:
            return Frame(start.kind, start.channel, start.number, body)
        note, payload = b"", body
    else:
        view = memoryview(body)
        note, payload = view[: padded(start.note)].tobytes(), view[padded(start.note) :]
    if checksum([payload], start.payload, note) != start.checksum:
        raise WireError(f"a {start.kind.name} frame does not have the checksum that its header says")
    return Frame(start.kind, start.channel, start.number, payload, note[: start.note])


def small_frame(data: Any, start: int, end: int, limit: int = MAX_PAYLOAD) -> Frame | None:
    """The frame that begins at `start` of a memoryview, if it is small, without a note, right, and whole before `end`.

    None for all others: `head` and `frame` read those, and say what is wrong.

    >>> sent = encoded_small(Kind.DATA, 3, 17, b"rows")
    >>> small_frame(memoryview(sent), 0, len(sent)) == frame(head(sent[:HEADER]), b"rows")
    True
    >>> small_frame(memoryview(sent), 0, len(sent) - 1)
    """
    magic, version, kind, channel, number, size, note, content, check = _WHOLE.unpack_from(data, start)
    body = start + HEADER
    known = _KINDS.get(kind)
    if note or size >= LARGE or size > limit or body + size > end or known is None:
        return None
    if magic != MAGIC or version != VERSION or check != zlib.crc32(data[start : start + _FIELDS.size]):
        return None
    payload = data[body : body + size].tobytes()
    return Frame(known, channel, number, payload) if zlib.crc32(payload) == content else None


def batch_from(payload: Any, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch of a payload; WireError where it is none, or one with other columns."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        batch.validate()
    except (pa.ArrowException, OSError, ValueError, StopIteration, EOFError) as error:
        raise WireError(f"a frame's payload is not a batch of ({', '.join(schema.names)}): {error}") from error
    return batch


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
