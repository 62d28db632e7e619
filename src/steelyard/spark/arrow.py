"""Functions over Arrow batches, whatever columns are called; and Spark schemas as Arrow schemas for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from steelyard.core import OptionError


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema of rows of this type; times are instants, shown in UTC.

    >>> arrow_schema(T.StructType().add("at", "timestamp").add("n", "long")).types
    [TimestampType(timestamp[us, tz=UTC]), DataType(int64)]
    """
    return to_arrow_schema(schema, timezone="UTC")


def require_arrow(schema: T.StructType, who: str) -> None:
    """OptionError for a column of a type that Arrow has not, such as intervals of months."""
    for one in schema:
        try:
            arrow_schema(T.StructType([one]))
        except PySparkException as error:
            raise OptionError(
                f"{who} cannot take column {one.name!r}, a {one.dataType.simpleString()}: cast it, or leave it out"
            ) from error


PLAIN_TYPES = (
    T.NumericType | T.BooleanType | T.StringType | T.BinaryType | T.DateType | T.TimestampType | T.TimestampNTZType
)


def comes_back(kind: T.DataType, is_inner: bool = False) -> bool:
    """Whether rows of a type come back from Arrow as they were; `is_inner` is whether the type stands in another.

    PySpark stumbles over a null in the place of a struct whose fields are never null.

    >>> comes_back(T.ArrayType(T.StringType())), comes_back(T.StructType().add("a", T.VariantType()))
    (True, False)
    >>> comes_back(T.StructType().add("a", T.StructType().add("b", T.LongType(), nullable=False)))
    False
    """
    if isinstance(kind, T.StructType):
        told_apart = len(set(kind.names)) == len(kind.names)
        fields = (comes_back(field.dataType, True) and (field.nullable or not is_inner) for field in kind.fields)
        return told_apart and all(fields)
    return comes_back(kind.elementType, True) if isinstance(kind, T.ArrayType) else isinstance(kind, PLAIN_TYPES)


def in_driver(spark: SparkSession, table: pa.Table, schema: T.StructType) -> DataFrame:
    """Few rows of the driver as a DataFrame: in one partition, so that Spark groups them without moving them.

    As `frame_of` has it after it has asked the JVM for all options that might matter; instants are in UTC here.
    """
    make: Any = spark._create_from_arrow_table
    rows: DataFrame = make(_in_one_piece(table), schema, "UTC", False, False, max(1, table.num_rows))
    return rows.coalesce(1)


def frame_of(spark: SparkSession, table: pa.Table, schema: T.StructType) -> DataFrame:
    """A table as a DataFrame."""
    return spark.createDataFrame(_in_one_piece(table), schema=schema)


def _in_one_piece(table: pa.Table) -> pa.Table:
    """Spark 4.3 takes the rows up to the first empty piece, without a word, and fails at lists in no piece at all."""
    return table.combine_chunks() if table.num_rows else table.schema.empty_table()


def map_in_arrow(
    rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: T.StructType
) -> DataFrame:
    """`DataFrame.mapInArrow` for columns of any name: PySpark's own takes a dot for a field, a backtick for a quote."""
    names = rows.columns
    if all(name.isidentifier() for name in names):
        return rows.mapInArrow(function, schema)

    def named(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(part.rename_columns(names) for part in parts)

    return rows.toDF(*(f"c{i}" for i in range(len(names)))).mapInArrow(named, schema)
