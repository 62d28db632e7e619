"""NH, the universal hash inside UMAC (RFC 4418): two messages of one length have the same with a chance of 2^-64.

Only with a secret key, and only as a step of a MAC that hides it (`resident.seal`): alone it protects nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

BLOCK = 8192
"""Bytes that become `HASH`."""
HASH = 16
_PAIRS = BLOCK // 8
KEY = 2 * 4 * (_PAIRS + 1)
"""Bytes of a key: that of the second half of a hash is that of the first, moved by one pair (Toeplitz)."""

UInts32 = np.ndarray[Any, np.dtype[np.uint32]]
UInts64 = np.ndarray[Any, np.dtype[np.uint64]]


def key_of(data: bytes) -> UInts32:
    """uint32[2, pairs + 1] of `KEY` bytes."""
    return np.frombuffer(data, "<u4").reshape(2, _PAIRS + 1)


def block_hashes(data: Any, key: UInts32) -> bytes:
    """`HASH` bytes of each `BLOCK` bytes of a buffer that has a whole number of them.

    >>> len(block_hashes(bytes(3 * BLOCK), key_of(bytes(KEY))))
    48
    """
    words = np.frombuffer(data, "<u4")
    if not words.flags.aligned:
        words = words.copy()
    words.flags.writeable = False  # whatever the buffer: for the compiler, arrays that can be written are another type
    found = np.empty((len(words) // (2 * _PAIRS), 2), np.uint64)
    _hash(words.reshape(-1, 2, _PAIRS), key, found)
    return found.tobytes()


@njit(nogil=True)
def _hash(words: UInts32, key: UInts32, found: UInts64) -> None:
    for block in range(words.shape[0]):
        first, second = np.uint64(0), np.uint64(0)
        for i in range(_PAIRS):
            left, right = words[block, 0, i], words[block, 1, i]
            first += np.uint64(np.uint32(left + key[0, i])) * np.uint64(np.uint32(right + key[1, i]))
            second += np.uint64(np.uint32(left + key[0, i + 1])) * np.uint64(np.uint32(right + key[1, i + 1]))
        found[block, 0], found[block, 1] = first, second
