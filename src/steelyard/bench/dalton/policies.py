"""Dalton and its rivals as section 5 of Zapridou et al. 2022 runs them: who has reducers, who forwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steelyard.bench import mean
from steelyard.bench.dalton.stage_model import (
    Costs,
    Engine,
    Plan,
    Stages,
    Trace,
    mean_stages,
    routed,
    window_ends,
)
from steelyard.bench.dalton.streams import SLIDE, WINDOW
from steelyard.core.counts import Ints
from steelyard.core.policies import Router, TuplePolicy
from steelyard.partition.affinity import Affinity
from steelyard.partition.cardinality import Cardinality
from steelyard.partition.dagreedy import DAGreedy
from steelyard.partition.dalton import Dalton
from steelyard.partition.simple_routers import HashRouter, ShuffleRouter
from steelyard.partition.two_choices import TwoChoices

DALTON, UNCAPPED = "dalton", "dalton, cap n"
RIVALS = ("hash", "shuffle", "pk2", "cam", "cm", "dagreedy")
ALL = (*RIVALS, DALTON, UNCAPPED)
HASH_FAMILY, SPLIT_FAMILY = ("hash", "cam"), ("shuffle", "pk2", "cm")


@dataclass(frozen=True)
class Contender:
    """A policy and its plan."""

    name: str
    """How tables call it."""
    one_step: bool = False
    """Keys are never split, so that combiners are all there is and have every slot."""
    forwarding: bool = False
    """Partials of keys that were not split skip the reducers. The paper gives it to DAGreedy too."""
    window: int = WINDOW
    slide: int = SLIDE
    """In rows."""
    exact: bool = False
    """Forward whatever is whole in the window, and not only what the router believes to be so."""

    def router(self, blocks: int, partitioner: int = 0, seed: int = 3) -> Router:
        """A partitioner."""
        if self.name == "hash":
            return HashRouter(blocks)
        if self.name == "shuffle":
            return ShuffleRouter(blocks, partitioner)
        sizes = {"window": self.window, "slide": self.slide}
        policies: dict[str, TuplePolicy] = {
            "pk2": TwoChoices(**sizes),
            "cam": Affinity(),
            "cm": Cardinality(**sizes),
            "dagreedy": DAGreedy(**sizes),
            DALTON: Dalton(window=self.window, slide=self.slide, seed=seed),
            UNCAPPED: Dalton(window=self.window, slide=self.slide, split_cap="n", seed=seed),
        }
        return policies[self.name].router(blocks, partitioner)

    def plan(self, slots: int) -> Plan:
        """How it uses so many slots."""
        return Plan.of(slots, one_step=self.one_step)


def contenders(names: Sequence[str] = ALL, window: int = WINDOW, slide: int = SLIDE) -> dict[str, Contender]:
    """The policies by name.

    >>> contenders(["hash"])["hash"].plan(8)
    Plan(combiners=8, reducers=0)
    """
    return {
        name: Contender(
            name,
            one_step=name in HASH_FAMILY,
            forwarding=name in ("dagreedy", DALTON, UNCAPPED),
            window=window,
            slide=slide,
        )
        for name in names
    }


def warm_up(names: Sequence[str] = ALL) -> None:
    """Compile what routing needs, so that no clock sees it."""
    keys = np.random.default_rng(0).zipf(1.3, 4_000) % 5_000
    for contender in contenders(names, 400, 100).values():
        routed(contender.router(4), keys)


@dataclass(frozen=True)
class Throughput:
    """Stage costs of one policy on one stream by kind of engine, and how even its blocks are."""

    stages: Mapping[Engine, Stages]
    largest_share: float
    route_us: float

    def rate(self, engine: Engine = "windows") -> float:
        """Rows per second that the plan sustains."""
        return self.stages[engine].rate


def evaluate(contender: Contender, keys: Ints, slots: int, costs: Costs, windows: int, seed: int = 3) -> Throughput:
    """Route a stream with one policy, and what its plan sustains."""
    plan = contender.plan(slots)
    trace = replace(routed(contender.router(plan.combiners, seed=seed), keys), exact=contender.exact)
    return of_trace(trace, contender, plan, costs, window_ends(len(keys), contender.window, contender.slide, windows))


def of_trace(trace: Trace, contender: Contender, plan: Plan, costs: Costs, ends: Iterable[int]) -> Throughput:
    """What a plan sustains when rows go where the trace says, as a mean over the windows that end there."""
    found: dict[Engine, list[Stages]] = {engine: [] for engine in costs}
    shares = []
    for end in ends:
        window = trace.window(end, contender.window, contender.slide)
        shares.append(window.largest_share)
        for engine, cost in costs.items():
            stages = window.stages(
                plan.reducers,
                cost,
                engine=engine,
                forwarding=contender.forwarding,
                partitioner_us=trace.route_us,
            )
            found[engine].append(stages)
    means = {engine: mean_stages(stages) for engine, stages in found.items()}
    return Throughput(means, mean(shares), trace.route_us)


def timeline(contender: Contender, keys: Ints, slots: int, costs: Costs, every: int, seed: int = 3) -> Timeline:
    """Stage costs for each stretch of `every` rows: combiners by the rows of the stretch, reducers by its window."""
    plan = contender.plan(slots)
    trace = routed(contender.router(plan.combiners, seed=seed), keys)
    return Timeline(
        trace, [stretch(trace, contender, plan, costs, end, every) for end in range(every, len(keys) + 1, every)]
    )


def stretch(trace: Trace, contender: Contender, plan: Plan, costs: Costs, end: int, every: int) -> Stages:
    """Stage costs of the rows of one stretch, which ends before row `end`, in the engine `"windows"`."""
    window = trace.window(end, contender.window, contender.slide)
    stages = window.stages(
        plan.reducers,
        costs["windows"],
        engine="windows",
        forwarding=contender.forwarding,
        partitioner_us=trace.route_us,
    )
    loads = np.bincount(trace.block[end - every : end])
    combiner = loads.max() / every * (contender.window / contender.slide) * costs["windows"].alone
    return Stages(trace.route_us, float(combiner), stages.reducer)


@dataclass(frozen=True)
class Timeline:
    """What a policy did, and the stage costs of stretch after stretch."""

    trace: Trace
    stages: Sequence[Stages]

    def rates(self, first: int = 0, last: int | None = None) -> list[float]:
        """Rows per second in each stretch."""
        return [one.rate for one in self.stages[first:last]]

    def throughput(self, chosen: Iterable[int] | None = None) -> float:
        """Rows over time, all stretches or the chosen ones together: the harmonic mean of the rates."""
        costs = [1 / self.stages[i].rate for i in (range(len(self.stages)) if chosen is None else chosen)]
        return float(1 / np.mean(costs))
