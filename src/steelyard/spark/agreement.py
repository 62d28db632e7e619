"""Whether the two forms of an aggregator agree: a few groups are computed in both, and their results compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.spark.aggregator import FORMS, Aggregator, AggregatorUse
from steelyard.spark.states import Ints, added, bounds_of, encoded, finished, merged

GROUPS = 2
"""Groups of a block that are computed both ways; as many more of those with nulls."""
MOST = 256
"""Rows, or states, of a group above which it is not compared."""
SHOWN = 8
"""Values of a column that a sentence shows."""


def added_otherwise(
    name: str,
    use: AggregatorUse,
    columns: Sequence[pa.Array],
    order: Ints,
    offsets: Ints,
    states: pa.StructArray,
    result: pa.DataType,
) -> str:
    """A sentence that says where `add` gives another result than `states`, which `add_block` made; or nothing.

    Rows are in groups as in `states.added`.
    """
    alone, both = AggregatorUse(of_one_key(use.aggregator), use.columns), ("add_block()", "add()")
    for group in _chosen(offsets, _nulls(columns, order)):
        rows = order[offsets[group] : offsets[group + 1]]
        given = [column.take(pa.array(rows)) for column in columns]

        def one(given: Sequence[pa.Array] = given, count: int = len(rows)) -> pa.Array:
            found = added(alone, given, np.arange(count), bounds_of(np.array([count])), states.type)
            return finished(alone, encoded(found, states.type, "add()"), states.type, result)

        ours = _outcome(lambda group=group: finished(use, states.slice(group, 1), states.type, result))
        theirs = _outcome(one)
        if not _agree(ours, theirs, _tolerance([*given, states, pa.array([], result)])):
            values = ", ".join(f"{what} {_shown(part)}" for what, part in zip(use.columns, given, strict=True))
            return _sentence(name, use, both, (ours, theirs), values)
    return ""


def merged_otherwise(
    name: str, use: AggregatorUse, states: pa.StructArray, offsets: Ints, whole: pa.StructArray, result: pa.DataType
) -> str:
    """A sentence that says where `merge` gives another result than `whole`, which `merge_block` made; or nothing."""
    alone = AggregatorUse(of_one_key(use.aggregator), use.columns)
    for group in _chosen(offsets, None, least=2):
        parts = states.slice(offsets[group], offsets[group + 1] - offsets[group])

        def one(parts: pa.StructArray = parts) -> pa.Array:
            found = merged(alone, parts, bounds_of(np.array([len(parts)])), states.type)
            return finished(alone, encoded(found, states.type, "merge()"), states.type, result)

        ours = _outcome(lambda group=group: finished(use, whole.slice(group, 1), states.type, result))
        theirs = _outcome(one)
        if not _agree(ours, theirs, _tolerance([states, pa.array([], result)])):
            return _sentence(name, use, ("merge_block()", "merge()"), (ours, theirs), f"states {_shown(parts)}")
    return ""


def of_one_key(aggregator: Aggregator) -> Aggregator:
    """The same aggregator without the forms of a block."""
    kind = type(aggregator)
    same = {name: getattr(aggregator, name) for name in ("state", "result", "takes_arrow")}
    steps = {name: staticmethod(getattr(aggregator, name)) for name in ("zero", *FORMS) if aggregator.gives(name)}
    return type(kind.__name__, (Aggregator,), same | steps)()  # type: ignore[no-any-return]


def _nulls(columns: Sequence[pa.Array], order: Ints) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Which rows, in this order, have a null; None where no row has one."""
    with_nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
    return np.logical_or.reduce(with_nulls)[order] if with_nulls else None


def _chosen(offsets: Ints, null: np.ndarray[Any, np.dtype[np.bool_]] | None, least: int = 1) -> list[int]:
    """A few groups that are not too large, some of them with nulls."""
    sizes = np.diff(offsets)
    small = (sizes <= MOST) & (sizes >= least)
    found = [*_spread(np.flatnonzero(small))]
    if null is not None:
        found += _spread(np.flatnonzero(small & np.logical_or.reduceat(null, offsets[:-1])))
    return found


def _spread(groups: Ints) -> list[int]:
    return np.unique(groups[np.linspace(0, len(groups) - 1, GROUPS).astype(int)]).tolist() if len(groups) else []


def _outcome(call: Any) -> Any:
    """The one result of a call, or what it raised."""
    try:
        return call().to_pylist()[0]
    except Exception as error:  # noqa: BLE001 - the user's class: that it raises is an outcome
        return error


def _agree(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two outcomes are one result, but for rounding.

    >>> _agree(1.0, 1.0 + 1e-12, 1e-6), _agree(None, float("nan"), 1e-6), _agree([1, "a"], [1, "b"], 1e-6)
    (True, False, False)
    """
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, Exception) and isinstance(other, Exception)
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * 1e-3)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_agree(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _tolerance(columns: Sequence[pa.Array]) -> float:
    """How far two results may be apart: sums of floats of 32 bits lose most of their digits."""
    return 1e-3 if any("float" in str(column.type) for column in columns) else 1e-6


def _shown(column: pa.Array) -> str:
    values = ", ".join(map(repr, column.slice(0, SHOWN).to_pylist()))
    return f"[{values}{', ...' if len(column) > SHOWN else ''}]"


def _sentence(name: str, use: AggregatorUse, forms: tuple[str, str], outcomes: tuple[Any, Any], values: str) -> str:
    said = [
        f"{form} raises {type(given).__name__}: {given}" if isinstance(given, Exception) else f"{form} gives {given!r}"
        for form, given in zip(forms, outcomes, strict=True)
    ]
    return (
        f"aggregate {name!r}: the two forms of {type(use.aggregator).__name__} disagree: {said[0]}, {said[1]}, "
        f"for {values}; mend one of them, or leave one out"
    )
