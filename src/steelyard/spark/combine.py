"""The Python side of aggregation, inside tasks: combine a block, allot buckets, merge states, finish results.

Nothing here is compiled: tasks import NumPy and Arrow only, and each loop runs once a key, not once a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.counts import one_zero
from steelyard.partition.allocator import PromptAllocator
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.isolate import as_json, isolate
from steelyard.spark.rows import BAD, BAD_ROW, PANE, SPLIT
from steelyard.spark.tasklog import TaskLog, timed
from steelyard.spark.values import column_of

ROWS, BUCKET = "__rows", "__bucket"
AGGREGATE_FAILED = "aggregate "
"""Begins the reason of a row on which an aggregate raised."""
Batches = Iterator[pa.RecordBatch]
Ints = np.ndarray[Any, np.dtype[np.int64]]


def combiner(
    keys: tuple[str, ...],
    uses: dict[str, AggregatorUse],
    schema: pa.Schema,
    buckets: int,
    log: TaskLog | None,
    frequent: int,
) -> Callable[[Batches], Batches]:
    """The map task: group a block's rows by key and pane, add each group up, allot the groups to buckets.

    Parameters
    ----------
    keys, uses
        Key columns, and the aggregates by name.
    schema
        What comes out: bucket, keys, pane, rows, one state column for each aggregate, reason and bad row.
    buckets
        Number of reduce tasks.
    log
        Where to report to.
    frequent
        How many of the block's most frequent keys to report.
    """

    def run(parts: Batches) -> Batches:
        with timed(log, "combine") as task:
            batches = [part for part in parts if part.num_rows]
            if not batches:
                return
            with task.working():
                block = pa.concat_batches(batches)
                task.rows = block.num_rows
                block, groups, states, letters = _combined(block, keys, uses)
                out = _clusters(block, keys, groups, states, buckets, schema) if groups else None
                if groups:
                    frequent_keys = groups.frequent(block, keys, frequent)
                    task.extra = {"clusters": len(groups.starts), "frequent": frequent_keys}
            if out is not None:
                yield out
            if letters:
                yield _dead_letters(letters, schema)

    return run


Letters = list[tuple[str, str]]
"""(reason, row as JSON) of rows that an aggregate refused."""


def _combined(
    block: pa.RecordBatch, keys: tuple[str, ...], uses: dict[str, AggregatorUse]
) -> tuple[pa.RecordBatch, Groups | None, dict[str, list[Any]], Letters]:
    """The states of a block's groups. A row that one aggregate refuses is taken from all of them."""
    letters: Letters = []
    while block.num_rows:
        groups = Groups.of(block, keys)
        refused: dict[int, tuple[str, str]] = {}
        states = {name: _added(use, block, groups, name, refused) for name, use in uses.items()}
        if not refused:
            return block, groups, states, letters
        letters += refused.values()
        keep = np.ones(block.num_rows, dtype=bool)
        keep[list(refused)] = False
        block = block.filter(pa.array(keep))
    return block, None, {}, letters


