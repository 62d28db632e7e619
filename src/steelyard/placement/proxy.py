"""A guess at tuple times from the graph alone, where nothing of an application was measured yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.placing import Setup
from steelyard.core.plans import Floats

LOCAL, REMOTE = 0.1e-3, 0.4e-3
"""Seconds of a hop inside a machine, and between two."""
WORK, BUSY = 0.3e-3, 0.1
"""Seconds of a tuple in a component, and the load of the cluster, were all components spread evenly."""
_FULL = 0.95


@dataclass(frozen=True)
class Proxy:
    """Hops between machines cost more than those inside, and crowded machines are slow: nothing else.

    Every component is thought to have the same work in all, and every stream the same tuples. That ranks placements
    roughly, which is enough to begin with.

    Parameters
    ----------
    setup
        Applications and machines.

    Examples
    --------
    >>> from steelyard.core.placing import Component, Host, Stream
    >>> setup = Setup((Component("log", 1, source=True), Component("map", 1)), (Stream("log", "map"),), 2 * (Host(),))
    >>> together, apart = Proxy(setup).times(np.array([[0, 0], [0, 1]]))[:, 0]
    >>> bool(together < apart)
    True
    """

    setup: Setup

    def times(self, assignments: Ints) -> Floats:
        """float64[B, applications]: seconds, for int64[B, threads]."""
        setup = self.setup
        counts = setup.counts(np.asarray(assignments)).astype(np.float64)
        share = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1.0)
        cores = np.array([host.cores for host in setup.hosts])
        load = share.sum(axis=1) / len(setup.operators) * cores.sum() / cores * BUSY
        slower = np.where(load < _FULL, 1 / (1 - np.minimum(load, _FULL)), (1 + load - _FULL) / (1 - _FULL))
        application = setup.application_of
        found = np.zeros((len(counts), len(setup.applications)))
        work = WORK * (share * slower[:, None, :]).sum(axis=2)
        for number in range(len(setup.operators)):
            found[:, application[number]] += work[:, number]
        for sender, receiver in setup.links.tolist():
            together = (share[:, sender] * share[:, receiver]).sum(axis=1)
            found[:, application[sender]] += LOCAL * together + REMOTE * (1 - together)
        return found
