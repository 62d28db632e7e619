"""Aggregating operators: in windows of event time, before a split key is merged, and running without windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.core.hidden import FIRST, LAST, PANE
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.floors import Floors, times_dealt, times_joined
from steelyard.resident.keys import distinct
from steelyard.resident.moving import Reassigned, parted
from steelyard.resident.operator import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Batches,
    InstanceContext,
    OperatorLogic,
    State,
    Step,
)
from steelyard.resident.shares import Share
from steelyard.resident.windows import END, START, Session, Window, timely

COMPACT_FROM = 4096
"""Rows of new partials below which merging them is not worth it."""


@dataclass(frozen=True)
class PartialAggregate(OperatorLogic):
    """Partials of each batch by itself, so that fewer rows move, or a key may be spread over instances.

    It keeps nothing: its partials are merged by a `WindowedAggregate` or `RunningAggregate` behind it.
    """

    how: Aggregation
    kind: ClassVar[str] = "partial aggregate"
    by_name: ClassVar[bool] = True

    @property
    def keeps_nothing(self) -> bool:
        """But for sessions, of which it knows how far event time has come."""
        return not isinstance(self.how.window, Session)

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """Keys, panes and partials."""
        return self.how.partial_schema(inputs[0])

    def start(self, context: InstanceContext) -> Step:
        """A step that keeps no rows."""
        return _PartialStep(self.how)

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """It has no keys: as far as whoever was furthest behind."""
        known = [state["watermark"] for state in states if state]
        return {"watermark": min(known)} if known else {}


class _PartialStep(Step):
    """Late rows of sessions are left out here: in the partials of a pane nobody could tell them from rows in time."""

    def __init__(self, how: Aggregation) -> None:
        self._how = how
        self._watermark = MIN_WATERMARK

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        made, refused = _partials(self._how, batch, self._watermark)
        self.refused += refused
        return made.combine_chunks().to_batches() if made is not None else ()

    def on_watermark(self, time: int) -> Batches:
        if isinstance(self._how.window, Session) and time < MAX_WATERMARK:
            self._watermark = time
        return ()

    def snapshot(self, number: int) -> State:
        return {"watermark": self._watermark} if isinstance(self._how.window, Session) else {}

    def restore(self, state: State) -> None:
        self._watermark = state.get("watermark", MIN_WATERMARK)


def _partials(
    how: Aggregation, batch: pa.RecordBatch, watermark: int, floors: Floors | None = None
) -> tuple[pa.Table | None, int]:
    """Partials of rows that are not late, if there are any; and how many were refused."""
    if how.window is None:
        return how.partials(batch) if batch.num_rows else None, 0
    rows, times = timely(batch, how.window, watermark)
    if floors is not None:
        kept = how.window.last_end(times) > floors.of(pa.Table.from_batches([rows]), how.keys)
        rows, times = rows.filter(pa.array(kept)), times[kept]
    refused = batch.num_rows - rows.num_rows
    return how.partials(rows, times) if rows.num_rows else None, refused


@dataclass(frozen=True)
class WindowedAggregate(OperatorLogic):
    """Aggregates of each key in each window, given once, when the watermark passes the window's end.

    Parameters
    ----------
    how
        Keys, aggregates and the window.
    from_partials
        Whether partials come in, rather than rows.
    open_end
        Whether windows that event time has not passed stay open at the end of all rows, as in Spark: they are in the
        last snapshot, and a job that goes on from it closes them.
    begins
        Where event time begins: rows whose windows all end there or before are late from the first one on.
    """

    how: Aggregation
    from_partials: bool = False
    open_end: bool = False
    begins: int = MIN_WATERMARK
    kind: ClassVar[str] = "windowed aggregate"
    by_name: ClassVar[bool] = True

    @property
    def waits_for_time(self) -> bool:
        """For the end of each window."""
        return True

    @property
    def state_settings(self) -> str:
        """Panes are of one window and of these aggregates."""
        return self.how.settings

    def keys(self, port: int) -> tuple[str, ...]:
        """The keys of the aggregation."""
        return self.how.keys

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """Keys, the window's bounds, and results."""
        if self.how.window is None:
            raise OptionError("a windowed aggregate needs a window: give window='10 seconds'")
        return self.how.result_schema(inputs[0] if self.from_partials else self.how.partial_schema(inputs[0]))

    def start(self, context: InstanceContext) -> Step:
        """A step with empty windows."""
        assert self.how.window is not None
        step = SessionStep if isinstance(self.how.window, Session) else WindowedStep
        return step(self.how, self.how.window, self.from_partials, context.schema, self.open_end, self.begins)

    @property
    def gives_groups(self) -> bool:
        """What is known is known key by key."""
        return True

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """Open panes by their keys, and how far time is for each key."""
        return panes_dealt(states, share, self.how.keys)


