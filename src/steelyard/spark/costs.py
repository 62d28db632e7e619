"""Rows of a batch spread over tasks by what the map function will take for them, by Online Shuffle Grouping.

Tasks that run the map function measure it, and count in the two matrices of OSG what the values of a column take. The
driver adds the matrices of all tasks up, sends them out with the next batch, and keeps them in the checkpoint. Tasks
that read the next batch are schedulers, one for each source partition: they send each row to the block that they have
given the least estimated time. A block is no machine that might be slower than others, so all tasks share one pair of
matrices; and nothing is synchronised, since every batch begins with empty blocks.
"""

from __future__ import annotations

import base64
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from steelyard.core import OptionError, State
from steelyard.core.counts import Ints
from steelyard.core.policies import Blocks
from steelyard.grouping import OSG, CompiledGrouping, Matrices, TimeSplitter, grouping, grouping_names
from steelyard.grouping.rules import NEVER
from steelyard.grouping.slicing import Slicer
from steelyard.spark.placement import is_determinate, key_hash
from steelyard.spark.routing import packed, unpacked
from steelyard.spark.rows import BLOCK, quoted
from steelyard.spark.tasklog import Entry

ITEM = "__item"
"""The column of what costs depend on, as a 64-bit hash."""
COSTS = "costs"
"""Under which a map task reports its matrices."""
KEPT = 0.8
"""Share of what is known that stays with every batch, so that costs may change."""


def cost_policy(policy: Any) -> OSG | None:
    """OSG, where a policy or its name says so; None for anything that is no grouping.

    >>> cost_policy("osg?cost_of=customer").cost_of
    'customer'
    >>> cost_policy("prompt")
    """
    if isinstance(policy, str):
        name, mark, parameters = policy.partition("?")
        known = {one.replace("_", ""): one for one in grouping_names()}
        meant = known.get(name.lower().replace("_", "").replace("-", ""))  # roundrobin is round_robin
        if meant is None or (meant == OSG.name and name != meant):
            return None
        policy = f"{meant}{mark}{parameters}"
    elif not isinstance(policy, CompiledGrouping):
        return None
    made = grouping(policy)
    if not isinstance(made, OSG):
        raise OptionError(
            f"partition_by: {made.name!r} is a grouping of resident workers, for shuffle(...) there; batches have "
            "'shuffle', which deals rows in turn, and 'osg?cost_of=column', which goes by what rows cost"
        )
    if not made.cost_of:
        raise OptionError("partition_by: osg learns costs by the values of a column: 'osg?cost_of=customer'")
    return made


class CostPartitioners:
    """What a query knows about costs, and rows placed by it.

    Parameters
    ----------
    policy
        Its sketch; windows and clocks have no meaning in batches.
    """

    def __init__(self, policy: OSG) -> None:
        self.policy = dataclasses.replace(policy, window=NEVER, resync=0)
        self.cells = np.zeros((*policy.sketch_shape, 2))
        self.totals = np.zeros(2)
        self._sent: Broadcast[bytes] | None = None

    def placed(self, rows: DataFrame, blocks: int) -> DataFrame:
        """`rows` in `blocks` partitions, by estimated cost; adds `__item`."""
        if self._sent is not None:  # of a batch that is over
            self._sent.destroy()
        self._sent = rows.sparkSession.sparkContext.broadcast(packed(self.state()))
        if not is_determinate(rows):  # a task that is run again sees its rows in the same order
            rows = rows.sortWithinPartitions(F.xxhash64(*(quoted(name) for name in rows.columns)))
        make: Any = arrow_udf  # its overloads do not know functions with type hints
        where = make(_choosing(self.policy, self._sent, blocks), T.IntegerType()).asNondeterministic()
        marked = rows.withColumn(ITEM, key_hash((self.policy.cost_of,))).withColumn(BLOCK, where(F.col(ITEM)))
        return marked.repartitionById(blocks, BLOCK).drop(BLOCK)

    def learn(self, entries: Mapping[Any, Entry]) -> None:
        """Take in what the map tasks of a batch reported."""
        reported = [unpacked(entry[COSTS]) for entry in entries.values() if COSTS in entry]
        if reported:
            self.cells = KEPT * self.cells + sum(one["cells"] for one in reported)
            self.totals = KEPT * self.totals + sum(one["totals"] for one in reported)

    def state(self) -> State:
        """What is known."""
        return {"cells": self.cells, "totals": self.totals}

    def to_text(self) -> str:
        """As text, for a checkpoint."""
        return base64.b64encode(packed(self.state())).decode()

    def restore(self, text: str) -> None:
        """The inverse of `to_text`."""
        known = unpacked(base64.b64decode(text))
        if known["cells"].shape != self.cells.shape:
            raise OptionError(f"costs in {known['cells'].shape} cells, and here are {self.cells.shape}")
        self.cells, self.totals = np.array(known["cells"]), np.array(known["totals"])


def chosen_blocks(policy: OSG, known: State, items: Iterator[Ints], blocks: int, number: int) -> Iterator[Blocks]:
    """Blocks for the rows of one source partition, one array after the other.

    Partitions begin with different blocks, or small ones would all fill the first.
    """
    scheduler = policy.scheduler(blocks)
    count, spent = known["totals"].tolist()
    if spent > 0.0:
        scheduler.feedback([Matrices(block, known["cells"], count, spent) for block in range(blocks)])
    for some in items:
        yield (scheduler.choose(some).to + number) % blocks


def _choosing(policy: OSG, sent: Broadcast[bytes], blocks: int) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """The function that a task runs over the items of its rows."""

    def choose(parts: Iterator[pa.Array]) -> Iterator[pa.Array]:
        task = TaskContext.get()
        number = task.partitionId() if task else 0
        items = (np.array(part.to_numpy(zero_copy_only=False), dtype=np.int64) for part in parts)
        for found in chosen_blocks(policy, unpacked(sent.value), items, blocks, number):
            yield pa.array(found, pa.int32())

    return choose


class TaskMeter:
    """Measures the map function in one task, slice by slice, and counts what items took.

    Parameters
    ----------
    policy
        Of the query, with a window that never ends.
    """

    def __init__(self, policy: OSG) -> None:
        self._learner = policy.instance(1, 0)
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
            self._learner.executed(mine, self._splitter.split(mine, seconds), np.zeros(size))
            self._slicer.took(size, seconds)
            start += size

    def report(self) -> bytes:
        """The matrices, for the driver."""
        state = self._learner.state()
        return packed({"cells": state["cells"][0], "totals": state["totals"][0]})
