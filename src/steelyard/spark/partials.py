"""From clean rows to partial states, one for each key and pane: the map and reduce stages of a batch."""

from __future__ import annotations

from functools import cached_property, lru_cache

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.core import BucketAllocator, OptionError
from steelyard.core.hidden import (
    BAD,
    BAD_ROW,
    BLOCK,
    BUCKET,
    FIRST,
    LAST,
    MICROS,
    NEW,
    PANE,
    ROWS,
    SIGN,
    SPLIT,
    START,
    STATE,
    TURN,
)
from steelyard.spark.aggregates import Builtin
from steelyard.spark.arrow import arrow_schema, map_in_arrow, require_arrow
from steelyard.spark.columns import Columns
from steelyard.spark.combine import combiner
from steelyard.spark.parcels import SENT, parcelled
from steelyard.spark.placement import key_hash
from steelyard.spark.program import Bound, Window
from steelyard.spark.reduce import Reducer, finisher, merger
from steelyard.spark.rows import quoted, tidied
from steelyard.spark.tasklog import TaskLog


class Partials:
    """The partial states of a program: their schema, and how to make, merge and finish them.

    Parameters
    ----------
    spark
        A session, to ask Spark for the types of its expressions.
    bound
        The program.
    allocator
        Sends what map tasks have combined to reduce tasks.
    """

    def __init__(self, spark: SparkSession, bound: Bound, allocator: BucketAllocator) -> None:
        self.bound = bound
        self._allocator = allocator
        self.program = bound.program
        self._spark = spark
        self._alignments: dict[frozenset[str], Columns] = {}
        self._merges: dict[frozenset[str], Columns] = {}

    @cached_property
    def _keys(self) -> list[Column]:
        return [quoted(key) for key in self.program.keys]

    @cached_property
    def by_pane(self) -> Columns:
        """What partials are grouped by."""
        return Columns([*self._keys, F.col(PANE)])

    @cached_property
    def schema(self) -> T.StructType:
        """Columns of a partial: keys, pane, rows, then the states; and for refused rows the reason and the row.

        States of Python aggregates are lists: reduce tasks gather what map tasks made, in the JVM, and Python folds
        a list only where a result is made of it, or where the log is compacted.
        """
        partial = T.StructType()
        if self._starts_in_jvm:
            partial = self._builtin_partials(self._no_rows, self.by_pane).schema
        fields = [self.bound.rows[key] for key in self.program.keys]
        fields += [T.StructField(PANE, T.LongType()), T.StructField(ROWS, T.LongType())]
        own = {*self.program.keys, PANE, ROWS}
        fields += [field for field in partial.fields if field.name not in own]
        fields += [T.StructField(name, T.ArrayType(self._state_type(name))) for name in self.program.pythons]
        fields += [T.StructField(BAD, T.StringType()), T.StructField(BAD_ROW, T.StringType())]
        return T.StructType([T.StructField(field.name, nullable(field.dataType), True) for field in fields])

    @property
    def _starts_in_jvm(self) -> bool:
        """Whether the JVM makes a part of each partial: built-in aggregates, or the bounds of sessions."""
        return bool(self.program.builtins) or self.program.session is not None

    @cached_property
    def _no_rows(self) -> DataFrame:
        """No rows of the right types, to ask Spark for the types of expressions; runs no job."""
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in self.bound.rows.fields]
        return tidied(self._spark.range(0).select(*nothing), self.bound, None)

    def _state_type(self, name: str) -> T.StructType:
        return ddl_fields(self.program.pythons[name].aggregator.state, f"`state` of aggregate {name!r}")

    @cached_property
    def result_types(self) -> dict[str, T.DataType]:
        """Types of results that must be cast: what a Python aggregate declares, and plain Spark's own of a mean."""
        plain = {
            name: use.plain(self._value(use.column, use.numeric)).alias(name)
            for name, use in self.program.builtins.items()
            if use.casts_result
        }
        types = {f.name: nullable(f.dataType) for f in self._no_rows.agg(*plain.values()).schema} if plain else {}
        for name, use in self.program.pythons.items():
            types[name] = ddl_fields(f"r {use.aggregator.result}", f"`result` of aggregate {name!r}")[0].dataType
        return types

    def _kind(self, use: Builtin) -> T.DataType | None:
        return self.bound.rows[use.column].dataType if use.column else None

    def _value(self, column: str | None, numeric: bool) -> Column:
        if column is None:
            return F.lit(1)
        return quoted(self.bound.number(column) if numeric else column)

    def _builtin_partials(self, rows: DataFrame, by: Columns) -> DataFrame:
        return self._partial_columns.by(rows, by)

    @cached_property
    def _partial_columns(self) -> Columns:
        states = [F.count(F.lit(1)).alias(ROWS)]
        for name, use in self.program.builtins.items():
            value = use.prepared(self._value(use.column, use.numeric), self._kind(use))
            parts = use.partial(value, F.col(MICROS))
            if self.subtracts:
                parts |= use.inverse_parts(value)
            states += [column.alias(self.bound.prefix(name)(part)) for part, column in parts.items()]
        if self.program.session is not None:
            states += [F.min(MICROS).alias(FIRST), F.max(MICROS).alias(LAST)]
        return Columns(states)

    def of_rows(self, rows: DataFrame, buckets: int, log: TaskLog | None, frequent: int) -> DataFrame:
        """The partials of clean rows: combined where the rows are, merged in `buckets` reduce tasks."""
        parts = []
        if self._starts_in_jvm or not self.program.pythons:
            parts.append(self._aligned(self._in_jvm(rows, buckets)))
        if self.program.pythons:
            in_python = self._gathered(rows, buckets, log, frequent)
            if parts:  # rows were counted already
                in_python = in_python.withColumn(ROWS, F.lit(0).cast("bigint"))
            parts.append(self._aligned(in_python))
        return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])

    def _aligned(self, partials: DataFrame) -> DataFrame:
        have = frozenset(partials.columns)
        if have not in self._alignments:  # building columns costs more than using them
            self._alignments[have] = Columns(
                [
                    (quoted(f.name) if f.name in have else F.lit(None)).cast(f.dataType).alias(f.name)
                    for f in self.schema.fields
                ]
            )
        return self._alignments[have].of(partials)

    def _in_jvm(self, rows: DataFrame, buckets: int) -> DataFrame:
        if BLOCK not in rows.columns:  # Spark combines in place and hashes what is left
            return self._builtin_partials(rows, self.by_pane)
        by = [F.col(BLOCK), F.col(SPLIT), *self._keys, F.col(PANE)]
        clusters = self._builtin_partials(rows, Columns(by))
        # Algorithm 3 with clusters of one record each: every round gives each bucket one, so a cluster's turn
        # is its position. Sorted first, so that a task that is run again gives the same positions.
        turn = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1)) + F.col(BLOCK)
        hashed = F.pmod(F.xxhash64(key_hash(self.program.keys), F.col(PANE)), F.lit(buckets))
        local = clusters.sortWithinPartitions(*self._keys, PANE).withColumn(TURN, turn)
        bucket = F.when(F.col(SPLIT), hashed).otherwise(F.pmod(F.col(TURN), F.lit(buckets))).cast("int")
        sent = local.withColumn(BUCKET, bucket).drop(TURN).repartitionById(buckets, BUCKET)
        return self.merged(sent, Columns([F.col(BUCKET), *self._keys, F.col(PANE)]))

    def _combined(
        self, rows: DataFrame, buckets: int, log: TaskLog | None, frequent: int, on_bad: str | None = None
    ) -> DataFrame:
        """Rows combined in Python where they are, as parcels for `buckets` reduce tasks."""
        uses, window = self.program.pythons, self.program.window
        kinds = [self.schema[name] for name in (*self.program.keys, PANE, ROWS)]
        kinds += [T.StructField(name, self._state_type(name)) for name in uses]
        made = arrow_schema(T.StructType([SENT[BUCKET], *kinds]))
        needed = [*self.program.keys, *(column for use in uses.values() for column in use.columns)]
        needed += [PANE] if window is not None else []
        needed += [SPLIT] if SPLIT in rows.columns else []
        needed = list(dict.fromkeys(needed))
        taken = rows if rows.columns == needed else rows.select(*map(quoted, needed))
        where = buckets, self._allocator
        run = combiner(self.program.keys, uses, made, *where, log, frequent, self._arrow_results, on_bad)
        return map_in_arrow(taken, parcelled(run), SENT)

    def _reduced(
        self, parcels: DataFrame, buckets: int, out: T.StructType, ends: bool, log: TaskLog | None = None
    ) -> DataFrame:
        """The records of parcels, merged in Python by key and pane."""
        run = Reducer(self.program.keys, self.program.pythons, arrow_schema(out), self._arrow_results, ends, log)
        return map_in_arrow(parcels.repartitionById(buckets, BUCKET), run, out)

    @cached_property
    def _arrow_results(self) -> dict[str, pa.DataType]:
        named = T.StructType([T.StructField(name, self.result_types[name]) for name in self.program.pythons])
        return {field.name: field.type for field in arrow_schema(named)}

    def _gathered(self, rows: DataFrame, buckets: int, log: TaskLog | None, frequent: int) -> DataFrame:
        """Partials of rows with the states of Python aggregates alone."""
        own = [f for f in self.schema.fields if f.name not in self._builtin_names()]
        return self._reduced(self._combined(rows, buckets, log, frequent), buckets, T.StructType(own), False, log)

    @property
    def reduced_is_merged(self) -> bool:
        """Whether what reduce tasks give needs no merging: a pane is a window, and one kind of aggregate runs."""
        window = self.program.window
        one_kind = not (self.program.builtins and self.program.pythons)
        # Keys that Arrow tells apart and Spark does not may be in two buckets, and must be merged by Spark.
        one_pane = window is None or (isinstance(window, Window) and window.panes == 1)
        return one_pane and one_kind and self.bound.keys_can_be_listed

    def results_of(self, rows: DataFrame, buckets: int, on_bad: str) -> DataFrame:
        """Results of rows, where `reduced_is_merged`; `on_bad` is as in `combiner`."""
        size = self.program.window.pane if self.program.window else 0
        if not self.program.pythons:
            return self.finished(self._in_jvm(rows, buckets).withColumn(START, F.col(PANE) * F.lit(size)))
        fields = [self.schema[key] for key in self.program.keys]
        fields += [T.StructField(PANE, T.LongType())] if size else []
        fields += [T.StructField(name, self.result_types[name]) for name in self.program.aggregates]
        parcels = self._combined(rows, buckets, None, 1, on_bad)
        made = self._reduced(parcels, buckets, T.StructType(fields), ends=True)
        if not size:
            return made
        start = F.col(PANE) * F.lit(size)
        spans = [F.timestamp_micros(start).alias("window_start"), F.timestamp_micros(start + size).alias("window_end")]
        return made.select(*spans, *(quoted(name) for name in [*self.program.keys, *self.program.aggregates]))

    def _builtin_names(self) -> set[str]:
        own = {*self.program.keys, PANE, ROWS, BAD, BAD_ROW, *self.program.pythons}
        return {f.name for f in self.schema.fields if f.name not in own}

    def merged(self, partials: DataFrame, by: Columns) -> DataFrame:
        """Partials grouped `by`: built-in states merged, lists of Python states joined."""
        present = frozenset(partials.columns) & {*self.program.pythons, NEW}
        if present not in self._merges:
            lists = [
                F.flatten(F.collect_list(quoted(name))).alias(name) for name in self.program.pythons if name in present
            ]
            is_new = [F.max(NEW).alias(NEW)] if NEW in present else []
            self._merges[present] = Columns([*self._merge_columns, *lists, *is_new])
        return self._merges[present].by(partials, by)

    @cached_property
    def by_key(self) -> Columns:
        """What the results of a program without windows are grouped by."""
        return Columns(self._keys)

    @cached_property
    def by_window(self) -> Columns:
        """What the results of a program with windows are grouped by."""
        return Columns([*self._keys, F.col(START)])

    @cached_property
    def _merge_columns(self) -> list[Column]:
        states = [F.sum(ROWS).cast("bigint").alias(ROWS)]
        kinds = {f.name: f.dataType for f in self.schema.fields}
        for name, use in self.program.builtins.items():
            at = self.bound.prefix(name)
            parts = {at(part): column for part, column in use.merge(at).items() if at(part) in kinds}
            states += [column.cast(kinds[part]).alias(part) for part, column in parts.items()]
        if self.program.session is not None:
            states += [F.min(FIRST).alias(FIRST), F.max(LAST).alias(LAST)]
        return states

    def compacted(self, partials: DataFrame) -> DataFrame:
        """Partials with one row for each key and pane."""
        return self._aligned(self.folded(self.merged(partials, self.by_pane)))

    def folded(self, merged: DataFrame) -> DataFrame:
        """Lists of Python states folded into lists of one."""
        if not self.program.pythons:
            return merged
        kinds = {name: self.schema[name].dataType for name in self.program.pythons}
        out = T.StructType([T.StructField(f.name, kinds.get(f.name, f.dataType)) for f in merged.schema.fields])
        return map_in_arrow(merged, merger(self.program.pythons, arrow_schema(out)), out)

    def signed(self, plus: DataFrame, minus: DataFrame) -> DataFrame:
        """States of `plus` with those of `minus` taken away, by key; keys without rows are left out."""
        negated: dict[str, Column] = {ROWS: -F.col(ROWS)}
        for name, use in self.program.builtins.items():
            at = self.bound.prefix(name)
            negated |= {at(part): column for part, column in use.negate(at).items()}
        both = plus.withColumn(SIGN, F.lit(1)).unionByName(minus.withColumns(negated).withColumn(SIGN, F.lit(-1)))
        for name in self.program.pythons:
            signed = F.transform(quoted(name), lambda state: F.struct(F.col(SIGN), state.alias(STATE)))
            both = both.withColumn(name, signed)
        return self.folded(self.merged(both, self.by_key)).where(F.col(ROWS) > 0)

    def finished(self, merged: DataFrame) -> DataFrame:
        """Results of merged states: keys, window if any, aggregates in the order they were named."""
        shown = self._finish_columns.of(merged)
        if not self.program.pythons:
            return shown
        out = T.StructType(
            [T.StructField(f.name, self.result_types.get(f.name, f.dataType)) for f in shown.schema.fields]
        )
        require_arrow(out, "a program with a Python aggregate")
        return map_in_arrow(shown, finisher(self.program.pythons, arrow_schema(out)), out)

    @cached_property
    def _finish_columns(self) -> Columns:
        window = self.program.window
        spans = []
        if window is not None:
            end = F.col(START) + window.size if isinstance(window, Window) else F.col(LAST) + window.gap
            spans = [
                F.timestamp_micros(F.col(START)).alias("window_start"),
                F.timestamp_micros(end).alias("window_end"),
            ]
        columns = [*spans, *self._keys]
        for name in self.program.aggregates:
            if name in self.program.pythons:
                columns.append(quoted(name))
            else:
                use = self.program.builtins[name]
                finish = use.finish_counted if self.subtracts else use.finish
                value = finish(self.bound.prefix(name))
                columns.append((value.cast(self.result_types[name]) if use.casts_result else value).alias(name))
        return Columns(columns)

    @cached_property
    def result_schema(self) -> T.StructType:
        """Columns and types of the results; runs no job."""
        if not self.program.aggregates:
            return self.bound.rows
        nothing = self._spark.createDataFrame([], self.schema).withColumn(START, F.lit(0).cast("bigint"))
        return self.finished(nothing).schema

    @cached_property
    def subtracts(self) -> bool:
        """Whether a pane may be taken out of a sliding window again: exactly, for every aggregate."""
        if not isinstance(self.program.window, Window) or self.program.window.panes == 1:
            return False
        builtin = all(use.exactly_invertible(self._kind(use)) for use in self.program.builtins.values())
        return builtin and all(use.aggregator.has_inverse for use in self.program.pythons.values())


def nullable(kind: T.DataType) -> T.DataType:
    """The same type with every part of it nullable, as Parquet gives it back."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, nullable(f.dataType), True) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(nullable(kind.elementType), True)
    return kind


def ddl_fields(text: str, what: str) -> T.StructType:
    """The fields of a DDL text; an OptionError that says `what` where it cannot be read."""
    wrong = OptionError(f"{what}: {text!r} is not a DDL type, such as 'n bigint, total double'")
    if not isinstance(text, str):
        raise wrong
    try:
        fields = _parsed(text)
    except (CapturedException, Py4JJavaError) as error:  # what the JVM says of the text
        raise wrong from error
    if not isinstance(fields, T.StructType):
        raise OptionError(f"{what}: {text!r} is one type; name its fields, such as 'n bigint, total double'")
    return fields


@lru_cache(maxsize=256)
def _parsed(text: str) -> T.DataType:
    """Spark's parser is in the JVM, and one text is asked for several times."""
    return T.StructType.fromDDL(text)
