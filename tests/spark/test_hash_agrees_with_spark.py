"""The hash off Spark is Spark's own, so a plan by hash tells where Spark sends rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from steelyard.core import KeyCounts
from steelyard.kernels.xxhash import spark_hash
from steelyard.partition import Hash

pytestmark = pytest.mark.spark

NOON = dt.datetime(2024, 2, 28, 12, 0, 0, 123456, tzinfo=dt.UTC)
COLUMNS = {
    "byte": ("tinyint", [0, -128, 127, None]),
    "short": ("smallint", [0, -32768, 32767, None]),
    "int": ("int", [0, -(2**31), 2**31 - 1, None]),
    "long": ("bigint", [0, -(2**63), 2**63 - 1, None]),
    "text": ("string", ["", "äöü €😀", "a longer one, of more than 32 bytes in all", None]),
    "bytes": ("binary", [b"", b"\xff\x00", bytes(range(77)), None]),
    "flag": ("boolean", [True, False, True, None]),
    "float": ("float", [-0.0, float("nan"), 1.5, None]),
    "double": ("double", [-0.0, float("nan"), -1e300, None]),
    "day": ("date", [dt.date(1970, 1, 1), dt.date(1899, 12, 31), dt.date(2024, 2, 29), None]),
    "time": ("timestamp", [NOON, NOON.replace(year=1950), NOON.replace(microsecond=0), None]),
    "local": ("timestamp_ntz", [NOON.replace(tzinfo=None), dt.datetime(1950, 1, 1), dt.datetime(1970, 1, 1), None]),
    "pause": ("interval day to second", [dt.timedelta(0), dt.timedelta(-3, 5, 7), dt.timedelta(99), None]),
    "money": ("decimal(10,2)", [Decimal("0.00"), Decimal("-12.34"), Decimal("99999999.99"), None]),
    "much": ("decimal(38,3)", [Decimal(0), Decimal(-129), Decimal("12345678901234567890123456789012345.678"), None]),
    "pair": ("struct<a: string, b: int>", [("x", 1), (None, 2), ("", None), None]),
}


@pytest.fixture(scope="module", name="table")
def _table(spark):
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    rows = list(zip(*(values for _, values in COLUMNS.values()), strict=True))
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    hashed = [F.xxhash64(name).alias(f"hash_{name}") for name in COLUMNS]
    return frame.select("*", *hashed, F.xxhash64(*COLUMNS).alias("hash_all")).toArrow()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_hashed_as_spark_hashes_it(table, name):
    assert spark_hash(table.column(name)).tolist() == table.column(f"hash_{name}").to_pylist()


def test_several_key_columns_are_hashed_as_spark_hashes_them(table):
    columns = [table.column(name).combine_chunks() for name in COLUMNS]
    together = pa.StructArray.from_arrays(columns, names=list(COLUMNS))
    assert spark_hash(together).tolist() == table.column("hash_all").to_pylist()


def test_a_plan_by_hash_tells_where_spark_puts_rows(spark):
    frame = spark.range(200).select(F.concat(F.lit("word "), F.col("id") % 37).alias("k"), (F.col("id") % 5).alias("n"))
    placed = frame.withColumn("block", F.pmod(F.xxhash64("k", "n"), F.lit(7)).cast("int")).toArrow()
    keys = pa.StructArray.from_arrays([placed.column(name).combine_chunks() for name in ("k", "n")], names=["k", "n"])
    plan = Hash().plan(KeyCounts.from_rows(keys), blocks=7)
    assert plan.sizes.tolist() == np.bincount(placed.column("block").to_numpy(), minlength=7).tolist()
    where = {tuple(key.values()): block for key, block in zip(plan.counts.keys.to_pylist(), plan.block, strict=True)}
    assert all(where[row["k"], row["n"]] == row["block"] for row in placed.to_pylist())
