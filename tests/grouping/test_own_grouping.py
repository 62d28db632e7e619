"""A grouping written against the protocol runs on every engine that needs no Spark; tests/spark has the others."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.core import OptionError
from steelyard.core.topology import Instance, Placement
from steelyard.grouping import Grouping, Scheduler, grouping
from steelyard.grouping import Instance as Executing
from steelyard.grouping.batches import in_batches
from steelyard.resident import Flow, Memory, Rows, Settings, run
from steelyard.resident.reports import bytes_arrays
from steelyard.resident.snapshot import SnapshotStore
from steelyard.sim import Checkpoints, Edge, Failure, Network, Operator, PerItem, Scenario, Simulation, Source, simulate
from steelyard.sim.fluid import FluidSimulation
from steelyard.sim.plain_groupings import PlainGroupings
from tests.grouping.own import Alike, Astray, LeastWork


def test_it_follows_the_protocols_and_the_registry_takes_it():
    policy = LeastWork()
    assert isinstance(policy, Grouping)
    assert isinstance(policy.scheduler(3), Scheduler)
    assert isinstance(policy.instance(3, 0), Executing)
    assert grouping(policy) is policy
    with pytest.raises(OptionError, match="a name or an object with"):
        grouping(LeastWork)


def slept(batch):
    time.sleep(0.0002 * batch.num_rows)
    return batch


@pytest.mark.parametrize("policy", [LeastWork(), Alike()], ids=lambda one: one.name)
@pytest.mark.parametrize("workers", [1, 2])
def test_on_resident_workers_no_row_is_lost_and_costs_are_heard(policy, workers, tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.resident.costs._TOGETHER", 1)
    rows = pa.table({"key": [n % 7 for n in range(900)], "n": np.arange(900)})
    flow = Flow()
    read = flow.source(Rows(rows, pieces=2), batch_rows=10, parallelism=2, name="read")
    read.shuffle(policy).map(slept, parallelism=3).sink(Memory(), name="out")
    dataflow = flow.dataflow()
    how = Settings(store=str(tmp_path), interval=0.05)
    results = run(dataflow, placement=Placement.spread(dataflow, workers), settings=how)
    assert sorted(results.table("out")["n"].to_pylist()) == list(range(900))
    store = SnapshotStore(tmp_path)
    states = [store.read(store.latest(), Instance("read", number)) for number in range(2)]
    assert all(bytes_arrays(state["edge 0"])["heard"] > 0 for state in states)


def test_one_that_sends_rows_astray_is_named():
    flow = Flow()
    rows = Rows(pa.table({"n": np.arange(50)}))
    flow.source(rows).shuffle(Astray()).map(slept, parallelism=2).sink(Memory(), name="out")
    with pytest.raises(Exception, match=r"grouping astray of edge source -> map sent rows to blocks 0 to 2"):
        run(flow.dataflow(), settings=Settings(restarts=0))
    with pytest.raises(ValueError, match="'astray' sent rows to blocks 2 to 2, and there are 2"):
        simulate(scenario(Astray(), instances=2), 10.0)


def test_in_batches_a_scheduler_goes_on_from_the_state_of_another_under_the_same_numbers_of_blocks():
    policy = in_batches(LeastWork())
    first = policy.router(3, 0)
    policy.learn({0: reported(policy, 3, 0, 100.0)})
    told = policy.synchronise({0: first.state()}, 3)[0]
    for partition in range(3):
        router = policy.router(3, partition)
        router.restore(told)
        sent = np.bincount(router.route(np.zeros(99, np.int64), np.zeros(99, np.int64)).block, minlength=3)
        assert sent.argmin() == 0, partition


def reported(policy, blocks, block, seconds, rows=4):
    learner = policy.learner(blocks, block)
    learner.executed(np.zeros(rows, np.int64), np.full(rows, seconds))
    return learner.state()


def test_in_batches_with_another_number_of_blocks_instances_begin_anew():
    policy, again = in_batches(LeastWork()), in_batches(LeastWork())
    policy.learn({0: reported(policy, 3, 0, 1.0, rows=3)})  # one less than makes a report
    again.restore(policy.state())
    for one in (policy, again):
        assert one.learner(3, 0).state()["instance/fit"].tolist() == [3.0, 3.0]
        assert one.learner(4, 0).state()["instance/fit"].tolist() == [0.0, 0.0]
        one.learn({1: reported(one, 4, 1, 1.0, rows=3)})
        assert one.learner(4, 0).state()["instance/fit"].tolist() == [0.0, 0.0]
        assert one.learner(4, 1).state()["instance/fit"].tolist() == [3.0, 3.0]


def scenario(policy, rows=1500, instances=4, network=None):
    return Scenario(
        (
            Source("log", 200, parallelism=2, keys=list(range(9)), rows=rows),
            Operator(
                "work",
                PerItem(np.linspace(0.001, 0.03, 9)),
                parallelism=instances,
                slowdown=(3.0,) + (1.0,) * (instances - 1),
            ),
        ),
        (Edge("log", "work", policy),),
        network=network or Network(latency=0.01),
    )


@pytest.mark.parametrize("policy", [LeastWork(cost_of=""), Alike()], ids=lambda one: one.name)
def test_in_a_simulation_no_row_is_lost_by_a_failure_and_slow_instances_get_less(policy):
    result = simulate(
        scenario(policy),
        30.0,
        every=30.0,
        trace=True,
        checkpoints=Checkpoints(every=0.7),
        failures=[Failure(at=1.9, detection=0.3)],
    )
    assert len(set(zip(result.trace["born"].to_pylist(), result.trace["item"].to_pylist(), strict=True))) == 1500
    done = result.instances.filter(np.array(result.instances["operator"]) == "work")["processed"].to_numpy()
    assert done[0] < 0.6 * done[1:].mean()
    messages = result.messages.to_pylist()[0]
    assert messages["grouping"] == policy.name
    assert messages["matrices"] > 100
    assert messages["bytes"] > 8 * messages["matrices"]


@pytest.mark.parametrize(
    "name",
    ["round_robin", "osg?window=16&tolerance=0.4", "tracking_osg?window=16&resync=4", "full_knowledge"],
)
@pytest.mark.parametrize("network", [Network(latency=0.01), Network()], ids=["slow", "instant"])
def test_the_plain_way_gives_what_compiled_loops_give(name, network, monkeypatch):
    chosen = grouping(name)
    given = scenario(chosen, rows=800, network=network)
    compiled = Simulation(given, trace=True)
    monkeypatch.setattr("steelyard.sim.grouped.CompiledGrouping", type("None of them", (), {}))
    plain = Simulation(given, trace=True)
    if name != "round_robin":  # which the loop knows by itself
        assert isinstance(plain._grouped._plain, PlainGroupings)
    for one in (compiled, plain):
        one.advance(20.0)
    assert plain.trace() == compiled.trace()
    unknown = {} if name == "round_robin" else {"epochs": None}  # which only schedulers know
    counted = [one.result().messages.to_pylist() for one in (compiled, plain)]
    assert counted[1] == [{**row, **unknown} for row in counted[0]]
    plain.restart(given, pause=0.0)
    assert plain.result().messages.to_pylist() == counted[1]


def test_letters_wait_for_room(monkeypatch):
    roomy = simulate(scenario(LeastWork(cost_of=""), rows=400), 20.0, trace=True).trace
    monkeypatch.setattr("steelyard.sim.build.FIRST_POOL", 1)
    assert simulate(scenario(LeastWork(cost_of=""), rows=400), 20.0, trace=True).trace == roomy


def test_flows_share_by_speed_and_compiled_edges_refuse():
    flow = FluidSimulation(scenario(LeastWork(cost_of=""), rows=0))
    flow.advance(5.0)
    flow.sample()
    done = flow.result().instances.filter(np.array(flow.result().instances["operator"]) == "work")["processed"]
    assert done.to_numpy()[1] == pytest.approx(3 * done.to_numpy()[0], rel=0.05)
    with pytest.raises(OptionError, match="'least work' is none: simulate it as"):
        ShuffleEdge(np.zeros(3, np.int64), np.ones(3), 2).run(LeastWork())
