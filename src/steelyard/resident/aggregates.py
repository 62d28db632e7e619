"""Aggregates that combine in two stages: partials of rows, which merge into partials, which end as results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import OptionError
from steelyard.core.aggregates import Aggregate
from steelyard.core.counts import Ints, one_zero
from steelyard.core.hidden import FIRST, LAST, PANE
from steelyard.resident.operator import require_columns
from steelyard.resident.states import Groups, StateAggregate, Variance
from steelyard.resident.sums import summable, summed
from steelyard.resident.windows import END, START, Session, Window

_STATE = ""
"""The one part of an aggregate with a state of its own."""
_MERGE = {"count_all": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""How the partials of each Arrow function are merged."""


FUNCTIONS = ("count", "sum", "min", "max", "mean", "variance")
"""What there is."""


def parts_of(one: Aggregate) -> tuple[str, ...]:
    """The Arrow functions whose partials an aggregate is made of."""
    if one.function == "mean":
        return ("sum", "count")
    return ("count_all",) if one.function == "count" and one.column is None else (one.function,)


def _computed(name: str, use: Aggregate | StateAggregate) -> Aggregate | StateAggregate:
    """An aggregate as it is computed here: by Arrow's grouped functions, or with a state of its own."""
    if isinstance(use, StateAggregate):
        return use
    if use.function not in FUNCTIONS:
        raise OptionError(
            f"aggregate {name!r}: workers that stay have no {use.function}; they have {', '.join(FUNCTIONS)}"
        )
    return Variance(*use.columns) if use.function == "variance" else use


