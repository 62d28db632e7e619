"""Vehicles with their owners and speeds, and queries for the owners of those that go too fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws
from steelyard.workloads.vocabulary import vocabulary
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SLOWEST, FASTEST = 20.0, 90.0
"""Miles per hour."""
NAMES = 8_000
"""First names and surnames that owners are called by."""
LEAST_LIMIT = 60.0


@dataclass(frozen=True)
class Vehicles(Workload):
    """One vehicle a row: its plate, which no other has, its owner, a number of his, and how fast it goes.

    Nobody of these exists: numbers of owners begin with 9, as no real one does.

    Parameters
    ----------
    seed
        Chooses owners and speeds.

    Examples
    --------
    >>> Vehicles(seed=1).rows(0, 1, np.zeros(1)).to_pylist()[0]["plate"]
    'AAA-0000'
    """

    seed: int = 0

    name: ClassVar[str] = "vehicles"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("event_time", TIMESTAMP),
            ("plate", pa.string()),
            ("owner", pa.string()),
            ("ssn", pa.string()),
            ("speed", pa.float64()),
        ]
    )

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        names = vocabulary(NAMES)
        owners = zip(
            names.take(pa.array(draws.integers("first name", NAMES))).to_pylist(),
            names.take(pa.array(draws.integers("surname", NAMES))).to_pylist(),
            strict=True,
        )
        numbers = draws.integers("ssn", 100_000_000).tolist()
        return [
            times,
            pa.array([_plate(row) for row in rows.tolist()], pa.string()),
            pa.array([f"{first.title()} {last.title()}" for first, last in owners], pa.string()),
            pa.array([f"9{n // 1_000_000:02d}-{n // 10_000 % 100:02d}-{n % 10_000:04d}" for n in numbers], pa.string()),
            np.round(SLOWEST + (FASTEST - SLOWEST) * draws.uniform("speed"), 1),
        ]


@dataclass(frozen=True)
class SpeedQueries(Workload):
    """One query a row: whose vehicles, of those whose plate ends so, go faster than that?

    Parameters
    ----------
    endings
        Different ends of plates that are asked for, 1 to 10,000.
    seed
        Chooses the queries.
    """

    endings: int = 100
    seed: int = 0

    name: ClassVar[str] = "speed_queries"
    schema: ClassVar[pa.Schema] = pa.schema(
        [("event_time", TIMESTAMP), ("query", pa.int64()), ("ending", pa.string()), ("above", pa.float64())]
    )

    def __post_init__(self) -> None:
        require_within("endings", self.endings, 1, 10_000)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        digits = len(str(self.endings - 1))
        endings = draws.integers("ending", self.endings).tolist()
        above = LEAST_LIMIT + (FASTEST - LEAST_LIMIT) * draws.uniform("above")
        return [
            times,
            rows.astype(np.int64),
            pa.array([f"{one:0{digits}d}" for one in endings], pa.string()),
            np.round(above, 1),
        ]


def _plate(number: int) -> str:
    """Three letters and four digits, and more letters for more than 175 million.

    >>> _plate(12_345_678)
    'BVM-5678'
    """
    letters, digits = divmod(number, 10_000)
    found = ""
    while letters or len(found) < 3:
        letters, one = divmod(letters, len(LETTERS))
        found = LETTERS[one] + found
    return f"{found}-{digits:04d}"
