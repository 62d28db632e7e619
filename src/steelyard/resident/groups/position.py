"""Where a receiver is in its splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steelyard.resident.operator import MIN_WATERMARK

_Place = tuple[Any, ...]
"""Of one split: offset, rows, whether it is at its end, newest time."""
_BEGINNING: _Place = (0, 0, False, MIN_WATERMARK)
ROWS = pa.schema(
    {
        "batch": pa.int64(),
        "split": pa.binary(),
        "offset": pa.int64(),
        "rows": pa.int64(),
        "ended": pa.bool_(),
        "newest": pa.int64(),
    }
)
"""Positions as rows."""


@dataclass(frozen=True)
class Position:
    """Behind the last rows that were read, split by split."""

    splits: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    """Rows that were read of each, before any function; an offset need not count them."""
    ended: tuple[bool, ...] = ()
    newest: tuple[int, ...] = ()
    """The latest event time that was read of each split."""

    def among(self, splits: Sequence[str]) -> Position:
        """The same among the splits that there are now; new ones begin. ValueError where one is gone."""
        known, there = self._by_split(), set(splits)
        gone = [split for split in self.splits if split not in there]
        if gone:
            raise ValueError(f"the source is to go on with split {gone[0]!r}, and has none of that name any more")
        return Position._made({split: known.get(split, _BEGINNING) for split in splits})

    def then(self, changes: Position) -> Position:
        """Where it is behind some changes; splits that are new come last."""
        return Position._made(self._by_split() | changes._by_split()) if changes.splits else self

    def since(self, before: Position) -> Position:
        """The splits that are not where they were: what is told of a batch, since there may be many splits.

        >>> here = Position().among(["a", "b"])
        >>> there = here.after(1, 7, 3, False, 5)
        >>> there.since(here).splits, here.then(there.since(here)) == there
        (('b',), True)
        """
        known = before._by_split()
        changed = {one: at for one, at in self._by_split().items() if at != known.get(one, _BEGINNING)}
        return Position._made(changed)

    def _by_split(self) -> dict[str, _Place]:
        places = zip(self.offsets, self.rows, self.ended, self.newest, strict=True)
        return dict(zip(self.splits, places, strict=True))

    @classmethod
    def _made(cls, places: Mapping[str, _Place]) -> Position:
        columns = zip(*places.values(), strict=True) if places else ((), (), (), ())
        return cls(tuple(places), *map(tuple, columns))

    def after(self, split: int, offset: int, rows: int, ended: bool, newest: int) -> Position:
        """Some rows further in one split."""
        return Position(
            self.splits,
            _with(self.offsets, split, offset),
            _with(self.rows, split, self.rows[split] + rows),
            _with(self.ended, split, ended),
            _with(self.newest, split, max(self.newest[split], newest)),
        )

    @property
    def open(self) -> list[int]:
        """Splits that are not at their ends."""
        return [split for split, ended in enumerate(self.ended) if not ended]

    @property
    def total(self) -> int:
        """Rows before it, in all splits."""
        return sum(self.rows)

    @property
    def watermark(self) -> int:
        """How far event time has come in the split that is furthest behind: one that was not begun holds all back."""
        return min((self.newest[split] for split in self.open), default=max(self.newest, default=MIN_WATERMARK))

    def to_list(self) -> list[Any]:
        """As plain values."""
        return [list(self.splits), list(self.offsets), list(self.rows), list(self.ended), list(self.newest)]

    @classmethod
    def of(cls, values: Any) -> Position:
        """From plain values."""
        return cls(*(tuple(part) for part in values))


def as_rows(positions: Mapping[int, Position]) -> pa.Table:
    """Positions by batch as rows, which may be more than a message holds."""
    columns: list[list[Any]] = [[] for _ in ROWS]
    for batch, position in positions.items():
        names = [split.encode("utf-8", "surrogatepass") for split in position.splits]
        parts: tuple[Sequence[Any], ...]
        parts = [batch] * len(names), names, position.offsets, position.rows, position.ended, position.newest
        for column, part in zip(columns, parts, strict=True):
            column.extend(part)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS)


def from_rows(rows: Sequence[pa.RecordBatch]) -> dict[int, Position]:
    """Positions from rows, by batch; one without rows is not there.

    >>> begun = Position().among(["a", "b"])
    >>> from_rows(as_rows({3: begun}).to_batches()) == {3: begun}
    True
    """
    found: dict[int, dict[str, _Place]] = {}
    for part in rows:
        for batch, name, *place in zip(*(column.to_pylist() for column in part.columns), strict=True):
            found.setdefault(batch, {})[name.decode("utf-8", "surrogatepass")] = tuple(place)
    return {batch: Position._made(places) for batch, places in found.items()}


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
