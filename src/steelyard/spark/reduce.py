"""What becomes of states: merged by key in reduce tasks, folded in the log and in windows, finished into results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import BatchError
from steelyard.core.arrow import in_one_batch
from steelyard.core.hidden import BAD, PANE, PARCEL, ROWS, SIGN, STATE
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.agreement import merged_otherwise
from steelyard.spark.combine import Groups
from steelyard.spark.parcels import Batches, opened
from steelyard.spark.states import States, bounds_of, encoded, finished, merged, subtracted, told_of
from steelyard.spark.tasklog import REDUCE, TaskLog, timed


def merged_lists(lists: pa.Array, use: AggregatorUse) -> States:
    """One state for each list of states, none of which is empty. Signed items with -1 are subtracted."""
    item, offsets = lists.type.value_type, lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    offsets -= offsets[0]
    if not (item.num_fields == 2 and item.field(0).name == SIGN):
        return merged(use, values, offsets, item)
    states, plus = values.field(STATE), values.field(SIGN).to_numpy(zero_copy_only=False) > 0
    kind = states.type
    wholes = np.add.reduceat(plus, offsets[:-1], dtype=np.int64)
    assert wholes.all(), "what is taken out of a window was put into it before"
    whole = merged(use, states.filter(pa.array(plus)), bounds_of(wholes), kind)
    parts = np.diff(offsets) - wholes
    some = np.flatnonzero(parts)
    if not len(some):
        return whole
    part = merged(use, states.filter(pa.array(~plus)), bounds_of(parts[some]), kind)
    column = encoded(whole, kind, "merge()")
    less = encoded(subtracted(use, column.take(pa.array(some)), part, kind), kind, "subtract()")
    where = np.arange(len(column))
    where[some] = len(column) + np.arange(len(some))
    return pa.concat_arrays([column, less]).take(pa.array(where))


def merger(uses: dict[str, AggregatorUse], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """Fold each list of states, in the column of an aggregate's name, into a list of one."""

    def folded(column: pa.Array, use: AggregatorUse, kind: pa.DataType) -> pa.Array:
        return one_each(merged_lists(column, use), use, kind)

    def of_nothing(column: pa.Array, use: AggregatorUse, kind: pa.DataType) -> pa.Array:
        return pa.array([[]], kind)

    return _of_states(uses, schema, folded, of_nothing)


def one_each(states: States, use: AggregatorUse, kind: pa.DataType) -> pa.Array:
    """States as lists of one."""
    single = encoded(states, kind.value_type, f"{type(use.aggregator).__name__}.merge()")
    return pa.ListArray.from_arrays(pa.array(np.arange(len(single) + 1), pa.int32()), single).cast(kind)


