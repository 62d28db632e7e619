"""How many rows are executed at once where each of them is to be measured."""

from __future__ import annotations

SLICE_SECONDS = 0.002
"""Rows are executed together as long as they take no longer than this, unless another time is asked for."""
_FIRST = 3
"""Slices of 1, 2 and 4 rows come first: they tell what a call takes from what a row takes."""
_GROWTH = 2
"""A slice is at most so many times as large as the largest before: what few rows tell may be wrong."""
CALL_SHARE = 0.2
"""A call takes no longer than such a share of its slice, unless another one is asked for."""
_REMEMBERED = 1024.0
"""Slices after which what older ones said counts half."""


class Slicer:
    """How many rows are executed at once, so that the time of each is known well and measuring costs little.

    A row that takes long is executed alone. Rows that are cheap are executed by the hundred. A function that takes long
    for any call, however few its rows, gets as many as make up for that. What a call and a row take is the weighted
    least-squares line through the slices so far, whose noise grows with their rows.

    Parameters
    ----------
    seconds
        What rows that are executed together take, at most.
    call_share
        The share of a slice that may be the call's, whatever its rows.

    Examples
    --------
    >>> slicer = Slicer()
    >>> for size in (1, 2, 4):
    ...     assert slicer.size(100) == size
    ...     slicer.took(size, 0.001 * size)
    >>> slicer.size(100)
    2
    """

    def __init__(self, seconds: float = SLICE_SECONDS, call_share: float = CALL_SHARE) -> None:
        self._seconds, self._times_a_call = seconds, 1 / call_share - 1
        self._slices = self._largest = 0
        self._inverse = self._count = self._rows = self._cost = self._time = 0.0

    @property
    def line(self) -> tuple[float, float]:
        """Seconds of a call, and of each row in it."""
        spread = self._inverse * self._rows - self._count * self._count
        if spread <= 1e-9 * self._inverse * self._rows:  # all slices had one size
            return 0.0, self._time / self._rows if self._rows else 0.0
        call = (self._cost * self._rows - self._count * self._time) / spread
        row = (self._inverse * self._time - self._count * self._cost) / spread
        if call <= 0.0:
            return 0.0, self._time / self._rows
        return call, max(row, 0.0)

    def size(self, left: int) -> int:
        """Rows of the next slice, of so many that are left of a batch."""
        if self._slices < _FIRST:
            return min(left, 1 << self._slices)
        call, row = self.line
        wanted = max(self._seconds, self._times_a_call * call)
        most = min(left, _GROWTH * self._largest)
        if row * most <= wanted:
            return most
        size = max(1, round(wanted / row))
        return size if self._slices % 2 else max(1, size // 2)  # other sizes tell more

    def took(self, rows: int, seconds: float) -> None:
        """So long a slice took."""
        if not rows:
            return
        self._slices += 1
        self._largest = max(self._largest, rows)
        if self._count >= _REMEMBERED:
            for name in ("_inverse", "_count", "_rows", "_cost", "_time"):
                setattr(self, name, getattr(self, name) / 2)
        self._inverse += 1.0 / rows
        self._count += 1.0
        self._rows += rows
        self._cost += seconds / rows
        self._time += seconds
