"""The work that the demonstration does for each key: one that waits and one that computes.

Both are Python aggregates, so that the same lines run inside Steelyard and inside plain Spark's grouped function.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from steelyard.spark.aggregator import Aggregator


class Total(Aggregator):
    """The sum of a whole-number column: exact, so that answers can be compared to the last digit."""

    state: ClassVar[str] = "total bigint"
    result: ClassVar[str] = "bigint"

    def zero(self) -> int:
        """Nothing yet."""
        return 0

    def add(self, state: int, *columns: Any) -> int:
        """Add a slice of rows."""
        return state + int(columns[0].sum())

    def merge(self, left: int, right: int) -> int:
        """Two sums as one."""
        return left + right

    def finish(self, state: int) -> int:
        """The sum is the result."""
        return state


class LookUp(Total):
    """Asks a remote service about every row, then sums: a task that waits and needs no processor.

    The service is a clock: each row waits `wait_us` microseconds.
    """

    def __init__(self, wait_us: float) -> None:
        self.wait_us = wait_us

    def add(self, state: int, *columns: Any) -> int:
        """Wait for the answers, add them up."""
        time.sleep(len(columns[0]) * self.wait_us / 1e6)
        return super().add(state, *columns)


class Score(Total):
    """Gives every row a score, in a plain Python loop, then sums: a task that needs a processor all the time."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def add(self, state: int, *columns: Any) -> int:
        """Score the rows one by one."""
        return state + sum(self.score(value) for value in columns[0].tolist())

    def score(self, value: int) -> int:
        """A number from 0 to 255 that takes `rounds` steps of a random-number generator to find.

        >>> Score(rounds=3).score(1), Score(rounds=3).score(2)
        (228, 161)
        """
        for _ in range(self.rounds):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        return (value >> 8) & 0xFF
