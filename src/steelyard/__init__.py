"""Steelyard: load-aware streams on PySpark.

Names are loaded when they are first used, so that a task or a help text does not import more than it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steelyard.control import Metrics, ProgressFile, on_progress
    from steelyard.core import (
        BadRowError,
        BatchError,
        NoEffectWarning,
        OptionError,
        Progress,
        StateError,
        SteelyardError,
    )
    from steelyard.core.aggregates import approx_distinct, collect, count, max, mean, min, sum, top_k, variance
    from steelyard.partition import partitioner, partitioner_names
    from steelyard.spark.aggregator import Aggregator
    from steelyard.spark.query import Query
    from steelyard.spark.row_aggregator import udaf
    from steelyard.spark.session import session
    from steelyard.spark.similarity_join import SimilarityJoin, similarity_join
    from steelyard.spark.stream import Stream, stream
    from steelyard.spark.what_if import what_if

__version__ = "0.1.0"

_HOMES = {
    "steelyard.control": ("Metrics", "ProgressFile", "on_progress"),
    "steelyard.core": (
        "BadRowError",
        "BatchError",
        "NoEffectWarning",
        "OptionError",
        "Progress",
        "StateError",
        "SteelyardError",
    ),
    "steelyard.partition": ("partitioner", "partitioner_names"),
    "steelyard.core.aggregates": (
        "approx_distinct",
        "collect",
        "count",
        "max",
        "mean",
        "min",
        "sum",
        "top_k",
        "variance",
    ),
    "steelyard.spark.aggregator": ("Aggregator",),
    "steelyard.spark.query": ("Query",),
    "steelyard.spark.row_aggregator": ("udaf",),
    "steelyard.spark.session": ("session",),
    "steelyard.spark.similarity_join": ("SimilarityJoin", "similarity_join"),
    "steelyard.spark.stream": ("Stream", "stream"),
    "steelyard.spark.what_if": ("what_if",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Aggregator",
    "BadRowError",
    "BatchError",
    "Metrics",
    "NoEffectWarning",
    "OptionError",
    "Progress",
    "ProgressFile",
    "Query",
    "SimilarityJoin",
    "StateError",
    "SteelyardError",
    "Stream",
    "approx_distinct",
    "collect",
    "count",
    "max",
    "mean",
    "min",
    "on_progress",
    "partitioner",
    "partitioner_names",
    "session",
    "similarity_join",
    "stream",
    "sum",
    "top_k",
    "udaf",
    "variance",
    "what_if",
]


if not TYPE_CHECKING:  # else a type checker would take every name for one that is there

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
        if name not in _HOME_OF:
            from steelyard.core.hints import PYSPARK_AGGREGATES, missing  # noqa: PLC0415 - only for the error

            ours = {theirs: f"did you mean {one!r}?" for theirs, one in PYSPARK_AGGREGATES.items()}
            # Without a name, Python adds no suggestion of its own to ours.
            raise AttributeError(missing("steelyard", name, __all__, ours), name="", obj=None)
        return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
