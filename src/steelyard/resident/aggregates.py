"""Aggregates that combine in two stages: partials of rows, which merge into partials, which end as results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import OptionError
from steelyard.core.counts import Ints, one_zero
from steelyard.resident.operator import require_columns
from steelyard.resident.states import Groups, StateAggregate, Variance
from steelyard.resident.windows import END, START, Window

PANE = "__pane"
"""Column of partials: the start of the pane."""
_ROW = "__row"
_MERGE = {"count_all": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""How the partials of each Arrow function are merged."""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a column, as Arrow's grouped functions compute it. Nulls are left out, as in SQL."""

    function: str
    column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What it reads."""
        return () if self.column is None else (self.column,)

    @property
    def parts(self) -> tuple[str, ...]:
        """The Arrow functions whose partials it is made of."""
        if self.function == "mean":
            return ("sum", "count")
        return ("count_all",) if self.function == "count" and self.column is None else (self.function,)


def count(column: str | None = None) -> Aggregate:
    """Rows; of a column, those that are not null."""
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """Their sum."""
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """The least."""
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """The greatest."""
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """Their mean, as a double."""
    return Aggregate("mean", column)


def variance(column: str) -> StateAggregate:
    """Their sample variance; null for fewer than two."""
    return Variance(column)


@dataclass(frozen=True)
class Aggregation:
    """Aggregates by key, and by pane where there are windows.

    Examples
    --------
    >>> how = Aggregation(("k",), (("n", count()), ("m", mean("x"))))
    >>> partials = how.partials(pa.record_batch({"k": ["a", "b", "a"], "x": [1, 2, 4]}))
    >>> how.results(how.merged([partials, partials])).sort_by("k").to_pylist()
    [{'k': 'a', 'n': 4, 'm': 2.5}, {'k': 'b', 'n': 2, 'm': 2.0}]
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate | StateAggregate], ...]
    window: Window | None = None

    @property
    def _columns(self) -> list[tuple[str, str, str | None]]:
        """(partial column, Arrow function, input column) for each part of each aggregate."""
        uses = ((name, one) for name, one in self.aggregates if isinstance(one, Aggregate))
        return [(f"{name}.{part}", part, one.column) for name, one in uses for part in one.parts]

    @property
    def states(self) -> list[tuple[str, StateAggregate]]:
        """The aggregates that Arrow does not compute."""
        return [(name, one) for name, one in self.aggregates if isinstance(one, StateAggregate)]

    @property
    def _group(self) -> list[str]:
        return [*self.keys, *([PANE] if self.window else [])]

    def partials(self, batch: pa.RecordBatch, panes: Ints | None = None) -> pa.Table:
        """One row for each key (and pane) of a batch; `panes` has the start of each row's pane."""
        columns = {key: one_zero(batch.column(key)) for key in self.keys}
        if self.window is not None:
            columns[PANE] = pa.array(panes, pa.int64()).cast(self.window.pane_type(batch.schema))
        wanted: list[tuple[object, str, str, str]] = []
        for partial, function, column in self._columns:
            if column is None:
                wanted.append(([], function, partial, "count_all"))
            else:
                columns[partial] = batch.column(column)
                wanted.append((partial, function, partial, f"{partial}_{function}"))
        if not columns:
            columns["__rows"] = pa.nulls(batch.num_rows)
        made = self._grouped(pa.table(columns), wanted)
        return self._with_states(
            made,
            [columns[name] for name in self._group],
            lambda name, one, groups: one.added([batch.column(column) for column in one.columns], groups),
        )

    def merged(self, partials: Sequence[pa.Table]) -> pa.Table:
        """Partials with one row for each key (and pane), from some with several."""
        wanted = [(name, _MERGE[part], name, f"{name}_{_MERGE[part]}") for name, part, _ in self._columns]
        whole = pa.concat_tables(partials).combine_chunks()
        return self._with_states(
            self._grouped(whole, wanted),
            [_whole(whole.column(name)) for name in self._group],
            lambda name, one, groups: one.merged(_whole(whole.column(name)), groups),
        )

    def _with_states(
        self,
        made: pa.Table,
        group: list[pa.Array],
        state: Callable[[str, StateAggregate, Groups], pa.Array],
    ) -> pa.Table:
        """What Arrow's functions made, with a column for each state, in the same order of groups."""
        if self.states:
            groups = Groups.of(group)
            for name, one in self.states:
                made = made.append_column(name, state(name, one, groups))
        return made

    def _grouped(self, table: pa.Table, wanted: Sequence[tuple[object, str, str, str]]) -> pa.Table:
        asked = {made: (column, function) for column, function, _, made in wanted}  # rows are counted once for all
        if self.states:  # whose groups are in the order of their first rows, which Arrow's are not always
            table = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
            asked[_ROW] = (_ROW, "min")
        found = table.group_by(self._group, use_threads=False).aggregate(list(asked.values()))
        if self.states:
            found = found.sort_by(f"{_ROW}_min")
        parts = {name: found.column(made) for _, _, name, made in wanted}
        return pa.table({**{name: found.column(name) for name in self._group}, **parts})

    def results(self, partials: pa.Table) -> pa.Table:
        """Keys and results, without panes."""
        columns = {key: partials.column(key) for key in self.keys}
        for name, one in self.aggregates:
            if isinstance(one, StateAggregate):
                columns[name] = one.finished(_whole(partials.column(name)))
            elif one.function == "mean":
                total = partials.column(f"{name}.sum").cast(pa.float64())
                columns[name] = pc.divide(total, partials.column(f"{name}.count").cast(pa.float64()))
            else:
                columns[name] = partials.column(f"{name}.{one.parts[0]}")
        return pa.table(columns)

    def partial_schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of partials of such rows; OptionError for a column that is not there or cannot be added up."""
        require_columns(rows, [*self.keys, *(column for _, one in self.aggregates for column in one.columns)])
        if self.window is not None:
            self.window.require(rows)
        if self.states and self.window is None:
            name, one = self.states[0]
            raise OptionError(f"aggregate {name!r} ({type(one).__name__}) needs a window: give window='10 seconds'")
        if not self.aggregates:
            raise OptionError("there is nothing to aggregate: give for example n=count()")
        try:
            return self.partials(_empty(rows), np.empty(0, np.int64)).schema
        except pa.ArrowNotImplementedError as error:
            raise OptionError(f"an aggregate does not fit its column's type: {error}") from error

    def result_schema(self, partials: pa.Schema) -> pa.Schema:
        """From the columns of partials: keys, `window_start` and `window_end` where there are windows, results."""
        made = self.results(partials.empty_table()).schema
        fields = [made.field(key) for key in self.keys]
        if self.window is not None:
            kind = partials.field(PANE).type
            fields += [pa.field(START, kind), pa.field(END, kind)]
        fields += [made.field(name) for name, _ in self.aggregates]
        names = [one.name for one in fields]
        if len(set(names)) < len(names):
            raise OptionError(f"two columns of the result would have one name: {names}; rename an aggregate")
        return pa.schema(fields)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)
