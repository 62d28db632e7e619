"""Mean tuple times of many placements at once, by formulas of queues: the fast level of a placed cluster.

For each placement: what shares of each component's tuples go where; what a tuple costs there, which depends on hops and
on who else is there; how long it waits, for its thread (Pollaczek and Khinchine) and for a core (Sakasegawa); and from
the last components to the sources, mean and variance of the time until all that a tuple becomes is done, where the
latest of several counts.
"""

from __future__ import annotations

import numpy as np

from steelyard.kernels.compiled import inlined, loop
from steelyard.kernels.placed_state import (
    ALL,
    CROWDING,
    FIELDS,
    GLOBAL,
    LOCAL,
    PER_THREAD,
    PER_WORKER,
    REMOTE,
    SERIALISE,
    THREAD_CPU,
    Floats,
    Ints,
    Placing,
)

MOST_LOAD = 0.95
"""Above it a queue's time goes on growing in a straight line, so that every placement has a finite time."""
LACKING = 4.0
"""Seconds more for each unit of load above it."""
_ROWS = 12
"""Per thread or machine or component: what the loop keeps beside."""


def room_for(components: int, machines: int, threads: int) -> tuple[Floats, Floats, Floats]:
    """Room for one placement: by component and machine, by machine, by component."""
    return (
        np.zeros((8, components, machines)),
        np.zeros((_ROWS, machines)),
        np.zeros((_ROWS, max(components, threads))),
    )


