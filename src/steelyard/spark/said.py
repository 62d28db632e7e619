"""What engines of batches say of a batch that has ended."""

from __future__ import annotations

from typing import Any

from steelyard.core import Progress
from steelyard.core.shown import counted
from steelyard.core.worksets import JoinObservation


def batch_progress(batch: int, *, blocks: int, buckets: int, policy: str, **known: Any) -> Progress:
    """Of a batch that was cut into blocks. What it knows beside the fields of any progress:

    - `keys`: distinct ones; where the batch has several panes of windows, a key counts once in each;
    - `blocks`, `buckets`: map and reduce tasks;
    - `policy`: what placed the rows; empty where they stayed in the source's partitions;
    - `placement`: `blocks` where rows were moved as planned, `in_place` where they stayed;
    - `statistics`: where key counts came from: `exact`, `carried` or `none`;
    - `plan`: planned BSI, BCI, KSR, largest_over_mean and split_keys; empty where nothing was planned;
    - `tasks`, `reduce_tasks`: each map task, and each reduce task that runs in Python;
    - `largest_over_mean`: rows of the largest block over the mean, as they really were; 1 where nobody measured;
    - `state_rows`: rows of state that the batch has written.

    Its `seconds` are by phase: `statistics`, `plan`, `process` (place, map, combine, reduce and write the state's log),
    `results` (make and write them), `commit`, and their `total`.
    """
    where = f"in {counted(blocks, 'block')} by {policy}" if policy else "in the source's partitions"
    balance = f", largest/mean {known.get('largest_over_mean', 1.0):.2f}" if policy else ""
    return Progress(batch, words=f"{where}{balance}, {counted(buckets, 'bucket')}").more(
        blocks=blocks, buckets=buckets, policy=policy, placement="blocks" if policy else "in_place", **known
    )


def join_progress(batch: int, *, loads: tuple[float, ...] = (), **known: Any) -> Progress:
    """Of a batch of a similarity join. What it knows beside the fields of any progress:

    - `copies`: records that space partitions got, a record and its copies in partitions near it;
    - `members`, `created`: records that worksets got, and worksets that came into being;
    - `distances`, `comparisons`, `free_pairs`: to centroids; of records with each other; pairs that needed none;
    - `loads`: comparisons and free pairs of each worker in this batch, and their `imbalance`, sum |L - mean L| over
      the mean;
    - `task_seconds`: of each worker's task, waiting for input not counted;
    - `moves`, `splits`, `moved_bytes`: worksets that changed their worker or were cut after this batch; `decision` says
      why, or why not;
    - `state_bytes`: of the records that are kept.

    Its `results` are pairs; one that is in several sliding windows counts once for each.
    """
    counts = dict.fromkeys(_OF_JOINS, 0) | {"task_seconds": ()} | known
    words = f"with {counted(counts['comparisons'], 'comparison')}, {counts['free_pairs']} free"
    return Progress(batch, words=words).more(loads=loads, imbalance=JoinObservation(loads).imbalance, **counts)


_OF_JOINS = (
    "copies",
    "members",
    "created",
    "distances",
    "comparisons",
    "free_pairs",
    "moves",
    "splits",
    "moved_bytes",
    "state_bytes",
)
