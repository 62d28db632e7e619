"""Metrics by name, and the search for records where one is no metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from steelyard.core.errors import OptionError
from steelyard.kernels import distance as kernel
from steelyard.similarity.custom import FunctionMetric
from steelyard.similarity.protocol import Bools, Floats, Ints, Metric, Pairs, Records
from steelyard.similarity.sets import Jaccard
from steelyard.similarity.text import Edit, Hamming
from steelyard.similarity.vectors import Cosine, VectorMetric

__all__ = ["METRICS", "Bools", "Floats", "Ints", "Metric", "Pairs", "Records", "counterexample", "metric"]

METRICS: dict[str, Callable[[], Metric]] = {
    "angular": lambda: VectorMetric("angular", kernel.ANGULAR, normal=True),
    "cosine": Cosine,
    "euclidean": lambda: VectorMetric("euclidean", kernel.EUCLIDEAN),
    "manhattan": lambda: VectorMetric("manhattan", kernel.MANHATTAN),
    "chebyshev": lambda: VectorMetric("chebyshev", kernel.CHEBYSHEV),
    "hamming": Hamming,
    "jaccard": Jaccard,
    "edit": Edit,
}
"""The metrics that have a name."""

_SAMPLE = 48
"""Records that are compared each with each, and by way of each."""
_SHOWN = 60
"""Characters of a record that a message shows."""


def metric(given: str | Metric | Callable[[Any, Any], float]) -> Metric:
    """A metric by its name, from a function of two records, or as it is.

    >>> metric("angular").normal, metric(lambda a, b: abs(a - b)).name
    (True, '<lambda>')
    >>> metric("cosin")
    Traceback (most recent call last):
    steelyard.core.errors.OptionError: unknown metric 'cosin': did you mean 'cosine'? There are: angular, ...
    """
    if isinstance(given, str):
        if given not in METRICS:
            raise OptionError.unknown("metric", given, METRICS)
        return METRICS[given]()
    if hasattr(given, "pairwise") and hasattr(given, "within"):
        return cast(Metric, given)
    if callable(given):
        return FunctionMetric(given)
    raise OptionError(f"metric is {given!r}: give a name ({', '.join(METRICS)}) or a function of two records")


def counterexample(metric: Metric, records: Records, seed: int = 0) -> str | None:
    """A sentence about records at which the metric is none, or None if a sample of them shows no fault.

    A sample is compared each with each: a record must be at distance 0 from itself, two records at the same distance
    in both orders, and no way over a third record may be shorter than the distance. Of all faults of a kind the
    worst is told.

    Parameters
    ----------
    metric
        The metric in doubt.
    records
        Good records of it.
    seed
        Which sample to take.

    Examples
    --------
    >>> def squared(a, b): return (a - b) ** 2
    >>> print(counterexample(metric(squared), [0.0, 1.0, 2.0]))
    metric 'squared' breaks the triangle inequality: the distance of 0.0 and 2.0 is 4, but over 1.0 it is 1 + 1 = 2
    """
    chosen = np.random.default_rng(seed).permutation(len(records))[:_SAMPLE]
    sample = metric.take(records, np.sort(chosen).astype(np.int64))
    if not len(chosen):
        return None
    table = _both_orders(metric, sample)

    def show(position: int) -> str:
        text = repr(metric.value(sample, position))
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."

    start = f"metric {metric.name!r}"
    wrong = ~((table >= 0) & np.isfinite(table))
    if wrong.any():
        i, j = _worst(wrong.astype(np.float64))
        return f"{start} gives {table[i, j]:.6g} for {show(i)} and {show(j)}: a distance is a finite number from 0 on"
    i = int(np.argmax(np.diagonal(table)))
    if table[i, i] > metric.slack:
        return f"{start} puts {show(i)} at distance {table[i, i]:.6g} from itself, not at 0"
    margin = np.asarray(metric.margin(table))
    i, j = _worst(np.abs(table - table.T) - margin - margin.T)
    if abs(table[i, j] - table[j, i]) > margin[i, j] + margin[j, i]:
        return (
            f"{start} is not symmetric: the distance of {show(i)} to {show(j)} is {table[i, j]:.6g}, "
            f"and back it is {table[j, i]:.6g}"
        )
    return _detour(start, table, margin, show)


def _both_orders(metric: Metric, sample: Records) -> Floats:
    """All distances; of a function in the order of the arguments, since `pairwise` would hide that it matters."""
    if isinstance(metric, FunctionMetric):
        return np.array([[float(metric.function(first, second)) for second in sample] for first in sample])
    return metric.pairwise(sample, sample)


def _worst(excess: Floats) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(int(np.argmax(excess)), excess.shape))


def _detour(start: str, table: Floats, margin: Floats, show: Callable[[int], str]) -> str | None:
    """The triangle (i, j, k) whose side i to k is longest beyond the way over j."""
    ways = table[:, :, None] + table[None, :, :]
    allowed = margin[:, :, None] + margin[None, :, :] + margin[:, None, :]
    i, j, k = _worst(table[:, None, :] - ways - allowed)
    if table[i, k] - ways[i, j, k] <= allowed[i, j, k]:
        return None
    return (
        f"{start} breaks the triangle inequality: the distance of {show(i)} and {show(k)} is {table[i, k]:.6g}, "
        f"but over {show(j)} it is {table[i, j]:.6g} + {table[j, k]:.6g} = {ways[i, j, k]:.6g}"
    )
