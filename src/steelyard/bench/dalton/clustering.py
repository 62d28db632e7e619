"""Costs of Correlation Clustering in the stage model: they grow with the square of a block's records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from steelyard.bench.dalton.stage_model import Stages, Window, hashed, least_us

RECORDS = 300
TURNS = 7
LENGTH = 24
"""Letters of a record; those of the paper have fewer than 50."""


@dataclass(frozen=True)
class PairCosts:
    """CPU time of one pair of records, in microseconds: in VOTE, of a new record with an older one; in GREEDY."""

    vote: float
    greedy: float


@lru_cache(maxsize=1)
def clustering_costs(seed: int = 7) -> PairCosts:
    """Run both on some hundred records, half of them nearly equal to another."""
    import pyarrow as pa  # noqa: PLC0415

    from steelyard.applications.clustering import CorrelationClustering  # noqa: PLC0415 - loads PySpark

    rng = np.random.default_rng(seed)
    letters = rng.integers(97, 123, (RECORDS // 2, LENGTH), dtype=np.uint8)
    near = letters.copy()
    near[:, ::8] = 97
    records = [bytes(row).decode() for row in np.concatenate([letters, near])]
    operator = CorrelationClustering()

    halves = [
        operator.add(operator.zero(), pa.array(part)) for part in (records[: RECORDS // 2], records[RECORDS // 2 :])
    ]
    every = pa.array(records)
    vote_us, greedy_us = least_us(
        [lambda: operator.add(operator.zero(), every), lambda: operator.merge(*halves)], TURNS
    )
    pairs = RECORDS * (RECORDS - 1) / 2
    return PairCosts(vote_us / pairs, greedy_us / pairs)


def clustering_stages(window: Window, reducers: int, costs: PairCosts) -> Stages:
    """Microseconds per row: a window is clustered once, and there is one for each slide's rows."""
    partials = window.partials
    pairs = partials.rows * (partials.rows - 1) / 2
    combiner = np.bincount(partials.block, weights=pairs, minlength=window.blocks).max() * costs.vote
    keys, first, fragments = np.unique(partials.key, return_index=True, return_counts=True)
    totals = np.add.reduceat(partials.rows, first) if len(first) else first
    split = fragments > 1
    reducer = 0.0
    if reducers and split.any():
        work = totals[split] * (totals[split] - 1) / 2 * costs.greedy
        reducer = float(np.bincount(hashed(keys[split], reducers), weights=work).max())
    # A record that is alone in its block costs next to nothing: 1 ns keeps the rate finite.
    return Stages(1e-3, float(combiner / window.slide), reducer / window.slide)
