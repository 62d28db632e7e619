"""Rewards of run time in training: what tasks would take for the plans that an agent makes.

Abdelhamid 2021, section 4.6: the variance of task times takes the place of the cost model, in the range of its costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from steelyard.core import BlockPlan, KeyCounts, OptionError
from steelyard.core.counts import Ints
from steelyard.core.plans import Floats
from steelyard.partition.learned import transition
from steelyard.partition.learned.actions import LATER, level
from steelyard.partition.learned.options import Training
from steelyard.partition.learned.rewards import RunningAverage, RunTimeCost, larger_variance
from steelyard.partition.learned.transition import Batches

Times = Callable[[BlockPlan], tuple[Floats, Floats]]
"""Seconds of each map task and of each reduce task of a plan, such as `sim.task_times.PlanTimes` gives them."""


class RunTimeRewards:
    """What an agent is rewarded with once run time is what counts.

    Parameters
    ----------
    options
        Of the training.
    times
        What tasks take.
    """

    def __init__(self, options: Training, times: Times | None) -> None:
        if times is None:
            raise OptionError(
                "training by run time needs to know what tasks take: give times, such as sim.task_times.PlanTimes"
            )
        self._options, self._times = options, times
        self._scale = RunTimeCost(np.inf, -np.inf)
        self._average = RunningAverage(options.average) if options.average != "none" else None
        self.variances: list[float] = []
        """Mean of each update by run time, in squared seconds."""

    def saw(self, costs: Floats) -> None:
        """Costs of the model, in whose range those of run time will be."""
        self._scale.low = min(self._scale.low, float(costs.min()))
        self._scale.high = max(self._scale.high, float(costs.max()))

    def of(self, batches: Batches, actions: Ints, done: Any, alive: Any) -> tuple[Any, Floats]:
        """Rewards float32[steps, batches] of all steps of episodes, and the costs of those that ended.

        Parameters
        ----------
        batches, actions
            What was decided: int[steps, batches], block times kinds plus kind.
        done
            bool[batches]: which episodes ended.
        alive
            bool[steps, batches]: at which steps they had not ended yet.
        """
        rewards = np.zeros(alive.shape, np.float32)
        ended = np.flatnonzero(done)
        if not len(ended):
            return rewards, np.zeros(0)
        plans = plans_of(self._options, batches, actions)
        variances = np.array([larger_variance(*self._times(plans[at])) for at in ended])
        self.variances.append(float(variances.mean()))
        costs = self._scale.rescaled(variances)
        gained = [-float(one) for one in costs]
        if self._average is not None:
            gained = [self._average.of(one) for one in gained]
        rewards[alive.sum(axis=0)[ended] - 1, ended] = gained
        return rewards, costs

    def state(self) -> dict[str, Any]:
        """What the next update depends on."""
        mean = np.nan if self._average is None or self._average.mean is None else self._average.mean
        scale = self._scale
        return {
            "run_time": np.array([scale.low, scale.high, scale.least, scale.most, mean]),
            "variances": np.array(self.variances),
        }

    def restore(self, state: Any) -> None:
        """Go on from it."""
        *bounds, mean = state["run_time"].tolist()
        self._scale = RunTimeCost(*bounds)
        if self._average is not None:
            self._average.mean = None if np.isnan(mean) else mean
        self.variances = state["variances"].tolist()


def plans_of(options: Training, batches: Batches, actions: Ints) -> list[BlockPlan]:
    """The plan of each batch, from all decisions int[steps, batches]; every batch has keys of its own."""
    kinds = level(options.actions)
    state = transition.begin(batches, options.blocks, put_off=options.put_off)
    every, width = np.arange(len(batches.rows)), batches.rows.shape[1]
    placed = np.zeros((len(every), width, options.blocks), np.int64)
    for flat in actions:
        block, kind = np.divmod(flat, kinds.kinds)
        put = transition.amounts(kinds, batches, state, block, kind)
        placed[every, state.index] += put
        state = transition.advance(batches, state, put, kinds.modes[kind] == LATER)
    plans = []
    for number in every.tolist():
        keys = int(batches.keys[number])
        counts = KeyCounts(pa.array(number * width + np.arange(keys)), batches.rows[number, :keys])
        key, block = np.nonzero(placed[number])
        rows = placed[number, key, block]
        plans.append(BlockPlan.of(counts, int(batches.blocks[number]), key=key, block=block, rows=rows))
    return plans
