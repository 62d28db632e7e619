"""Running queries of workers that stay, with the verbs that a query on batches has."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, ClassVar

from steelyard.control import Feed
from steelyard.core import BadRowError, BatchError, OptionError, Progress, SteelyardError
from steelyard.core.durations import instant_text
from steelyard.core.progress import EPOCH, FAILED, MOVED, RECOVERED
from steelyard.core.shown import ordinal
from steelyard.resident.groups import GroupJob
from steelyard.resident.jobs import Job
from steelyard.resident.operator import MAX_WATERMARK, MIN_WATERMARK
from steelyard.spark.engine import in_a_sentence
from steelyard.spark.query import Query
from steelyard.spark.resident_elastic import Autoscaler
from steelyard.spark.resident_program import AGGREGATE, LETTERS, SINK, SOURCE

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
"""Between two looks at what a job has done."""


class StayingQuery(Query):
    """A query whose workers stay, inside one Spark job: watch it, wait for it, stop it.

    Parameters
    ----------
    job
        What runs; the query starts it, in a thread.
    feed
        What happens.
    name, id
        What the query is called, and what stays the same over restarts from one checkpoint.
    ended
        Called when it has ended.
    """

    engine: ClassVar[str]

    def __init__(
        self, job: Job | GroupJob, feed: Feed, name: str, id: str, ended: Callable[[], None] = lambda: None
    ) -> None:
        self._when_ended, self._feed, self._name = ended, feed, name
        feed.begin(name, id, str(uuid.uuid4()))
        log.info("query %s: its workers start, in one Spark job; results come with a snapshot", name)
        self._job: Any = job
        self._failure: BaseException | None = None
        self._why_ended: BaseException | None = None
        """What the job was stopped for, where that is a failure."""
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"query {name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
            self._look()
            if self._why_ended is not None:
                raise self._why_ended
        except BaseException as error:  # noqa: BLE001 - whatever it is, `exception` gives it to whoever asks
            self._failure = _own(error, self._name)
            self._feed.tell(Progress(self._committed, kind=FAILED, decision=str(self._failure)))
        finally:
            self._when_ended()
            self._feed.close()
            self._ended.set()

    def _work(self) -> None:
        """Run the job to its end."""
        self._job.run()

    def _look(self) -> None:
        """Tell of what was not told yet."""

    @property
    def _committed(self) -> int:
        """The newest epoch, or batch, that is committed."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        """The query's id, which stays the same over restarts from one checkpoint."""
        return self._feed.id

    @property
    def run_id(self) -> str:
        """The id of this run, another one for each start."""
        return self._feed.run_id

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
        """Whether it runs, and the newest epoch, or batch, that is committed."""
        said = f"the {self.engine} engine is running" if self.is_active else "stopped"
        return {
            "message": said,
            "isDataAvailable": self.is_active,
            "isTriggerActive": False,  # there are no batches that one would have to wait for
            "committedBatch": self._committed,
        }

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, `timeout` seconds at most; raises what made it fail."""
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def process_all_available(self) -> None:
        """Not known here: whoever wants that starts the query with `trigger(available_now=True)`."""
        raise OptionError(f"engine({self.engine!r}) has no process_all_available: use .trigger(available_now=True)")

    def stop(self, wait: float = 60.0) -> None:
        """Stop reading, let what was read come to its end in a last snapshot; a restart goes on from there."""
        self._job.stop()
        self._ended.wait(wait)

    def exception(self) -> BaseException | None:
        """What made the query fail, or None; being stopped is no failure."""
        return self._failure

    def __repr__(self) -> str:
        state = "active" if self.is_active else "stopped"
        return f"{type(self).__name__}({self.name}, {state}, last: {self.last_progress or 'nothing yet'})"


class ResidentQuery(StayingQuery):
    """What `Stream.start()` gives on the resident engine; an autoscaler looks in a thread of its own."""

    engine: ClassVar[str] = "resident"

    def __init__(
        self,
        job: Job,
        feed: Feed,
        name: str,
        id: str,
        ended: Callable[[], None] = lambda: None,
        autoscaler: Autoscaler | None = None,
    ) -> None:
        self._begun, self._recoveries, self._rescalings = time.monotonic(), 0, 0
        self._watching, self._autoscaler = threading.Lock(), autoscaler
        super().__init__(job, feed, name, id, ended)
        threading.Thread(target=self._watch, name=f"watch {name}", daemon=True).start()

    @property
    def _committed(self) -> int:
        return int(self._job.outcome.epochs)

    def _work(self) -> None:
        """Run the job to its end, and whoever looks at it, who writes to the checkpoint, to his."""
        if self._autoscaler is None:
            return super()._work()
        looks = threading.Thread(target=self._scale, args=(self._autoscaler,), name=f"scale {self._name}", daemon=True)
        looks.start()
        try:
            super()._work()
        finally:
            looks.join()

    def _scale(self, autoscaler: Autoscaler) -> None:
        """Look until the job has ended, or the policy fails, which ends it."""
        try:
            autoscaler.run()
        except BaseException as error:  # noqa: BLE001 - whatever a user's policy raises
            if self._job.ended:  # nobody is there any more to be looked at
                return
            self._why_ended = in_a_sentence(error, f"{self._name}, its elasticity policy")
            self._job.stop()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        """Tell of epochs that were committed and handed on since the last look."""
        with self._watching:
            outcome = self._job.outcome
            epochs = self._job.delivered
            for recovery in self._job.recovered[self._recoveries :]:
                self._recoveries += 1
                said = f"began anew from epoch {outcome.epochs}, for the {ordinal(self._recoveries)} time"
                why = f"workers failed, and others {said}: {recovery.why}"
                self._feed.tell(Progress(outcome.epochs, kind=RECOVERED, decision=why, seconds=recovery.seconds))
            for how in self._job.outcome.rescalings[self._rescalings :]:
                self._rescalings += 1
                seen = Progress(outcome.epochs, kind=MOVED, decision=str(how), seconds={"total": how.seconds})
                self._feed.tell(seen.more(moves=how.groups, bytes=how.bytes, in_place=how.in_place))
            if epochs and (self.last_progress is None or self.last_progress.batch < epochs):
                self._feed.tell(self._progress(epochs))

    def _progress(self, epochs: int) -> Progress:
        """What was done when an epoch was committed; counts are since these workers began.

        Late rows are partials of rows where a policy splits keys. `restarts` are generations of workers that failed.
        """
        metrics = {**self._job.outcome.metrics, **self._job.metrics}

        def total(operator: str, what: str) -> int:
            return sum(one[what] for name, one in metrics.items() if name.rpartition("#")[0] == operator)

        times = [
            one["watermark"]
            for name, one in metrics.items()
            if name.rpartition("#")[0] == AGGREGATE and one["watermark"] is not None
        ]
        known = [at for at in times if MIN_WATERMARK < at < MAX_WATERMARK]
        refused = total(SOURCE, "refused")
        behind = [one["behind"] for name, one in metrics.items() if name.rpartition("#")[0] == SOURCE]
        lags = [one and one["lag"] for one in behind] or [None]
        return Progress(
            epochs,
            rows=total(SOURCE, "rows_out") - total(LETTERS, "rows_in"),
            late_rows=total(AGGREGATE, "refused"),
            bad_rows={"refused": refused} if refused else {},
            results=total(SINK, "rows_in"),
            watermark=instant_text(min(known)) if known else None,
            seconds={"total": time.monotonic() - self._begun},
            kind=EPOCH,
            details=self._details() | ({"lag": sum(lags)} if None not in lags else {}),
        )

    def _details(self) -> dict[str, Any]:
        """What these workers alone tell; checkpoints that were taken while rows came, over all generations."""
        outcome = self._job.outcome
        known: dict[str, Any] = {"restarts": outcome.restarts, "state_bytes": self._job.state_bytes}
        if outcome.checkpoints.taken:
            known |= {
                "checkpoints": dict(outcome.checkpoints.taken),
                "checkpoint_bytes": outcome.checkpoints.bytes,
                "log_bytes": outcome.checkpoints.log_bytes,
                "stood_seconds": outcome.checkpoints.stood,
            }
        return known


class GroupQuery(StayingQuery):
    """What `Stream.start()` gives on groups of batches, whose job tells by itself what happens."""

    engine: ClassVar[str] = "groups"

    @property
    def _committed(self) -> int:
        return int(self._job.committed) - 1


def _own(error: BaseException, name: str) -> BaseException:
    """Bad rows and mistakes of the program, as the micro-batch engine reports them; other errors as they are."""
    if str(error).startswith(f"{name}, "):  # a sink's, which knows the epoch
        return error
    for kind in (BadRowError, BatchError):
        _, found, said = str(error).partition(f"{kind.__name__}: ")
        if isinstance(error, SteelyardError) and (found or isinstance(error, kind)):
            return kind(f"{name}: {said or error}")
    return error
