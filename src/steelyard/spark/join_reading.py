"""What tasks do that read the rows of a similarity join: number them, leave bad ones out, route or deal the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import BadRowError
from steelyard.similarity import Rows, SpacePartitions
from steelyard.similarity.members import from_column
from steelyard.similarity.pairblocks import everything
from steelyard.spark.isolate import as_json
from steelyard.spark.join_program import Ints, JoinProgram, Run
from steelyard.spark.join_state import MIN_WATERMARK
from steelyard.spark.join_wire import Batches, Task, batch_of, give_back, row_columns, sent_batches, sent_members
from steelyard.spark.tasklog import TaskLog, timed

ROUTE = "route"
POSITION_BITS, PARTITION_BITS, BATCH_BITS = 28, 14, 20


def router(program: JoinProgram, centroids: pa.ChunkedArray, run: Run, log: TaskLog | None, schema: pa.Schema) -> Task:
    """Route records to space partitions; late and bad ones are left out and counted.

    Takes side, id, at and item; gives partition, outer, number, side, at, id and record.
    """

    def work(parts: Batches) -> Batches:
        space = SpacePartitions(from_column(program.metric, centroids), program.metric, program.t)
        read = _Read(program, run)
        distances = copies = 0
        with timed(log, ROUTE) as timing:
            for part in parts:
                with timing.working(part.num_rows):
                    rows = read.rows(part)
                    routed = space.route(rows.records)
                    distances += routed.distances
                    copies += len(routed.record)
                    sent = rows.take(program.metric, routed.record)
                    columns = {
                        "partition": pa.array(routed.partition, pa.int32()),
                        "outer": pa.array(routed.outer),
                        **row_columns(sent),
                    }
                yield from sent_batches(program, columns, sent.records, schema)
                del rows, routed, sent, columns
            timing.extra = {**read.counted, "distances": distances, "copies": copies}
        give_back()

    return work


def dealer(
    program: JoinProgram,
    assignment: Mapping[int, int],
    splits: Mapping[int, int],
    run: Run,
    log: TaskLog | None,
    schema: pa.Schema,
) -> Task:
    """Deal records out to the blocks of pairs that they are in; late and bad ones are left out and counted.

    Takes side, id, at and item; gives what `placer` gives.
    """

    def work(parts: Batches) -> Batches:
        read, cut = _Read(program, run), program.splits(splits)
        copies = 0
        with timed(log, ROUTE) as timing:
            for part in parts:
                with timing.working(part.num_rows):
                    members = cut.apply(program.metric, everything(read.rows(part)))
                    copies += len(members)
                yield from sent_members(program, members, assignment, schema)
                del members
            timing.extra = {**read.counted, "copies": copies, "members": copies}
        give_back()

    return work


def refuser(program: JoinProgram, schema: pa.Schema) -> Task:
    """The bad rows of a batch, as (reason, row as JSON)."""

    def work(parts: Batches) -> Batches:
        for part in parts:
            for position in np.flatnonzero(~_records(program, part)[1]).tolist():
                row = part.slice(position, 1)
                yield batch_of({"reason": pa.array([_reason(program, row)]), "row": pa.array([as_json(row)])}, schema)

    return work


class _Read:
    """Rows as they are read, numbered; late and bad ones are left out and counted."""

    def __init__(self, program: JoinProgram, run: Run) -> None:
        self._program, self._run = program, run
        self._task, self._position = _task(), 0
        self._late = self._bad = 0
        self._seen = MIN_WATERMARK

    @property
    def counted(self) -> dict[str, Any]:
        return {"late": self._late, "bad": self._bad, "latest": self._seen}

    def rows(self, part: pa.RecordBatch) -> Rows:
        program = self._program
        records, good = _records(program, part)
        if self._run.strict and not good.all():
            row = part.slice(int(np.argmin(good)), 1)
            raise BadRowError(
                f"a row cannot be joined: {as_json(row)} ({_reason(program, row)}). Mend the source, or choose "
                ".on_bad_rows('drop')"
            )
        at = _instants(part.column("at"))
        numbers = _numbers(self._run.batch, self._task, self._position, part.num_rows)
        self._position += part.num_rows
        self._seen = max(self._seen, int(at[good].max(initial=self._seen)))
        self._bad += int((~good).sum())
        windows = program.windows_of(at)
        open_still = good & (windows[:, 1] > self._run.closed)
        self._late += int((good & ~open_still).sum())
        sides = part.column("side").to_numpy(zero_copy_only=False)
        carried = pa.table({"id": part.column("id"), "at": pa.array(at)})
        rows = Rows(numbers, sides, windows, records, carried)
        return rows if open_still.all() else rows.take(program.metric, np.flatnonzero(open_still))


def _records(program: JoinProgram, part: pa.RecordBatch) -> tuple[Any, Any]:
    """The records of some rows, and bool[n]: which rows have an id, a time and a record."""
    records, bad = program.metric.records(part.column("item"), program.dimension)
    missing = part.column("id").is_null().to_numpy(zero_copy_only=False)
    untimed = part.column("at").is_null().to_numpy(zero_copy_only=False)
    return records, ~(bad | missing | untimed)


def _reason(program: JoinProgram, row: pa.RecordBatch) -> str:
    for name, what in (("id", "null id"), ("at", "null time"), ("item", "null record")):
        if row.column(name)[0].as_py() is None:
            return what
    vectors = f" of {program.dimension} dimensions" if program.dimension else ""
    return f"not a record{vectors} of metric {program.metric.name!r}"


def _numbers(batch: int, task: int, first: int, count: int) -> Ints:
    """Numbers that no other record of an open window has."""
    begin = ((batch % (1 << BATCH_BITS)) << (POSITION_BITS + PARTITION_BITS)) | (task << POSITION_BITS)
    return begin + first + np.arange(count, dtype=np.int64)


def _instants(column: pa.Array) -> Ints:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _task() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - keeps this module importable without Spark

    context = TaskContext.get()
    return context.partitionId() if context else 0
