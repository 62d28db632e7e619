"""Key counts of every shape that a partitioner may meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from steelyard.core import KeyCounts

HUGE = 10**12


def keys_of(kind: str, number: int) -> pa.Array:
    """`number` distinct keys."""
    numbers = range(number)
    if kind == "strings":
        return pa.array([f"key {n}" for n in numbers], pa.string())
    if kind == "structs":
        rows = [{"city": f"c{n % 3}", "lane": n} for n in numbers]
        return pa.array(rows, pa.struct([("city", pa.string()), ("lane", pa.int32())]))
    return pa.array(numbers, pa.int64())


def zipf_counts(keys: int, rows: int, exponent: float, seed: int) -> KeyCounts:
    """Counts of `rows` draws from a Zipf distribution over `keys` keys."""
    shares = np.arange(1, keys + 1) ** -float(exponent)
    drawn = np.random.default_rng(seed).multinomial(rows, shares / shares.sum())
    present = np.flatnonzero(drawn)
    return KeyCounts(pa.array(present), drawn[present])


def _zipf_like(draw: Any) -> list[int]:
    hottest, exponent = draw(st.integers(1, 10_000)), draw(st.floats(0, 2.5))
    return [max(1, int(hottest / rank**exponent)) for rank in range(1, draw(st.integers(1, 60)) + 1)]


@st.composite
def key_counts(draw: Any, tail: bool = True) -> KeyCounts:
    """Zipf-like, tied, huge, single or no counts, of keys of several types, in any order."""
    shape = draw(st.sampled_from(["zipf", "ties", "any", "huge", "one", "none"]))
    if shape == "zipf":
        rows = draw(st.permutations(_zipf_like(draw)))
    elif shape == "ties":
        rows = draw(st.lists(st.sampled_from([1, 2, 7, 20]), min_size=1, max_size=60))
    elif shape == "any":
        rows = draw(st.lists(st.integers(1, 1000), max_size=40))
    elif shape == "huge":
        rows = draw(st.lists(st.integers(HUGE - 50, HUGE * 1000), min_size=1, max_size=20))
    else:
        rows = [draw(st.integers(1, HUGE))] if shape == "one" else []
    keys = keys_of(draw(st.sampled_from(["strings", "longs", "structs"])), len(rows))
    tail_keys = draw(st.integers(0, 20)) if tail else 0
    tail_rows = tail_keys * draw(st.integers(1, 9))
    return KeyCounts(keys, np.array(rows, dtype=np.int64), tail_rows, tail_keys)
