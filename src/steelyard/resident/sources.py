"""Where rows come from: splits that are read from an offset on, so that a source can be read again."""

from __future__ import annotations

import copy
import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError, SteelyardError
from steelyard.resident.lag import Behind, LagMeter
from steelyard.resident.operator import (
    MIN_WATERMARK,
    InstanceContext,
    OperatorLogic,
    State,
    schema_of,
)
from steelyard.resident.shares import Share
from steelyard.resident.windows import as_micros

DEFAULT_BATCH_ROWS = 65_536


class Read(NamedTuple):
    """What a split gave: rows (none where there are none yet), the offset behind them, whether it is at its end."""

    batch: pa.RecordBatch | None
    offset: int
    ended: bool


class Reader(ABC):
    """Reads splits. The same split at the same offset gives the same rows again, unless it is not `replayable`.

    A reader is a description and is sent to workers; files and sockets are opened at the first `read` there.
    """

    schema: pa.Schema
    replayable: ClassVar[bool] = True
    together: ClassVar[bool] = False
    """Whether splits grow side by side, as a topic's partitions do, rather than follow each other."""
    at_once: ClassVar[int | None] = None
    """How many splits of an instance are read side by side; None reads all of them."""
    grows: ClassVar[bool] = False
    """Whether a split that was read to its end may have more rows when the job is started again."""
    tells_end: ClassVar[bool] = False
    """Whether `end` tells where splits end by now."""
    refused: int = 0
    """Rows that were left out so far."""
    added: int = 0
    """How many more rows were given than `read` was to take, so far: where a function makes them; below 0 for fewer."""
    waited: float = 0.0
    """Seconds in which `read` waited for rows, since there were none."""

    @abstractmethod
    def splits(self, parallelism: int) -> list[str]:
        """The names of its splits; `parallelism` instances share them out in turn.

        A job that goes on leaves those that it knows where they were, and shares out new ones behind them.
        """

    @abstractmethod
    def read(self, split: str, offset: int, rows: int) -> Read:
        """Up to so many rows of a split from an offset on; returns at once, or after a moment, also without rows."""

    def begin(self, split: str) -> int:
        """The first offset of a split."""
        return 0

    def end(self, split: str) -> int | None:
        """The offset behind the newest row that a split has by now; None where that is not known.

        Whoever measures calls it about twice a second, in another thread than that of `read`.
        """
        return None

    def counted(self, split: str, offset: int, at_end: bool) -> tuple[int, int] | None:
        """Rows that a split has by now, and how many of them are before an offset; None where that is not known.

        Both are counted from some row on, always the same. `at_end` says that it was read to its end: it may be gone.
        """
        end = offset if at_end else self.end(split)
        return None if end is None else (end, offset)

    def clock(self) -> float | None:
        """The moment from which it counts, in seconds since 1970, where rows come by the clock and it has begun."""
        return None

    def set_clock(self, at: float) -> None:  # noqa: B027 - most readers have none
        """Count from this moment, as workers did that are gone."""

    def fresh(self) -> Reader:
        """The same description with nothing opened: each instance reads with one of its own."""
        return replace(self) if is_dataclass(self) else copy.copy(self)

    def close(self) -> None:  # noqa: B027 - most readers have nothing open
        """Let go of files and sockets."""


