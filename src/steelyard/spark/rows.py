"""From a batch as it comes to rows that can be aggregated: the map function, panes, bad rows, late rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from steelyard.core.hidden import BAD, BAD_ROW, BLOCK, LATE, MICROS, PANE, SPLIT, is_hidden
from steelyard.spark.arrow import arrow_schema, map_in_arrow
from steelyard.spark.columns import Columns, changing
from steelyard.spark.isolate import Bad, as_json, isolate, no_key
from steelyard.spark.map_result import as_frame_was_meant, fitted
from steelyard.spark.program import Bound, MapFunction, Session
from steelyard.spark.tasklog import TaskLog, timed
from steelyard.spark.values import as_frame

if TYPE_CHECKING:
    from steelyard.spark.costs import TaskMeter

_AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # by default milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
COSTS = "costs"
"""Under which a task of the map function reports what rows took."""
MAP = "map"
"""What tasks of the map function report under."""
MAP_FAILED = "map function: "
"""Begins the reason of a row on which it raised."""


def mapped(
    rows: DataFrame, function: MapFunction, log: TaskLog | None, meter: Callable[[], TaskMeter] | None = None
) -> DataFrame:
    """`rows` through the user's map function. Rows that make it raise come out with a reason instead.

    With a `meter`, made in each task, the function is measured slice by slice, and what rows cost is reported.
    """
    out = T.StructType(
        [*function.schema.fields, T.StructField(BAD, T.StringType()), T.StructField(BAD_ROW, T.StringType())]
    )
    arrow = arrow_schema(function.schema)
    full = arrow_schema(out)
    apply, prefix = applied(function), MAP_FAILED

    def run(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with timed(log, MAP) as task:
            measure = meter() if meter is not None else None
            for part in parts:
                with task.working(part.num_rows):
                    good, bad = isolate(part, apply) if measure is None else _measured(part, apply, measure)
                    if measure is not None:
                        task.extra[COSTS] = measure.report()
                for batch in good:
                    nulls = [pa.nulls(batch.num_rows, pa.string())] * 2
                    yield pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=full)
                if bad:
                    empty = [pa.nulls(len(bad), field.type) for field in arrow]
                    said = [pa.array([prefix + why for why, _ in bad]), pa.array([as_json(row) for _, row in bad])]
                    yield pa.RecordBatch.from_arrays([*empty, *said], schema=full)

    return map_in_arrow(rows, run, out)


def applied(function: MapFunction) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The user's map function over one batch, its result in the types that he said."""
    arrow = arrow_schema(function.schema)
    call, takes_pandas = function.function, function.form == "pandas"

    def apply(part: pa.RecordBatch) -> pa.RecordBatch:
        try:
            made = call(as_frame(part) if takes_pandas else part)
        except (AttributeError, TypeError) as error:
            raise as_frame_was_meant(function, part, error) or error from None
        return fitted(made, function, arrow)

    return apply


def _measured(
    part: pa.RecordBatch, apply: Callable[[pa.RecordBatch], pa.RecordBatch], meter: TaskMeter
) -> tuple[list[pa.RecordBatch], Bad]:
    """As `isolate`, in slices that are measured; what they give is put together again."""
    good: list[pa.RecordBatch] = []
    bad: Bad = []
    for rows in meter.slices(part):
        more, worse = isolate(rows, apply)
        good += more
        bad += worse
    whole = pa.Table.from_batches(good).combine_chunks().to_batches() if good else []
    return whole, bad


