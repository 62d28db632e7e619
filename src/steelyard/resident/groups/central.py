"""The central scheduler: sends groups of batches ahead, hears how batches went, and changes the plan in mid-group.

It is never in the way of a batch: workers run what they were told of, and tell it afterwards. One thread, `run`,
decides; a thread for each worker's connection only brings what workers say.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from steelyard.core import ElasticityPolicy, Observation
from steelyard.resident.connection import Connection
from steelyard.resident.coordinator import GenerationError
from steelyard.resident.groups.outcome import BatchRun, GroupOutcome, PlanChange
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.program import BatchProgram, Scheduling
from steelyard.resident.groups.receiver import Position
from steelyard.resident.groups.worker import RECEIVING, RESULTS, STATE
from steelyard.resident.listener import Listener
from steelyard.resident.security import Credentials, Identity
from steelyard.resident.wire import Kind, WireError, batch_from
from steelyard.resident.worker import TO_COORDINATOR

log = logging.getLogger(__name__)

_HEARTBEAT = 0.5
_OF_A_BATCH = ("rows", "task", "windows")
_LEAD_SECONDS = 0.05
"""From the moment when workers are told to begin to the start of the first batch."""


@dataclass(frozen=True)
class _Said:
    worker: int
    event: str
    what: Mapping[str, Any]
    at: float
    """The moment of `time.time()` at which it came: the one who decides may hear of it later."""


@dataclass
class _Progress:
    """What is still missing of a batch."""

    tasks: int
    maps: int
    windows: int
    results: list[pa.RecordBatch] = field(default_factory=list)
    panes: dict[int, pa.RecordBatch] = field(default_factory=dict)
    watermark: int = 0
    refused: int = 0
    latest: float = 0.0
    """When the last of it was heard of."""


class CentralScheduler:
    """Watches over one generation of workers.

    Parameters
    ----------
    program, scheduling
        What runs, and how it is scheduled.
    workers
        How many.
    policy
        Chooses numbers of tasks; None leaves them.
    credentials, host, generation
        As for a `Coordinator`.
    outcome
        Shared by all generations.
    commit
        Called with each batch and its results, in order, each once.
    """

    def __init__(
        self,
        program: BatchProgram,
        scheduling: Scheduling,
        workers: int,
        policy: ElasticityPolicy | None,
        credentials: Credentials,
        host: str = "127.0.0.1",
        generation: int = 0,
        outcome: GroupOutcome | None = None,
        commit: Callable[[int, pa.Table], None] | None = None,
    ) -> None:
        self._program, self._scheduling, self._policy = program, scheduling, policy
        self.workers = workers
        self.outcome = outcome or GroupOutcome()
        self._commit = commit
        self._said: queue.Queue[_Said] = queue.Queue()
        self._connections: dict[int, Connection] = {}
        self.pids: dict[int, int] = {}
        """The process of each worker."""
        self._joining = threading.Lock()
        self._heard: dict[int, float] = {}
        first = self.outcome.saved
        self._next = first
        """The next batch to be done."""
        self._group_end = first
        """Batches below are scheduled."""
        self._open: dict[int, _Progress] = {}
        self._before: dict[int, list[_Said]] = {}
        self._plan = ExecutionPlan(scheduling.blocks, scheduling.buckets, workers)
        """What the newest batch was cut by."""
        self._pending: PlanChange | None = None
        """A change that no batch was cut by yet. Until one is done, batches say nothing of it."""
        if self.outcome.changes:
            self._plan = self.outcome.changes[-1].plan
        self._holds_from = first
        self._observed = first - 1
        self._last_batch: int | None = None
        self._released = first - 1
        self._ending = self._running = self._dismissed = False
        self._listener = Listener(host, credentials, generation, self._welcome)
        self.address = self._listener.address

    # -- from outside

    def abort(self, why: str) -> None:
        """Give this generation up. Any thread may call it."""
        self._said.put(_Said(-1, "failed", {"why": why}, time.time()))

    def request_stop(self) -> None:
        """Make no more batches, and end when those that were made are done. Any thread may call it."""
        self._said.put(_Said(-1, "stop", {}, time.time()))

    def run(self) -> GroupOutcome:
        """Run to the end; GenerationError where a worker fails."""
        why = "the driver was interrupted"
        try:
            self._await("hello", self._scheduling.join)
            self._begin()
            while self._last_batch is None or self._next <= self._last_batch:
                self._hear(self._patience())
                self._schedule()
                self._notice_overdue()
            why = ""
            return self.outcome
        except GenerationError as error:
            why = str(error)
            raise
        finally:
            self._dismiss(why)

    def _begin(self) -> None:
        outcome = self.outcome
        position = outcome.ends[outcome.saved - 1] if outcome.saved else Position()
        replay = {batch: end.to_list() for batch, end in outcome.ends.items() if batch >= outcome.saved}
        # a stream that goes on has been running since its first batch: what came meanwhile is there at once
        if not outcome.start:
            outcome.start = time.time() + _LEAD_SECONDS
        outcome.batches = {number: run for number, run in outcome.batches.items() if number < outcome.saved}
        for worker in range(self.workers):
            panes = outcome.windows.get(worker)
            self._tell(
                worker,
                "begin",
                first=outcome.saved,
                position=position.to_list(),
                replay=replay,
                start=outcome.start,
                ending=self._ending,
                windows=outcome.watermark if panes is not None else None,
            )
            if panes is not None:
                self._send(worker, Kind.RESULT, STATE, panes.serialize())
        self._await("begun", self._scheduling.join)
        self._running = True
        if self._ending:  # it may have been said meanwhile
            self._tell(RECEIVING, "end")
        self._schedule()

    # -- groups

    def _schedule(self) -> None:
        """Send the next group when it is time to."""
        how = self._scheduling
        while self._last_batch is None:
            reached = self._released + 1 + how.ahead if how.ahead else self._next
            if reached < self._group_end:
                return
            first, change = self._group_end, self._pending
            plan = change.plan if change is not None and change.first <= first else self._plan
            self._all("group", first=first, batches=how.group, plan=plan.to_dict(), below=self._next)
            self._group_end += how.group
            self.outcome.groups += 1
            if change is not None and first < change.first < self._group_end:
                self._all("update", first=change.first, plan=change.plan.to_dict())

    # -- what is heard

    def _hear(self, seconds: float) -> _Said | None:
        now = time.monotonic()
        for worker, heard in list(self._heard.items()):
            if now - heard > self._scheduling.silence:
                raise GenerationError(f"worker {worker} has been silent for {now - heard:.1f} s")
        try:
            said = self._said.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None
        if said.event == "failed":
            raise GenerationError(said.what["why"])
        if said.event == "released":
            self._on_released(said)
        elif said.event in _OF_A_BATCH:
            self._on_progress(said)
        elif said.event == "stop":
            self._ending = True
            if self._running:
                self._tell(RECEIVING, "end")
        elif said.event == "hello":
            self.pids[said.worker] = int(said.what["pid"])
        return said

    def _on_progress(self, said: _Said) -> None:
        """Something of a batch; a worker may be heard of it before the receiver is."""
        batch = int(said.what["batch"])
        if batch not in self._open:
            self._before.setdefault(batch, []).append(said)
            return
        {"rows": self._on_rows, "task": self._on_task, "windows": self._on_windows}[said.event](said)

    def _since(self, said: _Said) -> float:
        return said.at - self.outcome.start

    def _now(self) -> float:
        return time.time() - self.outcome.start

    def _on_released(self, said: _Said) -> None:
        what = said.what
        batch, plan = int(what["batch"]), ExecutionPlan.from_dict(what["plan"])
        sizes = what["sizes"]
        mean = sum(sizes) / len(sizes)
        now = self._since(said)
        previous = self.outcome.batches.get(batch - 1)
        begun = max(now, previous.done) if previous is not None and previous.done else now
        self.outcome.batches[batch] = BatchRun(
            batch,
            plan,
            int(what["rows"]),
            int(what["keys"]),
            bool(what["last"]),
            now,
            begun,
            float(what["partition_seconds"]),
            float(what["wait_seconds"]),
            max(sizes) / mean if mean else 1.0,
            interval=self._scheduling.interval,
        )
        self.outcome.ends[batch] = Position.of(what["end"])
        self._released = batch
        self._notice_change(batch, plan)
        if what["last"]:
            self._last_batch = batch
        windows = self.workers if self._program.window is not None else 0
        tasks = plan.blocks + plan.buckets + windows
        self._open[batch] = _Progress(tasks, plan.blocks, windows)
        for before in self._before.pop(batch, ()):
            self._on_progress(before)

    def _on_rows(self, said: _Said) -> None:
        progress = self._open[int(said.what["batch"])]
        if said.what["channel"] == STATE:
            progress.panes[said.worker] = said.what["rows"]
        else:
            progress.results.append(said.what["rows"])

    def _on_task(self, said: _Said) -> None:
        batch = int(said.what["batch"])
        progress, run = self._open[batch], self.outcome.batches[batch]
        progress.tasks -= 1
        seconds = float(said.what["seconds"])
        if said.what["stage"] == "reduce":
            run.reduce_tasks.append(seconds)
        elif said.what["stage"] == "map":
            run.map_tasks.append(seconds)
            progress.maps -= 1
            if not progress.maps:
                run.mapped = self._since(said)
        progress.refused += int(said.what["refused"])
        progress.latest = max(progress.latest, self._since(said))
        self._finish_batches()

    def _on_windows(self, said: _Said) -> None:
        progress = self._open[int(said.what["batch"])]
        progress.windows -= 1
        if said.what["saved"]:
            progress.watermark = int(said.what["watermark"])
        progress.latest = max(progress.latest, self._since(said))
        self._finish_batches()

    def _finish_batches(self) -> None:
        """Batches that have nothing left to do, in their order."""
        while True:
            progress = self._open.get(self._next)
            if progress is None or progress.tasks or progress.windows:
                return
            batch = self._next
            run = self.outcome.batches[batch]
            previous = self.outcome.batches.get(batch - 1)
            run.begun = max(run.ready, previous.done) if previous is not None else run.ready
            run.done = progress.latest
            del self._open[batch]
            self.outcome.batches.pop(batch - self._scheduling.history, None)
            self._next += 1
            self._deliver(batch, progress)
            self._tell(RECEIVING, "done", below=self._next)
            self._observe(run, run.seconds)

    def _deliver(self, batch: int, progress: _Progress) -> None:
        if batch >= self.outcome.delivered:  # else it was, before a failure
            whole = pa.Table.from_batches(progress.results, self._program.result_schema)
            if self._commit is not None:
                self._commit(batch, whole)
            else:
                self.outcome.results[batch] = whole
            self.outcome.delivered = batch + 1
            self.outcome.refused += progress.refused
        if self._program.window is None:
            self.outcome.saved = batch + 1
        elif len(progress.panes) == self.workers:
            self.outcome.windows, self.outcome.watermark = dict(progress.panes), progress.watermark
            self.outcome.saved = batch + 1
        for old in [old for old in self.outcome.ends if old < self.outcome.saved - 1]:
            del self.outcome.ends[old]

    # -- elasticity

    def _patience(self) -> float:
        """How long to wait for a word before looking whether a batch is overdue."""
        run = self.outcome.batches.get(self._next)
        if self._policy is None or run is None or run.batch <= self._observed:
            return _HEARTBEAT
        return min(_HEARTBEAT, max(0.0, self._begun(run) + self._limit - self._now()))

    @property
    def _limit(self) -> float:
        return self._scheduling.overdue * self._scheduling.interval

    def _begun(self, run: BatchRun) -> float:
        previous = self.outcome.batches.get(run.batch - 1)
        return max(run.ready, previous.done) if previous is not None else run.ready

    def _notice_overdue(self) -> None:
        """A batch that takes too long is told of before it ends, with the time that it can be expected to take."""
        run = self.outcome.batches.get(self._next)
        if self._policy is None or run is None or run.batch <= self._observed:
            return
        elapsed = self._now() - self._begun(run)
        if elapsed <= self._limit:
            return
        previous = self.outcome.batches.get(run.batch - 1)
        expected = elapsed
        if previous is not None and previous.done and previous.rows and previous.plan == run.plan:
            expected = max(elapsed, previous.seconds * run.rows / previous.rows)
        self._observe(run, expected)

    def _observe(self, run: BatchRun, seconds: float) -> None:
        """Show a batch to the policy, once, and pass on what it decides."""
        if self._policy is None or run.batch <= self._observed:
            return
        self._observed = run.batch
        waits = self._pending is not None and not self._scheduling.boundary  # at a boundary the newest wish counts
        if waits or run.batch < self._holds_from:  # it ran with a plan that was changed since
            return
        how, plan = self._scheduling, run.plan
        mapped = max(0.0, run.mapped - run.begun) if run.mapped else 0.0
        seen = Observation(
            run.batch,
            run.rows,
            run.keys,
            plan.blocks,
            plan.buckets,
            seconds,
            how.interval,
            slots=how.slots * self.workers,
            map_seconds=mapped,
            reduce_seconds=max(0.0, seconds - mapped) if mapped else 0.0,
        )
        decision = self._policy.decide(seen)
        if (decision.blocks, decision.buckets) == (plan.blocks, plan.buckets):
            return
        self._change(run.batch, ExecutionPlan(decision.blocks, decision.buckets, self.workers), decision.reason)

    def _change(self, batch: int, plan: ExecutionPlan, reason: str) -> None:
        how = self._scheduling
        first = self._group_end if how.boundary else batch + how.adjust
        # what is cut is cut: the receiver may be further than the batch that was seen
        first = max(first, self._released + 1)
        self._pending = PlanChange(batch, first, plan, reason)
        log.info("from batch %d on: %d blocks, %d buckets (%s)", first, plan.blocks, plan.buckets, reason)
        if not how.boundary:
            self._all("update", first=first, plan=plan.to_dict())

    def _notice_change(self, batch: int, plan: ExecutionPlan) -> None:
        """A batch was cut; by the changed plan, perhaps later than it was meant to be."""
        change = self._pending
        if change is not None and batch > change.decided_on and plan == change.plan:
            self._plan, self._holds_from, self._pending = plan, batch, None
            self.outcome.changes.append(replace(change, first=batch))
            del self.outcome.changes[: -self._scheduling.history]

    # -- workers

    def _tell(self, worker: int, what: str, **details: Any) -> None:
        self._send(worker, Kind.CONTROL, 0, json.dumps({"do": what, **details}).encode())
        self.outcome.messages += 1

    def _send(self, worker: int, kind: Kind, channel: int, payload: Any) -> None:
        try:
            self._connections[worker].send(kind, channel, payload=payload)
        except OSError as error:
            raise GenerationError(f"worker {worker} is gone: {error}") from error

    def _all(self, what: str, **details: Any) -> None:
        for worker in range(self.workers):
            self._tell(worker, what, **details)

    def _await(self, event: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        heard: set[int] = set()
        while len(heard) < self.workers:
            if time.monotonic() > deadline:
                missing = sorted(set(range(self.workers)) - heard)
                raise GenerationError(f"workers {missing} did not come within {seconds:g} s: are there enough slots?")
            said = self._hear(_HEARTBEAT)
            if said is not None and said.event == event:
                heard.add(said.worker)

    def _welcome(self, identity: Identity, connection: Connection) -> None:
        number = identity.worker
        with self._joining:
            known = identity.purpose == TO_COORDINATOR and 0 <= number < self.workers
            if self._dismissed or not known or number in self._connections:
                log.warning("the driver refused %s, which is not awaited", identity)
                connection.close()
                return
            self._connections[number] = connection
        try:
            while True:
                frame = connection.receive()
                self._heard[number] = time.monotonic()
                if frame.kind is Kind.RESULT:
                    schema = self._program.result_schema if frame.channel == RESULTS else self._program.partial_schema
                    rows = {"batch": frame.number, "channel": frame.channel, "rows": batch_from(frame.payload, schema)}
                    self._said.put(_Said(number, "rows", rows, time.time()))
                else:
                    what = json.loads(bytes(frame.payload))
                    self._said.put(_Said(number, what["event"], what, time.time()))
        except (OSError, WireError, ValueError, KeyError, TypeError) as error:
            gone = {"why": f"worker {number} is gone: {error}"}
            self._said.put(_Said(number, "failed", gone, time.time()))

    def _dismiss(self, why: str) -> None:
        order = json.dumps({"do": "stop", **({"why": why} if why else {})}).encode()
        with self._joining:
            self._dismissed = True
        for connection in list(self._connections.values()):
            with contextlib.suppress(OSError):
                connection.send(Kind.CONTROL, payload=order)
        self._listener.close()

    def close(self) -> None:
        """Let go of all sockets; called when the workers are gone, or will never come."""
        self._listener.close()
        for connection in list(self._connections.values()):
            connection.close()
