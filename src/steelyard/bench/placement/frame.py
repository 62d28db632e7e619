"""The common frame of the placement experiments: who takes part, curves over twenty minutes, tables and verdicts.

Whoever takes part is a function with the decorator `contestant`, in any module of this package: it gets a deployed
setup and a seed, and gives the placement that it would deploy. Everybody's placement is then deployed cold on a
tuple-exact cluster and measured every ten seconds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np

from steelyard.bench.claims import Claim, Interval
from steelyard.bench.placement.published import BAND, DEFAULT, PUBLISHED, ordered, reduction
from steelyard.bench.registry import Run
from steelyard.bench.tables import Cell, Series, Table
from steelyard.core.counts import Ints
from steelyard.core.measured import EVERY
from steelyard.core.plans import Floats
from steelyard.sim.placed import Deployed, ExactCluster, deployed

SEEDS, QUICK_SEEDS = 5, 3
MINUTES, QUICK_MINUTES = 20.0, 0.5
"""Of a curve; a quick one begins warm, and has one stable part."""
STABLE = 10.0
"""Minute from which a curve counts as stable: the document has eight to ten."""
HOW = (
    "Simulated tuple by tuple, on a cluster whose constants were fitted to the default scheduler's published times "
    "alone, then frozen (sim/placed/frozen.json). Several applications: the mean of their times."
)


@dataclass(frozen=True)
class Choice:
    """What a contestant would deploy.

    Parameters
    ----------
    assignment
        int64[threads].
    samples
        Placements that it measured to learn that.
    seconds
        Of this machine, for learning and deciding.
    """

    assignment: Ints
    samples: int = 0
    seconds: float = 0.0


Choose = Callable[[Deployed, int, bool], Choice]
"""From a setup, a seed, and whether the run is a quick one."""
_registered: dict[str, Choose] = {}


def contestant(name: str) -> Callable[[Choose], Choose]:
    """Make a function one that takes part, under the name of its policy."""

    def register(function: Choose) -> Choose:
        _registered[name] = function
        return function

    return register


@cache
def contestants() -> Mapping[str, Choose]:
    """Everybody who takes part, the default first."""
    package = importlib.import_module("steelyard.bench.placement")
    for module in pkgutil.iter_modules(package.__path__, "steelyard.bench.placement."):
        if not module.name.endswith("calibration"):
            importlib.import_module(module.name)
    return dict(sorted(_registered.items(), key=lambda one: (one[0] != DEFAULT, one[0])))


@contestant(DEFAULT)
def default(setup: Deployed, seed: int, quick: bool) -> Choice:
    """Storm's default: threads to machines in turn."""
    return Choice(setup.setup.round_robin())


@dataclass(frozen=True)
class Curve:
    """Mean tuple time over the minutes after a deployment.

    Parameters
    ----------
    minutes
        When each reading ended.
    times
        float64[readings, applications], in milliseconds.
    throughput, arrivals
        float64[applications], tuples per second over the stable part.
    stable
        First reading that counts as stable.
    """

    minutes: Floats
    times: Floats
    throughput: Floats
    arrivals: Floats
    stable: int

    @property
    def mean(self) -> Floats:
        """float64[readings]: over the applications."""
        return np.asarray(self.times.mean(axis=1))

    @property
    def settled(self) -> float:
        """Milliseconds: the mean over the stable part."""
        return float(self.mean[self.stable :].mean())


def curve(setup: Deployed, assignment: Ints, seed: int, quick: bool) -> Curve:
    """Deploy on a cold cluster and look every ten seconds; a quick one begins warm."""
    cluster = ExactCluster(setup, assignment, seed=seed, warm=quick)
    minutes = QUICK_MINUTES if quick else MINUTES
    readings = [cluster.measure(EVERY) for _ in range(round(minutes * 60 / EVERY))]
    stable = 0 if quick else round(STABLE * 60 / EVERY)
    return Curve(
        np.array([one.time / 60 for one in readings]),
        np.array([one.times * 1e3 for one in readings]),
        np.mean([one.throughput for one in readings[stable:]], axis=0),
        np.mean([one.arrivals for one in readings[stable:]], axis=0),
        stable,
    )


