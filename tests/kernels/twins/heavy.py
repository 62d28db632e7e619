"""The plain twin of the count-min sketch in `heavy`."""

from __future__ import annotations

from steelyard.kernels.heavy import SKETCH_SEED, Ints
from tests.kernels.twins.mixing import choice_plain


def sketch_add_plain(sketch: Ints, key: int) -> int:
    """The plain twin of `sketch_add`."""
    depth, width = sketch.shape
    estimates = []
    for line in range(depth):
        hashed = choice_plain(key, SKETCH_SEED + line, 1 << 64) >> 32
        column = (hashed * width) >> 32
        sketch[line, column] += 1
        estimates.append(int(sketch[line, column]))
    return min(estimates)
