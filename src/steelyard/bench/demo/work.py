"""The work that the demonstration does for each key, which waits for a remote service.

It is a Python aggregate, so that the same lines run inside Steelyard and inside plain Spark's functions.
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
    """Has rows scored by a remote service, then sums: a task that waits and needs no processor.

    The service is a clock. A task that has rows of a key first fetches what belongs to the key (a profile, a model, a
    session), which takes `fetch_us` microseconds; then each row waits `wait_us`.
    """

    def __init__(self, wait_us: float, fetch_us: float = 0.0) -> None:
        self.wait_us = wait_us
        self.fetch_us = fetch_us

    def add(self, state: int, *columns: Any) -> int:
        """Wait for the answers about some rows of one key, add them up."""
        time.sleep((self.fetch_us + len(columns[0]) * self.wait_us) / 1e6)
        return super().add(state, *columns)
