"""Events of queries on their way to who listens: in threads of their own, so that no listener holds a query up."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from steelyard.core import Progress
from steelyard.core.progress import BATCH, EPOCH, STOPPED

log = logging.getLogger(__name__)

Listener = Callable[[Progress], object]
KEPT = 100
"""Events of each sort that a query remembers: batches and epochs, and everything."""
WAITING = 1000
"""Events that wait for a slow listener; newer ones are then lost to it."""
_LAST_SECONDS = 2.0
"""That listeners get to hear the last events of a query which has ended."""

_everywhere: list[Listener] = []


def on_progress(listener: Listener) -> Callable[[], None]:
    """Call a function with everything that happens in any query that starts from now on.

    It is called in a thread of its own: one that is slow, or raises, harms no query.

    Returns
    -------
    Callable
        What makes an end of it.

    Examples
    --------
    >>> forget = on_progress(print)
    >>> forget()
    """
    _everywhere.append(listener)
    return lambda: _everywhere.remove(listener) if listener in _everywhere else None


class _Listening:
    """A listener in a thread of its own."""

    def __init__(self, listener: Listener, name: str) -> None:
        self._listener, self._name = listener, name
        self._queue: queue.Queue[Progress | None] = queue.Queue(WAITING)
        self._told = False
        self._thread = threading.Thread(target=self._run, name=f"listener of {name}", daemon=True)
        self._thread.start()

    def tell(self, progress: Progress | None) -> None:
        """One event more; None for the end."""
        try:
            self._queue.put_nowait(progress)
        except queue.Full:
            self._tell_once("is too slow, and misses events")
            if progress is None:  # the end must come: it takes the place of the oldest
                with contextlib.suppress(queue.Empty):
                    self._queue.get_nowait()
                self._queue.put(None)

    def wait(self, until: float) -> None:
        """Until all was heard, or the time is up; a listener does not wait for itself."""
        if self._thread is threading.current_thread():
            return
        self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while (progress := self._queue.get()) is not None:
            try:
                self._listener(progress)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                self._tell_once(f"raised {type(error).__name__}: {error}")

    def _tell_once(self, what: str) -> None:
        if not self._told:
            self._told = True
            log.warning("a listener of %s %s; the query goes on", self._name, what)


class Feed:
    """Everything that happens in one run of a query."""

    def __init__(self) -> None:
        self.name = self.id = self.run_id = ""
        self.progress: deque[Progress] = deque(maxlen=KEPT)
        """Of the newest batches or epochs, oldest first."""
        self._events: deque[Progress] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._closed = False
        self._listeners: list[_Listening] = []

    def begin(self, name: str, id: str = "", run_id: str = "") -> None:
        """The query has a name, and those listen that want to hear of every query. Events carry its ids."""
        self.name, self.id, self.run_id = name, id, run_id
        self._listeners += [_Listening(one, name) for one in _everywhere]

    def listen(self, listener: Listener) -> None:
        """Call a function with what happens from now on, and first with what is still remembered."""
        with self._lock:
            listening = _Listening(listener, self.name)
            for event in self._events:
                listening.tell(event)
            self._listeners.append(listening)
            if self._closed:
                listening.tell(None)

    def tell(self, progress: Progress) -> Progress:
        """Something happened; it, with whose it is and when it was."""
        with self._lock:
            return self._tell(progress)

    def _tell(self, progress: Progress) -> Progress:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = progress.more(name=self.name, id=self.id, run_id=self.run_id, time=moment)
        if event.kind in (BATCH, EPOCH):
            self.progress.append(event)
        self._events.append(event)
        for listening in self._listeners:
            listening.tell(event)
        return event

    def close(self) -> None:
        """Nothing more will happen. Listeners have a moment to hear what did. It may be called again."""
        with self._lock:
            if not self._closed:
                last = self.progress[-1].batch if self.progress else -1
                self._tell(Progress(last, kind=STOPPED, decision="the query has ended"))
                for listening in self._listeners:
                    listening.tell(None)
            self._closed = True
            listeners = list(self._listeners)
        until = time.monotonic() + _LAST_SECONDS
        for listening in listeners:
            listening.wait(until)
