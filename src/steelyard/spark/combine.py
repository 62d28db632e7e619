"""The map task of a Python aggregate: group a block, add each group up, allot the groups to buckets.

Nothing here is compiled: tasks import NumPy and Arrow only, and no loop runs once per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import BatchError, BucketAllocator, BucketPlan
from steelyard.core.arrow import in_one_batch
from steelyard.core.counts import one_zero
from steelyard.core.hidden import AT, BAD, BAD_ROW, BUCKET, PANE, ROWS, SPLIT
from steelyard.kernels.radix import stable_order
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.agreement import added_otherwise, of_one_key
from steelyard.spark.isolate import COMPLAINT, as_json, isolate, no_key
from steelyard.spark.keyhash import key_hashes
from steelyard.spark.states import added, bounds_of, encoded, told_of
from steelyard.spark.tasklog import TaskLog, timed

AGGREGATE_FAILED = "aggregate "
"""Begins the reason of a row on which an aggregate raised."""
Batches = Iterator[pa.RecordBatch]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def combiner(
    keys: tuple[str, ...],
    uses: dict[str, AggregatorUse],
    schema: pa.Schema,
    buckets: int,
    allocator: BucketAllocator,
    log: TaskLog | None,
    frequent: int,
    results: Mapping[str, pa.DataType] | None = None,
    on_bad: str | None = None,
) -> Callable[[Batches], Batches]:
    """The map task: group a block's rows by key and pane, add each group up, allot the groups to buckets.

    Parameters
    ----------
    keys, uses
        Key columns, and the aggregates by name.
    schema
        What comes out: bucket, keys, pane, rows, one state column for each aggregate. Refused rows come out beside it.
    buckets, allocator
        Number of reduce tasks, and what sends groups to them.
    log
        Where to report to.
    frequent
        How many of the block's most frequent keys to report.
    results
        Types of the results, by aggregate: those with two forms are then computed in both, for a few groups.
    on_bad
        `"fail"` or `"drop"` for rows that are refused, and for those without a key. By default they come out too, and
        all rows have keys: the JVM has looked.
    """

    def run(parts: Batches) -> Batches:
        allot = partial(allocator.allot, buckets=buckets, task=_task())
        with timed(log, "combine") as task:
            batches = [part for part in parts if part.num_rows]
            if not batches:
                return
            with task.working():
                block = in_one_batch(batches, "take more blocks, as in .partition_by('auto', blocks=64)")
                task.rows = block.num_rows
                block = block if on_bad is None else _with_keys(block, keys, on_bad)
                block, groups, states, letters = _combined(block, keys, uses, schema, results or {})
                out = _clusters(block, keys, groups, states, allot, schema) if groups else None
                if groups and log is not None:
                    frequent_keys = groups.frequent(block, keys, frequent)
                    task.extra = {"clusters": len(groups.sizes), "frequent": frequent_keys}
            if out is not None:
                yield out
            if letters and on_bad == "fail":
                raise BatchError(COMPLAINT + letters[0][0])
            if letters and on_bad is None:
                yield pa.RecordBatch.from_pydict(dict(zip((BAD, BAD_ROW), zip(*letters, strict=True), strict=True)))

    return run


Letters = list[tuple[str, str]]
"""(reason, row as JSON) of rows that an aggregate refused."""


def _combined(
    block: pa.RecordBatch,
    keys: tuple[str, ...],
    uses: dict[str, AggregatorUse],
    schema: pa.Schema,
    results: Mapping[str, pa.DataType],
) -> tuple[pa.RecordBatch, Groups | None, dict[str, pa.Array], Letters]:
    """The states of a block's groups. A row that one aggregate refuses is taken from all of them."""
    letters: Letters = []
    while block.num_rows:
        groups = Groups.of(block, keys)
        refused: dict[int, tuple[str, str]] = {}
        states = {}
        for name, use in uses.items():
            states[name] = _added(use, block, groups, name, schema.field(name).type, results.get(name), refused)
        if not refused:
            return block, groups, states, letters
        letters += refused.values()
        keep = np.ones(block.num_rows, dtype=bool)
        keep[list(refused)] = False
        block = block.filter(pa.array(keep))
    return block, None, {}, letters


