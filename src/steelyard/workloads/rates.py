"""How many rows per second a stream offers, as a function of time; and when each row comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from math import pi
from typing import Any, ClassVar, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats
from steelyard.workloads.draws import Draws, java_uniform

RANDOM_LEVELS = 1024
"""A random rate repeats after so many levels."""
SINUSOID_CELLS = 1 << 16
"""Steps of a period between which a sinusoid's inverse is linear: wrong by less than 2 rows in 10^10."""


class Rate(ABC):
    """Rows per second over time. Time is in seconds from the stream's start, and none comes before it.

    A subclass is a frozen dataclass whose fields are its parameters. All three verbs take a number or an
    array, and give an array of its shape.
    """

    name: ClassVar[str]

    @abstractmethod
    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""

    @abstractmethod
    def rows_until(self, t: ArrayLike) -> Floats:
        """The integral of `rate` from 0 to `t`, which never falls; its whole part is the rows so far."""

    @abstractmethod
    def time_of_row(self, n: ArrayLike) -> Floats:
        """The inverse of `rows_until`: when the stream has offered `n` rows. Row 0 comes at 0."""


@dataclass(frozen=True)
class Constant(Rate):
    """The same rate for ever.

    >>> Constant(500).time_of_row([0, 250, 1000]).tolist()
    [0.0, 0.5, 2.0]
    """

    rows_per_second: float

    name: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        _require_positive(self, "rows_per_second")

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        return np.full(np.shape(t), float(self.rows_per_second))

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        return _from_start(t) * self.rows_per_second

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered."""
        return _from_start(n) / self.rows_per_second


@dataclass(frozen=True)
class Ramp(Rate):
    """From `first` to `last` rows per second along a straight line of `seconds`, and `last` ever after.

    >>> Ramp(first=0, last=100, seconds=10).rows_until([5, 10, 11]).tolist()
    [125.0, 500.0, 600.0]
    """

    first: float
    last: float
    seconds: float

    name: ClassVar[str] = "ramp"

    def __post_init__(self) -> None:
        _require_not_negative(self, "first")
        _require_positive(self, "last", "seconds")

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        return np.asarray(self.first + self._slope * np.minimum(_from_start(t), self.seconds))

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        after = _from_start(t)
        rising = np.minimum(after, self.seconds)
        return np.asarray(rising * (self.first + self._slope * rising / 2) + self.last * (after - rising))

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered."""
        rows = _from_start(n)
        ramp_rows = (self.first + self.last) / 2 * self.seconds
        rising = np.minimum(rows, ramp_rows)
        # The root of  slope/2 t² + first t = rows  in the form that does not cancel for a slope near 0.
        root = np.sqrt(np.maximum(self.first**2 + 2 * self._slope * rising, 0.0))
        below = self.first + root
        time = np.divide(2 * rising, below, out=np.zeros_like(rising), where=below > 0)
        return np.asarray(time + (rows - rising) / self.last)

    @property
    def _slope(self) -> float:
        return (self.last - self.first) / self.seconds


@dataclass(frozen=True)
class Sinusoid(Rate):
    """A wave around `mean` rows per second, up and down by `amplitude` (a share of it) in `period` seconds.

    >>> Sinusoid(mean=1000, amplitude=0.5, period=60).rate([0, 15, 45]).tolist()
    [1000.0, 1500.0, 500.0]
    """

    mean: float
    amplitude: float = 0.5
    period: float = 60.0

    name: ClassVar[str] = "sinusoid"

    def __post_init__(self) -> None:
        _require_positive(self, "mean", "period")
        if not 0 <= self.amplitude <= 1:
            raise OptionError(f"rate sinusoid: amplitude must be between 0 and 1, got {self.amplitude!r}")

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        return np.asarray(self.mean * (1 + self.amplitude * np.sin(2 * pi / self.period * _from_start(t))))

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        cycles, phase = np.divmod(_from_start(t), self.period)
        wave = self.amplitude * self.period / (2 * pi) * (1 - np.cos(2 * pi / self.period * phase))
        return np.asarray(self.mean * (cycles * self.period + phase + wave))

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered."""
        times, rows = _wave(self)
        return _repeating(_from_start(n), rows, times)


@dataclass(frozen=True)
class Spike(Rate):
    """`base` rows per second, but `peak` for `seconds`, first after `at` seconds, then every `every`.

    With `every` at 0 there is one spike.

    >>> Spike(base=100, peak=1000, at=10, seconds=5).rate([9, 10, 14, 15]).tolist()
    [100.0, 1000.0, 1000.0, 100.0]
    """

    base: float
    peak: float
    at: float = 30.0
    seconds: float = 5.0
    every: float = 0.0

    name: ClassVar[str] = "spike"

    def __post_init__(self) -> None:
        _require_positive(self, "base", "peak", "seconds")
        _require_not_negative(self, "at", "every")
        if self.every and self.every < self.at + self.seconds:
            raise OptionError(
                f"rate spike: every must be 0 or at least at + seconds = {self.at + self.seconds:g}, got {self.every!r}"
            )

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        phase = self._phase(_from_start(t))
        return np.where((phase >= self.at) & (phase < self.at + self.seconds), float(self.peak), float(self.base))

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        times, rows = self._knots()
        after = _from_start(t)
        if self.every:
            return _repeating(after, times, rows)
        return np.asarray(np.interp(after, times, rows) + np.maximum(after - times[-1], 0) * self.base)

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered."""
        times, rows = self._knots()
        wanted = _from_start(n)
        if self.every:
            return _repeating(wanted, rows, times)
        return np.asarray(np.interp(wanted, rows, times) + np.maximum(wanted - rows[-1], 0) / self.base)

    def _phase(self, t: Floats) -> Floats:
        return np.mod(t, self.every) if self.every else t

    def _knots(self) -> tuple[Floats, Floats]:
        """Times at which the rate changes, and the rows until then."""
        spans = [self.at, self.seconds, max(self.every - self.at - self.seconds, 0.0)]
        levels = [self.base, self.peak, self.base]
        return _summed(spans), _summed([span * level for span, level in zip(spans, levels, strict=True)])


