"""Events of a cluster's monitor, with the fields of Google's cluster trace of 2011."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.workloads.draws import Bits, Draws, quantile_table
from steelyard.workloads.ranks import MAX_KEYS, rank_table
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_within
from steelyard.workloads.zipf import MAX_EXPONENT

FIRST_JOB = 3_418_309
"""The trace's job numbers are large; ours begin near its first."""
MACHINES = 12_500
TASKS_PER_JOB = 1_000

EVENT_TYPES = ("SUBMIT", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL")
EVENT_SHARES = (0.34, 0.33, 0.04, 0.09, 0.13, 0.07)
"""About what the trace has: most tasks are submitted and scheduled once, some again after a failure."""
SCHEDULING_CLASS_SHARES = (0.40, 0.30, 0.25, 0.05)
"""Class 0 is least sensitive to latency, class 3 most; jobs of a class are ever rarer."""
PRIORITIES = 12

_NORMAL = NormalDist()
CPU_OF_JOB = quantile_table(lambda p: min(0.5, exp(log(0.03) + 0.8 * _NORMAL.inv_cdf(p))))
MEMORY_OF_JOB = quantile_table(lambda p: min(0.5, exp(log(0.02) + 0.9 * _NORMAL.inv_cdf(p))))
"""Shares of the largest machine, as in the trace."""
NOISE = quantile_table(lambda p: exp(0.3 * _NORMAL.inv_cdf(p)))


@dataclass(frozen=True)
class Cluster(Workload):
    """One task event a row. What a job asks for, its class and its priority stay the same for its life.

    Parameters
    ----------
    jobs
        Jobs that run at the same time, up to 10^7.
    exponent
        Skew of events over jobs, 0 to 4.
    job_rows
        A job ends and another takes its place after so many rows of the stream (not of the job).
    machines
        Number of machines, up to 10^6; the trace has about 12,500.
    seed
        Chooses jobs, tasks, machines and what they use.

    Examples
    --------
    >>> event = Cluster(seed=1).rows(0, 1, np.zeros(1)).to_pylist()[0]
    >>> event["job_id"], event["event_type"], event["scheduling_class"], round(event["cpu"], 4)
    (3418549, 'SCHEDULE', 2, 0.0195)
    """

    jobs: int = 4_000
    exponent: float = 1.0
    job_rows: int = 1_000_000
    machines: int = MACHINES
    seed: int = 0

    name: ClassVar[str] = "cluster"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("event_time", TIMESTAMP),
            ("job_id", pa.int64()),
            ("task_index", pa.int32()),
            ("machine_id", pa.int64()),
            ("event_type", pa.string()),
            ("scheduling_class", pa.int32()),
            ("priority", pa.int32()),
            ("cpu", pa.float64()),
            ("memory", pa.float64()),
        ]
    )

    def __post_init__(self) -> None:
        require_within("jobs", self.jobs, 1, MAX_KEYS)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("job_rows", self.job_rows, 1, float("inf"))
        require_within("machines", self.machines, 1, 1_000_000)

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        job = self._jobs(rows, draws)
        of_job = Draws(self.seed, job.astype(np.uint64))
        tasks = 1 + of_job.integers("tasks", TASKS_PER_JOB)
        kind = np.searchsorted(np.cumsum(EVENT_SHARES)[:-1], draws.uniform("event"), side="right")
        klass = np.searchsorted(np.cumsum(SCHEDULING_CLASS_SHARES)[:-1], of_job.uniform("class"), side="right")
        cpu = of_job.distributed("cpu", CPU_OF_JOB) * draws.distributed("cpu noise", NOISE)
        memory = of_job.distributed("memory", MEMORY_OF_JOB) * draws.distributed("memory noise", NOISE)
        return [
            times,
            FIRST_JOB + job,
            (draws.uniform("task") * tasks).astype(np.int32),
            draws.integers("machine", self.machines),
            pa.array(EVENT_TYPES).take(pa.array(kind)),
            klass.astype(np.int32),
            of_job.integers("priority", PRIORITIES).astype(np.int32),
            np.minimum(cpu, 1.0),
            np.minimum(memory, 1.0),
        ]

    def _jobs(self, rows: Bits, draws: Draws) -> Ints:
        """int64[rows]: a place by Zipf's law, and which of the jobs that follow each other there it is."""
        place = rank_table(self.exponent, self.jobs).ranks(draws.uniform("job"))
        # Places change their job at different moments, else all jobs would end at once.
        age = Draws(self.seed, place.astype(np.uint64)).integers("age", min(self.job_rows, 1 << 32))
        generation = (rows.astype(np.int64) + age) // self.job_rows
        return generation * self.jobs + place
