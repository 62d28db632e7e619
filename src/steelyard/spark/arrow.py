"""Spark schemas as Arrow schemas, for functions that run in `mapInArrow`."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """The Arrow schema of rows of this type; times are instants, shown in UTC.

    >>> arrow_schema(T.StructType().add("at", "timestamp").add("n", "long")).types
    [TimestampType(timestamp[us, tz=UTC]), DataType(int64)]
    """
    return to_arrow_schema(schema, timezone="UTC")
