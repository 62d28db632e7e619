"""The Python side of a similarity join, inside tasks: route records, place them in worksets, join the worksets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import BadRowError
from steelyard.similarity import Formulation, Members, Metric, Rows, SpacePartitions, WindowJoin, Windows
from steelyard.similarity.members import OUTER, from_column, split_key, to_column
from steelyard.similarity.pairblocks import everything
from steelyard.similarity.placed import ROOM, CrowdedError, all_in_rest
from steelyard.similarity.splitting import Splits
from steelyard.similarity.window_join import Pairs
from steelyard.spark.isolate import as_json
from steelyard.spark.join_state import (
    BEFORE_ALL,
    GEOMETRY,
    MOVES,
    RECORDS,
    Left,
    Segment,
    read_segments,
    write_segment,
)
from steelyard.spark.tasklog import TaskLog, Timing, timed

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]
Ints = np.ndarray[Any, np.dtype[np.int64]]

ROUTE, PLACE, JOIN = "route", "place", "join"
POSITION_BITS, PARTITION_BITS, BATCH_BITS = 28, 14, 20
SENT = 100000
"""Pairs that go to Spark at a time."""
SENT_BYTES = 1 << 28
"""Bytes of records that go to Spark at a time: Arrow counts the bytes of a batch in 32 bits."""
NUMBERS = {4: np.float32, 8: np.float64}
"""Of which vectors are made, by their width."""
CARRIED = ("id", "at")
"""What goes with a record: the user's id, and its time in microseconds."""


@dataclass(frozen=True)
class JoinProgram:
    """What a similarity join computes; goes to every task.

    Parameters
    ----------
    metric, t
        The metric, and the threshold distance.
    self_join
        Whether one stream is joined with itself.
    windows
        Time windows in microseconds; None where the whole of a static join is one.
    parts, workers
        Space partitions, and workers.
    dimension
        Of the vectors; None where records have none.
    balanced_ids, retire_after, crowd, max_bytes, distances, room
        Options of `Formulation` and `WindowJoin`.
    """

    metric: Metric
    t: float
    self_join: bool
    windows: Windows | None
    parts: int
    workers: int
    dimension: int | None = None
    balanced_ids: bool = False
    retire_after: int | None = None
    crowd: int | None = None
    max_bytes: int | None = None
    distances: bool = True
    room: int | None = ROOM

    def splits(self, cut: Mapping[int, int]) -> Splits:
        """Worksets that are cut, each into so many parts."""
        splits = Splits(self_join=self.self_join)
        for workset, parts in cut.items():
            splits.cut(workset, parts)
        return splits

    def workers_of(self, worksets: Ints, assignment: Mapping[int, int]) -> Ints:
        """The worker of each workset: where it was sent, or where it was made; pieces of one are dealt out."""
        keys, place = np.unique(worksets, return_inverse=True)
        partition, _, piece = split_key(keys)
        home = (partition + piece) % self.workers
        here = [assignment.get(key, at) for key, at in zip(keys.tolist(), home.tolist(), strict=True)]
        return np.asarray(here, dtype=np.int64)[place]

    def windows_of(self, times: Ints) -> Ints:
        """int64[n, 2]: the first and last window of each time."""
        return self.windows.of(times) if self.windows else np.zeros((len(times), 2), dtype=np.int64)

    def closed_by(self, watermark: int) -> int:
        """The last window that has ended at a watermark."""
        assert self.windows is not None, "only streams have a watermark"
        return (watermark - self.windows.length) // self.windows.step


@dataclass(frozen=True)
class Run:
    """One try of one batch.

    Parameters
    ----------
    batch
        Its number.
    name
        The folder of its files; empty where nothing is kept.
    root
        The join's folder under the checkpoint.
    closed
        The last window that had ended before the batch.
    strict
        Whether a task fails at the first bad row; else bad ones are counted.
    """

    batch: int = 0
    name: str = ""
    root: str = ""
    closed: int = BEFORE_ALL
    strict: bool = False


@dataclass(frozen=True)
class Kept:
    """The records that workers have, and the worksets that left them."""

    records: Mapping[int, tuple[Segment, ...]]
    left: Mapping[int, tuple[Left, ...]]


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
                        **_row_columns(sent),
                    }
                    batches = list(_sent(program, columns, sent.records, schema))
                yield from batches
            timing.extra = {**read.counted, "distances": distances, "copies": copies}

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
                    columns = _columns(members, program.workers_of(members.worksets, assignment))
                    batches = list(_sent(program, columns, members.rows.records, schema))
                yield from batches
            timing.extra = {**read.counted, "copies": copies, "members": copies}

    return work


