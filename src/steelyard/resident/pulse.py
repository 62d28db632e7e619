"""Signs of life on every connection: a link that swallows what is sent is noticed, at both of its ends."""

from __future__ import annotations

import contextlib
import threading
import time

from steelyard.resident.connection import Connection


class Pulse:
    """Sends a beat on each connection now and then, and gives those up that nothing comes from any more.

    A beat is sent where nothing else is, and also while nobody reads at this end yet; silence counts from where
    somebody does. Where this process itself did not run for a while, what came meanwhile has to be read first.

    Parameters
    ----------
    seconds
        Between two beats.
    silence
        Seconds without a sign of life after which a connection is given up.
    """

    def __init__(self, seconds: float, silence: float) -> None:
        self._seconds, self._silence = seconds, silence
        self._watched: list[Connection] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def watch(self, connection: Connection) -> Connection:
        """Look after one more; gives it back."""
        self._watched.append(connection)
        return connection

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._stopped.wait(self._seconds):
            now = time.monotonic()
            slept, looked = now - looked > self._seconds + self._silence / 2, now
            for connection in list(self._watched):
                with contextlib.suppress(OSError):  # whoever receives hears of it
                    connection.beat()
                if not slept and (silent := connection.silence) > self._silence:
                    self._watched.remove(connection)
                    connection.give_up(f"it has been silent for {silent:.1f} s", silent)

    def stop(self) -> None:
        """Beat no more."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
