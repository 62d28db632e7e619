"""Functions over Arrow batches, whatever columns are called; and Spark schemas as Arrow schemas for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
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
