"""Placed clusters beside the simulator of scenarios, which is another program: the same chain takes the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steelyard.core.placing import Host
from steelyard.sim import Edge, Exponential, Machine, Network, Operator, Scenario, Source, simulate
from steelyard.sim.placed import Application, Deployed, ExactCluster, FastCluster, Flow, Unit
from tests.sim.test_placed import NOTHING

LOCAL, REMOTE, SERIALISE = 0.0002, 0.0006, 0.0001
THREADS, SECONDS = (2, 6, 4), (0.0, 0.002, 0.0008)
PLACES = {"in turn": [0, 1, 2] * 4, "two machines": [0, 1] * 6, "apart": [0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("rate", [300.0, 600.0])
def test_the_same_chain_takes_the_same_time(places, rate):
    at = np.array(PLACES[places])
    parts = np.split(at, np.cumsum(THREADS)[:-1])
    scenario = Scenario(
        (
            Source("a", rate=rate, parallelism=2, arrivals="poisson", machines=tuple(parts[0].tolist())),
            Operator("b", Exponential(SECONDS[1]), parallelism=6, machines=tuple(parts[1].tolist())),
            Operator("c", Exponential(SECONDS[2]), parallelism=4, machines=tuple(parts[2].tolist())),
        ),
        (Edge("a", "b", "round_robin"), Edge("b", "c", "round_robin")),
        3 * (Machine(cores=2),),
        Network(latency=REMOTE, local_latency=LOCAL, serialise=SERIALISE),
    )
    result = simulate(scenario, 120.0, seed=3)
    theirs = result.latency(after=5).mean

    application = Application(
        tuple(Unit(name, n, s, 1.0, source=name == "a") for name, n, s in zip("abc", THREADS, SECONDS, strict=True)),
        (Flow("a", "b"), Flow("b", "c")),
        rate,
    )
    costs = replace(NOTHING, local=LOCAL, remote=REMOTE, serialise=SERIALISE)
    of = Deployed((("one", application),), 3 * (Host(cores=2),), costs)
    cluster = ExactCluster(of, at, seed=4, warm=True, noise=False)
    cluster.run(5.0)
    before, since = cluster.used_cores, cluster.now
    ours = float(cluster.measure(120.0).times[0])

    # ours ends at the source, which hears of it a hop later
    same = np.mean([[a == c for a in parts[0]] for c in parts[2]])
    ours -= same * LOCAL + (1 - same) * REMOTE
    assert ours == pytest.approx(theirs, rel=0.04)
    by_formulas = FastCluster(of).times(at[None])[0, 0] - (same * LOCAL + (1 - same) * REMOTE)
    # few senders that deal in turn send more evenly than formulas have it, so that waits are shorter
    assert theirs * 0.97 < by_formulas < theirs * (1.1 if rate == 300.0 else 1.25)
    used = (cluster.used_cores - before) / (cluster.now - since)
    assert used.sum() == pytest.approx(rate * (sum(SECONDS) + serialised(parts)), rel=0.03)


def serialised(parts) -> float:
    """Processor seconds of a tuple for hops between machines, at both ends."""
    found = 0.0
    for sender, receiver in ((parts[0], parts[1]), (parts[1], parts[2])):
        found += 2 * SERIALISE * np.mean([[one != other for one in sender] for other in receiver])
    return found
