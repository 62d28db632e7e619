"""Hashes of 64-bit key ids, alike in NumPy, in compiled loops and in every process."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.kernels.compiled import njit

Ints = np.ndarray[Any, np.dtype[np.int64]]


@njit(inline="always")
def mix(key: int, seed: int) -> np.uint64:
    """The finaliser of SplitMix64 over `key + seed * golden`: another hash of the same key for every seed."""
    x = np.uint64(key) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(inline="always")
def home(key: int, blocks: int) -> int:
    """The hash block of a key: `pmod(id, blocks)`, as Spark has it."""
    return key % blocks
