"""Other exact similarity joins on Spark, to measure ours against: cross join, ClusterJoin, and a broadcast side.

All of them join by the angular distance. Rows have a bigint `id` and a `vector` of doubles, and may have a bigint
`window`: then only records of the same window meet. That makes each of them a join of micro-batches as well, where
a batch holds whole windows (`each_batch`). Without a right side, rows are joined with themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from steelyard.core.errors import OptionError
from steelyard.similarity import Members, Rows, SpacePartitions, WindowJoin, metric
from steelyard.similarity.members import LEFT, OUTER, OUTLIER, RIGHT, SELF

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CELLS = 500
"""Virtual partitions of ClusterJoin, in its own paper and in the dissertation."""
FORMS = ("unrolled", "float_first", "zip_with")
"""Ways to write a scalar product in Spark SQL; see `cross_join`."""
FLOAT_ERROR = 1e-4
"""More than what single precision adds to a scalar product of unit vectors, up to some hundred dimensions."""
PAIRS = "left_id bigint, right_id bigint, window bigint, distance double"
ROUTED = "cell int, outer boolean, side tinyint, id bigint, window bigint, vector array<double>"
ANGULAR = "angular"

Batches = Iterator[pa.RecordBatch]
Join = Callable[["DataFrame"], "DataFrame"]


def cross_join(left: DataFrame, right: DataFrame | None, t: float, dimension: int, form: str = "zip_with") -> DataFrame:
    """Every pair is compared, by functions of Spark SQL alone.

    Vectors are normalised once; a pair matches where the scalar product is at least cos(pi t).

    Parameters
    ----------
    left, right
        The rows.
    t
        Threshold distance.
    dimension
        Of the vectors.
    form
        `"zip_with"`: `aggregate(zip_with(...))`, for any dimension; Spark interprets it. `"unrolled"`: coordinates
        as columns and their products summed one by one, which Spark compiles; for few dimensions. `"float_first"`:
        `vector_inner_product` in single precision, and `zip_with` where that comes near the threshold.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415 - loads Spark

    if form not in FORMS:
        raise OptionError.unknown("form", form, FORMS)
    a, b = (_units(rows, dimension, form, letter) for rows, letter in ((left, "a"), (right or left, "b")))
    product = _product(dimension, form)
    near = product >= F.lit(math.cos(math.pi * t))
    if form == "float_first":
        loose = math.cos(math.pi * t) - FLOAT_ERROR
        near = (F.vector_inner_product("a_float", "b_float") >= F.lit(loose).cast("float")) & near
    if "window" in left.columns:
        near = (F.col("a_window") == F.col("b_window")) & near
    if right is None:
        near = (F.col("a_id") < F.col("b_id")) & near
    window = F.col("a_window") if "window" in left.columns else F.lit(0).cast("bigint")
    return (
        a.crossJoin(F.broadcast(b))
        .where(near)
        .select(
            F.col("a_id").alias("left_id"),
            F.col("b_id").alias("right_id"),
            window.alias("window"),
            (F.acos(F.least(F.greatest(product, F.lit(-1.0)), F.lit(1.0))) / F.lit(math.pi)).alias("distance"),
        )
    )


