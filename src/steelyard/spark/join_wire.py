"""How the tasks of a similarity join hand records to each other, and pairs to Spark: as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.similarity import Members, Rows
from steelyard.similarity.members import from_column, to_column
from steelyard.spark.join_program import JoinProgram

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]

SENT_BYTES = 1 << 28
"""Bytes of records that go to Spark at a time: Arrow counts the bytes of a batch in 32 bits."""
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
    column = None if vectors else to_column(program.metric, records)
    size = records.nbytes if column is None else column.nbytes
    step = max(1, SENT_BYTES * len(records) // max(1, size))
    for start in range(0, len(records), step):
        sent = _bytes(records[start : start + step]) if column is None else column.slice(start, step)
        some = {name: one.slice(start, step) for name, one in columns.items()}
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


def rows_of(program: JoinProgram, table: pa.Table, carried: Sequence[str] = CARRIED) -> Rows:
    """The rows of a table that came through Spark. If they carry nothing, the user's ids are their own."""
    at = table.column("at").to_numpy()
    return Rows(
        table.column("number" if carried else "id").to_numpy().astype(np.int64, copy=False),
        table.column("side").to_numpy(),
        program.windows_of(at),
        from_spark(program, table.column("record")),
        table.select(list(carried)).combine_chunks() if carried else None,
    )


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
