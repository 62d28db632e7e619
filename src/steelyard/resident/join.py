"""Joins of two streams on equal keys: of all rows so far, or of rows in the same window. Pairs come on arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core import OptionError
from steelyard.core.counts import Ints
from steelyard.resident.keys import KeyIndex
from steelyard.resident.moving import Reassigned, parted
from steelyard.resident.operator import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Batches,
    InstanceContext,
    OperatorLogic,
    State,
    Step,
    require_columns,
)
from steelyard.resident.shares import Share
from steelyard.resident.windows import END, START, Window, timely

LEFT, RIGHT = 0, 1
_SIDES = ("left", "right")
_MAX_CHUNKS = 32
"""Chunks of a side's rows above which they are copied into one."""


@dataclass(frozen=True)
class Join(OperatorLogic):
    """Inner join: every pair of rows of both inputs that agree in their keys (and are in the same window).

    A row with a null in its key has no partner, as in SQL. Input 0 is the left side.

    Parameters
    ----------
    left, right
        Key columns of each side, in the order in which they are compared.
    windows
        The window of each side, of the same size and slide; None joins all rows so far, which are kept for ever.
    suffix
        Put behind columns of the right side whose names the left side has too.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    windows: tuple[Window, Window] | None = None
    suffix: str = "_right"
    ports: int = 2

    kind: ClassVar[str] = "join"

    @property
    def waits_for_time(self) -> bool:
        """With windows, for the end of each."""
        return self.windows is not None

    @property
    def state_settings(self) -> str:
        """Rows are kept by key and window."""
        return f"{self.left}, {self.right}, {self.windows}"

    def __post_init__(self) -> None:
        if not self.left or len(self.left) != len(self.right):
            raise OptionError(f"a join needs as many key columns left as right, got {self.left} and {self.right}")

    def keys(self, port: int) -> tuple[str, ...]:
        """The key of that side."""
        return (self.left, self.right)[port]

    def output(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The left side's columns, the right side's without its key, and the window's bounds."""
        left, right = inputs
        require_columns(left, self.left)
        require_columns(right, self.right)
        for mine, other in zip(self.left, self.right, strict=True):
            if left.field(mine).type != right.field(other).type:
                raise OptionError(
                    f"key {mine!r} is {left.field(mine).type} and {other!r} is {right.field(other).type}: cast one"
                )
        fields = list(left) + [right.field(old).with_name(new) for new, old in self._from_right(left, right)]
        if self.windows is not None:
            self.windows[RIGHT].require(right)
            kind = self.windows[LEFT].pane_type(left)
            fields += [pa.field(START, kind), pa.field(END, kind)]
        names = [one.name for one in fields]
        if len(set(names)) < len(names):
            raise OptionError(f"two columns of the join would have one name: {names}; give another suffix=")
        return pa.schema(fields)

    def _from_right(self, left: pa.Schema, right: pa.Schema) -> list[tuple[str, str]]:
        """(name in the result, column) for each column that the right side adds."""
        added = [name for name in right.names if name not in self.right]
        return [(name + self.suffix if name in left.names else name, name) for name in added]

    def start(self, context: InstanceContext) -> Step:
        """A step that keeps both sides."""
        columns = [old for _, old in self._from_right(*context.inputs)]
        _Side(context.inputs[LEFT]).matching(np.empty(0, np.int64), 0)  # loads what is compiled before rows come
        if self.windows is None:
            return RunningJoinStep(self, context, columns)
        return WindowedJoinStep(self, context, columns, self.windows)

    @property
    def gives_groups(self) -> bool:
        """What is known is known key by key."""
        return True

    def dealt(self, states: Sequence[State], share: Share) -> State:
        """Rows of both sides by their keys; of a side that is broadcast all.

        Pairs are given on arrival, so that none is given twice wherever time begins anew: where whoever was furthest
        behind had it. Who was further has forgotten windows that the one behind still has, with all broadcast rows.
        """
        known = [state for state in states if state]
        if not known or self.windows is None:
            return {side: self._rows(known, side, port, share) for port, side in enumerate(_SIDES) if known}
        known.sort(key=lambda state: state["watermark"])
        starts = sorted({start for state in known for start in state["windows"]})
        made: State = {"watermark": known[0]["watermark"], "windows": starts}
        for start in starts:
            opened = [state for state in known if start in state["windows"]]
            for port, side in enumerate(_SIDES):
                made[f"{side} {start}"] = self._rows(opened, f"{side} {start}", port, share)
        return made

    def _rows(self, states: Sequence[State], name: str, port: int, share: Share) -> pa.Table:
        """One part of the states."""
        if port in share.everywhere:
            return states[0][name]
        found = share.gathered([state[name] for state in states], self.keys(port))
        assert found is not None, "there is a state"
        return found


