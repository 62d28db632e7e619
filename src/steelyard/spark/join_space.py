"""How the records of a similarity join are dealt out: by the space that they lie in, or in blocks of pairs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from steelyard.core import OptionError
from steelyard.similarity import SpacePartitions
from steelyard.similarity.members import to_column
from steelyard.similarity.pairblocks import TRIED, PairBlocks, copies_by_space, copies_by_worksets
from steelyard.similarity.vectors import VectorMetric
from steelyard.spark.arrow import map_in_arrow
from steelyard.spark.join_program import JoinProgram

log = logging.getLogger(__name__)

SAMPLE = 2_000
"""Records of the first batch that centroids are chosen from..."""
FIRST = 200
"""... and those that tell the dimension of vectors, where centroids are random."""


@dataclass(frozen=True)
class Space:
    """The centroids of space partitions, as a column; and how often records would be copied, if that is too often."""

    centroids: pa.ChunkedArray
    copies: float

    @property
    def dimension(self) -> int | None:
        """Length of the vectors, where records are vectors."""
        return dimension_of(self.centroids)


def chosen_space(rows: DataFrame, program: JoinProgram, space: str, seed: int) -> Space | None:
    """The space of a join over such rows; None where there is no record yet."""
    items = rows.select("item").where("item is not null")
    records = None
    if space == "random" and isinstance(program.metric, VectorMetric) and _is_of_numbers(rows.schema["item"].dataType):
        # A few rows will do, and one task without a shuffle gives them.
        first = pa.array([row.item for row in items.take(FIRST)], to_arrow_type(rows.schema["item"].dataType))
        records = _good_records(program, first)
    if records is None:
        sample = items.limit(SAMPLE).toArrow().column("item")
        records = _good_records(program, sample)
    if records is None and len(sample) == SAMPLE:  # however many bad ones come first, there may be good ones behind
        good = map_in_arrow(items, _good_items(program), items.schema)
        records = _good_records(program, good.limit(SAMPLE).toArrow().column("item"))
    if records is None:
        return None
    vectors = isinstance(records, np.ndarray) and records.ndim == 2
    if space == "farthest" or not vectors:
        chosen = SpacePartitions.farthest(records, program.parts, program.metric, program.t, seed)
    elif space == "random":
        chosen = SpacePartitions.random(program.parts, records.shape[1], program.metric, program.t, seed)
    else:
        raise OptionError.unknown("space", space, ("random", "farthest"))
    column = pa.chunked_array([to_column(program.metric, chosen.centroids)])
    tried = program.metric.take(records, np.arange(min(len(records), TRIED)))
    copies = 0.0 if program.crowd is not None else copies_by_worksets(program.metric, program.t, tried)
    return Space(column, copies or copies_by_space(chosen, tried, blocks_of(program)))


def blocks_of(program: JoinProgram) -> PairBlocks:
    """The blocks of pairs of a join."""
    return PairBlocks(program.workers, program.self_join)


def tell_blocks(program: JoinProgram, copies: float) -> None:
    """Say, before it happens, that records are not dealt out by space."""
    log.warning(
        "similarity join by %s: within twice the threshold of %.4g a record has so many others that it would be copied "
        "%.0f times; instead all pairs are compared in blocks, with %d copies of a record (a smaller threshold, or a "
        "greater similarity, needs fewer comparisons)",
        program.metric.name,
        float(program.metric.surface(np.array([program.t]))[0]),
        copies,
        blocks_of(program).parts,
    )


def dimension_of(centroids: pa.ChunkedArray) -> int | None:
    """Length of the vectors, where records are vectors."""
    return int(centroids.type.list_size) if pa.types.is_fixed_size_list(centroids.type) else None


def _good_items(program: JoinProgram) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The rows whose record can be read."""

    def work(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            _, bad = program.metric.records(part.column("item"), program.dimension)
            yield part.filter(pa.array(~bad))

    return work


def _good_records(program: JoinProgram, column: pa.Array | pa.ChunkedArray) -> Any:
    """The records of a column without the bad ones; None where there is not one."""
    records, bad = program.metric.records(column, program.dimension) if len(column) else (None, np.ones(0, dtype=bool))
    return None if bad.all() else program.metric.take(records, np.flatnonzero(~bad))


def _is_of_numbers(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.NumericType)