def finisher(uses: dict[str, AggregatorUse], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """The last step: fold each list of states, and finish what comes of it into the result."""

    def ended(column: pa.Array, use: AggregatorUse, kind: pa.DataType) -> pa.Array:
        return finished(use, merged_lists(column, use), _state_of(column), kind)

    def of_nothing(column: pa.Array, use: AggregatorUse, kind: pa.DataType) -> pa.Array:
        """The result of a key all of whose rows were refused: that of `zero`, where there is one."""
        aggregator = use.aggregator
        if not aggregator.gives("zero"):
            return pa.nulls(1, kind)
        return finished(use, [aggregator.zero()], _state_of(column), kind)

    return _of_states(uses, schema, ended, of_nothing)


def _state_of(lists: pa.Array) -> pa.DataType:
    item = lists.type.value_type
    return item.field(STATE).type if STATE in item.names else item


def _of_states(
    uses: dict[str, AggregatorUse],
    schema: pa.Schema,
    made_of: Callable[[pa.Array, AggregatorUse, pa.DataType], pa.Array],
    of_nothing: Callable[[pa.Array, AggregatorUse, pa.DataType], pa.Array],
) -> Callable[[Batches], Batches]:
    """Replace each aggregate's column by what is made of its lists of states; the other columns stay."""

    def column_of(part: pa.RecordBatch, field: pa.Field) -> pa.Array:
        column, use = part.column(field.name), uses.get(field.name)
        if use is None:
            return column.cast(field.type)
        filled = pc.greater(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        some = column if filled.all() else column.filter(pa.array(filled))
        with told_of(field.name):
            made = made_of(some, use, field.type) if len(some) else pa.array([], field.type)
        if filled.all():
            return made
        where = np.where(filled, np.cumsum(filled) - 1, filled.sum())
        return pa.concat_arrays([made, of_nothing(column, use, field.type)]).take(pa.array(where))

    def run(parts: Batches) -> Batches:
        for part in parts:
            yield pa.RecordBatch.from_arrays([column_of(part, field) for field in schema], schema=schema)

    return run


FOLD_FROM = 1 << 18
"""Records that a reduce task holds before it merges them, so that it holds few more than there are keys."""


@dataclass(frozen=True)
class Reducer:
    """The reduce task: opens the parcels of a bucket, and merges the states of each key and pane.

    Parameters
    ----------
    keys, uses
        Key columns, and the aggregates by name.
    schema
        What comes out.
    results
        Types of the results, by aggregate.
    ends
        Whether results come out, rather than lists of one state.
    log
        Where to report to.
    """

    keys: tuple[str, ...]
    uses: Mapping[str, AggregatorUse]
    schema: pa.Schema
    results: Mapping[str, pa.DataType]
    ends: bool
    log: TaskLog | None = None

    def __call__(self, parts: Batches) -> Batches:
        """What becomes of the parcels, and refused rows as they come."""
        held: list[pa.Table] = []
        rows, settled = 0, 0
        with timed(self.log, REDUCE) as task:
            task.extra = {"keys": 0}
            for parcel in (one for part in parts for one in part.column(PARCEL)):
                with task.working():
                    part = opened(parcel)
                if BAD in part.column_names:
                    yield self._refused(part)
                    continue
                held.append(part)
                rows += part.num_rows
                task.rows += part.num_rows
                if rows > max(FOLD_FROM, 2 * settled):
                    with task.working():
                        held = [self._kept(held)]
                    rows = settled = held[0].num_rows
            if held:
                with task.working():
                    made = self._made(held)
                task.extra = {"keys": made.num_rows}
                yield made

    def _refused(self, letters: pa.Table) -> pa.RecordBatch:
        """Reasons and rows that a map task refused, which count as no rows of any key."""
        known = {name: letters.column(name).combine_chunks() for name in letters.column_names}
        known[ROWS] = pa.array(np.zeros(len(letters), np.int64))
        empty = pa.nulls(len(letters))
        arrays = [known.get(field.name, empty).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _folded(self, held: list[pa.Table]) -> tuple[dict[str, pa.Array], dict[str, States]]:
        """Keys, pane and rows of each group, and its states."""
        parts = (part for table in held for part in table.to_batches())
        whole = in_one_batch(parts, "take more buckets, as in .partition_by('auto', buckets=64)")
        groups = Groups.of(whole, self.keys)
        order, first = pa.array(groups.order), pa.array(groups.first_rows)
        states = {}
        for name, use in self.uses.items():
            column = whole.column(name).take(order)
            with told_of(name):
                states[name] = merged(use, column, groups.offsets, column.type)
            if use.aggregator.has_both_forms and use.aggregator.gives("merge_block"):
                told = merged_otherwise(name, use, column, groups.offsets, states[name], self.results[name])
                if told:
                    raise BatchError(told)
        columns = {name: whole.column(name).take(first) for name in (*self.keys, PANE)}
        rows = whole.column(ROWS).to_numpy()[groups.order]
        return columns | {ROWS: pa.array(np.add.reduceat(rows, groups.offsets[:-1]))}, states

    def _kept(self, held: list[pa.Table]) -> pa.Table:
        """One table for several, with one record for each group."""
        kinds = held[0].schema
        columns, states = self._folded(held)
        encodings = {name: encoded(found, kinds.field(name).type, "merge()") for name, found in states.items()}
        return pa.table([(columns | encodings)[field.name] for field in kinds], schema=kinds)

    def _made(self, held: list[pa.Table]) -> pa.RecordBatch:
        """What comes out in the end."""
        columns, states = self._folded(held)
        for name, use in self.uses.items():
            kind = self.schema.field(name).type
            if self.ends:
                columns[name] = finished(use, states[name], held[0].schema.field(name).type, kind)
            else:
                columns[name] = one_each(states[name], use, kind)
        empty = pa.nulls(len(columns[ROWS]))
        arrays = [columns.get(field.name, empty).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