def _units(rows: DataFrame, dimension: int, form: str, letter: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: PLC0415

    length = F.sqrt(F.aggregate("vector", F.lit(0.0), lambda total, x: total + x * x))
    unit = F.transform("vector", lambda x: x / length)
    columns: list[Column] = [F.col("id").alias(f"{letter}_id")]
    if "window" in rows.columns:
        columns.append(F.col("window").alias(f"{letter}_window"))
    if form == "unrolled":
        columns += [(F.col("vector")[k] / length).alias(f"{letter}_{k}") for k in range(dimension)]
    else:
        columns.append(unit.alias(f"{letter}_unit"))
    if form == "float_first":
        columns.append(unit.cast("array<float>").alias(f"{letter}_float"))
    return rows.select(*columns)


def _product(dimension: int, form: str) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415

    if form == "unrolled":
        return reduce(add, [F.col(f"a_{k}") * F.col(f"b_{k}") for k in range(dimension)])
    products = F.zip_with("a_unit", "b_unit", lambda x, y: x * y)
    return F.aggregate(products, F.lit(0.0), lambda total, x: total + x)


def cluster_join(
    left: DataFrame,
    right: DataFrame | None,
    t: float,
    dimension: int,
    *,
    tasks: int,
    cells: int = CELLS,
    seed: int = 42,
) -> DataFrame:
    """ClusterJoin: records go to the cell of the nearest centroid, and to cells that may hold a match of them.

    One shuffle by cell; inside a cell inner records meet inner and outer ones. Centroids, routing rule and distance
    kernels are those of our join; there are no worksets, no free pairs and no balancing.

    Parameters
    ----------
    left, right, t, dimension
        See `cross_join`.
    tasks
        How many tasks join cells.
    cells, seed
        Number of virtual partitions, and the seed of their centroids.
    """
    measure = metric(ANGULAR)
    space = SpacePartitions.random(cells, dimension, measure, t, seed)
    sent = left.sparkSession.sparkContext.broadcast(space.centroids)

    def route(parts: Batches) -> Batches:
        shared = SpacePartitions(sent.value, measure, t)
        for part in parts:
            records, _ = measure.records(part.column("vector"), dimension)
            routed = shared.route(records)
            chosen = pa.array(routed.record)
            copies = [part.column(name).take(chosen) for name in ("side", "id", "window", "vector")]
            cell, outer = pa.array(routed.partition, pa.int32()), pa.array(routed.outer)
            yield pa.RecordBatch.from_arrays(
                [cell, outer, *copies], names=["cell", "outer", "side", "id", "window", "vector"]
            )

    rows = _both(left, right)
    routed = rows.mapInArrow(route, ROUTED).repartition(tasks, "cell")
    return routed.mapInArrow(_joiner(t, dimension, right is None), PAIRS)


def _joiner(t: float, dimension: int, self_join: bool) -> Callable[[Batches], Batches]:
    measure = metric(ANGULAR)

    def work(parts: Batches) -> Batches:
        batches = [part for part in parts if part.num_rows]
        if not batches:
            return
        cells = pa.Table.from_batches(batches)
        window = cells.column("window").to_numpy()
        records, _ = measure.records(cells.column("vector"), dimension)
        rows = Rows(
            cells.column("id").to_numpy(), cells.column("side").to_numpy(), np.column_stack([window, window]), records
        )
        # An outlier is compared with everybody, an outer member with everybody else: that is inner and outer here.
        roles = np.where(cells.column("outer").to_numpy(), OUTER, OUTLIER).astype(np.int8)
        join = WindowJoin(measure, t, self_join=self_join)
        found = join.add(Members(cells.column("cell").to_numpy().astype(np.int64), roles, rows))
        yield _pairs(found.left, found.right, found.window, found.distance)

    return work


def broadcast_join(left: DataFrame, right: DataFrame | None, t: float, dimension: int) -> DataFrame:
    """Every record of the left side is compared with all of the right one, which goes to every task as a whole.

    With the distance kernels of our join: what brute force can do at its best, as long as one side fits. `right` is
    fetched to the driver at once; without it, `left` is.
    """
    measure = metric(ANGULAR)
    small = _both(right if right is not None else left, None).select("id", "window", "vector").toArrow()
    small = small.sort_by("window")
    vectors, _ = measure.records(small.column("vector"), dimension)
    context = left.sparkSession.sparkContext
    sent = context.broadcast((small.column("id").to_numpy(), small.column("window").to_numpy(), vectors))
    self_join = right is None

    def work(parts: Batches) -> Batches:
        ids, windows, others = sent.value
        for part in parts:
            records, _ = measure.records(part.column("vector"), dimension)
            all_mine, window = part.column("id").to_numpy(), part.column("window").to_numpy()
            for one in np.unique(window).tolist():
                here, (low, high) = window == one, np.searchsorted(windows, [one, one + 1])
                i, j, distance = measure.within(records[here], others[low:high], t)
                mine, theirs = all_mine[here][i], ids[low:high][j]
                meet = mine < theirs if self_join else np.ones(len(i), dtype=bool)
                yield _pairs(mine[meet], theirs[meet], np.full(int(meet.sum()), one), distance[meet])

    return _both(left, None).select("id", "window", "vector").mapInArrow(work, PAIRS)


def each_batch(join: Join, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """A join as a function for `foreachBatch`: the pairs of each micro-batch, which must hold whole windows."""

    def work(batch: DataFrame, number: int) -> None:
        kept = batch.persist()  # both sides of a cross join read it
        try:
            write(join(kept), number)
        finally:
            kept.unpersist()

    return work


def _both(left: DataFrame, right: DataFrame | None) -> DataFrame:
    """One DataFrame of both sides: side, id, window and vector."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    def side(rows: DataFrame, number: int) -> DataFrame:
        window = F.col("window") if "window" in rows.columns else F.lit(0)
        return rows.select(
            F.lit(number).cast("tinyint").alias("side"), "id", window.cast("bigint").alias("window"), "vector"
        )

    return side(left, SELF) if right is None else side(left, LEFT).union(side(right, RIGHT))


def _pairs(left: Any, right: Any, window: Any, distance: Any) -> pa.RecordBatch:
    columns = [pa.array(column) for column in (left, right, window, distance)]
    return pa.RecordBatch.from_arrays(columns, names=["left_id", "right_id", "window", "distance"])
