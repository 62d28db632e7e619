"""`steelyard.what_if`: what a query or job that has run would do on other numbers of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.core.control import Observation
from steelyard.core.dataflow import Dataflow
from steelyard.core.errors import OptionError, kind_of
from steelyard.resident.jobs import Job, Results
from steelyard.sim.hardware import Network
from steelyard.sim.scenario import INSTANT
from steelyard.sim.what_if import PLACEMENTS, Ran, WhatIf
from steelyard.sim.what_if import what_if as asked
from steelyard.spark.resident_query import ResidentQuery


def what_if(
    ran: Any,
    machines: int | Sequence[int],
    *,
    placements: Sequence[str] = tuple(PLACEMENTS),
    cores: float | None = None,
    parallelism: Mapping[str, int] | None = None,
    rate: float | None = None,
    network: Network = INSTANT,
) -> WhatIf:
    """What a resident query or job would do on other machines, from what was measured while it ran.

    The answer is a table: the highest throughput and what bounds it, latencies at the present rate, and what the
    machines cost, for each number of machines and each placement.

    Parameters
    ----------
    ran
        What ran, or still does: a query with `.engine("resident")`, a `Job`, or the `Results` of `run`.
    machines
        How many there would be, each with one worker: `(2, 4, 8)`.
    placements
        `spread`: instance i of every operator on machine i; `dealt`: all instances to the machines in turn.
    cores
        Of each machine; by default a worker's share, all workers being taken to be on one machine: give it where each
        has its own.
    parallelism
        Instances by operator, `{"count": 8}`; the others get as many for each machine as now.
    rate
        Rows per second at which latencies are asked; by default what all sources read now.
    network
        What a row costs between machines beside what was measured; workers of one machine measured little of that.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from steelyard import count
    >>> from steelyard.resident import Flow, Memory, Rows, run
    >>> flow = Flow("words")
    >>> words = flow.source(Rows(pa.table({"word": 500 * ["a", "b", "c", "d"]})), parallelism=2)
    >>> _ = words.key_by("word").aggregate(n=count(), emit="end", parallelism=2).sink(Memory())
    >>> found = what_if(run(flow.dataflow(), workers=2), machines=[2, 4], cores=2)
    >>> [(one.machines, one.placement, one.instances) for one in found.answers]
    [(2, 'spread', 6), (2, 'dealt', 6), (4, 'spread', 12), (4, 'dealt', 12)]
    """
    numbers = [machines] if isinstance(machines, int) else list(machines)
    dataflow, seen = measured(ran)
    return asked(Ran(dataflow, seen, network), numbers, placements, cores=cores, parallelism=parallelism, rate=rate)


def measured(ran: Any) -> tuple[Dataflow, Observation]:
    """The dataflow of what ran, and what was measured of it since its newest workers began."""
    job = ran._job if isinstance(ran, ResidentQuery) else ran
    if not isinstance(job, Job | Results):
        raise OptionError(
            f"what_if takes a resident query, a Job or the Results of run, got {kind_of(ran)}: what its instances do "
            "is not measured. Give the query .engine('resident'), or describe it as a steelyard.sim.Scenario"
        )
    seen = job.whole if isinstance(job, Results) else job.whole()
    if seen is None or not any(one.processed_per_second for one in seen.operators):
        raise OptionError(f"{job.dataflow.name!r} has not run yet, or not long enough to be measured: ask when it has")
    return job.dataflow, seen