class _Side:
    """The rows of one side by key."""

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = schema.empty_table()
        self._newest = np.empty(0, np.int64)
        self._length = np.zeros(0, np.int64)
        self._before = np.empty(0, np.int64)

    def _room(self, slots: int, rows: int) -> None:
        if slots > len(self._newest):
            more = max(slots, 2 * len(self._newest)) - len(self._newest)
            self._newest = np.concatenate([self._newest, np.full(more, -1)])
            self._length = np.concatenate([self._length, np.zeros(more, np.int64)])
        if rows > len(self._before):
            self._before = np.concatenate([self._before, np.empty(max(rows, len(self._before)), np.int64)])

    def add(self, batch: pa.RecordBatch, slots: Ints, keys: int) -> None:
        from steelyard.kernels.chains import link  # noqa: PLC0415 - a graph is described without a compiler

        first = self._rows.num_rows
        self._room(keys, first + batch.num_rows)
        link(slots, first, self._newest, self._before, self._length)
        self._rows = pa.concat_tables([self._rows, pa.Table.from_batches([batch])])
        if self._rows.column(0).num_chunks > _MAX_CHUNKS:
            self._rows = self._rows.combine_chunks()

    def matching(self, slots: Ints, keys: int) -> tuple[Ints, Ints]:
        from steelyard.kernels.chains import matches  # noqa: PLC0415

        self._room(keys, 0)
        total = int(self._length[slots].sum())
        asking, found = np.empty(total, np.int64), np.empty(total, np.int64)
        matches(slots, self._newest, self._before, asking, found)
        return asking, found

    def rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._rows if columns is None else self._rows.select(list(columns))


