"""The plain twins of `fragments`."""

from __future__ import annotations

import numpy as np

from steelyard.kernels.fragments import Ints
from steelyard.kernels.key_table import Slots


def number_keys_plain(keys: Ints) -> tuple[Ints, Ints, Slots]:
    """The plain twin of `number_keys`."""
    rows: dict[int, int] = {}
    for key in keys.tolist():
        rows[key] = rows.get(key, 0) + 1
    number = {key: i for i, key in enumerate(rows)}
    return (
        np.array(list(rows), np.int64),
        np.array(list(rows.values()), np.int64),
        np.array([number[key] for key in keys.tolist()], np.int32),
    )


def tally_plain(block: Slots, laid: Ints, rows: Ints, blocks: int) -> tuple[list[int], list[int], list[int]]:
    """The plain twin of `tally`, with the fragments of a key in the order of blocks."""
    fragments: list[tuple[int, int, int]] = []
    first = 0
    for key, (sample, whole) in enumerate(zip(laid.tolist(), rows.tolist(), strict=True)):
        sent = np.bincount(block[first : first + sample], minlength=blocks).tolist()
        first += sample
        shares = [whole * number // sample if sample else 0 for number in sent]
        by_remainder = sorted(range(blocks), key=lambda j: (-(whole * sent[j] % max(sample, 1)), j))
        for j in by_remainder[: whole - sum(shares) if sample else 0]:
            shares[j] += 1
        fragments += [(key, j, share) for j, share in enumerate(shares) if share]
    key_of, block_of, rows_of = ([fragment[part] for fragment in fragments] for part in range(3))
    return key_of, block_of, rows_of


def follow_plain(numbers: Slots, starts: Ints, block: Slots, rows: Ints) -> list[int]:
    """The plain twin of `follow`."""
    queues = [
        [int(block[f]) for f in range(starts[k], starts[k + 1]) for _ in range(rows[f])] for k in range(len(starts) - 1)
    ]
    return [queues[number].pop(0) for number in numbers.tolist()]


def in_order_plain(block: Slots, blocks: int) -> tuple[list[int], list[int]]:
    """The plain twin of `in_order`."""
    rows = sorted(range(len(block)), key=lambda row: int(block[row]))
    return rows, np.bincount(block, minlength=blocks).tolist()
