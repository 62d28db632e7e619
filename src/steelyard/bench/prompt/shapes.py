"""What each policy gives the tasks of a batch to do, for batches that grow: the shapes behind the simulated rates.

A stream is drawn once; a batch of n rows is its first n. Routing row by row does not look ahead, so one pass over the
longest batch gives the shapes of all shorter ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench.prompt.cluster_model import Shape
from steelyard.core import BlockPlan, KeyCounts, TuplePolicy
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition import HashAllocator, PromptAllocator
from steelyard.workloads.ranks import rank_table

GRID_POINTS = 9
LEAST_SHARE = 0.03
"""The shortest batch of a grid, over the longest."""
AT_ONCE = 4_000_000
"""Rows that are routed in one call, so that the testbed's batches fit into memory."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Independent rows whose keys follow a law of Zipf and Mandelbrot.

    Examples
    --------
    >>> stream = Stream(np.array([0, 1, 0, 2], np.int32), distinct=3, slots=2)
    >>> stream.distinct_in(2).sum(), stream.distinct_in(4).sum()
    (np.int64(2), np.int64(3))
    """

    keys: np.ndarray[Any, np.dtype[np.int32]]
    """int32[rows]: the key of each row, as a position among all keys."""
    distinct: int
    """Number of keys that there are."""
    slots: int
    """Blocks and buckets."""
    first_name: int = 0
    """Keys are called by numbers from this one on. Streams of different seeds have different names, and so hot keys
    that hash elsewhere."""

    @classmethod
    def drawn(cls, exponent: float, keys: int, rows: int, slots: int, seed: int, shift: float = 0.0) -> Stream:
        """Counts of a multinomial law in random order: the same as drawing row by row, and faster."""
        draws = np.random.default_rng([seed, round(1000 * exponent)])
        counts = draws.multinomial(rows, rank_table(exponent, keys, shift).shares)
        stream = np.repeat(np.arange(keys, dtype=np.int32), counts)
        draws.shuffle(stream)
        return cls(stream, keys, slots, first_name=seed * keys)

    @cached_property
    def grid(self) -> Ints:
        """int64[points]: lengths of batches, evenly spread on a logarithmic scale up to all rows."""
        lengths = np.geomspace(max(1, LEAST_SHARE * len(self.keys)), len(self.keys), GRID_POINTS)
        return np.unique(lengths.astype(np.int64))

    @cached_property
    def ids(self) -> Ints:
        """int64[distinct]: the 64-bit id of each key."""
        from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415 - compiled

        return np.asarray(spark_hash(pa.array(np.arange(self.distinct) + self.first_name)))

    @cached_property
    def home(self) -> Ints:
        """int64[distinct]: the hash block of each key, which is its hash bucket too."""
        return np.asarray(np.mod(self.ids, self.slots))

    @cached_property
    def _part(self) -> Ints:
        """int64[rows]: the first point of the grid whose batch has the row."""
        return np.repeat(np.arange(len(self.grid)), np.diff(self.grid, prepend=0))

    @cached_property
    def counts(self) -> Ints:
        """int64[points, distinct]: rows of each key in each batch of the grid."""
        code = self._part * self.distinct + self.keys
        flat = np.bincount(code, minlength=len(self.grid) * self.distinct)
        return np.asarray(np.cumsum(flat.reshape(len(self.grid), self.distinct), axis=0))

    @cached_property
    def _first_rows(self) -> list[Ints]:
        """For each bucket, when its keys first come, sorted."""
        first = np.full(self.distinct, -1, np.int64)
        first[self.keys[::-1]] = np.arange(len(self.keys))[::-1]
        return [np.sort(first[(self.home == bucket) & (first >= 0)]) for bucket in range(self.slots)]

    def distinct_in(self, rows: Any) -> Ints:
        """int64[..., slots]: keys of each bucket among the first `rows` rows.

        Rows are independent, so any other `rows` rows have as many on average.
        """
        return np.stack([np.searchsorted(first, rows, side="left") for first in self._first_rows], axis=-1)

    def hash(self) -> Shape:
        """Every key in its hash block."""
        rows = np.stack([np.bincount(self.home, weights=batch, minlength=self.slots) for batch in self.counts])
        keys = self.distinct_in(self.grid)
        return Shape(rows, keys, keys, keys)

    def by_arrival(self, rows: float, weights: Floats) -> Shape:
        """Blocks of consecutive rows, of these shares; shuffling gives the same with equal shares."""
        parts = self.distinct_in(rows * weights)
        return Shape(rows * weights, parts.sum(axis=1), parts.sum(axis=0), self.distinct_in(rows))

    def shuffle(self) -> Shape:
        """Round robin: every block has an equal share of the rows."""
        even = np.full(self.slots, 1 / self.slots)
        return stacked([self.by_arrival(n, even) for n in self.grid.tolist()])

    def routed(self, policy: TuplePolicy) -> Shape:
        """Rows sent one by one, buckets by hash."""
        router, block = policy.router(self.slots), np.empty(len(self.keys), np.int32)
        for start in range(0, len(self.keys), AT_ONCE):
            ids = self.ids[self.keys[start : start + AT_ONCE]]
            block[start : start + AT_ONCE] = router.route(ids, np.zeros(len(ids), np.int64)).block
        rows = self._by_point(self._part, block)
        pair = self.keys.astype(np.int64) * self.slots + block
        first = np.full(self.distinct * self.slots, -1, np.int32)
        first[pair[::-1]] = np.arange(len(pair), dtype=np.int32)[::-1]
        there = np.flatnonzero(first >= 0)
        part = self._part[first[there]]
        keys = self._by_point(part, there % self.slots)
        records = self._by_point(part, self.home[there // self.slots])
        return Shape(rows, keys, records, self.distinct_in(self.grid))

    def _by_point(self, part: Ints, slot: Any) -> Ints:
        """int64[points, slots]: how many have been sent to each slot up to each point of the grid."""
        flat = np.bincount(part * self.slots + slot, minlength=len(self.grid) * self.slots)
        return np.asarray(np.cumsum(flat.reshape(len(self.grid), self.slots), axis=0))

    def planned(self, policy: Any, allocator: PromptAllocator | HashAllocator) -> tuple[Shape, Floats]:
        """Batches of the grid planned at once; and the processor seconds of each plan, a sort included."""
        shapes, seconds = [], []
        for batch in self.counts:
            there = np.flatnonzero(batch)
            counts = KeyCounts(pa.array(there), batch[there])
            clock = time.process_time()
            plan = policy.plan(counts, self.slots)
            seconds.append(time.process_time() - clock)
            shapes.append(shape_of(plan, self.ids[there], allocator))
        return stacked(shapes), np.array(seconds)


def stacked(shapes: Sequence[Shape]) -> Shape:
    """Shapes of several batches as one."""
    return Shape(*(np.stack([getattr(shape, part) for shape in shapes]) for part in Shape.__dataclass_fields__))


def shape_of(
    plan: BlockPlan, ids: Ints, allocator: PromptAllocator | HashAllocator, buckets: int | None = None
) -> Shape:
    """The tasks of a plan whose map tasks allot their clusters, of one record each, with this allocator.

    There are as many buckets as blocks where no other number is given.

    >>> plan = BlockPlan.of(KeyCounts.of({"a": 3, "b": 1}), 2, key=[0, 0, 1], block=[0, 1, 1], rows=[2, 1, 1])
    >>> shape_of(plan, np.array([0, 1]), HashAllocator()).records.tolist()
    [2, 1]
    """
    slots, buckets = plan.blocks, buckets or plan.blocks
    records = np.zeros(buckets, np.int64)
    bucket_keys = np.bincount(np.mod(ids[plan.split], buckets), minlength=buckets)
    order = np.argsort(plan.block, kind="stable")
    bounds = np.searchsorted(plan.block[order], np.arange(slots + 1))
    for task in range(slots):
        key = plan.key[order[bounds[task] : bounds[task + 1]]]
        split = plan.split[key]
        one = np.ones(len(key), np.int64)
        bucket = allocator.allot(one, split, ids[key], buckets, task).bucket
        records += np.bincount(bucket, minlength=buckets)
        bucket_keys = bucket_keys + np.bincount(bucket[~split], minlength=buckets)
    return Shape(plan.sizes, plan.cardinalities, records, bucket_keys)
