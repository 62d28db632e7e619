"""Foresight: as many instances as the load will want when the rescale is over, and what is behind by then.

Siachamis 2024, section 4, finds that published autoscalers cause lag by their own rescales and that none of them
reckons with it (F5); this one is made for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf, isfinite, nan
from typing import ClassVar

import numpy as np

from steelyard.core import Action, Observation, OptionError, State
from steelyard.core.clock import Clock
from steelyard.scaling.foresight_plan import STEPS, Outlook, Plan, best, keeping
from steelyard.scaling.foresight_rate import Rates
from steelyard.scaling.foresight_restart import Rescales
from steelyard.scaling.foresight_work import Work, state_of, too_hot, works_of
from steelyard.scaling.sight import nothing, unsaid

_LARGEST = 10
"""An operator gets no more than so many times its instances at once: costs are not known that well."""
_SAID = ("due", "rate", "caught_up", "standstill")


@dataclass
class Expectation:
    """What was said when numbers were changed, to be compared with what came."""

    due: float = nan
    """When the rate was to be so high."""
    rate: float = nan
    caught_up: float = nan
    """When nothing was to be behind any more."""
    standstill: float = nan


@dataclass(eq=False)
class Foresight:
    """Size every operator for the load that is to come, with what a rescale costs and what it leaves behind.

    The rate is forecast in several ways, of which the one is taken that was best so far; its own errors are the futures
    that are reckoned with. How much an operator works is explained by rows, by results, as of windows that end all at
    once, and by the state that its instances keep. How long a rescale stops the job is learnt from those that were
    done. Of many numbers of instances, now or a little later, it takes those that cost least over its outlook: workers,
    and rows that wait, at a price. Nothing is done unless that saves something worth having. Where one instance has a
    hot key that no number of instances could carry, it says so and does not grow the operator for it.

    Parameters
    ----------
    price
        Worker-seconds that it is worth to spare a second in which rows are a second late (at the usual rate). More
        means more workers, fewer rescales and less lag.
    outlook
        Seconds that a decision is made for: some times as long as decisions are apart.
    restart
        Seconds for which a rescale stops the job, before any was seen.
    per_gigabyte
        Seconds more for each 10^9 bytes of state, before any was seen.
    spare
        Share of what instances can do that is not reckoned with, beside what the slowest of them cannot.
    worthwhile
        Share of the cost that a change must save.
    workers
        All that there are, so that no more are wished for than can come; 0 where that is not known.

    Examples
    --------
    >>> from steelyard.core import OperatorObservation
    >>> log = OperatorObservation("log", 1, processed_per_second=500.0, busy=0.5, idle=0.5, arrived_per_second=500.0)
    >>> late = OperatorObservation("map", 1, {"log": 500.0}, processed_per_second=500.0, busy=0.98, idle=0.02)
    >>> policy = Foresight()
    >>> policy.decide(Observation(15.0, 15.0, (log, late))).parallelism
    {'log': 2, 'map': 4}
    """

    price: float = 20.0
    outlook: float = 1200.0
    restart: float = 30.0
    per_gigabyte: float = 10.0
    spare: float = 0.02
    worthwhile: float = 0.03
    workers: int = 0

    name: ClassVar[str] = "foresight"
    needs: ClassVar[tuple[str, ...]] = ("operators", "instances", "arrivals")

    def __post_init__(self) -> None:
        for one in fields(self):
            if not 0 <= getattr(self, one.name) < inf:
                raise OptionError(f"{one.name} of Foresight must be 0 or more, got {getattr(self, one.name)!r}")
        if not self.outlook > 0:
            raise OptionError(f"outlook of Foresight must be above 0 seconds, got {self.outlook!r}")
        if not self.spare < 1:
            raise OptionError(f"spare of Foresight must be below 1, got {self.spare!r}")
        self._clock = Clock()
        self._forget()

    def _forget(self) -> None:
        self._rates = Rates(self.outlook)
        self._works: dict[str, Work] = {}
        self._rescales = Rescales(self.restart, self.per_gigabyte)
        self._before: dict[str, int] = {}
        self._expected = Expectation()

    def watch(self, observation: Observation) -> None:
        """Learn from a look at which nobody decides, as in a cooldown."""
        self._seen(observation)

    def decide(self, observation: Observation) -> Action:
        """The cheapest numbers, where they are worth a change."""
        if why := self._seen(observation):
            return nothing(why)
        works = {name: self._works[name] for name in observation.parallelism if name in self._works}
        works = {name: work for name, work in works.items() if work.known}
        if not works:
            return nothing("no operator worked so far")
        outlook, said = self._outlook(observation, works)
        keep, found = keeping(outlook), best(outlook)
        hot = self._too_hot(observation, works, outlook)
        review = self._review(observation, outlook.behind)
        told = "; ".join(filter(None, [said, hot, review]))
        changed = Action(dict(found.parallelism)).changes(observation).parallelism
        saves = keep.cost - found.cost
        if not changed or saves <= self.worthwhile * keep.cost or found.begins > 0:
            why = "a change is better made later" if found.begins > 0 and changed else "nothing that is worth a change"
            return Action(reason=f"{why}: {told}")
        self._expect(observation, outlook, found)
        return Action(changed, f"{self._promise(outlook, found)}; {told}")

    def _seen(self, seen: Observation) -> str:
        """Take in a look; what it lacks, in words."""
        if why := self._clock.jumped(seen):
            self._rates = Rates(self.outlook)
            return why
        changed = bool(self._before) and seen.parallelism != self._before
        if why := unsaid(seen):
            return why
        sources = [one for one in seen.operators if not one.received_from]
        came = sum(one.processed_per_second if (known := one.arrived_per_second) is None else known for one in sources)
        read = sum(one.processed_per_second for one in sources)
        self._rates.add(seen.time, came)
        if isfinite(self._rescales.asked):
            if self._rescales.watch(seen, changed, working=read > 0):
                self._before = seen.parallelism
        else:
            self._before = seen.parallelism
        if not came > 0:
            return "no rows came, or nobody counted them"
        for one in seen.operators:
            if one.processed_per_second > 0 and one.busy > 0:
                self._works.setdefault(one.name, Work()).learn(one, seen.seconds, read, self.outlook)
        return ""

    def standstill(self, seen: Observation) -> float:
        """Seconds for which a rescale would stop the job now."""
        return self._rescales.expected(sum(one.state_bytes or 0.0 for one in seen.operators))

    def _outlook(self, seen: Observation, works: Mapping[str, Work]) -> tuple[Outlook, str]:
        """What a plan needs to know, and in words what is expected."""
        ahead = (np.arange(STEPS) + 0.5) * self.outlook / STEPS
        forecast = self._rates.forecast(ahead)
        usual = max(self._rates.mean, float(forecast.middle[0]), 1e-6)
        # what is kept grows with the rate; states that are dropped in time are as large as the rate of that time
        grows = max(1.0, min(float(forecast.middle.max()) / usual, 2.0))
        curves = {}
        for name, work in works.items():
            count = seen.parallelism[name]
            most = max(_LARGEST * count, self.workers, 2)
            curves[name] = (1 - self.spare) * work.curve(most, work.state_bytes * grows)
        behind = sum(one.lag or 0.0 for one in seen.operators if not one.received_from)
        outlook = Outlook(
            forecast.rates,
            self.outlook,
            behind,
            usual,
            curves,
            seen.parallelism,
            self.standstill(seen),
            self.price,
            self.workers,
        )
        far = len(ahead) // 4
        said = (
            f"{forecast.middle[far]:,.0f} rows/s are expected in {ahead[far]:.0f} s, {forecast.kind} "
            f"(so far wrong by {forecast.off:,.0f}), {behind:,.0f} rows are behind"
        )
        return outlook, said

    def _too_hot(self, seen: Observation, works: Mapping[str, Work], outlook: Outlook) -> str:
        """Operators that more instances do not help, in words."""
        most = float(outlook.rates[-1].max())
        found = [name for name, work in works.items() if too_hot(work, most, work.state_bytes)]
        return "".join(
            f"one instance of {name} has {works[name].hot:.0%} of its rows beyond its part, which no number of "
            f"instances carries: split its hottest key; "
            for name in found
        ).removesuffix("; ")

    def _promise(self, outlook: Outlook, found: Plan) -> str:
        caught = f"caught up in {found.caught_up:.0f} s" if isfinite(found.caught_up) else "not caught up in sight"
        return (
            f"for {found.capacity:,.0f} rows/s, after {outlook.standstill:.0f} s of standstill, {caught}; with lag it "
            f"costs {found.cost / outlook.seconds:.1f} workers"
        )

    def _expect(self, seen: Observation, outlook: Outlook, found: Plan) -> None:
        far = STEPS // 4
        middle = outlook.rates[len(outlook.rates) // 2]
        self._expected = Expectation(
            seen.time + (far + 0.5) * outlook.seconds / STEPS,
            float(middle[far]),
            seen.time + found.caught_up,
            outlook.standstill,
        )
        self._rescales.ask(seen.time, sum(one.state_bytes or 0.0 for one in seen.operators))
        self._before = seen.parallelism

    def _review(self, seen: Observation, behind: float) -> str:
        """How wrong the newest expectation was, as far as that can be told by now."""
        expected = self._expected
        said = []
        if self._rescales.took and isfinite(expected.standstill):
            took = self._rescales.took[-1][1]
            said.append(f"the last rescale took {took:.0f} s, {took - expected.standstill:+.0f} s of what was expected")
        if seen.time >= expected.due and isfinite(expected.rate):
            came = self._rates.at(expected.due)
            said.append(f"then came {came:,.0f} rows/s, {came - expected.rate:+,.0f}")
        if seen.time >= expected.caught_up and behind > 0:
            said.append(f"{behind:,.0f} rows are behind that were to be worked off")
        return ", ".join(said)

    def refused(self) -> None:
        """Nothing came of it: there will be no rescale."""
        self._rescales.asked = nan
        self._expected = Expectation()

    def state(self) -> State:
        """Rates, costs of work, rescales, what was expected."""
        names = sorted(self._before)
        return {
            **self._rates.state(),
            **state_of(self._works),
            **self._rescales.saved(),
            "clock": self._clock.array,
            "before": np.array(names, dtype=np.str_),
            "instances": np.array([self._before[name] for name in names], dtype=np.int64),
            "expected": np.array([getattr(self._expected, name) for name in _SAID]),
        }

    def restore(self, state: State) -> None:
        """Go on as the policy that gave this state would."""
        self._forget()
        self._rates.restore(state)
        self._works = works_of(state)
        self._rescales.restore(state)
        self._clock = Clock.of(state["clock"])
        self._before = dict(zip(state["before"].tolist(), state["instances"].tolist(), strict=True))
        self._expected = Expectation(*state["expected"].tolist())
