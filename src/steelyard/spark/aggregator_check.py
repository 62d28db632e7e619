"""What can be told of an aggregator before it sees a row: whether its states and results fit the types that it says."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import OptionError
from steelyard.spark.aggregator import AggregatorUse
from steelyard.spark.arrow import arrow_schema
from steelyard.spark.combine import NO_FIELDS
from steelyard.spark.partials import ddl_fields
from steelyard.spark.values import column_of

_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


def check_aggregator(name: str, use: AggregatorUse) -> None:
    """Raise an OptionError of two lines where an aggregator cannot work, whatever the rows.

    It is asked for `zero()`, and for two of them merged and one finished. That these two may raise is its own affair:
    a key without rows has no result. None, infinities and NaN stand for anything: what `zero()` gives is encoded only
    as far as `add` leaves it as it was.
    """
    aggregator = use.aggregator
    kind = type(aggregator).__name__
    state = arrow_schema(ddl_fields(aggregator.state, f"`state` of aggregate {name!r}"))
    result = arrow_schema(ddl_fields(f"r {aggregator.result}", f"`result` of aggregate {name!r}")).field(0)
    try:
        zero = aggregator.zero()
    except Exception as error:
        raise OptionError(
            f"aggregate {name!r}: {kind}.zero() raised {type(error).__name__}: {error};\n"
            "it must give the state of no rows"
        ) from error
    merged = _given(lambda: aggregator.merge(aggregator.zero(), aggregator.zero()))
    for what, value in (("zero()", zero), ("merge(zero(), zero())", merged)):
        why = _unfit_state(value, state)
        if why:
            raise OptionError(
                f"aggregate {name!r}: {kind}.{what} gives {value!r}, and its state is {aggregator.state!r};\n{why}"
            )
    finished = _given(lambda: aggregator.finish(aggregator.zero()))
    out_of_range = isinstance(finished, int) and pa.types.is_integer(result.type)  # of zeros that stand for infinities
    if not out_of_range and not _fits(finished, result.type):
        raise OptionError(
            f"aggregate {name!r}: {kind}.finish(zero()) gives {finished!r}, and its result is {aggregator.result!r};\n"
            "give a value of that type, or say another one in `result`"
        )


def _given(call: Callable[[], Any]) -> Any:
    """What a call gives; None, which fits everything, where it raises."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - the user's function, on a state that it may never be given
        return None


def _unfit_state(value: Any, state: pa.Schema) -> str:
    """Why a value is no state, or nothing: by the rule of `encoded`."""
    if value is None:
        return ""
    if len(state) == 1:
        if isinstance(value, tuple) and not pa.types.is_nested(state.field(0).type):
            return f"a state of the one field {state.field(0).name!r} is the bare value, not a tuple"
        return "" if _fits(value, state.field(0).type) else f"it must be a value of type {state.field(0).type}"
    try:
        parts = () if isinstance(value, NO_FIELDS) else tuple(value)
    except TypeError:  # no iterable
        parts = ()
    if len(parts) != len(state):
        return f"a state is a tuple with a value for each of the {len(state)} fields {', '.join(state.names)}"
    for part, field in zip(parts, state, strict=True):
        if not _fits(part, field.type):
            return f"{part!r} for field {field.name!r} is no value of type {field.type}"
    return ""


def _fits(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, Decimal):
        is_any = not value.is_finite()
    else:
        is_any = value is None or (isinstance(value, float | np.floating) and not np.isfinite(value))
    if is_any:
        return True
    try:
        column_of([value], kind)
    except _UNFIT:
        return False
    return True
