"""How even the blocks are that each way of cutting makes: measured once, on plans of drawn batches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core import KeyCounts
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition.learned.cutting import INPUT, WAYS, of_input
from steelyard.workloads.ranks import rank_table

EXPONENTS = (0.0, 0.4, 0.8, 1.0, 1.2, 1.5)
SIZES = ((200, 4), (200, 40), (1_500, 4), (1_500, 40), (6_000, 4))
"""Keys, and rows for each of them."""
BLOCKS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])


class Plans(NamedTuple):
    """By input, number of blocks (a position in `BLOCKS`) and way."""

    input: Any
    """float32[inputs, blocks, INPUT]: what a partitioner sees."""
    rows: Floats
    """float64[inputs, blocks, ways]: rows of the fullest block over the mean."""
    keys: Floats
    """float64[inputs, blocks, ways]: keys of the fullest block over what the mean would be without cuts."""
    fragments: Floats
    """float64[inputs, blocks, ways]: fragments over keys."""

    def at(self, blocks: Any) -> Ints:
        """Positions of the numbers of blocks that are nearest, in proportion."""
        wanted = np.log(np.maximum(np.asarray(blocks, np.float64), 1.0))[..., None]
        return np.asarray(np.abs(np.log(BLOCKS) - wanted).argmin(axis=-1))


@lru_cache(maxsize=2)
def measured(seed: int) -> Plans:
    """Plans of all ways for batches that follow Zipf's law."""
    draws = np.random.default_rng(seed)
    inputs = [(exponent, *size) for exponent in EXPONENTS for size in SIZES]
    shape = len(inputs), len(BLOCKS)
    seen = np.zeros((*shape, INPUT), np.float32)
    rows, keys, fragments = (np.ones((*shape, len(WAYS))) for _ in range(3))
    for one, (exponent, distinct, each) in enumerate(inputs):
        drawn = draws.multinomial(distinct * (each - 1), rank_table(exponent, distinct, 0.0).shares)
        counts = KeyCounts(pa.array(draws.permutation(distinct)), 1 + drawn)
        for place, blocks in enumerate(BLOCKS.tolist()):
            seen[one, place] = of_input(counts.rows, blocks)
            for way, cut in enumerate(WAYS):
                plan = cut.plan(counts, blocks)
                rows[one, place, way] = plan.sizes.max() * blocks / plan.sizes.sum()
                keys[one, place, way] = plan.cardinalities.max() * blocks / distinct
                fragments[one, place, way] = len(plan.key) / distinct
    return Plans(seen, rows, keys, fragments)
