"""What memory sinks got, handed on from the driver: epoch by epoch, each once, while workers go on."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from steelyard.core.durable import Described
from steelyard.resident.snapshot import SnapshotStore

Results = Mapping[str, list[pa.RecordBatch]]
"""Batches by sink."""
Deliver = Callable[[int, Results], None]
IN_MEMORY, MOST_WAITING = 4, 16
"""Epochs that wait: more than so many are read again from their files; with more than so many, no snapshot is taken
between the others."""
log = logging.getLogger(__name__)


def undelivered(store: SnapshotStore) -> dict[int, Described]:
    """By epoch, oldest first: files of what was never handed on, by the newest commit."""
    newest = store.newest()
    kept = {int(epoch): file for epoch, file in newest.results.items()} if newest else {}
    return {epoch: file for epoch, file in sorted(kept.items()) if not store.is_delivered(epoch)}


class Delivery:
    """Hands on one epoch after the other, in a thread of its own.

    What an epoch gave is in its commit, and in those that follow until it was handed on. So it is handed on after the
    driver has ended, whenever that was; by whoever takes epochs by number, once.

    Parameters
    ----------
    deliver
        Takes an epoch and what it gave.
    store
        Where commits are.
    failed
        Called where `deliver` raises.
    """

    def __init__(self, deliver: Deliver, store: SnapshotStore, failed: Callable[[], None]) -> None:
        self._deliver, self._store, self._when_failed = deliver, store, failed
        self._queue: queue.Queue[tuple[int, Results | None] | None] = queue.Queue()
        self._waiting: dict[int, Described] = {}
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._closing = False
        newest = store.newest()
        left = undelivered(store)
        self.delivered = min(left, default=(newest.epoch if newest else 0) + 1) - 1
        """The newest epoch that was handed on, or had nothing."""
        for epoch, file in left.items():
            self.put(epoch, None, file)
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> dict[str, Described]:
        """By epoch: files of what was not handed on yet."""
        with self._lock:
            return {str(epoch): file for epoch, file in self._waiting.items()}

    @property
    def is_behind(self) -> bool:
        """Whether so many epochs wait that no other should follow soon."""
        return len(self._waiting) >= MOST_WAITING

    def put(self, epoch: int, results: Results | None, file: Described | None) -> None:
        """One epoch more; without results, they are in the file. Without either, it gave nothing."""
        with self._lock:
            if file is not None:
                self._waiting[epoch] = file
            crowded = len(self._waiting) > IN_MEMORY
        self._queue.put((epoch, None if crowded else results))

    def close(self, complete: bool) -> None:
        """Take no more, and wait for the one that is being handed on.

        Where all came to its end, for the rest too; and raise what kept it from being handed on.
        """
        self._closing = not complete
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None and complete:
            raise self._failure
        if self._failure is not None:
            log.warning("results could not be handed on: %s", self._failure)

    def _run(self) -> None:
        while (one := self._queue.get()) is not None and not self._closing:
            epoch, results = one
            file = self._waiting.get(epoch)
            try:
                if file is not None:
                    self._deliver(epoch, results if results is not None else self._loaded(file))
                    self._store.deliver(epoch)
            except BaseException as error:  # noqa: BLE001 - whatever it is, `close` raises it
                self._failure = error
                self._when_failed()
                return
            with self._lock:
                self._waiting.pop(epoch, None)
                self.delivered = epoch

    def _loaded(self, file: Described) -> dict[str, Any]:
        return {sink: table.to_batches() for sink, table in self._store.load(file).items()}
