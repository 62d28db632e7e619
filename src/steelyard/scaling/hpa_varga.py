"""The horizontal autoscaler of Kubernetes, by time at work and by lag, for each operator."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core import Action, Observation, OptionError, State
from steelyard.scaling.bottlenecks import HELD, bottlenecks, sources_of
from steelyard.scaling.hpa import WINDOW, Highest, for_target
from steelyard.scaling.sight import nothing, unsaid


@dataclass(eq=False)
class HpaVarga:
    """Keep each operator at work for a share of the time, and give more to who is to blame for a lag that grows.

    Lag is seen at sources alone. It is charged to bottlenecks: to an operator behind one that is held back, for all
    sources that feed it, or to a source that nothing holds back.

    Parameters
    ----------
    target
        Share of its time for which an instance shall not be idle (Siachamis 2024, section 4: 0.7).
    lag_target
        Rows that come over those that are processed, at which lag is to be held (1).
    least_lag
        Rows of lag below which its growth does not count, so that there can be fewer instances: the user's threshold,
        which is not published.
    grows
        Rows per second by which the lag of a source must grow for it to be a bottleneck (10,000).
    over
        Seconds over which the growth of lag is taken (60).
    held
        Share of its time from which an operator counts as held back.
    window
        Seconds for which a wish counts (300).

    Examples
    --------
    >>> from steelyard.core import OperatorObservation
    >>> log = OperatorObservation("log", 1, processed_per_second=80.0, busy=0.2, backpressured=0.8, lag=9e9,
    ...     lag_per_second=20.0)
    >>> parse = OperatorObservation("map", 4, {"log": 80.0}, processed_per_second=80.0, busy=0.84, idle=0.16)
    >>> HpaVarga().decide(Observation(15.0, 15.0, (log, parse))).parallelism
    {'log': 2, 'map': 5}

    References
    ----------
    B. Varga, M. Balassi, A. Kiss, *Towards autoscaling of Apache Flink jobs*, Acta Universitatis Sapientiae 2021, which
    scales a deployment; for each operator as G. Siachamis, *Adaptivity for Streaming Dataflow Engines*, TU Delft 2024,
    section 4.
    """

    target: float = 0.7
    lag_target: float = 1.0
    least_lag: float = 10_000.0
    grows: float = 10_000.0
    over: float = 60.0
    held: float = HELD
    window: float = WINDOW

    name: ClassVar[str] = "hpa_varga"
    paper: ClassVar[str] = "Varga et al. 2021; Siachamis 2024, section 4"
    needs: ClassVar[tuple[str, ...]] = ("operators", "arrivals")

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise OptionError(f"target of HpaVarga must be above 0 and at most 1, got {self.target!r}")
        if not self.lag_target > 0:
            raise OptionError(f"lag_target of HpaVarga must be above 0, got {self.lag_target!r}")
        self._highest = Highest(self.window)
        self._lags: deque[tuple[float, dict[str, float]]] = deque()

    def decide(self, observation: Observation) -> Action:
        """Instances for each operator: what its time at work asks for, or what the lag does that it is blamed for."""
        if why := unsaid(observation, "lag", "lag_per_second"):
            return nothing(why)
        if why := self._highest.jumped(observation):
            self._lags.clear()
            return nothing(why)
        growth = self._growth(observation)
        blamed = {one.name for one in bottlenecks(observation, self.grows, self.held)}
        wished, said = {}, []
        for one in observation.operators:
            used = 1.0 - one.idle
            wished[one.name] = for_target(one.parallelism, used, self.target)
            said.append(f"{one.name} {used:.0%}")
            change = self._lag_change(observation, one.name, growth) if one.name in blamed else 0.0
            if change:
                wished[one.name] = max(wished[one.name], for_target(one.parallelism, change, self.lag_target))
                said[-1] += f", {change:.2f} times as much comes as it does"
        return Action(
            self._highest.of(observation.time, wished), f"to be at work for {self.target:.0%}: {', '.join(said)}"
        )

    def _lag_change(self, seen: Observation, name: str, growth: dict[str, float]) -> float:
        """Eq 4.6 over the sources that feed a bottleneck; 0 where their lag is too small to count."""
        feed = sources_of(seen, name)
        read = sum(one.processed_per_second for one in feed)
        if not read or sum(one.lag or 0.0 for one in feed) < self.least_lag:
            return 0.0
        return max(0.0, 1 + sum(growth[one.name] for one in feed) / read)

    def _growth(self, seen: Observation) -> dict[str, float]:
        """Rows per second by which the lag of each source grows, since the oldest look that is young enough."""
        lags = {one.name: one.lag or 0.0 for one in seen.operators if not one.received_from}
        now = {one.name: one.lag_per_second or 0.0 for one in seen.operators}
        while self._lags and self._lags[0][0] < seen.time - self.over:
            self._lags.popleft()
        time, before = self._lags[0] if self._lags else (seen.time, {})
        self._lags.append((seen.time, lags))
        return {
            name: (lag - before[name]) / (seen.time - time) if name in before else now[name]
            for name, lag in lags.items()
        }

    def state(self) -> State:
        """Wishes of the window, and lags."""
        names = sorted({name for _, one in self._lags for name in one})
        rows = [(time, names.index(name), lag) for time, one in self._lags for name, lag in one.items()]
        return {
            **self._highest.state(),
            "sources": np.array(names, dtype=np.str_),
            "lags": np.array(rows, dtype=np.float64).reshape(-1, 3),
        }

    def restore(self, state: State) -> None:
        """Go on as the policy that gave this state would."""
        self._highest.restore(state)
        names, found = state["sources"].tolist(), dict[float, dict[str, float]]()
        for time, number, lag in state["lags"].tolist():
            found.setdefault(time, {})[names[int(number)]] = lag
        self._lags = deque(found.items())
