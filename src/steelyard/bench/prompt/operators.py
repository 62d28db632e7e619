"""The two operators whose tasks are timed for the model of a cluster: one with cheap keys, one with costly keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.hidden import BUCKET, PANE, ROWS
from steelyard.spark.aggregator import Aggregator, AggregatorUse

CELLS = 64
"""Of the histogram that is kept for each key."""
LINES = 12
"""Of an order."""
MOST_WORTH = LINES * 700.0
"""Lines of seven pieces at a price of 100."""


def worth(event: str) -> float:
    """What an order is about: prices times quantities, at a discount in the first half of a minute.

    >>> worth('{"at": "2021-05-01T12:30:40", "lines": [{"price": 2.5, "quantity": 4}]}')
    10.0
    """
    order = json.loads(event)
    rebate = 0.9 if datetime.fromisoformat(order["at"]).second < 30 else 1.0
    return float(rebate * sum(line["price"] * line["quantity"] for line in order["lines"]))


def events(draws: np.random.Generator, count: int) -> Iterator[str]:
    """JSON texts as a client would send them."""
    for price, second in zip(draws.random(count).tolist(), draws.integers(0, 60, count).tolist(), strict=True):
        line = f'{{"price": {100 * price:.2f}, "quantity": {second % 7 + 1}}}'
        yield f'{{"at": "2021-05-01T12:30:{second:02d}", "lines": [{", ".join([line] * LINES)}]}}'


class EventSum(Aggregator):
    """Parses events, and sums what they are worth: a key is one number."""

    state: ClassVar[str] = "total double"
    result: ClassVar[str] = "double"
    state_type: ClassVar[pa.DataType] = pa.struct([("total", pa.float64())])
    result_type: ClassVar[pa.DataType] = pa.float64()

    def zero(self) -> float:
        """Nothing yet."""
        return 0.0

    def add(self, state: float, *columns: Any) -> float:
        """Parse a slice of events."""
        return state + sum(map(worth, columns[0].to_pylist()))

    def merge(self, left: float, right: float) -> float:
        """Two sums as one."""
        return left + right

    def finish(self, state: float) -> float:
        """The sum is the result."""
        return state


class EventHistogram(Aggregator):
    """Parses events, and counts them by what they are worth: a key is 64 cells; the result is a median."""

    state: ClassVar[str] = "cells array<bigint>"
    result: ClassVar[str] = "double"
    state_type: ClassVar[pa.DataType] = pa.struct([("cells", pa.list_(pa.int64()))])
    result_type: ClassVar[pa.DataType] = pa.float64()

    def zero(self) -> Any:
        """Empty cells."""
        return np.zeros(CELLS, np.int64)

    def add(self, state: Any, *columns: Any) -> Any:
        """Parse a slice of events."""
        found = np.fromiter(map(worth, columns[0].to_pylist()), np.float64)
        cell = np.minimum(found * (CELLS / MOST_WORTH), CELLS - 1).astype(np.int64)
        return state + np.bincount(cell, minlength=CELLS)

    def merge(self, left: Any, right: Any) -> Any:
        """Cell by cell."""
        return np.asarray(left) + np.asarray(right)

    def finish(self, state: Any) -> float:
        """What the event in the middle is worth, to the cell."""
        total = np.cumsum(state)
        return float(np.searchsorted(total, total[-1] / 2) * (MOST_WORTH / CELLS))


OPERATORS: dict[str, type[EventSum] | type[EventHistogram]] = {"sum": EventSum, "histogram": EventHistogram}


def use_of(operator: str) -> AggregatorUse:
    """An operator over the column of events."""
    return OPERATORS[operator]().of("event")


def state_schema(operator: str) -> pa.Schema:
    """What map tasks give: the columns of `steelyard.spark.partials`, for one key column."""
    return pa.schema(
        [
            (BUCKET, pa.int32()),
            ("key", pa.int64()),
            (PANE, pa.int64()),
            (ROWS, pa.int64()),
            ("total", OPERATORS[operator].state_type),
        ]
    )


def result_schema(operator: str) -> pa.Schema:
    """What reduce tasks give."""
    return pa.schema([("key", pa.int64()), ("total", OPERATORS[operator].result_type)])
