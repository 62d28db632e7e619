"""The resident engine inside Spark: one barrier job, whose tasks supervise the workers.

Spark starts the tasks, spreads them over the cluster, and ends them. Each is a supervisor, which forks a worker for
each generation, so that a worker that dies costs no new job. The dataflow and the job's secret reach the tasks in
Spark's own closure: whatever protects that (`spark.authenticate`, encryption) protects them.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import BarrierTaskContext, inheritable_thread_target
from pyspark.sql import SparkSession

from steelyard.core import OptionError
from steelyard.core.dataflow import Dataflow
from steelyard.core.topology import Placement
from steelyard.resident.child import open_sockets
from steelyard.resident.jobs import Job, Results
from steelyard.resident.launchers import FAILED_SECONDS, LEAVE_SECONDS, SupervisedLauncher
from steelyard.resident.peers import Address
from steelyard.resident.security import Credentials, Tls
from steelyard.resident.settings import Settings
from steelyard.resident.supervision import Supervision
from steelyard.resident.supervisor import Supervisor
from steelyard.resident.worker import Worker
from steelyard.spark.classic import require_classic

log = logging.getLogger(__name__)


class SparkLauncher(SupervisedLauncher):
    """Workers as processes of the tasks of a barrier job.

    Parameters
    ----------
    spark
        A session with a free slot for each worker, and without dynamic allocation, which barrier jobs forbid.
    kind
        What a worker is: something that is made as a `Worker` is.
    """

    def __init__(self, spark: SparkSession, kind: Any = Worker) -> None:
        super().__init__(kind)
        self._session, self._context = spark, spark.sparkContext
        self._thread: threading.Thread | None = None
        self._group = ""
        self._advertised = "127.0.0.1" if _is_local(spark) else plain_host(str(spark.conf.get("spark.driver.host")))
        bound = spark.conf.get("spark.driver.bindAddress", None)
        self.host = self._advertised if bound is None or _is_local(spark) else plain_host(bound)
        """The interface that Spark's own driver uses."""

    def reached(self, address: Address) -> Address:
        """By the name of Spark's driver."""
        return self._advertised, address[1]

    def _start(self, gang: Supervision, given: Any, credentials: Credentials) -> None:
        """Submit the barrier job, in a thread of its own: it ends when no other generation can follow."""
        workers, task = gang.workers, _task(self._kind, given, credentials, gang.number, self.reached(gang.address))
        self._group = f"steelyard-{uuid.uuid4().hex}"

        def submit() -> None:
            self._context.setJobGroup(self._group, f"{given.name}, {workers} workers", interruptOnCancel=True)
            try:
                ends = self._context.parallelize(range(workers), workers).barrier().mapPartitions(task).collect()
            except Exception as error:  # noqa: BLE001 - whatever Spark raises, the coordinator must not wait
                gang.lose(f"Spark ended the workers: {_first_line(error)}")
            else:
                for why in filter(None, ends):
                    log.info("a supervisor ended: %s", why)
                    gang.lose(why)

        self._thread = threading.Thread(
            target=inheritable_thread_target(self._session)(submit), name=self._group, daemon=True
        )
        self._thread.start()

    def _end(self, failed: bool) -> None:
        """Wait until Spark has all slots back; a task that does not end is cancelled.

        After a failure Spark would go on to run the stage again, for supervisors that nobody awaits.
        """
        if self._thread is not None:
            self._thread.join(FAILED_SECONDS if failed else LEAVE_SECONDS)
            if self._thread.is_alive():
                self._context.cancelJobGroup(self._group)
                self._thread.join()

    def require(self, workers: int) -> None:
        """OptionError where a barrier job of so many tasks cannot run."""
        require_barrier(self._session, workers)


def _task(
    kind: Any, given: Any, credentials: Credentials, gang: int, launcher: Address
) -> Callable[[Iterable[Any]], Iterator[str]]:
    def supervise(_: Iterable[Any]) -> Iterator[str]:
        context = BarrierTaskContext.get()
        number = context.partitionId()
        host = plain_host(context.getTaskInfos()[number].address.rpartition(":")[0]) or "127.0.0.1"
        supervisor = Supervisor(number, kind, given, credentials, host, gang, foreign=open_sockets())
        # raised, it would make Spark run the stage again, and whoever started this decides that himself
        yield supervisor.run(launcher)

    return supervise


def plain_host(host: str) -> str:
    """A host as sockets want it: Spark writes IPv6 addresses in brackets.

    >>> plain_host("[::1]"), plain_host("10.0.0.7")
    ('::1', '10.0.0.7')
    """
    return host.removeprefix("[").removesuffix("]")


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local[")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def run(
    spark: SparkSession,
    dataflow: Dataflow,
    *,
    workers: int = 2,
    placement: Placement | None = None,
    settings: Settings | None = None,
    tls: Tls | None = None,
) -> Results:
    """Run a dataflow in the tasks of a Spark barrier job, to its end.

    Parameters
    ----------
    spark
        A session with at least `workers` slots that are free.
    dataflow
        What to run.
    workers
        How many tasks; instance i of every operator is on worker i mod `workers`, unless there is a `placement`.
    placement
        Which worker hosts which instance.
    settings
        Snapshots (in a folder that all executors see), heartbeats, restarts.
    tls
        Certificates, for connections that are encrypted; their files are there on every machine.
    """
    made = job(spark, dataflow, workers=workers, placement=placement, settings=settings, tls=tls)
    return Results(dataflow, made.run(), made.whole())


def job(
    spark: SparkSession,
    dataflow: Dataflow,
    *,
    workers: int = 2,
    placement: Placement | None = None,
    settings: Settings | None = None,
    tls: Tls | None = None,
) -> Job:
    """The same, not yet running: its `run` may be called in a thread, and its `stop` from elsewhere."""
    where = placement or Placement.spread(dataflow, workers)
    require_barrier(spark, where.workers)
    return Job(dataflow, where, SparkLauncher(spark), settings, Credentials.new(tls))


def require_barrier(spark: SparkSession, workers: int) -> None:
    """OptionError where a session cannot run so many workers as one barrier job."""
    require_classic(spark, "a job of resident workers")
    slots = spark.sparkContext.defaultParallelism
    if _is_local(spark) and workers > slots:
        raise OptionError(
            f"{workers} workers need as many slots, and {spark.sparkContext.master} has {slots}: "
            f"start Spark with local[{workers}], or give fewer workers"
        )
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        raise OptionError(
            "spark.dynamicAllocation.enabled is true, and barrier jobs do not go with it: set it to false"
        )
