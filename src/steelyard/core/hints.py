"""Names that PySpark has and we call otherwise: an AttributeError that says ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from steelyard.core.errors import nearest

AGGREGATES = ("approx_distinct", "collect", "count", "max", "mean", "min", "sum", "top_k", "variance")
PYSPARK_AGGREGATES = {
    "approx_count_distinct": "approx_distinct",
    "array_agg": "collect",
    "average": "mean",
    "avg": "mean",
    "collect_list": "collect",
    "collect_set": "collect",
    "count_distinct": "approx_distinct",
    "countDistinct": "approx_distinct",
    "max_by": "top_k",
    "var_samp": "variance",
}
"""Our names of what PySpark's functions are called."""


class Hinting:
    """Gives a hint for a name that an object does not have: the nearest of its own, or the words of `_hints`."""

    _hints: ClassVar[Mapping[str, str]] = {}
    """What to write instead, by the name that a user may try."""

    if not TYPE_CHECKING:  # else a type checker would take every name for one that is there

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name.startswith("_"):  # asked for by copy, pickle and notebooks
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
            if hasattr(kind, name):  # a property that raised: its own error says more
                return object.__getattribute__(self, name)
            known = [one for one in dir(kind) if not one.startswith("_")]
            # Without a name, Python adds no suggestion of its own to ours.
            raise AttributeError(missing(kind.__name__, name, known, kind._hints), name="", obj=self)


def missing(whose: str, name: str, known: Iterable[str], hints: Mapping[str, str]) -> str:
    """The sentence for a name that is not there.

    >>> missing("Stream", "groupBy", ["agg", "group_by"], {})
    "Stream has no 'groupBy': did you mean 'group_by'?"
    >>> missing("Stream", "where", ["agg"], {"where": "filter the DataFrame before sy.stream(...)"})
    "Stream has no 'where': filter the DataFrame before sy.stream(...)"
    """
    if name in hints:
        return f"{whose} has no {name!r}: {hints[name]}"
    names = sorted(known)
    bare = {one.replace("_", ""): one for one in names}  # groupBy, groupby and GROUP_BY are group_by
    near = bare.get(name.lower().replace("_", "")) or nearest(name, names)
    said = f"did you mean {near!r}?" if near else f"there are {', '.join(names)}"
    return f"{whose} has no {name!r}: {said}"
