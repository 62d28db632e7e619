"""Prompt+'s elasticity zones: scale out above a threshold, scale in below a band, and leave a batch in it alone."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, isfinite
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from steelyard.core import BLOCKS, BUCKETS, Action, BatchObservation, Observation, OptionError, State

UNIT, PROPORTIONAL = "unit", "proportional"
INCREMENTS = (UNIT, PROPORTIONAL)
UNBOUNDED = 1 << 20
"""Tasks where neither the policy nor the engine knows a bound."""
ROUNDING = 1e-9
"""Loads that differ by less are equal: 0.9 - 0.1 is not 0.8 to a computer."""

Direction = Literal["out", "in"]
_DIRECTIONS: tuple[Direction, ...] = ("out", "in")


class _Stage(NamedTuple):
    """One of the two numbers of tasks, and what drives it."""

    name: str
    tasks: int
    least: int
    most: int
    driver: str
    change: float
    """Of the driver, relative: the mean of the last d batches against the d before."""
    seconds: float
    """What the stage took, 0 where nobody measured it."""


@dataclass(eq=False)
class Zones:
    """Keep the load W, processing time over batch interval, in a band below 1 with as few tasks as that takes.

    Zone 3 is `W > threshold`, zone 1 is `W <= threshold - step`, zone 2 is between. After `patience` batches in a row
    in zone 3 tasks are added, after as many in zone 1 tasks are removed. What is added follows what changed: rows of a
    batch drive map tasks (blocks), distinct keys drive reduce tasks (buckets), both drive both. Where neither changed,
    the slower stage gets tasks (both, where nobody measured the stages, as on Spark), and the faster one loses them
    (the one with more tasks). A stage at its bound leaves the change to the other.

    Parameters
    ----------
    threshold
        Load above which a batch is overloaded, `L_thres`.
    step
        Width of zone 2, `L_step`.
    patience
        Batches in a row that a zone must last, and batches after a change in which it is not reversed: d.
    increment
        `"unit"`, one task at a time; `"proportional"`, as many as would bring W to the threshold if the time of a stage
        went with one over its tasks.
    dead_band
        Relative change of rows or keys that counts as none.
    careful
        Whether a removal is left out that would take W over the threshold, if time went with one over the tasks. It
        keeps few tasks from swinging: from 2 to 1 the load may double.
    least_blocks, least_buckets
        Never fewer map or reduce tasks.
    most_blocks, most_buckets
        Never more; 0 for the slots that the engine has.
    interval
        Seconds that a batch may take; 0 for the interval of the query's trigger. With neither, nothing changes.

    Examples
    --------
    >>> policy = Zones(patience=2, most_blocks=8)
    >>> for batch, rows in enumerate([1000, 1300, 1500]):
    ...     action = policy.decide(BatchObservation(batch, rows, 50, 4, 2, rows / 1200, interval_seconds=1.0).at())
    >>> print(action.reason)
    W = 1.25, above 0.9 for 2 batches; rows +40 %: blocks 4 -> 5

    References
    ----------
    A. S. Abdelhamid, *Efficient Distributed Processing over Micro-batched Data Streams*, Purdue 2021, section 3.5 and
    Algorithm 4. The listing has no scale-in, never resets its counter when the load falls, and says nothing of a load
    that grows while rows and keys do not; the text has the first, and the rest is as above. With counters that are
    reset, a reversal needs d batches anyway, so the grace period is counted after the batch that ended it: a change is
    reversed d + 1 batches later at the earliest.
    """

    threshold: float = 0.9
    step: float = 0.1
    patience: int = 3
    increment: str = UNIT
    dead_band: float = 0.05
    careful: bool = True
    least_blocks: int = 1
    least_buckets: int = 1
    most_blocks: int = 0
    most_buckets: int = 0
    interval: float = 0.0

    name: ClassVar[str] = "zones"
    paper: ClassVar[str] = "Abdelhamid 2021, section 3.5"

    def __post_init__(self) -> None:
        self._check()
        self._above = self._below = 0
        self._grace = 0
        self._last: Direction | None = None
        self._seen: deque[tuple[float, float]] = deque(maxlen=2 * self.patience)  # rows and keys
        self._before_wish: tuple[int, int, int, Direction | None] | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """What an engine must show."""
        return ("batch",) if self.interval else ("batch.load",)

    def zone(self, load: float) -> int:
        """1 under-utilised, 2 stable, 3 overloaded.

        >>> [Zones().zone(load) for load in (0.8, 0.81, 0.9, 0.91)]
        [1, 2, 2, 3]
        """
        if load > self.threshold + ROUNDING:
            return 3
        return 1 if load <= self.threshold - self.step + ROUNDING else 2

    def decide(self, observation: Observation) -> Action:
        """Numbers of tasks for the next batch. Numbers outside the bounds are brought inside at once."""
        seen, self._before_wish = observation.batch, None
        assert seen is not None, "an engine that shows no batches is refused"
        blocks = _within(seen.blocks, *self._bounds(BLOCKS, seen.slots))
        buckets = _within(seen.buckets, *self._bounds(BUCKETS, seen.slots))
        interval = self.interval or seen.interval_seconds
        if interval <= 0:
            return Action({BLOCKS: blocks, BUCKETS: buckets}, "W is not known: the query has no interval")
        if not (isfinite(seen.processing_seconds) and seen.processing_seconds >= 0 and isfinite(interval)):
            return Action(reason=f"W is not known: the batch is said to have taken {seen.processing_seconds:g} s")
        load = seen.processing_seconds / interval
        self._count(load, seen)
        if (blocks, buckets) != (seen.blocks, seen.buckets):
            return Action({BLOCKS: blocks, BUCKETS: buckets}, "numbers of tasks brought within their bounds")
        direction = self._direction()
        return self._scaled(direction, load, seen) if direction else Action()

    def refused(self) -> None:
        """What was wanted is not done: the batches that asked for it still count."""
        if self._before_wish is not None:
            self._above, self._below, self._grace, self._last = self._before_wish

    def state(self) -> State:
        """Counters, and rows and keys of the last 2d batches."""
        last = _DIRECTIONS.index(self._last) if self._last else -1
        return {
            "counters": np.array([self._above, self._below, self._grace, last], dtype=np.int64),
            "seen": np.array(self._seen, dtype=np.float64).reshape(-1, 2),
        }

    def restore(self, state: State) -> None:
        """Go on as the policy that gave this state would."""
        above, below, grace, last = (int(value) for value in state["counters"])
        self._above, self._below, self._grace = above, below, grace
        self._last = _DIRECTIONS[last] if last >= 0 else None
        self._seen.clear()
        self._seen.extend((float(rows), float(keys)) for rows, keys in state["seen"])

    # -- when

    def _count(self, load: float, seen: BatchObservation) -> None:
        zone = self.zone(load)
        self._grace = max(0, self._grace - 1)
        self._above = self._above + 1 if zone == 3 else 0
        self._below = self._below + 1 if zone == 1 else 0
        self._seen.append((float(seen.rows), float(seen.keys)))

    def _direction(self) -> Direction | None:
        """What is due, if anything; a reversal waits until the grace period is over."""
        due: Direction | None = None
        if self._above >= self.patience:
            due = "out"
        elif self._below >= self.patience:
            due = "in"
        return None if self._grace > 0 and due != self._last else due

    # -- what

    def _scaled(self, direction: Direction, load: float, seen: BatchObservation) -> Action:
        stages = self._stages(seen)
        chosen, why = self._chosen(direction, stages)
        by = {stage.name: self._by(direction, stage, load) for stage in chosen}
        if direction == "in" and not why:  # nothing fell: one stage gives up tasks, the first that can
            first = next((name for name, tasks in by.items() if tasks), None)
            by = {first: by[first]} if first else {}
        changes = {stage.name: stage.tasks + by.get(stage.name, 0) for stage in stages}
        side = f"above {self.threshold:g}" if direction == "out" else f"at most {self.threshold - self.step:g}"
        reason = f"W = {load:.3g}, {side} for {self.patience} batch{'es' * (self.patience > 1)}"
        if not any(by.values()):
            return Action(reason=f"{reason}; no stage can change")
        self._before_wish = self._above, self._below, self._grace, self._last
        self._above = self._below = 0
        self._grace, self._last = self.patience + 1, direction  # d batches, and the one that ended
        moved = [f"{stage.name} {stage.tasks} -> {changes[stage.name]}" for stage in stages if by.get(stage.name)]
        return Action(changes, f"{reason}; {why or 'rows and keys as before'}: {', '.join(moved)}")

    def _stages(self, seen: BatchObservation) -> list[_Stage]:
        rows, keys = self._changes()
        return [
            _Stage(BLOCKS, seen.blocks, *self._bounds(BLOCKS, seen.slots), "rows", rows, seen.map_seconds),
            _Stage(BUCKETS, seen.buckets, *self._bounds(BUCKETS, seen.slots), "keys", keys, seen.reduce_seconds),
        ]

    def _changes(self) -> tuple[float, float]:
        """Relative change of rows and of keys: mean of the last d batches over that of the d before, less 1."""
        recent = np.array(self._seen, dtype=np.float64)
        if len(recent) <= self.patience:
            return 0.0, 0.0
        before, last = recent[: -self.patience].mean(axis=0), recent[-self.patience :].mean(axis=0)
        rows, keys = last / np.maximum(before, 1.0) - 1.0 * (before > 0)
        return float(rows), float(keys)

    def _chosen(self, direction: Direction, stages: list[_Stage]) -> tuple[list[_Stage], str]:
        """The stages to change, in order of preference, and what in the stream names them."""
        sign = 1 if direction == "out" else -1
        named = [stage for stage in stages if sign * stage.change > self.dead_band]
        free = [stage for stage in stages if (stage.tasks < stage.most if sign > 0 else stage.tasks > stage.least)]
        why = ", ".join(f"{stage.driver} {stage.change:+.0%}".replace("%", " %") for stage in named)
        if named:
            return [stage for stage in named if stage in free] or free, why
        measured = all(stage.seconds > 0 for stage in stages)
        if direction == "out":
            slower = sorted(free, key=lambda stage: -stage.seconds)
            return slower[:1] if measured else free, why
        return sorted(free, key=lambda stage: stage.seconds if measured else -stage.tasks), why

    def _by(self, direction: Direction, stage: _Stage, load: float) -> int:
        """How many tasks a stage gets more, or fewer where it is negative."""
        # ceil(p W / thres): tasks that would just be enough, if time went with one over the tasks
        enough = ceil(stage.tasks * load / self.threshold - ROUNDING)
        if direction == "out":
            added = enough - stage.tasks if self.increment == PROPORTIONAL else 1
            return min(max(1, added), stage.most - stage.tasks)
        fewest = max(stage.least, enough if self.careful else 1)
        removed = stage.tasks - max(1, enough) if self.increment == PROPORTIONAL else 1
        return -max(0, min(max(1, removed), stage.tasks - fewest))

    def _bounds(self, stage: str, slots: int) -> tuple[int, int]:
        blocks, buckets = (self.least_blocks, self.most_blocks), (self.least_buckets, self.most_buckets)
        least, most = blocks if stage == BLOCKS else buckets
        return least, most or max(least, slots or UNBOUNDED)

    def _check(self) -> None:
        rules = {
            "threshold": ("above 0", self.threshold > 0),
            "step": ("at least 0 and below threshold", 0 <= self.step < self.threshold),
            "patience": ("at least 1 batch", self.patience >= 1),
            "dead_band": ("at least 0", self.dead_band >= 0),
            "least_blocks": ("at least 1", self.least_blocks >= 1),
            "least_buckets": ("at least 1", self.least_buckets >= 1),
            "most_blocks": (
                "0, or at least least_blocks",
                self.most_blocks == 0 or self.most_blocks >= self.least_blocks,
            ),
            "most_buckets": (
                "0, or at least least_buckets",
                self.most_buckets == 0 or self.most_buckets >= self.least_buckets,
            ),
            "interval": ("0, or seconds above 0", 0 <= self.interval < float("inf")),
        }
        for parameter, (rule, holds) in rules.items():
            if not holds:
                raise OptionError(f"{parameter} of zones must be {rule}, got {getattr(self, parameter)!r}")
        if self.increment not in INCREMENTS:
            raise OptionError.unknown("increment of zones", self.increment, INCREMENTS)


def _within(tasks: int, least: int, most: int) -> int:
    return min(max(tasks, least), most)
