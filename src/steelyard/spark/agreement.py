"""Whether the two forms of an aggregator agree: a few groups are computed in both, and their results compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.spark.aggregator import FORMS, Aggregator, AggregatorUse
from steelyard.spark.states import Ints, added, bounds_of, encoded, finished, merged
from steelyard.spark.values import leaves

GROUPS = 2
"""Groups of a block that are computed both ways; as many more of those with nulls."""
MOST = 256
"""Rows, or states, of a group above which it is not compared."""
SHOWN = 8
"""Values of a column that a sentence shows."""
STEPS = 4096
"""Of rounding, by which two sums of the same numbers may differ."""


def added_otherwise(
    name: str,
    use: AggregatorUse,
    columns: Sequence[pa.Array],
    order: Ints,
    offsets: Ints,
    states: pa.StructArray,
    result: pa.DataType,
) -> str:
    """A sentence that says where the form of one key gives another result than `states`, which `use` made; or nothing.

    Rows are in groups as in `states.added`.
    """
    alone = AggregatorUse(of_one_key(use.aggregator), use.columns)
    for group in _chosen(offsets, _nulls(columns, order)):
        rows = order[offsets[group] : offsets[group + 1]]
        given = [column.take(pa.array(rows)) for column in columns]

        def one(given: Sequence[pa.Array] = given, count: int = len(rows)) -> pa.StructArray:
            found = added(alone, given, np.arange(count), bounds_of(np.array([count])), states.type)
            return encoded(found, states.type, "add()")

        values = ", ".join(f"{what} {_shown(part)}" for what, part in zip(use.columns, given, strict=True))
        told = _otherwise((use, alone), "add", states.slice(group, 1), one, given, result)
        if told:
            return _sentence(name, use, told, values)
    return ""


def merged_otherwise(
    name: str, use: AggregatorUse, states: pa.StructArray, offsets: Ints, whole: pa.StructArray, result: pa.DataType
) -> str:
    """A sentence that says where the form of one key gives another result than `whole` of `use`; or nothing."""
    alone = AggregatorUse(of_one_key(use.aggregator), use.columns)
    for group in _chosen(offsets, None, least=2):
        parts = states.slice(offsets[group], offsets[group + 1] - offsets[group])

        def one(parts: pa.StructArray = parts) -> pa.StructArray:
            found = merged(alone, parts, bounds_of(np.array([len(parts)])), states.type)
            return encoded(found, states.type, "merge()")

        told = _otherwise((use, alone), "merge", whole.slice(group, 1), one, [parts], result)
        if told:
            return _sentence(name, use, told, f"states {_shown(parts)}")
    return ""


Outcomes = dict[str, Any]
"""What each of two forms gives, or raises."""


def _otherwise(
    uses: tuple[AggregatorUse, AggregatorUse],
    step: str,
    state: pa.StructArray,
    one: Callable[[], pa.StructArray],
    given: Sequence[pa.Array],
    result: pa.DataType,
) -> Outcomes | None:
    """The two forms that disagree: of `step`, or of `finish` where these differ for the same state; None if none do."""
    either, alone = uses
    other = _outcome(one)

    def ended(use: AggregatorUse, found: Any) -> Any:
        if isinstance(found, Exception):
            return found
        return _outcome(lambda: finished(use, found, state.type, result).to_pylist()[0])

    ours, theirs = ended(either, state), ended(alone, other)
    apart = _Rounding.of([*given, state], result)
    if apart.agree(ours, theirs):
        return None
    last = ended(either, other)
    if either.aggregator.gives(FORMS["finish"]) and not apart.agree(last, theirs):
        step, ours = "finish", last
    return {f"{FORMS[step]}()": ours, f"{step}()": theirs}


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


def _outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or what it raised."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the user's class: that it raises is an outcome
        return error


@dataclass(frozen=True)
class _Rounding:
    """How far two results of the same values may be apart.

    Parameters
    ----------
    relative
        Of the larger result.
    absolute
        Of results that are small because larger numbers cancel each other: it goes by the size of these.

    Examples
    --------
    >>> apart = _Rounding.of([pa.array([1.0, None, -3.0])], pa.float64())
    >>> apart.agree(1.0, 1.0 + 1e-12), apart.agree(None, float("nan")), apart.agree([1, "a"], [1, "b"])
    (True, False, False)
    >>> _Rounding.of([pa.array([1e-10])], pa.float64()).agree(1e-10, 5e-10)
    False
    """

    relative: float
    absolute: float

    @classmethod
    def of(cls, columns: Sequence[pa.Array], result: pa.DataType) -> _Rounding:
        """For results of these columns: sums of floats of 32 bits lose most of their digits."""
        kinds = [leaf for kind in (result, *(column.type for column in columns)) for leaf in leaves(kind)]
        is_short = any(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
        step = np.finfo(np.float32 if is_short else np.float64).eps
        size = max((_size(column) for column in columns), default=0.0)
        return cls(1e-3 if is_short else 1e-6, float(step) * STEPS * size)

    def agree(self, one: Any, other: Any) -> bool:
        """Whether two outcomes are one result, but for rounding."""
        if isinstance(one, Exception) or isinstance(other, Exception):
            return isinstance(one, Exception) and isinstance(other, Exception)
        if isinstance(one, float) and isinstance(other, float):
            both_nan = math.isnan(one) and math.isnan(other)
            return both_nan or math.isclose(one, other, rel_tol=self.relative, abs_tol=self.absolute)
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(self.agree(one[key], other[key]) for key in one)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            return len(one) == len(other) and all(self.agree(a, b) for a, b in zip(one, other, strict=True))
        return bool(one == other)


def _size(column: pa.Array) -> float:
    """The largest finite number of a column, without its sign."""
    kind = column.type
    if pa.types.is_map(kind):
        return max(_size(column.keys), _size(column.items))
    if pa.types.is_struct(kind):
        return max((_size(part) for part in column.flatten()), default=0.0)
    if pa.types.is_nested(kind):
        return _size(column.flatten())
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return 0.0
    values = np.abs(column.drop_null().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return float(values[np.isfinite(values)].max(initial=0.0))


def _shown(column: pa.Array) -> str:
    values = ", ".join(map(repr, column.slice(0, SHOWN).to_pylist()))
    return f"[{values}{', ...' if len(column) > SHOWN else ''}]"


def _sentence(name: str, use: AggregatorUse, told: Outcomes, values: str) -> str:
    said = ", ".join(
        f"{form} raises {type(given).__name__}: {given}" if isinstance(given, Exception) else f"{form} gives {given!r}"
        for form, given in told.items()
    )
    return (
        f"aggregate {name!r}: the two forms of {type(use.aggregator).__name__} disagree: {said}, "
        f"for {values}; mend one of them, or leave one out"
    )
