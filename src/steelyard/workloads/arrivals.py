"""When rows happen: event times by a rate, out of order by a jitter, and some of them late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.errors import OptionError
from steelyard.workloads.draws import Draws
from steelyard.workloads.rates import Constant, Rate
from steelyard.workloads.workload import require_within
from steelyard.workloads.zipf import MICROS

DEFAULT_RATE = Constant(1000.0)


@dataclass(frozen=True)
class Arrivals:
    """The event time of each row: when the rate offers it, less what it was delayed on its way.

    Parameters
    ----------
    rate
        Rows per second over time.
    origin
        Event time of the stream's start, in microseconds since 1970 (UTC).
    jitter
        Each event is delayed by up to so many seconds, so that events come out of order.
    late_share, event_delay
        This share of the events is delayed by `event_delay` seconds besides.
    seed
        Chooses the delays.

    Examples
    --------
    >>> Arrivals(Constant(2), origin=1_000_000).times(0, 3).tolist()
    [1000000, 1500000, 2000000]
    >>> late = Arrivals(Constant(2), late_share=0.3, event_delay=60, seed=2).times(0, 6)
    >>> (late / 1e6).tolist()
    [0.0, 0.5, 1.0, 1.5, -58.0, 2.5]
    """

    rate: Rate = DEFAULT_RATE
    origin: int = 0
    jitter: float = 0.0
    late_share: float = 0.0
    event_delay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_within("jitter", self.jitter, 0, float("inf"))
        require_within("late_share", self.late_share, 0, 1)
        require_within("event_delay", self.event_delay, 0, float("inf"))
        if bool(self.late_share) != bool(self.event_delay):
            raise OptionError(
                f"options 'late_share' (got {self.late_share:g}) and 'event_delay' (got {self.event_delay:g} "
                "seconds) belong together: give both, or neither"
            )

    def times(self, first: int, count: int) -> Ints:
        """int64[count]: event times of rows `first` to `first + count - 1`, in microseconds since 1970."""
        numbers = np.arange(first, first + count, dtype=np.uint64)
        seconds = self.rate.time_of_row(numbers)
        draws = Draws(self.seed, numbers)
        if self.jitter:
            seconds = seconds - self.jitter * draws.uniform("jitter")
        if self.late_share:
            seconds = seconds - self.event_delay * draws.happens("late", self.late_share)
        return self.origin + np.floor(seconds * MICROS).astype(np.int64)
