"""The policies that Prompt is compared with, and the rates that a simulated cluster sustains under each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steelyard.bench.prompt.cluster_model import Shape, measure_costs, sustainable, through
from steelyard.bench.prompt.operators import OPERATORS
from steelyard.bench.prompt.shapes import Stream
from steelyard.core import Routed, TuplePolicy
from steelyard.core.plans import Floats
from steelyard.partition import HashAllocator, Prompt, PromptAllocator
from steelyard.partition.affinity import Affinity, best_d
from steelyard.partition.early_release import MOST_SLACK
from steelyard.partition.first_fit import FirstFitDecreasing
from steelyard.partition.fragmentation import FragmentationMinimisation
from steelyard.partition.two_choices import ManyChoices, TwoChoices
from steelyard.sim.task_times import TaskCosts
from steelyard.workloads.rates import Sinusoid

TIME, SHUFFLE, HASH, PK2, PK5, CAM, PROMPT = "time", "shuffle", "hash", "pk2", "pk5", "cam", "prompt"
FFD, FRAGMIN = "ffd", "fragmin"
RIVALS = (TIME, SHUFFLE, HASH, PK2, PK5, CAM, FFD, FRAGMIN)
PUBLISHED_RIVALS = (TIME, SHUFFLE, HASH, PK2, PK5, CAM)
"""Those that the dissertation compares Prompt with."""
CAM_SAMPLE = 100_000
"""Rows that cAM's number of candidates is chosen with."""
SLOTS = 32
AMPLITUDE = 0.5
"""Of the wave; the dissertation gives none."""
KEY_FACTORS = (1, 4, 16)
"""What-if: keys and records that cost so many times what was measured."""


def all_costs() -> dict[str, TaskCosts]:
    """Measured costs of each operator."""
    return {operator: measure_costs(operator) for operator in OPERATORS}


def dearer_keys(costs: TaskCosts, factor: float) -> TaskCosts:
    """The same rows, with keys and records that cost `factor` times as much."""
    return replace(
        costs,
        map_key=factor * costs.map_key,
        reduce_record=factor * costs.reduce_record,
        reduce_key=factor * costs.reduce_key,
    )


def longest_batch(costs: Mapping[str, TaskCosts], slots: int, interval: float) -> int:
    """Rows that no policy can exceed: every slot busy for the whole interval, with rows alone."""
    return int(slots * interval / min(each.map_row for each in costs.values()))


@dataclass(frozen=True)
class Wave:
    """A rate that swings around its mean, seen by batches of `interval` seconds over one period."""

    interval: float
    period: float
    amplitude: float = AMPLITUDE

    def batches(self, parts: int) -> Floats:
        """float64[batches, parts]: rows of each part of each batch, for a mean of one row a batch.

        >>> Wave(interval=1.0, period=1.0).batches(2).round(3).tolist()
        [[0.659, 0.341]]
        """
        number = max(1, round(self.period / self.interval))
        edges = np.linspace(0, number * self.interval, number * parts + 1)
        until = Sinusoid(1 / self.interval, self.amplitude, self.period).rows_until(edges)
        return np.asarray(np.diff(until).reshape(number, parts))

    @property
    def peak(self) -> float:
        """Rows of the largest batch over the mean."""
        return float(self.batches(1).max())

    def hardest(self, parts: int) -> list[Floats]:
        """The batch with the most rows, and the one with the largest part."""
        found = self.batches(parts)
        places = {int(found.sum(axis=1).argmax()), int(found.max(axis=1).argmax())}
        return [found[place] for place in sorted(places)]


def chosen_cam(stream: Stream, costs: TaskCosts) -> Affinity:
    """cAM as its authors are quoted: candidates are added until that no longer helps; the better of two readings."""
    few = replace(stream, keys=stream.keys[:CAM_SAMPLE])
    ids, times = few.ids[few.keys], np.zeros(len(few.keys), np.int64)

    def seconds(routed: Routed) -> float:
        pair = np.unique(few.keys.astype(np.int64) * few.slots + routed.block)
        rows = np.bincount(routed.block, minlength=few.slots)
        keys = np.bincount(pair % few.slots, minlength=few.slots)
        records = np.bincount(few.home[pair // few.slots], minlength=few.slots)
        return float(Shape(rows, keys, records, records).seconds(costs))

    found = [best_d(Affinity(mode=mode), few.slots, ids, times, seconds) for mode in ("affinity", "cardinality")]
    return min(found, key=lambda best: min(best.costs.values())).policy


def shapes_of(stream: Stream, cam: Affinity) -> tuple[dict[str, Shape], Floats]:
    """Shapes of the stream's batches under every policy but time; and the processor seconds of Prompt's plans."""
    tuple_policies: dict[str, TuplePolicy] = {PK2: TwoChoices(window=0), PK5: ManyChoices(window=0), CAM: cam}
    shapes = {SHUFFLE: stream.shuffle(), HASH: stream.hash()}
    shapes |= {name: stream.routed(policy) for name, policy in tuple_policies.items()}
    shapes[FFD], _ = stream.planned(FirstFitDecreasing(), HashAllocator())
    shapes[FRAGMIN], _ = stream.planned(FragmentationMinimisation(), HashAllocator())
    shapes[PROMPT], plan_seconds = stream.planned(Prompt(), PromptAllocator())
    return shapes, plan_seconds


def rates_of(
    stream: Stream, shapes: Mapping[str, Shape], plan_seconds: Floats, costs: TaskCosts, wave: Wave
) -> dict[str, float]:
    """Mean rows per second that each policy sustains under a wave: no batch of a period takes longer than the interval.

    Prompt's plan is made in the slack before the heartbeat; what does not fit is added to the processing.
    """
    most, interval = float(stream.grid[-1]), wave.interval
    hardest = wave.hardest(stream.slots)

    def by_time(rows: float) -> float:
        # `rows` is the largest batch, as for the others; the mean batch is smaller by the peak
        return max(
            float(stream.by_arrival(rows / wave.peak * batch.sum(), batch / batch.sum()).seconds(costs))
            for batch in hardest
        )

    found = {TIME: sustainable(by_time, interval, most)}
    for policy, shape in shapes.items():
        seconds = shape.seconds(costs)
        if policy == PROMPT:
            seconds = seconds + np.maximum(0.0, plan_seconds - MOST_SLACK * interval)
        found[policy] = sustainable(through(stream.grid, seconds), interval, most)
    return {policy: rows / wave.peak / interval for policy, rows in found.items()}


def ratios(rates: Sequence[Mapping[str, float]], policy: str) -> list[float]:
    """Prompt's rate over a policy's, seed by seed; infinite where that policy sustains nothing."""
    return [one[PROMPT] / one[policy] if one[policy] else float("inf") for one in rates]
