"""Clocks of machines that are off, and the exchange by which that is found out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.plans import Floats


@dataclass(frozen=True)
class Clocks:
    """What the clocks of machines show: `time * (1 + drift) + offset`.

    Parameters
    ----------
    offset
        float64[machines], in seconds.
    drift
        float64[machines], in seconds per second.
    jitter
        Standard deviation of each way of an exchange, in seconds. Without it both ways take the same.

    Examples
    --------
    >>> clocks = Clocks(np.array([0.0, 0.5]), np.zeros(2))
    >>> t1, t2, t3, t4 = clocks.exchange(1, 10.0, 1, 0.001, np.random.default_rng(0))[0]
    >>> round(float((t2 - t1) - (t4 - t3)) / 2, 9)
    0.5
    """

    offset: Floats
    drift: Floats
    jitter: float = 0.0

    @classmethod
    def perfect(cls, machines: int) -> Clocks:
        """Clocks that show the time."""
        return cls(np.zeros(machines), np.zeros(machines))

    @classmethod
    def drawn(cls, machines: int, seed: int, offset: float = 0.05, drift: float = 20e-6, jitter: float = 0.0) -> Clocks:
        """Offsets of so many seconds and drifts of so many seconds per second, both normal."""
        rng = np.random.default_rng(seed)
        return cls(rng.normal(0.0, offset, machines), rng.normal(0.0, drift, machines), jitter)

    def shown(self, machine: Ints, time: Floats) -> Floats:
        """What the clocks of these machines show at these times."""
        return np.asarray(time * (1.0 + self.drift[machine]) + self.offset[machine])

    def exchange(self, machine: int, now: float, times: int, way: float, rng: np.random.Generator) -> Floats:
        """float64[times, 4]: t1 and t4 by the master's clock, which shows the time, t2 and t3 by the machine's."""
        sent = now + np.arange(times) * 4.0 * way
        there, back = (way + np.abs(rng.normal(0.0, self.jitter, times)) for _ in range(2))
        came = sent + there
        answered = came + 0.1 * way
        which = np.full(times, machine)
        return np.stack([sent, self.shown(which, came), self.shown(which, answered), answered + back], axis=1)
