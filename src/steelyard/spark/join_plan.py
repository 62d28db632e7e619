"""A similarity join as Spark's plan, and the columns of its pairs."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from steelyard.similarity.pairblocks import EVERYTHING
from steelyard.similarity.protocol import Shares
from steelyard.similarity.vectors import VectorMetric
from steelyard.spark.arrow import arrow_schema, map_in_arrow
from steelyard.spark.join_program import JoinProgram, Kept, Run
from steelyard.spark.join_reading import dealer, router
from steelyard.spark.join_state import JoinCommit
from steelyard.spark.join_tasks import home_joiner, joiner, placer
from steelyard.spark.placement import is_determinate
from steelyard.spark.tasklog import TaskLog


class Plan:
    """A join as Spark's plan: rows to space partitions, to worksets on workers, to pairs.

    Parameters
    ----------
    rows
        Columns side, id, at (microseconds) and item.
    program
        What is computed, with its dimension known.
    centroids
        Of the space partitions, as a column.
    timed
        Whether pairs have the later time of both records, for their latency.
    """

    def __init__(
        self, rows: DataFrame, program: JoinProgram, centroids: pa.ChunkedArray, *, timed: bool = True
    ) -> None:
        self.program = program
        self.centroids = centroids
        id_type = rows.schema["id"].dataType
        # Vectors travel as bytes: Spark would copy them number by number.
        vectors = isinstance(program.metric, VectorMetric)
        record = T.BinaryType() if vectors else from_arrow_type(as_list(centroids.type))
        carried = [("side", T.ByteType()), ("at", T.LongType()), ("id", id_type), ("record", record)]
        self._routed = fields(
            ("partition", T.IntegerType()), ("outer", T.BooleanType()), ("number", T.LongType()), *carried
        )
        self._placed = fields(
            ("worker", T.IntegerType()),
            ("workset", T.LongType()),
            ("role", T.ByteType()),
            ("number", T.LongType()),
            *carried,
        )
        self.pairs_schema = pairs_schema(program, id_type, timed=timed)

    def pairs(self, rows: DataFrame, commit: JoinCommit, run: Run, log: TaskLog | None) -> DataFrame:
        """The pairs that these rows make, with each other and with what the commit says is kept."""
        program = self.program
        # A task that is asked again must number its rows alike, where files and moves go by the numbers. Where nothing
        # is kept, a pair is found in one task, whatever the numbers.
        if run.name and not is_determinate(rows):
            rows = rows.sortWithinPartitions("at", "side", F.xxhash64("id", "item"))
        kept, pairs = Kept(commit.records, commit.left), arrow_schema(self.pairs_schema)
        join = joiner(program, kept, run, log, pairs)
        if EVERYTHING in commit.assignment:
            deal = dealer(program, commit.assignment, commit.splits, run, log, arrow_schema(self._placed))
            dealt = map_in_arrow(rows, deal, self._placed).repartitionById(program.workers, "worker")
            return map_in_arrow(dealt, join, self.pairs_schema)
        route = router(program, self.centroids, run, log, arrow_schema(self._routed))
        routed = map_in_arrow(rows, route, self._routed).repartitionById(program.parts, "partition")
        if not (commit.assignment or commit.splits) and (program.parts == program.workers or not run.name):
            # Every workset is where it was made: what places its records can join them, and nothing moves again.
            return map_in_arrow(routed, home_joiner(program, commit.geometry, kept, run, log, pairs), self.pairs_schema)
        place = placer(program, commit.geometry, commit.assignment, commit.splits, run, log, arrow_schema(self._placed))
        placed = map_in_arrow(routed, place, self._placed).repartitionById(program.workers, "worker")
        return map_in_arrow(placed, join, self.pairs_schema)


def pairs_schema(program: JoinProgram, id_type: T.DataType, *, timed: bool = True) -> T.StructType:
    """Columns of pairs as tasks give them; `timed` ones have the later time of both records, for their latency."""
    found = [("left_id", id_type), ("right_id", id_type), ("distance", T.DoubleType())]
    if isinstance(program.metric, Shares):  # 1 - distance would be rounded twice
        found.append(("similarity", T.DoubleType()))
    if program.windows is not None:
        found += [(name, T.LongType()) for name in (("window_start", "at") if timed else ("window_start",))]
    return fields(*found)


def shown(pairs: DataFrame, program: JoinProgram, emitted: int | None) -> DataFrame:
    """Pairs as users read them, with their latency if they are `emitted` at this instant, in microseconds."""
    columns = ["left_id", "right_id", "distance"]
    if program.metric.normal:
        shares = isinstance(program.metric, Shares)
        columns.append("similarity" if shares else "1D - distance AS similarity")
    if program.windows is not None:
        columns.append("timestamp_micros(window_start) AS window_start")
        columns.append(f"timestamp_micros(window_start + {program.windows.length}L) AS window_end")
    if emitted is not None:
        columns.append(f"({emitted}L - at) / 1e6D AS latency")
    return pairs.selectExpr(*columns)


def as_list(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for a column of records."""
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)
    return pa.list_(kind.value_type) if lists else kind


def fields(*named: tuple[str, T.DataType]) -> T.StructType:
    """A schema of these columns."""
    return T.StructType([T.StructField(name, kind) for name, kind in named])
