"""SynD: keys drawn from a bounded Zipf law, with hot keys that may change as the stream goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.ranks import MAX_KEYS, rank_table
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_one_of, require_within

MICROS = 1_000_000
MAX_EXPONENT = 4.0


@dataclass(frozen=True)
class Zipf(Workload):
    """One key and one value per row; key 0 is the hottest, unless the keys drift.

    The streams of the dissertation on Prompt have exponents 0.1 to 2.0 and up to 10^7 keys (Abdelhamid 2021,
    section 2.6.1).

    Parameters
    ----------
    exponent
        Skew, 0 (uniform) to 4.
    keys
        Number of distinct keys, up to 10^7.
    drift_every
        After so many rows or seconds other keys are hot; 0 means never. Every key gets its turn as the
        hottest before one comes back.
    drift_unit
        `rows`, or `seconds` of event time.
    seed
        Chooses the keys of the rows, their values, and the order in which keys become hot.

    Examples
    --------
    >>> Zipf(exponent=1.5, keys=100, seed=7).rows(0, 8, np.zeros(8)).column("key").to_pylist()
    [1, 0, 1, 0, 0, 0, 0, 1]
    """

    exponent: float = 1.0
    keys: int = 10_000
    drift_every: float = 0.0
    drift_unit: str = "rows"
    seed: int = 0

    name: ClassVar[str] = "zipf"
    schema: ClassVar[pa.Schema] = pa.schema([("event_time", TIMESTAMP), ("key", pa.int64()), ("value", pa.float64())])

    def __post_init__(self) -> None:
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("keys", self.keys, 1, MAX_KEYS)
        require_within("drift_every", self.drift_every, 0, float("inf"))
        require_one_of("drift_unit", self.drift_unit, ["rows", "seconds"])

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        ranks = rank_table(self.exponent, self.keys).ranks(draws.uniform("key"))
        keys = (ranks + self._rotation(rows, times)) % self.keys if self.drift_every else ranks
        return [times, keys, draws.uniform("value")]

    def _rotation(self, rows: Bits, times: Ints) -> Ints:
        """int64[rows]: which key is the hottest, row by row."""
        period = self.drift_every * (MICROS if self.drift_unit == "seconds" else 1)
        moment = times if self.drift_unit == "seconds" else rows.astype(np.int64)
        epoch = np.floor_divide(moment, period).astype(np.int64)
        return (epoch % self.keys) * self._stride() % self.keys

    def _stride(self) -> int:
        """How far the hottest key moves in a drift: prime to `keys`, so that no key is left out."""
        drawn = int(Draws(self.seed, np.zeros(1, dtype=np.uint64)).integers("stride", self.keys)[0])
        return next(step for step in range(max(drawn, 1), 2 * self.keys + 2) if gcd(step, self.keys) == 1)
