"""The plain twins of `choices`: every window is counted anew for every row."""

from __future__ import annotations

from steelyard.kernels.choices import BY_INEQUALITIES, choices_needed
from tests.kernels.twins.mixing import choice_plain
from tests.kernels.twins.sliding import loads_plain
from tests.kernels.twins.space_saving import observe_plain


def route_many_plain(
    keys: list[int], times: list[int], blocks: int, slides: int, slide: int, choices: int
) -> list[int]:
    """The plain twin of `route_many`, and with two choices of `route_two`, for a stream from its start."""
    block: list[int] = []
    numbers = [time // slide for time in times]
    for row, key in enumerate(keys):
        totals = loads_plain(numbers[:row], block, blocks, slides, numbers[row])
        block.append(_least_loaded_plain(totals, key, choices))
    return block


def _least_loaded_plain(totals: list[int], key: int, choices: int) -> int:
    candidates = [choice_plain(key, number, len(totals)) for number in range(choices)]
    return min(reversed(candidates), key=lambda where: totals[where])


def route_head_plain(
    keys: list[int],
    times: list[int],
    blocks: int,
    slides: int,
    slide: int,
    counters: int,
    choices: int,
    threshold: float,
    judged: int,
    tolerance: float,
    refresh: int,
) -> list[int]:
    """The plain twin of `route_head`, for a stream from its start."""
    block: list[int] = []
    top: list[tuple[int, int, int]] = []
    numbers = [time // slide for time in times]
    needed, due = 0, 0
    for row, key in enumerate(keys):
        totals = loads_plain(numbers[:row], block, blocks, slides, numbers[row])
        place, seen = observe_plain(top, counters, key), row + 1
        shares = [(count + judged * error) / seen for _, count, error in top]
        if choices == BY_INEQUALITIES and seen >= due:
            head = [share for share in shares if share > threshold]
            needed = choices_needed(blocks, len(head), min(sum(head), 1.0), min(max(head, default=0.0), 1.0), tolerance)
            due = seen + min(seen, refresh)
        many = choices or needed
        in_head = top[place][1] + judged * top[place][2] > threshold * seen
        if in_head and many >= blocks:
            block.append(totals.index(min(totals)))
        else:
            block.append(_least_loaded_plain(totals, key, many if in_head else 2))
    return block
