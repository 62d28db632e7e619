"""The builder's programs for the resident engine: the same keys, windows and aggregates as a dataflow that stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.core import BadRowError, BatchError, OptionError
from steelyard.core.aggregates import Aggregate
from steelyard.core.dataflow import Dataflow
from steelyard.core.durations import spoken
from steelyard.core.errors import place_of
from steelyard.core.hidden import BAD, BAD_ROW
from steelyard.core.shown import counted
from steelyard.resident.aggregates import FUNCTIONS
from steelyard.resident.flow import Flow
from steelyard.resident.sinks import Memory, SinkLogic
from steelyard.resident.sources import Reader
from steelyard.resident.states import Extreme, Groups, StateAggregate
from steelyard.resident.transformed import Tidied, Transformed
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.agreement import added_otherwise, merged_otherwise
from steelyard.spark.arrow import arrow_schema
from steelyard.spark.badrows import EVERY
from steelyard.spark.isolate import Bad, as_json, isolate, no_key
from steelyard.spark.partials import ddl_fields
from steelyard.spark.program import Bound, Session, Window
from steelyard.spark.rows import MAP_FAILED, applied, quoted
from steelyard.spark.states import added, encoded, finished, merged, told_of

SOURCE, AGGREGATE, SINK, LETTERS = "source", "aggregate", "sink", "dead letters"
"""Names of the operators."""
LETTER = T.StructType().add("reason", "string").add("row", "string")
"""The columns of a dead letter."""


@dataclass(frozen=True)
class Width:
    """Instances of each operator, and what spreads rows over those that aggregate.

    Parameters
    ----------
    sources, aggregates
        How many.
    grouping
        A partitioner or tuple policy; `"hash"` where none was named.
    """

    sources: int
    aggregates: int
    grouping: Any = "hash"


def dataflow_of(
    name: str,
    spark: SparkSession,
    bound: Bound,
    reader: Reader,
    sink: SinkLogic,
    width: Width,
    bad_rows: str,
    mode: str,
) -> Dataflow:
    """The dataflow of a program over a reader of its input; OptionError for what the resident engine has not."""
    program, window = bound.program, bound.program.window
    source, uses, good = aggregated(spark, bound, reader, bad_rows)
    flow = Flow(name, parallelism=width.sources)
    read = flow.source(
        source,
        time=program.time,
        delay=spoken(program.delay) if program.delay else None,
        step=1000,  # Spark's event time is in milliseconds
        name=SOURCE,
    )
    if bad_rows == "dead_letter":
        is_good = pc.field(BAD).is_null()
        letters = read.filter(~is_good, name="bad rows").select(reason=BAD, row=BAD_ROW, name="letters")
        letters.sink(Memory(measured=False), name=LETTERS)
        read = read.filter(is_good, name="good rows").select(*good, name="good columns")
    made = read.key_by(*program.keys, grouping=width.grouping).aggregate(
        uses,
        window=spoken(window.size) if isinstance(window, Window) else None,
        slide=spoken(window.slide) if isinstance(window, Window) else None,
        session=spoken(window.gap) if isinstance(window, Session) else None,
        emit="epochs" if mode == "update" else "updates",
        open_end=True,
        begins=0,
        name=AGGREGATE,
        parallelism=width.aggregates,
    )
    wanted = arrow_schema(result_schema(spark, bound))
    shown = made.map(_Shown(wanted), wanted, name="columns")
    shown.sink(sink, name=SINK)
    return flow.dataflow()


def aggregated(
    spark: SparkSession, bound: Bound, reader: Reader, bad_rows: str
) -> tuple[Reader, dict[str, Any], list[str]]:
    """The rows that a program aggregates, its aggregates, and the columns of good rows.

    OptionError for what workers that stay have not.
    """
    _require_types(spark, bound)
    tidy = _Tidy(bound, reader.schema, bad_rows)
    uses = {name: _aggregate(name, use, bound) for name, use in bound.program.aggregates.items()}
    return Transformed(reader, tidy, tidy.schema), uses, tidy.good.names


_ORDERED = (T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)


def _is_plain(kind: T.DataType) -> bool:
    """Whether Arrow groups and orders values of a type as Spark does."""
    return isinstance(kind, _ORDERED) or (isinstance(kind, T.StringType) and kind.collation == "UTF8_BINARY")


def _require_types(spark: SparkSession, bound: Bound) -> None:
    """OptionError for a column whose values the resident engine would take otherwise than Spark."""
    for key in bound.program.keys:
        kind = bound.rows[key].dataType
        if not _is_plain(kind):
            raise OptionError(
                f"engine('resident') has no keys of type {kind.simpleString()} such as {key!r}: use "
                "engine('microbatch')"
            )
    for name, use in bound.program.aggregates.items():
        if isinstance(use, AggregatorUse):
            continue
        kind = bound.rows[use.column].dataType if use.column else T.LongType()
        if use.function in ("min", "max") and not _is_plain(kind):
            raise OptionError(
                f"aggregate {name!r}: engine('resident') does not order values of type {kind.simpleString()} such as "
                f"column {use.column!r}: use engine('microbatch')"
            )
        is_ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        if use.function == "sum" and isinstance(kind, T.LongType | T.DecimalType) and not is_ansi:
            raise OptionError(
                f"aggregate {name!r}: a sum that overflows ends the query on engine('resident'), and does not where "
                "spark.sql.ansi.enabled is false: set it to true, or use engine('microbatch')"
            )


def columns_read(bound: Bound, bad_rows: str) -> frozenset[str]:
    """The columns of the input that a program needs: all where a map function sees them, or letters have them."""
    program = bound.program
    if program.map is not None or bad_rows == "dead_letter":
        return frozenset(bound.given.names)
    return frozenset([*program.keys, *([program.time] if program.time else []), *bound.inputs])


class _Shown:
    """Results as the micro-batch engine gives them: the same columns, in the same order, of the same types."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(one.name).cast(one.type) for one in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def result_schema(spark: SparkSession, bound: Bound) -> T.StructType:
    """Columns and types of the results, as plain Spark's expressions have them."""
    program = bound.program
    nothing: DataFrame = spark.createDataFrame([], bound.rows)
    plain = {
        name: use.plain(quoted(use.column) if use.column else F.lit(1)).alias(name)
        for name, use in program.builtins.items()
    }
    kinds = {one.name: one.dataType for one in nothing.agg(*plain.values()).schema} if plain else {}
    for name, own in program.pythons.items():
        kinds[name] = ddl_fields(f"r {own.aggregator.result}", f"`result` of aggregate {name!r}")[0].dataType
    made = T.StructType()
    if program.window is not None:
        made = made.add("window_start", T.TimestampType()).add("window_end", T.TimestampType())
    for key in program.keys:
        made = made.add(key, bound.rows[key].dataType)
    for name in program.aggregates:
        made = made.add(name, kinds[name])
    return made


