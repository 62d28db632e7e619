"""The plain twin of the sketch of Online Shuffle Grouping, in lists."""

from __future__ import annotations

from steelyard.kernels.osg_sketch import COUNT, PRIME, TIME, UNSEEN


def column_plain(hashes: list[tuple[int, int]], row: int, item: int, columns: int) -> int:
    """The plain twin of `column`."""
    a, b = hashes[row]
    return ((a * (item % PRIME) + b) % PRIME) % columns


class PlainSketch:
    """The plain twin of a pair of matrices.

    Examples
    --------
    >>> sketch = PlainSketch([(1, 0), (2, 1)], columns=4)
    >>> sketch.add(3, 2.0, conservative=False)
    >>> sketch.estimate(3, otherwise=0.0), sketch.estimate(2, otherwise=9.0)
    (2.0, 9.0)
    """

    def __init__(self, hashes: list[tuple[int, int]], columns: int) -> None:
        self.hashes = hashes
        self.columns = columns
        self.cells = [[(0.0, 0.0)] * columns for _ in hashes]

    def _places(self, item: int) -> list[tuple[int, int]]:
        return [(row, column_plain(self.hashes, row, item, self.columns)) for row in range(len(self.hashes))]

    def add(self, item: int, time: float, conservative: bool) -> None:
        """As `add`."""
        places = self._places(item)
        counts = [self.cells[row][at][COUNT] for row, at in places]
        for (row, at), count in zip(places, counts, strict=True):
            if not conservative or count == min(counts):
                self.cells[row][at] = (count + 1.0, self.cells[row][at][TIME] + time)

    def estimate(self, item: int, otherwise: float) -> float:
        """As `estimate`."""
        count, time = min((self.cells[row][at] for row, at in self._places(item)), key=lambda cell: cell[COUNT])
        return time / count if count else otherwise

    def snapshot(self) -> list[list[float]]:
        """As `take_snapshot`."""
        return [[time / count if count else UNSEEN for count, time in row] for row in self.cells]

    def relative_error(self, snapshot: list[list[float]], masked: bool) -> float:
        """As `relative_error`."""
        pairs = [
            (before, max(now, 0.0))
            for row_before, row_now in zip(snapshot, self.snapshot(), strict=True)
            for before, now in zip(row_before, row_now, strict=True)
        ]
        if masked:
            pairs = [(before, now) for before, now in pairs if before != UNSEEN]
        moved = sum(abs(max(before, 0.0) - now) for before, now in pairs)
        total = sum(max(before, 0.0) for before, _ in pairs)
        return moved / total if total else (float("inf") if moved else 0.0)

    def scale(self, factor: float) -> None:
        """Keep so much of everything."""
        self.cells = [[(count * factor, time * factor) for count, time in row] for row in self.cells]
