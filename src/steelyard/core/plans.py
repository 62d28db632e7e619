"""Plans: which rows of a batch go to which block, and which key clusters to which bucket.

Metrics are those of the dissertation on Prompt (Abdelhamid 2021, section 2.3.3, Eq 2.2 to 2.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from steelyard.core.counts import Ints, KeyCounts
from steelyard.core.shown import Shown, counted

Floats = np.ndarray[Any, np.dtype[np.float64]]


class RowRule(Enum):
    """Where a row goes whose key a plan does not list."""

    HASH = "hash"
    """By a hash of its key: every row of a key meets in one block."""
    ROUND_ROBIN = "round_robin"
    """By its position in the input: block sizes are equal, keys are spread."""
    ARRIVAL = "arrival"
    """By its arrival time: the interval is cut into as many equal parts as there are blocks."""
    IN_PLACE = "in_place"
    """Nowhere: every row, listed or not, stays in the partition it is read in."""


@dataclass(frozen=True, eq=False)
class BlockPlan(Shown):
    """Fragments of keys in blocks: fragment f puts `rows[f]` rows of key `key[f]` into block `block[f]`.

    Parameters
    ----------
    counts
        The key counts that the plan was made for.
    blocks
        Number of blocks (map tasks), p in the paper.
    key, block
        int32[fragments]: position in `counts.keys`, and the block. Sorted by key, then by block.
    rows
        int64[fragments]: rows of the fragment, all positive.
    rule
        What happens to keys that `counts` does not list.
    policy
        Who made it, for reports.

    Examples
    --------
    >>> counts = KeyCounts.of({"a": 6, "b": 2})
    >>> plan = BlockPlan.of(counts, 2, key=[0, 0, 1], block=[0, 1, 1], rows=[4, 2, 2], policy="by hand")
    >>> plan
    BlockPlan(by hand: 2 keys, 8 rows in 2 blocks of 4 to 4 rows; BSI 0.0, BCI 1.0, KSR 1.500, 1 split key)
    """

    counts: KeyCounts
    blocks: int
    key: np.ndarray[Any, np.dtype[np.int32]]
    block: np.ndarray[Any, np.dtype[np.int32]]
    rows: Ints
    rule: RowRule = RowRule.HASH
    policy: str = ""

    @classmethod
    def of(
        cls,
        counts: KeyCounts,
        blocks: int,
        *,
        key: Any,
        block: Any,
        rows: Any,
        rule: RowRule = RowRule.HASH,
        policy: str = "",
    ) -> BlockPlan:
        """A plan from fragments in any order; fragments of the same key in the same block are joined.

        Fragments without rows are left out. A key, a block or a number of rows that cannot be is a ValueError.
        """
        key_array = np.asarray(key, dtype=np.int64)
        block_array = np.asarray(block, dtype=np.int64)
        row_array = np.asarray(rows, dtype=np.int64)
        at_least_one_block(blocks)
        _within("key", key_array, len(counts))
        _within("block", block_array, blocks)
        if row_array.min(initial=0) < 0:
            raise ValueError(f"a fragment cannot have {row_array.min()} rows")
        code = key_array * blocks + block_array
        order = np.argsort(code, kind="stable")
        code, row_array = code[order], row_array[order]
        first = np.flatnonzero(np.r_[True, code[1:] != code[:-1]]) if len(code) else np.empty(0, np.int64)
        joined = np.add.reduceat(row_array, first) if len(first) else row_array
        kept = joined > 0
        code, joined = code[first][kept], joined[kept]
        return cls(
            counts,
            int(blocks),
            (code // blocks).astype(np.int32),
            (code % blocks).astype(np.int32),
            joined.astype(np.int64),
            rule,
            policy,
        )

    @cached_property
    def sizes(self) -> Ints:
        """int64[blocks]: planned rows of each block, |B_i|; the unlisted tail counts as spread evenly."""
        return sums(self.block, self.rows, self.blocks) + spread(self.counts.tail_rows, self.blocks)

    @cached_property
    def cardinalities(self) -> Ints:
        """int64[blocks]: distinct keys of each block, ||B_i||; the tail's counted as spread evenly."""
        listed = np.bincount(self.block, minlength=self.blocks).astype(np.int64)
        return listed + spread(self.counts.tail_keys, self.blocks)

    @cached_property
    def fragments_of_key(self) -> Ints:
        """int64[keys]: in how many blocks each listed key stands."""
        return np.bincount(self.key, minlength=len(self.counts)).astype(np.int64)

    @cached_property
    def split(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool[keys]: the reference table; True where a key stands in more than one block."""
        return np.asarray(self.fragments_of_key > 1)

    @property
    def bsi(self) -> float:
        """Block size imbalance: largest block minus the mean (Eq 2.2). 0 is best."""
        return float(self.sizes.max() - self.sizes.mean())

    @property
    def bci(self) -> float:
        """Block cardinality imbalance against the ideal mean K/p.

        Eq 2.4 as printed takes the mean over blocks (`bci_literal`), under which shuffling looks excellent,
        since every block then holds nearly every key. The published figures agree with K/p instead.
        """
        return float(self.cardinalities.max() - self.counts.distinct / self.blocks)

    @property
    def bci_literal(self) -> float:
        """Block cardinality imbalance as Eq 2.4 is printed: against the mean over the blocks."""
        return float(self.cardinalities.max() - self.cardinalities.mean())

    @property
    def ksr(self) -> float:
        """Key split ratio: fragments over keys (Eq 2.5). 1 is best: no key is split."""
        keys = self.counts.distinct
        return float((len(self.rows) + self.counts.tail_keys) / keys) if keys else 1.0

    def mpi(self, size: float = 1 / 3, cardinality: float = 1 / 3, split: float = 1 / 3) -> float:
        """Micro-batch partitioning imbalance as printed (Eq 2.6): a weighted sum of BSI, BCI and KSR."""
        _weights_add_up(size, cardinality, split)
        return size * self.bsi + cardinality * self.bci + split * self.ksr

    def mpi_normalised(self, size: float = 1 / 3, cardinality: float = 1 / 3, split: float = 1 / 3) -> float:
        """Eq 2.6 with BSI over N/p, BCI over K/p and KSR - 1, so that no term dwarfs the others."""
        _weights_add_up(size, cardinality, split)
        if not self.counts.total or not self.counts.distinct:
            return 0.0
        rows = self.counts.total / self.blocks
        keys = self.counts.distinct / self.blocks
        return size * self.bsi / rows + cardinality * self.bci / keys + split * (self.ksr - 1)

    @property
    def largest_over_mean(self) -> float:
        """Largest block over the mean block; 1 is best, and what a straggling map task costs."""
        mean = float(self.sizes.mean())
        return float(self.sizes.max()) / mean if mean else 1.0

    @property
    def metrics(self) -> dict[str, float]:
        """BSI, BCI, KSR, largest over mean and keys that are cut, by their names in reports; empty without keys."""
        if not len(self.counts):
            return {}
        return {
            "bsi": self.bsi,
            "bci": self.bci,
            "ksr": self.ksr,
            "largest_over_mean": self.largest_over_mean,
            "split_keys": float(self.split.sum()),
        }

    def check(self) -> None:
        """Raise AssertionError unless every listed row is placed exactly once, in a block that exists."""
        assert self.blocks > 0, f"{self.blocks} blocks"
        assert len(self.key) == len(self.block) == len(self.rows), "fragment arrays differ in length"
        if not len(self.rows):
            assert not len(self.counts), f"{len(self.counts)} keys are listed and none is placed"
            return
        assert self.rows.min() > 0, "an empty fragment"
        assert self.key.min() >= 0, "a fragment of no key"
        assert self.key.max() < len(self.counts), "a fragment of no key"
        assert self.block.min() >= 0, "a fragment in no block"
        assert self.block.max() < self.blocks, "a fragment in no block"
        code = self.key.astype(np.int64) * self.blocks + self.block
        assert np.all(np.diff(code) > 0), "fragments are not sorted, or one stands twice"
        placed = sums(self.key, self.rows, len(self.counts))
        wrong = np.flatnonzero(placed != self.counts.rows)
        assert not len(wrong), f"key {wrong[0]}: {placed[wrong[0]]} of {self.counts.rows[wrong[0]]} rows placed"

    def _facts(self) -> Mapping[str, object]:
        sizes = f"{self.sizes.min():,} to {self.sizes.max():,}, largest {self.largest_over_mean:.2f} times the mean"
        return {
            "policy": self.policy,
            "keys": self.counts.distinct,
            "rows": self.counts.total,
            "blocks": self.blocks,
            "rows per block": sizes,
            "BSI": self.bsi,
            "BCI": self.bci,
            "KSR": self.ksr,
            "split keys": int(self.split.sum()),
            "keys not listed": self.rule.value,
        }

    def __repr__(self) -> str:
        split = int(self.split.sum())
        return (
            f"BlockPlan({self.policy or 'unnamed'}: {counted(self.counts.distinct, 'key')}, "
            f"{counted(self.counts.total, 'row')} in {counted(self.blocks, 'block')} of {self.sizes.min()} to "
            f"{self.sizes.max()} rows; BSI {self.bsi:.1f}, BCI {self.bci:.1f}, KSR {self.ksr:.3f}, "
            f"{counted(split, 'split key')})"
        )


@dataclass(frozen=True, eq=False)
class BucketPlan(Shown):
    """Which bucket (reduce task) each key cluster of one map task goes to.

    Parameters
    ----------
    bucket
        int32[clusters]: the bucket of each cluster.
    weights
        int64[clusters]: what each cluster weighs (records, rows or bytes).
    buckets
        Number of buckets, r in the paper.
    """

    bucket: np.ndarray[Any, np.dtype[np.int32]]
    weights: Ints
    buckets: int

    @cached_property
    def loads(self) -> Ints:
        """int64[buckets]: weight of each bucket."""
        return sums(self.bucket, self.weights, self.buckets)

    @cached_property
    def cardinalities(self) -> Ints:
        """int64[buckets]: clusters of each bucket."""
        return np.bincount(self.bucket, minlength=self.buckets).astype(np.int64)

    @property
    def bsi(self) -> float:
        """Bucket size imbalance: heaviest bucket minus the mean (Eq 2.3)."""
        return float(self.loads.max() - self.loads.mean())

    def check(self) -> None:
        """Raise AssertionError unless every cluster has a bucket that exists."""
        assert len(self.bucket) == len(self.weights), "one bucket a cluster"
        assert np.all((self.bucket >= 0) & (self.bucket < self.buckets)), "a cluster in no bucket"

    def _facts(self) -> Mapping[str, object]:
        loads = f"{self.loads.min():,} to {self.loads.max():,}"
        return {"clusters": len(self.bucket), "buckets": self.buckets, "weight per bucket": loads, "BSI": self.bsi}

    def __repr__(self) -> str:
        loads = f"{self.loads.min()} to {self.loads.max()}"
        return f"BucketPlan({len(self.bucket)} clusters in {self.buckets} buckets of {loads}; BSI {self.bsi:.1f})"


def spread(amount: int, parts: int) -> Ints:
    """`amount` cut into `parts` whole numbers that differ by one at most.

    >>> spread(7, 3).tolist()
    [3, 2, 2]
    """
    return np.full(parts, amount // parts, dtype=np.int64) + (np.arange(parts) < amount % parts)


def sums(part: np.ndarray[Any, Any], amounts: Ints, parts: int) -> Ints:
    """int64[parts]: the amounts of each part. `np.bincount` would add them as floats, inexact above 2^53.

    >>> sums(np.array([0, 2, 0]), np.array([5, 1, 2]), 3).tolist()
    [7, 0, 1]
    """
    totals = np.zeros(parts, dtype=np.int64)
    np.add.at(totals, part, np.asarray(amounts, dtype=np.int64))
    return totals


def at_least_one_block(blocks: int) -> None:
    """Raise ValueError for a number of blocks that no batch can be cut into."""
    if blocks < 1:
        raise ValueError(f"a plan has at least one block, got blocks={blocks}")


def _within(what: str, given: Ints, limit: int) -> None:
    outside = (given < 0) | (given >= limit)
    if outside.any():
        raise ValueError(f"there is no {what} {given[outside][0]} among {limit}, numbered from 0")


def _weights_add_up(*weights: float) -> None:
    if abs(sum(weights) - 1) > 1e-9 or min(weights) < 0:
        raise ValueError(f"the weights of MPI must be positive and add up to 1, got {weights}")
