"""Formats that Spark itself can write: which there are, and a sink that hands a batch to Spark's own writer."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import types as T

from steelyard.core import OptionError
from steelyard.spark.kept import kept

DELTA = "delta"
"""Has transactions that know a query by its name: the same batch again changes nothing."""
NOOP = "noop"
_LOG = logging.getLogger(__name__)


def spark_format(spark: SparkSession, name: str) -> str | None:
    """What Spark finds under the name of a format: `"files"`, `"other"`, or None where it finds nothing."""
    jvm: Any = spark._jvm
    try:
        conf = spark._jsparkSession.sessionState().conf()
        found = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, conf)
    except (Py4JJavaError, PySparkException):  # no such class, or a jar of it is missing
        return None
    files = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.datasources.FileFormat")
    return "files" if files.isAssignableFrom(found) or "FileDataSourceV2" in _parents(found) else "other"


def _parents(kind: Any) -> str:
    above = kind.getSuperclass()
    return "" if above is None else f"{above.getName()} {' '.join(one.getName() for one in kind.getInterfaces())}"


def plain_options(kind: str, options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark's writer takes them; an OptionError where one is neither text, number nor truth value."""
    for option, value in options.items():
        if not isinstance(value, str | int | float | bool):
            raise OptionError(f"option {option!r} of the {kind} sink must be text, a number, True or False: {value!r}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


@dataclass
class FormatSink:
    """Results through Spark's own writer of a format, batch by batch; in complete mode each batch overwrites.

    Exactly once into Delta, which is told the query and the batch. At least once elsewhere: after a crash the last
    batch may be written again.
    """

    format: str
    options: dict[str, str] = field(default_factory=dict)
    mode: str = "append"
    owner: str = ""

    def open(self, spark: SparkSession, schema: T.StructType, owner: str) -> None:
        """Remember whose results these are, and say how often they may be written."""
        self.owner = owner
        if self.format.lower() not in (DELTA, NOOP):
            _LOG.warning("sink %r writes at least once: after a crash the last batch may come again", self.format)

    def write(self, results: DataFrame, batch: int) -> int:
        """Hand the batch to Spark's writer. Not every writer tells listeners, so rows are kept and counted."""
        with kept(results) as (rows, number):
            self.writer(rows, batch).save()
            return number

    def writer(self, results: DataFrame, batch: int) -> DataFrameWriter:
        """Spark's writer with all that it is told."""
        told = dict(self.options)
        if self.format.lower() == DELTA:
            told |= {"txnAppId": self.owner, "txnVersion": str(batch)}
        how = "overwrite" if self.mode == "complete" else "append"
        return results.write.format(self.format).mode(how).options(**told)
