"""What a workload is: a table without end whose row n can be made from n alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.workloads.draws import Bits, Draws

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""The type of every event-time column."""

Column: TypeAlias = pa.Array | np.ndarray[Any, Any]


class Workload(ABC):
    """Rows by number: `rows(a, b - a)` and then `rows(b, c - b)` are `rows(a, c - a)`, for every a, b, c.

    That makes a stream replayable from any offset, and readable by several tasks that do not talk to each
    other. A subclass is a frozen dataclass whose fields are its parameters, and writes `_columns`; it keeps
    no state and is cheap to pickle. Tables that it needs are built at the first rows, once in a process.
    """

    name: ClassVar[str]
    """What a user calls it."""
    schema: ClassVar[pa.Schema]
    """Columns and types; the event time is among them."""
    event_time: ClassVar[str] = "event_time"
    """The name of the event-time column."""
    seed: int

    def rows(self, first: int, count: int, times: Ints) -> pa.RecordBatch:
        """Rows `first` to `first + count - 1`.

        Parameters
        ----------
        first, count
            The range of row numbers, from 0.
        times
            int64[count]: the event time of each row, in microseconds since 1970 (UTC).
        """
        if first < 0 or count < 0:
            raise ValueError(f"rows are numbered from 0, got first={first} and count={count}")
        if len(times) != count:
            raise ValueError(f"one event time a row: {len(times)} times for {count} rows")
        numbers = np.arange(first, first + count, dtype=np.uint64)
        columns = self._columns(numbers, Draws(self.seed, numbers), np.asarray(times, dtype=np.int64))
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, type=field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @abstractmethod
    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        """The columns of the schema, in its order; each row by its number, draws and time alone."""


def require_within(option: str, value: float, low: float, high: float) -> None:
    """Raise OptionError unless `low <= value <= high`.

    >>> require_within("keys", 0, 1, 100)
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: option 'keys' must be between 1 and 100, got 0
    """
    if not low <= value <= high:
        raise OptionError(f"option {option!r} must be between {low:g} and {high:g}, got {value!r}")


def require_one_of(option: str, value: str, known: Sequence[str]) -> None:
    """Raise OptionError unless `value` is one of the `known` ones."""
    if value not in known:
        raise OptionError.unknown(f"value of option {option!r}:", value, known)