class _Pairs:
    """Both sides of a join, and the pairs that a batch makes with the other side."""

    def __init__(self, logic: Join, inputs: Sequence[pa.Schema], from_right: Sequence[str]) -> None:
        self._made_of = (logic, inputs, from_right)
        self._keys = (logic.left, logic.right)
        self._from_right = list(from_right)
        self._index = KeyIndex()
        self.sides = (_Side(inputs[LEFT]), _Side(inputs[RIGHT]))

    def add(self, port: int, batch: pa.RecordBatch) -> tuple[list[pa.Array], int]:
        """Keep a batch; gives the columns of its pairs, left side's first, and how many they are."""
        batch, slots = self.keep(port, batch)
        mine, found = self.sides[1 - port].matching(slots, len(self._index))
        if not len(mine):
            return [], 0
        ours = pa.Table.from_batches([batch])
        theirs = self.sides[1 - port].rows()
        left, right = (ours, theirs) if port == LEFT else (theirs, ours)
        left_at, right_at = (mine, found) if port == LEFT else (found, mine)
        left = left.take(pa.array(left_at))
        right = right.select(self._from_right).take(pa.array(right_at))
        columns = [column.combine_chunks() for column in [*left.columns, *right.columns]]
        return columns, len(mine)

    def given(self, moved: Reassigned, number: int) -> tuple[_Pairs, dict[int, tuple[pa.Table, pa.Table]]]:
        """The pairs of keys that stay with an instance, and the rows of both sides that go, by instance."""
        takers, stay = moved.takers(number), _Pairs(*self._made_of)
        found = []
        for port, side in enumerate(self.sides):
            rows = side.rows()
            parts = parted(rows, moved.owners(rows, self._keys[port]), [number, *takers])
            stay.keep_all(port, parts[number])
            found.append(parts)
        return stay, {taker: (found[LEFT][taker], found[RIGHT][taker]) for taker in takers}

    def keep_all(self, port: int, rows: pa.Table) -> None:
        """Keep rows, and pair them with nothing."""
        for batch in rows.to_batches():
            self.keep(port, batch)

    def keep(self, port: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """Keep a batch, and pair it with nothing; gives its rows that have a key, and the key's slot of each."""
        keys = [batch.column(key) for key in self._keys[port]]
        if any(key.null_count for key in keys):
            whole = keys[0].is_valid()
            for key in keys[1:]:
                whole = pc.and_(whole, key.is_valid())
            batch = batch.filter(whole)
            keys = [batch.column(key) for key in self._keys[port]]
        slots = self._index.slots(keys)
        self.sides[port].add(batch, slots, len(self._index))
        return batch, slots


class RunningJoinStep(Step):
    """Joins all rows so far."""

    def __init__(self, logic: Join, context: InstanceContext, from_right: Sequence[str]) -> None:
        self._schema = context.schema
        self._pairs = _Pairs(logic, context.inputs, from_right)

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """Pairs of the batch's rows with those that the other side has had."""
        columns, rows = self._pairs.add(port, batch)
        return (pa.RecordBatch.from_arrays(columns, schema=self._schema),) if rows else ()

    def snapshot(self, number: int) -> State:
        """The rows of both sides."""
        return {"left": self._pairs.sides[LEFT].rows(), "right": self._pairs.sides[RIGHT].rows()}

    def restore(self, state: State) -> None:
        """Go on with these rows."""
        for port, side in enumerate(_SIDES if state else ()):
            self._pairs.keep_all(port, state[side])

    def give(self, moved: Reassigned, number: int) -> dict[int, State]:
        """The rows of both sides."""
        self._pairs, parts = self._pairs.given(moved, number)
        return {taker: dict(zip(_SIDES, rows, strict=True)) for taker, rows in parts.items()}

    def take(self, states: Mapping[int, State], moved: Reassigned, number: int | None) -> None:
        """Go on with these rows too."""
        for state in states.values():
            self.restore(state)


class WindowedJoinStep(Step):
    """Joins rows of the same window, and forgets a window when the watermark passes its end."""

    def __init__(
        self, logic: Join, context: InstanceContext, from_right: Sequence[str], windows: tuple[Window, Window]
    ) -> None:
        self._logic, self._inputs, self._schema, self._windows = logic, context.inputs, context.schema, windows
        self._from_right = from_right
        self._open: dict[int, _Pairs] = {}
        self._watermark = MIN_WATERMARK

    def process(self, port: int, batch: pa.RecordBatch) -> Batches:
        """Pairs of the batch's rows with those of the other side in the same open windows."""
        window = self._windows[port]
        rows, times = timely(batch, window, self._watermark)
        self.refused += batch.num_rows - rows.num_rows
        at, starts = window.starts(times)
        for start in np.unique(starts).tolist():
            if start + window.size > self._watermark:
                yield from self._in_window(start, port, rows.take(pa.array(at[starts == start])))

    def _in_window(self, start: int, port: int, rows: pa.RecordBatch) -> Batches:
        if start not in self._open:
            self._open[start] = _Pairs(self._logic, self._inputs, self._from_right)
        columns, count = self._open[start].add(port, rows)
        if count:
            kind = self._schema.field(START).type
            for bound in (start, start + self._windows[port].size):
                columns.append(pa.repeat(pa.scalar(bound, pa.int64()), count).cast(kind))
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def on_watermark(self, time: int) -> Batches:
        """Windows that end at `time` or earlier are forgotten; at the end none is, since more rows may come one day."""
        if time == MAX_WATERMARK:
            return ()
        self._watermark = time
        size = self._windows[LEFT].size
        self._open = {start: pairs for start, pairs in self._open.items() if start + size > time}
        return ()

    def snapshot(self, number: int) -> State:
        """The rows of both sides of each open window."""
        state: State = {"watermark": self._watermark, "windows": sorted(self._open)}
        for start, pairs in self._open.items():
            state[f"left {start}"], state[f"right {start}"] = (side.rows() for side in pairs.sides)
        return state

    def give(self, moved: Reassigned, number: int) -> dict[int, State]:
        """The rows of both sides of each open window."""
        gone: dict[int, State] = {
            taker: {"watermark": self._watermark, "windows": sorted(self._open)} for taker in moved.takers(number)
        }
        for start, pairs in self._open.items():
            self._open[start], parts = pairs.given(moved, number)
            for taker, rows in parts.items():
                gone[taker] |= {f"{side} {start}": some for side, some in zip(_SIDES, rows, strict=True)}
        return gone

    def take(self, states: Mapping[int, State], moved: Reassigned, number: int | None) -> None:
        """Rows of what comes find what was in their windows, also where those of others are over."""
        for state in states.values():
            self._add(state)
        known = [state["watermark"] for state in states.values()]
        self._watermark = min([*known, *([] if number is None else [self._watermark])], default=self._watermark)

    def restore(self, state: State) -> None:
        """Go on with these windows."""
        if state:
            self._watermark = state["watermark"]
            self._add(state)

    def _add(self, state: State) -> None:
        for start in state["windows"]:
            if start not in self._open:
                self._open[start] = _Pairs(self._logic, self._inputs, self._from_right)
            for port, side in enumerate(_SIDES):
                self._open[start].keep_all(port, state[f"{side} {start}"])
