"""What is done with every batch, and how batches are made and scheduled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from steelyard.core import BucketAllocator, OptionError
from steelyard.core.aggregates import Aggregate, count
from steelyard.core.arrow import has_hash
from steelyard.core.durations import micros
from steelyard.core.hidden import ROWS
from steelyard.partition.allocator import allocator
from steelyard.partition.registry import tuple_policy
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.groups.plan import MAX_TASKS
from steelyard.resident.operator import MIN_WATERMARK, conform, schema_of
from steelyard.resident.sources import Reader
from steelyard.resident.windows import Window
from steelyard.workloads.rates import Rate

RowFunction = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class BatchProgram:
    """A keyed aggregation of every batch, or of windows of event time across batches.

    Parameters
    ----------
    source
        Rows, which can be read again from an offset.
    keys
        Key columns, of what `function` gives.
    aggregates
        Named aggregates: `{"n": count(), "total": sum("value")}`.
    rate
        Rows per second that have come at a moment; None takes `batch_rows` rows per batch, whenever it is.
    batch_rows
        The most rows that are read for a batch without a rate.
    function
        Called with the rows of each block in its map task; gives rows of the columns `schema`.
    schema
        Those columns, as a `pyarrow.Schema` or a dictionary; None where they are those of the source.
    partitioner
        Cuts batches into blocks: a name of the registry, or a policy. It sees the rows of the source, so keys must be
        columns of the source too where there is a function, or else blocks are cut in order of rows.
    allocator
        Sends key clusters to buckets: `prompt` (Algorithm 3), `hash`, or a policy.
    window, slide, time, delay
        Windows as durations, over a column of event times that may be late by `delay`; without, each batch is
        aggregated by itself. The column is the source's too, where event time is followed; `function` may change it as
        long as rows stay in time for their windows.
    open_end, begins, step
        Whether windows that event time has not passed stay open at the end, as in Spark; where event time begins, and
        in which steps it goes on, in microseconds.
    running
        Without a window: a batch gives its keys with what they are over all rows so far.

    Examples
    --------
    >>> from steelyard import count
    >>> from steelyard.resident import Rows
    >>> BatchProgram(Rows(pa.table({"k": [1]})), ("k",), {"n": count()}).result_schema.names
    ['k', 'n']
    """

    source: Reader
    keys: tuple[str, ...]
    aggregates: dict[str, Aggregate]
    rate: Rate | None = None
    batch_rows: int = 65_536
    function: RowFunction | None = None
    schema: pa.Schema | Mapping[str, Any] | None = None
    partitioner: object = "prompt"
    allocator: str | BucketAllocator = "prompt"
    window: str | None = None
    slide: str | None = None
    time: str | None = None
    delay: str | None = None
    open_end: bool = False
    begins: int = MIN_WATERMARK
    step: int = 1
    running: bool = False
    name: str = "batches"

    def __post_init__(self) -> None:
        allocator(self.allocator)  # a name that is none is an error here
        if not self.keys:
            raise OptionError('batches are cut by keys: give keys=("column",)')
        if self.batch_rows < 1:
            raise OptionError(f"batch_rows must be 1 or more, got {self.batch_rows}")
        for option in ("slide", "time", "delay"):
            if getattr(self, option) is not None and self.window is None:
                raise OptionError(f"{option}={getattr(self, option)!r} needs a window: give window= too")
        if self.schema is not None and self.function is None:
            raise OptionError("schema= says what columns the function gives: give function= too, or leave it out")
        if ROWS in self.aggregates:
            raise OptionError(f"an aggregate cannot be named {ROWS!r}, which is the engine's own: rename it")
        if self.running and self.window is not None:
            raise OptionError("running=True is for aggregates without a window: leave out one of the two")
        if self.window is not None and self.time is None:
            raise OptionError("a window needs event times: give time=, the name of their column")
        if not self.source.replayable:
            raise OptionError(f"{type(self.source).__name__} cannot be read again, and batches may have to be")
        if self._window is not None:  # how far event time has come is seen where rows are read
            self._window.require(self.source_schema)
        tuple_policy(self.partitioner)  # type: ignore[arg-type]  # a name that is none is an error here
        _ = self.result_schema, self.delay_micros  # and so is a column that is none
        for key in self.keys:
            self._require_key(key)

    def _require_key(self, key: str) -> None:
        """OptionError for a key whose hash is not known, where blocks are cut by it or where it is aggregated."""
        for schema in (self.source_schema, self.row_schema):
            kind = schema.field(key).type if key in schema.names else pa.null()
            if not has_hash(kind):
                raise OptionError(
                    f"key {key!r} is of Arrow type {kind}, and cannot be hashed as Spark hashes keys: give it as a "
                    "signed number, a string, binary, boolean, date or timestamp"
                )

    @cached_property
    def how(self) -> Aggregation:
        """Keys, aggregates and windows."""
        return Aggregation(self.keys, tuple(self.aggregates.items()), self._window)

    @cached_property
    def counted(self) -> Aggregation:
        """The same, and the rows of each partial: what map tasks compute."""
        return Aggregation(self.keys, (*self.aggregates.items(), (ROWS, count())), self._window)

    @property
    def _window(self) -> Window | None:
        return Window.of(self.time or "", self.window, self.slide) if self.window else None

    @property
    def keeps(self) -> bool:
        """Whether something is kept from batch to batch."""
        return self.window is not None or self.running

    @property
    def goes_on(self) -> bool:
        """Whether what is kept at the end counts, for a job that goes on from there."""
        return self.open_end or self.running

    @property
    def delay_micros(self) -> int:
        """How late rows may be."""
        return micros(self.delay, "delay") if self.delay else 0

    @cached_property
    def source_schema(self) -> pa.Schema:
        """The columns that are read."""
        return schema_of(self.source.schema)

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The columns that are aggregated."""
        return self.source_schema if self.schema is None else schema_of(self.schema)

    @cached_property
    def partial_schema(self) -> pa.Schema:
        """The columns that go from map to reduce tasks, and on to windows."""
        return self.counted.partial_schema(self.row_schema)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of results; OptionError for a column that is not there."""
        return self.how.result_schema(self.partial_schema)

    @property
    def cut_by_key(self) -> bool:
        """Whether the keys are known before the function has been called."""
        return all(key in self.source_schema.names for key in self.keys)

    def applied(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What the function makes of rows; OptionError where they have other columns than it said."""
        if self.function is None:
            return rows
        return conform(self.function(rows), self.row_schema, "the function of the batches")


