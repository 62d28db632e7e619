"""Completion times of rows on resident workers: rows come by the clock, and slots work or wait by their content."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from steelyard.bench import WrongAnswerError
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.resident import Flow, Memory
from steelyard.resident import run as run_here
from steelyard.resident.sources import Read, Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from steelyard.resident import Results

WORKERS = 2
_HEAD_START = 0.1
"""Seconds from the first look at a source to its first row: all instances run by then."""
_DONE = pa.schema({"id": pa.int64(), "due": pa.float64(), "done": pa.float64(), "answer": pa.int64()})

Work = Callable[[str], int]
"""What a slot does for a row: given the row's item, it takes its time and gives an answer."""


@dataclass(frozen=True)
class Clocked(Reader):
    """Rows that come one by one, at even distances, and say when they were due."""

    items: pa.Array
    """What each row is about."""
    apart: float
    """Seconds from one to the next."""
    labels: pa.Array | None = None
    """What else is known of each; by default the same."""
    _cache: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    schema = pa.schema({"id": pa.int64(), "item": pa.string(), "label": pa.string(), "due": pa.float64()})

    def splits(self, parallelism: int) -> list[str]:
        """One for each instance; row n belongs to split n mod their number."""
        self._cache["splits"] = parallelism
        return [str(number) for number in range(parallelism)]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Rows that are due."""
        splits = int(self._cache["splits"])
        begun = self._cache.setdefault("begun", time.time() + _HEAD_START)
        whole = len(range(int(split), len(self.items), splits))
        due = int((time.time() - begun) / self.apart) + 1 if time.time() >= begun else 0
        count = min(rows, whole - offset, len(range(int(split), due, splits)) - offset)
        if count <= 0:
            return Read(None, offset, offset >= whole)
        numbers = int(split) + splits * np.arange(offset, offset + count)
        rows_of = pa.array(numbers)
        items = self.items.take(rows_of)
        labels = items if self.labels is None else self.labels.take(rows_of)
        columns = [rows_of, items, labels, pa.array(begun + numbers * self.apart)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Read(batch, offset + count, offset + count >= whole)


@dataclass(frozen=True)
class Waiting:
    """Work that waits: what a row costs is what its item costs."""

    seconds: dict[str, float]

    def __call__(self, item: str) -> int:
        """Wait."""
        time.sleep(self.seconds[item])
        return round(self.seconds[item] * 1e6)


@dataclass(frozen=True)
class RowByRow:
    """A map function that works row by row, and says when each was done."""

    work: Work

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their answers."""
        answers, done = [], []
        for item in batch.column("item").to_pylist():
            answers.append(self.work(item))
            done.append(time.time())
        return pa.record_batch([batch.column("id"), batch.column("due"), done, answers], schema=_DONE)


@dataclass(frozen=True, eq=False)
class Completed:
    """What became of the rows of one run."""

    seconds: Floats
    """float64[rows]: from when each was due to when it was done."""
    answers: Ints
    """int64[rows]"""
    executing: float
    """Seconds per row that instances spent on it, sending included."""
    messages: int
    """Reports of instances to those who send."""

    @property
    def mean(self) -> float:
        """Mean completion time, in seconds."""
        return float(self.seconds.mean())


@dataclass(frozen=True)
class Edge:
    """A stream, and the slots that it is shuffled to."""

    items: Sequence[str]
    """What each row is about."""
    work: Work
    """What a slot does for a row."""
    slots: int
    """Instances."""
    senders: int = 1
    """Instances of the source, each a scheduler."""
    labels: Sequence[str] | None = None
    """What else is known of each row; by default the same."""
    spark: SparkSession | None = None
    """Where workers run; without one, in threads of this process."""

    def run(self, grouping: str, apart: float, rows: int | None = None) -> Completed:
        """The first rows of the stream through a grouping, so many seconds apart."""
        flow = Flow(f"rows by {grouping.partition('?')[0]}")
        labels = None if self.labels is None else pa.array(self.labels[:rows])
        reader = Clocked(pa.array(self.items[:rows]), apart, labels)
        source = flow.source(reader, parallelism=self.senders, name="rows")
        worked = source.shuffle(grouping).map(RowByRow(self.work), _DONE, parallelism=self.slots, name="work")
        worked.sink(Memory(), name="done")
        return self._completed(self._run(flow), len(self.items[:rows]))

    def _run(self, flow: Flow) -> Results:
        if self.spark is None:
            return run_here(flow.dataflow(), workers=WORKERS)
        from steelyard.spark import resident  # noqa: PLC0415 - loads Spark

        return resident.run(self.spark, flow.dataflow(), workers=WORKERS)

    def _completed(self, results: Results, rows: int) -> Completed:
        done = results.table("done").sort_by("id")
        if done["id"].to_pylist() != list(range(rows)):
            raise WrongAnswerError(f"{rows} rows were sent, and {done.num_rows} came, not each of them once")
        spent: list[Any] = [one for name, one in results.outcome.metrics.items() if name.startswith("work#")]
        return Completed(
            done["done"].to_numpy() - done["due"].to_numpy(),
            done["answer"].to_numpy(),
            sum(one["busy"] for one in spent) / rows,
            sum(one["reports"] for one in spent),
        )
