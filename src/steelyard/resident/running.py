"""Aggregates of each key over all rows so far; what is known of them is a number for each part, in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.aggregates import Aggregate
from steelyard.core.counts import Ints
from steelyard.resident.aggregates import Aggregation, parts_of
from steelyard.resident.keys import KeyIndex
from steelyard.resident.moving import Reassigned, parted
from steelyard.resident.operator import Batches, InstanceContext, OperatorLogic, State, Step
from steelyard.resident.shares import Share
from steelyard.resident.sums import overflown

_COMBINE = {"sum": np.add, "count": np.add, "count_all": np.add, "min": np.fmin, "max": np.fmax}


class _Column:
    """One part of an aggregate for every key, null where it has seen nothing but nulls."""

    def __init__(self, name: str, kind: pa.DataType, combine: Any) -> None:
        self._name, self.kind, self._combine = name, kind, combine
        whole = np.uint64 if pa.types.is_unsigned_integer(kind) else np.int64
        self._values = np.zeros(0, np.float64 if pa.types.is_floating(kind) else whole)
        self._known = np.zeros(0, np.bool_)

    def grow(self, size: int) -> None:
        if size > len(self._values):
            more = max(size, 2 * len(self._values)) - len(self._values)
            self._values = np.concatenate([self._values, np.zeros(more, self._values.dtype)])
            self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])

    def add(self, slots: Ints, column: pa.Array) -> None:
        given = column.is_valid().to_numpy(zero_copy_only=False)
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(self._values.dtype)
        before = self._values[slots]
        both = np.where(self._known[slots], self._combine(before, values), values)
        if self._combine is np.add and _wrapped(before, values, both).any():
            raise overflown(self._name, pa.from_numpy_dtype(both.dtype), self.kind)
        self._values[slots] = np.where(given, both, before)
        self._known[slots] |= given

    def forget(self, slots: Ints) -> None:
        self._values[slots], self._known[slots] = 0, False

    def at(self, slots: Ints) -> pa.Array:
        return pa.array(self._values[slots], mask=~self._known[slots]).cast(self.kind)


def _wrapped(left: Any, right: Any, both: Any) -> Any:
    """Which sums of whole numbers did not fit."""
    if both.dtype == np.uint64:
        return both < right
    return ((left ^ both) & (right ^ both)) < 0 if both.dtype == np.int64 else np.zeros(len(both), np.bool_)


class RunningState:
    """Partials of every key seen so far.

    Parameters
    ----------
    how
        Keys and aggregates.
    partials
        The columns of partials; OptionError where a part is no number.
    """

    def __init__(self, how: Aggregation, partials: pa.Schema) -> None:
        self._keys = how.keys
        self._schema = partials
        self._index = KeyIndex()
        self._key_rows: list[pa.Table] = []
        self._gone = np.zeros(0, np.bool_)
        """By slot: keys that are with another instance; some slots at the end may be missing."""
        self._columns: dict[str, _Column] = {}
        for name, one in how.aggregates:
            if not isinstance(one, Aggregate):
                raise OptionError(
                    f"aggregate {name!r} ({type(one).__name__}) needs a window, or emit='epochs': give one of them"
                )
            for part in parts_of(one):
                kind = partials.field(how.names[name, part]).type
                if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                    raise OptionError(
                        f"{one.function}({one.column}) without a window must be a whole number or a double, and is "
                        f"{kind}: give a window, or cast the column"
                    )
                self._columns[how.names[name, part]] = _Column(how.names[name, part], kind, _COMBINE[part])

    def add(self, partials: pa.Table) -> Ints:
        """Merge partials in which each key stands once; gives the slot of each row."""
        known = len(self._index)
        slots = self._slots(partials)
        new = slots >= known
        if new.any():  # slots of new keys are given in the order of rows
            self._key_rows.append(partials.select(self._keys).filter(pa.array(new)))
        if self._gone.any():
            self._gone[slots[slots < len(self._gone)]] = False
        for name, column in self._columns.items():
            column.grow(int(slots.max(initial=-1)) + 1)
            column.add(slots, partials.column(name).combine_chunks())
        return slots

    def _slots(self, partials: pa.Table) -> Ints:
        if not self._keys:
            return self._index.slots_once([pa.nulls(partials.num_rows)])
        return self._index.slots_once([partials.column(key).combine_chunks() for key in self._keys])

    def at(self, slots: Ints, keys: pa.Table) -> pa.Table:
        """Partials of these slots beside their keys."""
        columns = {key: keys.column(key) for key in self._keys}
        return pa.table(columns | {name: column.at(slots) for name, column in self._columns.items()})

    def table(self) -> pa.Table:
        """Partials of all keys, in the order in which they were first seen."""
        if not len(self._index):
            return self._schema.empty_table()
        if self._keys:
            self._key_rows = [pa.concat_tables(self._key_rows).combine_chunks()]
        slots = self._there()
        rows = self._key_rows[0] if self._keys else pa.table({})
        return self.at(slots, rows if len(slots) == len(self._index) else rows.take(pa.array(slots)))

    def _there(self) -> Ints:
        """The slots of keys that are here."""
        slots = np.arange(len(self._index))
        gone = np.zeros(len(slots), np.bool_)
        gone[: len(self._gone)] = self._gone
        return slots[~gone]

    def forget(self, rows: Ints) -> bool:
        """Know nothing more of the keys in these rows of `table`; whether most of what is left is of such keys.

        Their slots stay: to number all others anew would take longer than all else.
        """
        slots = self._there()[rows]
        gone = np.zeros(len(self._index), np.bool_)
        gone[: len(self._gone)] = self._gone
        gone[slots] = True
        self._gone = gone
        for column in self._columns.values():
            column.forget(slots)
        return bool(2 * gone.sum() > len(gone))


_COMPACT_FROM = 4096
"""Rows of a log below which it is not worth it to leave out those that newer ones took the place of."""


class RunningPartials(Step):
    """What each key is over all rows so far, for aggregates of any kind; what comes are partials, each key once.

    Partials are a log, and a key's newest row in it counts.

    Parameters
    ----------
    how
        Keys and aggregates of the partials.
    shown
        Those of results.
    """

    def __init__(self, how: Aggregation, shown: Aggregation) -> None:
        self._how, self._shown = how, shown
        self._index = KeyIndex()
        self._log: pa.Table | None = None
        self._row = np.zeros(0, np.int64)
        """By slot: the key's newest row."""

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """The keys of a batch, with what they are now."""
        if not batch.num_rows:
            return ()
        now = self._added(pa.Table.from_batches([batch]))
        made: Batches = self._shown.results(now).combine_chunks().to_batches()
        return made

    def _added(self, partials: pa.Table) -> pa.Table:
        if self._log is not None:
            known = len(self._row)
            slots = self._slots(partials)
            before = self._log.take(pa.array(self._row[slots[slots < known]]))
            if before.num_rows:
                partials = self._how.merged([before, partials]).cast(self._log.schema)
        slots = self._slots(partials)
        start = self._log.num_rows if self._log is not None else 0
        rows = np.zeros(len(self._index), np.int64)
        rows[: len(self._row)] = self._row
        rows[slots] = start + np.arange(len(slots))
        self._row = rows
        self._log = partials if self._log is None else pa.concat_tables([self._log, partials])
        if self._log.num_rows > max(_COMPACT_FROM, 2 * len(rows)):
            self._compact()
        return partials

    def _slots(self, partials: pa.Table) -> Ints:
        return self._index.slots_once([partials.column(key).combine_chunks() for key in self._how.keys])

    def _compact(self) -> None:
        assert self._log is not None
        self._log = self._log.take(pa.array(self._row)).combine_chunks()
        self._row = np.arange(len(self._row))

    def snapshot(self, number: int) -> State:
        """What all keys are."""
        if self._log is None:
            return {}
        self._compact()
        return {"panes": self._log}

    def restore(self, state: State) -> None:
        """Go on with these."""
        if state["panes"].num_rows:
            self._added(state["panes"])


