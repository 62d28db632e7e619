"""What can be told of an aggregator before it sees a row: whether its states and results fit the types that it says."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from steelyard.core import BatchError, OptionError
from steelyard.spark.aggregator import AggregatorUse, never_gives
from steelyard.spark.agreement import added_otherwise, merged_otherwise, of_one_key
from steelyard.spark.arrow import arrow_schema
from steelyard.spark.partials import ddl_fields
from steelyard.spark.states import NO_FIELDS, UNFIT, added, begins_with_none, encoded, finished, gave_none, merged
from steelyard.spark.values import column_of

_PASSED: set[tuple[Any, ...]] = set()
"""Checks that were passed, each with all that it depends on."""
_MOST_PASSED = 1_000
"""Then all are forgotten: they keep classes alive, and a notebook makes new ones again and again."""


def check_aggregator(name: str, use: AggregatorUse) -> None:
    """Raise an OptionError of two lines where an aggregator cannot work, whatever the rows.

    Its methods must take what they will be given. It is asked for `zero()`, and for two of them merged and one
    finished. That these two may raise is its own affair: a key without rows has no result. None, infinities and NaN
    stand for anything: what `zero()` gives is encoded only as far as `add` leaves it as it was.
    """
    _once(lambda: _check_steps(name, use), use, "steps")


def _once(check: Callable[[], None], use: AggregatorUse, *of: str) -> None:
    """Check an aggregator; one without attributes of its own once for its class, since that takes milliseconds."""
    aggregator, kind = use.aggregator, type(use.aggregator)
    methods = tuple(getattr(kind, step) for step in ("add", *_ARGUMENTS))
    asked = (*of, kind, methods, aggregator.state, aggregator.result, aggregator.takes_arrow, use.columns)
    has_own = bool(vars(aggregator)) or hasattr(kind, "__slots__")
    if not has_own and asked in _PASSED:
        return
    check()
    if len(_PASSED) >= _MOST_PASSED:
        _PASSED.clear()
    if not has_own:
        _PASSED.add(asked)


def _check_steps(name: str, use: AggregatorUse) -> None:
    aggregator = use.aggregator
    kind = type(aggregator).__name__
    state, result = _types(name, use)
    _check_arguments(name, use)
    if not aggregator.gives("zero"):  # nor is there an `add` that would begin with it
        return
    try:
        zero = aggregator.zero()
    except Exception as error:
        raise OptionError(
            f"aggregate {name!r}: {kind}.zero() raised {type(error).__name__}: {error};\n"
            "it must give the state of no rows"
        ) from error
    pair = _given(lambda: [aggregator.merge(aggregator.zero(), aggregator.zero())])
    if pair and pair[0] is None and zero is not None:
        raise OptionError(f"aggregate {name!r}: {gave_none(aggregator, 'merge')}\nOf two zero() it must give a state")
    for what, value in (("zero()", zero), ("merge(zero(), zero())", pair[0] if pair else None)):
        why = _unfit_state(value, state)
        if why:
            raise OptionError(
                f"aggregate {name!r}: {kind}.{what} gives {value!r}, and its state is {aggregator.state!r};\n{why}"
            )
    nothing = _given(lambda: _plain(aggregator.zero(), state))
    twice = _given(lambda: _plain(aggregator.merge(aggregator.zero(), aggregator.zero()), state))
    told = nothing is not None and twice is not None
    if told and twice != nothing and repr(twice) != repr(nothing):  # NaN is not equal to itself
        raise OptionError(
            f"aggregate {name!r}: {kind}.merge(zero(), zero()) gives {_shown(twice)}, and zero() gives "
            f"{_shown(nothing)};\nthe state of no rows may change nothing, or results depend on the number of tasks"
        )
    finished = _given(lambda: aggregator.finish(aggregator.zero()))
    out_of_range = isinstance(finished, int) and pa.types.is_integer(result.type)  # of zeros that stand for infinities
    if not out_of_range and not _fits(finished, result.type):
        raise OptionError(
            f"aggregate {name!r}: {kind}.finish(zero()) gives {finished!r}, and its result is {aggregator.result!r};\n"
            "give a value of that type, or say another one in `result`"
        )


_ARGUMENTS = {
    "zero": (),
    "merge": ("left", "right"),
    "finish": ("state",),
    "subtract": ("whole", "part"),
    "add_block": ("columns", "offsets"),
    "merge_block": ("states", "offsets"),
    "finish_block": ("states",),
    "subtract_block": ("whole", "part"),
}
"""What each step is called with; `add` is with a state and each of the columns."""


def _check_arguments(name: str, use: AggregatorUse) -> None:
    """Raise an OptionError where a method does not take what it will be called with, or has no `return`."""
    for step, given in ({"add": ("state", *use.columns)} | _ARGUMENTS).items():
        if step != "zero" and never_gives(getattr(use.aggregator, step)):  # a state of no rows may be None
            raise OptionError(f"aggregate {name!r}: {gave_none(use.aggregator, step)}")
        try:
            takes = inspect.signature(getattr(use.aggregator, step))
        except (TypeError, ValueError):  # of a function in C, say, that does not tell
            continue
        try:
            takes.bind(*given)
        except TypeError as error:
            told = f"{use!r} gives it a state, and each column as an argument of its own"
            raise OptionError(
                f"aggregate {name!r}: {type(use.aggregator).__name__}.{step}{takes} cannot be called with "
                f"({', '.join(given)}): {error};\n{told if step == 'add' else 'those are its arguments'}"
            ) from error


def _types(name: str, use: AggregatorUse) -> tuple[pa.Schema, pa.Field]:
    """The fields of a state, and that of a result."""
    aggregator = use.aggregator
    state = arrow_schema(ddl_fields(aggregator.state, f"`state` of aggregate {name!r}"))
    return state, arrow_schema(ddl_fields(f"r {aggregator.result}", f"`result` of aggregate {name!r}")).field(0)


_DRAWN = (3, 1, 2, 5, 4, 6)
_BOUNDS, _HALVES = np.array([0, 1, 3, 6]), np.array([0, 2, 3])
"""Of groups of the drawn rows, and of pairs of these groups."""


def check_forms(name: str, use: AggregatorUse, rows: T.StructType) -> None:
    """Raise an OptionError where an aggregator cannot add up a few small values, or its two forms disagree about them.

    Values that the form of one key does not take, or cannot be drawn, tell nothing: tasks compare real ones.
    """
    kinds = (rows[column].dataType.simpleString() for column in use.columns)
    _once(lambda: _check_forms(name, use, rows), use, "forms", *kinds)


def _check_forms(name: str, use: AggregatorUse, rows: T.StructType) -> None:
    drawn = (_drawn(arrow_schema(T.StructType([rows[column]])).field(0).type) for column in use.columns)
    columns = [column for column in drawn if column is not None]
    if not use.aggregator.gives("zero", "add") or len(columns) < len(use.columns):
        return
    fields, result = _types(name, use)
    state, every = pa.struct(list(fields)), np.arange(len(_DRAWN))
    alone = AggregatorUse(of_one_key(use.aggregator), use.columns)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check_add(name, alone, [column.slice(0, 1) for column in columns], state)
        if not use.aggregator.has_both_forms:
            return
        if _given(lambda: finished(alone, added(alone, columns, every, _BOUNDS, state), state, result.type)) is None:
            return
        try:
            states = encoded(added(use, columns, every, _BOUNDS, state), state, "add()")
            whole = encoded(merged(use, states, _HALVES, state), state, "merge()")
        except Exception as error:
            raise OptionError(
                f"aggregate {name!r}: the form of a block of {type(use.aggregator).__name__} raises "
                f"{type(error).__name__}: {error}, for {list(_DRAWN)} and the like, where that of one key does not"
            ) from error
        told = added_otherwise(name, use, columns, every, _BOUNDS, states, result.type)
        told = told or merged_otherwise(name, use, states, _HALVES, whole, result.type)
    if told:
        raise OptionError(told)


def _check_add(name: str, use: AggregatorUse, columns: list[pa.Array], state: pa.DataType) -> None:
    """Raise an OptionError where `add` gives no state, or does not take the None of `zero`. Else it may raise."""
    kind = type(use.aggregator).__name__
    try:
        added(use, columns, np.arange(1), np.array([0, 1]), state)
    except BatchError as error:
        raise OptionError(f"aggregate {name!r}: {error}") from error
    except Exception as error:
        if begins_with_none(use.aggregator) and "NoneType" in str(error):
            raise OptionError(
                f"aggregate {name!r}: {kind}.zero() gives None, and add(None, ...) raises {type(error).__name__}: "
                f"{error};\nzero() must give the state of no rows ({use.aggregator.state}), or add() must take None"
            ) from error


def _drawn(kind: pa.DataType) -> pa.Array | None:
    """A few values of a type; None where there are none that are simple."""
    whole = pa.array(_DRAWN, pa.int32() if pa.types.is_date32(kind) else pa.int64())
    try:
        if pa.types.is_boolean(kind):
            return pa.array([one % 2 == 0 for one in _DRAWN])
        return whole.cast(pa.string()).cast(kind) if pa.types.is_binary(kind) else whole.cast(kind)
    except pa.ArrowException:
        return None


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


def _plain(value: Any, state: pa.Schema) -> list[Any] | None:
    """The fields of a state as plain values; None where it is no state that could be compared."""
    if value is None:
        return None
    parts = [value] if len(state) == 1 else list(value)
    return [column_of([part], field.type)[0].as_py() for part, field in zip(parts, state, strict=True)]


def _shown(fields: list[Any]) -> str:
    return repr(fields[0] if len(fields) == 1 else tuple(fields))


def _fits(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, Decimal):
        is_any = not value.is_finite()
    else:
        is_any = value is None or (isinstance(value, float | np.floating) and not np.isfinite(value))
    if is_any:
        return True
    try:
        column_of([value], kind)
    except UNFIT:
        return False
    return True
