"""Key frequencies of a batch: what every partitioner decides by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """How many rows each key has; and, beside them, what is known of the keys that are not listed.

    Statistics that are carried over from earlier batches list only the frequent keys: the rest, the tail,
    is spread by hash, and only its totals are known.

    Parameters
    ----------
    keys
        The listed keys, an Arrow array of any type (a struct where there are several key columns).
    rows
        int64[len(keys)]: rows of each key, all positive.
    tail_rows, tail_keys
        Rows and distinct keys of what is not listed.

    Examples
    --------
    >>> counts = KeyCounts.of({"a": 5, "b": 2})
    >>> counts.total, len(counts)
    (7, 2)
    >>> counts
    KeyCounts(2 keys, 7 rows, hottest 'a' with 71.4 %)
    """

    keys: pa.Array
    rows: Ints
    tail_rows: int = 0
    tail_keys: int = 0
    total: int = field(init=False)

    def __post_init__(self) -> None:
        given = np.asarray(self.rows)
        if given.ndim != 1 or len(given) != len(self.keys):
            raise ValueError(f"rows must be one number per key: {given.shape} rows for {len(self.keys)} keys")
        rows = _whole(given, self.keys)
        if len(rows) and rows.min() <= 0:
            raise ValueError(f"a listed key has at least one row, got {int(rows.min())}")
        if self.tail_rows < 0 or self.tail_keys < 0:
            raise ValueError("tail_rows and tail_keys cannot be negative")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "total", int(rows.sum()) + int(self.tail_rows))

    @classmethod
    def of(cls, counts: Mapping[Any, int]) -> KeyCounts:
        """Counts from a dictionary; keys without rows are left out."""
        kept = {key: rows for key, rows in counts.items() if rows}
        return cls(pa.array(list(kept)), np.array([*kept.values()]))

    @classmethod
    def from_rows(cls, keys: pa.Array | pa.ChunkedArray) -> KeyCounts:
        """Counts of a column of keys, one row each, in order of first appearance; nulls are left out.

        >>> KeyCounts.from_rows(pa.array(["x", "y", "x", None])).to_dict()
        {'x': 2, 'y': 1}
        """
        column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        if pa.types.is_dictionary(column.type):  # its dictionary may list values twice, or that no row has
            column = column.dictionary_decode()
        column = one_zero(column.drop_null())
        if pa.types.is_struct(column.type):
            _, first, rows = np.unique(_codes(column), return_index=True, return_counts=True)
            order = np.argsort(first)
            return cls(column.take(pa.array(first[order])), rows[order])
        encoded = column.dictionary_encode()
        rows = np.bincount(encoded.indices.to_numpy(zero_copy_only=False), minlength=len(encoded.dictionary))
        return cls(encoded.dictionary, rows.astype(np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def distinct(self) -> int:
        """Distinct keys, the tail's included."""
        return len(self.rows) + self.tail_keys

    def to_dict(self) -> dict[Any, int]:
        """The listed keys as a dictionary."""
        return dict(zip(self.keys.to_pylist(), self.rows.tolist(), strict=True))

    def top(self, n: int) -> KeyCounts:
        """The `n` most frequent keys; the others become tail. Ties keep the order of the list."""
        if n < 0:
            raise ValueError(f"cannot keep the {n} most frequent keys: n must be 0 or more")
        if n >= len(self):
            return self
        keep = np.sort(np.argsort(-self.rows, kind="stable")[:n])
        rows = self.rows[keep]
        dropped = int(self.rows.sum() - rows.sum())
        return KeyCounts(
            self.keys.take(pa.array(keep)),
            rows,
            tail_rows=self.tail_rows + dropped,
            tail_keys=self.tail_keys + len(self) - len(keep),
        )

    def __repr__(self) -> str:
        if not len(self):
            return f"KeyCounts(0 keys, {self.total} rows)"
        hot = int(np.argmax(self.rows))
        share = 100 * self.rows[hot] / self.total
        tail = f", tail {self.tail_keys} keys {self.tail_rows} rows" if self.tail_rows else ""
        hottest = self.keys[hot].as_py()
        return f"KeyCounts({len(self)} keys, {self.total} rows, hottest {hottest!r} with {share:.1f} %{tail})"


def _whole(rows: np.ndarray[Any, Any], keys: pa.Array) -> Ints:
    """Numbers of rows as int64; ValueError, with the key's name, for one that is no whole number of 64 bits.

    A cast alone would make 3 of 3.7, and a negative number of NaN.
    """
    if rows.dtype != np.int64 and len(rows):
        if rows.dtype.kind not in "iuf":
            raise ValueError(f"rows must be numbers, and are {rows.dtype}")
        with np.errstate(invalid="ignore"):
            wrong = (rows >= 2**63) | ~np.isfinite(rows) | (rows != np.floor(rows))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"key {keys[at].as_py()!r} has {rows[at]} rows, which is no count: give whole numbers")
    return np.ascontiguousarray(rows, dtype=np.int64)


def one_zero(column: pa.Array) -> pa.Array:
    """Keys as Spark groups and joins them: -0.0 becomes 0.0 and all NaNs one; other types stay as they are.

    Arrow tells these apart. A list of keys that Arrow made would then name a key of Spark's twice.

    >>> one_zero(pa.array([-0.0, 1.5])).to_pylist()
    [0.0, 1.5]
    """
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [one_zero(field) for field in column.flatten()]
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names=names, mask=column.is_null())
    if not pa.types.is_floating(kind):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))


def _codes(column: pa.Array) -> Ints:
    """int64[len(column)]: a number for each value, the same for equal ones; Arrow encodes no structs itself."""
    if not pa.types.is_struct(column.type):
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        codes = plain.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        return np.asarray(codes, dtype=np.int64)
    codes = np.zeros(len(column), dtype=np.int64)
    for field_codes in map(_codes, column.flatten()):
        _, codes = np.unique(codes * (field_codes.max(initial=0) + 1) + field_codes, return_inverse=True)
    return np.asarray(codes, dtype=np.int64)
