"""From latencies of threads and pairs to the time of a tuple, along the paths of an application's graph.

Li 2018, section 2.2.2: t_i^PU = t_i^Proc + t_i^Tran (2.1), both of them means with the weights of the last ten minutes
(2.2 and 2.3); a path's time is their sum over its components (2.4), the tuple's that of the slowest path (2.5). What a
source does and the way of the ack are in none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from steelyard.core.placing import Setup
from steelyard.core.plans import Floats


def path_times(setup: Setup, processing: Mapping[int, Floats], transfer: Mapping[int, Floats]) -> list[Floats]:
    """Eq 2.4 for each path of each application, in the order of `Setup.paths`.

    Parameters
    ----------
    setup
        Applications.
    processing
        By number of a component: float64[placements], t_i^Proc.
    transfer
        By number of a stream: float64[placements], t_i^Tran.
    """
    number = {(int(sender), int(receiver)): at for at, (sender, receiver) in enumerate(setup.links)}
    found: list[Floats] = []
    for application in range(len(setup.applications)):
        for path in setup.paths(application):
            steps = [processing[to] + transfer[number[came, to]] for came, to in pairwise(path)]
            found.append(np.sum(steps, axis=0) if steps else np.zeros(1))
    return found


def tuple_times(setup: Setup, processing: Mapping[int, Floats], transfer: Mapping[int, Floats]) -> Floats:
    """Eq 2.5: float64[placements, applications], the times of the slowest paths.

    It goes through the graph once, in the order of its components, so that the number of paths does not matter.
    """
    reached: dict[int, Floats] = {at: np.zeros(1) for at, one in enumerate(setup.operators) if one.source}
    sends = set(setup.links[:, 0].tolist())
    for receiver in range(len(setup.operators)):
        for edge in np.flatnonzero(setup.links[:, 1] == receiver).tolist():
            sender = int(setup.links[edge, 0])
            time = reached[sender] + processing[receiver] + transfer[edge]
            reached[receiver] = np.maximum(reached[receiver], time) if receiver in reached else time
    slowest: list[Floats] = [np.zeros(1)] * len(setup.applications)
    for at in sorted(set(reached) - sends):
        application = int(setup.application_of[at])
        slowest[application] = np.maximum(slowest[application], reached[at])
    return np.stack(np.broadcast_arrays(*slowest), axis=-1)
