"""What a job of groups keeps on a disk, so that a driver that ends loses and doubles nothing.

Where receivers are, what windows hold, and what batches gave are one commit; what it gave is handed on when the commit
is durable, by the number of its newest batch. A start that finds a commit goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.durable import Described
from steelyard.resident.delivery import Delivery, Results
from steelyard.resident.groups.frames import in_frames, one_batch
from steelyard.resident.groups.outcome import GroupOutcome
from steelyard.resident.groups.position import Position, as_rows, from_rows
from steelyard.resident.groups.program import BatchProgram
from steelyard.resident.groups.tasks import by_keeper
from steelyard.resident.manifest import Manifest
from steelyard.resident.operator import Attempt
from steelyard.resident.snapshot import SnapshotStore

_STATE, _RESULTS = "groups", "results"
_WAITING = 1
"""Commits whose results may wait to be handed on when another follows."""


@dataclass(frozen=True)
class Keeping:
    """Where a job's commits are, and who gets what they have.

    Parameters
    ----------
    store
        A folder of the driver's.
    deliver
        Called with a batch and the results of it and those before it that were not handed on; after a driver ended,
        perhaps again with the same.
    note
        Kept in every commit, for the one who starts the job.
    """

    store: str
    deliver: Callable[[int, pa.Table], None]
    note: str = ""


class Commits:
    """The commits of one run.

    Parameters
    ----------
    keeping
        Where they are.
    program, workers, receivers
        What runs, on how many workers, of which so many read.
    outcome
        What ran so far; where there is a commit, it begins behind that.
    failed
        Called where results cannot be handed on.
    """

    def __init__(
        self,
        keeping: Keeping,
        program: BatchProgram,
        workers: int,
        receivers: int,
        outcome: GroupOutcome,
        failed: Callable[[], None],
    ) -> None:
        self._program, self._outcome, self._note = program, outcome, keeping.note
        self._store = SnapshotStore(keeping.store)
        self._given: list[pa.Table] = []
        newest = self._store.checked()
        self._attempt = Attempt.first(self._store.make())
        if newest is not None:
            self._restore(newest, workers, receivers)
        self.committed = outcome.saved
        """Batches below this one are in the newest commit."""

        def deliver(epoch: int, results: Results) -> None:
            keeping.deliver(epoch - 1, pa.Table.from_batches(results[_RESULTS]))

        self._delivery = Delivery(deliver, self._store, failed)

    def _restore(self, newest: Manifest, workers: int, receivers: int) -> None:
        """Begin behind a commit."""
        state, outcome, source = self._store.load(newest.files[_STATE]), self._outcome, self._program.source
        places: Mapping[int, Position] = from_rows(state["places"].to_batches())
        if state["receivers"] != receivers:
            raise OptionError(
                f"store {self._store.path} is of {state['receivers']} workers that read, and there are {receivers} "
                "now: give as many, or another store"
            )
        ends = [places.get(receiver, Position()) for receiver in range(receivers)]
        if source.grows:  # what was at its end may have more now
            ends = [replace(one, ended=(False,) * len(one.ended)) for one in ends]
        outcome.saved = outcome.delivered = int(state["saved"])
        outcome.ends = {outcome.saved - 1: tuple(ends)}
        outcome.watermark = int(state["watermark"])
        if self._program.keeps:
            wanted = self._program.partial_schema  # aggregates may have another order now
            panes = one_batch(state["panes"].select(wanted.names).cast(wanted))
            parts = by_keeper(self._program, panes, workers)
            outcome.windows = {worker: list(in_frames(part)) for worker, part in parts.items()}

    def take(self, batch: int, results: pa.Table) -> None:
        """What a batch gave."""
        if results.num_rows:
            self._given.append(results)

    def saved(self) -> None:
        """There is a newer batch to begin behind: make it durable, unless so much waits to be handed on already.

        Then what follows is handed on together: a sink that is slow gets fewer and larger parts.
        """
        if len(self._delivery.waiting) <= _WAITING:
            self._commit()

    def close(self, complete: bool) -> None:
        """Come to an end; where all is done, everything is handed on, or what keeps it from that is raised."""
        try:
            if complete:
                self._commit()
        finally:
            self._delivery.close(complete)

    def _commit(self) -> None:
        """State and results first, then the commit that names them."""
        outcome, epoch = self._outcome, self._outcome.saved
        if epoch == self.committed:
            return
        ends = dict(enumerate(outcome.ends[epoch - 1]))
        panes = [part for of_worker in outcome.windows.values() for part in of_worker]
        state = {
            "saved": epoch,
            "watermark": outcome.watermark,
            "receivers": len(ends),
            "places": as_rows(ends),
            "panes": pa.Table.from_batches(panes, self._program.partial_schema),
        }
        files = {_STATE: self._store.write(epoch, _STATE, state, self._attempt)}
        given, kept = self._whole(), None
        if given.num_rows:
            kept = self._store.write(epoch, _RESULTS, {_RESULTS: given}, self._attempt)
        results: dict[str, Described] = self._delivery.waiting | ({str(epoch): kept} if kept else {})
        self._store.commit(Manifest(epoch, str(self._attempt), {}, files, self._note, results=results))
        self._given, self.committed = [], epoch
        self._delivery.put(epoch, {_RESULTS: given.to_batches()}, kept)

    def _whole(self) -> pa.Table:
        """What batches gave since the last commit; of running aggregates what each key is in the end."""
        whole = pa.concat_tables([self._program.result_schema.empty_table(), *self._given])
        if not self._program.running or len(self._given) < 2:
            return whole
        names = [f"key{place}" for place in range(len(self._program.keys))]
        keys = whole.select(self._program.keys).rename_columns(names)
        numbered = keys.append_column("row", pa.array(np.arange(whole.num_rows)))
        return whole.take(numbered.group_by(names).aggregate([("row", "max")]).column("row_max"))