@dataclass(frozen=True)
class Steps(Rate):
    """Each of the `levels` (rows per second) for `seconds`, then from the first again.

    >>> Steps(10, (100, 300)).rows_until([10, 20, 30]).tolist()
    [1000.0, 4000.0, 5000.0]
    """

    seconds: float
    levels: tuple[float, ...]

    name: ClassVar[str] = "steps"

    def __post_init__(self) -> None:
        _require_positive(self, "seconds")
        if not self.levels or min(self.levels) < 0 or max(self.levels) <= 0:
            raise OptionError(f"rate {self.name}: levels must be at least one rate above 0, got {self.levels}")

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        step = np.floor_divide(_from_start(t), self.seconds).astype(np.int64)
        return np.asarray(self.levels, dtype=np.float64)[step % len(self.levels)]

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        times, rows = self._knots()
        return _repeating(_from_start(t), times, rows)

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered; the end of a pause where they stand still."""
        times, rows = self._knots()
        return _repeating(_from_start(n), rows, times)

    def _knots(self) -> tuple[Floats, Floats]:
        spans = [self.seconds] * len(self.levels)
        return _summed(spans), _summed([level * self.seconds for level in self.levels])


@dataclass(frozen=True)
class Random(Rate):
    """A level between `low` and `high` rows per second, drawn anew every `seconds`; after 1024 they repeat.

    >>> Random(low=100, high=200, seconds=1, seed=7).rate([0, 1, 2]).round().tolist()
    [156.0, 157.0, 198.0]
    """

    low: float
    high: float
    seconds: float = 10.0
    seed: int = 0

    name: ClassVar[str] = "random"

    def __post_init__(self) -> None:
        _require_positive(self, "high", "seconds")
        _require_not_negative(self, "low")
        if self.low > self.high:
            raise OptionError(f"rate random: low must not be above high, got {self.low!r} and {self.high!r}")

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        return _random_steps(self).rate(t)

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        return _random_steps(self).rows_until(t)

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered."""
        return _random_steps(self).time_of_row(n)


@dataclass(frozen=True)
class Walk(Rate):
    """A level that goes up or down by chance every `seconds`, from `first` on, and stays between `low` and `high`.

    Each step is drawn between `-down` and `up` by the generator that Java documents for `java.util.Random`, so that a
    seed that somebody published gives the rates that he had. After 1024 levels they repeat.

    >>> Walk(first=1.25e6, down=5e5, up=5e5, high=2.5e6, seconds=60, seed=1073).rate([0, 600, 1200]).round(-4).tolist()
    [1250000.0, 2450000.0, 160000.0]
    """

    first: float
    down: float
    up: float
    low: float = 0.0
    high: float = 1e12
    seconds: float = 60.0
    seed: int = 0

    name: ClassVar[str] = "walk"

    def __post_init__(self) -> None:
        _require_positive(self, "high", "seconds")
        _require_not_negative(self, "first", "down", "up", "low")
        if not self.low <= self.first <= self.high:
            raise OptionError(f"rate walk: first must be between low and high, got {self.first!r}")
        if not self.down + self.up > 0:
            raise OptionError("rate walk: down or up must be above 0")

    @property
    def levels(self) -> tuple[float, ...]:
        """Rows per second of each step."""
        return _walk_steps(self).levels

    def rate(self, t: ArrayLike) -> Floats:
        """Rows per second at time `t`."""
        return _walk_steps(self).rate(t)

    def rows_until(self, t: ArrayLike) -> Floats:
        """Rows offered by time `t`."""
        return _walk_steps(self).rows_until(t)

    def time_of_row(self, n: ArrayLike) -> Floats:
        """When `n` rows have been offered."""
        return _walk_steps(self).time_of_row(n)


RATES: dict[str, type[Rate]] = {kind.name: kind for kind in (Constant, Ramp, Sinusoid, Spike, Steps, Random, Walk)}


