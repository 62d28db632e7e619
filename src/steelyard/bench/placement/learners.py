"""Those who learn placements, as contestants of the placement experiments."""

from __future__ import annotations

import time
from typing import Any

from steelyard.bench.placement.contest import policy_of
from steelyard.bench.placement.frame import Choice, contestant
from steelyard.bench.placement.published import ACTOR, DQN, EXTRA
from steelyard.bench.registry import Run
from steelyard.core.measured import settled
from steelyard.sim.placed import Deployed, FastCluster


def learnt(name: str, setup: Deployed, seed: int, quick: bool) -> Choice:
    """Train on the fast level, and ask once, with threads dealt in turn and all settled."""
    begun = time.perf_counter()
    policy: Any = policy_of(name, Run(quick=quick))
    cluster = FastCluster(setup, seed=seed)
    policy.train(cluster, seed)
    seen = settled(cluster, cluster.setup.round_robin())
    wanted = cluster.setup.assignment(policy.place(cluster.setup, seen), seen.assignment)
    samples = int(policy.trained.metrics["samples"])
    return Choice(wanted, samples, time.perf_counter() - begun)


@contestant(DQN)
def dqn(setup: Deployed, seed: int, quick: bool) -> Choice:
    """One thread at a time."""
    return learnt(DQN, setup, seed, quick)


@contestant(ACTOR)
def actor_critic(setup: Deployed, seed: int, quick: bool) -> Choice:
    """An actor and a critic."""
    return learnt(ACTOR, setup, seed, quick)


@contestant(EXTRA)
def extra(setup: Deployed, seed: int, quick: bool) -> Choice:
    """Numbers of threads too."""
    return learnt(EXTRA, setup, seed, quick)


@contestant("guided")
def guided(setup: Deployed, seed: int, quick: bool) -> Choice:
    """From a guess at the graph; where several applications share a cluster, with other numbers of threads too."""
    several = len(setup.setup.applications) > 1
    return learnt("guided?numbers=true" if several else "guided", setup, seed, quick)