@dataclass(frozen=True)
class RunningAggregate(OperatorLogic):
    """Aggregates of each key over all rows so far, without windows.

    Parameters
    ----------
    how
        Keys and aggregates, over numbers.
    emit
        `updates` gives new results of the keys of each batch behind it; `end` gives each key once, in the end (a job
        that goes on from there gives those that have had rows since, with all that they have had).
    from_partials
        Whether partials come in, rather than rows.
    """

    how: Aggregation
    emit: str = "updates"
    from_partials: bool = False
    kind: ClassVar[str] = "running aggregate"
    by_name: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.emit not in ("updates", "end"):
            raise OptionError.unknown("value of option 'emit':", self.emit, ["updates", "end", "epochs"])

    @property
    def state_settings(self) -> str:
        """What is known of each key is of these aggregates."""
        return self.how.settings

    def keys(self, port: int) -> tuple[str, ...]:
        """The keys of the aggregation."""
        return self.how.keys

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """Keys and results."""
        partials = inputs[0] if self.from_partials else self.how.partial_schema(inputs[0])
        RunningState(self.how, partials)
        return self.how.result_schema(partials)

    def start(self, context: InstanceContext) -> Step:
        """A step that has seen no row."""
        partials = context.inputs[0] if self.from_partials else self.how.partial_schema(context.inputs[0])
        return _RunningStep(self, partials)

    @property
    def gives_groups(self) -> bool:
        """What is known is known key by key."""
        return True

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """What is known of each key, and whether it has had rows since the last end."""
        known = [(state["partials"], share.owns(state["partials"], self.how.keys)) for state in states if state]
        marks = [state.get("new") for state in states if state]
        made: State = {"partials": pa.concat_tables([rows.filter(own) for rows, own in known])} if known else {}
        if known and all(mark is not None for mark in marks):
            kept = [mark.filter(own) for mark, (_, own) in zip(marks, known, strict=True) if mark is not None]
            made["new"] = pa.concat_tables(kept)
        return made


