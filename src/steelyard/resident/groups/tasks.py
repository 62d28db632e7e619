"""What tasks compute: partials of a block by bucket, merged buckets, and windows. No sockets here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import BatchError
from steelyard.core.counts import Ints
from steelyard.core.hidden import PANE, ROWS
from steelyard.partition.allocator import allocator
from steelyard.resident.aggregate import WindowedStep
from steelyard.resident.groups.frames import one_batch
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.program import BatchProgram
from steelyard.resident.keys import key_ids
from steelyard.resident.operator import MIN_WATERMARK, Step
from steelyard.resident.routing import parted
from steelyard.resident.running import RunningPartials
from steelyard.resident.windows import as_micros, timely


class Buckets(NamedTuple):
    """What a map task has for the reduce tasks of one worker."""

    partials: pa.RecordBatch
    """Bucket behind bucket."""
    rows: list[tuple[int, int]]
    """(bucket, rows of it) for each of the worker's buckets, also those that get nothing."""


class Mapped(NamedTuple):
    """The output of a map task."""

    by_worker: dict[int, Buckets]
    refused: int
    """Rows without a time."""


def map_block(
    program: BatchProgram, rows: pa.RecordBatch, split: Ints | None, plan: ExecutionPlan, number: int
) -> Mapped:
    """Apply the function, combine rows by key (and pane), and send each key cluster to a bucket (Algorithm 3)."""
    made = program.applied(rows)
    given = made.num_rows
    how = program.counted
    if how.window is not None:
        if program.function is not None:
            _require_times(program, rows, made)
        made, times = timely(made, how.window, MIN_WATERMARK)
        partials = how.partials(made, times)
    else:
        partials = how.partials(made)
    weights = np.asarray(partials.column(how.names[ROWS, "count_all"]).to_numpy(), dtype=np.int64)
    whole = one_batch(partials.cast(program.partial_schema))
    ids = key_ids(whole, program.keys)
    several = np.ones(len(ids), dtype=np.bool_) if split is None else np.isin(ids, split)
    bucket = allocator(program.allocator).allot(weights, several, ids, plan.buckets, number).bucket
    return Mapped(_by_worker(whole, bucket, plan), given - made.num_rows)


def _require_times(program: BatchProgram, rows: pa.RecordBatch, made: pa.RecordBatch) -> None:
    """BatchError where a function moved event times behind their windows: time is followed where rows are read."""
    window, earliest = program.how.window, [pc.min(part.column(program.time)) for part in (rows, made)]
    if window is None or not all(time.is_valid for time in earliest):
        return
    before, after = (int(as_micros(pa.array([time]))[0]) for time in earliest)
    if window.last_end(after) <= before - program.delay_micros:
        raise BatchError(
            f"the function moves event times of column {program.time!r} back by {(before - after) / 1e6:g} s, and rows "
            "come too late for their windows: give a delay= of as much, or have the source give these times"
        )


def _by_worker(partials: pa.RecordBatch, bucket: np.ndarray[Any, Any], plan: ExecutionPlan) -> dict[int, Buckets]:
    """Buckets of a worker side by side: sorted by worker, then by bucket."""
    place = np.mod(bucket, plan.workers) * plan.buckets + bucket
    order = np.argsort(place, kind="stable")
    ordered = partials.take(pa.array(order))
    sizes = np.bincount(bucket, minlength=plan.buckets)
    found, start = {}, 0
    for worker in range(min(plan.workers, plan.buckets)):
        rows = [(number, int(sizes[number])) for number in plan.buckets_of(worker)]
        length = sum(size for _, size in rows)
        found[worker] = Buckets(ordered.slice(start, length), rows)
        start += length
    return found


def slices(found: Buckets) -> list[tuple[int, pa.RecordBatch]]:
    """(bucket, partials) for each bucket."""
    made, start = [], 0
    for bucket, size in found.rows:
        made.append((bucket, found.partials.slice(start, size)))
        start += size
    return made


def reduce_bucket(program: BatchProgram, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Partials of all map tasks, merged: one row for each key (and pane)."""
    filled = [pa.Table.from_batches([part]) for part in parts if part.num_rows]
    if not filled:
        return one_batch(program.partial_schema.empty_table())
    merged = program.counted.merged(filled) if len(filled) > 1 else filled[0]
    return one_batch(merged.cast(program.partial_schema))


def by_keeper(program: BatchProgram, partials: pa.RecordBatch, workers: int) -> dict[int, pa.RecordBatch]:
    """Partials for the windows of each worker, by the hash of their keys; a worker that gets none is there too."""
    found = dict.fromkeys(range(workers), partials.slice(0, 0))
    if workers == 1 or not partials.num_rows:
        return found | ({0: partials} if partials.num_rows else {})
    for worker, part in parted(partials, np.mod(key_ids(partials, program.keys), workers), workers):
        found[worker] = part
    return found


def batch_results(program: BatchProgram, partials: pa.RecordBatch) -> pa.RecordBatch:
    """Results of a bucket without windows."""
    return one_batch(program.how.results(pa.Table.from_batches([partials])).cast(program.result_schema))


def kept_of(program: BatchProgram) -> Step | None:
    """What is kept from batch to batch, with nothing in it yet: windows, or what keys are so far."""
    if program.running:
        return RunningPartials(program.counted, program.how)
    window = program.how.window
    if window is None:
        return None
    return WindowedStep(program.counted, window, True, program.result_schema, program.open_end, program.begins)


def late_rows(program: BatchProgram, partials: pa.RecordBatch, watermark: int) -> int:
    """Rows, in partials, that belong only to windows which are closed."""
    window = program.how.window
    if window is None:
        return 0
    late = window.last_end(as_micros(partials.column(PANE))) <= watermark
    return int(partials.column(program.counted.names[ROWS, "count_all"]).to_numpy()[late].sum())
