"""The plain twin of the hash that candidates of keys come from."""

from __future__ import annotations

GOLDEN = 0x9E3779B97F4A7C15


def choice_plain(key: int, number: int, blocks: int) -> int:
    """The plain twin of `choices.candidate`.

    >>> from steelyard.kernels.choices import candidate
    >>> [choice_plain(7, number, 5) == candidate(7, number, 5) for number in range(4)]
    [True, True, True, True]
    """
    if number == 0:
        return key % blocks
    mask = (1 << 64) - 1
    x = (key + number * GOLDEN) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return int((x ^ (x >> 31)) % blocks)
