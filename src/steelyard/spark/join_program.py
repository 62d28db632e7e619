"""What the tasks of a similarity join are told: the program, the batch, and what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.similarity import Metric, Windows
from steelyard.similarity.members import split_key
from steelyard.similarity.placed import ROOM
from steelyard.similarity.splitting import Splits
from steelyard.spark.join_state import MIN_WATERMARK, Left, Segment

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class JoinProgram:
    """What a similarity join computes; goes to every task.

    Parameters
    ----------
    metric, t
        The metric, and the threshold distance.
    self_join
        Whether one stream is joined with itself.
    windows
        Time windows in microseconds; None where the whole of a static join is one.
    parts, workers
        Space partitions, and workers.
    dimension
        Of the vectors; None where records have none.
    balanced_ids, retire_after, crowd, max_bytes, distances, room
        Options of `Formulation` and `WindowJoin`.
    """

    metric: Metric
    t: float
    self_join: bool
    windows: Windows | None
    parts: int
    workers: int
    dimension: int | None = None
    balanced_ids: bool = False
    retire_after: int | None = None
    crowd: int | None = None
    max_bytes: int | None = None
    distances: bool = True
    room: int | None = ROOM

    def splits(self, cut: Mapping[int, int]) -> Splits:
        """Worksets that are cut, each into so many parts."""
        splits = Splits(self_join=self.self_join)
        for workset, parts in cut.items():
            splits.cut(workset, parts)
        return splits

    def workers_of(self, worksets: Ints, assignment: Mapping[int, int]) -> Ints:
        """The worker of each workset: where it was sent, or where it was made; pieces of one are dealt out."""
        keys, place = np.unique(worksets, return_inverse=True)
        partition, _, piece = split_key(keys)
        home = (partition + piece) % self.workers
        here = [assignment.get(key, at) for key, at in zip(keys.tolist(), home.tolist(), strict=True)]
        return np.asarray(here, dtype=np.int64)[place]

    def windows_of(self, times: Ints) -> Ints:
        """int64[n, 2]: the first and last window of each time."""
        return self.windows.of(times) if self.windows else np.zeros((len(times), 2), dtype=np.int64)

    def closed_by(self, watermark: int) -> int:
        """The last window that has ended at a watermark."""
        assert self.windows is not None, "only streams have a watermark"
        return (watermark - self.windows.length) // self.windows.step


@dataclass(frozen=True)
class Run:
    """One try of one batch.

    Parameters
    ----------
    batch
        Its number.
    name
        The folder of its files; empty where nothing is kept.
    root
        The join's folder under the checkpoint.
    closed
        The last window that had ended before the batch.
    strict
        Whether a task fails at the first bad row; else bad ones are counted.
    """

    batch: int = 0
    name: str = ""
    root: str = ""
    closed: int = MIN_WATERMARK
    strict: bool = False


@dataclass(frozen=True)
class Kept:
    """The records that workers have, and the worksets that left them."""

    records: Mapping[int, tuple[Segment, ...]]
    left: Mapping[int, tuple[Left, ...]]