def panes_dealt(states: Sequence[State], share: Share, keys: Sequence[str]) -> State:
    """What a `WindowedStep` goes on from."""
    panes = share.gathered([state["panes"] for state in states if "panes" in state], keys)
    return times_dealt(states, share) | ({} if panes is None else {"panes": panes})


class WindowedStep(Step):
    """Partials by key and pane; windows are merged from their panes when they close.

    New partials gather until they outnumber those that are merged already, so that each is merged O(log n) times.
    """

    def __init__(
        self,
        how: Aggregation,
        window: Window,
        from_partials: bool,
        schema: pa.Schema,
        open_end: bool = False,
        begins: int = MIN_WATERMARK,
    ) -> None:
        self._how, self._window, self._from_partials, self._schema = how, window, from_partials, schema
        self._open_end = open_end
        self._settled: pa.Table | None = None
        self._new: list[pa.Table] = []
        self._new_rows = 0
        self._earliest = MAX_WATERMARK
        self._watermark = begins
        self._floors: Floors | None = None
        """For keys that were further than others when they came here."""

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """Nothing comes out before a window closes."""
        if self._from_partials:
            made = pa.Table.from_batches([batch])
            kept = self._over(made) > self._watermark
            if self._floors is not None:
                kept &= self._over(made) > self._floors.of(made, self._how.keys)
            self.refused += int(len(kept) - kept.sum())
            made = made if kept.all() else made.filter(pa.array(kept))
        else:
            found, refused = _partials(self._how, batch, self._watermark, self._floors)
            self.refused += refused
            if found is None:
                return ()
            made = found
        if made.num_rows:
            self._add(made)
        return ()

    def _add(self, partials: pa.Table) -> None:
        self._earliest = min(self._earliest, self._first_due(partials))
        self._new.append(partials)
        self._new_rows += partials.num_rows
        settled = self._settled.num_rows if self._settled is not None else 0
        if self._new_rows > max(COMPACT_FROM, settled):
            self._compact()

    def _compact(self) -> pa.Table | None:
        if self._new:
            parts = [*self._new, *([self._settled] if self._settled is not None else [])]
            self._settled = self._merged(parts).combine_chunks()
            self._new, self._new_rows = [], 0
        return self._settled

    def _merged(self, partials: list[pa.Table]) -> pa.Table:
        return self._how.merged(partials)

    def _over(self, partials: pa.Table) -> Ints:
        """When time is there, partials are never needed again."""
        return np.asarray(self._window.last_end(times_of(partials, PANE)))

    def _first_due(self, partials: pa.Table) -> int:
        """Before that no window with one of these partials closes."""
        panes = times_of(partials, PANE)
        return self._window.first_end(int(panes.min())) if len(panes) else MAX_WATERMARK

    def on_watermark(self, time: int) -> Batches:
        """The results of windows that end at `time` or earlier; at the end, of all, and later ones may still come."""
        at_end = time == MAX_WATERMARK
        if time <= self._watermark or (self._open_end and at_end):
            return ()
        before = self._watermark
        if not at_end:
            self._watermark = time
        if self._earliest == MAX_WATERMARK or self._earliest > time:
            return ()
        partials = self._compact()
        assert partials is not None
        over = self._over(partials)
        if at_end:  # a job that goes on with more rows gives no window twice
            self._watermark = max(before, int(over.max()))
        self._settled = partials.filter(pa.array(over > time))
        self._earliest = self._first_due(self._settled)
        closed = self._closed(partials, before, time)
        self._floors = self._floors.above(self._watermark) if self._floors is not None else None
        return closed

    def _closed(self, partials: pa.Table, before: int, time: int) -> Batches:
        """The results of windows that end in `(before, time]`."""
        parts = self._parts(partials, before, time, self._floors)
        return (made for rows, starts in parts for made in self._results(rows, starts))

    def _parts(
        self, partials: pa.Table, before: int, time: int, floors: Floors | None
    ) -> Iterator[tuple[pa.Table, Ints]]:
        """(partials, windows' starts) of windows that end in `(before, time]`, and were not given elsewhere."""
        known = floors.of(partials, self._how.keys) if floors is not None else None
        for rows, starts in self._window.closing(times_of(partials, PANE), before, time):
            new = starts + self._window.size > known[rows] if known is not None else np.ones(len(rows), np.bool_)
            if new.any():
                yield partials.take(pa.array(rows[new])), starts[new]

    def _results(self, partials: pa.Table, starts: Ints) -> Batches:
        at = partials.schema.get_field_index(PANE)
        kind = partials.schema.field(PANE).type
        if self._window.size != self._window.pane:  # several panes are one window
            partials = self._how.merged([partials.set_column(at, PANE, pa.array(starts).cast(kind))])
            starts = times_of(partials, PANE)
        return self._given(partials, starts, starts + self._window.size)

    def _given(self, partials: pa.Table, starts: Ints, ends: Ints) -> Batches:
        """Results of partials that are whole windows, with their bounds."""
        kind = partials.schema.field(PANE).type
        found = self._how.results(partials)
        found = found.append_column(START, pa.array(starts).cast(kind))
        found = found.append_column(END, pa.array(ends).cast(kind))
        return tuple(self._chosen(found).select(self._schema.names).combine_chunks().to_batches())

    def _chosen(self, results: pa.Table) -> pa.Table:
        """Those of the results that are given."""
        return results

    def snapshot(self, number: int) -> State:
        """The open panes, and how far time has come: also where no pane is open, late rows stay late."""
        partials = self._compact()
        known: State = {"watermark": self._watermark}
        if self._floors is not None:
            known["floors"] = self._floors.times.tolist()
        return known if partials is None else {**known, "panes": partials}

    def give(self, moved: Reassigned, number: int) -> dict[int, State]:
        """Open panes, and how far time has come."""
        known = self.snapshot(0)
        panes = known.pop("panes", None)
        takers = moved.takers(number)
        if panes is None:
            return {taker: dict(known) for taker in takers}
        owners = moved.owners(panes, self._how.keys)
        self._settled = panes.filter(pa.array(owners == number))
        self._earliest = self._first_due(self._settled)
        return {taker: {**known, "panes": rows} for taker, rows in parted(panes, owners, takers).items()}

    def take(self, states: Mapping[int, State], moved: Reassigned, number: int | None) -> None:
        """Open windows of what comes; those of before that have closed are not given again."""
        own: State = {"watermark": self._watermark}
        if self._floors is not None:
            own["floors"] = self._floors.times.tolist()
        times = times_joined({**states, **({} if number is None else {number: own})}, moved.before)
        self._watermark, self._floors = times["watermark"], Floors.restored(times)
        for state in states.values():
            if "panes" in state and state["panes"].num_rows:
                self._add(self._how.ordered(state["panes"]))

    def restore(self, state: State) -> None:
        """Go on with these panes."""
        if state:
            self._watermark, self._floors = state["watermark"], Floors.restored(state)
        if "panes" in state:
            self._settled = self._how.ordered(state["panes"])
            self._earliest = self._first_due(self._settled)


