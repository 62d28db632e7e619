"""The clock on Prompt's buffering: rows into the tree, keys in order, plans, and early releases."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench.prompt.policies import SLOTS
from steelyard.bench.prompt.shapes import Stream
from steelyard.core import KeyCounts
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition import Prompt
from steelyard.partition.accumulator import Accumulator
from steelyard.partition.early_release import EarlyRelease
from steelyard.partition.post_sort import PostSort

ROWS_A_KEY = 10
EXPONENT = 1.0
TREE, SORT = "tree", "sort"
WALL, PROCESSOR = "wall-clock", "processor"
FIXED_MARGIN = 1e9
"""So large a margin makes the early release always take the most slack that it may."""


@dataclass(frozen=True, eq=False)
class Timed:
    """What was measured for batches of one number of keys, in seconds; one number per seed."""

    keys: int
    distinct: list[int]
    arriving: Mapping[str, list[float]]
    """Of a row while it arrives: into the tree, or only into the hash table."""
    ordering: Mapping[str, list[float]]
    """After the cut-off: to walk the tree, or to sort."""
    planning: list[float]
    """After the cut-off, both ways: Algorithm 2."""

    def after_cut_off(self, way: str) -> Floats:
        """Order and plan, seed by seed."""
        order, plan = np.array(self.ordering[way]), np.array(self.planning)
        if way == SORT:
            return np.array([PostSort.after_cut_off(*both) for both in zip(order, plan, strict=True)])
        # Prompt's keys are in order at the cut-off, but somebody has to walk the tree for it.
        return np.array([walk + Prompt.after_cut_off(0.0, rest) for walk, rest in zip(order, plan, strict=True)])


def drawn_batch(keys: int, seed: int) -> tuple[Ints, Ints]:
    """Ids and arrival times, in microseconds of one interval, of a batch of Zipf keys."""
    stream = Stream.drawn(EXPONENT, keys, ROWS_A_KEY * keys, 1, seed)
    times = np.linspace(0, 1e6, len(stream.keys), endpoint=False).astype(np.int64)
    return stream.ids[stream.keys], times


def processor_seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How long an action takes the processor, and what it gives."""
    clock = time.process_time()
    given = action()
    return time.process_time() - clock, given


def time_keys(keys: int, seeds: Sequence[int]) -> Timed:
    """Buffer, order and plan one batch for each seed, with the tree and with a sort."""
    from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - compiled

    distinct, planning = [], []
    arriving: dict[str, list[float]] = {TREE: [], SORT: []}
    ordering: dict[str, list[float]] = {TREE: [], SORT: []}
    accumulator = Accumulator()
    earlier = drawn_batch(keys, seeds[0] + 1000)
    _buffered(accumulator, *earlier)  # compiles, and tells how many rows and keys to expect
    number_keys(earlier[0])
    for seed in seeds:
        ids, times = drawn_batch(keys, seed)
        accumulator.begin(0, 1e6)
        into_tree, _ = processor_seconds(lambda: accumulator.add(ids, times))  # noqa: B023 - called at once
        walk, batch = processor_seconds(accumulator.finish)
        into_table, (found, rows, _) = processor_seconds(lambda: number_keys(ids))  # noqa: B023 - called at once
        counts = KeyCounts(pa.array(found), rows)
        sort, ordered = processor_seconds(lambda: in_order(found, rows, Prompt.order(counts)))  # noqa: B023
        assert np.array_equal(np.sort(batch.rows), ordered[1][::-1]), "both ways count alike"
        arriving[TREE].append(into_tree / len(ids))
        arriving[SORT].append(into_table / len(ids))
        ordering[TREE].append(walk)
        ordering[SORT].append(sort)
        planning.append(
            min(processor_seconds(lambda: Prompt().plan_sorted(batch.counts, SLOTS))[0] for _ in range(3))  # noqa: B023
        )
        distinct.append(len(found))
    return Timed(keys, distinct, arriving, ordering, planning)


def in_order(ids: Ints, rows: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Keys and counts as they are given to Algorithm 2: what the tree's walk gives too."""
    return ids[order], rows[order]


def _buffered(accumulator: Accumulator, ids: Ints, times: Ints) -> Any:
    accumulator.begin(0, 1e6)
    accumulator.add(ids, times)
    return accumulator.finish()


@dataclass(frozen=True)
class Released:
    """How the early release of one seed's batches went."""

    largest_slack: float
    """As a share of the interval."""
    misses: float
    """Share of the batches whose blocks came late."""
    overrun: float
    """Seconds waited for blocks, a batch."""


def release(seconds: Sequence[float], interval: float, *, fixed: bool) -> Released:
    """Drive measured partitioning times through the early release, with adaptive or with the most slack.

    >>> release([0.01, 0.01, 0.02], 1.0, fixed=True)
    Released(largest_slack=0.05, misses=0.0, overrun=0.0)
    """
    early = EarlyRelease(interval, margin=FIXED_MARGIN) if fixed else EarlyRelease(interval)
    largest = 0.0
    for taken in seconds:
        largest = max(largest, early.slack / interval)
        early.released(taken)
    return Released(largest, early.misses / len(seconds), early.overrun_seconds / len(seconds))


def partition_times(keys: int, seed: int, releases: int) -> dict[str, list[float]]:
    """Seconds from cut-off to plan, again and again, by the clock on the wall and by that of the processor.

    On a machine that others use too the first varies, and is what a stream there would see.
    """
    accumulator = Accumulator()
    batch = drawn_batch(keys, seed)
    _buffered(accumulator, *batch)
    taken: dict[str, list[float]] = {WALL: [], PROCESSOR: []}
    for _ in range(releases):
        accumulator.begin(0, 1e6)
        accumulator.add(*batch)
        wall, processor = time.perf_counter(), time.process_time()
        Prompt().plan_sorted(accumulator.finish().counts, SLOTS)
        taken[WALL].append(time.perf_counter() - wall)
        taken[PROCESSOR].append(time.process_time() - processor)
    return taken