class Tidy:
    """Keeps only the columns that are needed, with each row's pane, the reason why it is bad, and whether it is late.

    Parameters
    ----------
    bound
        The program.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._columns: dict[frozenset[str], Columns] = {}

    def of(self, rows: DataFrame, closed: int | None) -> DataFrame:
        """Rows after the map function, if there is one, made tidy.

        `closed` is the watermark in microseconds: windows that end there or before take no more rows. None: none is
        closed.
        """
        present = frozenset(rows.columns) & {BAD, BLOCK, SPLIT}
        if present not in self._columns:  # building columns costs more than using them
            self._columns[present] = Columns(self._needed(rows, present))
        tidy = self._columns[present].of(rows)
        window = self._bound.program.window
        if window is None:
            return tidy
        start = f"({MICROS} - pmod({MICROS}, {window.pane}L))"
        if isinstance(window, Session):  # a row that comes exactly one gap later is still of it
            last = f"{MICROS} + {window.gap + 1}L"
        else:
            last = f"{start} - pmod({start}, {window.slide}L) + {window.size}L"
        late = f"coalesce({last} <= {changing(closed, MICROS)}, false)" if closed is not None else "false"
        return tidy.selectExpr("*", f"{start} div {window.pane}L as {PANE}", f"{late} as {LATE}")

    def _needed(self, rows: DataFrame, present: frozenset[str]) -> list[Column]:
        bound, program = self._bound, self._bound.program
        kept = [quoted(name) for name in dict.fromkeys([*program.keys, *bound.inputs])]
        numbers = [quoted(name).try_cast("double").alias(bound.number(name)) for name in bound.parsed]
        when = F.unix_micros(quoted(program.time).cast("timestamp")) if program.time else F.lit(0).cast("bigint")
        named = [F.col(name) for name in (BLOCK, SPLIT) if name in present]
        named += [] if program.window else [F.lit(0).cast("bigint").alias(PANE), F.lit(False).alias(LATE)]
        return [*kept, *numbers, when.alias(MICROS), _reason(rows, bound).alias(BAD), *named]


def tidied(rows: DataFrame, bound: Bound, closed: int | None) -> DataFrame:
    """The same for rows of one batch alone."""
    return Tidy(bound).of(rows, closed)


def reasons(bound: Bound) -> dict[str, Column]:
    """Why a row can be refused in the JVM, as conditions on it."""
    program = bound.program
    tests = {no_key(key): quoted(key).isNull() for key in program.keys}
    if program.time is not None:
        tests[f"null time in column {program.time!r}"] = quoted(program.time).isNull()
    for name in bound.parsed:
        column = quoted(name)
        tests[f"not a number in column {name!r}"] = column.isNotNull() & column.try_cast("double").isNull()
    return tests


def _reason(rows: DataFrame, bound: Bound) -> Column:
    chain: Any = F
    for reason, test in reasons(bound).items():
        chain = chain.when(test, reason)
    found = chain.otherwise(F.lit(None).cast("string")) if chain is not F else F.lit(None).cast("string")
    return F.coalesce(F.col(BAD), found) if BAD in rows.columns else found


def judged(rows: DataFrame, bound: Bound) -> DataFrame:
    """Rows after the map function, each with the reason why it is bad, or null."""
    return rows.withColumn(BAD, _reason(rows, bound))


def clean_rows(rows: DataFrame, bound: Bound) -> DataFrame:
    """Of `judged` rows those that are not bad, with the columns that the map function gave."""
    return rows.where(F.col(BAD).isNull()).select(*(quoted(name) for name in bound.rows.names))


def refused(rows: DataFrame, bound: Bound) -> DataFrame:
    """The bad rows among `rows` (after the map function), as (reason, row as JSON)."""
    own = [name for name in rows.columns if not is_hidden(name)]
    text = F.to_json(F.struct(*(quoted(name) for name in own)), _AS_JSON)
    row = F.coalesce(F.col(BAD_ROW), text) if BAD_ROW in rows.columns else text
    return rows.select(_reason(rows, bound).alias("reason"), row.alias("row")).where("reason is not null")


def failed(partials: DataFrame) -> DataFrame:
    """The rows that made a Python aggregate raise, which its partials carry, as (reason, row as JSON)."""
    return partials.where(F.col(BAD).isNotNull()).select(F.col(BAD).alias("reason"), F.col(BAD_ROW).alias("row"))


def quoted(name: str) -> Column:
    """A column by its very name, whatever is in it."""
    return F.col("`" + name.replace("`", "``") + "`")
