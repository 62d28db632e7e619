"""The predicting policies in the experiments: how they are trained, and what they would deploy."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from steelyard.bench.placement.frame import Choice, contestant
from steelyard.bench.placement.published import MODEL
from steelyard.core.counts import Ints
from steelyard.placement import placement
from steelyard.placement.collecting import Watched, watched
from steelyard.placement.draws import drawn
from steelyard.placement.learnt import Learnt
from steelyard.sim.placed import Clocks, Deployed, ExactCluster

LOCAL = "local_search"
SCHEDULES, QUICK_SCHEDULES = 40, 8
"""Placements that are learnt from: twenty minutes in all, of which 30 s each are recorded."""
DWELL, FILLED = 30.0, 5.0
"""Seconds that are recorded, and until queues are as they will be: clusters begin warm."""
TUPLES = 300.0
"""Source tuples per second that are followed."""


def looked(setup: Deployed, assignment: Ints, seed: int, seconds: float = DWELL) -> Watched:
    """Records and a reading of a placement that is in force for long already, by clocks that differ."""
    clocks = Clocks.drawn(setup.setup.machines, seed)
    cluster = ExactCluster(setup, assignment, seed=seed, clocks=clocks, warm=True)
    return watched(cluster, assignment, seconds, min(1.0, TUPLES / float(cluster.rates.sum())), FILLED)


@lru_cache(maxsize=8)
def learnt(setup: Deployed, seed: int, quick: bool) -> tuple[Learnt, float]:
    """What is learnt of a setup, and the seconds of this machine that it took."""
    begun, found = time.perf_counter(), Learnt()
    for number, assignment in enumerate(drawn(setup.setup, QUICK_SCHEDULES if quick else SCHEDULES, seed)):
        found.add(setup.setup, looked(setup, assignment, 1_000 * seed + number), schedule=f"{number}")
    found.fit(placement(MODEL).parameters)  # type: ignore[attr-defined]
    return found, time.perf_counter() - begun


def policy_of(who: str, known: Learnt) -> Any:
    """A policy that has learnt this."""
    made: Any = placement(who)
    made.learnt = known
    return made


def chosen(who: str, setup: Deployed, seed: int, quick: bool) -> Choice:
    """What it would deploy in place of round robin."""
    known, took = learnt(setup, seed, quick)
    dealt = setup.setup.round_robin()
    present = looked(setup, dealt, 1_000 * seed + 999).reading
    begun = time.perf_counter()
    action = policy_of(who, known).place(setup.setup, present)
    took += time.perf_counter() - begun
    return Choice(setup.setup.assignment(action, dealt), QUICK_SCHEDULES if quick else SCHEDULES, took)


@contestant(MODEL)
def model_based(setup: Deployed, seed: int, quick: bool) -> Choice:
    """Algorithm 1 on predicted times."""
    return chosen(MODEL, setup, seed, quick)


@contestant(LOCAL)
def local_search(setup: Deployed, seed: int, quick: bool) -> Choice:
    """A longer search on the same."""
    return chosen(LOCAL, setup, seed, quick)
