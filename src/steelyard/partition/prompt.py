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
Scan = Literal["all", "first_small"]
SCANS = ("all", "first_small")


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
    paper: ClassVar[str] = "Abdelhamid 2021, Algorithm 2"
    needs_counts: ClassVar[bool] = True
    buffers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for option, value, known in (
            ("residual_order", self.residual_order, ("ascending", "insertion")),
            ("zigzag_start", self.zigzag_start, ("restart", "continue")),
        ):
            if value not in known:
                raise OptionError.unknown(f"{option} of {self.name}", value, known)

    def plan(self, counts: KeyCounts, blocks: int) -> BlockPlan:
        """Sort the keys, then Algorithm 2 in its three phases."""
        order = self.order(counts)
        key, block, rows = self._fragments(counts.rows[order], blocks, "all")
        return BlockPlan.of(counts, blocks, key=order[key], block=block, rows=rows, policy=self.name)

    def plan_sorted(self, counts: KeyCounts, blocks: int, scan: Scan = "all") -> BlockPlan:
        """Algorithm 2 for keys that come nearly in descending order, as `Accumulated.counts` does: no sort.

        Parameters
        ----------
        counts
            Exact counts, of which only the order may be a little wrong.
        blocks
            Number of blocks.
        scan
            `"all"` looks at every key for those above the mean, and orders their rests by size: the order of
            the list then hardly matters. `"first_small"` is the listing taken literally: what comes after
            the first small key is dealt whole, even where it is large, and rests keep the order of the list.

        Examples
        --------
        >>> counts = KeyCounts.of({"a": 30, "b": 2, "hot": 80, "c": 3})
        >>> Prompt().plan_sorted(counts, 2).sizes.tolist()
        [57, 58]
        >>> Prompt().plan_sorted(counts, 2, scan="first_small").sizes.tolist()
        [35, 80]
        """
        if scan not in SCANS:
            raise OptionError.unknown(f"scan of {self.name}", scan, SCANS)
        key, block, rows = self._fragments(counts.rows, blocks, scan)
        return BlockPlan.of(counts, blocks, key=key, block=block, rows=rows, policy=self.name)

    @staticmethod
    def order(counts: KeyCounts) -> Ints:
        """int64[keys]: the keys in descending order of their counts; equal ones as they are listed."""
        return np.argsort(-counts.rows, kind="stable")

    @staticmethod
    def after_cut_off(sort_seconds: float, plan_seconds: float) -> float:
        """What of a batch's partitioning is left to do at the cut-off: keys were ordered as they arrived."""
        return plan_seconds

    def _fragments(self, rows: Ints, blocks: int, scan: Scan) -> tuple[Ints, Ints, Ints]:
        """Key (position in `rows`), block and rows of each fragment."""
        from steelyard.kernels.packing import place_residuals  # noqa: PLC0415 - tasks need no compiler

        at_least_one_block(blocks)
        if not len(rows):
            return rows, rows, rows
        # P_size = ceil(N / P);  S_cut = P_size / P_card with P_card = max(1, K / P): the mean key frequency
        capacity = -(-int(rows.sum()) // blocks)
        cut = max(1, capacity * blocks // max(blocks, len(rows)))
        large, small = _large_and_small(rows, cut, scan)

        turn, home = np.divmod(np.arange(len(large)), blocks)
        # Large keys that are not a multiple of the blocks can overfill the first of them (the listing does not
        # look), so the last slices are thinner: no block ever holds more than P_size.
        slices = np.clip(capacity - turn * cut, 0, cut)
        whole = _zigzag(len(small), blocks, len(large) if self.zigzag_start == "continue" else 0)
        sizes = sums(home, slices, blocks)
        # A large key that a literal scan has missed stays where it was dealt, as the listing would leave it.
        moved = _overflow(whole, rows[small], sizes, capacity) & (rows[small] <= cut)
        sizes = sizes + sums(whole[~moved], rows[small][~moved], blocks)

        # Rests in descending order: the large keys' by insertion, then small keys that overflowed, which
        # have no home. Reversed, the smallest rests go home first, and only a few hot keys are cut.
        by_size = scan == "all" and self.residual_order == "ascending"
        first = np.argsort(-rows[large], kind="stable") if by_size else np.arange(len(large))
        rest_key = np.r_[large[first], small[moved]]
        rest_rows = np.r_[(rows[large] - slices)[first], rows[small][moved]]
        rest_home = np.r_[home[first], np.full(int(moved.sum()), -1, dtype=np.int64)]
        if self.residual_order == "ascending":
            rest_key, rest_rows, rest_home = rest_key[::-1], rest_rows[::-1], rest_home[::-1]
        which, block, put = place_residuals(
            sizes,
            capacity,
            np.ascontiguousarray(rest_home, dtype=np.int64),
            np.ascontiguousarray(rest_rows, dtype=np.int64),
        )
        return (
            np.r_[large, small[~moved], rest_key[which]],
            np.r_[home, whole[~moved], block],
            np.r_[slices, rows[small][~moved], put],
        )


def _large_and_small(rows: Ints, cut: int, scan: Scan) -> tuple[Ints, Ints]:
    """Positions of the keys with more than `cut` rows, and of the others; both in the order of the list."""
    is_large = rows > cut
    if scan == "first_small":
        is_large = np.logical_and.accumulate(is_large)
    return np.flatnonzero(is_large), np.flatnonzero(~is_large)


def _zigzag(keys: int, blocks: int, start: int) -> Ints:
    """Blocks of `keys` keys dealt forward, then backward, and so on: 0 1 2 2 1 0 0 1 2 …"""
    position = np.arange(keys) + start % blocks
    turn, step = np.divmod(position, blocks)
    return np.where(turn % 2 == 0, step, blocks - 1 - step)


def _overflow(block: Ints, rows: Ints, sizes: Ints, capacity: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The whole keys that no longer fit into their block, which rounding can bring about.

    Keys come in (nearly) descending order, so that what is taken out again is (nearly) each block's smallest.
    """
    order = np.argsort(block, kind="stable")
    running = np.cumsum(rows[order])
    first = np.searchsorted(block[order], np.arange(len(sizes)), side="left")
    before = np.r_[0, running][first]
    filled = running - before[block[order]] + sizes[block[order]]
    moved = np.zeros(len(rows), dtype=bool)
    moved[order] = filled > capacity
    return moved