def _aggregate(name: str, use: Aggregate | AggregatorUse, bound: Bound) -> Aggregate | StateAggregate:
    """As workers that stay compute it; OptionError where they do not."""
    if isinstance(use, AggregatorUse):
        return PythonAggregate.of(name, use)
    if use.column in bound.parsed:
        raise OptionError(
            f"aggregate {name!r}: engine('resident') does not read column {use.column!r}, a string, as a number: "
            "convert it in .map(function, schema), or use engine('microbatch')"
        )
    if use.function not in FUNCTIONS:
        raise OptionError(
            f"aggregate {name!r}: engine('resident') has no {use.function}; it has {', '.join(FUNCTIONS)} and your own "
            "Aggregator classes. Use engine('microbatch')"
        )
    kind = bound.rows[use.column].dataType if use.column else None
    if use.column and use.function in ("min", "max") and isinstance(kind, T.FloatType | T.DoubleType):
        return Extreme(use.column, greatest=use.function == "max")
    if use.function in ("mean", "variance") and isinstance(kind, T.DecimalType):
        raise OptionError(
            f"aggregate {name!r}: engine('resident') has no {use.function} of decimals such as column {use.column!r}: "
            "convert it to double, or use engine('microbatch')"
        )
    return use


@dataclass(frozen=True)
class PythonAggregate(StateAggregate):
    """An `Aggregator` on the resident engine, over the groups of a batch; states in Arrow columns.

    Parameters
    ----------
    name
        What the user calls it.
    use
        The aggregator and its columns.
    state, result
        Arrow types of a state and of a result.
    """

    name: str
    use: AggregatorUse
    state: pa.DataType
    result: pa.DataType

    @classmethod
    def of(cls, name: str, use: AggregatorUse) -> PythonAggregate:
        """With the types that the aggregator's DDL says."""
        fields = arrow_schema(ddl_fields(use.aggregator.state, f"`state` of aggregate {name!r}"))
        result = arrow_schema(ddl_fields(f"r {use.aggregator.result}", f"`result` of aggregate {name!r}"))
        return cls(name, use, pa.struct(list(fields)), result.field("r").type)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those that the aggregator reads."""
        return self.use.columns

    def added(self, columns: Sequence[pa.Array], groups: Groups) -> pa.Array:
        """Of each group."""
        order, bounds = groups.order, groups.bounds
        with self._blamed(rows=True):
            found = added(self.use, columns, order, bounds, self.state)
        with self._blamed():
            states = encoded(found, self.state, "add()")
        if self.use.aggregator.has_both_forms:
            _agreed(added_otherwise(self.name, self.use, columns, order, bounds, states, self.result))
        return states

    def merged(self, states: pa.Array, groups: Groups) -> pa.Array:
        """Those of each group as one."""
        given = states.take(pa.array(groups.order))
        with self._blamed():
            whole = encoded(merged(self.use, given, groups.bounds, self.state), self.state, "merge()")
        if self.use.aggregator.has_both_forms:
            _agreed(merged_otherwise(self.name, self.use, given, groups.bounds, whole, self.result))
        return whole

    def finished(self, states: pa.Array) -> pa.Array:
        """The result of each."""
        with self._blamed():
            return finished(self.use, states, self.state, self.result)

    @contextmanager
    def _blamed(self, rows: bool = False) -> Iterator[None]:
        """What the user's class raises, under the user's name of the aggregate; `rows` may be what is wrong."""
        try:
            with told_of(self.name):
                yield
        except BatchError:  # of what the class gives, not of what it raised
            raise
        except Exception as error:
            kind = type(self.use.aggregator).__name__
            why = f"aggregate {self.name!r}: {type(error).__name__}: {error}{place_of(error)}. Mend {kind}"
            if not rows:
                raise BatchError(why) from error
            raise BadRowError(
                f"there are rows that cannot be processed: {why}, or use engine('microbatch'), which can drop such rows"
            ) from error


def _agreed(told: str) -> None:
    """Raise what is told of two forms that disagree, if anything is."""
    if told:
        raise BatchError(told)


class _Tidy:
    """Rows as they are aggregated: through the map function, and without those that cannot be processed."""

    def __init__(self, bound: Bound, given: pa.Schema, bad_rows: str) -> None:
        program = bound.program
        self._map = applied(program.map) if program.map else None
        columns = arrow_schema(bound.rows) if program.map else given
        needed = dict.fromkeys([*program.keys, *([program.time] if program.time else []), *bound.inputs])
        self.good = pa.schema([columns.field(name) for name in needed])
        self._fails, self._writes = bad_rows == "fail", bad_rows == "dead_letter"
        letter = [pa.field(name, pa.string()) for name in (BAD, BAD_ROW)] if self._writes else []
        self.schema = pa.schema([*self.good, *letter])
        self._required = {key: no_key(key) for key in program.keys}
        if program.time is not None:
            self._required[program.time] = f"null time in column {program.time!r}"

    def __call__(self, batch: pa.RecordBatch) -> Tidied:
        letters: Bad = []
        if self._map is not None:
            good, bad = isolate(batch, self._map)
            if self._fails and len(bad) == batch.num_rows >= EVERY:
                raise BatchError(
                    f"the map function raised on every one of {batch.num_rows} rows, which is a mistake of the "
                    f"program, not of a row: {bad[0][0]}. It was given for example {as_json(bad[0][1])}"
                )
            letters += [(MAP_FAILED + why, row) for why, row in bad]
            if bad and self._fails:
                raise _complaint(letters[0][0], len(bad), as_json(bad[0][1]))
            empty = pa.RecordBatch.from_pylist([], good[0].schema if good else self.good)
            batch = pa.concat_batches(good) if good else empty
        refused = len(letters)
        for column, reason in self._required.items():
            missing = batch.column(column).null_count
            if missing:
                bad_rows = batch.filter(batch.column(column).is_null())
                if self._fails:
                    raise _complaint(reason, missing, as_json(bad_rows))
                if self._writes:
                    letters += [(reason, bad_rows.slice(at, 1)) for at in range(missing)]
                refused += missing
                batch = batch.filter(batch.column(column).is_valid())
        return self._with_letters(batch.select(self.good.names), letters), refused

    def _with_letters(self, batch: pa.RecordBatch, letters: Bad) -> pa.RecordBatch:
        """Good rows, and behind them those that become dead letters, which have no time and move none."""
        if not self._writes:
            return batch
        told = [
            pa.array([one[0] for one in letters], pa.string()),
            pa.array([as_json(one[1]) for one in letters], pa.string()),
        ]
        nulls = [pa.nulls(len(letters), one.type) for one in self.good]
        silent = [pa.nulls(batch.num_rows, pa.string())] * 2
        good = pa.RecordBatch.from_arrays([*batch.columns, *silent], schema=self.schema)
        return pa.concat_batches([good, pa.RecordBatch.from_arrays([*nulls, *told], schema=self.schema)])


def _complaint(reason: str, rows: int, example: str) -> BadRowError:
    return BadRowError(
        f"there are rows that cannot be processed: {counted(rows, 'row')}: {reason}. For example {example}. "
        "Mend the source, or your function, or choose .on_bad_rows('drop') or .on_bad_rows('dead_letter', path=...)"
    )
