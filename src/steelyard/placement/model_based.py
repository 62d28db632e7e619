"""Placement by predicted times: the model of Li 2018, chapter 2, and the search that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.placing import Setup
from steelyard.placement.predicting import Predicting, Times, dealt_as


@dataclass
class ModelBased(Predicting):
    """Predict what a tuple takes under other placements, and move each thread once to where it helps most.

    Latencies of threads and of pairs of them are learnt by support vector regression from records of single tuples,
    under placements drawn at random (`train`); a graph's time is the sum along its slowest path. Algorithm 1 begins
    with round robin and goes through all threads once: each moves to the machine with the lowest predicted time, if
    that is lower than where it is. It never gives a placement with a predicted time above that of its start.

    Deviations: several applications have the sum of their times as objective, the document has one application; nothing
    is moved where the present placement has the lowest predicted time already.

    Parameters
    ----------
    schedules, dwell
        Placements that it is trained on, and seconds that each is recorded; the document gives 20 minutes in all.
    settle
        Seconds from a deployment until recording begins: what was just deployed is slower for some minutes.
    tuples
        Source tuples per second that are followed, all applications together; 0 follows all.
    kernel
        Of the regression: the document found `rbf` best.
    pooled
        One regression for all components and one for all streams; otherwise each has its own.
    diversified
        Draw placements on few machines as well as on many; otherwise every machine is as likely for every thread.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.core.measured import Reading
    >>> from steelyard.core.placing import Component, Host, Stream
    >>> parts = Component("spout", 1, source=True), Component("query", 3)
    >>> setup = Setup(parts, (Stream("spout", "query"),), 2 * (Host(),))
    >>> none = np.zeros(1)
    >>> ModelBased().place(setup, Reading(0.0, 1.0, setup.round_robin(), none, none, none, np.zeros(4))).reason
    'model_based is not trained: it has no records to predict from'
    """

    name: ClassVar[str] = "model_based"
    paper: ClassVar[str] = "Li 2018, chapter 2, Algorithm 1"

    def search(self, setup: Setup, times: Times, present: Ints) -> Ints:
        """Algorithm 1."""
        return one_pass(setup, times, dealt_as(setup, present))


def one_pass(setup: Setup, times: Times, start: Ints) -> Ints:
    """Algorithm 1 of Li 2018: each thread in turn to the machine that a strictly lower time is predicted for.

    Machines are tried in turn, and each that is better than the best so far replaces it: the thread ends on the first
    of those with the lowest time. So all machines are asked about at once.
    """
    found = start.copy()
    lowest = float(times(found[None])[0])
    machines = np.arange(setup.machines)
    for thread in np.flatnonzero(found >= 0).tolist():
        tried = np.repeat(found[None], setup.machines, axis=0)
        tried[:, thread] = machines
        allowed = setup.feasible(tried) & (machines != found[thread])
        if not allowed.any():
            continue
        times_of = np.full(setup.machines, np.inf)
        times_of[allowed] = times(tried[allowed])
        best = int(times_of.argmin())
        if times_of[best] < lowest:
            found[thread], lowest = best, float(times_of[best])
    return found
