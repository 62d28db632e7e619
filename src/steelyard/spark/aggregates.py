"""Built-in aggregates, as expressions that stay in the JVM: partial, merge, finish, and an inverse where exact.

Each knows plain Spark's own expression of the same thing (`plain`), which gives the type of its result and is
what the tests compare it to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.core.aggregates import Aggregate
from steelyard.core.hidden import RESERVED

Columns = dict[str, Column]
NUMBERS = (T.NumericType,)


@dataclass(frozen=True)
class Builtin:
    """An aggregate in the JVM. `partial` runs over rows, `merge` over partials, `finish` over merged ones.

    The parts of its state are columns; in `merge`, `finish` and `negate`, `at(part)` is the name of a part's
    column.
    """

    column: str | None = None
    numeric: bool = field(default=False, init=False)
    """Whether the column must be a number; a string column is then read as one."""
    casts_result: bool = field(default=False, init=False)
    """Whether `finish` gives another type than plain Spark, to be cast to Spark's."""
    is_plain: bool = field(default=True, init=False)
    """Whether `plain` gives the same result, where no states need merging."""

    def prepared(self, value: Column, kind: T.DataType | None) -> Column:
        """The column as `partial` wants it."""
        return value

    def partial(self, value: Column, order: Column) -> Columns:
        """The state of some rows; `order` ranks rows by event time."""
        raise NotImplementedError

    def inverse_parts(self, value: Column) -> Columns:
        """Further parts of the state, needed only where states are subtracted."""
        return {}

    def merge(self, at: Prefix) -> Columns:
        """One state from several."""
        raise NotImplementedError

    def finish(self, at: Prefix) -> Column:
        """The result of a state."""
        raise NotImplementedError

    def plain(self, value: Column) -> Column:
        """Plain Spark's expression of the same."""
        raise NotImplementedError

    def finish_counted(self, at: Prefix) -> Column:
        """The result of a state that has its `inverse_parts`."""
        return self.finish(at)

    def exactly_invertible(self, kind: T.DataType | None) -> bool:
        """Whether subtracting a state undoes adding it, to the last bit, for a column of this type."""
        return False

    def negate(self, at: Prefix) -> Columns:
        """The state that `merge` subtracts by; only where `exactly_invertible`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Prefix:
    """Names the state columns of one aggregate: `Prefix("total")("sum")` is `__total_sum`.

    A dot and a backtick, which Spark's expressions would read as signs, are written otherwise.
    """

    name: str

    def __call__(self, part: str) -> str:
        plain = self.name.replace("~", "~~").replace(".", "~d").replace("`", "~b")
        return f"{RESERVED}{plain}_{part}"


@dataclass(frozen=True)
class Count(Builtin):
    """Rows, or rows where a column is not null."""

    def partial(self, value: Column, order: Column) -> Columns:
        return {"n": F.count(value)}

    def merge(self, at: Prefix) -> Columns:
        return {"n": F.sum(at("n"))}

    def finish(self, at: Prefix) -> Column:
        return F.col(at("n"))

    def plain(self, value: Column) -> Column:
        return F.count(value)

    def exactly_invertible(self, kind: T.DataType | None) -> bool:
        return True

    def negate(self, at: Prefix) -> Columns:
        return {"n": -F.col(at("n"))}


def _exact(kind: T.DataType | None) -> bool:
    return isinstance(kind, T.IntegralType | T.DecimalType)


@dataclass(frozen=True)
class Sum(Builtin):
    """The sum of a column; null where all its values are."""

    numeric: bool = field(default=True, init=False)

    def partial(self, value: Column, order: Column) -> Columns:
        return {"sum": F.sum(value)}

    def inverse_parts(self, value: Column) -> Columns:
        return {"n": F.count(value)}  # tells a sum of nothing, null, from a sum of 0

    def merge(self, at: Prefix) -> Columns:
        return {"sum": F.sum(at("sum")), "n": F.sum(at("n"))}

    def finish(self, at: Prefix) -> Column:
        return F.col(at("sum"))

    def finish_counted(self, at: Prefix) -> Column:
        return F.when(F.col(at("n")) > 0, F.col(at("sum")))

    def plain(self, value: Column) -> Column:
        return F.sum(value)

    def exactly_invertible(self, kind: T.DataType | None) -> bool:
        return _exact(kind)

    def negate(self, at: Prefix) -> Columns:
        return {"sum": -F.col(at("sum")), "n": -F.col(at("n"))}


@dataclass(frozen=True)
class Mean(Sum):
    """The mean of a column."""

    casts_result: bool = field(default=True, init=False)  # a mean of decimals has digits of its own

    def prepared(self, value: Column, kind: T.DataType | None) -> Column:
        # As Spark does: sums of whole numbers as doubles, which do not overflow.
        return value if isinstance(kind, T.DecimalType) else value.cast("double")

    def exactly_invertible(self, kind: T.DataType | None) -> bool:
        return _exact(kind) and not isinstance(kind, T.LongType)  # doubles hold sums of shorter ones exactly

    def partial(self, value: Column, order: Column) -> Columns:
        return {"sum": F.sum(value), "n": F.count(value)}

    def inverse_parts(self, value: Column) -> Columns:
        return {}

    def finish(self, at: Prefix) -> Column:
        return F.when(F.col(at("n")) > 0, F.col(at("sum")) / F.col(at("n")))

    def finish_counted(self, at: Prefix) -> Column:
        return self.finish(at)

    def plain(self, value: Column) -> Column:
        return F.avg(value)


@dataclass(frozen=True)
class Least(Builtin):
    """The smallest value of a column."""

    def partial(self, value: Column, order: Column) -> Columns:
        return {"least": F.min(value)}

    def merge(self, at: Prefix) -> Columns:
        return {"least": F.min(at("least"))}

    def finish(self, at: Prefix) -> Column:
        return F.col(at("least"))

    def plain(self, value: Column) -> Column:
        return F.min(value)


@dataclass(frozen=True)
class Greatest(Builtin):
    """The largest value of a column."""

    def partial(self, value: Column, order: Column) -> Columns:
        return {"greatest": F.max(value)}

    def merge(self, at: Prefix) -> Columns:
        return {"greatest": F.max(at("greatest"))}

    def finish(self, at: Prefix) -> Column:
        return F.col(at("greatest"))

    def plain(self, value: Column) -> Column:
        return F.max(value)


@dataclass(frozen=True)
class Variance(Builtin):
    """The sample variance of a column; null for one value, as in Spark.

    States (n, mean, m2) are merged by Chan's formula, one after the other, which keeps its digits where sums
    of squares lose them.
    """

    numeric: bool = field(default=True, init=False)

    def partial(self, value: Column, order: Column) -> Columns:
        number = value.cast("double")
        n = F.count(number)
        m2 = F.var_pop(number) * n
        return {
            "moments": F.when(n > 0, F.struct(n.cast("double").alias("n"), F.avg(number).alias("mean"), m2.alias("m2")))
        }

    def merge(self, at: Prefix) -> Columns:
        def chan(a: Column, b: Column) -> Column:
            n = a["n"] + b["n"]
            delta = b["mean"] - a["mean"]
            mean = a["mean"] + delta * b["n"] / n
            m2 = a["m2"] + b["m2"] + delta * delta * a["n"] * b["n"] / n
            return F.struct(n.alias("n"), mean.alias("mean"), m2.alias("m2"))

        zero = F.lit(0.0)
        none = F.struct(zero.alias("n"), zero.alias("mean"), zero.alias("m2"))
        states = F.array_sort(F.collect_list(at("moments")))  # one order, whatever the tasks' order was
        return {"moments": F.when(F.size(states) > 0, F.aggregate(states, none, chan))}

    def finish(self, at: Prefix) -> Column:
        moments = F.col(at("moments"))
        return F.when(moments["n"] > 1, moments["m2"] / (moments["n"] - 1))

    def plain(self, value: Column) -> Column:
        return F.var_samp(value)


@dataclass(frozen=True)
class ApproxDistinct(Builtin):
    """How many distinct values a column has, by a HyperLogLog sketch; exact while there are few.

    Parameters
    ----------
    log2_cells
        The sketch has 2^log2_cells cells: 12 gives a standard error near 1.6 %.
    """

    log2_cells: int = 12

    def partial(self, value: Column, order: Column) -> Columns:
        return {"sketch": F.hll_sketch_agg(value.cast("string"), self.log2_cells)}

    def merge(self, at: Prefix) -> Columns:
        return {"sketch": F.hll_union_agg(at("sketch"))}

    def finish(self, at: Prefix) -> Column:
        return F.hll_sketch_estimate(at("sketch"))

    def plain(self, value: Column) -> Column:
        return F.hll_sketch_estimate(F.hll_sketch_agg(value.cast("string"), self.log2_cells))


@dataclass(frozen=True)
class Collect(Builtin):
    """The first `limit` values of a column by event time (ties by value), as an array; nulls are left out.

    Which values are kept does not depend on how rows were spread over tasks. Without event time the smallest
    values are kept.
    """

    limit: int = 100
    is_plain: bool = field(default=False, init=False)  # plain Spark keeps all values, in no order

    def partial(self, value: Column, order: Column) -> Columns:
        row = F.when(value.isNotNull(), F.struct(order.alias("at"), value.alias("value")))
        return {"kept": F.min_by(row, row, self.limit)}

    def merge(self, at: Prefix) -> Columns:
        return {"kept": F.slice(F.array_sort(F.flatten(F.collect_list(at("kept")))), 1, self.limit)}

    def finish(self, at: Prefix) -> Column:
        return F.transform(F.coalesce(F.col(at("kept")), F.array()), lambda kept: kept["value"])

    def plain(self, value: Column) -> Column:
        return F.collect_list(value)


@dataclass(frozen=True)
class TopK(Builtin):
    """The `k` largest values of a column, largest first, as an array; nulls are left out."""

    k: int = 10

    def partial(self, value: Column, order: Column) -> Columns:
        return {"kept": F.max_by(value, value, self.k)}

    def merge(self, at: Prefix) -> Columns:
        kept = F.sort_array(F.flatten(F.collect_list(at("kept"))), asc=False)
        return {"kept": F.slice(kept, 1, self.k)}

    def finish(self, at: Prefix) -> Column:
        return F.coalesce(F.col(at("kept")), F.array())

    def plain(self, value: Column) -> Column:
        return F.slice(F.sort_array(F.collect_list(value), asc=False), 1, self.k)


_IN_JVM: dict[str, type[Any]] = {
    "approx_distinct": ApproxDistinct,
    "collect": Collect,
    "count": Count,
    "max": Greatest,
    "mean": Mean,
    "min": Least,
    "sum": Sum,
    "top_k": TopK,
    "variance": Variance,
}


def in_jvm(use: Aggregate) -> Builtin:
    """How the JVM computes an aggregate."""
    made: Builtin = _IN_JVM[use.function](use.column, **dict(use.options))
    return made