class _Read:
    """Rows as they are read, numbered; late and bad ones are left out and counted."""

    def __init__(self, program: JoinProgram, run: Run) -> None:
        self._program, self._run = program, run
        self._task, self._position = _task(), 0
        self._late = self._bad = 0
        self._seen = BEFORE_ALL

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


def placer(
    program: JoinProgram,
    geometry: Mapping[int, tuple[Segment, ...]],
    assignment: Mapping[int, int],
    splits: Mapping[int, int],
    run: Run,
    log: TaskLog | None,
    schema: pa.Schema,
) -> Task:
    """Place the records of one space partition in worksets, and say which worker has each workset.

    Takes what `router` gives; gives worker, workset, role, number, side, at, id and record.
    """

    def work(parts: Batches) -> Batches:
        with timed(log, PLACE) as timing:
            members = _placed(program, parts, geometry, splits, run, timing)
        if members is None:
            return
        columns = _columns(members, program.workers_of(members.worksets, assignment))
        yield from _sent(program, columns, members.rows.records, schema)

    return work


def joiner(program: JoinProgram, kept: Kept, run: Run, log: TaskLog | None, schema: pa.Schema) -> Task:
    """Join the new members of one worker's worksets with those it has, and keep them.

    Takes what `placer` gives; gives left and right id, distance, window, and the later of both times.
    """

    def work(parts: Batches) -> Batches:
        with timed(log, JOIN) as timing:
            batches = [part for part in parts if part.num_rows]
            if not batches:
                return
            with timing.working():
                table = pa.Table.from_batches(batches)
                batches.clear()
                worker = int(table.column("worker")[0].as_py())
                members = _ordered_members(program, table)
                del table
            yield from _joined(program, members, worker, kept, run, timing, schema)

    return work


def _ordered_members(program: JoinProgram, table: pa.Table) -> Members:
    """Members that came through Spark, in an order that tells nothing of the way, and that needs no other sort."""
    worksets, roles = table.column("workset").to_numpy(), table.column("role").to_numpy()
    numbers, sides = table.column("number").to_numpy(), table.column("side").to_numpy()
    windows = program.windows_of(table.column("at").to_numpy())
    order = np.lexsort((numbers, roles, sides, windows[:, 1], windows[:, 0], worksets))
    return Members(worksets, roles, _rows(program, table)).take(program.metric, order)


def home_joiner(
    program: JoinProgram,
    geometry: Mapping[int, tuple[Segment, ...]],
    kept: Kept,
    run: Run,
    log: TaskLog | None,
    schema: pa.Schema,
) -> Task:
    """`placer` and `joiner` in one, for worksets that stay where they are made: nothing goes through Spark in between.

    Takes what `router` gives; gives what `joiner` gives.
    """

    carried: Sequence[str] = CARRIED
    if not run.name:  # nothing is kept: what pairs do not show need not go along
        numbered = pa.types.is_integer(schema.field("left_id").type)
        carried = tuple(name for name in CARRIED if name in schema.names or (name == "id" and not numbered))

    def work(parts: Batches) -> Batches:
        with timed(log, PLACE) as timing:
            members = _placed(program, parts, geometry, {}, run, timing, carried)
        with timed(log, JOIN) as timing:
            if not members:  # no records, or none that is near enough to a workset of this partition
                return
            worker = int(program.workers_of(members.worksets[:1], {})[0])
            yield from _joined(program, members, worker, kept, run, timing, schema)

    return work


def _placed(
    program: JoinProgram,
    parts: Batches,
    geometry: Mapping[int, tuple[Segment, ...]],
    splits: Mapping[int, int],
    run: Run,
    timing: Timing,
    carried: Sequence[str] = CARRIED,
) -> Members | None:
    """The records of one space partition as members of worksets; None where there are none."""
    batches = [part for part in parts if part.num_rows]
    if not batches:
        return None
    with timing.working():
        table = pa.Table.from_batches(batches)
        # Ids of worksets count up as records come: in the order of their times, whoever is asked again.
        order = np.lexsort([table.column(name).to_numpy() for name in ("number", "side", "at")])
        partition = int(table.column("partition")[0].as_py())
        timing.rows = table.num_rows
        formulation = _formulation(program, partition, geometry, run)
        rows = _rows(program, table, carried).take(program.metric, order)
        outer = table.column("outer").to_numpy()[order]
        batches.clear()
        del table
        try:
            placed = formulation.add(rows, outer)
        except CrowdedError as crowded:
            if run.name:  # what is kept lies elsewhere: the driver has all dealt out in another way
                timing.extra = {"partition": partition, "crowded": crowded.copies}
                return None
            return all_in_rest(partition, rows, outer)
        members = program.splits(splits).apply(program.metric, placed.members) if splits else placed.members
        timing.extra = {
            "partition": partition,
            "distances": placed.distances,
            "members": len(members),
            "created": len(placed.created),
        }
        if run.name:
            timing.extra["segment"] = _keep_geometry(formulation, partition, run)
    return members


