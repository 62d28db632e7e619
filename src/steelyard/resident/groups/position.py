"""Where a receiver is in its splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.resident.operator import BEFORE_ALL


@dataclass(frozen=True)
class Position:
    """Behind the last rows that were read, split by split."""

    splits: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    """Rows that were read of each; an offset need not count them."""
    ended: tuple[bool, ...] = ()
    newest: tuple[int, ...] = ()
    """The latest event time that was read of each split."""

    def among(self, splits: Sequence[str]) -> Position:
        """The same among the splits that there are now; new ones begin. ValueError where one is gone."""
        gone = [split for split in self.splits if split not in splits]
        if gone:
            raise ValueError(f"the source is to go on with split {gone[0]!r}, and has none of that name any more")
        new = [split for split in splits if split not in self.splits]
        return Position(
            (*self.splits, *new),
            (*self.offsets, *(0 for _ in new)),
            (*self.rows, *(0 for _ in new)),
            (*self.ended, *(False for _ in new)),
            (*self.newest, *(BEFORE_ALL for _ in new)),
        )

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
        return min((self.newest[split] for split in self.open), default=max(self.newest, default=BEFORE_ALL))

    def to_list(self) -> list[Any]:
        """As plain values."""
        return [list(self.splits), list(self.offsets), list(self.rows), list(self.ended), list(self.newest)]

    @classmethod
    def of(cls, values: Any) -> Position:
        """From plain values."""
        return cls(*(tuple(part) for part in values))


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
