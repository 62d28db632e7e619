"""Streams of the experiments on Dalton: keys alone, drawn by Zipf's law, with hot keys that may change.

Zapridou et al. 2022, section 5.1. The real data sets (T4SA, tweets of the 2016 elections, voters of North Carolina)
are replaced by streams with as many keys and the same share of the most frequent key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.core.counts import Ints
from steelyard.workloads.ranks import rank_table

WINDOW, SLIDE = 60_000, 1_000
"""Word Count's window of 60 s and slide of 1 s: the authors' sources count one millisecond a row."""
LONG_SLIDE = 20_000
"""Slide of the experiments with several partitioners."""
KEYS = 100_000


@dataclass(frozen=True)
class Stream:
    """A stationary stream.

    Examples
    --------
    >>> Stream("zipf 1.5", 1.5, 1000).draw(5, seed=1).shape
    (5,)
    """

    name: str
    """How tables call it."""
    exponent: float
    keys: int = KEYS
    """Of Zipf's law; 0 is uniform."""

    def draw(self, rows: int, seed: int, offset: int = 0) -> Ints:
        """int64[rows]: key ids. A seed chooses which ids are frequent, and so where they are hashed to."""
        rng = np.random.default_rng([seed, 1])
        ids = rng.permutation(self.keys)
        return np.asarray(ids[rank_table(self.exponent, self.keys).ranks(rng.random(rows))] + offset, dtype=np.int64)


UNIFORM = Stream("uniform", 0.0)
ZIPF_1 = Stream("zipf 1.0", 1.0)
ZIPF_15 = Stream("zipf 1.5", 1.5)
T4SA = Stream("t4sa-like", 0.861, 450_000)
ELECTIONS = Stream("elections-like", 0.986, 200_000)
STREAMS = (T4SA, ELECTIONS, UNIFORM, ZIPF_1, ZIPF_15)


def alternating(rows_a_phase: int, phases: int, seed: int) -> Ints:
    """Uniform and Zipf 1.5 in turn, the "trending event" of Fig 9a to 9c; other keys are hot each time."""
    kinds = (UNIFORM, ZIPF_15)
    return np.concatenate([kinds[i % 2].draw(rows_a_phase, seed * 100 + i) for i in range(phases)])


def random_zipf(rows_a_phase: int, phases: int, seed: int) -> Ints:
    """Fig 9d: in every phase another exponent, between 0.5 and 1.5, and other hot keys."""
    exponents = np.random.default_rng([seed, 2]).uniform(0.5, 1.5, phases).round(2)
    parts = [Stream("", float(e)).draw(rows_a_phase, seed * 100 + i) for i, e in enumerate(exponents)]
    return np.concatenate(parts)
