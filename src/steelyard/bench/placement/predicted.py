"""How the predicting policies are trained in the experiments: on recorded tuples of placements that were drawn."""

from __future__ import annotations

import time

from steelyard.core.counts import Ints
from steelyard.placement.collecting import Watched, watched
from steelyard.placement.draws import drawn
from steelyard.placement.learnt import Learnt
from steelyard.placement.predicting import Predicting
from steelyard.sim.placed import Clocks, Deployed, ExactCluster

FILLED = 5.0
"""Seconds until queues are as they will be: clusters begin warm."""
TUPLES = 300.0
"""Source tuples per second that are followed."""


def looked(setup: Deployed, assignment: Ints, seed: int, seconds: float) -> Watched:
    """Records and a reading of a placement that is in force for long already, by clocks that differ."""
    clocks = Clocks.drawn(setup.setup.machines, seed)
    cluster = ExactCluster(setup, assignment, seed=seed, clocks=clocks, warm=True)
    return watched(cluster, assignment, seconds, min(1.0, TUPLES / float(cluster.rates.sum())), FILLED)


def learnt(policy: Predicting, setup: Deployed, seed: int) -> tuple[Learnt, float]:
    """What a policy learns of as many placements as it wants, and the processor's seconds that took.

    It is what its `train` does, but for one thing: each placement is in force for long already when it is recorded, so
    that nothing has to settle.
    """
    begun, found = time.process_time(), Learnt()
    for number, assignment in enumerate(drawn(setup.setup, policy.schedules, seed, diversified=policy.diversified)):
        found.add(setup.setup, looked(setup, assignment, 1_000 * seed + number, policy.dwell), schedule=f"{number}")
    found.fit(policy.parameters, policy.pooled)
    return found, time.process_time() - begun
