"""The central scheduler: sends groups of batches ahead, hears how batches went, and changes the plan in mid-group.

It is never in the way of a batch: workers run what they were told of, and tell it afterwards. One thread, `run`,
decides; a thread for each worker's connection only brings what workers say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from steelyard.core import Progress
from steelyard.resident.control import message
from steelyard.resident.gang import Director, Gang, GenerationError, Said
from steelyard.resident.groups.adjusting import Adjuster
from steelyard.resident.groups.agreement import LEAD
from steelyard.resident.groups.frames import table_in_frames
from steelyard.resident.groups.outcome import BatchRun, GroupOutcome
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.position import Position, as_rows
from steelyard.resident.groups.program import Batches
from steelyard.resident.groups.protocol import EVENTS, RESULTS, STATE, pulse_of
from steelyard.resident.security import Credentials
from steelyard.resident.wire import Frame, Kind, WireError, batch_bytes, batch_from

_HEARTBEAT = 0.5
_OF_A_BATCH = ("rows", "task", "windows")
_LEAD_SECONDS = 0.05
"""From the moment when workers are told to begin to the start of the first batch."""


class CentralScheduler(Director):
    """Watches over one generation of workers.

    Parameters
    ----------
    batches
        What runs, and how it is scheduled.
    workers
        How many.
    adjuster
        Which plan holds.
    credentials, host, generation
        As for a `Coordinator`.
    outcome
        Shared by all generations.
    commit
        Called with each batch and its results, in order, each once; without it they are kept in the outcome.
    saved
        Called when there is a newer batch to begin behind after a failure.
    tell
        Gets an event for each batch that is done.
    """

    def __init__(
        self,
        batches: Batches,
        workers: int,
        adjuster: Adjuster,
        credentials: Credentials,
        host: str = "127.0.0.1",
        generation: int = 0,
        outcome: GroupOutcome | None = None,
        commit: Callable[[int, pa.Table], None] | None = None,
        saved: Callable[[], None] = lambda: None,
        tell: Callable[[Progress], object] = lambda progress: None,
    ) -> None:
        self._program, self._scheduling = batches.program, batches.scheduling
        self.workers, self._receivers = workers, batches.receivers(workers)
        self.outcome = outcome or GroupOutcome()
        self._commit, self._when_saved, self._report = commit, saved, tell
        self.pids: dict[int, int] = {}
        """The process of each worker."""
        first = self.outcome.saved
        self._next = first
        """The next batch to be done."""
        self._group_end = first
        """Batches below are scheduled."""
        self._open: dict[int, BatchRun] = {}
        self._before: dict[int, list[Said]] = {}
        self._plans: set[ExecutionPlan] = set()
        """What workers were told to go by."""
        self._adjuster = adjuster
        adjuster.begin()
        self._cut: dict[int, dict[int, Mapping[str, Any]]] = {}
        """By batch that not all receivers have cut: what those said that have."""
        self._last_batch: int | None = None
        self._released = first - 1
        self._ending = self._running = False
        self._gang = Gang(workers, credentials, host, generation, pulse_of(self._scheduling), self._understood)
        self.address = self._gang.address

    def run(self) -> GroupOutcome:
        """Run to the end; GenerationError where a worker fails."""
        with self._attended():
            self._await("hello", self._scheduling.join)
            self._begin()
            while self._last_batch is None or self._next <= self._last_batch:
                self._hear(self._patience())
                self._schedule()
                self._notice_overdue()
        return self.outcome

    def _begin(self) -> None:
        outcome = self.outcome
        # a stream that goes on has been running since its first batch: what came meanwhile is there at once
        if not outcome.start:
            outcome.start = time.monotonic() + _LEAD_SECONDS - outcome.saved * self._scheduling.interval
        made = max(outcome.ends, default=outcome.saved - 1) + 1
        for worker in range(self.workers):
            panes, places = outcome.windows.get(worker), self._places(worker, made)
            self._tell(
                worker,
                "begin",
                peers=self._gang.addresses,
                first=outcome.saved,
                made=made,
                places=len(places),
                elapsed=self._now(),
                ending=self._ending,
                counting=self._adjuster.counting,
                windows=outcome.watermark if panes is not None else None,
                frames=len(panes or ()),
            )
            for part in (*places, *(panes or ())):
                self._gang.send(worker, Kind.RESULT, STATE, batch_bytes(part))
        self._await("begun", self._scheduling.join)
        self._running = True
        if self._ending:  # it may have been said meanwhile
            self._end_all()
        self._schedule()

    def _places(self, worker: int, made: int) -> list[pa.RecordBatch]:
        """Where a receiver begins, and what changed in each batch that is made again: rows, in as many frames."""
        if worker >= self._receivers:
            return []
        found, before = {}, Position()
        for batch in range(self.outcome.saved - 1, made):
            end = self._end(batch)[worker]
            found[batch], before = end.since(before), end
        return list(table_in_frames(as_rows(found)))

    def _end(self, batch: int) -> tuple[Position, ...]:
        """Where a batch ended, receiver by receiver; before the first, at the beginning."""
        return self.outcome.ends[batch] if batch >= 0 else (Position(),) * self._receivers

    # -- groups

    def _schedule(self) -> None:
        """Send the next group when it is time to."""
        how = self._scheduling
        while self._last_batch is None:
            reached = self._released + 1 + how.ahead if how.ahead else self._next
            if reached < self._group_end:
                return
            first, change = self._group_end, self._adjuster.pending
            plan = change.plan if change is not None and change.first <= first else self._adjuster.plan
            self._all("group", plan, first=first, batches=how.group, below=self._next)
            self._group_end += how.group
            self.outcome.groups += 1
            if change is not None and first < change.first < self._group_end:
                self._all("update", change.plan, first=change.first)

    # -- what is heard

    def _hear(self, seconds: float) -> Said | None:
        said = self._gang.hear(seconds)
        if said is None:
            return None
        try:
            self._on(said)
        except WireError as error:
            raise GenerationError(f"worker {said.worker} was not understood: {error}") from error
        return said

    def _on(self, said: Said) -> None:
        if said.event == "released":
            self._on_released(said)
        elif said.event in _OF_A_BATCH:
            self._on_progress(said)
        elif said.event == "stop":
            self._ending = True
            if self._running:
                self._end_all()
        elif said.event == "begun":
            self._has_started(said)
        elif said.event == "hello":
            self.pids[said.worker] = int(said.what["pid"])

    def _on_progress(self, said: Said) -> None:
        """Something of a batch; a worker may be heard of it before the receiver is."""
        batch = int(said.what["batch"])
        if not self._next <= batch < self._group_end:
            raise WireError(f"it told of batch {batch}, and {self._next} to {self._group_end - 1} are under way")
        if batch not in self._open:
            self._before.setdefault(batch, []).append(said)
            return
        {"rows": self._on_rows, "task": self._on_task, "windows": self._on_windows}[said.event](said)

    def _since(self, said: Said) -> float:
        return said.at - self.outcome.start

    def _now(self) -> float:
        return time.monotonic() - self.outcome.start

    def _on_released(self, said: Said) -> None:
        """A receiver has cut its part; a batch is released when all have, in the order of batches."""
        what, batch = said.what, int(said.what["batch"])
        plan, sizes = ExecutionPlan.from_dict(what["plan"]), what["sizes"]
        heard = self._cut.setdefault(batch, {})
        alike = all(one["plan"] == what["plan"] and one["last"] == what["last"] for one in heard.values())
        known = self._released < batch < self._group_end and said.worker not in heard and alike
        if not known or plan not in self._plans or len(sizes) != plan.blocks:
            raise WireError(f"batch {batch} cannot follow batch {self._released} in {len(sizes)} blocks by {plan}")
        if len({len(part) for part in what["end"]}) != 1:
            raise WireError(f"batch {batch} ends at {str(what['end'])[:80]}, which is no place")
        heard[said.worker] = what
        while len(self._cut.get(self._released + 1, ())) == self._receivers:
            found = self._cut.pop(self._released + 1)
            self._release([found[receiver] for receiver in range(self._receivers)], self._since(said))

    def _release(self, parts: Sequence[Mapping[str, Any]], now: float) -> None:
        """All of a batch is cut, and on its way to map tasks."""
        batch, plan = int(parts[0]["batch"]), ExecutionPlan.from_dict(parts[0]["plan"])
        sizes = [sum(of_block) for of_block in zip(*(part["sizes"] for part in parts), strict=True)]
        mean = sum(sizes) / len(sizes)
        windows = range(self.workers if self._program.keeps else 0)
        stages = {"map": range(plan.blocks), "reduce": range(plan.buckets), "windows": windows}
        run = BatchRun(
            batch,
            plan,
            rows=sum(int(part["rows"]) for part in parts),
            keys=sum(int(part["keys"]) for part in parts),
            last=bool(parts[0]["last"]),
            ready=now,
            partition_seconds=max(float(part["partition_seconds"]) for part in parts),
            wait_seconds=max(float(part["wait_seconds"]) for part in parts),
            largest_over_mean=max(sizes) / mean if mean else 1.0,
            interval=self._scheduling.interval,
            bad=sum(int(part["refused"]) for part in parts),
            missing={(stage, number) for stage, numbers in stages.items() for number in numbers},
            silent=set(windows),
        )
        run.begun = self._adjuster.begun(run)
        ends = zip(self._end(batch - 1), parts, strict=True)
        self.outcome.ends[batch] = tuple(end.then(Position.of(part["end"])) for end, part in ends)
        self._released = batch
        self._adjuster.notice(batch, plan)
        if parts[0]["last"]:
            self._last_batch = batch
        self._open[batch] = run
        for before in self._before.pop(batch, ()):
            self._on_progress(before)

    def _on_rows(self, said: Said) -> None:
        run = self._open[int(said.what["batch"])]
        if said.what["channel"] == STATE:
            run.panes.setdefault(said.worker, []).append(said.what["rows"])
        else:
            run.results.append(said.what["rows"])

    def _on_task(self, said: Said) -> None:
        batch = int(said.what["batch"])
        run = self._open[batch]
        stage, number = said.what["stage"], said.what["number"] if said.what["stage"] != "windows" else said.worker
        if (stage, number) not in run.missing or number % self.workers != said.worker:
            raise WireError(f"{str(stage)[:40]} task {number} of batch {batch} is none of its own, or was told before")
        run.missing.discard((stage, number))
        seconds = float(said.what["seconds"])
        if stage == "reduce":
            run.reduce_tasks[int(number)] = seconds
        elif stage == "map":
            run.map_tasks.append(seconds)
            if len(run.map_tasks) == run.plan.blocks:
                run.mapped = self._since(said)
        run.late += int(said.what["refused"])
        run.latest = max(run.latest, self._since(said))
        self._finish_batches()

    def _on_windows(self, said: Said) -> None:
        run = self._open[int(said.what["batch"])]
        if said.worker not in run.silent:
            raise WireError(f"windows of batch {said.what['batch']} were told of before, or there are none")
        run.silent.discard(said.worker)
        run.watermark = int(said.what["watermark"])
        run.latest = max(run.latest, self._since(said))
        self._finish_batches()

    def _finish_batches(self) -> None:
        """Batches that have nothing left to do, in their order."""
        while True:
            run = self._open.get(self._next)
            if run is None or run.missing or run.silent:
                return
            del self._open[self._next]
            run.begun, run.done = self._adjuster.begun(run), run.latest
            self._next += 1
            self._deliver(run)
            self._tell(LEAD, "done", below=self._next)
            self._observe(run, run.seconds)
            self._adjuster.ended(run)

    def _deliver(self, run: BatchRun) -> None:
        batch, outcome = run.batch, self.outcome
        outcome.batches[batch] = run.progress()
        outcome.batches.pop(batch - self._scheduling.history, None)
        if batch >= outcome.delivered:  # else it was, before a failure
            whole = pa.Table.from_batches(run.results, self._program.result_schema)
            if self._commit is not None:
                self._commit(batch, whole)
            else:
                outcome.results[batch] = whole
            outcome.delivered = batch + 1
            outcome.refused += run.late
            self._report(outcome.batches[batch])
        if not self._program.keeps or len(run.panes) == self.workers:
            outcome.windows, outcome.watermark = dict(run.panes), run.watermark
            outcome.saved = batch + 1
            for old in [old for old in outcome.ends if old < batch]:
                del outcome.ends[old]
            self._when_saved()

    # -- elasticity

    def _patience(self) -> float:
        """How long to wait for a word before looking whether a batch is overdue."""
        due = self._adjuster.due(self._open.get(self._next))
        return _HEARTBEAT if due is None else min(_HEARTBEAT, max(0.0, due - self._now()))

    def _notice_overdue(self) -> None:
        """A batch that takes too long is told of before it ends, with the time that it can be expected to take."""
        run, now = self._open.get(self._next), self._now()
        due = self._adjuster.due(run)
        if run is not None and due is not None and now > due:
            self._observe(run, self._adjuster.expected(run, now))

    def _observe(self, run: BatchRun, seconds: float) -> None:
        """Show a batch to the policy, and pass on what it decides."""
        change = self._adjuster.show(run, seconds, self._now(), self._released, self._group_end)
        if change is not None:
            self._all("update", change.plan, first=change.first)

    # -- workers

    def _tell(self, worker: int, what: str, **details: Any) -> None:
        self._gang.order(worker, what, details)
        self.outcome.messages += 1

    def _end_all(self) -> None:
        """Have receivers close the batch that is open, and make no other."""
        for worker in range(self._receivers):
            self._tell(worker, "end")

    def _all(self, what: str, plan: ExecutionPlan, **details: Any) -> None:
        """Tell all workers of a plan."""
        self._plans.add(plan)
        for worker in range(self.workers):
            self._tell(worker, what, plan=plan.to_dict(), **details)

    def _understood(self, worker: int, frame: Frame) -> tuple[str, Mapping[str, Any]]:
        """What a frame says; WireError where a worker could not say it."""
        if frame.kind is not Kind.RESULT:
            what = message(frame, "event", EVENTS)
            if what["event"] == "released" and worker >= self._receivers:
                raise WireError("it released a batch, and does not read the source")
            return what["event"], what
        if frame.channel not in (RESULTS, STATE):
            raise WireError(f"rows came of channel {frame.channel}, which is none")
        schema = self._program.result_schema if frame.channel == RESULTS else self._program.partial_schema
        return "rows", {"batch": frame.number, "channel": frame.channel, "rows": batch_from(frame.payload, schema)}