def _with_keys(block: pa.RecordBatch, keys: tuple[str, ...], on_bad: str) -> pa.RecordBatch:
    """The rows of a block that have all keys; BatchError at others, unless they are dropped."""
    for key in keys:
        column = block.column(key)
        if column.null_count and on_bad == "fail":
            raise BatchError(COMPLAINT + no_key(key))
        if column.null_count:
            block = block.filter(column.is_valid())
    return block


class Groups:
    """The rows of a block in order of their group (key and pane), and where each group begins and the last one ends."""

    def __init__(self, order: Ints, offsets: Ints, key_code: Ints) -> None:
        self.order = order
        self.offsets = offsets
        self.key_code = key_code

    @classmethod
    def of(cls, block: pa.RecordBatch, keys: tuple[str, ...]) -> Groups:
        """Group by dictionary codes: no Python value is made of a row."""
        code, count = _codes(block.column(keys[0]))
        for name in keys[1:]:
            code, count = _paired(code, count, *_codes(block.column(name)))
        key_code = code
        if PANE in block.schema.names:
            code, count = _paired(code, count, *_codes(block.column(PANE)))
        sizes = np.bincount(code)
        return cls(stable_order(code, count), bounds_of(sizes[sizes > 0]), key_code)

    @property
    def first_rows(self) -> Ints:
        """A row of each group."""
        return np.asarray(self.order[self.offsets[:-1]])

    @property
    def sizes(self) -> Ints:
        """Rows of each group."""
        return np.diff(self.offsets)

    def frequent(self, block: pa.RecordBatch, keys: tuple[str, ...], most: int) -> bytes:
        """The `most` frequent keys of the block with their rows, as Arrow bytes; the last row is the rest."""
        rows = np.bincount(self.key_code)
        example = np.zeros(len(rows), dtype=np.int64)
        example[self.key_code] = np.arange(len(self.key_code))
        rows, example = rows[rows > 0], example[rows > 0]
        top = np.argpartition(-rows, most)[:most] if len(rows) > most else np.arange(len(rows))
        taken = block.select(list(keys)).take(pa.array(example[top]))
        counts = pa.array(rows[top], pa.int64())
        table = pa.table([*taken.columns, counts], names=[*keys, ROWS])
        table = table.replace_schema_metadata({"keys": str(len(rows)), "rows": str(len(self.key_code))})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())


def _codes(column: pa.Array) -> tuple[Ints, int]:
    """A number for each value, the same for equal ones, from 0 on; and a bound that none of them reaches."""
    if pa.types.is_integer(column.type) and not column.null_count and len(column):
        values = column.to_numpy()
        least, most = int(values.min()), int(values.max())
        if most - least < max(1 << 16, 2 * len(values)):  # close to each other: they are their own codes
            codes = values.astype(np.int64, copy=False) - least
            return codes.astype(np.uint16) if most - least < 1 << 16 else codes, most - least + 1
    if pa.types.is_nested(column.type):
        column = pa.array([str(value) for value in column.to_pylist()])
    encoded = pc.dictionary_encode(one_zero(column), null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False)), len(encoded.dictionary)


def _paired(left: Ints, lefts: int, right: Ints, rights: int) -> tuple[Ints, int]:
    """Codes of pairs of codes."""
    if lefts <= 1:
        return right, rights
    if rights <= 1:
        return left, lefts
    return _codes(pa.array(left.astype(np.int64) * rights + right))


def _added(
    use: AggregatorUse,
    block: pa.RecordBatch,
    groups: Groups,
    name: str,
    kind: pa.DataType,
    result: pa.DataType | None,
    refused: dict[int, tuple[str, str]],
) -> pa.Array | None:
    """The state of each group; None where the user's class raises: the rows at fault are then in `refused`."""
    columns = [block.column(column) for column in use.columns]
    try:
        with told_of(name):
            states = added(use, columns, groups.order, groups.offsets, kind)
    except BatchError:  # of what it gives, which is the fault of no row
        raise
    except Exception as error:
        found = _at_fault(use, block, groups, name, kind)
        if not found:
            form = "add_block()" if use.aggregator.gives("add_block") else "add()"
            raise BatchError(
                f"aggregate {name!r}: {type(use.aggregator).__name__}.{form} raised {type(error).__name__}: {error}; "
                "but for no row by itself anything is raised"
            ) from error
        refused |= found | refused  # what the first aggregate said of a row stays
        return None
    column = encoded(states, kind, f"add() of aggregate {name!r}")
    if result is not None and use.aggregator.has_both_forms:
        told = added_otherwise(name, use, columns, groups.order, groups.offsets, column, result)
        if told:
            raise BatchError(told)
    return column


