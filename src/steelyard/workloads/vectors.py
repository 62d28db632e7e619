"""Vectors to be compared with each other: five distributions, and topics of which another is hot after a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import cos, exp, gcd, isfinite, radians, sin
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import pyarrow as pa

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.workloads.draws import Bits, Draws, quantile_table
from steelyard.workloads.ranks import rank_table
from steelyard.workloads.workload import TIMESTAMP, Column, Workload, require_one_of, require_within
from steelyard.workloads.zipf import MAX_EXPONENT, MICROS

DISTRIBUTIONS = ("uniform", "gaussian", "skewed_gaussian", "pareto", "topics")
MAX_DIMENSION = 4096
MAX_TOPICS = 1024
PATTERNS = 8
"""Topics of the authors' mixture: four pairs of signs, and which coordinate of the two is the longer one."""
SHORT, LONG = 0.1, 0.5
"""Scales of a topic's coordinates."""
CELLS = 8192
"""Steps of a table of quantiles: the tails are cut off at 1 in 16,384."""
SLAB = 1 << 20
"""Coordinates that are made at a time, so that what is needed in between stays small."""
MOST_COORDINATES = (1 << 31) - 1
"""Of one Arrow list column."""


@dataclass(frozen=True)
class Vectors(Workload):
    """One vector a row, with its number.

    The distributions are those of the generators for S3J (Siachamis 2024, chapter 2); each coordinate is drawn for
    itself. Two streams that are joined want different seeds, else each vector has its twin in the other.

    Parameters
    ----------
    distribution
        `uniform`: from -1 to 1. `gaussian`: see `mean` and `deviation`. `skewed_gaussian`: nearly the same large
        number everywhere, so that all vectors point the same way; see `skew` and `bias`. `pareto`: see `shape` and
        `scale`. `topics`: a mixture, see `topics`, `exponent` and `shape`.
    dimension
        Coordinates of a vector, up to 4,096.
    mean, deviation
        Of a Gaussian coordinate. The generators for S3J have `2 g - 1`.
    skew, bias
        A skewed Gaussian coordinate is `2 / (1 + exp(-(bias + g / skew))) - 1`, for a standard Gaussian g.
    shape, scale
        A Pareto coordinate is at least `scale`, and above x with a chance of `(scale / x) ** shape`.
    topics
        Number of topics, up to 8; up to 1,024 from 8 dimensions on. A topic gives each coordinate a sign and a
        scale of 0.1 or 0.5, and so its vectors a direction, from which they stray by the `shape`.
    exponent
        Skew of the topics by Zipf's law, 0 to 4.
    drift_every
        After so many rows or seconds another topic is the hottest; 0 means never. With `topics` only.
    drift_unit
        `rows`, or `seconds` of event time.
    drift_turn
        With each drift all topics turn by so many degrees besides, so that vectors come where there were none, and
        none where they used to be. Coordinates 0 and 1 turn as a plane, and 2 and 3, and so on.
    seed
        Chooses the vectors, and the order in which topics become hot.

    Examples
    --------
    >>> vectors = Vectors(seed=7).rows(0, 2, np.zeros(2)).column("vector")
    >>> np.asarray(vectors.flatten()).reshape(-1, 2).round(3).tolist()
    [[0.768, -0.094], [-0.854, -0.384]]
    """

    distribution: str = "uniform"
    dimension: int = 2
    mean: float = -1.0
    deviation: float = 2.0
    skew: float = 10.0
    bias: float = 5.0
    shape: float = 10.0
    scale: float = 1.0
    topics: int = PATTERNS
    exponent: float = 2.0
    drift_every: float = 0.0
    drift_unit: str = "rows"
    drift_turn: float = 0.0
    seed: int = 0

    name: ClassVar[str] = "vectors"
    schema: ClassVar[pa.Schema] = pa.schema(
        [("event_time", TIMESTAMP), ("id", pa.int64()), ("vector", pa.list_(pa.float64()))]
    )

    def __post_init__(self) -> None:
        require_one_of("distribution", self.distribution, DISTRIBUTIONS)
        require_within("dimension", self.dimension, 1, MAX_DIMENSION)
        require_within("deviation", self.deviation, 0, float("inf"))
        require_within("skew", self.skew, 0.01, float("inf"))
        require_within("bias", self.bias, -100, 100)
        require_within("shape", self.shape, 0.1, 1000)
        require_within("scale", self.scale, 1e-9, 1e9)
        require_within("topics", self.topics, 1, MAX_TOPICS if self.dimension >= PATTERNS else PATTERNS)
        require_within("exponent", self.exponent, 0, MAX_EXPONENT)
        require_within("drift_every", self.drift_every, 0, float("inf"))
        require_one_of("drift_unit", self.drift_unit, ["rows", "seconds"])
        for option in ("mean", "deviation", "skew", "drift_turn"):
            if not isfinite(getattr(self, option)):
                raise OptionError(f"option {option!r} must be a finite number, got {getattr(self, option)!r}")
        if self.drift_every and self.distribution != "topics":
            raise OptionError(
                f"option 'drift_every' (got {self.drift_every:g}) is for the distribution 'topics', "
                f"and this one is {self.distribution!r}"
            )
        if self.drift_turn and not self.drift_every:
            raise OptionError(f"option 'drift_turn' (got {self.drift_turn:g}) needs 'drift_every': when to turn")

    def _columns(self, rows: Bits, draws: Draws, times: Ints) -> Sequence[Column]:
        if len(rows) * self.dimension > MOST_COORDINATES:
            raise ValueError(
                f"{len(rows)} vectors of {self.dimension} coordinates are too many at a time: ask for fewer"
            )
        vectors = np.empty((len(rows), self.dimension))
        step = max(SLAB // self.dimension, 1)
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            vectors[part] = self._vectors(rows[part], times[part])
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(self.dimension)
        return [times, rows.astype(np.int64), pa.ListArray.from_arrays(offsets, vectors.reshape(-1))]

    def _vectors(self, rows: Bits, times: Ints) -> Floats:
        """float64[rows, dimension]: coordinate j of row n is draw `n * dimension + j`."""
        coordinates: Bits = np.arange(self.dimension, dtype=np.uint64)
        numbers = rows[:, None] * np.uint64(self.dimension) + coordinates
        draws = Draws(self.seed, numbers)
        if self.distribution == "uniform":
            return 2.0 * draws.uniform("vector") - 1.0
        if self.distribution == "gaussian":
            return self.mean + self.deviation * draws.distributed("vector", _gaussian())
        if self.distribution == "skewed_gaussian":
            return draws.distributed("vector", _skewed(self.skew, self.bias))
        drawn = draws.distributed("vector", _pareto(self.shape))
        if self.distribution == "pareto":
            return self.scale * drawn
        epochs = self._epochs(rows, times)
        vectors = drawn * _directions(self.topics, self.dimension, self.seed)[self._topics(rows, epochs)]
        return _turned(vectors, epochs, self.drift_turn) if self.drift_turn else vectors

    def _topics(self, rows: Bits, epochs: Ints) -> Ints:
        """int64[rows]: the topic of each row. Each topic is the hottest once before one returns."""
        ranks = rank_table(self.exponent, self.topics).ranks(Draws(self.seed, rows).uniform("topic"))
        return (ranks + epochs % self.topics * self._stride()) % self.topics

    def _epochs(self, rows: Bits, times: Ints) -> Ints:
        """int64[rows]: how many drifts there were before each row."""
        if not self.drift_every:
            return np.zeros(len(rows), dtype=np.int64)
        seconds = self.drift_unit == "seconds"
        period = self.drift_every * (MICROS if seconds else 1)
        return np.floor_divide(times if seconds else rows.astype(np.int64), period).astype(np.int64)

    def _stride(self) -> int:
        """How far the hottest topic moves in a drift: prime to `topics`, so that none is left out."""
        drawn = int(Draws(self.seed, np.zeros(1, dtype=np.uint64)).integers("stride", self.topics)[0])
        return next(step for step in range(max(drawn, 1), 2 * self.topics + 2) if gcd(step, self.topics) == 1)


@lru_cache(maxsize=8)
def _directions(topics: int, dimension: int, seed: int) -> Floats:
    """float64[topics, dimension]: sign and scale of each coordinate of each topic.

    The first eight are those of the authors' mixture, over and over in more than two dimensions: bits 0 and 1 of
    the topic's number are the signs of even and odd coordinates, and bit 2 says which of them are long. Signs and
    scales of further topics are drawn.
    """
    topic, coordinate = np.arange(topics)[:, None], np.arange(dimension)
    minus = (topic >> coordinate % 2) & 1
    long = ((topic >> 2) + coordinate) & 1
    if topics > PATTERNS:
        numbers = (topic * dimension + coordinate).astype(np.uint64)
        draws = Draws(seed, numbers)
        minus = np.where(topic < PATTERNS, minus, draws.integers("sign", 2))
        long = np.where(topic < PATTERNS, long, draws.integers("scale", 2))
    return np.where(minus == 1, -1.0, 1.0) * np.where(long == 1, LONG, SHORT)


def _turned(vectors: Floats, epochs: Ints, degrees: float) -> Floats:
    """The vectors, turned by `degrees` for each epoch, in the planes of coordinates 0 and 1, 2 and 3, and so on."""
    seen, which = np.unique(epochs, return_inverse=True)
    # One by one: a vectorised cosine may differ in its last bit with the place of a row among others.
    angles = [radians(epoch * degrees % 360.0) for epoch in seen.tolist()]
    c, s = (np.array([f(angle) for angle in angles])[which][:, None] for f in (cos, sin))
    pairs = vectors.shape[1] // 2 * 2
    even, odd = vectors[:, 0:pairs:2], vectors[:, 1:pairs:2]
    turned = vectors.copy()
    turned[:, 0:pairs:2] = c * even - s * odd
    turned[:, 1:pairs:2] = s * even + c * odd
    return turned


def _table(quantile: Callable[[float], float]) -> Floats:
    table = quantile_table(quantile, CELLS)
    table.setflags(write=False)  # tables are shared by all who ask for them
    return table


@lru_cache(maxsize=1)
def _gaussian() -> Floats:
    return _table(NormalDist().inv_cdf)


@lru_cache(maxsize=8)
def _skewed(skew: float, bias: float) -> Floats:
    normal = NormalDist()
    return _table(lambda p: 2.0 / (1.0 + exp(-(bias + normal.inv_cdf(p) / skew))) - 1.0)


@lru_cache(maxsize=8)
def _pareto(shape: float) -> Floats:
    return _table(lambda p: float((1.0 - p) ** (-1.0 / shape)))
