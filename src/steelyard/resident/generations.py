"""Generations of workers, one after the other, until one has come to its end: what any job of workers is."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from steelyard.core.durable import state_error_in
from steelyard.resident.gang import GenerationError, Recovery
from steelyard.resident.launchers import Launcher
from steelyard.resident.security import Credentials

log = logging.getLogger(__name__)


class JobError(GenerationError):
    """A job whose generations failed too often."""


class Driver(Protocol):
    """Who directs the workers of one generation, from the driver."""

    started: Callable[[float], None] | None
    """Called with the moment at which the first worker began to work."""

    def run(self) -> Any:
        """To the end; GenerationError where a worker fails."""
        ...

    def request_stop(self) -> None:
        """Come to an end soon. Any thread may call it."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


D = TypeVar("D", bound=Driver)


class Generations(ABC, Generic[D]):
    """Starts workers and who directs them; those that fail are followed by others.

    Parameters
    ----------
    launcher
        Starts workers.
    given
        What they are given to run.
    credentials
        The job's secret; one is made where none is given.
    """

    def __init__(self, launcher: Launcher, given: Any, credentials: Credentials | None) -> None:
        self._launcher, self._given = launcher, given
        self._credentials = credentials or Credentials.new()
        self._driver: D | None = None
        self._stopped = self._undeliverable = False
        self._changing = threading.RLock()
        """Held by whoever wishes something else of the job, from when he looks at what is until it is wished."""
        self.recovered: list[Recovery] = []
        """Generations that failed and were followed by one that works."""
        self._failures: list[tuple[int, GenerationError, float]] = []
        """Those that were followed by none that works so far: number, why, and when that was known."""

    def stop(self) -> None:
        """Stop reading, let what was read come to its end, and end. Any thread may call it while `run` runs."""
        with self._changing:
            self._stopped = True
            if self._driver is not None:
                self._driver.request_stop()

    def _give_up(self) -> None:
        """Come to an end, since results cannot be handed on."""
        with self._changing:
            self._undeliverable = True
            if self._driver is not None:
                self._driver.request_stop()

    def _generations(self) -> None:
        """Run until a generation comes to its end and none is to follow; JobError where they failed too often."""
        try:
            for number in itertools.count():
                error = self._failure_of(number)
                if error is not None:
                    self._diagnose(error, number)
                elif not self._goes_on():
                    return
        finally:
            self._launcher.release()

    def _failure_of(self, number: int) -> GenerationError | None:
        """Run a generation until nothing is left of it; why it failed, if it did."""
        failed, error, known, how = True, None, 0.0, ""
        try:
            self._generation(number)
            failed = False
        except GenerationError as raised:
            error, known = raised, time.monotonic()
        finally:
            how = self._launcher.gather(failed)
            if self._driver is not None:
                self._driver.close()
        if error is not None:
            if how and how not in str(error) and not error.final:
                error = GenerationError(f"{error} ({how})", at=error.at)
            self._failures.append((number, error, known))
        return error

    def _generation(self, number: int) -> None:
        driver = self._directed(number)
        driver.started = self._started
        with self._changing:
            self._driver = driver
            self._taken_up(driver)
            if self._is_to_end():
                driver.request_stop()
        self._launcher.launch(self._given, self._credentials, number, driver)
        driver.run()

    def _taken_up(self, driver: D) -> None:
        """Whoever directs a generation is known from now on; under the lock. For what was wished while he was made."""

    def _started(self, at: float) -> None:
        failures, self._failures = self._failures, []
        for number, error, known in failures:
            found = Recovery(number, known - error.at, at - known, str(error))
            self.recovered.append(found)
            self._tell_recovered(found)

    def _diagnose(self, error: GenerationError, number: int) -> None:
        """Decide whether and where to go on; JobError where there is no way to."""
        if error.final:
            raise state_error_in(error) or JobError(str(error)) from error
        if not self._may_fail(error):
            raise JobError(f"{error} (generation {number}, the last of {number + 1})") from error
        log.warning("generation %d failed: %s; the next goes on from %s", number, error, self._resumes_from())

    def _tell_recovered(self, recovery: Recovery) -> None:
        """A generation that failed was followed by one that works."""

    def _is_to_end(self) -> bool:
        """Whether a generation that begins is to end at once."""
        return self._stopped or self._undeliverable

    def _goes_on(self) -> bool:
        """Whether a generation that has come to its end is followed by another."""
        return False

    @abstractmethod
    def _directed(self, number: int) -> D:
        """Who directs a generation."""

    @abstractmethod
    def _may_fail(self, error: GenerationError) -> bool:
        """Count a failure, and make ready for what follows; whether another generation may."""

    @abstractmethod
    def _resumes_from(self) -> str:
        """Where it goes on, in words."""