@dataclass(frozen=True)
class Aggregation:
    """Aggregates by key, and by pane where there are windows.

    Examples
    --------
    >>> from steelyard import count, mean
    >>> how = Aggregation(("k",), (("n", count()), ("m", mean("x"))))
    >>> partials = how.partials(pa.record_batch({"k": ["a", "b", "a"], "x": [1, 2, 4]}))
    >>> how.results(how.merged([partials, partials])).sort_by("k").to_pylist()
    [{'k': 'a', 'n': 4, 'm': 2.5}, {'k': 'b', 'n': 2, 'm': 2.0}]
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate | StateAggregate], ...]
    window: Window | None = None

    def __post_init__(self) -> None:
        computed = tuple((name, _computed(name, use)) for name, use in self.aggregates)
        object.__setattr__(self, "aggregates", computed)

    @cached_property
    def names(self) -> dict[tuple[str, str], str]:
        """The column of partials for each part of each aggregate; a state is one part. None has the name of a key."""
        found: dict[tuple[str, str], str] = {}
        taken = {*self.keys, PANE, FIRST, LAST}
        for name, one in self.aggregates:
            for part in parts_of(one) if isinstance(one, Aggregate) else (_STATE,):
                own = f"{name}.{part}" if part else name
                while own in taken:
                    own += "'"
                found[name, part] = own
                taken.add(own)
        return found

    @property
    def settings(self) -> str:
        """What partials depend on, whatever the order of the aggregates."""
        uses = sorted(
            f"{name}={_kept(one)} in {[own for (whose, _), own in self.names.items() if whose == name]}"
            for name, one in self.aggregates
        )
        return f"keys={self.keys}, window={self.window}, {', '.join(uses)}"

    def ordered(self, partials: pa.Table) -> pa.Table:
        """Partials of a snapshot, whose aggregates may have had another order, with the columns of these."""
        states = [self.names[name, _STATE] for name, _ in self.states]
        return partials.select([*self._group, *(own for own, _, _ in self._columns), *states])

    @property
    def _columns(self) -> list[tuple[str, str, str | None]]:
        """(partial column, Arrow function, input column) for each part of each aggregate."""
        uses = ((name, one) for name, one in self.aggregates if isinstance(one, Aggregate))
        bounds = [(FIRST, "min", FIRST), (LAST, "max", LAST)] if isinstance(self.window, Session) else []
        return [*bounds, *((self.names[name, part], part, one.column) for name, one in uses for part in parts_of(one))]

    @property
    def states(self) -> list[tuple[str, StateAggregate]]:
        """The aggregates that Arrow does not compute."""
        return [(name, one) for name, one in self.aggregates if isinstance(one, StateAggregate)]

    @property
    def _group(self) -> list[str]:
        return [*self.keys, *([PANE] if self.window else [])]

    def partials(self, batch: pa.RecordBatch, times: Ints | None = None) -> pa.Table:
        """One row for each key (and pane) of a batch; `times` has each row's, in microseconds."""
        group = [one_zero(batch.column(key)) for key in self.keys]
        bounds: dict[str | None, pa.Array] = {}
        if self.window is not None and times is not None:
            kind = self.window.pane_type(batch.schema)
            group.append(pa.array(times - times % self.window.pane, pa.int64()).cast(kind))
            bounds = dict.fromkeys([FIRST, LAST], pa.array(times, pa.int64()).cast(kind))
        means = {name for name, one in self.aggregates if isinstance(one, Aggregate) and one.function == "mean"}
        as_double = {self.names[name, "sum"] for name in means}
        wanted: list[tuple[str, str, pa.Array | None]] = []
        for own, function, column in self._columns:
            values = bounds.get(column) if own in (FIRST, LAST) or column is None else batch.column(column)
            if values is not None and own in as_double and pa.types.is_integer(values.type):
                values = values.cast(pa.float64(), safe=False)  # as Spark does: such a sum does not overflow
            wanted.append((own, function, values))
        made = self._grouped(group, wanted, batch.num_rows)
        return self._with_states(
            made,
            group,
            lambda name, one, groups: one.added([batch.column(column) for column in one.columns], groups),
        )

    def merged(self, partials: Sequence[pa.Table]) -> pa.Table:
        """Partials with one row for each key (and pane), from some with several."""
        whole = pa.concat_tables(partials).combine_chunks()
        wanted = [(own, _MERGE[part], _whole(whole.column(own))) for own, part, _ in self._columns]
        group = [_whole(whole.column(name)) for name in self._group]
        return self._with_states(
            self._grouped(group, wanted, whole.num_rows),
            group,
            lambda name, one, groups: one.merged(_whole(whole.column(self.names[name, _STATE])), groups),
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
                made = made.append_column(self.names[name, _STATE], state(name, one, groups))
        return made

    def _grouped(
        self, group: list[pa.Array], wanted: Sequence[tuple[str, str, pa.Array | None]], rows: int
    ) -> pa.Table:
        """Columns of our own names, by number, so that none of them can be mistaken for another."""
        columns = {f"key{i}": column for i, column in enumerate(group)}
        by = list(columns)
        asked: list[tuple[Any, str]] = []
        made = []
        for i, (_, function, values) in enumerate(wanted):
            if values is None:
                made.append("count_all")
            else:
                columns[f"part{i}"] = summable(values) if function == "sum" else values
                made.append(f"part{i}_{function}")
                asked.append((f"part{i}", function))
        if "count_all" in made:  # rows are counted once for all
            asked.append(([], "count_all"))
        if self.states:  # whose groups are in the order of their first rows, which Arrow's are not always
            columns["row"] = pa.array(np.arange(rows))
            asked.append(("row", "min"))
        found = pa.table(columns or {"row": pa.nulls(rows)}).group_by(by, use_threads=False).aggregate(asked)
        if self.states:
            found = found.sort_by("row_min")
        parts = [
            summed(found.column(name), own, values.type)
            if function == "sum" and values is not None
            else found.column(name)
            for name, (own, function, values) in zip(made, wanted, strict=True)
        ]
        return pa.table(
            [*(found.column(name) for name in by), *parts], names=[*self._group, *(own for own, _, _ in wanted)]
        )

    def results(self, partials: pa.Table) -> pa.Table:
        """Keys and results, without panes."""
        columns = [partials.column(key) for key in self.keys]
        for name, one in self.aggregates:
            if isinstance(one, StateAggregate):
                columns.append(one.finished(_whole(partials.column(self.names[name, _STATE]))))
            elif one.function == "mean":
                total = partials.column(self.names[name, "sum"]).cast(pa.float64())
                columns.append(pc.divide(total, partials.column(self.names[name, "count"]).cast(pa.float64())))
            else:
                columns.append(partials.column(self.names[name, parts_of(one)[0]]))
        return pa.table(columns, names=[*self.keys, *(name for name, _ in self.aggregates)])

    def partial_schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of partials of such rows; OptionError for a column that is not there or cannot be added up."""
        require_columns(rows, [*self.keys, *(column for _, one in self.aggregates for column in one.columns)])
        if self.window is not None:
            self.window.require(rows)
            for name in {PANE, FIRST, LAST} & {*self.keys}:
                raise OptionError(f"key column {name!r} is a name of ours: rename it")
        if not self.aggregates:
            raise OptionError("there is nothing to aggregate: give for example n=count()")
        try:
            return self.partials(_empty(rows), np.empty(0, np.int64)).schema
        except pa.ArrowNotImplementedError as error:
            raise OptionError(f"an aggregate does not fit its column's type: {error}") from error

    def result_schema(self, partials: pa.Schema) -> pa.Schema:
        """From the columns of partials: keys, `window_start` and `window_end` where there are windows, results."""
        made = list(self.results(partials.empty_table()).schema)
        fields = made[: len(self.keys)]
        if self.window is not None:
            kind = partials.field(PANE).type
            fields += [pa.field(START, kind), pa.field(END, kind)]
        fields += made[len(self.keys) :]
        names = [one.name for one in fields]
        if len(set(names)) < len(names):
            raise OptionError(f"two columns of the result would have one name: {names}; rename an aggregate")
        return pa.schema(fields)


def _kept(one: Aggregate | StateAggregate) -> str:
    """An aggregate as snapshots have always named it."""
    return f"Aggregate(function={one.function!r}, column={one.column!r})" if isinstance(one, Aggregate) else repr(one)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], column.type) for column in schema], schema=schema)