class Groups:
    """The rows of a block in order of their group (key and pane), and where each group starts."""

    def __init__(self, order: Ints, starts: Ints, ends: Ints, key_code: Ints) -> None:
        self.order = order
        self.starts = starts
        self.ends = ends
        self.key_code = key_code

    @classmethod
    def of(cls, block: pa.RecordBatch, keys: tuple[str, ...]) -> Groups:
        """Group by dictionary codes: no Python value is made of a row."""
        code = np.zeros(block.num_rows, dtype=np.int64)
        for name in keys:
            code = _narrowed(code, _codes(block.column(name)))
        key_code = code
        code = _narrowed(code, _codes(block.column(PANE)))
        order = np.argsort(code, kind="stable")
        sorted_code = code[order]
        starts = np.flatnonzero(np.r_[True, sorted_code[1:] != sorted_code[:-1]])
        return cls(order, starts, np.r_[starts[1:], len(code)], key_code)

    @property
    def first_rows(self) -> Ints:
        """A row of each group."""
        return np.asarray(self.order[self.starts])

    def frequent(self, block: pa.RecordBatch, keys: tuple[str, ...], most: int) -> bytes:
        """The `most` frequent keys of the block with their rows, as Arrow bytes; the last row is the rest."""
        rows = np.bincount(self.key_code)
        example = np.zeros(len(rows), dtype=np.int64)
        example[self.key_code] = np.arange(len(self.key_code))
        top = np.argpartition(-rows, most)[:most] if len(rows) > most else np.arange(len(rows))
        taken = block.select(list(keys)).take(pa.array(example[top]))
        counts = pa.array(rows[top], pa.int64())
        table = pa.table([*taken.columns, counts], names=[*keys, ROWS])
        table = table.replace_schema_metadata({"keys": str(len(rows)), "rows": str(len(self.key_code))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())


def _codes(column: pa.Array) -> Ints:
    if pa.types.is_nested(column.type):
        column = pa.array([str(value) for value in column.to_pylist()])
    encoded = pc.dictionary_encode(one_zero(column), null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64))


def _narrowed(left: Ints, right: Ints) -> Ints:
    """Codes of pairs of codes, numbered from 0 without gaps."""
    if not left.any():
        return right
    pair = left * (int(right.max()) + 1) + right
    return np.asarray(np.unique(pair, return_inverse=True)[1])


def slices_of(column: pa.Array, order: Ints) -> Any:
    """A column in group order, to be sliced: as NumPy where NumPy has the type, else as Arrow."""
    kind = column.type
    if not pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return column.take(pa.array(order))
    if column.null_count and pa.types.is_integer(kind):
        return WholeNumbers(column, order)
    return column.to_numpy(zero_copy_only=False)[order]


class WholeNumbers:
    """Whole numbers with nulls. A slice without nulls keeps every digit; one with nulls is floats, with NaN."""

    def __init__(self, column: pa.Array, order: Ints) -> None:
        self._values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)[order]
        self._null = column.is_null().to_numpy(zero_copy_only=False)[order]

    def __getitem__(self, part: slice) -> Any:
        values, null = self._values[part], self._null[part]
        return np.where(null, np.nan, values) if null.any() else values


def _added(
    use: AggregatorUse, block: pa.RecordBatch, groups: Groups, name: str, refused: dict[int, tuple[str, str]]
) -> list[Any]:
    """The state of each group: one call of `add` a group. Rows that make it raise go to `refused`."""
    add, zero = use.aggregator.add, use.aggregator.zero
    columns = [slices_of(block.column(column), groups.order) for column in use.columns]
    states: list[Any] = []
    for start, end in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
        try:
            states.append(add(zero(), *[column[start:end] for column in columns]))
        except Exception:  # noqa: BLE001 - the rows at fault are found one by one
            states.append(_saved(use, block, groups.order[start:end], name, refused))
    return states


def _saved(
    use: AggregatorUse, block: pa.RecordBatch, rows: Ints, name: str, refused: dict[int, tuple[str, str]]
) -> Any:
    """The state of a group without the rows that make `add` raise."""
    at = "__at"
    group = block.take(pa.array(rows)).append_column(at, pa.array(rows))

    def state_of(part: pa.RecordBatch) -> Any:
        every = np.arange(part.num_rows)
        columns = [slices_of(part.column(column), every)[:] for column in use.columns]
        return use.aggregator.add(use.aggregator.zero(), *columns)

    good, bad = isolate(group, state_of)
    for why, row in bad:
        refused[row.column(at)[0].as_py()] = (f"{AGGREGATE_FAILED}{name!r}: {why}", as_json(row))
    state = use.aggregator.zero()
    for part in good:
        state = use.aggregator.merge(state, part)
    return state


