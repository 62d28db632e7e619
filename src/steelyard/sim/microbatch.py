"""A micro-batch engine, simulated: batches that are cut, scheduled, mapped and reduced, and that queue up.

The policies are the library's: a partitioner cuts each batch, an allocator sends key clusters to buckets inside each
map task, an elasticity policy says how many tasks there are. Only what a task costs and what the driver takes is a
model (after Abdelhamid 2021, chapters 2 and 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.control import Controller
from steelyard.core import (
    BLOCKS,
    BUCKETS,
    Action,
    BatchObservation,
    BucketAllocator,
    KeyCounts,
    Observation,
    OptionError,
    Partitioner,
    ReduceObservation,
    ScalingPolicy,
    TaskObservation,
    tell_no_effect,
)
from steelyard.core.counts import Ints
from steelyard.core.needs import OF_BATCHES
from steelyard.core.plans import Floats
from steelyard.partition import allocator, partitioner
from steelyard.scaling import Fixed
from steelyard.sim.dataflow import Source
from steelyard.sim.logs import Log
from steelyard.sim.task_times import TaskCosts, reduce_work

CENTRAL, GROUP_AHEAD = "central", "group_ahead"
SCHEDULERS = (CENTRAL, GROUP_AHEAD)
LOG_CHUNK = 1 << 15


@dataclass(frozen=True)
class BatchCosts(TaskCosts):
    """Seconds of what a batch consists of: its tasks, and what schedules them.

    Parameters
    ----------
    driver, driver_task
        The driver's work for a stage, the round trip to workers included, and for each task that it sends.
    local
        What a worker's own scheduler takes for a batch that was scheduled ahead.
    convert, convert_row
        What it takes before tasks can read a batch, and for each of its rows: an engine that gathers rows in blocks
        of a receiver makes partitions of them.
    cut_row, cut_key
        What cutting a batch takes for each row and each distinct key.
    noise
        Spread of task times: the standard deviation of their logarithm.
    """

    driver: float = 0.1
    driver_task: float = 0.001
    local: float = 0.001
    convert: float = 0.0
    convert_row: float = 0.0
    cut_row: float = 0.0
    cut_key: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise OptionError(f"{name} of BatchCosts must be 0 or more, got {value!r}")


@dataclass(frozen=True)
class MicroBatches:
    """A query in micro-batches.

    Parameters
    ----------
    source
        Where rows come from; what came in an interval is a batch.
    interval
        Seconds between two batches.
    blocks, buckets
        Map and reduce tasks of the first batch.
    cores
        That tasks run on; those that find none wait.
    partitioner, allocator, elasticity
        Policies, as on Spark.
    scheduler
        `central`: the driver schedules both stages of every batch when it is there; `group_ahead`: it schedules a
        group of batches while those before still run, and workers start their tasks themselves.
    group
        Batches that are scheduled at once.
    slack
        Share of an interval, at its end, in which the batch is already cut: early release. Only what cutting takes
        beyond that delays it.
    blocking
        Whether reduce tasks begin when the last map task has ended. Otherwise they work on records as they come, and
        a batch takes as long as the slower of its two stages.
    costs
        What tasks and scheduling take.

    Examples
    --------
    >>> query = MicroBatches(Source("log", rate=1000, keys=[1, 2, 3]), interval=1.0, blocks=4, buckets=2, cores=4)
    >>> simulate_batches(query, 3).column("rows").to_pylist()
    [1000, 1000, 1000]
    """

    source: Source
    interval: float = 1.0
    blocks: int = 16
    buckets: int = 16
    cores: int = 16
    partitioner: Partitioner | str = "prompt"
    allocator: BucketAllocator | str = "hash"
    elasticity: ScalingPolicy = field(default_factory=Fixed)
    scheduler: str = CENTRAL
    group: int = 10
    slack: float = 0.0
    blocking: bool = True
    costs: BatchCosts = BatchCosts()

    def __post_init__(self) -> None:
        if not 0 <= self.slack < 1:
            raise OptionError(f"slack of MicroBatches is a share of the interval, 0 or more, got {self.slack!r}")
        if self.scheduler not in SCHEDULERS:
            raise OptionError.unknown("scheduler", self.scheduler, SCHEDULERS)
        allocator(self.allocator)  # a name that is none is an error here
        for name in ("interval", "blocks", "buckets", "cores", "group"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} of MicroBatches must be above 0, got {getattr(self, name)!r}")

    def cut_seconds(self, rows: int, keys: int) -> float:
        """By how long cutting a batch delays it.

        >>> query = MicroBatches(Source("log", rate=1000), slack=0.05, costs=BatchCosts(cut_key=0.001))
        >>> query.cut_seconds(1000, keys=40), query.cut_seconds(1000, keys=100)
        (0.0, 0.05)
        """
        return max(0.0, self.costs.cut_row * rows + self.costs.cut_key * keys - self.slack * self.interval)

    @property
    def scheduled_at_once(self) -> int:
        """Batches for which the driver's work is done at once."""
        return self.group if self.scheduler == GROUP_AHEAD else 1

    def driver_seconds(self, blocks: int, buckets: int) -> float:
        """What scheduling adds to a batch: two stages and all their tasks; a share of it where a group goes at once.

        What is scheduled ahead is also done ahead, but the driver does nothing else in that time: a batch gets as
        much of it as there are batches.
        """
        costs = self.costs
        whole = 2 * costs.driver + costs.driver_task * (blocks + buckets)
        return whole if self.scheduler == CENTRAL else whole / self.group + costs.local