def _joined(
    program: JoinProgram, members: Members, worker: int, kept: Kept, run: Run, timing: Timing, schema: pa.Schema
) -> Batches:
    """The pairs of a worker's new members, a portion at a time."""
    found = 0
    with timing.working(len(members)):
        join = WindowJoin(
            program.metric,
            program.t,
            self_join=program.self_join,
            distances=program.distances,
            max_bytes=program.max_bytes,
        )
        join.closed = run.closed
        for stored in stored_members(program, worker, kept, run):
            join.put_in(stored)
        portions = join.portions(members)
    while True:
        with timing.working():
            pairs = next(portions, None)
            if pairs is None:
                break
            batch = _batch(_pair_columns(program, pairs, schema.names), schema)
        found += len(pairs)
        for start in range(0, len(pairs), SENT):
            yield batch.slice(start, SENT)
    if not run.name:
        return
    with timing.working():
        loads = join.loads()
        timing.extra = {
            "worker": worker,
            "worksets": loads.worksets,
            "comparisons": loads.comparisons,
            "free": loads.free,
            "sizes": loads.bytes,
            "pairs": found,
            "segment": _segment(program, f"{RECORDS}/{run.name}/{worker}", members, run),
        }


def _pair_columns(program: JoinProgram, pairs: Pairs, wanted: list[str]) -> dict[str, Any]:
    """What is wanted of pairs; windows and times only where there are windows."""
    left, right = pairs.left_carried, pairs.right_carried
    distance = program.metric.surface(pairs.distance)
    columns = {
        "left_id": pa.array(pairs.left) if left is None else left.column("id"),
        "right_id": pa.array(pairs.right) if right is None else right.column("id"),
        "distance": pa.array(distance),
    }
    if "similarity" in wanted:
        columns["similarity"] = pa.array(program.metric.similarities(distance))
    if program.windows is not None:
        columns["window_start"] = pa.array(program.windows.bounds(pairs.window)[0])
    if "at" in wanted:
        assert left is not None
        assert right is not None
        columns["at"] = pa.array(np.maximum(left.column("at").to_numpy(), right.column("at").to_numpy()))
    return columns


def mover(
    program: JoinProgram,
    going: Mapping[int, list[int]] | None,
    assignment: Mapping[int, int],
    splits: Mapping[int, int],
    kept: Kept,
    run: Run,
) -> Callable[[Iterable[int]], Iterator[tuple[int, int, dict[str, Any]]]]:
    """Ship the members of worksets, by worker in `going`, to where they are assigned now; those newly cut in pieces.

    Without `going` every record goes, once, to the blocks of pairs that it is in.
    """

    def work(workers: Iterable[int]) -> Iterator[tuple[int, int, dict[str, Any]]]:
        for worker in workers:
            found = list(stored_members(program, worker, kept, run))
            if not found:
                continue
            members = Members.join(program.metric, found)
            if going is None:
                homes = members.take(program.metric, np.flatnonzero(members.roles != OUTER))
                members = everything(homes.rows)
            else:
                members = members.take(program.metric, np.flatnonzero(np.isin(members.worksets, going[worker])))
            members = program.splits(splits).apply(program.metric, members)
            target = program.workers_of(members.worksets, assignment)
            for to in np.unique(target).tolist():
                shipped = members.take(program.metric, np.flatnonzero(target == to))
                yield worker, to, _segment(program, f"{MOVES}/{run.name}/{worker}-{to}", shipped, run)

    return work


def stored_members(program: JoinProgram, worker: int, kept: Kept, run: Run) -> Iterator[Members]:
    """What a worker has: the members of its segments whose windows are open, without worksets that left since."""
    segments = kept.records.get(worker, ())
    for segment, table in zip(segments, read_segments(run.root, segments), strict=True):
        members = Members.from_table(program.metric, table)
        stays = members.rows.windows[:, 1] > run.closed
        gone = [one.workset for one in kept.left.get(worker, ()) if one.batch >= segment.batch]
        stays &= ~np.isin(members.worksets, gone)
        yield members if stays.all() else members.take(program.metric, np.flatnonzero(stays))


