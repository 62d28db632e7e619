"""Groupings where rows come in batches: what is learnt of one batch decides for the next.

Tasks that read a batch are schedulers, one for each source partition; tasks that execute its blocks are instances. A
block is no machine that might be slower than others, and every batch begins with empty blocks, so nothing has a clock,
requests find nobody to answer them, and each scheduler calls another block its first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.core import OptionError, Placer, Routed, State
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.core.policies import Learner, Router
from steelyard.grouping.protocol import (
    Grouping,
    Instance,
    Matrices,
    Scheduler,
    item_column,
    learns,
    require_item_column,
    require_knowable,
)
from steelyard.grouping.registry import grouping
from steelyard.grouping.rules import NEVER

if TYPE_CHECKING:
    from steelyard.grouping.osg import OSG

KEPT = 0.8
"""Share of what is known that stays with every batch, so that costs may change."""
_INSTANCE, _REPORT, _BLOCKS, _FIRST = "instance/", "report", "blocks", "first block"


def in_batches(named: str | Grouping) -> Placer:
    """What stands for a grouping where rows come in batches; OptionError where it must be told what no engine knows.

    >>> in_batches("osg?cost_of=customer").cost_of
    'customer'
    """
    policy = grouping(named)
    require_knowable(policy)
    require_item_column(policy, "partition_by")
    made: Placer = policy.in_batches() if hasattr(policy, "in_batches") else GroupedBatches(policy)
    return made


class ScheduledRows:
    """A scheduler in place of a router. Blocks are numbered from `first` on, round and round."""

    def __init__(self, scheduler: Scheduler, first: int) -> None:
        self.scheduler, self._first = scheduler, first
        self.blocks = scheduler.instances

    def route(self, keys: Ints, times: Ints) -> Routed:
        """Blocks for rows whose items these are. A batch has no clock: its rows come at time 0."""
        chosen = self.scheduler.choose(keys, times=np.zeros(len(keys))).to
        return Routed(((chosen + self._first) % self.blocks).astype(np.int32), np.ones(len(keys), np.bool_))

    def state(self) -> State:
        """The scheduler's, and what it calls blocks: another source partition may go on from it."""
        return {**self.scheduler.state(), _FIRST: np.array(self._first)}

    def restore(self, state: State) -> None:
        """Go on as the scheduler that gave this state would, which calls each block as that one did."""
        self._first = int(state[_FIRST])
        self.scheduler.restore({name: array for name, array in state.items() if name != _FIRST})

    def feedback(self, reports: Sequence[Matrices]) -> None:
        """What blocks reported, under the numbers that the scheduler has for them."""
        self.scheduler.feedback([replace(one, sender=(one.sender - self._first) % self.blocks) for one in reports])


@dataclass(eq=False)
class GroupedBatches:
    """Any grouping: its schedulers and instances go on from batch to batch, and reports come between two.

    Parameters
    ----------
    policy
        The grouping.

    Examples
    --------
    >>> from steelyard.grouping import RoundRobin
    >>> GroupedBatches(RoundRobin()).router(blocks=3, partitioner=1).route(np.zeros(4, np.int64), np.zeros(4)).block
    array([1, 2, 0, 1], dtype=int32)
    """

    policy: Grouping
    _instances: dict[int, State] = field(default_factory=dict, init=False, repr=False)
    _reports: list[Matrices] = field(default_factory=list, init=False, repr=False)
    _blocks: int = field(default=0, init=False, repr=False)
    """How many there were when both were learnt: with another number all begin anew."""

    @property
    def name(self) -> str:
        """The grouping's."""
        return self.policy.name

    @property
    def cost_of(self) -> str:
        """The grouping's column."""
        return item_column(self.policy)

    @property
    def learns(self) -> bool:
        """Whether its instances are told what rows cost."""
        return learns(self.policy)

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        """A scheduler of its own."""
        return ScheduledRows(self.policy.scheduler(blocks), partitioner % blocks)

    def learner(self, blocks: int, block: int) -> Learner:
        """An instance, with what the one of this block had learnt."""
        instance = self.policy.instance(blocks, block)
        if blocks == self._blocks and block in self._instances:
            instance.restore(self._instances[block])
        return _Reporting(instance, blocks)

    def learn(self, found: Mapping[int, State]) -> None:
        """Keep what instances know, and what they report until schedulers are told."""
        for block, state in found.items():
            if self._blocks != (blocks := int(state[_BLOCKS])):
                self._blocks, self._instances, self._reports = blocks, {}, []
            self._instances[block] = _within(_INSTANCE, state)
            number = 0
            while (cells := state.get(f"{_REPORT} {number} cells")) is not None:
                self._reports.append(Matrices(block, cells, *state[f"{_REPORT} {number} totals"].tolist()))
                number += 1

    def synchronise(self, states: Mapping[int, State], blocks: int) -> Mapping[int, State]:
        """Schedulers, with what was reported to them since the last time."""
        reports, self._reports = self._reports if blocks == self._blocks else [], []
        told: dict[int, State] = {}
        for number, state in states.items():
            router = ScheduledRows(self.policy.scheduler(blocks), number % blocks)
            router.restore(state)
            router.feedback(reports)
            told[number] = router.state()
        return told

    def state(self) -> State:
        """What instances know; schedulers have states of their own."""
        known = {f"{block}/{name}": array for block, one in self._instances.items() for name, array in one.items()}
        return {**known, _BLOCKS: np.array(self._blocks)}

    def restore(self, state: State) -> None:
        """Go on from it."""
        numbers = {name.partition("/")[0] for name in state if name != _BLOCKS}
        self._instances = {int(block): _within(f"{block}/", state) for block in numbers}
        self._blocks = int(state[_BLOCKS])


