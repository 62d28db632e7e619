"""Batches to learn from: counts of many shapes, or those of a user's own file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.counts import Ints
from steelyard.partition.learned.transition import MOST_ROWS, Batches


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws batches of count lists.

    Half of them are Zipf-like with exponents of 0 to 2; the others are equal, exponentially distributed, or two crowds
    of hot and cold keys. Numbers of keys and of rows a key are log-uniform.

    Parameters
    ----------
    keys, blocks
        The largest numbers of them.
    rows
        The largest mean of rows a key.
    own
        Counts of a user's batches; if there are any, batches are drawn from them and not from shapes.
    fewest_keys, fewest_blocks
        Of a batch.
    """

    keys: int = 96
    blocks: int = 24
    rows: float = 200.0
    own: Sequence[Ints] = ()
    fewest_keys: int = 4
    fewest_blocks: int = 2

    @property
    def digest(self) -> str:
        """What is the same for two of them that draw the same batches."""
        found = hashlib.sha256(repr((self.keys, self.blocks, self.rows, self.fewest_keys, self.fewest_blocks)).encode())
        for counts in self.own:
            found.update(len(counts).to_bytes(8, "little") + np.ascontiguousarray(counts, "<i8").tobytes())
        return found.hexdigest()

    def draw(self, batches: int, random: np.random.Generator) -> Batches:
        """So many batches."""
        counts = [self._own(random) if self.own else self.shape(random) for _ in range(batches)]
        blocks = random.integers(min(self.fewest_blocks, self.blocks), self.blocks + 1, batches)
        return Batches.of(counts, blocks, self.keys)

    def shape(self, random: np.random.Generator) -> Ints:
        """int64[keys]: one batch's counts."""
        keys = int(np.exp(random.uniform(np.log(self.fewest_keys), np.log(self.keys + 1))))
        mean = np.exp(random.uniform(np.log(2), np.log(self.rows)))
        kind = random.integers(6)
        if kind < 3:
            weights = np.arange(1, keys + 1) ** -random.uniform(0.0, 2.0)
        elif kind == 3:
            weights = np.ones(keys)
        elif kind == 4:
            weights = random.exponential(size=keys)
        else:
            weights = np.ones(keys)
            weights[: max(1, keys // int(random.integers(4, 20)))] = random.uniform(2, 50)
        drawn = random.multinomial(int(mean * keys), weights / weights.sum())
        return np.maximum(drawn, 1).astype(np.int64)

    def _own(self, random: np.random.Generator) -> Ints:
        """A batch of the user's; of one with too many keys or rows, a part whose shape is the same."""
        counts = self.own[int(random.integers(len(self.own)))]
        if len(counts) <= self.keys:
            return _fewer_rows(counts)
        counts = np.sort(counts)[::-1]
        # every n-th of the sorted counts: the same quantiles, so the same skew among fewer keys
        first = random.integers(max(1, len(counts) // self.keys))
        return _fewer_rows(counts[np.linspace(first, len(counts) - 1, self.keys).astype(np.int64)])


def _fewer_rows(counts: Ints) -> Ints:
    """Counts that are smaller alike, where there are more rows than training has room for; no key is lost."""
    total = int(counts.sum())
    if total <= MOST_ROWS:
        return counts
    fewer: Ints = np.maximum(np.floor(counts * ((MOST_ROWS - len(counts)) / total)), 1).astype(np.int64)
    return fewer
