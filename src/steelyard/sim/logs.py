"""The logs that sources read: rows made chunk by chunk, kept until every partition has read them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.kernels.xxhash import spark_hash
from steelyard.sim.dataflow import Source
from steelyard.workloads import Rate, Workload


class Chunk(NamedTuple):
    """Rows of all partitions: arrays of the shape (rows of a partition, partitions)."""

    times: Floats
    """Seconds; infinite where the log has ended before."""
    items: Ints
    keys: Ints


class LogState(NamedTuple):
    """How far a log is read, and what it takes to read it again from there."""

    chunks: dict[int, Chunk]
    made: int
    handed: Ints
    units: Floats
    random: Any


class Log:
    """The partitions of one source.

    Row n of partition p is row `n * partitions + p` of the source: it has that row's key, and with even arrivals
    its time.

    Parameters
    ----------
    source
        Whose log it is.
    seed
        For arrivals at random.
    chunk
        Rows of a partition that are made at once.

    Examples
    --------
    >>> log = Log(Source("log", rate=10, parallelism=2, rows=5), seed=1, chunk=4)
    >>> log.next_rows(0).times.tolist()
    [0.0, 0.2, 0.4]
    >>> log.arrived(1, now=0.25), log.lag_seconds(1, 1.0, read=0)
    (1, 0.9)
    """

    def __init__(self, source: Source, seed: int, chunk: int) -> None:
        self._source = source
        self._random = np.random.default_rng(seed)
        self._size = chunk
        self._chunks: dict[int, Chunk] = {}
        self._made = 0
        self._handed = np.zeros(source.parallelism, np.int64)
        self._units = np.zeros(source.parallelism)

    def next_rows(self, partition: int) -> Chunk:
        """The partition's next rows, as arrays of one dimension; fewer than a chunk where the log ends."""
        number = int(self._handed[partition])
        self._handed[partition] += 1
        chunk = self._chunk(number)
        # The chunk before the one that a partition reads now is the last that anybody asks about.
        for old in [made for made in self._chunks if made < self._handed.min() - 1]:
            del self._chunks[old]
        rows = int(np.isfinite(chunk.times[:, partition]).sum())
        own = slice(rows), partition
        return Chunk(chunk.times[own].copy(), chunk.items[own].copy(), chunk.keys[own].copy())

    def position(self, partition: int, read_of_chunk: int) -> int:
        """How many rows of the partition are read, so many of them from the chunk that it was given last."""
        return max(int(self._handed[partition]) - 1, 0) * self._size + read_of_chunk

    def state(self) -> LogState:
        """Where every partition is."""
        random = self._random.bit_generator.state
        return LogState(dict(self._chunks), self._made, self._handed.copy(), self._units.copy(), random)

    def restore(self, state: LogState) -> None:
        """Go on from there; the same rows come again."""
        self._chunks, self._made = dict(state.chunks), state.made
        self._handed, self._units = state.handed.copy(), state.units.copy()
        self._random.bit_generator.state = state.random

    def seek(self, partition: int, chunk: int) -> None:
        """The partition's next rows are those of this chunk, which must not be one that is given up."""
        self._handed[partition] = chunk

    def first_rows(self) -> Chunk:
        """The first rows of all partitions, for whoever wants to know the stream before it runs."""
        return self._chunk(0)

    def arrived(self, partition: int, now: float) -> int:
        """How many rows of the partition have come by now."""
        number = max(int(self._handed[partition]) - 1, 0)
        while True:
            times = self._chunk(number).times[:, partition]
            if times[-1] > now:
                return number * self._size + int(np.searchsorted(times, now, side="right"))
            number += 1

    def lag_seconds(self, partition: int, now: float, read: int) -> float:
        """How long the first row that is not read has been waiting; 0 where all are read."""
        number, row = divmod(read, self._size)
        return max(0.0, now - float(self._chunk(number).times[row, partition]))

    def _chunk(self, number: int) -> Chunk:
        while number >= self._made:
            self._chunks[self._made] = self._make(self._made)
            self._made += 1
        return self._chunks[number]

    def _make(self, number: int) -> Chunk:
        source, partitions = self._source, self._source.parallelism
        assert isinstance(source.rate, Rate)
        first = number * self._size * partitions
        rows = np.arange(first, first + self._size * partitions).reshape(self._size, partitions)
        if source.arrivals == "even":
            times = source.rate.time_of_row(rows)
        else:
            gaps = self._random.exponential(partitions, rows.shape)
            units = self._units + np.cumsum(gaps, axis=0)
            self._units = units[-1]
            times = source.rate.time_of_row(units)
        if source.rows:
            times = np.where(rows < source.rows, times, np.inf)
        items, keys = self._keys(first, rows, times)
        return Chunk(times, items, keys)

    def _keys(self, first: int, rows: Ints, times: Floats) -> tuple[Ints, Ints]:
        """Items, and the ids that policies see: Spark's hash of the item, or of the text that it stands for."""
        given = self._source.keys
        if isinstance(given, Workload):
            moments = (np.where(np.isfinite(times), times, 0.0).ravel() * 1e6).astype(np.int64)
            column = given.rows(first, rows.size, moments).column(self._source.column)
            ids = spark_hash(column)
            items = column.to_numpy().astype(np.int64) if pa.types.is_integer(column.type) else ids
        else:
            items = rows.ravel() if given is None else np.array(given, np.int64)[rows.ravel() % len(given)]
            ids = spark_hash(pa.array(items))
        return items.reshape(rows.shape), ids.reshape(rows.shape)
