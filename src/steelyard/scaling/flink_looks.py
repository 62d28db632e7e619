"""What the autoscaler of Flink keeps of a job: looks of a while, and their sums."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steelyard.core import Observation, OperatorObservation, State


class Seen(NamedTuple):
    """One operator at one look. Rates are per second, shares are of time."""

    processed: float
    busy: float
    """Of its busiest instance, where instances are shown."""
    busy_mean: float
    held: float
    """Held back by those that it sends to."""
    arrived: float
    lag: float
    lag_seconds: float


class Look(NamedTuple):
    """One look."""

    time: float
    seconds: float
    operators: Mapping[str, Seen]
    edges: Mapping[tuple[str, str], float]
    """Rows per second, by sender and receiver."""


def look_at(seen: Observation) -> Look:
    """What is kept of an observation."""
    return Look(
        seen.time,
        seen.seconds,
        {one.name: _seen(one) for one in seen.operators},
        {edge: rate for one in seen.operators for edge, rate in _edges(one).items()},
    )


def _seen(one: OperatorObservation) -> Seen:
    busiest = max((each.busy for each in one.instances), default=one.busy)
    arrived = one.processed_per_second if one.arrived_per_second is None else one.arrived_per_second
    lag, lag_seconds = one.lag or 0.0, one.lag_seconds or 0.0
    return Seen(one.processed_per_second, busiest, one.busy, one.backpressured, arrived, lag, lag_seconds)


def _edges(one: OperatorObservation) -> dict[tuple[str, str], float]:
    """What came over each edge to an operator: no less than it processed, whatever its senders say that they sent.

    What a sender hands on is counted in more than one way, and where one of them fails the operators behind would seem
    to need nothing. With one sender, what the receiver processed is known to have come from it; of several, all are
    taken to have sent as many times more.
    """
    said = dict(one.received_from)
    together = sum(said.values())
    if one.processed_per_second > together:
        if together > 0:
            said = {sender: rate * one.processed_per_second / together for sender, rate in said.items()}
        elif len(said) == 1:
            said = dict.fromkeys(said, one.processed_per_second)
    return {(sender, one.name): rate for sender, rate in said.items()}


@dataclass(frozen=True)
class Sums:
    """What happened over a window of looks."""

    looks: tuple[Look, ...]

    def rows(self, name: str) -> float:
        """Rows that an operator processed."""
        return sum(one.operators[name].processed * one.seconds for one in self.looks)

    def at_work(self, name: str, busiest: bool) -> float:
        """Seconds for which it worked, or its busiest instance."""
        return sum(
            (one.operators[name].busy if busiest else one.operators[name].busy_mean) * one.seconds for one in self.looks
        )

    @property
    def seconds(self) -> float:
        """All looks together."""
        return sum(one.seconds for one in self.looks)

    def arrived(self, name: str) -> float:
        """Rows per second that came to a source."""
        return sum(one.operators[name].arrived * one.seconds for one in self.looks) / self.seconds

    def ratio(self, sender: str, receiver: str) -> float | None:
        """Rows over an edge for one that the sender processed; None where it processed none."""
        rows = self.rows(sender)
        over = sum(one.edges.get((sender, receiver), 0.0) * one.seconds for one in self.looks)
        return over / rows if rows > 0 else None

    def under_lag(self, name: str, lag_seconds: float) -> list[float]:
        """Rates at which a source read while it had more lag than that, if nothing had held it back."""
        looks = [one.operators[name] for one in self.looks]
        return [one.processed / (1 - one.held) for one in looks if one.lag_seconds > lag_seconds and one.held < 1]


class Looks:
    """Looks of a while, the newest last.

    Parameters
    ----------
    seconds
        Length of the window.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._kept: deque[Look] = deque()

    def add(self, one: Look) -> None:
        """Keep a look, and forget what is too old."""
        self._kept.append(one)
        while len(self._kept) > 1 and self._kept[0].time <= one.time - self.seconds:
            self._kept.popleft()

    def clear(self) -> None:
        """Forget all: other numbers of instances are others' looks."""
        self._kept.clear()

    @property
    def covered(self) -> float:
        """Seconds from the begin of the first to the end of the last."""
        return self._kept[-1].time - self._kept[0].time + self._kept[0].seconds if self._kept else 0.0

    @property
    def sums(self) -> Sums:
        """All of them together."""
        return Sums(tuple(self._kept))

    def state(self) -> State:
        """As arrays."""
        names = sorted({name for one in self._kept for name in one.operators})
        at = {name: number for number, name in enumerate(names)}
        operators = [
            (one.time, one.seconds, at[name], *seen) for one in self._kept for name, seen in one.operators.items()
        ]
        edges = [
            (one.time, at[sender], at[receiver], rate)
            for one in self._kept
            for (sender, receiver), rate in one.edges.items()
        ]
        return {
            "names": np.array(names, dtype=np.str_),
            "operators": np.array(operators, dtype=np.float64).reshape(-1, 3 + len(Seen._fields)),
            "edges": np.array(edges, dtype=np.float64).reshape(-1, 4),
        }

    def restore(self, state: State) -> None:
        """Go on from that."""
        names = state["names"].tolist()
        operators: dict[tuple[float, float], dict[str, Seen]] = {}
        edges: dict[float, dict[tuple[str, str], float]] = {}
        for time, seconds, number, *seen in state["operators"].tolist():
            operators.setdefault((time, seconds), {})[names[int(number)]] = Seen(*seen)
        for time, sender, receiver, rate in state["edges"].tolist():
            edges.setdefault(time, {})[names[int(sender)], names[int(receiver)]] = rate
        self._kept = deque(Look(*moment, own, edges.get(moment[0], {})) for moment, own in operators.items())
