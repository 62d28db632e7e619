"""The plain twins of `greedy`: every window is counted anew for every row."""

from __future__ import annotations

from steelyard.kernels.greedy import AFFINITY, CARDINALITY, FEWEST_KEYS, HOT_SHARE, WEIGHTED
from tests.kernels.twins.mixing import choice_plain
from tests.kernels.twins.sliding import held_plain, loads_plain


def route_by_holders_plain(
    keys: list[int], times: list[int], blocks: int, slides: int, slide: int, choices: int, rule: int, alpha: float
) -> list[int]:
    """The plain twin of `route_by_holders`, for a stream from its start."""
    block: list[int] = []
    numbers = [time // slide for time in times]
    for row, key in enumerate(keys):
        loads = loads_plain(numbers[:row], block, blocks, slides, numbers[row])
        held = held_plain(numbers[:row], keys[:row], block, slides, numbers[row])
        distinct = [len({k for k, where in held if where == i}) for i in range(blocks)]
        order: list[tuple[float, ...]] = []
        for number in range(choices):
            i = choice_plain(key, number, blocks)
            new = (key, i) not in held
            weighted = (alpha * loads[i] * blocks / sum(loads) if sum(loads) else 0.0) + (1.0 - alpha) * new
            measures = {
                AFFINITY: (new, loads[i]),
                CARDINALITY: (distinct[i] + new, loads[i]),
                WEIGHTED: (weighted,),
                FEWEST_KEYS: (distinct[i],),
            }
            order.append((*measures[rule], -number, i))
        block.append(int(min(order)[-1]))
    return block


def route_greedily_plain(
    keys: list[int], times: list[int], blocks: int, slides: int, slide: int
) -> tuple[list[int], list[bool]]:
    """The plain twin of `route_greedily`, for a stream from its start: blocks and split flags."""
    block: list[int] = []
    split: list[bool] = []
    hot_through: dict[int, int] = {}
    numbers = [time // slide for time in times]
    for row, key in enumerate(keys):
        now = numbers[row]
        loads = loads_plain(numbers[:row], block, blocks, slides, now)
        held = held_plain(numbers[:row], keys[:row], block, slides, now)
        earlier = [number for number in numbers[:row] if number < now]
        last = earlier.count(earlier[-1]) if earlier else 0
        count = sum(1 for q in range(row + 1) if keys[q] == key and numbers[q] == now)
        if last and count > last / (HOT_SHARE * blocks):
            hot_through[key] = now + 1
        hot = hot_through.get(key, now - 1) >= now
        # mean L - (L_i - mean L), times n: the score without its division, so that ties are exact
        scores = [sum(loads) * ((key, i) in held) - (blocks * loads[i] - sum(loads)) for i in range(blocks)]
        block.append(scores.index(max(scores)) if hot else key % blocks)
        split.append(hot or any(k == key and i != key % blocks for k, i in held))
    return block, split
