"""How long an operator works on a tuple: laws of service times, in seconds on a core of speed 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.core.plans import Floats


@dataclass(frozen=True)
class Exactly:
    """The same time for every tuple; 0 for an operator that costs nothing.

    >>> Exactly(0.002).mean
    0.002
    """

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < np.inf:
            raise OptionError(f"seconds of Exactly must be 0 or more, got {self.seconds!r}")

    @property
    def mean(self) -> float:
        """Mean service time."""
        return self.seconds

    def mean_over(self, items: Ints) -> float:
        """Mean service time of a stream of these items."""
        return self.seconds


@dataclass(frozen=True)
class Exponential:
    """Memoryless service times with this mean, drawn anew for each tuple."""

    mean: float

    def __post_init__(self) -> None:
        if not 0 < self.mean < np.inf:
            raise OptionError(f"mean of Exponential must be above 0, got {self.mean!r}")

    def mean_over(self, items: Ints) -> float:
        """Mean service time of a stream of these items."""
        return self.mean


@dataclass(frozen=True, init=False, repr=False, eq=False)
class PerItem:
    """A time for each item: `seconds[item mod len(seconds)]`.

    >>> PerItem([0.001, 0.064])
    PerItem(2 items, 0.001 to 0.064 s)
    """

    seconds: Floats

    def __init__(self, seconds: ArrayLike | Sequence[float]) -> None:
        object.__setattr__(self, "seconds", _times("PerItem", seconds))

    @property
    def mean(self) -> float:
        """Mean over the table; that of a stream depends on how often each item comes, see `mean_over`."""
        return float(self.seconds.mean())

    def mean_over(self, items: Ints) -> float:
        """Mean service time of a stream of these items."""
        return float(self.seconds[items % len(self.seconds)].mean()) if len(items) else self.mean

    def __repr__(self) -> str:
        return f"PerItem({len(self.seconds)} items, {self.seconds.min():g} to {self.seconds.max():g} s)"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Samples:
    """Times that were measured: each tuple gets one of them at random.

    >>> Samples([0.001, 0.002, 0.006])
    Samples(3 times, mean 0.003 s)
    """

    seconds: Floats

    def __init__(self, seconds: ArrayLike | Sequence[float]) -> None:
        object.__setattr__(self, "seconds", _times("Samples", seconds))

    @property
    def mean(self) -> float:
        """Mean service time."""
        return float(self.seconds.mean())

    def mean_over(self, items: Ints) -> float:
        """Mean service time of a stream of these items."""
        return self.mean

    def __repr__(self) -> str:
        return f"Samples({len(self.seconds)} times, mean {self.mean:g} s)"


@dataclass(frozen=True)
class Growing:
    """A time that grows with the tuples that an instance keeps, as that of a join whose state grows.

    Parameters
    ----------
    seconds
        For a tuple that meets nothing.
    per_kept
        Seconds more for each tuple that came to the instance before, in the same window.
    window
        Seconds after which an instance forgets all that it keeps; 0, it never does.
    bytes_per_kept
        Of its machine's memory, for each tuple that it keeps.
    ttl
        Seconds after which each tuple is forgotten, as in a join whose state has a time to live; 0, none is before the
        window ends. Flows alone know that.

    Examples
    --------
    >>> Growing(0.001, per_kept=1e-6, window=10.0).mean
    0.001
    """

    seconds: float
    per_kept: float
    window: float = 0.0
    bytes_per_kept: float = 0.0
    ttl: float = 0.0

    def __post_init__(self) -> None:
        for name in ("seconds", "per_kept", "window", "bytes_per_kept", "ttl"):
            if not 0 <= getattr(self, name) < np.inf:
                raise OptionError(f"{name} of Growing must be 0 or more, got {getattr(self, name)!r}")
        if self.ttl and self.window:
            raise OptionError("Growing forgets all tuples when a window ends, or each after its ttl: leave one out")

    @property
    def mean(self) -> float:
        """Service time at the begin of a window."""
        return self.seconds


Law: TypeAlias = Exactly | Exponential | PerItem | Samples | Growing


def _times(law: str, seconds: ArrayLike | Sequence[float]) -> Floats:
    times = np.array(seconds, dtype=np.float64)
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all() or times.min() < 0:
        raise OptionError(f"{law} needs a list of times, each 0 or more seconds, got {seconds!r}")
    times.setflags(write=False)
    return times
