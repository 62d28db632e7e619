"""Prompt's receiver: rows of the open batch are counted as they come, and cut into blocks when it is closed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.plans import BlockPlan
from steelyard.core.policies import Router
from steelyard.partition.accumulator import Accumulated, Accumulator
from steelyard.partition.prompt import Prompt
from steelyard.partition.registry import policy, tuple_policy
from steelyard.resident.groups.program import BatchProgram
from steelyard.resident.routing import key_ids, parted

_MICROS = 1_000_000
MOST_SPLIT = 4096
"""Split keys that are told by name; behind that all keys of a block are treated as split, which is right as well."""


class Cut(NamedTuple):
    """A batch in blocks."""

    blocks: list[pa.RecordBatch]
    """One for each map task; empty ones too."""
    split: Ints | None
    """Ids of keys that may be in several blocks; None where all may."""
    rows: int
    keys: int
    """Distinct keys; 0 where nobody counted."""


class Cutter:
    """Gathers rows, and cuts what it has when it is told to.

    With Prompt's partitioner the keys are counted while rows come, in order of frequency (Algorithm 1), so that
    nothing has to be sorted when the batch is closed.
    """

    def __init__(self, program: BatchProgram) -> None:
        self._program = program
        chosen = policy(program.partitioner)  # type: ignore[arg-type]
        self._prompt = chosen if isinstance(chosen, Prompt) and type(chosen) is Prompt else None
        self._accumulator = Accumulator() if self._prompt is not None and program.cut_by_key else None
        self._router: Router | None = None
        self._clear()

    def _clear(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._ids: list[Ints] = []
        self._rows = 0

    def open(self, start: float, end: float) -> None:
        """A batch of rows that come between these moments, in seconds."""
        self._span = int(start * _MICROS), int(end * _MICROS)
        if self._accumulator is not None:
            self._accumulator.begin(*self._span)

    def add(self, batch: pa.RecordBatch, moment: float) -> None:
        """Rows that have come at a moment; what is late for the batch counts as come at its end."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._program.cut_by_key:
            ids = key_ids(batch, self._program.keys)
            self._ids.append(ids)
            if self._accumulator is not None:
                within = min(max(int(moment * _MICROS), self._span[0]), self._span[1] - 1)
                self._accumulator.add(ids, np.full(len(ids), within, dtype=np.int64))

    def cut(self, blocks: int) -> Cut:
        """Close the batch and cut it into so many blocks."""
        rows = pa.Table.from_batches(self._batches, self._program.source_schema).combine_chunks()
        whole = rows.to_batches()[0] if rows.num_rows else _empty(self._program.source_schema)
        ids = np.concatenate([np.empty(0, np.int64), *self._ids])
        known = self._accumulator.finish() if self._accumulator is not None else None
        self._clear()
        if not self._program.cut_by_key:
            return Cut(_even(whole, blocks), None, whole.num_rows, 0)
        if not len(ids):
            return Cut([whole] * blocks, np.empty(0, np.int64), 0, 0)
        where, split, keys = self._planned(ids, known, blocks) if known is not None else self._routed(ids, blocks)
        cut = [whole.slice(0, 0)] * blocks
        for block, part in parted(whole, where, blocks):
            cut[block] = part
        return Cut(cut, split if split is None or len(split) <= MOST_SPLIT else None, whole.num_rows, keys)

    def _planned(self, ids: Ints, known: Accumulated, blocks: int) -> tuple[Any, Ints, int]:
        from steelyard.kernels.fragments import follow, number_keys  # noqa: PLC0415 - loads a compiler

        assert self._prompt is not None
        plan: BlockPlan = self._prompt.plan_sorted(known.counts, blocks)
        seen, _, numbers = number_keys(ids)
        order = np.argsort(known.ids)
        place = order[np.searchsorted(known.ids, seen, sorter=order)]  # of a key in order of appearance
        starts = np.r_[0, np.cumsum(plan.fragments_of_key)]
        where = follow(place[numbers].astype(np.int32), starts, plan.block, plan.rows)
        return where, known.ids[plan.split], len(seen)

    def _routed(self, ids: Ints, blocks: int) -> tuple[Any, Ints, int]:
        from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - loads a compiler

        if self._router is None or self._router.blocks != blocks:
            self._router = tuple_policy(self._program.partitioner).router(blocks)  # type: ignore[arg-type]
        now = np.full(len(ids), self._span[1] // 1000, dtype=np.int64)  # the same again when a batch is made again
        routed = self._router.route(ids, now)
        seen, _, numbers = number_keys(ids)
        split = np.zeros(len(seen), dtype=np.bool_)
        split[numbers[routed.split]] = True
        return routed.block, seen[split], len(seen)


def _even(rows: pa.RecordBatch, blocks: int) -> list[pa.RecordBatch]:
    bounds = np.linspace(0, rows.num_rows, blocks + 1).astype(int)
    return [rows.slice(bounds[i], bounds[i + 1] - bounds[i]) for i in range(blocks)]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
