"""What queueing theory says about the simplest clusters: what a simulation of them must come to.

Rates are tuples per second. A mean wait is in the queue alone, in seconds; the time in service comes on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.errors import OptionError


def mm1_wait(arrivals: float, services: float) -> float:
    """Mean wait where arrivals and services are memoryless and one server works.

    >>> mm1_wait(arrivals=80, services=100)
    0.04
    """
    load = _load(arrivals, services)
    return load / (services - arrivals)


def mg1_wait(arrivals: float, mean: float, variance: float) -> float:
    """Mean wait where arrivals are memoryless and services have any law (Pollaczek and Khinchine).

    >>> round(mg1_wait(arrivals=80, mean=0.01, variance=0.0001), 6)
    0.04
    """
    load = _load(arrivals, 1 / mean)
    return arrivals * (variance + mean**2) / (2 * (1 - load))


def md1_wait(arrivals: float, services: float) -> float:
    """Mean wait where arrivals are memoryless and every service takes the same time.

    >>> round(md1_wait(arrivals=80, services=100), 6)
    0.02
    """
    return mg1_wait(arrivals, 1 / services, 0.0)


def mmc_wait(arrivals: float, services: float, servers: int) -> float:
    """Mean wait where `servers` share one queue, each with `services` a second (Erlang's second formula).

    >>> round(mmc_wait(arrivals=80, services=100, servers=1), 6)
    0.04
    """
    return mmc_all_busy(arrivals, services, servers) / (services * servers - arrivals)


def mmc_all_busy(arrivals: float, services: float, servers: int, waiting: int = 0) -> float:
    """The chance that all servers of such a queue are busy and so many tuples wait, or more (Erlang's C, times load).

    >>> round(mmc_all_busy(arrivals=80, services=100, servers=1, waiting=2), 6)
    0.512
    """
    load = _load(arrivals, services * servers)
    offered = arrivals / services
    all_busy = offered**servers / factorial(servers) / (1 - load)
    waits = all_busy / (sum(offered**n / factorial(n) for n in range(servers)) + all_busy)
    return float(waits * load**waiting)


def processor_sharing_time(arrivals: float, services: float) -> float:
    """Mean time in a machine whose tuples all share one core alike, whatever the law of services.

    >>> round(processor_sharing_time(arrivals=80, services=100), 6)
    0.05
    """
    return 1 / (services * (1 - _load(arrivals, services)))


def blocked_pair_throughput(services: float, places: int) -> float:
    """Tuples per second through two memoryless servers in a row, of which the first never lacks work.

    Between them is a queue with so many places; the first waits with what it has done while they are taken. (Hunt
    1956, Sequential arrays of waiting lines.)

    >>> blocked_pair_throughput(services=100, places=1)
    75.0
    """
    return services * (places + 2) / (places + 3)


def fork_join_time(arrivals: float, services: float, servers: int) -> float:
    """Mean time until the last of the copies that go to each of the servers is done, all memoryless.

    Exact for two servers, an approximation within 5 % for up to 32. (Nelson and Tantawi 1988, Approximate analysis of
    fork/join synchronization in parallel queues.)

    >>> round(fork_join_time(arrivals=80, services=100, servers=2), 6)
    0.07
    """
    if servers < 2:
        raise OptionError(f"a fork has 2 servers or more, got {servers}")
    load = _load(arrivals, services)
    two = (12 - load) / 8 / (services - arrivals)
    harmonic = sum(1 / n for n in range(1, servers + 1)) / 1.5
    return two * (harmonic + 4 / 11 * (1 - harmonic) * load)


def jackson_tuples(
    arrivals: Sequence[float], services: Sequence[float], routing: ArrayLike
) -> tuple[list[float], list[float]]:
    """Tuples per second through each queue of a network of memoryless servers, and mean tuples at each (Jackson 1957).

    `routing[i][j]` is the chance with which a tuple goes from queue i to queue j; what is missing to 1 leaves.

    >>> jackson_tuples([40, 0], [100, 100], [[0, 1], [0.5, 0]])
    ([80.0, 80.0], [4.0, 4.0])
    """
    through = np.linalg.solve(np.eye(len(arrivals)) - np.array(routing, float).T, np.array(arrivals, float))
    loads = [_load(float(rate), service) for rate, service in zip(through, services, strict=True)]
    return [round(float(rate), 9) for rate in through], [round(load / (1 - load), 9) for load in loads]


def _load(arrivals: float, services: float) -> float:
    if not 0 < arrivals < services:
        raise OptionError(
            f"arrivals={arrivals:g} a second is not below what can be served, {services:g}: the queue grows for ever"
        )
    return arrivals / services
