"""Applications from the papers, each a function from rows to a `Stream` that lacks only a policy and a sink.

Names are loaded when they are first used: tasks that count words need no edit distances.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steelyard.applications.clustering import CorrelationClustering, agreement, correlation_clusters
    from steelyard.applications.monitoring import cpu_per_class, cpu_per_job
    from steelyard.applications.taxi import distance_per_taxi, fare_per_taxi
    from steelyard.applications.topk import top, top_of_each_batch
    from steelyard.applications.tpch import quantity_per_part, revenue_change
    from steelyard.applications.wordcount import WordCounts, text_word_count, word_count, words_per_key

_HOMES = {
    "clustering": ("CorrelationClustering", "agreement", "correlation_clusters"),
    "monitoring": ("cpu_per_class", "cpu_per_job"),
    "taxi": ("distance_per_taxi", "fare_per_taxi"),
    "topk": ("top", "top_of_each_batch"),
    "tpch": ("quantity_per_part", "revenue_change"),
    "wordcount": ("WordCounts", "text_word_count", "word_count", "words_per_key"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CorrelationClustering",
    "WordCounts",
    "agreement",
    "correlation_clusters",
    "cpu_per_class",
    "cpu_per_job",
    "distance_per_taxi",
    "fare_per_taxi",
    "quantity_per_part",
    "revenue_change",
    "text_word_count",
    "top",
    "top_of_each_batch",
    "word_count",
    "words_per_key",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'steelyard.applications' has no attribute {name!r}")
    return getattr(import_module(f"steelyard.applications.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
