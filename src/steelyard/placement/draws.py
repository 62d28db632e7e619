"""Placements drawn at random: for training, and to compare models of a cluster."""

from __future__ import annotations

import numpy as np

from steelyard.core.counts import Ints
from steelyard.core.placing import NOWHERE, Setup

ALPHAS = (10**-1.5, 10.0)
"""Between which the concentration of drawn machine weights lies: from nearly one machine to nearly all alike."""


def drawn(
    setup: Setup,
    count: int,
    seed: int,
    *,
    diversified: bool = True,
    vary: bool = False,
    by_component: bool = False,
) -> Ints:
    """int64[count, threads]: random assignments.

    Parameters
    ----------
    setup
        Applications and machines.
    count
        How many.
    seed
        For two that are the same.
    diversified
        Each draw has weights of machines of its own (Dirichlet with alpha, whose logarithm is uniform), so that some
        use few machines and some all. Otherwise every machine is as likely for every thread, the literal reading of
        "random actions": with many threads such draws are nearly all alike.
    vary
        Draw the numbers of threads too, from 1 to as many as there may be; otherwise as many as at the start run.
    by_component
        Draw weights for each component, not for all threads together.

    Examples
    --------
    >>> from steelyard.core.placing import Component, Host
    >>> drawn(Setup((Component("log", 3, source=True),), (), 2 * (Host(),)), 2, seed=1).shape
    (2, 3)
    """
    rng = np.random.default_rng(seed)
    components, machines = len(setup.operators), setup.machines
    found = np.full((count, setup.threads), NOWHERE, dtype=np.int64)
    start = np.array([one.parallelism for one in setup.operators])
    for row in found:
        weights = np.full((components, machines), 1.0 / machines)
        if diversified:
            alpha = 10 ** rng.uniform(*np.log10(ALPHAS))
            groups = components if by_component else 1
            drawn_weights = rng.dirichlet(np.full(machines, alpha), size=groups)
            weights[:] = drawn_weights
        running = rng.integers(1, setup.most + 1) if vary else start
        for number in range(components):
            first, threads = int(setup.first[number]), int(running[number])
            row[first : first + threads] = rng.choice(machines, size=threads, p=weights[number])
    return found
