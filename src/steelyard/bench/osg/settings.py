"""Streams and settings of the experiments on OSG, and runs of groupings over many of them.

Rivetti et al. 2016, section 5.1: items drawn by Zipf's law, costs at even distances, each given to as many items chosen
at random, tuples at an even rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from steelyard.bench import Interval, Run, Series, Table, mean, over
from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.bench.progress import Reporter
from steelyard.core.plans import Floats
from steelyard.grouping import CompiledGrouping, grouping
from steelyard.workloads.ranks import rank_table

SOURCE = "Rivetti et al. 2016"
STREAMS, QUICK_STREAMS = 30, 3
ROUND_ROBIN, OSG, FULL_KNOWLEDGE, TRACKING = "round robin", "OSG", "Full Knowledge", "tracking OSG"
AS_PRINTED = "OSG as printed"
POLICIES = {ROUND_ROBIN: "round_robin", OSG: "osg", FULL_KNOWLEDGE: "full_knowledge", TRACKING: "tracking_osg"}
"""OSG has the clock and the periodic synchronisation of the authors' program, and masked stability."""
PRINTED = {AS_PRINTED: "osg?clock=cumulated&stability=eq1&resync=0"}


@dataclass(frozen=True)
class Setting:
    """One set of parameters; the defaults are the paper's.

    Examples
    --------
    >>> edge = Setting(tuples=1000).edge(seed=1)
    >>> edge.times.min() >= 1, edge.times.max() <= 64
    (np.True_, np.True_)
    """

    exponent: float = 1.0
    items: int = 4_096
    """Of Zipf's law; 0 is uniform."""
    values: int = 64
    shortest: float = 1.0
    longest: float = 64.0
    """n(w), min_w and max_w: so many costs at even distances, in ms."""
    instances: int = 5
    provisioning: float = 1.0
    tuples: int = 100_000
    """k, over-provisioning (1 is 100 %) and m."""

    def edge(self, seed: int, factors: Floats | None = None, phase_starts: tuple[int, ...] = (0,)) -> ShuffleEdge:
        """The stream of a seed on its instances; a seed chooses which items cost what, and draws the tuples."""
        rng = np.random.default_rng([seed, 5])
        costs = np.resize(np.linspace(self.shortest, self.longest, self.values), self.items)
        costs = rng.permutation(costs)
        drawn = rank_table(self.exponent, self.items).ranks(rng.random(self.tuples))
        return ShuffleEdge(
            drawn, costs[drawn], self.instances, self.provisioning, factors=factors, phase_starts=phase_starts
        )


def seeded(named: str, seed: int) -> CompiledGrouping:
    """A grouping with this seed, where it has one."""
    found: Any = grouping(named)
    changed: CompiledGrouping = dataclasses.replace(found, seed=seed) if hasattr(found, "seed") else found
    return changed


def streams_of(run: Run) -> list[int]:
    """The seeds of a run, one for each stream."""
    return run.seeds(STREAMS, QUICK_STREAMS)


X = TypeVar("X", float, int, str)


@dataclass
class Sweep(Generic[X]):
    """Mean completion times and throughputs of groupings at each point of a sweep, one per stream."""

    completions: dict[tuple[X, str], list[float]] = field(default_factory=dict)
    throughputs: dict[tuple[X, str], list[float]] = field(default_factory=dict)
    messages: dict[tuple[X, str], list[int]] = field(default_factory=dict)

    @property
    def points(self) -> list[X]:
        """The points, in their order."""
        return list(dict.fromkeys(x for x, _ in self.completions))

    @property
    def policies(self) -> list[str]:
        """The groupings, in their order."""
        return list(dict.fromkeys(name for _, name in self.completions))

    def speedups(self, x: X, policy: str) -> list[float]:
        """Completion time of round robin over that of a grouping, one per stream (Lambda in the paper)."""
        return over(self.completions[x, ROUND_ROBIN], self.completions[x, policy])

    def speedup(self, x: X, policy: str) -> float:
        """Mean speed-up."""
        return mean(self.speedups(x, policy))

    def table(self, what: str) -> Table:
        """Speed-ups with their intervals and extremes, and completion times, of every point and grouping."""
        return Table.of(
            f"speed-up over round robin by {what}",
            [
                {
                    what: x,
                    "grouping": name,
                    "speed-up, mean and 95 % interval": str(Interval.of(found)),
                    "lowest": round(min(found), 3),
                    "highest": round(max(found), 3),
                    "mean completion, ms": round(mean(self.completions[x, name]), 2),
                }
                for x in self.points
                for name in self.policies
                for found in [self.speedups(x, name)]
            ],
        )

    def series(self, x: Sequence[float] | None = None) -> list[Series]:
        """A line of speed-ups for each grouping but round robin."""
        at = [float(point) for point in self.points] if x is None else list(x)
        return [
            Series(name, at, [self.speedup(point, name) for point in self.points], "simulated")
            for name in self.policies
            if name != ROUND_ROBIN
        ]


def sweep(
    settings: Mapping[X, Setting],
    policies: Mapping[str, str],
    seeds: Sequence[int],
    progress: Reporter,
    title: str,
    at: Mapping[X, Mapping[str, str]] | None = None,
) -> Sweep[X]:
    """Every grouping at every point over every stream; `at` has groupings that differ from point to point."""
    found: Sweep[X] = Sweep()
    for x, seed in progress.track([(x, seed) for x in settings for seed in seeds], title):
        edge = settings[x].edge(seed)
        for name, named in {**policies, **(at[x] if at else {})}.items():
            run = edge.run(seeded(named, seed))
            found.completions.setdefault((x, name), []).append(run.mean_completion)
            found.throughputs.setdefault((x, name), []).append(run.throughput * 1_000)
            sent = run.traffic
            found.messages.setdefault((x, name), []).append(sent["matrices"] + sent["replies"])
    return found


def parameters(
    setting: Setting, seeds: Sequence[int], policies: Mapping[str, str], **more: object
) -> dict[str, object]:
    """What goes into the JSON of an experiment."""
    return {**dataclasses.asdict(setting), "streams": len(seeds), "groupings": dict(policies), **more}


NOTE = (
    "Simulated: a deterministic discrete-event model in place of the authors' threads that wait busily; one set of "
    "hash functions per stream, where the authors had 100 streams with 50 sets each. OSG is with the clock and the "
    "periodic synchronisation of the authors' program."
)