@dataclass(frozen=True)
class Scheduling:
    """How batches are scheduled.

    Parameters
    ----------
    interval
        Seconds of a batch.
    group
        Batches that are scheduled with one message a worker, G.
    ahead
        How many batches before a group's end the next one is sent, the scheduling window; 0 sends it when the last
        batch of the group is done, as a scheduler does that looks at one group at a time.
    adjust
        A change of the plan holds from so many batches behind the one that caused it, the adjustment window.
    boundary
        Whether the plan changes only where a group begins.
    overdue
        Share of the interval after which a batch that still runs is taken for overloaded, before it ends.
    batches
        End behind so many; None ends with the source.
    blocks, buckets
        Map and reduce tasks to begin with.
    slots
        Tasks that a worker runs at once.
    receivers
        Workers that read the source, each its share of the splits; None lets all of them.
    backlog
        Batches that may wait; behind that the source is not read until they are done.
    snapshot
        Batches between two snapshots of the windows.
    restarts
        How often workers may fail.
    silence, join
        Seconds without a word after which a worker counts as dead; and seconds that workers have to come.
    history
        Batches, and changes of plan, that the outcome remembers.
    """

    interval: float = 1.0
    group: int = 10
    ahead: int = 2
    adjust: int = 2
    boundary: bool = False
    overdue: float = 0.9
    batches: int | None = None
    blocks: int = 4
    buckets: int = 4
    slots: int = 2
    receivers: int | None = None
    backlog: int = 64
    snapshot: int = 10
    restarts: int = 3
    silence: float = 30.0
    join: float = 120.0
    history: int = 10_000

    def __post_init__(self) -> None:
        rules = {
            "interval": ("above 0 seconds", self.interval > 0),
            "group": ("1 batch or more", self.group >= 1),
            "ahead": ("0 or more batches, and at most a group", 0 <= self.ahead <= self.group),
            "adjust": ("1 batch or more", self.adjust >= 1),
            "overdue": ("above 0", self.overdue > 0),
            "batches": ("1 or more", self.batches is None or self.batches >= 1),
            "blocks": (f"1 to {MAX_TASKS}", 1 <= self.blocks <= MAX_TASKS),
            "buckets": (f"1 to {MAX_TASKS}", 1 <= self.buckets <= MAX_TASKS),
            "slots": ("1 or more", self.slots >= 1),
            "receivers": ("1 or more", self.receivers is None or self.receivers >= 1),
            "backlog": ("1 batch or more", self.backlog >= 1),
            "snapshot": ("1 batch or more", self.snapshot >= 1),
            "restarts": ("0 or more", self.restarts >= 0),
            "silence": ("above 0 seconds", self.silence > 0),
            "join": ("above 0 seconds", self.join > 0),
            "history": ("2 batches or more", self.history >= 2),
        }
        for name, (rule, holds) in rules.items():
            if not holds:
                raise OptionError(f"{name} must be {rule}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Batches:
    """What workers are given: a program, and how it is scheduled."""

    program: BatchProgram
    scheduling: Scheduling

    def receivers(self, workers: int) -> int:
        """How many of so many workers read the source."""
        return min(self.scheduling.receivers or workers, workers)

    @property
    def name(self) -> str:
        """The program's."""
        return self.program.name
