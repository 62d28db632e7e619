"""What the map function takes for rows, measured in the tasks that run it, for policies that go by costs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from steelyard.core import Placer
from steelyard.core.hidden import ITEM
from steelyard.grouping import TimeSplitter
from steelyard.grouping.slicing import Slicer
from steelyard.spark.routing import packed


class TaskMeter:
    """Measures the map function in one task, slice by slice, and counts what items took.

    Parameters
    ----------
    policy
        Of the query.
    blocks
        Of the batch; the task's partition is one of them.
    """

    def __init__(self, policy: Placer, blocks: int) -> None:
        task = TaskContext.get()
        self._learner = policy.learner(blocks, task.partitionId() if task else 0)
        self._slicer, self._splitter = Slicer(), TimeSplitter()

    def slices(self, part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in slices without `__item`; what happens until the next one is asked for is its execution."""
        items = np.array(part.column(ITEM).to_numpy(zero_copy_only=False), dtype=np.int64)
        rows = part.drop_columns([ITEM])
        start = 0
        while start < part.num_rows:
            size = self._slicer.size(part.num_rows - start)
            begun = time.perf_counter()
            yield rows.slice(start, size)
            seconds = time.perf_counter() - begun
            mine = items[start : start + size]
            self._learner.executed(mine, self._splitter.split(mine, seconds))
            self._slicer.took(size, seconds)
            start += size

    def report(self) -> bytes:
        """What was learnt, for the driver."""
        return packed(self._learner.state())