def _records(program: JoinProgram, part: pa.RecordBatch) -> tuple[Any, Any]:
    """The records of some rows, and bool[n]: which rows have an id, a time and a record."""
    records, bad = program.metric.records(part.column("item"), program.dimension)
    missing = part.column("id").is_null().to_numpy(zero_copy_only=False)
    untimed = part.column("at").is_null().to_numpy(zero_copy_only=False)
    return records, ~(bad | missing | untimed)


def refuser(program: JoinProgram, schema: pa.Schema) -> Task:
    """The bad rows of a batch, as (reason, row as JSON)."""

    def work(parts: Batches) -> Batches:
        for part in parts:
            for position in np.flatnonzero(~_records(program, part)[1]).tolist():
                row = part.slice(position, 1)
                yield _batch({"reason": pa.array([_reason(program, row)]), "row": pa.array([as_json(row)])}, schema)

    return work


def _reason(program: JoinProgram, row: pa.RecordBatch) -> str:
    for name, what in (("id", "null id"), ("at", "null time"), ("item", "null record")):
        if row.column(name)[0].as_py() is None:
            return what
    vectors = f" of {program.dimension} dimensions" if program.dimension else ""
    return f"not a record{vectors} of metric {program.metric.name!r}"


def _formulation(
    program: JoinProgram, partition: int, geometry: Mapping[int, tuple[Segment, ...]], run: Run
) -> Formulation:
    formulation = Formulation(
        program.metric,
        program.t,
        partition,
        balanced_ids=program.balanced_ids,
        retire_after=program.retire_after,
        crowd=program.crowd,
        room=program.room,
    )
    segments = geometry.get(partition, ())
    if segments:
        tables = read_segments(run.root, segments)
        formulation.restore(
            {
                one.name.rpartition("/")[2].partition("-")[2].partition(".")[0]: t
                for one, t in zip(segments, tables, strict=True)
            }
        )
    formulation.close(run.closed)
    return formulation


def _keep_geometry(formulation: Formulation, partition: int, run: Run) -> list[dict[str, Any]]:
    state = formulation.state().items()
    return [
        asdict(write_segment(run.root, f"{GEOMETRY}/{run.name}/{partition}-{name}", run.batch, table))
        for name, table in state
    ]


def _segment(program: JoinProgram, name: str, members: Members, run: Run) -> dict[str, Any]:
    """Members in a file, and what a commit is to say of it."""
    windows = members.rows.windows
    made = write_segment(run.root, name, run.batch, members.to_table(program.metric))
    if not len(members):
        return asdict(made)
    return asdict(replace(made, first=int(windows[:, 0].min()), last=int(windows[:, 1].max())))


def _rows(program: JoinProgram, table: pa.Table, carried: Sequence[str] = CARRIED) -> Rows:
    """The rows of a table that came through Spark. If they carry nothing, the user's ids are their own."""
    at = table.column("at").to_numpy()
    return Rows(
        table.column("number" if carried else "id").to_numpy().astype(np.int64, copy=False),
        table.column("side").to_numpy(),
        program.windows_of(at),
        from_spark(program, table.column("record")),
        table.select(list(carried)).combine_chunks() if carried else None,
    )


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


def _sent(program: JoinProgram, columns: Mapping[str, Any], records: Any, schema: pa.Schema) -> Batches:
    """Columns and their records as batches for Spark. Vectors go as bytes: Spark need not look at each number."""
    vectors = pa.types.is_binary(schema.field("record").type)
    column = None if vectors else to_column(program.metric, records)
    size = records.nbytes if column is None else column.nbytes
    step = max(1, SENT_BYTES * len(records) // max(1, size))
    for start in range(0, len(records), step):
        sent = _bytes(records[start : start + step]) if column is None else column.slice(start, step)
        some = {name: one.slice(start, step) for name, one in columns.items()}
        yield _batch({**some, "record": sent}, schema)


def _columns(members: Members, worker: Any) -> dict[str, Any]:
    return {
        "worker": pa.array(worker, pa.int32()),
        "workset": pa.array(members.worksets),
        "role": pa.array(members.roles),
        **_row_columns(members.rows),
    }


def _row_columns(rows: Rows) -> dict[str, Any]:
    assert rows.carried is not None
    return {
        "number": pa.array(rows.ids),
        "side": pa.array(rows.sides),
        "at": rows.carried.column("at"),
        "id": rows.carried.column("id"),
    }


def _batch(columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Columns as one batch of the schema that Spark was told."""
    arrays = []
    for field in schema:
        column = columns[field.name]
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        arrays.append(array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
