"""Prompt's frequency-aware buffering: keys stand nearly in order of frequency when the batch ends.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, Algorithm 1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from steelyard.core import KeyCounts, OptionError
from steelyard.core.counts import Ints

_LEAST_ROOM = 1 << 10
_ROOM_OVER_EXPECTED = 1.25
"""Room for keys at the start of a batch, over the mean of the last ones: to grow costs a copy."""


@dataclass(frozen=True, eq=False)
class Accumulated:
    """A batch that has ended: its keys, nearly in descending order of their counts.

    Parameters
    ----------
    ids
        int64[K]: the distinct keys, in the order of the tree.
    rows
        int64[K]: rows of each key. Exact: the tree's older counts decide the order and nothing else.
    updates
        int64[K]: how often each key was moved in the tree, at most the budget.

    Examples
    --------
    >>> batch = Accumulated(np.array([7, 3, 5]), np.array([9, 2, 4]), np.array([3, 1, 1]))
    >>> batch
    Accumulated(3 keys, 15 rows, 1.67 updates per key, count error 0.267)
    """

    ids: Ints
    rows: Ints
    updates: Ints

    @property
    def total(self) -> int:
        """Rows of the batch, N_C."""
        return int(self.rows.sum())

    @property
    def distinct(self) -> int:
        """Distinct keys of the batch, K."""
        return len(self.ids)

    @cached_property
    def counts(self) -> KeyCounts:
        """The counts in the order of the tree: what `Prompt.plan_sorted` takes."""
        return KeyCounts(pa.array(self.ids, pa.int64()), self.rows)

    @property
    def count_error(self) -> float:
        """Distance between the counts in this order and in descending order, over the rows. 0 is sorted."""
        if not len(self.rows):
            return 0.0
        return float(np.abs(self.rows - np.sort(self.rows)[::-1]).sum() / self.rows.sum())

    def __repr__(self) -> str:
        mean = self.updates.mean() if len(self.updates) else 0.0
        return (
            f"Accumulated({self.distinct} keys, {self.total} rows, {mean:.2f} updates per key, "
            f"count error {self.count_error:.3f})"
        )


class Accumulator:
    """Counts the keys of a batch as its rows arrive and keeps them nearly sorted, so that nobody sorts later.

    Each key may move in the tree `budget` times per batch: when it has grown by its frequency step, or when its
    time step has passed and a row of it comes. Steps are such that the moves spread over the batch, by what
    the last batches were like. A key that no longer comes keeps an old place: the order is nearly right.

    Parameters
    ----------
    budget
        Moves of a key a batch. The dissertation names none; 8 leaves a count error of about 3 %.
    history
        Batches over which expected rows and keys are averaged.
    refresh_both
        Renew both steps at each move. False renews only the step that caused it, as the listing does.

    Examples
    --------
    >>> accumulator = Accumulator(budget=4)
    >>> accumulator.begin(0, 1000)
    >>> accumulator.add(np.array([7, 5, 5, 3, 5, 7]), np.array([0, 100, 300, 500, 700, 900]))
    >>> batch = accumulator.finish()
    >>> batch.counts.to_dict()
    {5: 3, 7: 2, 3: 1}
    >>> accumulator.expected_rows, accumulator.expected_keys
    (6.0, 3.0)
    """

    def __init__(self, budget: int = 8, history: int = 5, refresh_both: bool = True) -> None:
        for option, value in (("budget", budget), ("history", history)):
            if value < 1:
                raise OptionError(f"{option} of the accumulator must be 1 or more, got {value}")
        self.budget = budget
        self.history = history
        self.refresh_both = refresh_both
        self._past: deque[tuple[int, int]] = deque(maxlen=history)
        self._open = False

    @property
    def expected_rows(self) -> float:
        """N_est: mean rows of the last batches; 0 while there is none, and the rate so far is used instead."""
        return sum(rows for rows, _ in self._past) / len(self._past) if self._past else 0.0

    @property
    def expected_keys(self) -> float:
        """K_avg: mean distinct keys of the last batches; 0 while there is none."""
        return sum(keys for _, keys in self._past) / len(self._past) if self._past else 0.0

    @property
    def first_step(self) -> float:
        """The frequency step of a new key, N_est / (K_avg * budget): the best one if all keys were equal."""
        return self.expected_rows / (self.expected_keys * self.budget) if self.expected_keys else 1.0

    def begin(self, start: float, end: float) -> None:
        """Open a batch of rows that arrive in [start, end). `end` is the cut-off, not the heartbeat."""
        if not end > start:
            raise ValueError(f"a batch ends after it starts, got start={start} and end={end}")
        if self._open:
            raise ValueError("the last batch is still open: finish it before beginning another")
        self._open = True
        self._start, self._end = float(start), float(end)
        self._rows = 0
        self._clear()

    def add(self, keys: Ints, times: Ints) -> None:
        """Rows in order of arrival: 64-bit key ids, and times in the unit of `begin`."""
        from steelyard.kernels.count_tree import buffer_rows  # noqa: PLC0415 - tasks need no compiler

        self._must_be_open()
        keys, times = np.ascontiguousarray(keys, np.int64), np.ascontiguousarray(times, np.int64)
        if len(keys) != len(times):
            raise ValueError(f"rows have one key and one time each: {len(keys)} keys, {len(times)} times")
        if len(times) and (times.min() < self._start or times.max() >= self._end):
            wrong = times[(times < self._start) | (times >= self._end)][0]
            raise ValueError(f"a row of time {wrong} is not of the batch [{self._start:g}, {self._end:g})")
        while len(keys):
            taken = buffer_rows(
                keys,
                times,
                *self._table,
                self._entries,
                *(self._counts, self._priority, self._links),
                self._rows,
                *(self._start, self._end),
                self.budget,
                self.first_step,
                self.expected_rows,
                self.refresh_both,
            )
            self._rows += taken
            keys, times = keys[taken:], times[taken:]
            if len(keys):
                self._grow()

    def finish(self) -> Accumulated:
        """Close the batch. What it returns is its own: the next batch may fill while this one is cut up."""
        from steelyard.kernels.count_tree import descending  # noqa: PLC0415 - tasks need no compiler

        self._must_be_open()
        rows, keys = self._rows, self._keys
        order = descending(keys, self._links)
        self._open = False
        if rows:  # an idle interval says nothing of what a batch is like
            self._past.append((rows, keys))
        entries = self._entries[order]
        return Accumulated(self._table.ids[order], entries["freq"].copy(), self.budget - entries["budget"])

    def check(self) -> None:
        """Raise AssertionError unless table and tree agree, and no key was moved beyond its budget."""
        from steelyard.kernels.count_tree import check_tree  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.key_table import check as check_table  # noqa: PLC0415

        self._must_be_open()
        rows, keys = self._rows, self._keys
        check_tree(keys, self._counts, self._priority, self._links)
        entries = self._entries[:keys]
        assert entries["freq"].sum() == rows, f"{entries['freq'].sum()} of {rows} rows are counted"
        assert np.array_equal(entries["updated"], self._counts[:keys]), "the tree has counts that no key reported"
        assert np.all(entries["updated"] <= entries["freq"]), "the tree has counts that no key has reached"
        assert np.all((entries["budget"] >= 0) & (entries["budget"] <= self.budget)), "a key outspent its budget"
        check_table(self._table)

    def _must_be_open(self) -> None:
        if not self._open:
            raise ValueError("no batch is open: begin one first")

    @property
    def _keys(self) -> int:
        from steelyard.kernels.key_table import LIVE  # noqa: PLC0415 - tasks need no compiler

        return int(self._table.header[LIVE])

    def _clear(self) -> None:
        """A new table and tree, as large as the last batches want."""
        from steelyard.kernels.count_tree import ENTRY, NOTHING  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.key_table import key_table  # noqa: PLC0415

        room = max(_LEAST_ROOM, int(_ROOM_OVER_EXPECTED * self.expected_keys))
        self._table = key_table(room)
        self._entries = np.zeros(room, ENTRY)
        self._counts, self._priority = np.zeros(room, np.int64), np.zeros(room, np.int64)
        self._links = np.full(2 * room + 1, NOTHING, np.int32)

    def _grow(self) -> None:
        from steelyard.kernels.count_tree import NOTHING  # noqa: PLC0415 - tasks need no compiler
        from steelyard.kernels.key_table import grown, longer  # noqa: PLC0415

        self._table = grown(self._table)
        room = len(self._table.ids)
        self._entries = np.r_[self._entries, np.zeros(room - len(self._entries), self._entries.dtype)]
        self._counts, self._priority = longer(self._counts, room), longer(self._priority, room)
        self._links = longer(self._links, 2 * room + 1, NOTHING)
