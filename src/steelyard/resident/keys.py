"""Keys as dense numbers, so that what is known of each key lives in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints, one_zero


class KeyIndex:
    """Gives each new key the next number, from 0, and each known key its own.

    Examples
    --------
    >>> index = KeyIndex()
    >>> index.slots([pa.array(["b", "a", "b", None])]).tolist(), len(index)
    ([0, 1, 0, 2], 3)
    """

    def __init__(self) -> None:
        self._slot: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._slot)

    def slots(self, columns: list[pa.Array]) -> Ints:
        """int64[rows]: the number of each row's key. Python looks at each distinct key once."""
        codes, first = distinct(columns)
        return np.asarray(self.slots_once([column.take(pa.array(first)) for column in columns])[codes])

    def slots_once(self, columns: list[pa.Array]) -> Ints:
        """The same for rows in which no key comes twice."""
        chosen = [_hashable(column) for column in columns]
        values = chosen[0] if len(chosen) == 1 else list(zip(*chosen, strict=True))
        known = self._slot
        found = (known.setdefault(value, len(known)) for value in values)
        return np.fromiter(found, dtype=np.int64, count=len(values))


def distinct(columns: list[pa.Array]) -> tuple[Ints, Ints]:
    """(code of each row, first row of each code): rows have one code where they agree in all columns.

    >>> codes, first = distinct([pa.array([5, 5, 7]), pa.array(["x", "x", "x"])])
    >>> codes.tolist(), first.tolist()
    ([0, 0, 1], [0, 2])
    """
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    if len(columns) == 1:
        codes = _codes(columns[0])  # Arrow numbers values in the order of their first rows
        first = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        return codes, first
    for column in columns:
        more = _codes(column)
        _, codes = np.unique(codes * (more.max(initial=0) + 1) + more, return_inverse=True)
    _, first, again = np.unique(codes, return_index=True, return_inverse=True)
    return np.asarray(again, dtype=np.int64), np.asarray(first, dtype=np.int64)


def _codes(column: pa.Array) -> Ints:
    encoded = one_zero(column).dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _hashable(column: pa.Array) -> list[Any]:
    """Values that are equal where the keys are: of floats their bits, since NaN is not equal to itself."""
    if pa.types.is_floating(column.type):
        doubles = one_zero(column.cast(pa.float64()))
        return list(doubles.view(pa.int64()).to_pylist())
    return list(column.to_pylist())


def key_ids(batch: pa.RecordBatch, columns: Sequence[str]) -> Ints:
    """int64[rows]: the 64-bit id of each row's key, as Spark hashes it."""
    from steelyard.kernels.xxhash import spark_hash  # noqa: PLC0415 - a graph is described without a compiler

    if len(columns) == 1:
        return spark_hash(batch.column(columns[0]))
    return spark_hash(pa.StructArray.from_arrays([batch.column(name) for name in columns], names=list(columns)))


def table_key_ids(rows: pa.Table, columns: Sequence[str]) -> Ints:
    """The same of a table.

    >>> table_key_ids(pa.table({"k": pa.chunked_array([[1], [2]])}), ["k"]).tolist()
    [-7001672635703045582, -3341702809300393011]
    """
    return np.concatenate([np.empty(0, np.int64), *(key_ids(batch, columns) for batch in rows.to_batches())])
