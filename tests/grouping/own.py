"""A grouping of a user's own, against the published protocol and nothing else; all engines take it as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from steelyard.grouping import Chosen, Matrices, Requests


@dataclass
class LeastWork:
    """Each tuple to the instance that was given the least work, as far as its mean time is known."""

    cost_of: str = "key"
    every: int = 4
    name: ClassVar[str] = "least work"

    def scheduler(self, instances: int, number: int = 0, schedulers: int = 1) -> LeastWorkScheduler:
        return LeastWorkScheduler(instances)

    def instance(self, instances: int, number: int, schedulers: int = 1) -> LeastWorkInstance:
        return LeastWorkInstance(number, self.every)


class LeastWorkScheduler:
    def __init__(self, instances: int) -> None:
        self.instances = instances
        self.given, self.mean = np.zeros(instances), np.ones(instances)
        self.heard = 0

    def choose(self, items: Any, costs: Any = None, times: Any = None) -> Chosen:
        to = np.empty(len(items), np.int32)
        for row in range(len(items)):
            to[row] = self.given.argmin()
            self.given[to[row]] += self.mean[to[row]]
        return Chosen(to, Requests.none())

    def feedback(self, reports: Any) -> None:
        for report in reports:
            self.mean[report.sender] = report.time / report.tuples
            self.heard += 1

    def state(self) -> dict[str, Any]:
        return {"given": self.given.copy(), "mean": self.mean.copy(), "heard": np.array(self.heard)}

    def restore(self, state: Any) -> None:
        self.given, self.mean = state["given"].copy(), state["mean"].copy()
        self.heard = int(state["heard"])


class LeastWorkInstance:
    def __init__(self, number: int, every: int) -> None:
        self.number, self.every = number, every
        self.tuples = self.seconds = 0.0

    def executed(
        self, items: Any, seconds: Any, finished: Any, requests: Any = None, scheduler: int = 0
    ) -> list[Matrices]:
        self.tuples += len(items)
        self.seconds += float(np.sum(seconds))
        if self.tuples < self.every:
            return []
        report = Matrices(self.number, np.array([[[self.tuples, self.seconds]]]), self.tuples, self.seconds)
        self.tuples = self.seconds = 0.0
        return [report]

    def state(self) -> dict[str, Any]:
        return {"fit": np.array([self.tuples, self.seconds])}

    def restore(self, state: Any) -> None:
        self.tuples, self.seconds = state["fit"].tolist()


@dataclass(frozen=True)
class Alike:
    """One that takes all rows for the same: it names no column."""

    name: ClassVar[str] = "alike"

    def scheduler(self, instances: int, number: int = 0, schedulers: int = 1) -> LeastWorkScheduler:
        return LeastWorkScheduler(instances)

    def instance(self, instances: int, number: int, schedulers: int = 1) -> LeastWorkInstance:
        return LeastWorkInstance(number, 1)


class Astray(Alike):
    """One that sends rows to an instance that there is not."""

    name: ClassVar[str] = "astray"

    def scheduler(self, instances: int, number: int = 0, schedulers: int = 1) -> LeastWorkScheduler:
        return LeastWorkScheduler(instances + 1)
