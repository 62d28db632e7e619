"""What parts of Prompt bring: the budget of its tree, the rounds of its bucket allocation, and its ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from steelyard.bench import Cell, Table, mean
from steelyard.bench.prompt.shapes import Stream
from steelyard.core import KeyCounts
from steelyard.partition import HashAllocator, Prompt, PromptAllocator
from steelyard.partition.accumulator import Accumulator

ROWS, KEYS, BLOCKS, BUCKETS = 200_000, 10_000, 32, 16
EXPONENT = 1.0
BUDGETS = (1, 2, 4, 8, 16)
ALLOCATORS = ("hash", "prompt", "no rounds", "ties to bucket 0")
WEIGHTS = ("records", "tuples")
WHEN = FIRST, NEXT = "first batch", "next batch"
LITERAL, FULL, EXACT = "to first small", "full scan", "exact sort"


def study_budgets(seed: int, rows: int = ROWS, keys: int = KEYS, blocks: int = BLOCKS) -> dict[int, dict[str, float]]:
    """By budget: how well the tree orders keys, and what that does to blocks, under both readings of phase 1.

    In a stream's first batch nothing is known of how many rows and keys to expect; in the next there is. BSI is over
    the mean size of a block, BCI over the mean number of keys.
    """
    batches = [Stream.drawn(EXPONENT, keys, rows, 1, one) for one in (seed, seed + 1000)]
    times = np.linspace(0, 1e6, rows, endpoint=False).astype(np.int64)
    found = {}
    for budget in BUDGETS:
        accumulator = Accumulator(budget)
        numbers: dict[str, float] = {}
        for when, stream in zip(WHEN, batches, strict=True):
            accumulator.begin(0, 1e6)
            accumulator.add(stream.ids[stream.keys], times)
            ended = accumulator.finish()
            numbers |= {f"count error, {when}": ended.count_error, f"moves, {when}": float(ended.updates.mean())}
            plans = {
                LITERAL: Prompt().plan_sorted(ended.counts, blocks, "first_small"),
                FULL: Prompt().plan_sorted(ended.counts, blocks),
                EXACT: Prompt().plan(ended.counts, blocks),
            }
            for name, plan in plans.items():
                numbers[f"BSI, {name}, {when}"] = plan.bsi * blocks / ended.total
                numbers[f"BCI, {name}, {when}"] = plan.bci * blocks / ended.distinct
        found[budget] = numbers
    return found


def budget_table(found: Sequence[Mapping[int, Mapping[str, float]]]) -> Table:
    """Means over the seeds."""
    rows: list[Sequence[Cell]] = [
        (when, budget, *(mean(one[budget][f"{name}, {when}"] for one in found) for name in names))
        for names in [_measures(found[0][BUDGETS[0]])]
        for when in WHEN
        for budget in BUDGETS
    ]
    title = f"budget of the tree: Zipf {EXPONENT:g}, {ROWS:,} rows, {KEYS:,} keys, {BLOCKS} blocks; over the mean"
    return Table(title, ("when", "budget", *_measures(found[0][BUDGETS[0]])), rows)


def _measures(numbers: Mapping[str, float]) -> list[str]:
    return [name.removesuffix(f", {FIRST}") for name in numbers if name.endswith(FIRST)]


def study_allocator(
    seed: int, rows: int = ROWS, keys: int = KEYS, buckets: int = BUCKETS
) -> dict[str, dict[str, float]]:
    """By allocator: largest over mean load of the reduce tasks, and clusters above the mean, of Prompt's blocks."""
    stream = Stream.drawn(EXPONENT, keys, rows, buckets, seed)
    counts = stream.counts[-1]
    there = np.flatnonzero(counts)
    plan = Prompt().plan(KeyCounts(pa.array(there), counts[there]), buckets)
    ids = stream.ids[there]
    ways: dict[str, tuple[HashAllocator | PromptAllocator, bool]] = {
        "hash": (HashAllocator(), True),
        "prompt": (PromptAllocator(), True),
        "no rounds": (PromptAllocator(rotate=False), True),
        "ties to bucket 0": (PromptAllocator(), False),
    }
    found = {}
    for name, (allocator, by_task) in ways.items():
        numbers = {}
        for weight in WEIGHTS:
            loads, clusters = np.zeros(buckets), np.zeros(buckets)
            for task in range(plan.blocks):
                mine = np.flatnonzero(plan.block == task)
                key = plan.key[mine]
                weights = plan.rows[mine] if weight == "tuples" else np.ones(len(mine), np.int64)
                sent = allocator.allot(weights, plan.split[key], ids[key], buckets, task if by_task else 0)
                loads += sent.loads
                clusters += sent.cardinalities
            numbers[f"largest/mean, {weight}"] = float(loads.max() / loads.mean())
            numbers[f"clusters above mean, {weight}"] = float(clusters.max() - clusters.mean())
        found[name] = numbers
    return found


def allocator_table(found: Sequence[Mapping[str, Mapping[str, float]]]) -> Table:
    """Means over the seeds."""
    names = list(found[0][ALLOCATORS[0]])
    rows: list[Sequence[Cell]] = [
        (way, *(mean(one[way][name] for one in found) for name in names)) for way in ALLOCATORS
    ]
    return Table(f"bucket allocation (Algorithm 3): {BUCKETS} map and reduce tasks", ("allocator", *names), rows)