class _Reporting:
    """An instance whose reports are kept for the driver. Its clock is the work that the batch has brought it."""

    def __init__(self, instance: Instance, blocks: int) -> None:
        self._instance, self._blocks, self._now = instance, blocks, 0.0
        self._reports: list[Matrices] = []

    def executed(self, items: Ints, seconds: Floats) -> None:
        ended = self._now + np.cumsum(seconds)
        self._now = float(ended[-1]) if len(ended) else self._now
        found = self._instance.executed(items, seconds, ended)
        self._reports += [one for one in found if isinstance(one, Matrices)]

    def state(self) -> State:
        arrays = {f"{_INSTANCE}{name}": array for name, array in self._instance.state().items()}
        arrays[_BLOCKS] = np.array(self._blocks)
        for number, one in enumerate(self._reports):
            arrays[f"{_REPORT} {number} cells"] = one.cells
            arrays[f"{_REPORT} {number} totals"] = np.array([one.tuples, one.time])
        return arrays


@dataclass(eq=False)
class SketchedBatches:
    """OSG: all blocks share one pair of matrices, which the driver adds up and slowly forgets.

    Parameters
    ----------
    policy
        Its sketch; windows and clocks have no meaning in batches.
    name
        How it is called in reports.
    """

    policy: OSG
    name: str = "osg"
    cells: Floats = field(init=False, repr=False)
    totals: Floats = field(init=False, repr=False)
    """Tuples, and the time that they took."""

    def __post_init__(self) -> None:
        self.cells, self.totals = np.zeros((*self.policy.sketch_shape, 2)), np.zeros(2)

    @property
    def cost_of(self) -> str:
        """The grouping's column."""
        return self.policy.cost_of

    @property
    def learns(self) -> bool:
        """Always."""
        return True

    @property
    def _endless(self) -> OSG:
        return replace(self.policy, window=NEVER, resync=0)

    def router(self, blocks: int, partitioner: int = 0) -> Router:
        """A scheduler that knows the matrices, and has given no block anything yet."""
        scheduler = self._endless.scheduler(blocks)
        count, spent = self.totals.tolist()
        if spent > 0.0:
            scheduler.feedback([Matrices(block, self.cells, count, spent) for block in range(blocks)])
        return _Fresh(scheduler, partitioner % blocks)

    def learner(self, blocks: int, block: int) -> Learner:
        """One that counts what items take."""
        return _Counting(self._endless.instance(1, 0))

    def learn(self, found: Mapping[int, State]) -> None:
        """Add up what all blocks have counted."""
        if found:
            self.cells = KEPT * self.cells + sum(one["cells"] for one in found.values())
            self.totals = KEPT * self.totals + sum(one["totals"] for one in found.values())

    def state(self) -> State:
        """What is known."""
        return {"cells": self.cells, "totals": self.totals}

    def restore(self, state: State) -> None:
        """Go on from it."""
        if state["cells"].shape != self.cells.shape:
            raise OptionError(f"costs in {state['cells'].shape} cells, and here are {self.cells.shape}")
        self.cells, self.totals = np.array(state["cells"]), np.array(state["totals"])


class _Fresh(ScheduledRows):
    """One that begins every batch anew: its blocks are empty again."""

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class _Counting:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def executed(self, items: Ints, seconds: Floats) -> None:
        self._instance.executed(items, seconds, np.zeros(len(items)))

    def state(self) -> State:
        state: Mapping[str, Any] = self._instance.state()
        return {"cells": state["cells"][0], "totals": state["totals"][0]}


def _within(prefix: str, state: State) -> State:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
