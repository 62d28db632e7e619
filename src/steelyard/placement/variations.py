"""Placements a small step away: one thread, two that change places, all of a component on a machine."""

from __future__ import annotations

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.placing import NOWHERE, Setup


def varied(setup: Setup, placed: Ints, count: int, random: np.random.Generator, numbers: bool = False) -> Ints:
    """int64[<= count, threads]: different placements near this one; with `numbers`, also of more or fewer threads."""
    kinds = 6 if numbers else 5
    used = np.unique(placed[placed >= 0])
    made = [_one(setup, placed, used, int(random.integers(kinds)), random) for _ in range(count)]
    twice = [_one(setup, one, used, int(random.integers(kinds)), random) for one in made[: count // 3]]
    found: Ints = np.unique(np.array([*made, *twice]), axis=0)
    changed = found[(found != placed).any(axis=1)]
    return np.asarray(changed[random.permutation(len(changed))[:count]])


def allowed(setup: Setup, assignments: Ints) -> Ints:
    """Those of int64[B, threads] for which every machine has a slot for each application that has a thread there."""
    return np.asarray(assignments[setup.feasible(assignments)]) if len(assignments) else assignments


def _one(setup: Setup, placed: Ints, used: Ints, kind: int, random: np.random.Generator) -> Ints:
    after = placed.copy()
    running = np.flatnonzero(placed >= 0)
    thread = int(running[random.integers(len(running))])
    # Machines that have threads are looked at more often than empty ones.
    near = random.random() < 0.7
    target = int(used[random.integers(len(used))]) if near else int(random.integers(setup.machines))
    number = int(setup.component_of[thread])
    component = slice(int(setup.first[number]), int(setup.first[number + 1]))
    if kind == 0:
        after[thread] = target
    elif kind == 1:
        other = int(running[random.integers(len(running))])
        after[[thread, other]] = placed[[other, thread]]
    elif kind == 2:
        part = after[component]
        part[part == placed[thread]] = target
    elif kind == 3:
        application = setup.application_of[setup.component_of] == setup.application_of[number]
        after[application & (placed == placed[thread])] = target
    elif kind == 4:
        part = after[component]
        there = np.flatnonzero(part == placed[thread])
        part[there[: max(1, len(there) // 2)]] = target
    else:
        _renumbered(after[component], target, bool(random.random() < 0.6))
    return after


def _renumbered(threads: Ints, target: int, fewer: bool) -> None:
    """One thread of a component more, or fewer: the last one, whose machine nobody asks for."""
    running = int((threads >= 0).sum())
    if fewer and running > 1:
        threads[running - 1] = NOWHERE
    elif not fewer and running < len(threads):
        threads[running] = target