@inlined
def share_of(placing: Placing, component: int, number: int, running: int) -> float:
    """What part of a component's tuples thread `number` of so many gets."""
    if placing.first_share[component] >= 0:
        return float(placing.shares[placing.first_share[component] + running * (running - 1) // 2 + number])
    return 1.0 / running


@inlined
def latest(mean: float, variance: float, other: float, other_variance: float) -> tuple[float, float]:
    """Mean and variance of the later of two times, as of normal ones (Clark)."""
    spread = np.sqrt(variance + other_variance)
    if spread < 1e-12:
        return (mean, variance) if mean > other else (other, other_variance)
    z = (mean - other) / spread
    density = np.exp(-0.5 * z * z) * 0.3989422804014327
    # the logistic curve that is within 0.01 of the normal distribution
    below = 1.0 / (1.0 + np.exp(-1.702 * z))
    found = mean * below + other * (1.0 - below) + spread * density
    square = (
        (mean * mean + variance) * below
        + (other * other + other_variance) * (1.0 - below)
        + (mean + other) * spread * density
    )
    return found, max(square - found * found, 0.0)


@inlined
def stretch(load: float, cores: float, threads: float) -> float:
    """How much longer work takes where so many threads share so many cores: Sakasegawa's waiting, as a part of work."""
    if threads <= cores:
        return 1.0
    used = min(load, MOST_LOAD)
    waits = used ** (np.sqrt(2.0 * (cores + 1.0)) - 1.0) / (cores * (1.0 - used))
    # fewer threads than for ever: with n of them, one finds n - 1 others
    return float(1.0 + waits * (1.0 - cores / threads))


@loop
def placed_times(
    placing: Placing,
    assignments: Ints,
    rates: Floats,
    cells: Floats,
    hosts: Floats,
    parts: Floats,
    out: Floats,
) -> None:
    """Fill `out`, float64[B, applications], from int64[B, threads] and source tuples per second by application."""
    for row in range(len(assignments)):
        _times_of(placing, assignments[row], rates, cells, hosts, parts, out[row])


@inlined
def _gather(placing: Placing, assignment: Ints, cells: Floats, hosts: Floats, parts: Floats) -> None:
    """Threads, shares and processes: cells 0 shares, 1 threads; parts 0 running, 6 machines of the application."""
    components, machines = len(placing.service), len(placing.cores)
    cells[:2] = 0.0
    hosts[:] = 0.0
    for c in range(components):
        first, last = placing.first[c], placing.first[c + 1]
        running = 0
        while first + running < last and assignment[first + running] >= 0:
            running += 1
        parts[0, c] = running
        for number in range(running):
            machine = assignment[first + number]
            cells[0, c, machine] += share_of(placing, c, number, running)
            cells[1, c, machine] += 1.0
            hosts[0, machine] += 1.0
    begin = 0
    while begin < components:
        end = begin
        while end < components and placing.application[end] == placing.application[begin]:
            end += 1
        used = 0.0
        for m in range(machines):
            there = 0.0
            for c in range(begin, end):
                there += cells[1, c, m]
            if there > 0.0:
                used += 1.0
                hosts[1, m] += 1.0
        for c in range(begin, end):
            parts[6, c] = used
        begin = end
    for m in range(machines):
        hosts[2, m] = 1.0 + placing.costs[CROWDING] * max(hosts[1, m] - 1.0, 0.0)
        hosts[3, m] = max(placing.cores[m] - placing.costs[THREAD_CPU] * hosts[0, m], 0.1)


@inlined
def _visits(placing: Placing, rates: Floats, parts: Floats) -> None:
    """parts 1: tuples per second that come to each component; those of sources are dealt by their threads."""
    components = len(placing.service)
    for c in range(components):
        parts[1, c] = 0.0
    for c in range(components):
        if placing.source[c]:
            threads = 0.0
            for other in range(components):
                if placing.source[other] and placing.application[other] == placing.application[c]:
                    threads += parts[0, other]
            parts[1, c] = rates[placing.application[c]] * parts[0, c] / threads
    for c in range(components):
        for e in range(placing.first_edge[c], placing.first_edge[c + 1]):
            r = placing.receiver[e]
            copies = parts[0, r] if placing.grouping[e] == ALL else 1.0
            parts[1, r] += parts[1, c] * placing.outputs[e] * copies


@inlined
def _demands(placing: Placing, cells: Floats, hosts: Floats, parts: Floats) -> None:
    """cells 2: seconds of a core for a tuple of a component on a machine; hosts 4: load; 5: stretch."""
    components, machines = len(placing.service), len(placing.cores)
    serialise = placing.costs[SERIALISE]
    cells[3] = 0.0
    for c in range(components):
        for e in range(placing.first_edge[c], placing.first_edge[c + 1]):
            r = placing.receiver[e]
            copies = parts[0, r] if placing.grouping[e] == ALL else 1.0
            rate = parts[1, c] * placing.outputs[e] * copies
            for m in range(machines):
                # seconds per second: at the sender for what goes elsewhere, at the receiver for what comes from there
                cells[3, c, m] += rate * cells[0, c, m] * (1.0 - cells[0, r, m]) * serialise
                cells[3, r, m] += rate * cells[0, r, m] * (1.0 - cells[0, c, m]) * serialise
    for m in range(machines):
        work = 0.0
        for c in range(components):
            tuples = parts[1, c] * cells[0, c, m]
            cells[2, c, m] = 0.0
            if tuples > 0.0:
                cells[2, c, m] = (placing.service[c] + cells[3, c, m] / tuples) * hosts[2, m]
                work += tuples * cells[2, c, m]
        hosts[4, m] = work / hosts[3, m]
        hosts[5, m] = stretch(hosts[4, m], hosts[3, m], hosts[0, m])


@inlined
def _sojourn(
    placing: Placing, assignment: Ints, c: int, batch: float, cells: Floats, hosts: Floats, parts: Floats
) -> None:
    """parts 2 and 3: mean and variance of the time that a tuple is at a component, over its threads."""
    running = int(parts[0, c])
    mean, square = 0.0, 0.0
    spread = placing.spread[c] ** 2
    for number in range(running):
        share = share_of(placing, c, number, running)
        m = assignment[placing.first[c] + number]
        work = cells[2, c, m] * hosts[5, m]
        load = parts[1, c] * share * work
        used = min(load, MOST_LOAD)
        wait = 0.5 * (1.0 + spread) * work * used / (1.0 - used) + 0.5 * (batch - 1.0) * share * work
        lacking = max(load - MOST_LOAD, 0.0) + max(hosts[4, m] - MOST_LOAD, 0.0)
        wait += LACKING * lacking
        varies = wait * wait * (2.0 / max(used, 0.05) - 1.0) if used > 0.05 else wait * work * 2.0
        there = wait + work
        mean += share * there
        square += share * (there * there + varies + spread * work * work)
    parts[2, c], parts[3, c] = mean, max(square - mean * mean, 0.0)


@inlined
def _hop(placing: Placing, c: int, r: int, cells: Floats, hosts: Floats, parts: Floats) -> tuple[float, float]:
    """Mean and variance of the time from a thread of one component to one of the next."""
    machines = len(placing.cores)
    costs = placing.costs
    mean, square = 0.0, 0.0
    for a in range(machines):
        here = cells[0, c, a]
        if here == 0.0:
            continue
        inside = cells[0, r, a] * here
        at = costs[LOCAL] * hosts[2, a]
        mean += inside * at
        square += inside * at * at
        remotely = 0.0
        for b in range(machines):
            if b != a and cells[0, r, b] > 0.0:
                remotely = cells[0, r, b] * here
                slow = 0.5 * (hosts[2, a] + hosts[2, b])
                turn = costs[PER_WORKER] * (parts[6, c] - 1.0) + costs[PER_THREAD] * (parts[0, r] - cells[1, r, a])
                at = (costs[REMOTE] + turn) * slow
                mean += remotely * at
                square += remotely * (at * at + (turn * slow) ** 2 / 3.0)
    return mean, max(square - mean * mean, 0.0)


@inlined
def _acked(placing: Placing, c: int, cells: Floats, hosts: Floats, parts: Floats) -> float:
    """Mean time from a thread where a tuple ends back to the source that waits for it."""
    machines = len(placing.cores)
    costs = placing.costs
    mean, weight = 0.0, 0.0
    for s in range(len(placing.service)):
        if not placing.source[s] or placing.application[s] != placing.application[c]:
            continue
        weight += parts[1, s]
        for a in range(machines):
            for b in range(machines):
                both = parts[1, s] * cells[0, c, a] * cells[0, s, b]
                if both > 0.0:
                    slow = 0.5 * (hosts[2, a] + hosts[2, b])
                    at = costs[LOCAL] if a == b else costs[REMOTE] + costs[PER_WORKER] * (parts[6, c] - 1.0)
                    mean += both * at * slow
    return mean / max(weight, 1e-12)


@inlined
def _times_of(  # noqa: PLR0912
    placing: Placing, assignment: Ints, rates: Floats, cells: Floats, hosts: Floats, parts: Floats, out: Floats
) -> None:
    components = len(placing.service)
    _gather(placing, assignment, cells, hosts, parts)
    _visits(placing, rates, parts)
    _demands(placing, cells, hosts, parts)
    # parts 7: how many tuples come at once
    for c in range(components):
        parts[7, c] = 1.0
    for c in range(components):
        for e in range(placing.first_edge[c], placing.first_edge[c + 1]):
            r = placing.receiver[e]
            if placing.grouping[e] == FIELDS or placing.grouping[e] == GLOBAL or placing.outputs[e] > parts[0, r]:
                parts[7, r] = max(parts[7, r], placing.outputs[e])
    out[:] = 0.0
    # parts 4 and 5: mean and variance from when a tuple comes to a component until all that it becomes is done
    for back in range(components):
        c = components - 1 - back
        _sojourn(placing, assignment, c, parts[7, c], cells, hosts, parts)
        mean, variance, seen = 0.0, 0.0, False
        for e in range(placing.first_edge[c], placing.first_edge[c + 1]):
            r = placing.receiver[e]
            hop, varies = _hop(placing, c, r, cells, hosts, parts)
            after, spread = hop + parts[4, r], varies + parts[5, r]
            copies = parts[0, r] if placing.grouping[e] == ALL else 1.0
            several = placing.outputs[e] * copies
            if several > 1.0:
                # the latest of n alike: between normal and exponential times
                log_n = np.log(several)
                after += np.sqrt(spread) * (0.42 * log_n + 0.56 * np.sqrt(log_n))
                spread *= 1.0 / (1.0 + 0.35 * log_n)
            elif several < 1.0:
                spread = several * spread + several * (1.0 - several) * after * after
                after *= several
            if seen:
                mean, variance = latest(mean, variance, after, spread)
            else:
                mean, variance, seen = after, spread, True
        if not seen:
            mean = _acked(placing, c, cells, hosts, parts)
        if placing.source[c]:
            threads = 0.0
            for other in range(components):
                if placing.source[other] and placing.application[other] == placing.application[c]:
                    threads += parts[0, other]
            out[placing.application[c]] += mean * parts[0, c] / threads
            parts[4, c], parts[5, c] = mean, variance
        else:
            parts[4, c], parts[5, c] = mean + parts[2, c], variance + parts[3, c]
