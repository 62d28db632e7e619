"""What Markov chains say about small clusters for which there is no formula: all states, and how often each is held.

Where queues have no bound, states beyond a length that is reached in one of 10^7 moments at most are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import numpy as np

from steelyard.core.plans import Floats

State = TypeVar("State", bound=Hashable)

LONGEST_QUEUES = 40
LONGEST_LINE = 250


def stationary(states: list[State], moves: Callable[[State], Iterable[tuple[State, float]]]) -> Floats:
    """float64[states]: the share of the time that the chain is in each state.

    Parameters
    ----------
    states
        All of them; moves to others are left out.
    moves
        From a state: the states that follow, and how often a second.

    Examples
    --------
    >>> stationary([0, 1], lambda state: [(1 - state, 1.0 + 2.0 * state)])
    array([0.75, 0.25])
    """
    numbers = {state: number for number, state in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for number, state in enumerate(states):
        for following, rate in moves(state):
            if following in numbers:
                rates[numbers[following], number] += rate
                rates[number, number] -= rate
    rates[-1] = 1.0  # of the equations one follows from the others; the shares add up to 1
    wanted = np.zeros(len(states))
    wanted[-1] = 1.0
    return np.asarray(np.linalg.solve(rates, wanted), np.float64)


def shortest_queue_time(arrivals: float, services: float) -> float:
    """Mean time in two memoryless servers, each with a queue of its own, where a tuple joins the one with fewer tuples.

    >>> round(shortest_queue_time(arrivals=0.02, services=1.0), 3)   # nearly nobody waits
    1.0
    """
    states = [(first, second) for first in range(LONGEST_QUEUES + 1) for second in range(LONGEST_QUEUES + 1)]

    def moves(state: tuple[int, int]) -> Iterable[tuple[tuple[int, int], float]]:
        first, second = state
        yield ((first + 1, second) if first <= second else (first, second + 1)), arrivals
        yield (first - 1, second), services
        yield (first, second - 1), services

    return float(stationary(states, moves) @ np.array([sum(state) for state in states])) / arrivals


def blocked_tandem_time(arrivals: float, services: float, places: int) -> float:
    """Mean time in two memoryless servers in a row, between which so many tuples have room.

    The first has a queue without a bound. It holds what it has done while there is no room (blocking after service).

    >>> round(blocked_tandem_time(arrivals=0.01, services=1.0, places=1), 2)   # nearly nobody waits
    2.02
    """
    most = places + 2  # in service, waiting, and held by the first server
    states = [(first, second) for first in range(LONGEST_LINE + 1) for second in range(most + 1)]

    def moves(state: tuple[int, int]) -> Iterable[tuple[tuple[int, int], float]]:
        first, second = state
        yield (first + 1, second), arrivals
        yield (first, second - 1), services
        if second < most:
            yield (first - 1, second + 1), services

    return float(stationary(states, moves) @ np.array([sum(state) for state in states])) / arrivals
