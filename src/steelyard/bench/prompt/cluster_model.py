"""A cluster of slots on paper: what tasks cost is measured, what a cluster of them sustains is computed.

Costs come from the very functions that Spark's tasks run, called in this process (`steelyard.spark.combine`), on one
core and in processor time. A batch takes `max Map + max Reduce` (Abdelhamid 2021, Eq 2.1); what the driver and the
network need is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.bench.prompt.operators import events, result_schema, state_schema, use_of
from steelyard.bench.timing import in_turns
from steelyard.core.counts import Ints
from steelyard.core.hidden import PANE, SPLIT
from steelyard.core.plans import Floats
from steelyard.partition import PromptAllocator
from steelyard.sim.task_times import TaskCosts, fitted

MAP_SIZES = ((200, 20), (1_000, 50), (1_000, 1_000), (4_000, 100), (4_000, 4_000))
"""(rows, keys) of the blocks that map tasks are timed with."""
REDUCE_SIZES = ((50, 50), (2_000, 2_000), (8_000, 2_000), (8_000, 8_000))
"""(records, keys) of the buckets that reduce tasks are timed with."""
BISECTIONS = 40
REPETITIONS = 9
"""Of each task; the fastest counts, and on a busy machine it takes some to be undisturbed."""


@dataclass(frozen=True, eq=False)
class Shape:
    """What one batch gives each task to do."""

    rows: Any
    keys: Any
    """[..., blocks]: rows and distinct keys of each block, |B_i| and ||B_i||."""
    records: Any
    bucket_keys: Any
    """[..., buckets]: records (one for each key of each block) and distinct keys of each bucket."""

    def seconds(self, costs: TaskCosts) -> Floats:
        """Processing time, Eq 2.1: the slowest map task, and then the slowest reduce task."""
        slowest_map = costs.map_seconds(self.rows, self.keys).max(axis=-1)
        return np.asarray(slowest_map + costs.reduce_seconds(self.records, self.bucket_keys).max(axis=-1))


def sustainable(seconds: Callable[[float], float], interval: float, most: float) -> float:
    """The largest number of rows up to `most` whose batch is done within `interval`, by bisection.

    `seconds` gives the processing time of a batch of so many rows, and never falls by much.

    >>> round(sustainable(lambda rows: 0.1 + rows / 1000, interval=1.0, most=5000))
    900
    >>> sustainable(lambda rows: 2.0, interval=1.0, most=5000)
    0.0
    """
    if seconds(most) <= interval:
        return float(most)
    fits, breaks = 0.0, float(most)
    for _ in range(BISECTIONS):
        middle = (fits + breaks) / 2
        if seconds(middle) <= interval:
            fits = middle
        else:
            breaks = middle
    return fits if fits > most * 2.0 ** (1 - BISECTIONS) else 0.0


def through(grid: Sequence[float] | Ints, seconds: Floats) -> Callable[[float], float]:
    """Processing time of any number of rows from that of a few, along straight lines between them."""

    def at(rows: float) -> float:
        if rows < grid[0]:  # the line through the first two goes on below them
            slope = (seconds[1] - seconds[0]) / (grid[1] - grid[0])
            return float(seconds[0] + slope * (rows - grid[0]))
        return float(np.interp(rows, grid, seconds))

    return at


def measure_costs(operator: str = "sum", repetitions: int = REPETITIONS, seed: int = 0) -> TaskCosts:
    """The costs of an operator on this machine, one core, in processor time.

    Parameters
    ----------
    operator
        Both parse a JSON event a row. `"sum"` keeps a number for each key, so that keys cost little;
        `"histogram"` keeps 64 cells, so that a key costs several times as much as a row.
    repetitions
        Each task runs so often; the fastest counts, since other programs can only slow it down.
    seed
        Draws the events.
    """
    from steelyard.spark.combine import combiner  # noqa: PLC0415 - loads Spark
    from steelyard.spark.reduce import finisher  # noqa: PLC0415 - loads Spark

    use = {"total": use_of(operator)}
    combine = combiner(("key",), use, state_schema(operator), 16, PromptAllocator(), None, 100)
    finish = finisher(use, result_schema(operator))
    draws = np.random.default_rng(seed)
    blocks = {size: event_block(draws, *size) for size in MAP_SIZES}
    buckets = {
        (records, keys): bucket_of(next(combine(iter([event_block(draws, records, records)]))), keys)
        for records, keys in REDUCE_SIZES
    }
    maps = fastest(combine, blocks, repetitions)
    reduces = fastest(finish, buckets, repetitions)
    return TaskCosts(*fitted(maps), *fitted(reduces))


def fastest(
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    inputs: Mapping[tuple[int, int], pa.RecordBatch],
    repetitions: int,
) -> list[tuple[float, float, float, float]]:
    """(1, x, y, processor seconds of the fastest run) for an input of each size (x, y)."""
    tasks = {size: lambda given=given: list(task(iter([given]))) for size, given in inputs.items()}
    return [(1.0, *size, min(times)) for size, times in in_turns(tasks, repetitions, time.process_time).items()]


def event_block(draws: np.random.Generator, rows: int, keys: int) -> pa.RecordBatch:
    """A map task's input: `rows` JSON events of exactly `keys` keys."""
    key = np.r_[np.arange(keys), draws.integers(0, keys, rows - keys)]
    return pa.RecordBatch.from_pydict(
        {
            "key": draws.permutation(key),
            PANE: np.zeros(rows, np.int64),
            SPLIT: np.zeros(rows, np.bool_),
            "event": pa.array(events(draws, rows)),
        }
    )


def bucket_of(combined: pa.RecordBatch, keys: int) -> pa.RecordBatch:
    """A reduce task's input: the states of a combined block, gathered in lists of `keys` keys, as the JVM does."""
    states = combined.column("total")
    ends = np.linspace(0, len(states), keys + 1).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), states)
    return pa.RecordBatch.from_arrays([pa.array(np.arange(keys)), lists], names=["key", "total"])
