"""The plain twin of `distance_ragged`, of sets and sequences of Python."""

from __future__ import annotations

from typing import Any

from steelyard.kernels.distance_ragged import JACCARD


def distance_plain(kind: int, first: Any, second: Any) -> float:
    """The plain twin of both distances, of two sequences.

    >>> from steelyard.kernels.distance_ragged import HAMMING
    >>> distance_plain(JACCARD, [1, 2, 3], [2, 3, 4]), distance_plain(HAMMING, "karol", "carol")
    (0.5, 0.2)
    """
    if kind == JACCARD:
        a, b = set(first), set(second)
        return len(a ^ b) / len(a | b) if a or b else 0.0
    if len(first) != len(second):
        return 1.0
    different = sum(x != y for x, y in zip(first, second, strict=True))
    return different / len(first) if len(first) else 0.0
