"""Aggregates that are given when an epoch ends: those that it changed, in windows or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import OptionError
from steelyard.core.aggregates import Aggregate
from steelyard.core.hidden import NEW
from steelyard.resident.aggregate import COMPACT_FROM, WindowedStep, panes_dealt
from steelyard.resident.aggregates import Aggregation
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


@dataclass(frozen=True)
class ChangedAggregate(OperatorLogic):
    """Aggregates of each key (in each window), given once in each epoch that had rows of it, with all rows so far.

    A window takes rows until the watermark passes its end, and is forgotten then.

    Parameters
    ----------
    how
        Keys, aggregates and the window, if there is one.
    from_partials
        Whether partials come in, rather than rows.
    begins
        Where event time begins, as in `WindowedAggregate`.
    """

    how: Aggregation
    from_partials: bool = False
    begins: int = MIN_WATERMARK
    kind: ClassVar[str] = "changed aggregate"
    by_name: ClassVar[bool] = True

    @property
    def flushes(self) -> bool:
        """What changed is given when an epoch ends."""
        return True

    @property
    def waits_for_time(self) -> bool:
        """For the end of each window, after which its rows are late."""
        return self.how.window is not None

    @property
    def state_settings(self) -> str:
        """What is known of each key is of one window and of these aggregates."""
        return self.how.settings

    def keys(self, port: int) -> tuple[str, ...]:
        """The keys of the aggregation."""
        return self.how.keys

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """Keys, the window's bounds where there is one, and results."""
        if NEW in (*self.how.keys, *(name for name, _ in self.how.aggregates)):
            raise OptionError(f"column {NEW!r} has a name of ours: rename it")
        return self.how.result_schema(inputs[0] if self.from_partials else self.how.partial_schema(inputs[0]))

    def start(self, context: InstanceContext) -> Step:
        """A step that has seen no row."""
        how = replace(self.how, aggregates=(*self.how.aggregates, (NEW, Aggregate("max", NEW))))
        if how.window is None:
            return _ChangedKeys(how, self.from_partials, context.schema)
        return _ChangedWindows(how, how.window, self.from_partials, context.schema, True, self.begins)

    @property
    def gives_groups(self) -> bool:
        """What is known is known key by key."""
        return True

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """What is known of each key, and which of it was not given yet."""
        if self.how.window is not None:
            return panes_dealt(states, share, self.how.keys)
        known = share.gathered([state["partials"] for state in states if state], self.how.keys)
        return {} if known is None else {"partials": known}


def _marked(batch: pa.RecordBatch, how: Aggregation, from_partials: bool) -> pa.RecordBatch:
    """Rows or partials that are new; the column stands where merged partials have it, before states."""
    if not from_partials:
        return batch.append_column(NEW, pa.repeat(_ONE, batch.num_rows))
    with_states = {name for name, _ in how.states}
    states = {own for (name, _), own in how.names.items() if name in with_states}
    at = min((i for i, own in enumerate(batch.schema.names) if own in states), default=batch.num_columns)
    return batch.add_column(at, how.names[NEW, "max"], pa.repeat(_ONE, batch.num_rows))


def _known(partials: pa.Table, how: Aggregation) -> pa.Table:
    """Partials of which nothing is new any more."""
    at = partials.schema.get_field_index(how.names[NEW, "max"])
    return partials.set_column(at, partials.schema.field(at), pa.repeat(_ZERO, partials.num_rows))


_ZERO, _ONE = pa.scalar(0, pa.int8()), pa.scalar(1, pa.int8())


class _ChangedWindows(WindowedStep):
    """Windows that close while an epoch lasts are given then, if it changed them; the others at its end."""

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        return super().process(port, _marked(batch, self._how, self._from_partials))

    def _chosen(self, results: pa.Table) -> pa.Table:
        return results.filter(pc.equal(results.column(NEW), 1))

    def flush(self) -> Batches:
        partials = self._compact()
        if partials is None or not partials.num_rows:
            return ()
        made = list(self._closed(partials, self._watermark, MAX_WATERMARK))
        self._settled = _known(partials, self._how)
        return made

    def finish(self) -> Batches:
        return self.flush()


class _ChangedKeys(Step):
    """Partials by key; new ones gather until they outnumber those that are merged already."""

    def __init__(self, how: Aggregation, from_partials: bool, schema: pa.Schema) -> None:
        self._how, self._from_partials, self._schema = how, from_partials, schema
        self._settled: pa.Table | None = None
        self._new: list[pa.Table] = []

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        marked = _marked(batch, self._how, self._from_partials)
        self._new.append(pa.Table.from_batches([marked]) if self._from_partials else self._how.partials(marked))
        settled = self._settled.num_rows if self._settled is not None else 0
        if sum(one.num_rows for one in self._new) > max(COMPACT_FROM, settled):
            self._compact()
        return ()

    def _compact(self) -> pa.Table | None:
        if self._new:
            parts = [*self._new, *([self._settled] if self._settled is not None else [])]
            self._settled, self._new = self._how.merged(parts).combine_chunks(), []
        return self._settled

    def flush(self) -> Batches:
        partials = self._compact()
        if partials is None:
            return ()
        changed = partials.filter(pc.equal(partials.column(self._how.names[NEW, "max"]), 1))
        self._settled = _known(partials, self._how)
        return list(self._how.results(changed).select(self._schema.names).combine_chunks().to_batches())

    def finish(self) -> Batches:
        return self.flush()

    def snapshot(self, number: int) -> State:
        partials = self._compact()
        return {} if partials is None else {"partials": partials}

    def give(self, moved: Reassigned, number: int) -> dict[int, State]:
        partials, takers = self._compact(), moved.takers(number)
        if partials is None:
            return {taker: {} for taker in takers}
        owners = moved.owners(partials, self._how.keys)
        self._settled = partials.filter(pa.array(owners == number))
        return {taker: {"partials": rows} for taker, rows in parted(partials, owners, takers).items()}

    def take(self, states: Mapping[int, State], moved: Reassigned, number: int | None) -> None:
        self._new += [self._how.ordered(state["partials"]) for state in states.values() if "partials" in state]

    def restore(self, state: State) -> None:
        self._settled = self._how.ordered(state["partials"]) if "partials" in state else None