def parse_rate(text: str | float | Rate) -> Rate:
    """A rate from words: its name, a colon, and its parameters in order or by name; a number is constant.

    >>> parse_rate("50_000")
    Constant(rows_per_second=50000.0)
    >>> parse_rate("sinusoid:1000,0.5,60")
    Sinusoid(mean=1000.0, amplitude=0.5, period=60.0)
    >>> parse_rate("spike:100,1000,every=60")
    Spike(base=100.0, peak=1000.0, at=30.0, seconds=5.0, every=60.0)
    >>> parse_rate("steps:10,100,300,100")
    Steps(seconds=10.0, levels=(100.0, 300.0, 100.0))
    """
    if isinstance(text, Rate):
        return text
    if isinstance(text, int | float):
        return Constant(float(text))
    name, colon, rest = text.strip().partition(":")
    if not colon and name not in RATES:
        return Constant(_number(name, text))
    if name not in RATES:
        raise OptionError.unknown("rate", name, RATES)
    kind = RATES[name]
    words = [word.strip() for word in rest.split(",")] if rest.strip() else []
    if kind is Steps:
        numbers = [_number(word, text) for word in words]
        return Steps(numbers[0] if numbers else 0.0, tuple(numbers[1:]))
    return kind(**_parameters(kind, words, text))


def _parameters(kind: type[Rate], words: list[str], text: str) -> dict[str, Any]:
    """The parameters of a rate from its words, by position until the first that has a name."""
    declared = fields(kind)  # type: ignore[arg-type]
    usage = f"{kind.name}:{','.join(field.name for field in declared)}"
    if len(words) > len(declared):
        raise OptionError(f"rate {text!r} has {len(words)} parameters, write at most {usage}")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for field, word in zip(declared, words, strict=False):
        name, equals, value = word.partition("=")
        parameter = name.strip() if equals else field.name
        if parameter not in {other.name for other in declared}:
            raise OptionError.unknown(f"parameter of rate {kind.name}", parameter, [f.name for f in declared])
        given[parameter] = hints[parameter](_number(value if equals else word, text))
    missing = [field.name for field in declared if field.default is MISSING and field.name not in given]
    if missing:
        raise OptionError(f"rate {text!r} lacks {', '.join(missing)}: write {usage}")
    return given


def _number(word: str, text: str) -> float:
    try:
        number = float(word)
    except ValueError:
        names = ", ".join(sorted(RATES))
        raise OptionError(
            f"rate {text!r}: {word!r} is not a number; write rows per second, or one of {names} with "
            "its parameters, as in sinusoid:1000,0.5,60"
        ) from None
    if not np.isfinite(number):
        raise OptionError(f"rate {text!r}: {word!r} is not finite")
    return number


def _from_start(value: ArrayLike) -> Floats:
    """As float64; what is before the start is the start."""
    return np.maximum(np.asarray(value, dtype=np.float64), 0.0)


def _summed(parts: list[float]) -> Floats:
    return np.concatenate([[0.0], np.cumsum(parts)])


def _repeating(x: Floats, knots: Floats, values: Floats) -> Floats:
    """A function that is linear between the knots of one cycle, and grows by `values[-1]` in each."""
    cycles, phase = np.divmod(x, knots[-1])
    return np.asarray(cycles * values[-1] + np.interp(phase, knots, values))


@lru_cache(maxsize=8)
def _wave(rate: Sinusoid) -> tuple[Floats, Floats]:
    """One period of a sinusoid: times, and the rows until then."""
    times = np.linspace(0.0, rate.period, SINUSOID_CELLS + 1)
    rows = rate.rows_until(times)
    rows[-1] = rate.mean * rate.period  # the last point is the first of the next period
    return times, np.maximum.accumulate(rows)


@lru_cache(maxsize=8)
def _random_steps(rate: Random) -> Steps:
    share = Draws(rate.seed, np.arange(RANDOM_LEVELS, dtype=np.uint64)).uniform("rate")
    return Steps(rate.seconds, tuple((rate.low + (rate.high - rate.low) * share).tolist()))


@lru_cache(maxsize=8)
def _walk_steps(rate: Walk) -> Steps:
    draws, level, levels = java_uniform(rate.seed), rate.first, [rate.first]
    while len(levels) < RANDOM_LEVELS:
        level += next(draws) * (rate.down + rate.up) - rate.down
        level = min(max(level, rate.low), rate.high)
        levels.append(level)
    return Steps(rate.seconds, tuple(levels))


def _require_positive(rate: Rate, *names: str) -> None:
    for name in names:
        if not getattr(rate, name) > 0:
            raise OptionError(f"rate {rate.name}: {name} must be above 0, got {getattr(rate, name)!r}")


def _require_not_negative(rate: Rate, *names: str) -> None:
    for name in names:
        if not getattr(rate, name) >= 0:
            raise OptionError(f"rate {rate.name}: {name} must not be negative, got {getattr(rate, name)!r}")
