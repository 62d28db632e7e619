"""The micro-batch model of the experiments on Dalton (Zapridou et al. 2022, section 3.4)."""

from __future__ import annotations

import time

import numpy as np

from steelyard.bench.dalton.policies import DALTON, RIVALS, contenders
from steelyard.bench.dalton.stage_model import MICRO, OperatorCosts, Plan, Stages, micro_batch_us
from steelyard.bench.dalton.streams import WINDOW
from steelyard.core.counts import Ints
from steelyard.core.policies import Router
from steelyard.partition.adapters import RoutedByPlan
from steelyard.partition.dalton import Dalton
from steelyard.partition.prompt import Prompt

BATCH = 3_000
"""Rows of a batch: three sources of 1,000 in the authors' program."""
BATCH_POLICIES = (*RIVALS, "prompt", DALTON)
LEADERS = {
    "prompt": "it counts a batch before it cuts it, so that blocks are even and hardly a key is in two of them, while "
    "the others decide row by row"
}
"""Why a policy leads in micro-batches, where one does that others are measured against."""


def batch_router(name: str, blocks: int, seed: int) -> Router:
    """A policy whose times are batch numbers. Windows are as long as in the tuple model; Dalton's cap is n."""
    batches = WINDOW // BATCH
    if name == "prompt":
        return RoutedByPlan(Prompt()).router(blocks)
    if name == DALTON:
        return Dalton.of_batches(window=batches, seed=seed).router(blocks)
    return contenders([name], batches, 1)[name].router(blocks, seed=seed)


def batch_stages(name: str, keys: Ints, plan: Plan, cost: OperatorCosts, seed: int) -> list[Stages]:
    """Route a stream in batches; for each batch the time of partitioning, measured, and of the other two stages."""
    router = batch_router(name, plan.combiners, seed)
    found = []
    for number in range(len(keys) // BATCH):
        batch = keys[number * BATCH : (number + 1) * BATCH]
        clock = time.thread_time_ns()
        block = router.route(batch, np.full(BATCH, number, np.int64)).block
        taken = (time.thread_time_ns() - clock) / 1e3
        found.append(micro_batch_us(batch, block, plan, cost, taken))
    return found


def batch_rate(stages: Stages) -> float:
    """Rows per second where partitioning, combining and reducing a batch follow each other.

    >>> round(batch_rate(Stages(1000.0, 4000.0, 1000.0)))
    500000
    """
    return BATCH / (sum(stages) / MICRO)