class SessionStep(WindowedStep):
    """Partials by key and session; a session closes when time has passed its last row by more than the gap."""

    def _merged(self, partials: list[pa.Table]) -> pa.Table:
        """Partials of each session as one, whose pane begins with the session."""
        whole = self._how.merged(partials)
        assert isinstance(self._window, Session)
        keys = [whole.column(key).combine_chunks() for key in self._how.keys] or [pa.nulls(whole.num_rows)]
        begins = self._window.begins(distinct(keys)[0], times_of(whole, FIRST), times_of(whole, LAST))
        at, kind = whole.schema.get_field_index(PANE), whole.schema.field(PANE).type
        return self._how.merged([whole.set_column(at, PANE, pa.array(begins).cast(kind))])

    def _over(self, partials: pa.Table) -> Ints:
        return np.asarray(self._window.last_end(times_of(partials, LAST)))

    def _first_due(self, partials: pa.Table) -> int:
        return int(self._over(partials).min(initial=MAX_WATERMARK))

    def _closed(self, partials: pa.Table, before: int, time: int) -> Batches:
        closing = partials.filter(pa.array(self._over(partials) <= time))
        return self._given(closing, times_of(closing, FIRST), times_of(closing, LAST) + self._window.size)


def times_of(partials: pa.Table, column: str) -> Ints:
    """The values of a column of times, in microseconds."""
    return np.asarray(partials.column(column).cast(pa.int64()).to_numpy())
