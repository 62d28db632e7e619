"""Columns of plans that are made for every batch: put together once, since each is some calls of the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, Observation
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.dataframe import DataFrame


class Columns:
    """Some columns, as the JVM takes them.

    Parameters
    ----------
    columns
        At least one.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [column._jc for column in columns]
        self._made: tuple[Any, Any, Any] | None = None

    def _in_jvm(self, rows: DataFrame) -> tuple[Any, Any, Any]:
        """All, the first, and the others."""
        if self._made is None:
            context = rows.sparkSession.sparkContext
            first, *others = self._columns
            self._made = _to_seq(context, self._columns), first, _to_seq(context, others)
        return self._made

    def of(self, rows: DataFrame) -> DataFrame:
        """`rows.select` of these."""
        return _frame(_java(rows).select(self._in_jvm(rows)[0]), rows)

    def by(self, rows: DataFrame, keys: Columns) -> DataFrame:
        """These aggregates of `rows`, grouped by `keys`."""
        _, first, others = self._in_jvm(rows)
        return _frame(_java(rows).groupBy(keys._in_jvm(rows)[0]).agg(first, others), rows)

    def seen_in(self, rows: DataFrame, seen: Observation) -> DataFrame:
        """`rows.observe` of these, as `Observation` does it with columns that it takes one by one."""
        _, first, others = self._in_jvm(rows)
        jvm: Any = rows.sparkSession._jvm
        seen._jvm, seen._jo = jvm, getattr(jvm, "org.apache.spark.sql.Observation")()
        return _frame(_java(rows).observe(seen._jo, first, others), rows)


def _java(rows: DataFrame) -> Any:
    return rows._jdf


def _frame(java: Any, like: DataFrame) -> DataFrame:
    return ClassicDataFrame(java, like.sparkSession)


def changing(value: int, of: str) -> str:
    """A number that is another in each batch, as SQL, for a plan that Spark then need not compile anew.

    Spark writes plain numbers into the code that it compiles. An array it hands over beside the code; its one item is
    taken by a position that Spark does not know to be 0: that of the whole-number column `of`.

    >>> changing(7, "__us")
    'get(array(7L), cast(pmod(__us, 1) as int))'
    """
    return f"get(array({value}L), cast(pmod({of}, 1) as int))"
