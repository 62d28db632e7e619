"""Prompt's receiver: rows of the open batch are counted as they come, and cut into blocks when it is closed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core import KeyCounts
from steelyard.core.counts import Ints
from steelyard.core.policies import Buffering, Router
from steelyard.partition.accumulator import Accumulated, Accumulator
from steelyard.partition.registry import policy, tuple_policy
from steelyard.resident.groups.dealing import Share
from steelyard.resident.groups.frames import one_batch
from steelyard.resident.groups.program import BatchProgram
from steelyard.resident.keys import key_ids
from steelyard.resident.routing import parted

_MICROS = 1_000_000
MOST_SPLIT = 4096
"""Split keys that are told by name; behind that all keys of a block are treated as split, which is right as well."""


class Closed(NamedTuple):
    """What a receiver has of a batch that is closed."""

    batches: list[pa.RecordBatch]
    ids: list[Ints] | None
    """Ids of the keys of each; None where nobody wanted them."""
    counted: Accumulated | None
    """The keys, by Algorithm 1."""
    rows: int
    moment: int
    """Its cut-off, in milliseconds."""


class Cut(NamedTuple):
    """A batch in blocks."""

    blocks: dict[int, pa.RecordBatch]
    """By number; empty ones too."""
    split: Ints | None
    """Ids of keys that may be in several blocks; None where all may."""
    rows: int
    keys: int
    """Distinct keys; 0 where nobody counted."""


class Cutter:
    """Gathers rows, and cuts what it has when it is told to; one thread may gather while another cuts.

    For a policy that `buffers` the keys are counted while rows come, in order of frequency (Algorithm 1), so that
    nothing has to be sorted when the batch is closed. Where the last batch was all one block, and nobody asks for the
    number of keys, nothing is counted; should the next batch be cut all the same, that is done then.

    Parameters
    ----------
    program
        What is done with batches.
    counting
        Whether keys are counted in any case.
    blocks
        Blocks that are expected.
    """

    def __init__(self, program: BatchProgram, counting: bool = True, blocks: int = 2) -> None:
        self._program, self._counting = program, counting and program.cut_by_key
        self._expected = blocks
        chosen = policy(program.partitioner)  # type: ignore[arg-type]
        self._planner = chosen if isinstance(chosen, Buffering) and chosen.buffers else None
        self._accumulator = Accumulator()
        self._router: Router | None = None
        self._clear()

    def _clear(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._ids: list[Ints] = []
        self._rows = 0

    def open(self, start: float, end: float) -> None:
        """A batch of rows that come between these moments, in seconds."""
        self._span = int(start * _MICROS), int(end * _MICROS)
        self._identifying = self._counting or (self._program.cut_by_key and self._expected > 1)
        self._ordering = self._identifying and self._planner is not None
        if self._ordering:
            self._accumulator.begin(*self._span)

    def add(self, batch: pa.RecordBatch, moment: float) -> None:
        """Rows that have come at a moment; what is late for the batch counts as come at its end."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._identifying:
            ids = key_ids(batch, self._program.keys)
            self._ids.append(ids)
            if self._ordering:
                within = min(max(int(moment * _MICROS), self._span[0]), self._span[1] - 1)
                self._accumulator.add(ids, np.full(len(ids), within, dtype=np.int64))

    def close(self) -> Closed:
        """What has come; the next batch may be opened."""
        counted = self._accumulator.finish() if self._ordering else None
        ids = self._ids if self._identifying else None
        found = Closed(self._batches, ids, counted, self._rows, self._span[1] // 1000)
        self._clear()
        return found

    def cut(self, closed: Closed, share: Share) -> Cut:
        """Cut a batch into this receiver's blocks, and into what it adds to those of others."""
        self._expected = len(share.whole)
        all_rows = one_batch(pa.Table.from_batches(closed.batches, self._program.source_schema))
        blocks, end = {}, closed.rows
        for block, size in reversed(share.rest):
            end -= size
            blocks[block] = all_rows.slice(end, size)
        alone = share.alone and not share.rest
        keys = self._keys(closed) if self._counting else 0
        whole = all_rows.slice(0, end)
        split = np.empty(0, np.int64)
        if len(share.whole) < 2 or not end:
            blocks |= dict.fromkeys(share.whole, whole)
        elif not self._program.cut_by_key:
            blocks |= dict(zip(share.whole, _even(whole, len(share.whole)), strict=True))
            alone = False
        else:
            where, split, found = self._placed(closed, end, len(share.whole))
            keys = max(keys, found)
            blocks |= dict.fromkeys(share.whole, whole.slice(0, 0))
            for place, part in parted(whole, where, len(share.whole)):
                blocks[share.whole[place]] = part
        named = alone and len(split) <= MOST_SPLIT
        return Cut(blocks, split if named else None, closed.rows, keys)

    @staticmethod
    def _keys(closed: Closed) -> int:
        from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - loads a compiler

        if closed.counted is not None:
            return closed.counted.distinct
        return len(number_keys(np.concatenate([np.empty(0, np.int64), *(closed.ids or [])]))[0])

    def _placed(self, closed: Closed, rows: int, blocks: int) -> tuple[Any, Ints, int]:
        """For the first rows of a batch: block of each row, keys that are in several, and how many keys there are."""
        known = closed.ids
        if known is None:
            known = [key_ids(batch, self._program.keys) for batch in closed.batches]
        ids = np.concatenate([np.empty(0, np.int64), *known])
        if self._planner is None:
            return self._routed(ids[:rows], blocks, closed.moment)
        from steelyard.kernels.fragments import follow, number_keys  # noqa: PLC0415 - loads a compiler

        seen, sizes, numbers = number_keys(ids[:rows])
        if closed.counted is None or rows < closed.rows:
            plan = self._planner.plan(KeyCounts(pa.array(seen, pa.int64()), sizes), blocks)
            place, in_order = np.arange(len(seen)), seen
        else:
            in_order = closed.counted.ids
            plan = self._planner.plan_sorted(closed.counted.counts, blocks)
            order = np.argsort(in_order)
            place = order[np.searchsorted(in_order, seen, sorter=order)]  # of a key in order of appearance
        starts = np.r_[0, np.cumsum(plan.fragments_of_key)]
        where = follow(place.astype(np.int32)[numbers], starts, plan.block, plan.rows)
        return where, in_order[plan.split], len(seen)

    def _routed(self, ids: Ints, blocks: int, moment: int) -> tuple[Any, Ints, int]:
        from steelyard.kernels.fragments import number_keys  # noqa: PLC0415 - loads a compiler

        if self._router is None or self._router.blocks != blocks:
            self._router = tuple_policy(self._program.partitioner).router(blocks)  # type: ignore[arg-type]
        now = np.full(len(ids), moment, dtype=np.int64)  # the same again when a batch is made again
        routed = self._router.route(ids, now)
        seen, _, numbers = number_keys(ids)
        split = np.zeros(len(seen), dtype=np.bool_)
        split[numbers[routed.split]] = True
        return routed.block, seen[split], len(seen)


def _even(rows: pa.RecordBatch, blocks: int) -> list[pa.RecordBatch]:
    bounds = np.linspace(0, rows.num_rows, blocks + 1).astype(int)
    return [rows.slice(bounds[i], bounds[i + 1] - bounds[i]) for i in range(blocks)]
