"""Batches on resident workers, scheduled in groups and ahead of time: Prompt+ without a Spark job per batch.

The driver sends each worker one message for a group of batches, and the next group before the current one ends;
workers run what they were told of as its blocks come, and tell each other when parts are ready. A change of plan
reaches batches that are not cut yet, in the middle of a group.

A. S. Abdelhamid, Efficient Distributed Processing over Micro-batched Data Streams, Purdue 2021, chapter 3.
"""

from steelyard.resident.groups.commits import Keeping
from steelyard.resident.groups.job import GroupJob, run_batches
from steelyard.resident.groups.outcome import GroupOutcome, PlanChange
from steelyard.resident.groups.plan import ExecutionPlan
from steelyard.resident.groups.program import BatchProgram, Scheduling
from steelyard.resident.groups.worker import GroupWorker

__all__ = [
    "BatchProgram",
    "ExecutionPlan",
    "GroupJob",
    "GroupOutcome",
    "GroupWorker",
    "Keeping",
    "PlanChange",
    "Scheduling",
    "run_batches",
]
