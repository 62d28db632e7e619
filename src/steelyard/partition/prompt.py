"""Prompt's batch partitioner: balanced bin packing with fragmentable items (B-BPFI).

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from steelyard.core import BlockPlan, KeyCounts, OptionError
from steelyard.core.plans import at_least_one_block, sums

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Prompt:
    """Blocks of equal size and equal numbers of keys, with as few keys cut as that allows.

    A key above the mean frequency gets a first slice in turn, the others are dealt whole in zig-zag, and what
    is left of the large keys fills the holes.

    Parameters
    ----------
    residual_order
        In which order the rests of large keys are placed. The listing gives none; `"ascending"` cuts a
        handful of hot keys, `"insertion"` (descending, the literal reading) cuts a hundred times more.
    zigzag_start
        Where the whole keys begin: `"restart"` at block 0 as printed, `"continue"` where the slices ended.

    Examples
    --------
    >>> counts = KeyCounts.of(dict(K1=140, K2=88, K3=45, K4=40, K5=30, K6=22, K7=12, K8=8))
    >>> Prompt().plan(counts, blocks=4)
    BlockPlan(prompt: 8 keys, 385 rows in 4 blocks of 94 to 97 rows; BSI 0.8, BCI 2.0, KSR 1.375, 2 split keys)
    """

    residual_order: Literal["ascending", "insertion"] = "ascending"
    zigzag_start: Literal["restart", "continue"] = "restart"

    name: ClassVar[str] = "prompt"
    needs_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for option, value, known in (
            ("residual_order", self.residual_order, ("ascending", "insertion")),
            ("zigzag_start", self.zigzag_start, ("restart", "continue")),
        ):
            if value not in known:
                raise OptionError.unknown(f"{option} of prompt", value, known)

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Algorithm 2 in its three phases."""
        from steelyard.kernels.packing import place_residuals  # noqa: PLC0415 - tasks need no compiler

        at_least_one_block(blocks)
        if not len(counts):
            return BlockPlan.of(counts, blocks, key=[], block=[], rows=[], policy=self.name)
        order = np.argsort(-counts.rows, kind="stable")
        rows = counts.rows[order]
        total = int(rows.sum())
        # P_size = ceil(N / P);  S_cut = P_size / P_card with P_card = max(1, K / P): the mean key frequency
        capacity = -(-total // blocks)
        cut = max(1, capacity * blocks // max(blocks, len(rows)))
        large = int(np.searchsorted(-rows, -cut, side="left"))  # keys with more than `cut` rows

        turn, home = np.divmod(np.arange(large), blocks)
        # Large keys that are not a multiple of the blocks can overfill the first of them (the listing does not
        # look), so the last slices are thinner: no block ever holds more than P_size.
        slices = np.clip(capacity - turn * cut, 0, cut)
        whole = _zigzag(len(rows) - large, blocks, large if self.zigzag_start == "continue" else 0)
        sizes = sums(home, slices, blocks)
        moved = _overflow(whole, rows[large:], sizes, capacity)
        sizes = sizes + sums(whole[~moved], rows[large:][~moved], blocks)

        # Rests in descending order: the large keys' by insertion, then small keys that overflowed, which
        # have no home. Reversed, the smallest rests go home first, and only a few hot keys are cut.
        rest_key = np.r_[np.arange(large), large + np.flatnonzero(moved)]
        rest_rows = np.r_[rows[:large] - slices, rows[large:][moved]]
        rest_home = np.r_[home, np.full(int(moved.sum()), -1, dtype=np.int64)]
        if self.residual_order == "ascending":
            rest_key, rest_rows, rest_home = rest_key[::-1], rest_rows[::-1], rest_home[::-1]
        which, block, put = place_residuals(
            sizes,
            capacity,
            np.ascontiguousarray(rest_home, dtype=np.int64),
            np.ascontiguousarray(rest_rows, dtype=np.int64),
        )
        stays = np.flatnonzero(~moved)
        return BlockPlan.of(
            counts,
            blocks,
            key=order[np.r_[np.arange(large), large + stays, rest_key[which]].astype(np.int64)],
            block=np.r_[home, whole[stays], block],
            rows=np.r_[slices, rows[large:][stays], put],
            policy=self.name,
        )


def _zigzag(keys: int, blocks: int, start: int) -> Ints:
    """Blocks of `keys` keys dealt forward, then backward, and so on: 0 1 2 2 1 0 0 1 2 …"""
    position = np.arange(keys) + start % blocks
    turn, step = np.divmod(position, blocks)
    return np.where(turn % 2 == 0, step, blocks - 1 - step)


def _overflow(block: Ints, rows: Ints, sizes: Ints, capacity: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The whole keys that no longer fit into their block, which rounding can bring about.

    Keys come in descending order, so that what is taken out again is each block's smallest.
    """
    order = np.argsort(block, kind="stable")
    running = np.cumsum(rows[order])
    first = np.searchsorted(block[order], np.arange(len(sizes)), side="left")
    before = np.r_[0, running][first]
    filled = running - before[block[order]] + sizes[block[order]]
    moved = np.zeros(len(rows), dtype=bool)
    moved[order] = filled > capacity
    return moved
