"""Tables and series: the detail behind a benchmark's figures, as JSON holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["measured", "simulated"]
Number = int | float
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows of values under named columns, for the JSON file and the report.

    Examples
    --------
    >>> Table("sizes", ("blocks", "ms"), [(8, 1.5), (32, 2.0)]).to_dict()
    {'title': 'sizes', 'columns': ['blocks', 'ms'], 'rows': [[8, 1.5], [32, 2.0]]}
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r} has {len(self.columns)} columns and a row of {len(row)}: {row}")

    @classmethod
    def of(cls, title: str, records: Iterable[Mapping[str, Cell]]) -> Table:
        """A row for each record, under the names that all of them have.

        >>> Table.of("sizes", [{"blocks": 8, "ms": 1.5}, {"blocks": 32, "ms": 2.0}]).rows
        [(8, 1.5), (32, 2.0)]
        """
        rows = list(records)
        columns = tuple(rows[0]) if rows else ()
        return cls(title, columns, [tuple(row[column] for column in columns) for row in rows])

    def records(self) -> list[dict[str, Any]]:
        """Each row as values by the name of their column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def lines(self, by: str, x: str, y: str) -> list[Series]:
        """A series for each value of the column `by`, from the columns `x` and `y`."""
        found: dict[str, tuple[list[Number], list[Number]]] = {}
        for row in self.records():
            at, values = found.setdefault(row[by], ([], []))
            at.append(row[x])
            values.append(row[y])
        return [Series(name, at, values) for name, (at, values) in found.items()]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[plain(cell) for cell in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Series:
    """One line of a picture: a value of `y` for each `x`."""

    name: str
    x: Sequence[Number]
    y: Sequence[Number]
    kind: Kind = "measured"

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} x and {len(self.y)} y")

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        x, y = [plain(value) for value in self.x], [plain(value) for value in self.y]
        return {"name": self.name, "x": x, "y": y, "kind": self.kind}


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy scalars and arrays unwrapped, NaN and infinity as None.

    >>> import numpy as np
    >>> plain(np.int64(3)), plain(float("nan")), plain((1, np.float64(0.5)))
    (3, None, [1, 0.5])
    """
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
