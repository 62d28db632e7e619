"""Which operators hold a job back: those that follow on one that waits, and sources that are left behind.

G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024, section 4; thresholds are those of its
published program.
"""

from __future__ import annotations

from steelyard.core import Observation, OperatorObservation

HELD = 0.1
"""An operator is held back if it is for more than this share of its time; below, Flink's interface says all is well."""


def held_back(seen: Observation, held: float = HELD) -> set[str]:
    """Operators that wait for those that they send to."""
    return {one.name for one in seen.operators if one.backpressured > held}


def bottlenecks(seen: Observation, grows: float, held: float = HELD) -> list[OperatorObservation]:
    """Operators that are not held back while one that sends to them is; sources whose lag grows while they are not.

    Parameters
    ----------
    seen
        What an engine saw.
    grows
        Rows per second by which the lag of a source must grow.
    held
        Share of time from which an operator counts as held back.

    Examples
    --------
    >>> log = OperatorObservation("log", 1, backpressured=0.4)
    >>> parse = OperatorObservation("map", 5, {"log": 100.0}, busy=1.0)
    >>> [one.name for one in bottlenecks(Observation(15.0, 15.0, (log, parse)), grows=1000)]
    ['map']
    """
    blocked = held_back(seen, held)
    return [
        one
        for one in seen.operators
        if one.name not in blocked
        and (blocked & one.received_from.keys() if one.received_from else (one.lag_per_second or 0.0) > grows)
    ]


def sources_of(seen: Observation, name: str) -> list[OperatorObservation]:
    """Sources whose rows come to an operator, itself where it is one.

    >>> log, left = OperatorObservation("log", 1), OperatorObservation("left", 1, {"log": 1.0})
    >>> [one.name for one in sources_of(Observation(1.0, 1.0, (log, left)), "left")]
    ['log']
    """
    known = {one.name: one for one in seen.operators}
    reached, waiting = {name}, [name]
    while waiting:
        new = known[waiting.pop()].received_from.keys() & known.keys() - reached
        reached |= new
        waiting += new
    return [one for one in seen.operators if one.name in reached and not one.received_from]
