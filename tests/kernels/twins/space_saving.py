"""The plain twin of `space_saving`: the counters are a list."""

from __future__ import annotations


def observe_plain(top: list[tuple[int, int, int]], counters: int, key: int) -> int:
    """The plain twin of `observe`, on a list such as `entries` gives.

    >>> top = []
    >>> [observe_plain(top, 2, key) for key in (7, 7, 8, 9, 7)], top
    ([0, 0, 1, 1, 0], [(7, 3, 0), (9, 2, 1)])
    """
    keys = [entry[0] for entry in top]
    if key in keys:
        place = keys.index(key)
    elif len(top) < counters:
        place = len(top)
        top.append((key, 0, 0))
    else:
        place = counters - 1
        smallest = top[place][1]
        top[place] = (key, smallest, smallest)
    counts = [entry[1] for entry in top]
    front = counts.index(counts[place])
    top[front], top[place] = top[place], top[front]
    top[front] = (key, counts[place] + 1, top[front][2])
    return front