@dataclass
class Contest:
    """Everybody's curves on one setup, a curve for each seed."""

    setup: str
    curves: dict[str, list[Curve]] = field(default_factory=dict)
    choices: dict[str, list[Choice]] = field(default_factory=dict)

    def settled(self, who: str) -> list[float]:
        """Stabilised milliseconds, seed by seed."""
        return [one.settled for one in self.curves[who]]

    def reduction(self, ours: str, theirs: str) -> list[float]:
        """By how many percent one's time is below another's, seed by seed."""
        pairs = zip(self.settled(ours), self.settled(theirs), strict=True)
        return [100.0 * (1.0 - one / other) for one, other in pairs]


def seeds_of(run: Run) -> list[int]:
    """A seed for each repetition."""
    return run.seeds(SEEDS, QUICK_SEEDS)


def contest(run: Run, name: str, who: Iterable[str] | None = None) -> Contest:
    """Everybody, or some of them, on a setup."""
    setup, found = deployed(name), Contest(name)
    for one in who or contestants():
        for seed in run.progress.track(seeds_of(run), f"{name}, {one}"):
            choice = contestants()[one](setup, seed, run.quick)
            found.choices.setdefault(one, []).append(choice)
            found.curves.setdefault(one, []).append(curve(setup, choice.assignment, seed, run.quick))
    return found


def times_table(contests: Sequence[Contest]) -> Table:
    """Published beside ours, for each setup and policy: the structure that all placement experiments share."""
    rows: list[Sequence[Cell]] = []
    for one in contests:
        known = PUBLISHED.get(one.setup)
        for who, curves in one.curves.items():
            printed = known.times.get(who) if known else None
            ours = Interval.of(one.settled(who))
            below = Interval.of(one.reduction(who, DEFAULT)) if who != DEFAULT and DEFAULT in one.curves else None
            said = reduction(one.setup, who, DEFAULT) if printed and below else None
            first = float(np.mean([curve_.mean[0] for curve_ in curves]))
            choices = one.choices[who]
            machines = float(np.mean([len(np.unique(c.assignment[c.assignment >= 0])) for c in choices]))
            threads = float(np.mean([(c.assignment >= 0).sum() for c in choices]))
            rows.append(
                (
                    one.setup,
                    who,
                    printed,
                    str(ours),
                    round(first, 3),
                    None if said is None else round(said, 1),
                    None if below is None else str(below),
                    round(machines, 1),
                    round(threads, 1),
                    int(np.mean([c.samples for c in choices])),
                )
            )
    columns = (
        "setup",
        "policy",
        "published, ms",
        "ours, ms (simulated)",
        "ours at the start, ms",
        "published below the default, %",
        "ours below the default, %",
        "machines used",
        "threads",
        "samples",
    )
    return Table("stabilised mean tuple time", columns, rows)


def reduction_claims(contests: Sequence[Contest], pairs: Sequence[tuple[str, str]], reason: str) -> list[Claim]:
    """One's time below another's by as many percent as published, within eight points; where all of them took part."""
    found = []
    for one in contests:
        for ours, theirs in pairs:
            known = PUBLISHED[one.setup].times if one.setup in PUBLISHED else {}
            if {ours, theirs} <= one.curves.keys() and {ours, theirs} <= known.keys():
                said = reduction(one.setup, ours, theirs)
                found.append(
                    Claim(
                        f"{one.setup}: {ours} is faster than {theirs} by as much as published",
                        f"{said:.1f} %",
                        one.reduction(ours, theirs),
                        at_least=said - BAND,
                        at_most=said + BAND,
                        reason=reason,
                    )
                )
    return found


def order_claims(contests: Sequence[Contest], order: Sequence[str], reason: str) -> list[Claim]:
    """Each of a row of policies is faster than the next, as far as they took part and their order is published."""
    found = []
    for one in contests:
        there = [who for who in order if who in one.curves and who in ordered(one.setup)]
        for ours, theirs in pairwise(there):
            found.append(
                Claim(
                    f"{one.setup}: {ours} is faster than {theirs}",
                    " < ".join(there),
                    [ms / other for ms, other in zip(one.settled(ours), one.settled(theirs), strict=True)],
                    at_most=1.0,
                    reason=reason,
                )
            )
    return found


def curves_of(contests: Sequence[Contest]) -> list[Series]:
    """Mean curves over the seeds, one for each policy, in a panel for each setup."""
    found = []
    for one in contests:
        for who, curves in one.curves.items():
            y = np.mean([curve_.mean for curve_ in curves], axis=0)
            name = f"{one.setup}: {who}" if len(contests) > 1 else who
            found.append(Series(name, curves[0].minutes.round(3).tolist(), y.round(4).tolist(), "simulated"))
    return found