@dataclass(frozen=True)
class Source(OperatorLogic):
    """An operator that reads.

    Parameters
    ----------
    reader
        What is read.
    time
        The column of event times, a timestamp; None where rows have none, and then no window behind it closes
        before the end.
    delay
        How much later than the newest row of its split a row may come and still be in time, in microseconds.
    batch_rows
        The most rows of a batch. A source that has fewer at hand sends those, so that nothing waits.
    step
        Event time goes on in steps of so many microseconds; those of Spark are 1000.
    """

    reader: Reader
    time: str | None = None
    delay: int = 0
    batch_rows: int = DEFAULT_BATCH_ROWS
    step: int = 1
    ports: int = 0

    kind: ClassVar[str] = "source"
    by_name: ClassVar[bool] = True

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns that are read."""
        if self.time is not None:
            if self.time not in self.reader.schema.names:
                raise OptionError.unknown("time column", self.time, self.reader.schema.names)
            kind = self.reader.schema.field(self.time).type
            if not pa.types.is_timestamp(kind):
                raise OptionError(f"time column {self.time!r} must be a timestamp, and is {kind}")
        return schema_of(self.reader.schema)

    def start(self, context: InstanceContext) -> SourceStep:
        """Reads the splits of one instance."""
        run = context.attempt.run
        return SourceStep(self, self.reader.fresh(), context.instance.number, context.parallelism, run)

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """Splits as they were cut, in the order that they had, shared out among as many as there are now."""
        known = [state for state in states if state]
        if not known:
            return {}
        cut = known[0].get("cut", share.before.parallelism)
        there = [split for state in known for split in state.get("dealt", ())]
        dealt = list(dict.fromkeys([*there, *self.reader.fresh().splits(cut)]))
        own = set(dealt[share.number :: share.now.parallelism])
        made: dict[str, dict[str, int]] = {what: {} for what in ("offsets", "newest")}
        for state in known:
            for what, by_split in made.items():
                by_split |= {split: value for split, value in state[what].items() if split in own}
        clocks = [state["clock"] for state in known if state.get("clock", ("", None))[1] is not None]
        still_open = [split for state in known for split in state["open"] if split in own]
        return {**made, "open": still_open, "dealt": dealt, "cut": cut, "clock": clocks[0] if clocks else ["", None]}


class SourceStep:
    """The splits of one instance, read in turn, and how far event time has come in all of them.

    Parameters
    ----------
    logic, reader
        What is read.
    number, parallelism
        Which instance it is, of how many.
    run
        The run of the job: a clock goes on while it lasts.
    """

    def __init__(self, logic: Source, reader: Reader, number: int, parallelism: int, run: str = "") -> None:
        self._logic, self._reader, self._run = logic, reader, run
        self._number, self._parallelism = number, parallelism
        self._cut = parallelism
        """For how many instances splits were cut, if that depends on it: as many as there were when the job began."""
        self._dealt = list(reader.splits(parallelism))
        """All splits, in the order in which instances share them out; it only ever gets longer."""
        splits = self._own()
        self._offset = {split: reader.begin(split) for split in splits}
        self._newest = dict.fromkeys(splits, MIN_WATERMARK)
        self._turn = list(splits)
        self._at_end: set[str] = set()
        """Splits that were read to their ends."""
        self._meter = LagMeter()

    def _own(self) -> list[str]:
        """The splits of this instance."""
        return self._dealt[self._number :: self._parallelism]

    @property
    def ended(self) -> bool:
        """Whether all splits are at their ends."""
        return not self._turn

    @property
    def refused(self) -> int:
        """Rows that the reader left out."""
        return self._reader.refused

    @property
    def added(self) -> int:
        """Rows that the reader gave beyond those that it took."""
        return self._reader.added

    @property
    def waited(self) -> float:
        """Seconds in which the reader waited for rows."""
        return self._reader.waited

    def behind(self) -> Behind | None:
        """How far it is behind the ends of its splits, where those are known. Not for the thread that reads."""
        if not self._reader.tells_end:
            return None
        offset, at_end = dict(self._offset), set(self._at_end)
        try:
            counted = [self._reader.counted(split, at, split in at_end) for split, at in offset.items()]
        except (OSError, pa.ArrowInvalid, SteelyardError):  # the next read tells
            return None
        known = [one for one in counted if one is not None]
        if len(known) < len(counted):
            return None
        return self._meter.look(sum(end for end, _ in known), sum(read for _, read in known), time.monotonic())

    @property
    def watermark(self) -> int:
        """Earlier than this no row comes any more, but for late ones; at the end, as far as the furthest split came."""
        if self._logic.time is None:
            return MIN_WATERMARK
        if self._turn:
            newest = min(self._newest[split] for split in self._turn)
        else:
            newest = max(self._newest.values(), default=MIN_WATERMARK)
        if newest == MIN_WATERMARK:
            return MIN_WATERMARK
        return newest - newest % self._logic.step - self._logic.delay

    def read(self) -> pa.RecordBatch | None:
        """The next batch of the next split that has one; None where none has rows at the moment."""
        for _ in range(len(self._turn)):
            split = self._turn.pop(0)
            found = self._reader.read(split, self._offset[split], self._logic.batch_rows)
            self._offset[split] = found.offset
            if found.ended:
                self._at_end.add(split)
            else:
                self._turn.insert((self._reader.at_once or len(self._turn) + 1) - 1, split)
            if found.batch is not None and found.batch.num_rows:
                self._see(split, found.batch)
                return found.batch.replace_schema_metadata(None)
        return None

    def _see(self, split: str, batch: pa.RecordBatch) -> None:
        if self._logic.time is not None:
            times = batch.column(self._logic.time)
            if times.null_count < len(times):
                self._newest[split] = max(self._newest[split], int(as_micros(times.drop_null()).max()))

    def snapshot(self, number: int) -> State:
        """Offsets and newest times of its splits, which are not at their ends, and how all splits are shared out."""
        offsets, newest = dict(self._offset), dict(self._newest)
        kept = {"offsets": offsets, "newest": newest, "open": list(self._turn), "dealt": list(self._dealt)}
        return {**kept, "cut": self._cut, "clock": [self._run, self._reader.clock()]}

    def restore(self, state: State) -> None:
        """Go on from these offsets; splits that were not there then are read from their beginning."""
        if state:
            cut = state.get("cut", self._cut)
            if cut != self._cut:
                self._cut, self._dealt = cut, list(self._reader.splits(cut))
            offsets, there = state["offsets"], self._dealt
            gone = sorted(set(offsets) - set(there))
            if gone:
                raise OptionError(f"a source is to go on with split {gone[0]!r}, and has none of that name any more")
            # Snapshots of earlier releases do not know how splits were shared out: in the order of that time.
            self._dealt = list(dict.fromkeys([*state.get("dealt", ()), *there]))
            own = self._own()
            moved = sorted(set(offsets) - set(own))
            if moved:
                raise OptionError(
                    f"a source is to go on with split {moved[0]!r}, which new splits have moved to another instance: a "
                    "snapshot of an earlier release does not know how splits were shared out. Go on once without the "
                    "new ones, or begin anew with another store"
                )
            new = [split for split in own if split not in offsets]
            again = [split for split in own if self._reader.grows and split in offsets]
            self._offset = {split: self._reader.begin(split) for split in new}
            self._offset |= {name: int(offset) for name, offset in offsets.items()}
            self._newest = dict.fromkeys(new, MIN_WATERMARK) | {name: int(at) for name, at in state["newest"].items()}
            run, clock = state.get("clock", ("", None))
            if run == self._run and clock is not None:
                self._reader.set_clock(clock)
            self._turn = list(dict.fromkeys([*state["open"], *again, *new]))
            self._at_end = set(self._offset) - set(self._turn)

    def committed(self, number: int) -> None:
        """Offsets are in the snapshot: there is nothing else to do."""

    def close(self) -> None:
        """Let go of files and sockets."""
        self._reader.close()


@dataclass(frozen=True)
class Rows(Reader):
    """Rows of a table in memory, cut into as many splits as there are instances, or as `pieces` says."""

    tells_end: ClassVar[bool] = True
    table: pa.Table
    pieces: int | None = None
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.table.schema

    def splits(self, parallelism: int) -> list[str]:
        """Numbered from 0."""
        self._cache["pieces"] = self.pieces or parallelism
        return [str(number) for number in range(self.pieces or parallelism)]

    def _bounds(self, split: str) -> tuple[int, int]:
        bounds = np.linspace(0, self.table.num_rows, self._cache["pieces"] + 1).astype(int)
        return int(bounds[int(split)]), int(bounds[int(split) + 1])

    def end(self, split: str) -> int:
        """Its rows, which are all there."""
        start, end = self._bounds(split)
        return end - start

    def read(self, split: str, offset: int, rows: int) -> Read:
        """A slice."""
        start, end = self._bounds(split)
        count = min(rows, end - start - offset)
        part = self.table.slice(start + offset, count).combine_chunks().to_batches()
        after = offset + (part[0].num_rows if part else 0)  # more text than one batch holds stays in several
        return Read(part[0] if part else None, after, start + after >= end)


@dataclass(frozen=True)
class SocketLines(Reader):
    """JSON lines from a socket, for tests and demonstrations. Lines that were read cannot be read again.

    So there is no restart: a failure ends the job.
    """

    host: str
    port: int
    schema: Any
    replayable: ClassVar[bool] = False
    _opened: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    _WAIT: ClassVar[float] = 0.05

    @property
    def waited(self) -> float:  # type: ignore[override]
        """Seconds without a line."""
        return float(self._opened.get("waited", 0.0))

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", schema_of(self.schema))

    def splits(self, parallelism: int) -> list[str]:
        """One."""
        return [f"{self.host}:{self.port}"]

    def read(self, split: str, offset: int, rows: int) -> Read:
        """Whole lines that have come."""
        if "socket" not in self._opened:
            self._opened["socket"] = socket.create_connection((self.host, self.port))
            self._opened["socket"].settimeout(self._WAIT)
            self._opened["rest"] = b""
        try:
            got = self._opened["socket"].recv(1 << 16)
        except TimeoutError:
            self._opened["waited"] = self.waited + self._WAIT
            return Read(None, offset, False)
        lines = (self._opened["rest"] + (got or b"\n")).split(b"\n")
        self._opened["rest"] = lines.pop()
        values = [json.loads(line) for line in lines if line.strip()]
        batch = pa.RecordBatch.from_pylist(values, schema=self.schema) if values else None
        return Read(batch, offset + len(values), not got)

    def close(self) -> None:
        """Close the socket."""
        if "socket" in self._opened:
            self._opened.pop("socket").close()
