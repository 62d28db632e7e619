"""What `agg` is given by mistake, and what to write instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column

from steelyard.core import OptionError
from steelyard.core.aggregates import Aggregate
from steelyard.core.errors import nearest
from steelyard.core.hidden import RESERVED, is_hidden
from steelyard.core.hints import AGGREGATES, PYSPARK_AGGREGATES
from steelyard.spark.aggregator import Aggregator, AggregatorUse

_CALL = re.compile(r"^Column<'(?P<function>\w+)\((?P<column>[^()]*)\)(?: AS `?(?P<alias>[^`']*)`?)?'>$")


def require_aggregates(unnamed: tuple[Any, ...], aggregates: Mapping[str, Any]) -> None:
    """OptionError for an aggregate without a name, and for anything that is no aggregate of ours."""
    if unnamed:
        raise OptionError(f"agg: every aggregate has a name, {_instead('total', unnamed[0])}; got {unnamed[0]!r}")
    for name, use in aggregates.items():
        if isinstance(use, Aggregator) or (inspect.isclass(use) and issubclass(use, Aggregator)):
            kind = use if inspect.isclass(use) else type(use)
            raise OptionError(f"aggregate {name!r}: say over which columns, with {kind.__name__}().of('column')")
        if getattr(use, "__func__", use) is Aggregator.of:  # without its parentheses
            owner = getattr(use, "__self__", None)
            called = "YourAggregator" if owner is None else type(owner).__name__
            raise OptionError(f"aggregate {name!r}: say over which columns, with {called}().of('column')")
        if isinstance(use, Column):
            raise OptionError(f"aggregate {name!r} is a Column of PySpark: {_instead(name, use)}; got {use!r}")
        if hasattr(use, "bufferSchema") and hasattr(use, "reduce"):
            theirs = use.__name__ if inspect.isclass(use) else type(use).__name__
            raise OptionError(f"aggregate {name!r}: write sy.udaf({theirs}()).of('column')")
        if not isinstance(use, Aggregate | AggregatorUse):
            raise OptionError(f"aggregate {name!r} must be sy.count(), sy.sum(column) and so on, got {use!r}")
        if is_hidden(name):
            raise OptionError(f"aggregate {name!r}: names that start with {RESERVED!r} are reserved")


def _instead(name: str, given: Any) -> str:
    """What to write in place of one of PySpark's columns.

    >>> _instead("total", "Column")
    "as in .agg(total=sy.sum('column'))"
    """
    found = _CALL.match(repr(given)) if isinstance(given, Column) else None
    if found is None:
        return f"as in .agg({name}=sy.sum('column'))"
    function, column = found["function"], found["column"]
    if function == "count" and _is_distinct(given):
        function = "count_distinct"
    ours = PYSPARK_AGGREGATES.get(function) or (function if function in AGGREGATES else nearest(function, AGGREGATES))
    if ours is None:
        return f"there is no sy.{function}; there are {', '.join(AGGREGATES)}, and your own Aggregator"
    what = "" if column in ("1", "*", "unnamed") else repr(column)
    return f"write .agg({found['alias'] or name}=sy.{ours}({what}))"


def _is_distinct(column: Any) -> bool:
    """Whether a call counts distinct values, which its text does not tell."""
    node = column._jc.node()
    while node.getClass().getSimpleName() == "Alias":
        node = node.child()
    return node.getClass().getSimpleName() == "UnresolvedFunction" and bool(node.isDistinct())
