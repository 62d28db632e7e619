"""Who cuts what: how the rows that each receiver has of a batch are shared out among the blocks.

A receiver fills the blocks of its own worker first, so that rows move only where a worker has read more than its map
tasks are to take. Blocks come out equal, whatever the receivers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from steelyard.resident.groups.plan import ExecutionPlan


class Share(NamedTuple):
    """What one receiver puts where."""

    whole: tuple[int, ...]
    """Blocks that nobody else adds to: its first rows are cut into these by the partitioner."""
    rest: tuple[tuple[int, int], ...] = ()
    """(block, rows) of blocks that others add to as well: its last rows, in their order."""
    alone: bool = True
    """Whether no other receiver has rows of the batch: then its keys are in no block but its own."""


def shares(rows: Sequence[int], plan: ExecutionPlan) -> tuple[list[Share], list[int]]:
    """The share of each receiver, and for each block how many of them add to it.

    A block without rows is the whole block of one receiver too, so that every map task hears of its batch.

    >>> found, parts = shares([60, 40], ExecutionPlan(4, 1, 2))
    >>> [(one.whole, one.rest) for one in found], parts
    ([((0, 2), ((1, 10),)), ((3,), ((1, 15),))], [1, 2, 1, 1])
    """
    total, blocks, receivers = sum(rows), plan.blocks, len(rows)
    full = [total * (block + 1) // blocks - total * block // blocks for block in range(blocks)]
    room, left = list(full), list(rows)
    given: list[dict[int, int]] = [{} for _ in rows]
    # the last of its own blocks first: where it cannot fill all of them, others fill up the first ones
    own = [(who, block) for who in range(receivers) for block in reversed(range(who, blocks, plan.workers))]
    for who, block in (*own, *((who, block) for who in range(receivers) for block in range(blocks))):
        taken = min(left[who], room[block])
        if taken:
            given[who][block] = taken
            left[who] -= taken
            room[block] -= taken
    parts = [sum(block in one for one in given) for block in range(blocks)]
    alone = sum(size > 0 for size in rows) <= 1
    made = []
    for who, one in enumerate(given):
        empty = [block for block in range(blocks) if not parts[block] and block % receivers == who]
        whole = sorted([*(block for block, size in one.items() if size == full[block]), *empty])
        rest = sorted((block, size) for block, size in one.items() if size < full[block])
        made.append(Share(tuple(whole), tuple(rest), alone))
    return made, [max(1, several) for several in parts]
