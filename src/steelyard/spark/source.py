"""The data source "steelyard": generated workloads as a DataFrame, or as a stream that can be replayed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from steelyard.core.errors import OptionError
from steelyard.spark.classic import require_classic
from steelyard.workloads import Arrivals, Rate, Workload, as_type, parameter_types, parse_rate, workload

CHUNK_ROWS = 65_536
"""Rows of one Arrow record batch: large enough to be fast, small enough to stay in the processor's cache."""
DEFAULT_RATE = "constant:1000"
DEFAULT_PARTITIONS = 4
DEFAULT_START = "2025-01-01T00:00:00Z"
"""Event time of row 0 where nothing depends on the clock."""
ROW_NUMBER = pa.field("row_number", pa.int64())

STREAM_ONLY = ("rows_per_batch", "max_rows_per_batch", "max_rows")
MICROS = 1_000_000

Offset = dict[str, int]


def register(spark: SparkSession) -> None:
    """Make `format("steelyard")` known to this session."""
    require_classic(spark, "register")
    spark.dataSource.register(SteelyardSource)


class SteelyardSource(DataSource):
    """Rows of a workload, for `spark.read` and `spark.readStream`.

    Options are those of `SourceOptions`, and the parameters of the workload.

    Examples
    --------
    >>> SteelyardSource({"workload": "zipf", "keys": "100"}).schema().simpleString()
    'struct<event_time:timestamp,key:bigint,value:double>'
    >>> SteelyardSource({"workload": "zipf", "kyes": "100"}).schema()
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown option of workload zipf 'kyes': did you mean 'keys'? ...
    """

    @classmethod
    def name(cls) -> str:
        """What a user writes in `format`."""
        return "steelyard"

    def schema(self) -> StructType:
        """The columns of the workload; Spark asks at `load`, which is where wrong options are reported."""
        with in_one_line():
            return from_arrow_schema(SourceOptions.parse(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        with in_one_line():
            return RowReader(self._options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (PySpark's name)
        """For `spark.readStream`."""
        try:
            return RowStreamReader(self._options(schema))
        except OptionError as error:  # raised here, PySpark 4.3 would hide it behind an error of its own
            return RefusedReader(error)

    def _options(self, schema: StructType) -> SourceOptions:
        made = self.schema()
        if schema.simpleString() != made.simpleString():
            raise OptionError(
                f"the schema of a workload is given: {made.simpleString()}; leave out .schema(...), "
                f"which says {schema.simpleString()}"
            )
        return SourceOptions.parse(self.options)


@dataclass(frozen=True)
class SourceOptions:
    """What rows there are, when they come, and how they are cut. Spark gives all of it as text.

    Parameters
    ----------
    workload
        Name of the workload (option `workload`), with its parameters and the `seed`.
    rate
        Rows per second over time, as `50000` or `sinusoid:1000,0.5,60`. A stream follows the clock by it,
        unless `rows_per_batch` is given; event times follow it always.
    partitions
        Input partitions (tasks) of each batch; each gets an equal range of the rows.
    rows
        Rows of a static DataFrame; for `spark.read` only.
    rows_per_batch
        Exactly so many rows every trigger, whatever the clock says.
    max_rows_per_batch
        At most so many rows every trigger, the rest later.
    max_rows
        The stream ends after so many rows.
    start
        Event time at which the stream begins, as ISO 8601 (UTC where it says no zone). By default that is
        the moment when the query first started; 2025-01-01 where nothing depends on the clock.
    jitter
        Each event is delayed by up to so many seconds: events come out of order.
    late_share, event_delay
        A share of the events (0 to 1), and by how many seconds these are delayed besides.
    row_numbers
        Whether there is a last column `row_number`, from 0.
    """

    workload: Workload
    rate: Rate
    partitions: int = DEFAULT_PARTITIONS
    rows: int | None = None
    rows_per_batch: int | None = None
    max_rows_per_batch: int | None = None
    max_rows: int | None = None
    start: int | None = None
    jitter: float = 0.0
    late_share: float = 0.0
    event_delay: float = 0.0
    row_numbers: bool = False

    def __post_init__(self) -> None:
        for name, least in (("partitions", 1), ("rows", 0), ("max_rows", 0)):
            _require_at_least(name, getattr(self, name), least)
        for name in ("rows_per_batch", "max_rows_per_batch"):
            _require_at_least(name, getattr(self, name), 1)
        if self.rows_per_batch is not None and self.max_rows_per_batch is not None:
            raise OptionError("options 'rows_per_batch' and 'max_rows_per_batch' exclude each other: give one")
        self.arrivals(0)  # raises where the three options of the delay do not fit together

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """From Spark's options, whose names are in lower case."""
        given = {name.lower(): value for name, value in options.items()}
        name = given.pop("workload", None)
        if name is None:
            raise OptionError("option 'workload' is missing: write .option('workload', 'zipf'), for example")
        made = workload(name)  # says which workloads there are
        parameters = parameter_types(name)
        known = {field.name for field in fields(cls)} | set(parameters)
        for option in given:
            if option not in known:
                raise OptionError.unknown(f"option of workload {name}", option, known)
        made = workload(name, **{option: value for option, value in given.items() if option in parameters})
        own: dict[str, Any] = {"rate": parse_rate(given.pop("rate", DEFAULT_RATE))}
        for option, wanted in _TYPES.items():
            if option in given:
                own[option] = as_type(option, given[option], wanted)
        if "start" in given:
            own["start"] = _instant("start", given["start"])
        return cls(workload=made, **own)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the workload, and the row number where it is wanted."""
        made = self.workload.schema
        return made.append(ROW_NUMBER) if self.row_numbers else made

    @property
    def follows_clock(self) -> bool:
        """Whether a stream offers rows as time goes by, rather than a fixed number every trigger."""
        return self.rows_per_batch is None

    def arrivals(self, origin: int) -> Arrivals:
        """The event times of a stream that starts at `origin`, in microseconds since 1970."""
        return Arrivals(self.rate, origin, self.jitter, self.late_share, self.event_delay, seed=self.workload.seed)

    def ranges(self, first: int, end: int, origin: int) -> list[RowRange]:
        """Rows `first` to `end` - 1 cut into `partitions` ranges that differ by one row at most."""
        total = end - first
        cuts = [first + total * i // self.partitions for i in range(self.partitions + 1)]
        return [RowRange(a, b, origin) for a, b in pairwise(cuts)]

    def batches(self, part: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in Arrow record batches."""
        arrivals = self.arrivals(part.origin)
        for first in range(part.first, part.end, CHUNK_ROWS):
            count = min(CHUNK_ROWS, part.end - first)
            batch = self.workload.rows(first, count, arrivals.times(first, count))
            if self.row_numbers:
                batch = batch.append_column(ROW_NUMBER, pa.array(np.arange(first, first + count)))
            yield batch


@dataclass(frozen=True)
class RowRange(InputPartition):
    """One task's rows: `first` to `end` - 1 of a stream whose event time starts at `origin` (microseconds)."""

    first: int
    end: int
    origin: int


class RowReader(DataSourceReader):
    """Reads a fixed number of rows; Spark plans it in the driver and calls `read` in every task."""

    def __init__(self, options: SourceOptions) -> None:
        for name in STREAM_ONLY:
            if getattr(options, name) is not None:
                raise OptionError(f"option {name!r} is for spark.readStream; for spark.read give 'rows'")
        if options.rows is None:
            raise OptionError("option 'rows' is missing: spark.read needs to know how many rows to make")
        self._options = options
        self._rows = options.rows

    def partitions(self) -> list[InputPartition]:
        """One range of rows for each partition."""
        return list(self._options.ranges(0, self._rows, origin(self._options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, RowRange)
        return self._options.batches(partition)


class RowStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers rows by number: an offset is the number of rows so far.

    Where rows come by the clock, the offset also carries `started`, the moment (in microseconds since 1970)
    when the query first started: after a restart the clock goes on from there, and what was missed is
    offered at once, as by a source outside that never stopped.

    Spark calls all methods but `read` in one process beside the driver, and `read` in the tasks.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.time) -> None:
        if options.rows is not None:
            raise OptionError("option 'rows' is for spark.read; for spark.readStream give 'max_rows'")
        self._options = options
        self._clock = clock
        self._started: int | None = None
        self._all_at_once = False

    def initialOffset(self) -> Offset:  # noqa: N802 (PySpark's name)
        """Row 0. Spark asks again at every trigger until there is a batch, so the start is remembered."""
        if not self._options.follows_clock:
            return {"row": 0}
        if self._started is None:
            self._started = self._now()
        return {"row": 0, "started": self._started}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (PySpark's name)
        """At most the rows of one batch, where the options say how many these are."""
        limit = self._options.rows_per_batch or self._options.max_rows_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (PySpark's name)
        """Everything up to `max_rows` counts as available; without that option there is no end to reach."""
        with in_one_line():
            if self._options.max_rows is None:
                raise OptionError(
                    "option 'max_rows' is missing: the trigger availableNow reads until the end, and a generated "
                    "stream has none unless max_rows gives it one"
                )
        self._all_at_once = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 (PySpark's name)
        """How far the next batch reaches, from `start`."""
        offset = self._with_start(start)
        end = self._available(offset)
        if isinstance(limit, ReadMaxRows):
            end = min(end, offset["row"] + limit.max_rows)
        return {**offset, "row": max(end, offset["row"])}  # a clock that was set back takes nothing away

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 (PySpark's name)
        """What is there by now, read or not: the distance to it is how far the query lags behind."""
        if self._started is None:
            return None
        offset = {"row": 0, "started": self._started}
        return {**offset, "row": self._available(offset)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One range of rows for each partition; none where there are no rows."""
        if end["row"] <= start["row"]:
            return []
        # A first batch that is run again gets a new initial offset as its start: only the end was logged.
        return list(self._options.ranges(start["row"], end["row"], origin(self._options, end.get("started"))))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, RowRange)
        return self._options.batches(partition)

    def _with_start(self, offset: Offset) -> Offset:
        """The offset, with the moment of the stream's start where rows come by the clock."""
        if not self._options.follows_clock:
            return {"row": offset["row"]}
        if "started" not in offset:
            # The query went by rows_per_batch until now: go on as if its rows had come by the clock.
            so_far = float(self._options.rate.time_of_row(offset["row"]))
            offset = {**offset, "started": self._now() - int(so_far * MICROS)}
        self._started = offset["started"]
        return offset

    def _available(self, offset: Offset) -> int:
        """Rows that can be read by now, from row 0."""
        most = self._options.max_rows
        if self._all_at_once and most is not None:
            return most
        if self._options.rows_per_batch is not None:
            offered = offset["row"] + self._options.rows_per_batch
        else:
            offered = int(self._options.rate.rows_until((self._now() - offset["started"]) / MICROS))
        return offered if most is None else min(offered, most)

    def _now(self) -> int:
        return int(self._clock() * MICROS)


class RefusedReader(DataSourceStreamReader):
    """Stands for a reader that cannot be made, and says why as soon as Spark asks it anything."""

    def __init__(self, why: OptionError) -> None:
        self._why = why

    def initialOffset(self) -> Offset:  # noqa: N802 (PySpark's name)
        """What Spark asks first."""
        with in_one_line():
            raise self._why

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 (PySpark's name)
        """What Spark asks first of a query that goes on."""
        return self.initialOffset()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Never called: there is no offset to read to."""
        raise self._why


@contextmanager
def in_one_line() -> Iterator[None]:
    """Have Spark pass an OptionError on as its sentence alone, without the traceback of this package above it.

    A worker of PySpark that fails looks at this variable of its environment, and ends.
    """
    try:
        yield
    except OptionError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith(("pyspark.", "steelyard.spark.daemon")):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


_TYPES: dict[str, type] = {
    "partitions": int,
    "rows": int,
    "rows_per_batch": int,
    "max_rows_per_batch": int,
    "max_rows": int,
    "jitter": float,
    "late_share": float,
    "event_delay": float,
    "row_numbers": bool,
}
"""Options that are not the workload's own and need no more than a type."""


def origin(options: SourceOptions, started: int | None = None) -> int:
    """Event time of the stream's start: as the user says, else when it really started, else the default."""
    if options.start is not None:
        return options.start
    return started if started is not None else _instant("start", DEFAULT_START)


def _instant(option: str, text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 date and time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(f"option {option!r} must be a date and time as in {DEFAULT_START}, got {text!r}") from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round((aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * MICROS)


def _require_at_least(option: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise OptionError(f"option {option!r} must be at least {least}, got {value}")