def _at_fault(
    use: AggregatorUse, block: pa.RecordBatch, groups: Groups, name: str, kind: pa.DataType
) -> dict[int, tuple[str, str]]:
    """(reason, row as JSON) of the rows that make the user's class raise: groups are found by halving, then rows.

    The form of one key is asked where there is one.
    """
    alone = AggregatorUse(of_one_key(use.aggregator), use.columns) if use.aggregator.gives("zero", "add") else use

    def of_groups(part: pa.RecordBatch) -> None:
        begin, counts = part.column("start")[0].as_py(), part.column("rows").to_numpy()
        order = groups.order[begin : begin + counts.sum()]
        added(alone, [block.column(column) for column in use.columns], order, bounds_of(counts), kind)

    def of_rows(part: pa.RecordBatch) -> None:
        bounds = bounds_of(np.array([part.num_rows]))
        added(alone, [part.column(column) for column in use.columns], np.arange(part.num_rows), bounds, kind)

    found = {}
    for _, group in isolate(pa.record_batch({"start": groups.offsets[:-1], "rows": groups.sizes}), of_groups)[1]:
        begin, count = group.column("start")[0].as_py(), group.column("rows")[0].as_py()
        rows = pa.array(groups.order[begin : begin + count])
        for why, row in isolate(block.take(rows).append_column(AT, rows), of_rows)[1]:
            found[row.column(AT)[0].as_py()] = (f"{AGGREGATE_FAILED}{name!r}: {why}", as_json(row))
    return found


def _clusters(
    block: pa.RecordBatch,
    keys: tuple[str, ...],
    groups: Groups,
    states: dict[str, pa.Array],
    allot: Callable[[Ints, Flags, Ints], BucketPlan],
    schema: pa.Schema,
) -> pa.RecordBatch:
    first = pa.array(groups.first_rows)
    count = len(first)
    names = block.schema.names
    if SPLIT in names:
        split = block.column(SPLIT).take(first).to_numpy(zero_copy_only=False).astype(bool)
    else:
        split = np.ones(count, dtype=bool)
    columns: dict[str, Any] = {key: block.column(key).take(first) for key in keys}
    columns[PANE] = block.column(PANE).take(first) if PANE in names else pa.array(np.zeros(count, np.int64))
    columns[ROWS] = pa.array(groups.sizes, pa.int64())
    columns[BUCKET] = _local_buckets(columns, split, allot)
    columns |= states
    return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def _local_buckets(
    clusters: dict[str, pa.Array], split: Flags, allot: Callable[[Ints, Flags, Ints], BucketPlan]
) -> pa.Array:
    """Buckets of this task's clusters, one record each: split keys by their hash, the others as the policy says.

    Clusters are allotted in the order of their keys, so that a task that is run again allots them alike. Where
    Arrow has no order for a type of key, all are hashed.
    """
    names = [name for name in clusters if name != ROWS]
    hashes = key_hashes([clusters[name] for name in names])
    free = np.flatnonzero(~split)
    if len(free):
        try:
            table = pa.table({name: clusters[name].take(pa.array(free)) for name in names})
            free = free[pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]).to_numpy()]
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
            split, free = np.ones_like(split), np.empty(0, np.int64)
    dealt = np.r_[free, np.flatnonzero(split)]  # the order in which equal weights are dealt
    bucket = np.empty(len(split), np.int32)
    bucket[dealt] = allot(np.ones(len(split), np.int64), split[dealt], hashes[dealt]).bucket
    return pa.array(bucket)


def _task() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - keeps this module importable without Spark

    context = TaskContext.get()
    return context.partitionId() if context else 0
