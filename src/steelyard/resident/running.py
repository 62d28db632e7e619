"""What a running aggregate knows: a number for each part of each key's aggregates, in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.resident.aggregates import Aggregate, Aggregation
from steelyard.resident.keys import KeyIndex
from steelyard.resident.operator import Batches, State, Step
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
        self._columns: dict[str, _Column] = {}
        for name, one in how.aggregates:
            if not isinstance(one, Aggregate):
                raise OptionError(
                    f"aggregate {name!r} ({type(one).__name__}) needs a window, or emit='epochs': give one of them"
                )
            for part in one.parts:
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
        return self.at(np.arange(len(self._index)), self._key_rows[0] if self._keys else pa.table({}))


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
