"""Rows as JSON documents, as Spark's `to_json` writes them with nulls included: a column at a time."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that stand otherwise in a JSON text than in themselves."""


def documents(rows: pa.RecordBatch | pa.Table, names: Sequence[str]) -> list[str]:
    """A document for each row, of the columns with these names.

    >>> documents(pa.table({"k": ["a", None], "n": [1, 2], "x": [0.5, float("nan")]}), ["k", "n", "x"])
    ['{"k":"a","n":1,"x":0.5}', '{"k":null,"n":2,"x":"NaN"}']
    """
    pieces: list[Any] = []
    for name in names:
        pieces += [f"{',' if pieces else '{'}{_ENCODER.encode(name)}:", _texts(rows.column(name))]
    if not pieces:
        return ["{}"] * rows.num_rows
    found: list[str] = pc.binary_join_element_wise(*pieces, "}", "").to_pylist()
    return found


def _texts(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The values of a column as JSON."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(pc.cast(column, pa.string()), "null")
    plain = pa.types.is_string(kind) and not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py()
    if plain:
        return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null")
    return pa.array([_ENCODER.encode(_finite(value)) for value in column.to_pylist()], pa.string())


def _finite(value: Any) -> Any:
    """JSON has no NaN and nothing infinite: these are text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    return value


def _plain(value: Any) -> Any:
    """What JSON has no type for, as Spark's to_json writes it."""
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.removesuffix("+00:00") + "Z" if value.tzinfo else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"), ensure_ascii=False)
