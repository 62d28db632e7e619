"""What a frame's eight bytes of check are: a checksum against damage, or a MAC against whoever changes frames.

A MAC is keyed BLAKE2b over the header, note and payload of a frame and of all that went before it in its direction of
its connection, so that a frame that is changed, repeated, left out or sent back is told from one that was sent.
Payloads that are not small are hashed by NH first (`kernels.nh`), twenty times as fast: together that is UMAC's way,
and a forged frame passes with a chance of 2^-64.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Protocol

import numpy as np

CHECK = 8
"""Bytes of a check."""
LARGE = 1 << 16
"""Bytes from which a payload is folded before its checksum is taken, and sent from where its columns are."""
_HASHED = 8192
"""Bytes from which a payload is hashed before its MAC is taken; `kernels.nh.BLOCK` is as much."""
_WORD = 8
_SMALL_PART = 1 << 12
"""Bytes of a part that are copied faster than they are looked at alone."""


class Check(Protocol):
    """Gives each frame of a connection, in their order, its check."""

    def small(self, fields: Any, payload: Any) -> bytes:
        """Of a frame without a note, whose payload is one buffer of less than `LARGE` bytes."""
        ...

    def of(self, fields: bytes, note: bytes, parts: list[Any], size: int) -> bytes:
        """Of any frame: its header's fields, its note, and its payload of `size` bytes in parts."""
        ...


class Sums:
    """Checksums: for sockets that nobody else can write to, and inside TLS.

    Examples
    --------
    >>> Sums().small(b"fields", b"rows") == Sums().of(b"fields", b"", [b"ro", b"ws"], 4)
    True
    """

    def small(self, fields: Any, payload: Any) -> bytes:
        """CRC-32 of both."""
        return (zlib.crc32(fields) << 32 | zlib.crc32(payload)).to_bytes(CHECK, "big")

    def of(self, fields: bytes, note: bytes, parts: list[Any], size: int) -> bytes:
        """CRC-32 of the fields, and a checksum of the rest."""
        return (zlib.crc32(fields) << 32 | checksum(parts, size, note)).to_bytes(CHECK, "big")


class Seal:
    """MACs of one direction of a connection.

    Parameters
    ----------
    key
        32 bytes that only the two ends know, and never used for anything else.

    Examples
    --------
    >>> ours, theirs = Seal(bytes(32)), Seal(bytes(32))
    >>> ours.small(b"fields", b"rows") == theirs.of(b"fields", b"", [b"ro", b"ws"], 4)
    True
    >>> ours.small(b"fields", b"rows") == ours.small(b"fields", b"rows")  # a frame that is repeated
    False
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._all = hashlib.blake2b(key=key, digest_size=CHECK, person=b"steelyard frame")
        """Of all frames so far: their number and order are part of it."""
        self._hashing: Any = None

    def small(self, fields: Any, payload: Any) -> bytes:
        """The MAC of a small frame."""
        if len(payload) >= _HASHED:
            return self.of(fields, b"", [payload], len(payload))
        made = self._all
        made.update(fields)
        made.update(payload)
        return made.digest()

    def of(self, fields: bytes, note: bytes, parts: list[Any], size: int) -> bytes:
        """The MAC of any frame."""
        made = self._all
        made.update(fields)
        made.update(note)
        if size < _HASHED:
            for part in parts:
                made.update(part)
        else:
            hashes, key = self._hashing or self._load()
            for blocks in whole_blocks(fewer(parts), _HASHED):
                made.update(hashes(blocks, key))
        return made.digest()

    def _load(self) -> Any:
        from steelyard.kernels.nh import KEY, block_hashes, key_of  # noqa: PLC0415 - inside TLS nothing needs it

        stretched = hashlib.shake_256(b"steelyard blocks" + self._key).digest(KEY)
        self._hashing = block_hashes, key_of(stretched)
        return self._hashing


def compiled() -> None:
    """Have large payloads hashed without a wait: what hashes them may take seconds to load or to compile.

    Else the first of them would do that, in a connection that meanwhile gives no sign of life.
    """
    Seal(b"").of(b"", b"", [bytes(_HASHED)], _HASHED)


def whole_blocks(parts: Iterable[Any], block: int) -> Iterator[Any]:
    """Parts as buffers with whole numbers of blocks, not copied where a block is in one part; the last is filled up.

    >>> [bytes(one) for one in whole_blocks([b"abc", b"defghijk", b"l"], 4)]
    [b'abcd', b'efgh', b'ijkl']
    >>> [bytes(one) for one in whole_blocks([b"abcde"], 4)]
    [b'abcd', b'e\\x00\\x00\\x00']
    """
    rest = b""
    for part in parts:
        view = memoryview(part).cast("B")
        if rest:
            missing = block - len(rest)
            rest += view[:missing].tobytes()
            view = view[missing:]
            if len(rest) < block:
                continue
            yield rest
        whole = len(view) // block * block
        if whole:
            yield view[:whole]
        rest = view[whole:].tobytes()
    if rest:
        yield rest.ljust(block, b"\0")


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
    folded = np.uint64(0)
    for words in whole_blocks(fewer(parts), _WORD):
        folded ^= np.bitwise_xor.reduce(np.frombuffer(words, np.uint64))
    return zlib.crc32(folded.tobytes(), found)


def fewer(parts: list[Any]) -> list[Any]:
    """The same bytes, with neighbours that are small in one part."""
    if len(parts) == 1:
        return parts
    made: list[Any] = []
    for small, group in groupby(parts, lambda part: len(part) < _SMALL_PART):
        neighbours = list(group)
        made += [b"".join(neighbours)] if small else neighbours
    return made