class _RunningStep(Step):
    def __init__(self, logic: RunningAggregate, partials: pa.Schema) -> None:
        self._logic, self._partials = logic, partials
        self._known = RunningState(logic.how, partials)
        self._new = np.zeros(0, np.bool_)
        """By slot, for results in the end: whether the key has had rows since the last end."""

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        how = self._logic.how
        made = how.merged([pa.Table.from_batches([batch])]) if self._logic.from_partials else how.partials(batch)
        slots = self._known.add(made)
        if self._logic.emit == "updates":
            return self._results(self._known.at(slots, made))
        more = int(slots.max(initial=-1)) + 1 - len(self._new)
        if more > 0:
            self._new = np.concatenate([self._new, np.zeros(max(more, len(self._new)), np.bool_)])
        self._new[slots] = True
        return ()

    def _results(self, partials: pa.Table) -> Batches:
        return self._logic.how.results(partials).combine_chunks().to_batches() if partials.num_rows else ()

    def finish(self) -> Batches:
        if self._logic.emit == "updates":
            return ()
        known = self._known.table()
        new, self._new = self._new[: known.num_rows], np.zeros(known.num_rows, np.bool_)
        return self._results(known.filter(pa.array(new)))

    def snapshot(self, number: int) -> State:
        known = self._known.table()
        if self._logic.emit == "updates":
            return {"partials": known}
        return {"partials": known, "new": pa.table({"new": self._new[: known.num_rows]})}

    def restore(self, state: State) -> None:
        if state and state["partials"].num_rows:
            self._add(state)

    def _add(self, state: State) -> None:
        """Keys that are not known yet."""
        slots = self._known.add(state["partials"])
        new = np.ones(len(slots), np.bool_)
        if "new" in state:
            new = state["new"].column("new").to_numpy().astype(np.bool_)
        self._new = np.concatenate([self._new[: int(slots.min())], new])

    def give(self, moved: Reassigned, number: int) -> dict[int, State]:
        known = self.snapshot(0)
        owners = moved.owners(known["partials"], self._logic.how.keys)
        parts = {name: parted(rows, owners, [number, *moved.takers(number)]) for name, rows in known.items()}
        many = self._known.forget(np.flatnonzero(owners != number))
        if many or self._logic.emit == "end":
            self._known, self._new = RunningState(self._logic.how, self._partials), np.zeros(0, np.bool_)
            self.restore({name: rows[number] for name, rows in parts.items()})
        return {taker: {name: rows[taker] for name, rows in parts.items()} for taker in moved.takers(number)}

    def take(self, states: Mapping[int, State], moved: Reassigned, number: int | None) -> None:
        for state in states.values():
            if state["partials"].num_rows:
                self._add(state)
