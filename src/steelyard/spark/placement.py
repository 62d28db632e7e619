"""Put rows into the blocks that a plan says: one projection in the JVM, then `repartitionById`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from steelyard.core import BlockPlan, RowRule
from steelyard.core.hidden import BLOCK, HOME, KEY, ROW, SLOT_BLOCKS, SPLIT
from steelyard.spark.rows import quoted

SLOTS = 1024
"""A split key's fragments share this many slots: a fragment's share is exact to a thousandth of the key."""


def key_hash(keys: tuple[str, ...]) -> Column:
    """The hash that sends an unlisted key to a block, and a split one to a bucket."""
    return F.xxhash64(*(quoted(key) for key in keys))


def placed(rows: DataFrame, plan: BlockPlan, keys: tuple[str, ...], time: str | None) -> DataFrame:
    """`rows` in as many partitions as the plan has blocks, each where the plan says.

    Adds `__block`, and `__split`: whether the key may be in other blocks too.
    A row of a split key goes to one of the key's fragments by its own identity, so that a task which is run
    again sends it to the same place.
    """
    marked = _marked(rows, plan, keys, time)
    return marked.repartitionById(plan.blocks, BLOCK)


def _marked(rows: DataFrame, plan: BlockPlan, keys: tuple[str, ...], time: str | None) -> DataFrame:
    blocks = plan.blocks
    if plan.rule is RowRule.ROUND_ROBIN:
        spread = F.pmod(F.xxhash64(row_identity(rows)), F.lit(blocks)).cast("int")
        return rows.withColumns({BLOCK: spread, SPLIT: F.lit(True)})
    if plan.rule is RowRule.ARRIVAL:
        return rows.withColumns({BLOCK: _by_arrival(rows, blocks, time), SPLIT: F.lit(True)})
    hashed = F.pmod(key_hash(keys), F.lit(blocks)).cast("int")
    if not len(plan.counts):
        return rows.withColumns({BLOCK: hashed, SPLIT: F.lit(False)})
    table = rows.sparkSession.createDataFrame(plan_table(plan, keys))
    on = [quoted(key) == F.col(f"{KEY}{i}") for i, key in enumerate(keys)]
    slot = F.pmod(F.xxhash64(F.col(ROW)), F.size(SLOT_BLOCKS)).cast("int")
    block = F.when(F.col(SLOT_BLOCKS).isNotNull(), F.element_at(SLOT_BLOCKS, slot + 1))
    return (
        rows.withColumn(ROW, row_identity(rows))
        .join(F.broadcast(table), on, "left")
        .withColumns(
            {
                BLOCK: F.coalesce(block, F.col(HOME), hashed),
                SPLIT: F.col(SLOT_BLOCKS).isNotNull(),
            }
        )
        .drop(HOME, SLOT_BLOCKS, ROW, *(f"{KEY}{i}" for i in range(len(keys))))
    )


def plan_table(plan: BlockPlan, keys: tuple[str, ...]) -> pa.Table:
    """The plan as a table to join with: each key with its block, or the slots of its fragments.

    >>> from steelyard.core import KeyCounts
    >>> plan = BlockPlan.of(KeyCounts.of({"a": 3, "b": 1}), 2, key=[0, 0, 1], block=[0, 1, 1], rows=[2, 1, 1])
    >>> [(row["__key0"], row[HOME], len(row[SLOT_BLOCKS] or [])) for row in plan_table(plan, ("k",)).to_pylist()]
    [('a', 0, 1024), ('b', 1, 0)]
    """
    first = np.searchsorted(plan.key, np.arange(len(plan.counts)))
    count = plan.fragments_of_key
    split = np.flatnonzero(count > 1)
    slots = [
        np.repeat(plan.block[first[k] : first[k] + count[k]], shares(plan.rows[first[k] : first[k] + count[k]], SLOTS))
        for k in split
    ]
    offsets = np.zeros(len(plan.counts) + 1, dtype=np.int32)
    offsets[split + 1] = SLOTS
    values = np.concatenate(slots) if slots else np.empty(0, np.int32)
    lists = pa.ListArray.from_arrays(
        pa.array(np.cumsum(offsets, dtype=np.int32)), pa.array(values, pa.int32()), mask=pa.array(count <= 1)
    )
    columns = plan.counts.keys.flatten() if pa.types.is_struct(plan.counts.keys.type) else [plan.counts.keys]
    return pa.table(
        {f"{KEY}{i}": column for i, column in enumerate(columns[: len(keys)])}
        | {HOME: pa.array(plan.block[first], pa.int32()), SLOT_BLOCKS: lists}
    )


def shares(rows: np.ndarray, slots: int) -> np.ndarray:
    """`slots` shared out in proportion to `rows`, by largest remainder.

    >>> shares(np.array([2, 1, 1]), 10).tolist()
    [5, 3, 2]
    """
    exact = rows * (slots / rows.sum())
    whole = np.floor(exact).astype(np.int64)
    short = slots - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:short]] += 1
    return np.asarray(whole)


def row_identity(rows: DataFrame) -> Column:
    """A value for each row that is the same when a task is run again.

    The position in the source's partition, where reading it again gives the same order. After a shuffle it
    does not; then the row's own content is taken.
    """
    if is_determinate(rows):
        return F.monotonically_increasing_id()
    return F.xxhash64(*(quoted(name) for name in rows.columns))


def is_determinate(rows: DataFrame) -> bool:
    """Whether a task that reads these rows again sees the same ones in the same order."""
    level = rows._jdf.queryExecution().toRdd().outputDeterministicLevel().toString()
    return bool(level == "DETERMINATE")


def partitions(rows: DataFrame) -> int:
    """How many partitions rows come in. Runs no job: of rows that were shuffled it is what Spark starts from."""
    execution = rows._jdf.queryExecution()
    if execution.executedPlan().getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        return int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return int(execution.toRdd().getNumPartitions())


def _by_arrival(rows: DataFrame, blocks: int, time: str | None) -> Column:
    if time is None:
        parts = rows.rdd.getNumPartitions()
        return F.floor(F.spark_partition_id() * blocks / parts).cast("int")
    micros = F.unix_micros(quoted(time).cast("timestamp"))
    low, high = rows.agg(F.min(micros), F.max(micros)).first() or (None, None)
    if low is None or high == low:
        return F.lit(0)
    offset = (micros - F.lit(low)) / F.lit((high - low + 1) / blocks)
    return F.coalesce(F.least(F.floor(offset).cast("int"), F.lit(blocks - 1)), F.lit(0))
