"""A running query on the resident engine, with the verbs that a query on batches has."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from steelyard.core import BadRowError, BatchError, OptionError, SteelyardError
from steelyard.core.shown import Shown, counted
from steelyard.resident.jobs import Job
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK
from steelyard.spark.engine import REPORTS, instant_text
from steelyard.spark.query import Query
from steelyard.spark.resident_program import AGGREGATE, SINK, SOURCE

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
"""Between two looks at what a job has done."""


@dataclass(frozen=True, repr=False)
class EpochReport(Shown):
    """What a query on the resident engine had done when an epoch was committed; counts are since its start.

    Parameters
    ----------
    batch
        The epoch: snapshots that were committed so far.
    rows
        Rows that were aggregated.
    late_rows
        Rows behind the watermark; where a policy splits keys, partials of such rows.
    bad_rows
        Rows that were refused, where they are dropped.
    results
        Result rows that the sink has got.
    watermark
        How far event time has come in all instances; None before the first row.
    restarts
        Generations of workers that failed.
    seconds
        Since the start.
    """

    batch: int
    rows: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    results: int = 0
    watermark: str | None = None
    restarts: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)

    def _facts(self) -> Mapping[str, object]:
        """All that is not nothing."""
        return {name: value for name, value in self.to_dict().items() if value != 0}

    def __str__(self) -> str:
        bad = f", {self.bad_rows} bad" if self.bad_rows else ""
        late = f", {self.late_rows} late" if self.late_rows else ""
        seen, given = counted(self.rows, "row"), counted(self.results, "result")
        return f"epoch {self.batch}: {seen}{bad}{late}, {given}, {self.seconds:.2f} s"


class ResidentQuery(Query[EpochReport]):
    """What `Stream.start()` gives on the resident engine: watch it, wait for it, stop it.

    Parameters
    ----------
    job
        What runs; the query starts it, in a thread.
    name
        What the query is called.
    show
        Called with the results of each epoch that was committed, where the driver keeps them.
    ended
        Called when it has ended.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        show: Callable[[list[pa.RecordBatch], int], None] | None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._when_ended = ended
        self._id, self._name = str(uuid.uuid4()), name
        log.info("query %s: its workers start, in one Spark job; results come with a snapshot", name)
        self._job, self._show = job, show
        self._begun = time.monotonic()
        self._reports: deque[EpochReport] = deque(maxlen=REPORTS)
        self._failure: BaseException | None = None
        self._shown = 0
        self._watching = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"query {name}", daemon=True).start()
        threading.Thread(target=self._watch, name=f"watch {name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._job.run()
            self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is, `exception` gives it to whoever asks
            self._failure = _own(error, self._name)
        finally:
            self._when_ended()
            self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a sink in the driver that fails ends the query
                self._failure = self._failure or error
                self._job.stop()
                return

    def _look(self) -> None:
        """Show results of epochs that were committed since the last look, and report them."""
        with self._watching:
            outcome = self._job.outcome
            epochs = outcome.epochs
            if self._show is not None:
                results = outcome.results.get(SINK, [])
                new = results[self._shown :]
                if new:
                    self._show(new, epochs)
                    self._shown += len(new)
            if epochs and (not self._reports or self._reports[-1].batch < epochs):
                self._reports.append(self._report(epochs))

    def _report(self, epochs: int) -> EpochReport:
        metrics = {**self._job.outcome.metrics, **self._job.metrics}

        def total(operator: str, what: str) -> int:
            return sum(one[what] for name, one in metrics.items() if name.rpartition("#")[0] == operator)

        times = [
            one["watermark"]
            for name, one in metrics.items()
            if name.rpartition("#")[0] == AGGREGATE and one["watermark"] is not None
        ]
        known = [at for at in times if MIN_WATERMARK < at < MAX_WATERMARK]
        return EpochReport(
            batch=epochs,
            rows=total(SOURCE, "rows_out"),
            late_rows=total(AGGREGATE, "refused"),
            bad_rows=total(SOURCE, "refused"),
            results=total(SINK, "rows_in"),
            watermark=instant_text(min(known)) if known else None,
            restarts=self._job.outcome.restarts,
            seconds=time.monotonic() - self._begun,
        )

    @property
    def id(self) -> str:
        """Another one for each start."""
        return self._id

    @property
    def name(self) -> str:
        """The name given to the builder, or one made of what the query computes."""
        return self._name

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """Whether it runs, and the newest epoch that is committed."""
        said = "the resident engine is running" if self.is_active else "stopped"
        epochs = self._job.outcome.epochs
        return {
            "message": said,
            "isDataAvailable": self.is_active,
            "isTriggerActive": False,  # there are no batches that one would have to wait for
            "committedBatch": epochs,
        }

    @property
    def last_progress(self) -> EpochReport | None:
        """The report of the newest epoch."""
        return self._reports[-1] if self._reports else None

    @property
    def recent_progress(self) -> list[EpochReport]:
        """The reports of the last hundred epochs, oldest first."""
        return list(self._reports)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, `timeout` seconds at most; raises what made it fail."""
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def process_all_available(self) -> None:
        """Not known here: whoever wants that starts the query with `trigger(available_now=True)`."""
        raise OptionError("engine('resident') has no process_all_available: use .trigger(available_now=True)")

    def stop(self, wait: float = 60.0) -> None:
        """Stop reading, let what was read come to its end in a last snapshot; a restart goes on from there."""
        self._job.stop()
        self._ended.wait(wait)

    def exception(self) -> BaseException | None:
        """What made the query fail, or None; being stopped is no failure."""
        return self._failure

    def __repr__(self) -> str:
        state = "active" if self.is_active else "stopped"
        return f"ResidentQuery({self.name}, {state}, last: {self.last_progress or 'no epoch yet'})"


def _own(error: Exception, name: str) -> BaseException:
    """Bad rows and mistakes of the program, as the micro-batch engine reports them; other errors as they are."""
    for kind in (BadRowError, BatchError):
        _, found, said = str(error).partition(f"{kind.__name__}: ")
        if isinstance(error, SteelyardError) and (found or isinstance(error, kind)):
            return kind(f"{name}: {said or error}")
    return error
