"""What tasks of a similarity join do with routed records: place them in worksets, join the worksets, move them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.similarity import Formulation, Members, WindowJoin
from steelyard.similarity.members import OUTER
from steelyard.similarity.pairblocks import everything
from steelyard.similarity.placed import CrowdedError, all_in_rest
from steelyard.similarity.window_join import Pairs
from steelyard.spark.join_program import JoinProgram, Kept, Run
from steelyard.spark.join_state import (
    GEOMETRY,
    MOVES,
    RECORDS,
    Segment,
    read_segments,
    write_segment,
)
from steelyard.spark.join_wire import CARRIED, Batches, Task, batch_of, give_back, members_of, routed_of, sent_members
from steelyard.spark.tasklog import TaskLog, Timing, timed

PLACE, JOIN = "place", "join"
SENT = 100000
"""Pairs that go to Spark at a time."""


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
        yield from sent_members(program, members, assignment, schema)
        del members
        give_back()

    return work


def joiner(program: JoinProgram, kept: Kept, run: Run, log: TaskLog | None, schema: pa.Schema) -> Task:
    """Join the new members of one worker's worksets with those it has, and keep them.

    Takes what `placer` gives; gives left and right id, distance, window, and the later of both times.
    """

    def work(parts: Batches) -> Batches:
        with timed(log, JOIN) as timing:
            found = members_of(program, parts, timing)
            if found is None:
                return
            worker, members = found
            del found
            give_back()
            yield from _joined(program, members, worker, kept, run, timing, schema)
            del members
        give_back()

    return work


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
            del members
        give_back()

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
    found = routed_of(program, parts, carried, timing)
    if found is None:
        return None
    partition, rows, outer = found
    del found
    with timing.working():
        timing.rows = len(rows)
        formulation = _formulation(program, partition, geometry, run)
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
            batch = batch_of(_pair_columns(program, pairs, schema.names), schema)
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
