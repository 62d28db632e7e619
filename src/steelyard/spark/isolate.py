"""Find the rows that make a user's function raise, by halving, so that the others still count."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from steelyard.core.errors import BatchError, place_of
from steelyard.core.hidden import is_hidden

Bad = list[tuple[str, pa.RecordBatch]]
"""(what was raised, the row) for each row."""
COMPLAINT = "a row cannot be processed: "
"""Begins the sentence of a job that ends at a bad row; the reason follows."""


def no_key(key: str) -> str:
    """The reason of a row without a key."""
    return f"null key in column {key!r}"


class UnfitError(BatchError):
    """What a function gave is not of the columns and types that were said; of every row, that is its own mistake."""


def isolate(part: pa.RecordBatch, apply: Callable[[pa.RecordBatch], Any]) -> tuple[list[Any], Bad]:
    """Apply a function to a batch; where it raises, to its halves, down to the single rows that are bad.

    Costs nothing where nothing is raised, and about 2 log2(n) calls for each bad row of n. A BatchError is of no
    row: it is raised as it is. An UnfitError is of its row, unless all of several rows end in one: then it is raised.

    >>> rows = pa.record_batch({"x": [1, 0, 4]})
    >>> good, bad = isolate(rows, lambda part: [8 // x for x in part["x"].to_pylist()])
    >>> good, [(why.partition(" (")[0], as_json(row)) for why, row in bad]
    ([[8], [2]], [('ZeroDivisionError: integer division or modulo by zero', '{"x": 0}')])
    """
    unfit: list[UnfitError] = []
    good, bad = _halved(part, apply, unfit)
    if len(unfit) == part.num_rows > 1:
        raise BatchError(str(unfit[0])) from unfit[0]
    return good, bad


def _halved(
    part: pa.RecordBatch, apply: Callable[[pa.RecordBatch], Any], unfit: list[UnfitError]
) -> tuple[list[Any], Bad]:
    try:
        return [apply(part)], []
    except UnfitError as error:
        if part.num_rows <= 1:
            unfit.append(error)
            return [], [(str(error), part)] if part.num_rows else []
    except BatchError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the user's function raises belongs to the row
        if part.num_rows <= 1:
            return [], [(f"{type(error).__name__}: {error}{place_of(error)}", part)] if part.num_rows else []
    middle = part.num_rows // 2
    good, bad = _halved(part.slice(0, middle), apply, unfit)
    more_good, more_bad = _halved(part.slice(middle), apply, unfit)
    return good + more_good, bad + more_bad


def as_json(row: pa.RecordBatch) -> str:
    """The first row of a batch as JSON, without columns of our own; as Spark writes it, but for numbers as strings.

    >>> as_json(pa.record_batch({"größe": [datetime(2024, 1, 2)], "__split": [True]}))
    '{"größe": "2024-01-02T00:00:00"}'
    """
    values = row.slice(0, 1).to_pylist()[0]
    own = {name: value for name, value in values.items() if not is_hidden(name)}
    return json.dumps(own, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
