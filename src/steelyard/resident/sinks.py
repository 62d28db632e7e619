"""Where results go. What an epoch gave is seen when the snapshot that ends it is durable, where a sink can wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.resident.operator import Batches, InstanceContext, OperatorLogic, State, Step

_STAGED = "_staged-"
"""Begins the name of a file that is not committed; readers of Parquet folders leave such files out."""
_PART = re.compile(r"epoch-(\d+)-part-(\d+)\.parquet")


class SinkLogic(OperatorLogic):
    """An operator that nothing comes out of."""

    kind: ClassVar[str] = "sink"
    emits = False

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that it takes."""
        return inputs[0]


@dataclass(frozen=True)
class Memory(SinkLogic):
    """Keeps rows in the process that runs the dataflow; exactly once: each epoch's rows are seen once."""

    def start(self, context: InstanceContext) -> Step:
        """Sends batches to the coordinator."""
        return _MemoryStep(context)


class _MemoryStep(Step):
    def __init__(self, context: InstanceContext) -> None:
        self._deliver = context.deliver

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._deliver(batch)
        return ()


@dataclass(frozen=True)
class Callback(SinkLogic):
    """Calls a function with each batch, in the worker, as it comes; at least once: after a failure, some again."""

    function: Callable[[pa.RecordBatch], object]

    def start(self, context: InstanceContext) -> Step:
        """Calls the function."""
        return _CallbackStep(self.function)


class _CallbackStep(Step):
    def __init__(self, function: Callable[[pa.RecordBatch], object]) -> None:
        self._function = function

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._function(batch)
        return ()


@dataclass(frozen=True)
class Parquet(SinkLogic):
    """Writes Parquet files, one for each epoch and instance; exactly once.

    A file is written under a hidden name when its epoch ends, and gets its own name when the snapshot that
    ended the epoch is durable. After a failure, files of epochs that did not come so far are removed.
    """

    path: str

    def start(self, context: InstanceContext) -> Step:
        """Writes the part of one instance."""
        return _ParquetStep(Path(self.path), context)


class _ParquetStep(Step):
    def __init__(self, folder: Path, context: InstanceContext) -> None:
        self._folder, self._part, self._schema = folder, context.instance.number, context.schema
        self._rows: list[pa.RecordBatch] = []
        self._folder.mkdir(parents=True, exist_ok=True)

    def _name(self, epoch: int) -> str:
        return f"epoch-{epoch:06d}-part-{self._part:04d}.parquet"

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._rows.append(batch)
        return ()

    def snapshot(self, epoch: int) -> State:
        if self._rows:
            table = pa.Table.from_batches(self._rows, self._schema)
            pq.write_table(table, self._folder / (_STAGED + self._name(epoch)))
            self._rows = []
        return {"epoch": epoch}

    def restore(self, state: State) -> None:
        """Called in every generation, with no state in the first."""
        self._publish(int(state["epoch"]) if state else 0)
        for _, file in self._staged():  # of epochs whose snapshot did not become durable
            file.unlink()

    def committed(self, epoch: int) -> None:
        self._publish(epoch)

    def _publish(self, epoch: int) -> None:
        for number, file in self._staged():
            if number <= epoch:
                file.rename(self._folder / self._name(number))

    def _staged(self) -> list[tuple[int, Path]]:
        found = []
        for file in self._folder.glob(f"{_STAGED}*"):
            name = _PART.fullmatch(file.name.removeprefix(_STAGED))
            if name and int(name[2]) == self._part:
                found.append((int(name[1]), file))
        return sorted(found)
