"""A worker of the group-ahead engine: runs the tasks that its local scheduler gives, and passes on what they make."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.resident.control import Orders, Shapes
from steelyard.resident.groups.agreement import Agreement
from steelyard.resident.groups.frames import in_frames, table_in_frames, together
from steelyard.resident.groups.local import LocalScheduler, Stage, Task
from steelyard.resident.groups.messages import (
    AGREED,
    BLOCK,
    COUNTED,
    MERGED,
    PARTIALS,
    Note,
    packed,
    pairs,
    require_due,
    unpacked,
)
from steelyard.resident.groups.plan import ExecutionPlan, Schedule
from steelyard.resident.groups.position import ROWS as POSITIONS
from steelyard.resident.groups.position import Position, from_rows
from steelyard.resident.groups.program import Batches
from steelyard.resident.groups.protocol import ORDERS, RESULTS, STATE, pulse_of
from steelyard.resident.groups.receiver import Beginning, Receiver, Released
from steelyard.resident.groups.tasks import (
    Buckets,
    batch_results,
    by_keeper,
    kept_of,
    late_rows,
    map_block,
    reduce_bucket,
    slices,
)
from steelyard.resident.operator import MAX_WATERMARK
from steelyard.resident.security import Credentials
from steelyard.resident.serving import ServingWorker
from steelyard.resident.wire import Frame, Kind, WireError, batch_bytes, batch_from

log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0


class GroupWorker(ServingWorker):
    """A worker that runs tasks of batches.

    Parameters
    ----------
    number
        Which, from 0; the first ones have a receiver.
    batches
        What is done with batches, and how they are scheduled.
    credentials, host, generation
        As of any worker.
    """

    orders: ClassVar[Shapes] = ORDERS

    def __init__(
        self,
        number: int,
        batches: Batches,
        credentials: Credentials,
        host: str = "127.0.0.1",
        generation: int = 0,
    ) -> None:
        super().__init__(number, credentials, host, generation)
        self._batches, self._program, self._scheduling = batches, batches.program, batches.scheduling
        self._changed = threading.Condition(threading.Lock())
        self._schedule, self._local = Schedule(), LocalScheduler()
        self._work: dict[Task, list[tuple[Note, pa.RecordBatch]]] = {}
        self._windows = kept_of(self._program)
        self._passed = self._program.begins
        """The watermark up to which windows are closed."""
        self._agreement: Agreement | None = None
        self._receiver: Receiver | None = None
        self._slots: list[threading.Thread] = []
        self._seen: set[tuple[int, int, int, int]] = set()
        """(batch, channel, number, sender) of what came from other workers."""
        self._begun: dict[tuple[int, int, int, int], list[pa.RecordBatch]] = {}
        """The same, of what has not come in full yet: the rows that have."""
        self._settled: dict[int, tuple[ExecutionPlan, int, bool]] = {}
        """By batch: plan, watermark and whether it is the last, as the first said that told of it."""
        self._over = 0
        """Batches below this one are over."""
        self._workers = self._receivers = 1

    # -- what the driver says

    def _greet(self) -> None:
        self._tell("hello", address=list(self.address), pid=os.getpid())

    def _serve(self, orders: Orders) -> None:
        actions: dict[str, Callable[[dict[str, Any]], object]] = {
            "begin": self._begin,
            "group": self._group,
            "update": self._update,
            "done": self._done,
            "end": lambda order: self._receiver.end() if self._receiver else None,
        }
        pulse = pulse_of(self._scheduling)  # now: others may take long to come
        pulse.watch(orders.connection)
        self._peers.beat(pulse)
        while (order := orders.next())["do"] != "stop":
            actions[order["do"]](order)

    def _begin(self, order: dict[str, Any]) -> None:
        """Meet the others, restore windows, and start the threads that run tasks."""
        peers = [(host, port) for host, port in order["peers"]]
        assert self._orders is not None
        first, start = order["first"], time.monotonic() - order["elapsed"]
        self._schedule, self._local = Schedule(first), LocalScheduler(first)
        places = from_rows([batch_from(self._orders.rows(), POSITIONS) for _ in range(order["places"])])
        if order["windows"] is not None and self._windows is not None:
            panes = [batch_from(self._orders.rows(), self._program.partial_schema) for _ in range(order["frames"])]
            whole = pa.Table.from_batches(panes, self._program.partial_schema)
            self._windows.restore({"panes": whole, "watermark": order["windows"]})
            self._passed = order["windows"]
        self._workers = len(peers)
        self._receivers = self._batches.receivers(self._workers)
        if self.number < self._receivers:
            self._agreement = Agreement(
                self.number,
                self._receivers,
                self._workers,
                self._scheduling,
                self._schedule,
                self._changed,
                lambda receiver, channel, batch, note: self._peers.send(
                    receiver, Kind.MARKER, channel, batch, b"", packed(note)
                ),
                self._program.delay_micros,
                first,
            )
        self._peers.meet(peers)
        self._peers.listen(self._receive, self._lost_peer)
        self._slots = [
            threading.Thread(target=self._work_off, name=f"slot {slot}", daemon=True)
            for slot in range(self._scheduling.slots)
        ]
        for thread in self._slots:
            thread.start()
        if self._agreement is not None:
            position = places.get(first - 1, Position())
            replay = {batch: places.get(batch, Position()) for batch in range(first, order["made"])}
            self._receiver = Receiver(
                self._program,
                self._scheduling,
                self._agreement,
                Beginning(first, position, replay, start, order["ending"], order["counting"]),
                self._announce,
                lambda error: self._failed(f"the receiver in worker {self.number}", error),
            )
            self._receiver.start()
        self._tell("begun")

    def _group(self, order: dict[str, Any]) -> None:
        with self._changed:
            self._over = order["below"]
            self._seen = {one for one in self._seen if one[0] >= self._over}
            self._settled = {batch: what for batch, what in self._settled.items() if batch >= self._over}
            self._schedule.forget(order["below"])
            self._schedule.group(order["first"], order["batches"], ExecutionPlan.from_dict(order["plan"]))
            self._local.schedule(self._schedule.until)
            self._changed.notify_all()

    def _update(self, order: dict[str, Any]) -> None:
        with self._changed:
            self._schedule.update(order["first"], ExecutionPlan.from_dict(order["plan"]))

    def _done(self, order: dict[str, Any]) -> None:
        if self._agreement is not None:
            self._agreement.progress(order["below"])

    # -- blocks, partials, windows: from here to others, and from others to here

    def _announce(self, made: Released) -> None:
        """Send what the receiver has cut to the workers whose map tasks take it."""
        cut, agreed = made.cut, made.agreed
        plan = agreed.plan
        split = np.empty(0, np.int64) if cut.split is None else cut.split
        # told first: results may be there before the last block is sent
        self._tell(
            "released",
            batch=made.batch,
            rows=cut.rows,
            keys=cut.keys,
            plan=plan.to_dict(),
            end=made.moved.to_list(),
            last=agreed.last,
            partition_seconds=made.partition_seconds,
            wait_seconds=made.wait_seconds,
            refused=made.refused,
            sizes=[cut.blocks[block].num_rows if block in cut.blocks else 0 for block in range(plan.blocks)],
        )
        watermark = MAX_WATERMARK if agreed.last and not self._program.goes_on else agreed.watermark
        for number, block in sorted(cut.blocks.items()):
            note = Note(plan, number, watermark, agreed.last, split, cut.split is None, made.parts[number])
            self._pass_on(plan.map_worker(number), BLOCK, made.batch, note, block)

    def _pass_on(self, worker: int, channel: int, batch: int, note: Note, rows: pa.RecordBatch) -> None:
        if worker == self.number:
            self._take(channel, batch, note, rows)
            return
        parts = list(in_frames(rows))
        for part in parts:
            told = packed(note._replace(more=part is not parts[-1]))
            self._peers.send(worker, Kind.DATA, channel, batch, batch_bytes(part), told)

    def _receive(self, sender: int, frame: Frame) -> None:
        """Something of a batch came from another worker; WireError where it is not its to send."""
        note, channel, batch = unpacked(frame.note), frame.channel, frame.number
        said = channel in (COUNTED, AGREED)
        if frame.kind is not (Kind.MARKER if said else Kind.DATA):
            raise WireError(f"a {frame.kind.name} frame is no part of a batch")
        with self._changed:
            if (batch, channel, note.number, sender) in self._seen or batch < self._over:
                raise WireError(f"part {note.number} of channel {channel} of batch {batch} came again")
        rows = None if said else self._gathered(sender, frame, note)
        if note.more and not said:
            return
        size = rows.num_rows if rows is not None else 0
        require_due(note, channel, sender, self.number, self._workers, size, self._receivers)
        with self._changed:
            self._seen.add((batch, channel, note.number, sender))
        if rows is not None:
            self._take(channel, batch, note, rows)
        elif self._agreement is not None:
            self._agreement.hear(channel, batch, note)

    def _gathered(self, sender: int, frame: Frame, note: Note) -> pa.RecordBatch:
        """All rows of the same that have come, with those of the frame."""
        schema = self._program.source_schema if frame.channel == BLOCK else self._program.partial_schema
        part = frame.number, frame.channel, note.number, sender
        rows = [*self._begun.pop(part, ()), batch_from(frame.payload, schema)]
        if note.more:
            self._begun[part] = rows
        return together(rows) if not note.more else rows[-1]

    def _take(self, channel: int, batch: int, note: Note, rows: pa.RecordBatch) -> None:
        """Something has come for a task here; WireError where it was settled otherwise."""
        with self._changed:
            what = note.plan, note.watermark, note.last
            if self._settled.setdefault(batch, what) != what:
                raise WireError(f"batch {batch} was to go by {self._settled[batch]}, and now by {what}")
            if channel == BLOCK:
                told = {one.parts for one, _ in self._work.get(Task(batch, Stage.MAP, note.number), ())} | {note.parts}
                if len(told) > 1:
                    raise WireError(f"block {note.number} of batch {batch} was to have {told} parts")
                self._keep(Task(batch, Stage.MAP, note.number), note, rows)
                self._local.block(batch, note.number, note.parts)
            elif channel == PARTIALS:
                sizes = [(int(bucket), int(size)) for bucket, size in note.numbers.reshape(-1, 2)]
                for bucket, part in slices(Buckets(rows, sizes)):
                    self._keep(Task(batch, Stage.REDUCE, bucket), note, part)
                    self._local.contribution(batch, bucket, note.plan.blocks)
            elif channel == MERGED:
                self._keep(Task(batch, Stage.WINDOWS, 0), note, rows)
                self._local.reduced(batch, note.plan.buckets)
            self._changed.notify_all()

    def _keep(self, task: Task, note: Note, rows: pa.RecordBatch) -> None:
        self._work.setdefault(task, []).append((note, rows))

    # -- tasks

    def _work_off(self) -> None:
        """One slot: the most urgent task, again and again."""
        while True:
            with self._changed:
                task = None
                while not self._closing.is_set() and (task := self._local.next()) is None:
                    self._changed.wait()
                if task is None:
                    return
                parts = self._work.pop(task, [])
            begun = time.perf_counter()
            try:
                refused = self._perform(task, parts)
                spent = time.perf_counter() - begun
                stage = task.stage.name.lower()
                self._tell("task", batch=task.batch, stage=stage, number=task.number, seconds=spent, refused=refused)
            except BaseException as error:  # noqa: BLE001 - a user's function may raise anything, SystemExit too
                whose = f"{task.stage.name.lower()} task {task.number} of batch {task.batch} in worker {self.number}"
                self._failed(whose, error)
                return
            with self._changed:
                self._local.finished(task)
                self._changed.notify_all()

    def _perform(self, task: Task, parts: list[tuple[Note, pa.RecordBatch]]) -> int:
        """Do it; how many rows were refused."""
        perform = {Stage.MAP: self._map, Stage.REDUCE: self._reduce, Stage.WINDOWS: self._window}[task.stage]
        return perform(task, parts)

    def _map(self, task: Task, parts: list[tuple[Note, pa.RecordBatch]]) -> int:
        note, rows = parts[0][0], together([rows for _, rows in parts])
        # a function may make one key of two: then any key may be in another block as well
        split = None if note.all_split or self._program.function is not None else note.numbers
        made = map_block(self._program, rows, split, note.plan, task.number)
        for worker, found in made.by_worker.items():
            told = note._replace(number=task.number, numbers=pairs(found.rows), all_split=False, parts=1)
            self._pass_on(worker, PARTIALS, task.batch, told, found.partials)
        return made.refused

    def _reduce(self, task: Task, parts: list[tuple[Note, pa.RecordBatch]]) -> int:
        note = parts[0][0]
        merged = reduce_bucket(self._program, [rows for _, rows in parts])
        if self._windows is None:
            self._deliver(task.batch, batch_results(self._program, merged))
            return 0
        told = note._replace(number=task.number, numbers=np.empty(0, np.int64))
        for worker, rows in by_keeper(self._program, merged, note.plan.workers).items():
            self._pass_on(worker, MERGED, task.batch, told, rows)
        return 0

    def _window(self, task: Task, parts: list[tuple[Note, pa.RecordBatch]]) -> int:
        assert self._windows is not None
        note, refused = parts[0][0], 0
        for _, rows in parts:
            refused += late_rows(self._program, rows, self._passed)
            for results in self._windows.process(0, rows):
                self._deliver(task.batch, results.cast(self._program.result_schema))
        for results in self._windows.on_watermark(note.watermark):
            self._deliver(task.batch, results.cast(self._program.result_schema))
        due = self._program.goes_on if note.last else (task.batch + 1) % self._scheduling.snapshot == 0
        if due:
            self._send_windows(task.batch)
        self._passed = max(self._passed, note.watermark)
        self._tell("windows", batch=task.batch, watermark=self._passed)
        return refused

    def _deliver(self, batch: int, results: pa.RecordBatch) -> None:
        assert self._orders is not None
        for part in in_frames(results) if results.num_rows else ():
            self._orders.connection.send(Kind.RESULT, RESULTS, batch, batch_bytes(part))

    def _send_windows(self, batch: int) -> None:
        """The open panes to the driver, which gives them back after a failure."""
        assert self._orders is not None
        assert self._windows is not None
        state = self._windows.snapshot(batch)
        panes = state.get("panes", self._program.partial_schema.empty_table())
        whole = pa.Table.from_batches(panes.to_batches(), self._program.partial_schema)
        for part in table_in_frames(whole):
            self._orders.connection.send(Kind.RESULT, STATE, batch, batch_bytes(part))

    # -- the end

    def _close(self) -> None:
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        self._peers.close()  # wakes whoever waits to send
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver.join(_STOP_SECONDS)
        if self._orders is not None:
            self._orders.connection.close()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._slots:  # else a function would still run beside those of the next generation
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._slots):
            log.warning("a task of worker %d still runs %g s after it was to end", self.number, _STOP_SECONDS)
