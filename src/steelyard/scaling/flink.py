"""The autoscaler of Flink: DS2 over a long window, with room for the rows that came while a job restarted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil, inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from steelyard.core import Action, Observation, OptionError, State
from steelyard.core.clock import Clock
from steelyard.scaling.flink_looks import Looks, Sums, look_at
from steelyard.scaling.flink_memory import Promises, Restarts, Shrinking
from steelyard.scaling.sight import nothing, unsaid

_DIGITS = 9


class Demand(NamedTuple):
    """What an operator shall be able to do, in rows per second."""

    target: float
    """What will come to it if its senders keep up with theirs."""
    backlog: float
    """What is behind, over the time in which that is to be caught up with."""


class _Finding(NamedTuple):
    """One operator: what it can do, and between what that may stay."""

    can: float
    """Its true rate: rows per second of all instances if they worked all the time."""
    most: float
    """Above that there are too many instances."""
    least: float
    """Below that there are too few."""
    wanted: float
    used: float
    """Share of its time for which it worked."""


@dataclass(eq=False)
class Flink:
    """Find the numbers of instances at which every operator is busy for a share of the time, and restart seldom.

    Target rates go from sources to sinks, along each edge by the rows that went over it for one that its sender
    processed. Rows that are behind, and those that will come while the job restarts, are to be caught up with in a
    given time. Within wide bounds around the target nothing changes; fewer instances are taken only after an hour.

    Parameters
    ----------
    utilisation
        Share of its time for which an instance shall be busy (`utilization.target`).
    boundary
        How far from that it may be before anything changes (`target.utilization.boundary`).
    window
        Seconds over which metrics are taken; before that is full nothing is decided (`metrics.window`).
    stabilisation
        Seconds after a restart in which nothing is looked at (`stabilization.interval`).
    catch_up
        Seconds in which what is behind shall be worked off; 0 leaves it out (`catch-up.duration`).
    restart
        Seconds that a restart takes (`restart.time`).
    learn_restart
        Whether the longest of the newest restarts counts instead, once there are any (`restart.time-tracking.enabled`).
    most_restart
        No more than that is learnt, in seconds (`restart.time-tracking.limit`).
    shrink_after
        Seconds for which a wish for fewer instances waits (`scale-down.interval`).
    most_down, most_up
        Largest change, as a share of the instances (`scale-down.max-factor`, `scale-up.max-factor`).
    effective
        Share of the promised rate that more instances must bring, or an operator gets no more of them; 0 does not look
        (`scaling.effectiveness.threshold`, which is 0.1 and off there).
    processing_lag
        Seconds of lag above which a job is catching up: it is left alone as long as it keeps up
        (`backlog-processing.lag-threshold`).
    observed_lag
        Seconds of lag above which the rate at which a source reads shows what it can do
        (`observed-true-processing-rate.lag-threshold`), and ...
    switch
        ... the share by which its busy time must promise more before that counts (`...switch-threshold`).
    busiest
        Whether the busiest instance stands for all (`metrics.busy-time.aggregator`: MAX), or the mean does.
    least, most
        Instances of an operator (`vertex.min-parallelism`, `vertex.max-parallelism`).

    Examples
    --------
    >>> from steelyard.core import OperatorObservation
    >>> log = OperatorObservation("log", 1, processed_per_second=900.0, busy=0.9, idle=0.1, arrived_per_second=900.0)
    >>> policy = Flink(window=60.0, stabilisation=0.0, catch_up=0.0, boundary=0.1)
    >>> print([policy.decide(Observation(15.0 * look, 15.0, (log,))).parallelism for look in (1, 2, 3, 4)])
    [{}, {}, {}, {'log': 2}]

    References
    ----------
    Apache Flink Kubernetes Operator, *Autoscaler*, its page and its options, release 1.12; FLIP-271. Written from these
    alone. Two complaints of its users are tests of this one: twenty restarts a day (FLINK-36018), and operators that
    are busy all the time and get fewer instances, since the rows of an edge were misread (FLINK-38538). An operator
    that is busier than the target gets no fewer here, whatever its target rate says. Numbers need not divide the
    number of key groups, and neither memory nor quotas are looked at.
    """

    utilisation: float = 0.7
    boundary: float = 0.3
    window: float = 900.0
    stabilisation: float = 300.0
    catch_up: float = 1800.0
    restart: float = 300.0
    learn_restart: bool = False
    most_restart: float = 900.0
    shrink_after: float = 3600.0
    most_down: float = 0.6
    most_up: float = 100_000.0
    effective: float = 0.0
    processing_lag: float = 300.0
    observed_lag: float = 30.0
    switch: float = 0.15
    busiest: bool = True
    least: int = 1
    most: int = 200

    name: ClassVar[str] = "flink"
    paper: ClassVar[str] = "Apache Flink Kubernetes Operator 1.12"
    needs: ClassVar[tuple[str, ...]] = ("operators", "instances", "arrivals")

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise OptionError(f"utilisation of Flink must be above 0 and at most 1, got {self.utilisation!r}")
        if not 0 <= self.boundary < self.utilisation:
            raise OptionError(f"boundary of Flink must be below its utilisation, got {self.boundary!r}")
        if not 1 <= self.least <= self.most:
            raise OptionError(f"Flink wants 1 <= least <= most, got {self.least!r} and {self.most!r}")
        if not 0 < self.most_down <= 1:
            raise OptionError(f"most_down of Flink must be above 0 and at most 1, got {self.most_down!r}")
        for one in fields(self):
            if not getattr(self, one.name) >= 0:
                raise OptionError(f"{one.name} of Flink must be 0 or more, got {getattr(self, one.name)!r}")
        self._forget()

    def _forget(self) -> None:
        self._looks, self._restarts, self._clock = Looks(self.window), Restarts(), Clock()
        self._shrinking, self._promises = Shrinking(self.shrink_after), Promises()

    def decide(self, observation: Observation) -> Action:
        """Instances of operators that are outside their bounds, once a window of looks is full."""
        if why := self._clock.jumped(observation):
            clock = self._clock
            self._forget()
            self._clock = clock
            return nothing(why)
        if why := unsaid(observation):
            self._restarts.looked = observation.time
            return nothing(why)
        before = self._restarts.parallelism
        if self._restarts.begin(observation.time, observation.seconds, observation.parallelism):
            self._looks.clear()
            for name, count in observation.parallelism.items():
                if count < before.get(name, count):
                    self._shrinking.forget(name)
                    self._promises.forget(name)
        steady = observation.time - observation.seconds - self._restarts.since  # when the look began
        if steady < self.stabilisation:
            return Action(reason=f"it has run for {steady:g} s, and is left alone for {self.stabilisation:g} s")
        self._looks.add(look_at(observation))
        if self._looks.covered < self.window * (1 - 1e-9):
            return Action(reason=f"{self._looks.covered:g} s of a window of {self.window:g} s were seen")
        return self._decided(observation, self._looks.sums)

    def _decided(self, seen: Observation, sums: Sums) -> Action:
        demands = self._demands(seen, sums)
        if isinstance(demands, str):
            return nothing(demands)
        lags = [one.lag_seconds or 0.0 for one in seen.operators]
        chosen, said = {}, []
        for name, count in ((one.name, one.parallelism) for one in seen.operators):
            found = self._finding(name, sums, demands[name], catching_up=max(lags) > self.processing_lag)
            if found is not None and (new := self._number(name, count, found, seen.time)) != count:
                chosen[name] = new
                said.append(f"{name} can do {found.can:,.0f} rows/s and shall do {found.wanted:,.0f}")
        if chosen:
            self._restarts.asked = seen.time
        return Action(chosen, "; ".join(said) or "all operators are within their bounds")

    def _demands(self, seen: Observation, sums: Sums) -> dict[str, Demand] | str:
        """Target rates from sources to sinks; or what is not known, in words."""
        demands: dict[str, Demand] = {}
        for one in seen.operators:
            if not one.received_from:
                behind = (one.lag or 0.0) / self.catch_up if self.catch_up else 0.0
                demands[one.name] = Demand(sums.arrived(one.name), behind)
                continue
            target = backlog = 0.0
            for sender in one.received_from:
                ratio = sums.ratio(sender, one.name)
                if ratio is None:
                    return (
                        f"{sender} processed nothing for {sums.seconds:g} s: what it sends to {one.name} is not known"
                    )
                if sender in demands:  # rows that come back in a cycle are counted where they came from
                    target += demands[sender].target * ratio
                    backlog += demands[sender].backlog * ratio
            if not target and sums.rows(one.name) > 0:
                return f"{one.name} worked on rows, and none are said to have come to it"
            demands[one.name] = Demand(target, backlog)
        return demands

    def _finding(self, name: str, sums: Sums, demand: Demand, catching_up: bool) -> _Finding | None:
        """What an operator can do and shall do; None where it did nothing from which that could be told."""
        rows, at_work = sums.rows(name), sums.at_work(name, self.busiest)
        if not rows > 0 or not at_work > 0:
            return None
        # true processing rate: rows over the seconds in which it worked, for all instances together
        can = rows / at_work
        shown = sums.under_lag(name, self.observed_lag)
        if len(shown) > 1 and can > (1 + self.switch) * (observed := sum(shown) / len(shown)):
            can = observed
        restart = self._restarts.seconds(self.restart, self.learn_restart, self.most_restart)
        during = demand.target * restart / self.catch_up if self.catch_up else 0.0
        wanted = demand.target / self.utilisation + demand.backlog + during
        lowest = 0.0 if catching_up else self.utilisation - self.boundary
        highest = 1.0 if catching_up else min(self.utilisation + self.boundary, 1.0)
        most = demand.target / lowest + demand.backlog if lowest > 0 else inf
        used = sums.at_work(name, busiest=False) / sums.seconds
        return _Finding(can, most, demand.target / highest + demand.backlog, wanted, used)

    def _number(self, name: str, count: int, found: _Finding, time: float) -> int:
        """How many instances an operator shall have."""
        new = ceil(round(count * found.wanted / found.can, _DIGITS))
        if found.can < found.least:
            self._shrinking.forget(name)
            if self.effective and self._promises.look(name, count, found.can, self.effective):
                return count
            new = min(max(new, self.least), self.most, int(count * (1 + self.most_up)))
            if new > count:
                self._promises.grows(name, count, found.can)
            return max(new, count)
        if found.can <= found.most or new >= count or found.used > self.utilisation:
            self._shrinking.forget(name)
            return count
        new = max(new, self.least, ceil(round(count * (1 - self.most_down), _DIGITS)))
        due = self._shrinking.due(name, time, new)
        return count if due is None else min(due, count)

    def refused(self) -> None:
        """Nothing came of it: there will be no restart."""
        self._restarts.asked = float("nan")

    def state(self) -> State:
        """Looks of the window, restarts, what is to shrink and what was promised."""
        names = sorted(self._restarts.parallelism)
        parts = {"looks": self._looks.state(), "shrinking": self._shrinking.state(), "promises": self._promises.state()}
        return {
            **{f"{part} {name}": array for part, state in parts.items() for name, array in state.items()},
            "restarts": self._restarts.array,
            "operators": np.array(names, dtype=np.str_),
            "instances": np.array([self._restarts.parallelism[name] for name in names], dtype=np.int64),
            "clock": self._clock.array,
        }

    def restore(self, state: State) -> None:
        """Go on as the policy that gave this state would."""
        self._forget()
        self._looks.restore(_part(state, "looks"))
        self._shrinking.restore(_part(state, "shrinking"))
        self._promises = Promises.of(_part(state, "promises"))
        since, asked, looked, *took = state["restarts"].tolist()
        self._restarts = Restarts(since, asked, looked)
        self._restarts.took.extend(took)
        self._restarts.parallelism = dict(zip(state["operators"].tolist(), state["instances"].tolist(), strict=True))
        self._clock = Clock.of(state["clock"])


def _part(state: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(f"{part} "): array for name, array in state.items() if name.startswith(f"{part} ")}
