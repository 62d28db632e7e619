"""How the tasks of a similarity join hand records to each other, and pairs to Spark: as Arrow batches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.similarity import Members, Rows
from steelyard.similarity.members import from_column, record_bytes, to_column
from steelyard.spark.join_program import JoinProgram
from steelyard.spark.tasklog import Timing

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

SENT_BYTES = 1 << 23
"""Bytes of records that go to Spark at a time: neither side has to hold more of them as Arrow's columns."""
NUMBERS = {4: np.float32, 8: np.float64}
"""Of which vectors are made, by their width."""
CARRIED = ("id", "at")
"""What goes with a record: the user's id, and its time in microseconds."""


def from_spark(program: JoinProgram, column: pa.ChunkedArray) -> Any:
    """Records from a column that went through Spark, which has lists where Arrow had lists of a fixed size."""
    kind = column.type
    if program.dimension is not None and pa.types.is_binary(kind):
        return _vectors(column, program.dimension)
    if program.dimension is not None and pa.types.is_list(kind):
        flat = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
        column = pa.chunked_array([pa.FixedSizeListArray.from_arrays(flat, program.dimension)])
    return from_column(program.metric, column)


def _vectors(column: pa.ChunkedArray, dimension: int) -> Any:
    """float32[n, d] or float64[n, d], as their width tells, from a column of bytes."""
    pieces = []
    for chunk in column.chunks:
        _, ends, data = chunk.buffers()
        first, last = np.frombuffer(ends, np.int32)[[chunk.offset, chunk.offset + len(chunk)]].tolist()
        pieces.append(np.frombuffer(data, np.uint8)[first:last])
    whole = np.concatenate(pieces)
    return whole.view(NUMBERS[len(whole) // (len(column) * dimension)]).reshape(-1, dimension)


def _bytes(vectors: Any) -> pa.Array:
    """Vectors as a column of bytes."""
    ends = np.arange(len(vectors) + 1, dtype=np.int32) * np.int32(vectors.shape[1] * vectors.itemsize)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(vectors))]
    return pa.Array.from_buffers(pa.binary(), len(vectors), buffers)


def sent_batches(program: JoinProgram, columns: Mapping[str, Any], records: Any, schema: pa.Schema) -> Batches:
    """Columns and their records as batches for Spark. Vectors go as bytes: Spark need not look at each number."""
    vectors = pa.types.is_binary(schema.field("record").type)
    sizes = records.nbytes // max(1, len(records)) if vectors else record_bytes(program.metric, records)
    portion = np.cumsum(np.broadcast_to(sizes, len(records))) // SENT_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(portion)) + 1).tolist(), len(records)]
    for start, end in pairwise(cuts):
        if vectors:
            sent = _bytes(records[start:end])
        else:
            sent = to_column(program.metric, program.metric.take(records, np.arange(start, end)))
        some = {name: one.slice(start, end - start) for name, one in columns.items()}
        yield batch_of({**some, "record": sent}, schema)


def sent_members(program: JoinProgram, members: Members, assignment: Mapping[int, int], schema: pa.Schema) -> Batches:
    """Members as batches for Spark, each with the worker that has its workset."""
    columns = {
        "worker": pa.array(program.workers_of(members.worksets, assignment), pa.int32()),
        "workset": pa.array(members.worksets),
        "role": pa.array(members.roles),
        **row_columns(members.rows),
    }
    return sent_batches(program, columns, members.rows.records, schema)


def rows_of(program: JoinProgram, part: pa.RecordBatch, carried: Sequence[str] = CARRIED) -> Rows:
    """The rows of a batch that came through Spark. If they carry nothing, the user's ids are their own."""
    at = _column(part, "at")
    every = pa.array(np.arange(part.num_rows))  # a copy: what is Arrow's own would keep the whole batch
    return Rows(
        _column(part, "number" if carried else "id").astype(np.int64, copy=False),
        _column(part, "side"),
        program.windows_of(at),
        from_spark(program, pa.chunked_array([part.column("record")])),
        pa.table({name: part.column(name).take(every) for name in carried}) if carried else None,
    )


def members_of(program: JoinProgram, parts: Batches, timing: Timing) -> tuple[int, Members] | None:
    """A worker, and the members that came to it through Spark; None where none came.

    They are in an order that tells nothing of the way, and that needs no other sort.
    """
    worker, found = 0, []
    for part in parts:  # each is let go before the next one comes
        if part.num_rows:
            with timing.working():
                worker = int(part.column("worker")[0].as_py())
                found.append(Members(_column(part, "workset"), _column(part, "role"), rows_of(program, part)))
    if not found:
        return None
    with timing.working():
        members = Members.join(program.metric, found)
        found.clear()
        give_back()
        rows = members.rows
        order = np.lexsort(
            (rows.ids, members.roles, rows.sides, rows.windows[:, 1], rows.windows[:, 0], members.worksets)
        )
        return worker, members.take(program.metric, order)


def routed_of(
    program: JoinProgram, parts: Batches, carried: Sequence[str], timing: Timing
) -> tuple[int, Rows, Any] | None:
    """A space partition, the rows that came to it through Spark, and which are its guests; None where none came.

    Ids of worksets count up as records come: in the order of their times, whoever is asked again.
    """
    partition, found, columns = 0, [], []
    for part in parts:  # each is let go before the next one comes
        if part.num_rows:
            with timing.working():
                partition = int(part.column("partition")[0].as_py())
                found.append(rows_of(program, part, carried))
                columns.append([_column(part, name) for name in ("number", "side", "at", "outer")])
    if not found:
        return None
    with timing.working():
        *keys, outer = (np.concatenate(pieces) for pieces in zip(*columns, strict=True))
        rows = Rows.join(program.metric, found)
        found.clear()
        give_back()
        order = np.lexsort(keys)
        return partition, rows.take(program.metric, order), outer[order]


def give_back() -> None:
    """Give memory that nobody uses back to the system: a worker lives for hours, and would keep all it ever had."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _column(part: pa.RecordBatch, name: str) -> Any:
    """A column as an array that outlives the batch."""
    return np.array(part.column(name).to_numpy(zero_copy_only=False))


def row_columns(rows: Rows) -> dict[str, Any]:
    """Rows as columns, without their records."""
    assert rows.carried is not None
    return {
        "number": pa.array(rows.ids),
        "side": pa.array(rows.sides),
        "at": rows.carried.column("at"),
        "id": rows.carried.column("id"),
    }


def batch_of(columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Columns as one batch of the schema that Spark was told."""
    arrays = []
    for field in schema:
        column = columns[field.name]
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        arrays.append(array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
