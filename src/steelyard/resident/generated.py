"""Rows of the project's own workloads, as a source of the resident engine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from steelyard.resident.sources import DEFAULT_BATCH_ROWS, Read, Reader
from steelyard.workloads import Arrivals, Workload
from steelyard.workloads.rates import Rate


@dataclass(frozen=True)
class Generated(Reader):
    """Rows of one of the project's workloads.

    Parameters
    ----------
    workload
        Makes row n from n.
    rows
        How many.
    arrivals
        Event times.
    pace
        Rows per second at which they become readable; None means at once. The clock starts with the first read, and
        goes on while workers fail and others follow; in a job that is started again, it starts at the time of the row
        that it goes on with.
    pieces
        Number of splits; None makes one for each instance.
    block_rows
        Splits take blocks of so many rows in turn.
    began
        The moment, in seconds since 1970, from which `pace` counts; None where that is the first read.

    Examples
    --------
    >>> from steelyard.workloads import Zipf
    >>> zipf = Generated(Zipf(keys=10), rows=5, pieces=2, block_rows=2)
    >>> zipf.splits(1), zipf.read("0", 0, 100).batch.num_rows, zipf.read("0", 2, 100)[1:]
    (['0', '1'], 2, (3, True))
    """

    tells_end: ClassVar[bool] = True
    workload: Workload
    rows: int
    arrivals: Arrivals = field(default_factory=Arrivals)
    pace: Rate | None = None
    pieces: int | None = None
    block_rows: int = DEFAULT_BATCH_ROWS
    began: float | None = None
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """The workload's columns."""
        return self.workload.schema

    def splits(self, parallelism: int) -> list[str]:
        """Numbered from 0."""
        self._cache["pieces"] = self.pieces or parallelism
        return [str(number) for number in range(self.pieces or parallelism)]

    def _elapsed(self, first: int, offset: int) -> float:
        """Seconds since the first row; a split that goes on has been running for as long as its rows took."""
        if self.began is not None:
            return time.time() - self.began
        assert self.pace is not None
        now = time.monotonic()
        if "begun" not in self._cache:
            self._cache["begun"] = now - (float(self.pace.time_of_row(first)) if offset else 0.0)
        return now - float(self._cache["begun"])

    def clock(self) -> float | None:
        """The moment from which `pace` counts, in seconds since 1970, if it has begun."""
        begun = self._cache.get("begun")
        return None if begun is None else time.time() - (time.monotonic() - float(begun))

    def set_clock(self, at: float) -> None:
        """Count from this moment."""
        self._cache["begun"] = time.monotonic() - (time.time() - at)

    def end(self, split: str) -> int | None:
        """How many of its rows are readable by now; not known before the clock of `pace` has started."""
        readable = self.rows
        if self.pace is not None:
            if self.began is None and "begun" not in self._cache:
                return None
            readable = min(readable, int(self.pace.rows_until(self._elapsed(0, 0))))
        rounds, rest = divmod(readable, int(self._cache["pieces"]) * self.block_rows)
        return rounds * self.block_rows + min(max(rest - int(split) * self.block_rows, 0), self.block_rows)

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Rows of the block that the offset is in."""
        pieces = self._cache["pieces"]
        block, within = divmod(offset, self.block_rows)
        first = (block * pieces + int(split)) * self.block_rows + within
        count = min(rows, self.block_rows - within, self.rows - first)
        if count <= 0:
            return Read(None, offset, True)
        if self.pace is not None:
            count = min(count, int(self.pace.rows_until(self._elapsed(first, offset))) - first)
            if count <= 0:
                return Read(None, offset, False)
        batch = self.workload.rows(first, count, self.arrivals.times(first, count))
        after = offset + count
        block, within = divmod(after, self.block_rows)
        return Read(batch, after, (block * pieces + int(split)) * self.block_rows + within >= self.rows)