def _clusters(
    block: pa.RecordBatch,
    keys: tuple[str, ...],
    groups: Groups,
    states: dict[str, list[Any]],
    buckets: int,
    schema: pa.Schema,
) -> pa.RecordBatch:
    first = pa.array(groups.first_rows)
    count = len(first)
    if SPLIT in block.schema.names:
        split = block.column(SPLIT).take(first).to_numpy(zero_copy_only=False).astype(bool)
    else:
        split = np.ones(count, dtype=bool)
    columns: dict[str, Any] = {key: block.column(key).take(first) for key in keys}
    columns[PANE] = block.column(PANE).take(first)
    columns[ROWS] = pa.array(groups.ends - groups.starts, pa.int64())
    columns[BUCKET] = _local_buckets(columns, split, buckets)
    for name, values in states.items():
        columns[schema.field(name).name] = encoded(values, schema.field(name).type, f"add() of aggregate {name!r}")
    columns[BAD] = pa.nulls(count, pa.string())
    columns[BAD_ROW] = pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def _local_buckets(clusters: dict[str, pa.Array], split: np.ndarray[Any, np.dtype[np.bool_]], buckets: int) -> pa.Array:
    """Algorithm 3 on this task's clusters, one record each; null for split keys, which the JVM hashes.

    Clusters are dealt in the order of their keys, so that a task that is run again deals them alike. Where
    Arrow has no order for a type of key, all are hashed. The few split clusters are one record each, so
    leaving them out of the capacities moves no bucket by more than their number.
    """
    free = np.flatnonzero(~split)
    names = [name for name in clusters if name != ROWS]
    try:
        table = pa.table({name: clusters[name].take(pa.array(free)) for name in names})
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(split), pa.int32())
    none = np.zeros(len(free), dtype=np.int64)
    dealt = PromptAllocator().allot(none + 1, none.astype(bool), none, buckets, _task())
    bucket = np.zeros(len(split), dtype=np.int32)
    bucket[free[order]] = dealt.bucket
    return pa.array(bucket, pa.int32(), mask=split)


def _task() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - keeps this module importable without Spark

    context = TaskContext.get()
    return context.partitionId() if context else 0


