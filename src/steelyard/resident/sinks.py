"""Where results go. What an epoch gave is seen when the snapshot that ends it is durable, where a sink can wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from steelyard.core.durable import Described, made, to_disk, written
from steelyard.resident.operator import Attempt, Batches, InstanceContext, OperatorLogic, State, Step
from steelyard.resident.shares import Share

_STAGED = "_staged-"
"""Begins the name of a file that is not committed; readers of Parquet folders leave such files out."""


class SinkLogic(OperatorLogic):
    """An operator that nothing comes out of."""

    kind: ClassVar[str] = "sink"
    by_name: ClassVar[bool] = True
    emits = False
    measured: bool = True
    """Whether percentiles of latency are of what comes here too: not where it is beside the results."""

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that it takes."""
        return inputs[0]


@dataclass(frozen=True)
class Memory(SinkLogic):
    """Keeps rows in the process that runs the dataflow; exactly once: each epoch's rows are seen once.

    Parameters
    ----------
    measured
        Whether percentiles of latency are of these rows too.
    """

    measured: bool = True

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

    A file is written under a hidden name when its epoch ends, forced to disk, and gets its own name when the
    snapshot that ended the epoch is durable. Names carry the attempt that wrote them, and a snapshot has the
    exact names that are to be seen: what a failed attempt left is not, and is removed.
    """

    path: str

    def start(self, context: InstanceContext) -> Step:
        """Writes the part of one instance."""
        return _ParquetStep(Path(self.path), context)

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """Files that are not seen yet, each by one instance."""
        known = [state for state in states if state]
        staged = [file for number in share.taken_over for file in states[number].get("staged", ())]
        return {"staged": staged, "attempt": known[0]["attempt"]} if known else {}


class _ParquetStep(Step):
    def __init__(self, folder: Path, context: InstanceContext) -> None:
        self._folder, self._attempt, self._schema = folder, context.attempt, context.schema
        self._operator, self._number = quote(context.instance.operator, safe=""), context.instance.number
        self._part = f"part-{self._number:04d}-{self._operator}"
        self._parallelism = context.parallelism
        self._rows: list[pa.RecordBatch] = []
        self._staged: list[tuple[int, Described]] = []
        """Files that are not seen yet, and the checkpoint from which on each may be."""
        made(self._folder)

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        self._rows.append(batch)
        return ()

    def snapshot(self, number: int) -> State:
        if self._rows:
            table = pa.Table.from_batches(self._rows, self._schema)
            name = f"epoch-{number:06d}-{self._part}-{self._attempt}.parquet"
            staged = written(self._folder / (_STAGED + name), lambda file: pq.write_table(table, file))
            self._staged.append((number, staged._replace(name=name)))
            self._rows = []
        return {"staged": [file for _, file in self._staged], "attempt": str(self._attempt)}

    def restore(self, state: State) -> None:
        """Called in every generation, with no state where there is no snapshot."""
        staged = list(Described.listed(state.get("staged", ()), self._folder))
        for one in staged:
            where = self._folder / (_STAGED + one.name)
            if not (self._folder / one.name).exists():
                one.require(Described.read(where, one.name) if where.exists() else None, where, "the newest epoch")
        self._publish(staged)
        jobs = {self._attempt.job} | ({Attempt.parse(state["attempt"]).job} if state else set())
        for job in jobs:
            of_job = f"{_STAGED}epoch-*-part-*-{self._operator}-{job}[.-]*.parquet"
            for file in (*self._folder.glob(of_job), *self._folder.glob(f".{of_job}.*")):
                if self._is_heir(file.name):
                    file.unlink(missing_ok=True)  # of epochs whose snapshot did not become durable, or half a file
        if not state:  # nor did any before: a job without a store begins anew
            for file in self._folder.glob(f"epoch-*-{self._part}-{self._attempt.run}-*.parquet"):
                file.unlink(missing_ok=True)

    def _is_heir(self, name: str) -> bool:
        """Whether a file is of this instance, or of one that is gone and has this one as its heir."""
        found = re.search(rf"-part-(\d+)-{re.escape(self._operator)}-", name)
        return found is not None and int(found[1]) % self._parallelism == self._number

    def committed(self, number: int) -> None:
        self._publish([file for at, file in self._staged if at <= number])
        self._staged = [one for one in self._staged if one[0] > number]

    def _publish(self, files: Sequence[Described]) -> None:
        """Show what is staged; an attempt before this one may have shown some of it already."""
        for name, _, _ in files:
            if not (self._folder / name).exists():
                (self._folder / (_STAGED + name)).rename(self._folder / name)
        if files:
            to_disk(self._folder)