def simulate_batches(query: MicroBatches, batches: int, seed: int = 0) -> pa.Table:
    """Run so many batches: a row for each, with its times in seconds.

    `ready` is when its interval ended, `started` and `finished` when it was processed, `cut`, `convert`, `driver`,
    `map` and `reduce` what that consists of (where stages overlap, the rest of it behind `map`), `load` its
    processing time over the interval (above 1 batches queue up), `latency` the mean age of its rows at the end.
    `blocks`, `buckets` and `reason` tell what the elasticity policy made of it: a decision holds from the next batch
    on, or from the next group on where a group was scheduled already.
    """
    if batches < 1:
        raise OptionError(f"batches of a simulation must be 1 or more, got {batches}")
    simulation = _Simulation(query, seed)
    controller = Controller(simulation, query.elasticity)
    reason, rows = "", []
    for times, keys in _intervals(query, batches, seed):
        rows.append({**simulation.run(times, keys), "reason": reason})
        decision = controller.look()
        assert decision is not None, "there are no guards"
        reason = decision.wanted.reason
    return pa.Table.from_pylist(rows)


class _Simulation:
    """Batch after batch, each by the numbers of tasks that hold for it."""

    what: ClassVar[str] = "a simulation of micro-batches"
    shows: ClassVar[frozenset[str]] = OF_BATCHES

    def __init__(self, query: MicroBatches, seed: int) -> None:
        self.query = query
        self._cutter = partitioner(query.partitioner)
        if query.blocks == 1 and isinstance(query.elasticity, Fixed):
            tell_no_effect(f"partitioner {self._cutter.name!r}", "there is one block", "give blocks=2 or more")
        self._random = np.random.default_rng(seed)
        self._tasks = self._wanted = {BLOCKS: query.blocks, BUCKETS: query.buckets}
        self._batches, self._finished = 0, 0.0

    def run(self, times: Floats, keys: Ints) -> dict[str, Any]:
        """One batch, of these rows."""
        query, costs, number = self.query, self.query.costs, self._batches
        if number % query.scheduled_at_once == 0:
            self._tasks = self._wanted
        blocks, buckets = self._tasks[BLOCKS], self._tasks[BUCKETS]
        counts = KeyCounts.from_rows(pa.array(keys))
        plan = self._cutter.plan(counts, blocks)
        records, keys_of = reduce_work(plan, allocator(query.allocator), buckets)
        map_seconds = _noisy(costs.map_seconds(plan.sizes, plan.cardinalities), costs.noise, self._random)
        reduce_seconds = _noisy(costs.reduce_seconds(records, keys_of), costs.noise, self._random)
        mapped, reduced = makespan(map_seconds, query.cores), makespan(reduce_seconds, query.cores)
        parts = {
            "cut": query.cut_seconds(len(times), len(counts)),
            "convert": costs.convert + costs.convert_row * len(times),
            "driver": query.driver_seconds(blocks, buckets),
            "map": mapped,
            "reduce": reduced if query.blocking else max(0.0, reduced - mapped),
        }
        ready = (number + 1) * query.interval
        started = max(ready, self._finished)
        took = sum(parts.values())
        self._batches, self._finished = number + 1, started + took
        maps = zip(plan.sizes.tolist(), plan.cardinalities.tolist(), map_seconds.tolist(), strict=True)
        reduces = zip(reduce_seconds.tolist(), records.tolist(), keys_of.tolist(), strict=True)
        self._seen = BatchObservation(
            number,
            len(times),
            len(counts),
            blocks,
            buckets,
            took,
            query.interval,
            query.cores,
            mapped,
            reduced,
            tasks=tuple(TaskObservation(block, *one, one[2]) for block, one in enumerate(maps)),
            reduce_tasks=tuple(ReduceObservation(bucket, *one, one[0]) for bucket, one in enumerate(reduces)),
        )
        return {
            "batch": number,
            "rows": len(times),
            "keys": len(counts),
            **self._tasks,
            "ready": ready,
            "started": started,
            "finished": self._finished,
            **parts,
            "processing": took,
            "load": self._seen.load,
            "latency": self._finished - float(times.mean()) if len(times) else float("nan"),
        }

    def observe(self) -> Observation:
        """The newest batch."""
        return self._seen.at(self._finished)

    def apply(self, action: Action) -> float:
        """From the next batch on that is not scheduled yet; that disturbs nobody."""
        action.require_tasks_only(self.what)
        self._wanted = {**self._wanted, **action.parallelism}
        return 0.0


def makespan(seconds: Sequence[float] | Floats, cores: int) -> float:
    """When the last task ends, if each takes the core that is free first, in their order.

    >>> makespan([3.0, 1.0, 1.0, 2.0], cores=2)
    4.0
    """
    free = [0.0] * min(cores, max(len(seconds), 1))
    for task in seconds:
        heapreplace(free, free[0] + float(task))
    return max(free)


def _noisy(seconds: Any, noise: float, random: np.random.Generator) -> Floats:
    """Times with a spread around the same mean."""
    given = np.asarray(seconds, dtype=np.float64)
    return given * random.lognormal(-(noise**2) / 2, noise, len(given)) if noise else given


def _intervals(query: MicroBatches, batches: int, seed: int) -> Iterator[tuple[Floats, Ints]]:
    """Times and items of the rows of each interval."""
    log = Log(replace(query.source, parallelism=1, machines=()), seed, LOG_CHUNK)
    times, items = np.zeros(0), np.zeros(0, np.int64)
    ended = False
    for number in range(batches):
        until = (number + 1) * query.interval
        while not ended and (not len(times) or times[-1] < until):
            chunk = log.next_rows(0)
            ended = len(chunk.times) < LOG_CHUNK
            times, items = np.concatenate([times, chunk.times]), np.concatenate([items, chunk.items])
        cut = int(np.searchsorted(times, until, side="left"))
        yield times[:cut], items[:cut]
        times, items = times[cut:], items[cut:]
