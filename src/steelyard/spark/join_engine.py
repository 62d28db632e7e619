"""The engine of similarity joins: one Spark job per batch, state in files that tasks write, worksets that move."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from steelyard.control import Controller, Guard
from steelyard.core import Action, ActionRefusedError, Learning, Observation, Progress, ScalingPolicy
from steelyard.core.durations import instant_text
from steelyard.core.policies import identity
from steelyard.core.progress import MOVED
from steelyard.core.shown import counted
from steelyard.core.worksets import JoinObservation, WorksetLoad
from steelyard.similarity.members import split_key
from steelyard.similarity.pairblocks import EVERYTHING
from steelyard.similarity.placed import MOST_COPIES, ROOM
from steelyard.spark.arrow import arrow_schema, map_in_arrow
from steelyard.spark.badrows import BadRows
from steelyard.spark.engine import BatchEngine, Clock
from steelyard.spark.join_plan import Plan, fields, pairs_schema, shown
from steelyard.spark.join_program import JoinProgram, Kept, Run
from steelyard.spark.join_reading import ROUTE, refuser
from steelyard.spark.join_space import blocks_of, chosen_space, dimension_of, tell_blocks
from steelyard.spark.join_state import (
    GEOMETRY,
    MIN_WATERMARK,
    JoinCommit,
    JoinFolder,
    Left,
    Segment,
    read_segments,
    write_segment,
)
from steelyard.spark.join_tasks import JOIN, PLACE, mover
from steelyard.spark.memory import begin_from, restore_text, text_of
from steelyard.spark.said import join_progress
from steelyard.spark.sinks import Sink, claim, folders, opened, tell_what_is_gone
from steelyard.spark.tasklog import TaskLog

BAD = "no id, no time, or not a record of the metric"


@dataclass(frozen=True)
class JoinSettings:
    """How a join runs.

    Parameters
    ----------
    space
        How space partitions are chosen: `"random"` centroids in a box, or `"farthest"` points of the first batch.
    seed
        Of that choice.
    delay
        Microseconds that the watermark stays behind the latest event time.
    bad
        What happens to rows that cannot be joined.
    policy, guards
        Who says which worksets move and which are cut, and what bounds that; no policy: none.
    """

    space: str = "random"
    seed: int = 42
    delay: int = 0
    bad: BadRows = field(default_factory=BadRows)
    policy: ScalingPolicy | None = None
    guards: tuple[Guard, ...] = ()


@dataclass
class _Ending:
    """The batch that is being finished: what is seen of it, and changed."""

    spark: SparkSession
    run: Run
    """With the last window that has ended at its end."""
    commit: JoinCommit
    report: Progress
    window_started: bool


class JoinEngine(BatchEngine):
    """Joins one batch after the other, each exactly once.

    Parameters
    ----------
    spark
        A session.
    program
        What is computed; its dimension is found in the first batch.
    id_type
        Of the column that tells rows apart.
    settings
        How.
    sink
        Where pairs go.
    checkpoint
        Where state lives.
    signature
        What must be the same at a restart.
    """

    what: ClassVar[str] = "a similarity join"
    shows: ClassVar[frozenset[str]] = frozenset({"worksets"})
    last: JoinCommit
    state: JoinFolder

    def __init__(
        self,
        spark: SparkSession,
        program: JoinProgram,
        id_type: T.DataType,
        settings: JoinSettings,
        sink: Sink,
        checkpoint: str,
        signature: dict[str, Any],
    ) -> None:
        super().__init__()
        self.program = program
        # What a policy learns belongs to this query: others may be started from the same description.
        policy: Any = copy.deepcopy(settings.policy)
        self.settings = replace(settings, policy=policy)
        self._controller: Controller | None = None
        if policy is not None:  # one decision is kept: each has all worksets that were seen
            self._controller = Controller(self, policy, settings.guards, self.feed.tell, history=1)
        self.state = JoinFolder(spark, checkpoint)
        self.last = self.state.latest(signature)
        tell_what_is_gone(spark, sink, settings.bad.path, self.state.identity, self.last.batch)
        if settings.bad.path is not None:
            claim(spark, settings.bad.path, self.state.identity)
        found = spark.createDataFrame([], pairs_schema(program, id_type))
        self.sink = opened(sink, spark, shown(found, program, 0).schema, self.state.identity)
        self.state.take(folders(sink, settings.bad.path))
        self.log = TaskLog(spark.sparkContext)
        self._began = self._looked = time.monotonic()
        self._loads: dict[int, tuple[float, int]] = {}  # of each workset in the newest batch: load, bytes
        self._moved = 0, 0  # worksets since the last look, bytes
        self._dealt_anew = False
        self._centroids: pa.ChunkedArray | None = None
        self._learning: Learning | None = policy if isinstance(policy, Learning) else None
        self._identity = identity(policy)
        if self._learning is not None and self.last.balancer:
            give_back = partial(restore_text, self._learning, self.last.balancer)
            begin_from("balancing", self.last.balancer_of, self._identity, give_back)

    def _process(self, batch: DataFrame, number: int) -> Progress:
        # The first records, and dead letters, are read beside the join: Spark is to count its input rows once.
        if self.last.centroids and self.settings.bad.policy != "dead_letter":
            return self._work(batch, number)
        batch = batch.persist()
        try:
            return self._work(batch, number)
        finally:
            batch.unpersist()

    def _work(self, batch: DataFrame, number: int) -> Progress:
        spark, clock = batch.sparkSession, self._clock(batch, number)
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "4m")  # as `sy.session` has it
        self.log.take()
        run = Run(
            number, self.state.new_folder(number), self.state.root.path, self.program.closed_by(self.last.watermark)
        )
        centroids, commit = self._space(batch, self.last, run)
        if centroids is None:  # not one record yet
            report = _without_records(batch, number)
            self._refuse(batch, report)
            return self._finish(replace(commit, batch=number), report, clock)
        room = ROOM if self._may_change(commit) else None
        plan = Plan(batch, replace(self.program, room=room), centroids)
        with clock.phase("join"):
            folder, entries = self._joined(plan, batch, commit, run)
            copies = max((entry.get("crowded", 0.0) for entry in entries.values()), default=0.0)
            if copies:  # nothing came of it: once more, in another way
                commit = self._in_blocks(spark, commit, run, copies)
                run = replace(run, name=self.state.new_folder(number))
                folder, entries = self._joined(plan, batch, commit, run)
        report = self._accounted(entries, number)
        self._refuse(batch, report)
        with clock.phase("sink"):
            found = spark.read.schema(plan.pairs_schema).parquet(folder)
            pairs = shown(found, self.program, time.time_ns() // 1000)
            results = self.sink.write(pairs, number) if self._found(entries) else 0
        commit = self._next_commit(commit, entries, number)
        placed = report.rows - report.late_rows - sum(report.bad_rows.values())
        if commit.state_bytes > ROOM and report.members > MOST_COPIES * placed and self._may_change(commit):
            closed = replace(run, closed=self.program.closed_by(commit.watermark))
            commit = self._in_blocks(spark, commit, closed, report.members / placed)
        ended = replace(run, closed=self.program.closed_by(commit.watermark))
        self._ending = _Ending(spark, ended, commit, report.more(results=results), ended.closed > run.closed)
        with clock.phase("balance"):
            decision = self._controller.look() if self._controller else None
        if decision is not None:
            self._ending.report = self._ending.report.more(decision=decision.done.reason or decision.wanted.reason)
        return self._finish(self._ending.commit, self._ending.report, clock)

    def _joined(
        self, plan: Plan, batch: DataFrame, commit: JoinCommit, run: Run
    ) -> tuple[str, dict[Any, dict[str, Any]]]:
        """Write the pairs of a batch: the folder, and what tasks say."""
        folder = self.state.root.child(f"pairs/{run.name}")
        plan.pairs(batch, commit, run, self.log).write.parquet(folder)
        return folder, self.log.take()

    def _space(self, batch: DataFrame, commit: JoinCommit, run: Run) -> tuple[pa.ChunkedArray | None, JoinCommit]:
        """The centroids of the space partitions: from the checkpoint, or chosen at the first batch that has records."""
        if not commit.centroids:  # whatever a batch chose that was not committed, no state goes with it
            space = chosen_space(batch, self.program, self.settings.space, self.settings.seed)
            if space is None:
                return None, commit
            self._centroids = space.centroids
            if space.copies:
                commit = self._in_blocks(batch.sparkSession, commit, run, space.copies)
            name, table = f"{GEOMETRY}/{run.name}/centroids", pa.table({"record": self._centroids})
            commit = replace(commit, centroids=write_segment(run.root, name, run.batch, table))
        elif self._centroids is None:
            (table,) = read_segments(run.root, [commit.centroids])
            self._centroids = table.column("record")
        self.program = replace(self.program, dimension=dimension_of(self._centroids), parts=len(self._centroids))
        return self._centroids, commit

    def _found(self, entries: Mapping[Any, dict[str, Any]]) -> int:
        return sum(entry["pairs"] for (stage, _), entry in entries.items() if stage == JOIN and "pairs" in entry)

    def _accounted(self, entries: Mapping[Any, dict[str, Any]], number: int) -> Progress:
        by_stage: dict[str, list[dict[str, Any]]] = {ROUTE: [], PLACE: [], JOIN: []}
        for (stage, _), entry in entries.items():
            by_stage[stage].append(entry)
        routes, places = by_stage[ROUTE], by_stage[PLACE]
        joins = [entry for entry in by_stage[JOIN] if "worker" in entry]
        loads, seconds = [0.0] * self.program.workers, [0.0] * self.program.workers
        for entry in joins:
            loads[entry["worker"]] = float(entry["comparisons"].sum() + entry["free"].sum())
            seconds[entry["worker"]] = entry["seconds"]
        bad = sum(entry.get("bad", 0) for entry in routes)
        return join_progress(
            number,
            rows=sum(entry["rows"] for entry in routes),
            late_rows=sum(entry.get("late", 0) for entry in routes),
            bad_rows={BAD: bad} if bad else {},
            copies=sum(entry.get("copies", 0) for entry in routes),
            members=sum(entry.get("members", 0) for entry in (*routes, *places)),
            created=sum(entry.get("created", 0) for entry in places),
            distances=sum(entry.get("distances", 0) for entry in (*routes, *places)),
            comparisons=int(sum(entry["comparisons"].sum() for entry in joins)),
            free_pairs=int(sum(entry["free"].sum() for entry in joins)),
            loads=tuple(loads),
            task_seconds=tuple(seconds),
        )

    def _refuse(self, batch: DataFrame, report: Progress) -> None:
        bad = self.settings.bad
        if not report.bad_rows or bad.policy == "drop":
            return
        schema = fields(("reason", T.StringType()), ("row", T.StringType()))
        letters = map_in_arrow(batch, refuser(self.program, arrow_schema(schema)), schema)
        if bad.policy == "fail":
            raise bad.complaint(self.title, report, letters, {})
        bad.keep(letters, report.batch)

    def _next_commit(self, commit: JoinCommit, entries: Mapping[Any, dict[str, Any]], number: int) -> JoinCommit:
        geometry, records = dict(commit.geometry), dict(commit.records)
        latest, self._loads = commit.watermark, {}
        for (stage, _), entry in entries.items():
            if stage == ROUTE and entry["rows"]:
                latest = max(latest, entry["latest"] - self.settings.delay)
            elif stage == PLACE and "segment" in entry:
                geometry[entry["partition"]] = tuple(Segment(**one) for one in entry["segment"])
            elif stage == JOIN and "segment" in entry:
                records[entry["worker"]] = (*records.get(entry["worker"], ()), Segment(**entry["segment"]))
                for key, compared, free, size in zip(
                    entry["worksets"].tolist(),
                    entry["comparisons"].tolist(),
                    entry["free"].tolist(),
                    entry["sizes"].tolist(),
                    strict=True,
                ):
                    self._loads[key] = (self._loads.get(key, (0.0, 0))[0] + compared + free, size)
        now = replace(commit, batch=number, watermark=latest, geometry=geometry, records=records)
        return now.without(self.program.closed_by(latest))

    # -- worksets that move

    def _may_change(self, commit: JoinCommit) -> bool:
        """Whether records may still be dealt out in blocks of pairs: not where they are, or where a workset is cut."""
        return EVERYTHING not in commit.assignment and not commit.splits

    def _in_blocks(self, spark: SparkSession, commit: JoinCommit, run: Run, copies: float) -> JoinCommit:
        """From now on all pairs are compared in blocks: what is kept goes to where its blocks are."""
        tell_blocks(self.program, copies)
        blocks = blocks_of(self.program)
        self._loads, self._dealt_anew = {}, True
        then = replace(commit, geometry={}, assignment=blocks.assignment, splits=blocks.splits)
        moved, _ = self._shipped(spark, then, None, run) if commit.records else (then, 0)
        return moved

    def observe(self) -> Observation:
        """What workers did in the batch that is being finished."""
        ending, now, since = self._ending, time.monotonic(), self._looked
        (moved, size), anew = self._moved, self._dealt_anew
        self._looked, self._moved, self._dealt_anew = now, (0, 0), False
        seen = JoinObservation(
            loads=ending.report.loads,
            latencies=ending.report.task_seconds,
            window_started=ending.window_started,
            worksets=self._worksets(ending.commit),
            batch=ending.commit.batch,
            moved=moved,
            moved_bytes=size,
            dealt_anew=anew,
        )
        return Observation(now - self._began, now - since, join=seen)

    def _worksets(self, commit: JoinCommit) -> list[WorksetLoad]:
        """Those of the newest batch, and where they are."""
        keys = np.array(list(self._loads), dtype=np.int64)
        workers = self.program.workers_of(keys, commit.assignment)
        partitions, _, pieces = split_key(keys)
        columns = (keys.tolist(), partitions.tolist(), workers.tolist(), pieces.tolist())
        return [
            WorksetLoad(partition, key, worker, *self._loads[key], whole=not piece and key not in commit.splits)
            for key, partition, worker, piece in zip(*columns, strict=True)
        ]

    def apply(self, action: Action) -> float:
        """Cut worksets, and have others go to other workers; how long that took, while no batch was joined."""
        action.require_only(self.what, "moves", "cuts")
        begun, ending = time.monotonic(), self._ending
        commit, splits = ending.commit, self.program.splits(ending.commit.splits)
        cuts = {key: parts for (_, key), parts in action.cuts.items()}
        for key, parts in cuts.items():
            splits.cut(key, parts)
        moves = {key: worker for (_, key), worker in action.moves.items() if key not in cuts}
        most = self.program.workers - 1
        for key, worker in moves.items():
            if not 0 <= worker <= most:
                raise ActionRefusedError(f"workset {key} cannot go to worker {worker}: there are workers 0 to {most}")
        going: dict[int, list[int]] = {}
        keys = np.array([*moves, *cuts], dtype=np.int64)
        for key, worker in zip(keys.tolist(), self.program.workers_of(keys, commit.assignment).tolist(), strict=True):
            going.setdefault(worker, []).append(key)
        then = replace(commit, assignment={**commit.assignment, **moves}, splits={**commit.splits, **cuts})
        ending.commit, size = self._shipped(ending.spark, then, going, ending.run)
        self._moved = len(keys), size
        said = f"{ending.report.words}, {counted(len(moves), 'workset')} moved ({size} bytes)"
        ending.report = ending.report.more(moves=len(moves), splits=len(cuts), moved_bytes=size, words=said)
        return time.monotonic() - begun

    def _shipped(
        self, spark: SparkSession, commit: JoinCommit, going: dict[int, list[int]] | None, run: Run
    ) -> tuple[JoinCommit, int]:
        """Ship the records of worksets (None: of all) to their new workers, and write down where they are now."""
        ship = mover(self.program, going, commit.assignment, commit.splits, Kept(commit.records, commit.left), run)
        workers = sorted(commit.records if going is None else going)
        shipped = spark.sparkContext.parallelize(workers, len(workers)).mapPartitions(ship).collect()
        records, left = ({}, {}) if going is None else (dict(commit.records), dict(commit.left))
        for worker, keys in (going or {}).items():
            left[worker] = (*left.get(worker, ()), *(Left(key, commit.batch) for key in keys))
        for _, target, segment in shipped:
            # As of the next batch: what left a worker before must not hide what comes back to it now.
            records[target] = (*records.get(target, ()), Segment(**{**segment, "batch": commit.batch + 1}))
        size = sum(segment["bytes"] for _, _, segment in shipped)
        return replace(commit, records=records, left=left), size

    def _finish(self, commit: JoinCommit, report: Progress, clock: Clock) -> Progress:
        with clock.phase("commit"):
            learnt = text_of(self._learning) if self._learning is not None else ""
            self.last = replace(commit, balancer=learnt, balancer_of=self._identity if learnt else "")
            self.state.commit(self.last)
        times = clock.phases | {"total": clock.total()}
        watermark = instant_text(commit.watermark) if commit.watermark > MIN_WATERMARK else None
        seen = self.feed.tell(report.more(watermark=watermark, state_bytes=commit.state_bytes, seconds=times))
        if seen.moves or seen.splits:
            self.feed.tell(seen.more(kind=MOVED))
        return seen


def _without_records(batch: DataFrame, number: int) -> Progress:
    """The report of a batch of which no row has a record that can be read."""
    rows = batch.count()
    return join_progress(number, rows=rows, bad_rows={BAD: rows} if rows else {})