def _dead_letters(bad: Letters, schema: pa.Schema) -> pa.RecordBatch:
    known: dict[str, Any] = {
        BUCKET: pa.array(np.zeros(len(bad), np.int32)),
        ROWS: pa.array(np.zeros(len(bad), np.int64)),
        PANE: pa.array(np.arange(len(bad)) + (_task() << 33)),  # equal rows stay apart when they are grouped
        BAD: pa.array([why for why, _ in bad]),
        BAD_ROW: pa.array([row for _, row in bad]),
    }
    arrays = [known.get(field.name, pa.nulls(len(bad), field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(
        [array.cast(f.type) for array, f in zip(arrays, schema, strict=True)], schema=schema
    )


NO_FIELDS = (str, bytes, dict, set, frozenset)
"""Iterables that have no values of several fields in them, one after the other."""


def encoded(states: list[Any], kind: pa.DataType, of: str) -> pa.Array:
    """States as one Arrow column of structs; ValueError where one is none, with who gave it (`of`).

    A state of one field is the bare value; one of several, any iterable of as many values, in their order.
    """
    try:
        return pa.StructArray.from_arrays(_parts(states, kind), fields=kind.fields)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{of} gave what is no state of ({', '.join(map(_spoken, kind.fields))}): {error}") from error


def _spoken(field: pa.Field) -> str:
    return f"{field.name} {field.type}"


def _parts(states: list[Any], kind: pa.DataType) -> list[pa.Array]:
    """For each field of a state, the values of all states."""
    if kind.num_fields == 1:
        if isinstance(next(iter(states), None), tuple) and not pa.types.is_nested(kind.field(0).type):
            raise ValueError(f"a state of the one field {kind.field(0).name!r} is the bare value, not a tuple")
        return [column_of(states, kind.field(0).type)]
    for state in states:
        if state is None or isinstance(state, NO_FIELDS):
            raise ValueError(f"a state of several fields is a tuple, got {state!r}")
    parts = list(zip(*states, strict=True)) if states else [()] * kind.num_fields
    if len(parts) != kind.num_fields:
        raise ValueError(f"a state must have {kind.num_fields} fields, got {len(parts)}")
    return [column_of(list(part), field.type) for part, field in zip(parts, kind.fields, strict=True)]


def decoded(column: pa.Array) -> list[Any]:
    """The states of a column of structs; the inverse of `encoded`."""
    parts = [part.to_pylist() for part in column.flatten()]
    return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


SIGN, STATE = "__sign", "__state"
"""Fields of a state that is to be added (sign 1) or taken away (sign -1)."""


def merged_states(lists: pa.Array, use: AggregatorUse) -> list[Any]:
    """One state for each list of states. Where the list's items are signed, those with -1 are subtracted."""
    merge, zero = use.aggregator.merge, use.aggregator.zero
    offsets = lists.offsets.to_numpy()
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    item = lists.type.value_type
    if item.num_fields == 2 and item.field(0).name == SIGN:
        states = decoded(lists.values.field(STATE))
        signs = lists.values.field(SIGN).to_numpy(zero_copy_only=False)
        return [_signed_sum(use, states[start:end], signs[start:end]) for start, end in bounds]
    states = decoded(lists.values)
    if len(states) == len(lists) and np.all(np.diff(offsets) == 1):
        return states
    out = []
    for start, end in bounds:
        state = states[start] if end > start else zero()
        for other in states[start + 1 : end]:
            state = merge(state, other)
        out.append(state)
    return out


def _signed_sum(use: AggregatorUse, states: list[Any], signs: Any) -> Any:
    whole = use.aggregator.zero()
    for state, sign in zip(states, signs, strict=True):
        if sign > 0:
            whole = use.aggregator.merge(whole, state)
    for state, sign in zip(states, signs, strict=True):
        if sign < 0:
            whole = use.aggregator.subtract(whole, state)
    return whole


def merger(uses: dict[str, AggregatorUse], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """Fold each list of states, in the column of an aggregate's name, into a list of one."""

    def folded(states: list[Any], use: AggregatorUse, kind: pa.DataType) -> pa.Array:
        single = encoded(states, kind.value_type, f"{type(use.aggregator).__name__}.merge()")
        return pa.ListArray.from_arrays(pa.array(np.arange(len(states) + 1), pa.int32()), single).cast(kind)

    return _of_states(uses, schema, folded)


def finisher(uses: dict[str, AggregatorUse], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """The last step: fold each list of states, and finish what comes of it into the result."""

    def finished(states: list[Any], use: AggregatorUse, kind: pa.DataType) -> pa.Array:
        return results_of(use, states, kind)

    return _of_states(uses, schema, finished)


def results_of(use: AggregatorUse, states: list[Any], kind: pa.DataType) -> pa.Array:
    """What an aggregator makes of states; ValueError where that is not of its type."""
    results = [use.aggregator.finish(state) for state in states]
    try:
        return column_of(results, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{type(use.aggregator).__name__}.finish() gave what is no {use.aggregator.result}: {error}"
        ) from error


def _of_states(
    uses: dict[str, AggregatorUse],
    schema: pa.Schema,
    made_of: Callable[[list[Any], AggregatorUse, pa.DataType], pa.Array],
) -> Callable[[Batches], Batches]:
    """Replace each aggregate's column by what is made of its merged states; the other columns stay."""

    def column_of(part: pa.RecordBatch, field: pa.Field) -> pa.Array:
        column, use = part.column(field.name), uses.get(field.name)
        return column.cast(field.type) if use is None else made_of(merged_states(column, use), use, field.type)

    def run(parts: Batches) -> Batches:
        for part in parts:
            yield pa.RecordBatch.from_arrays([column_of(part, field) for field in schema], schema=schema)

    return run
