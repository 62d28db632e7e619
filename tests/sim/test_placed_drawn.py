"""Whatever the topology, its groupings, costs and deployments: no tuple is lost, and none is done twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.placing import GROUPINGS, Host
from steelyard.kernels.event_heap import check
from steelyard.placement.draws import drawn
from steelyard.sim.placed import Application, ClusterCosts, Deployed, ExactCluster, FastCluster, Flow, Unit
from tests.sim.test_placed import emptied


def application(draw: np.random.Generator) -> Application:
    """One or two sources, and up to four components, each fed by one or two of those before."""
    sources, more = int(draw.integers(1, 3)), int(draw.integers(1, 5))
    units = [
        Unit(f"u{at}", int(draw.integers(1, 5)), float(draw.choice([0.0, 0.0005])), float(draw.choice([0.0, 0.5, 1.0])),
             source=at < sources)
        for at in range(sources + more)
    ]  # fmt: skip
    flows = [
        Flow(f"u{sender}", f"u{at}", str(draw.choice(GROUPINGS)), float(draw.choice([0.3, 1.0, 2.5])))
        for at in range(sources, sources + more)
        for sender in sorted(draw.choice(at, size=min(at, int(draw.integers(1, 3))), replace=False).tolist())
    ]
    return Application(tuple(units), tuple(flows), float(draw.uniform(20, 100)), keys=tuple(draw.uniform(0.1, 1, 9)))


def cluster_of(draw: np.random.Generator, seed: int) -> ExactCluster:
    names = [f"a{number}" for number in range(int(draw.integers(1, 4)))]
    small = [0.0, 0.0003]
    costs = ClusterCosts(
        local=float(draw.choice(small)), process=0.0002, remote=float(draw.choice(small)), per_worker=0.0001,
        per_thread=0.00001, serialise=0.00001, thread_cpu=0.01, crowding=0.5, cold=float(draw.choice([0.0, 1.0])),
        warm=120.0, processes=int(draw.integers(1, 3)),
    )  # fmt: skip
    hosts = tuple(Host(cores=float(draw.choice([1.0, 4.0]))) for _ in range(int(draw.integers(1, 5))))
    return ExactCluster(Deployed(tuple((one, application(draw)) for one in names), hosts, costs), seed=seed)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32))
def test_every_source_tuple_is_done_once_whatever_is_deployed_meanwhile(seed):
    draw = np.random.default_rng(seed)
    cluster = cluster_of(draw, seed % 1000)
    cluster.record(0.5)
    for assignment in drawn(cluster.setup, 4, seed % 997, vary=True):
        before = cluster.assignment
        moved = cluster.setup.moved(before, assignment)
        assert cluster.deploy(assignment) == moved
        cluster.run(float(draw.uniform(0.01, 0.6)))
        check(cluster._state.heap)
    emptied(cluster)
    done, _, came = cluster._state.acked
    assert (done == came).all()
    state = cluster._state
    assert state.counters[1] == len(state.pool)
    assert state.counters[3] == len(state.roots)
    assert (state.machines["active"] == 0).all()
    records = cluster.records()
    assert len(np.unique(records.ack["root_id"])) == len(records.ack)
    assert len(np.unique(records.process["tuple_id"])) == len(records.process) == len(records.transfer)
    assert set(records.process["root_id"]) <= set(records.ack["root_id"])
    assert (records.ack["acked"] >= records.ack["emitted"]).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32))
def test_formulas_are_finite_and_do_not_depend_on_what_else_is_asked(seed):
    draw = np.random.default_rng(seed)
    of = cluster_of(draw, 0).deployed
    if of.costs.processes > 1:
        return
    cluster = FastCluster(of)
    many = drawn(cluster.setup, 6, seed % 997, vary=True)
    together = cluster.times(many)
    assert np.isfinite(together).all()
    assert (together >= 0).all()
    for one, times in zip(many, together, strict=True):
        assert (cluster.times(one[None])[0] == times).all()
