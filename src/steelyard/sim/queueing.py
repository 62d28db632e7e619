"""What queueing theory says about the simplest clusters: what a simulation of them must come to.

Rates are tuples a second. A mean wait is in the queue alone, in seconds; the time in service comes on top.
"""

from __future__ import annotations

from math import factorial

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
    load = _load(arrivals, services * servers)
    offered = arrivals / services
    all_busy = offered**servers / factorial(servers) / (1 - load)
    waits = all_busy / (sum(offered**n / factorial(n) for n in range(servers)) + all_busy)
    return waits / (services * servers - arrivals)


def processor_sharing_time(arrivals: float, services: float) -> float:
    """Mean time in a machine whose tuples all share one core alike, whatever the law of services.

    >>> round(processor_sharing_time(arrivals=80, services=100), 6)
    0.05
    """
    return 1 / (services * (1 - _load(arrivals, services)))


def blocked_pair_throughput(services: float, places: int) -> float:
    """Tuples a second through two memoryless servers in a row, of which the first never lacks work.

    Between them is a queue with so many places; the first waits with what it has done while they are taken. (Hunt
    1956, Sequential arrays of waiting lines.)

    >>> blocked_pair_throughput(services=100, places=1)
    75.0
    """
    return services * (places + 2) / (places + 3)


def _load(arrivals: float, services: float) -> float:
    if not 0 < arrivals < services:
        raise OptionError(
            f"arrivals={arrivals:g} a second is not below what can be served, {services:g}: the queue grows for ever"
        )
    return arrivals / services
