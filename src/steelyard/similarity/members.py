"""Records on their way through the join: with what goes with them, and as members of worksets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.core.errors import SteelyardError
from steelyard.similarity.protocol import Ints, Metric, Records
from steelyard.similarity.sets import Sets
from steelyard.similarity.text import Sequences

Small = np.ndarray[Any, np.dtype[np.int8]]

#: Which stream a record is of: the one stream of a self-join, or one of two.
SELF, LEFT, RIGHT = 0, 1, 2
#: What a record is to a workset.
INNER, OUTLIER, OUTER = 0, 1, 2
#: The id of the workset of records that have no centroid.
REST_ID = 0
#: Bits of a workset's global key, from the right: its id, the piece of it, the space partition.
ID_BITS, PIECE_BITS = 32, 16
#: Bytes of a stored row beside its record: workset, id, two windows, side, role.
ROW_BYTES = 34
#: How the names of the user's columns begin in a table of rows.
CARRIED = "carried."


@dataclass(frozen=True)
class Rows:
    """Records on their way, with what goes with them.

    Attributes
    ----------
    ids
        int64[n]; a number that no other record of its stream has.
    sides
        int8[n]; SELF in a self-join, else LEFT or RIGHT.
    windows
        int64[n, 2]; the first and the last window that holds the record. In tumbling windows they are equal.
    records
        The n values, as the metric keeps them.
    carried
        Columns of the user's (an id, a time) that pairs shall show again, or None.
    """

    ids: Ints
    sides: Small
    windows: Ints
    records: Records
    carried: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, metric: Metric, index: Ints) -> Rows:
        """The rows at `index`."""
        carried = None if self.carried is None else self.carried.take(pa.array(index))
        records = metric.take(self.records, index)
        return Rows(self.ids[index], self.sides[index], self.windows[index], records, carried)

    @classmethod
    def join(cls, metric: Metric, parts: Sequence[Rows]) -> Rows:
        """All of `parts`, one after the other."""
        records = [part.records for part in parts]
        while len(records) > 1:  # in pairs, so that no record is copied more than log(parts) times
            joined = [metric.join(*records[k : k + 2]) for k in range(0, len(records) - 1, 2)]
            records = joined + records[len(joined) * 2 :]
        carried = [part.carried for part in parts if part.carried is not None]
        if len(carried) not in (0, len(parts)):
            raise SteelyardError("some rows carry columns and some do not: give every batch the same ones")
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.sides for part in parts]),
            np.concatenate([part.windows for part in parts]),
            records[0],
            pa.concat_tables(carried).combine_chunks() if carried else None,
        )

    def to_table(self, metric: Metric) -> pa.Table:
        """An Arrow table that `from_table` reads."""
        columns = {
            "id": pa.array(self.ids),
            "side": pa.array(self.sides),
            "first": pa.array(self.windows[:, 0]),
            "last": pa.array(self.windows[:, 1]),
            "record": to_column(metric, self.records),
        }
        if self.carried is not None:
            columns |= {CARRIED + name: self.carried[name] for name in self.carried.column_names}
        return pa.table(columns)

    @classmethod
    def from_table(cls, metric: Metric, table: pa.Table) -> Rows:
        """What `to_table` wrote."""
        names = [name for name in table.column_names if name.startswith(CARRIED)]
        carried = table.select(names).rename_columns([name.removeprefix(CARRIED) for name in names])
        return cls(
            table["id"].to_numpy(),
            table["side"].to_numpy(),
            np.column_stack([table["first"].to_numpy(), table["last"].to_numpy()]),
            from_column(metric, table["record"]),
            carried.combine_chunks() if names else None,
        )


def row_bytes(metric: Metric, rows: Rows) -> Ints:
    """int64[n]; the bytes of each row: its record, what it carries, and its place."""
    carried = 0 if rows.carried is None else rows.carried.nbytes // max(1, len(rows))
    return record_bytes(metric, rows.records) + (ROW_BYTES + carried)


def record_bytes(metric: Metric, records: Records) -> Ints:
    """int64[n]; the bytes of each record, as a column."""
    count = max(1, len(records))
    if isinstance(records, np.ndarray):
        return np.full(len(records), records.nbytes // count, dtype=np.int64)
    if isinstance(records, Sets):
        return np.diff(records.starts) * records.vocabulary.bytes_per_word
    column = to_column(metric, records)
    if pa.types.is_string(column.type):
        lengths = pc.binary_length(column)
    elif pa.types.is_large_list(column.type):
        lengths = pc.multiply(pc.list_value_length(column), 8)
    else:
        return np.full(len(records), column.nbytes // count, dtype=np.int64)
    return np.asarray(lengths.to_numpy(zero_copy_only=False).astype(np.int64))


def to_column(metric: Metric, records: Records) -> pa.Array:
    """Records as an Arrow column that `from_column` turns into the same records again."""
    if isinstance(records, list) and len({_form(row) for row in records}) == 1 and _form(records[0]):
        records = np.stack(records)
    if isinstance(records, np.ndarray) and records.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(records.ravel()), records.shape[1])
    if isinstance(records, Sets):
        return records.to_column()
    if isinstance(records, Sequences) and records.of != "characters":
        symbols = records.symbols if records.of == "integers" else records.symbols.view(np.float64)
        return pa.LargeListArray.from_arrays(pa.array(records.starts), pa.array(symbols))
    if isinstance(records, list):
        return pa.array(records)
    return pa.array([metric.value(records, place) for place in range(len(records))])


def _form(record: object) -> tuple[object, ...]:
    return (record.shape, record.dtype) if isinstance(record, np.ndarray) else ()


def from_column(metric: Metric, column: pa.ChunkedArray) -> Records:
    """What `to_column` wrote. Vectors need no check: the metric took them before."""
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy(zero_copy_only=False).reshape(-1, array.type.list_size)
    return metric.records(array)[0]


def workset_key(partition: int | Ints, workset: int | Ints, piece: int | Ints = 0) -> Ints:
    """One whole number for a workset of a partition, or for a piece of one that was split.

    Examples
    --------
    >>> split_key(workset_key(3, np.array([1, 2])))
    (array([3, 3]), array([1, 2]), array([0, 0]))
    """
    one, two, three = (np.asarray(part, dtype=np.int64) for part in (partition, piece, workset))
    return np.asarray((((one << PIECE_BITS) | two) << ID_BITS) | three)


def split_key(key: Ints) -> tuple[Ints, Ints, Ints]:
    """Partition, workset id and piece of global keys."""
    workset, rest = key & ((1 << ID_BITS) - 1), key >> ID_BITS
    return rest >> PIECE_BITS, workset, rest & ((1 << PIECE_BITS) - 1)


@dataclass(frozen=True)
class Members:
    """Records as members of worksets: what formulation sends, the join stores, and a move carries.

    Attributes
    ----------
    worksets
        int64[n]; global keys.
    roles
        int8[n]; INNER, OUTLIER or OUTER.
    rows
        The records.
    """

    worksets: Ints
    roles: Small
    rows: Rows

    def __len__(self) -> int:
        return len(self.worksets)

    def take(self, metric: Metric, index: Ints) -> Members:
        """The members at `index`."""
        return Members(self.worksets[index], self.roles[index], self.rows.take(metric, index))

    @classmethod
    def join(cls, metric: Metric, parts: Sequence[Members]) -> Members:
        """All of `parts`, one after the other."""
        return cls(
            np.concatenate([part.worksets for part in parts]),
            np.concatenate([part.roles for part in parts]),
            Rows.join(metric, [part.rows for part in parts]),
        )

    def to_table(self, metric: Metric) -> pa.Table:
        """An Arrow table that `from_table` reads."""
        table = self.rows.to_table(metric)
        return table.append_column("workset", pa.array(self.worksets)).append_column("role", pa.array(self.roles))

    @classmethod
    def from_table(cls, metric: Metric, table: pa.Table) -> Members:
        """What `to_table` wrote."""
        rows = Rows.from_table(metric, table.drop_columns(["workset", "role"]))
        return cls(table["workset"].to_numpy(), table["role"].to_numpy(), rows)
