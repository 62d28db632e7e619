"""Groupings that go by cost decide in a simulated cluster as they do anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.core import OptionError
from steelyard.grouping import (
    CompiledGrouping,
    FullKnowledge,
    RoundRobin,
    Shortest,
    TrackingOSG,
    grouping,
    grouping_names,
)
from steelyard.kernels import cluster_state as state
from steelyard.sim import (
    Checkpoints,
    Edge,
    Exactly,
    Exponential,
    Failure,
    FluidSimulation,
    Machine,
    Network,
    Operator,
    PerItem,
    Scenario,
    Simulation,
    Source,
    build,
    grouped,
    simulate,
)
from steelyard.workloads import Zipf

UNIT = 1 / 1024
"""Times are multiples of it, so that sums are exact and the order in which they are added does not matter."""
COMPILED = [name for name in grouping_names() if isinstance(grouping(name), CompiledGrouping)]
LEARNING = ("osg?window=16&tolerance=0.4", "tracking_osg?window=16&tolerance=0.4&resync=5")


@st.composite
def streams(draw):
    """Items, what each costs, gaps between tuples, instances and their slowdowns."""
    seed, kinds = draw(st.integers(0, 99)), draw(st.integers(1, 30))
    rng = np.random.default_rng(seed)
    table = rng.integers(1, 64, kinds) * UNIT
    items = rng.integers(0, kinds, draw(st.integers(1, 900)))
    instances = draw(st.integers(1, 5))
    slowdown = rng.choice([0.5, 1.0, 2.0], instances)
    gap = 2.0 ** round(np.log2(float(table[items].mean()) / instances))  # whose multiples are exact too
    return items, table, gap, slowdown


def scenario_of(stream, grouping, network=Network(), senders=1):  # noqa: B008 - a frozen value
    items, table, gap, slowdown = stream
    return Scenario.chain(
        Source("log", 1 / gap, senders, keys=items.tolist(), rows=len(items)),
        Operator("work", PerItem(table), parallelism=len(slowdown), slowdown=tuple(slowdown)),
        grouping=grouping,
        network=network,
    )


def edge_of(stream, latency=0.0, schedulers=1):
    items, table, gap, slowdown = stream
    edge = ShuffleEdge(items, table[items], len(slowdown), schedulers=schedulers, factors=slowdown, latency=latency)
    object.__setattr__(edge, "arrivals", np.arange(len(items)) * gap)
    return edge


def by_row(scenario, gap):
    """Instances and ends of the tuples, in the order of the rows."""
    simulation = Simulation(scenario, trace=True)
    while not simulation.drained:
        simulation.advance(1000.0)
    trace = simulation.trace()
    check_nothing_is_left(simulation)
    order = np.argsort(np.round(trace["born"].to_numpy() / gap), kind="stable")
    return trace["instance"].to_numpy()[order], trace["done"].to_numpy()[order], simulation.result()


def check_nothing_is_left(simulation):
    """All records are free, and so are all places for matrices."""
    cluster, free = simulation._cluster, 0
    record = cluster.counters[state.FREE_RECORD]
    while record != state.NONE:
        free, record = free + 1, cluster.pool["next"][record]
    assert free == len(cluster.pool)
    groupings = simulation._grouped.state()
    assert groupings is None or not groupings.readers.any()


@settings(max_examples=60)
@given(
    stream=streams(),
    name=st.sampled_from([*LEARNING, "osg?window=8&clock=cumulated", *COMPILED]),
    senders=st.integers(1, 3),
)
def test_tuples_go_and_end_as_on_a_shuffle_edge(stream, name, senders):
    where, ends, result = by_row(scenario_of(stream, name, senders=senders), stream[2])
    expected = edge_of(stream, schedulers=senders).run(name)
    assert where.tolist() == expected.flow.to.tolist()
    assert ends.tolist() == expected.flow.finish.tolist()
    for row in result.messages.to_pylist():
        assert {kind: row[kind] for kind in expected.traffic} == expected.traffic
        assert row["bytes"] == expected.traffic_bytes


@settings(max_examples=30)
@given(stream=streams(), steps=st.integers(1, 400))
def test_letters_take_as_long_as_the_network_says(stream, steps):
    """A tuple comes later by the latency, so a letter comes later by twice as much; OSG's sums do not mind."""
    latency = (steps + 1 / 8) * UNIT  # so that no letter comes at the very moment at which a tuple is sent
    where, ends, _ = by_row(scenario_of(stream, LEARNING[0], Network(latency=latency)), stream[2])
    expected = edge_of(stream, 2 * latency).run(LEARNING[0])
    assert where.tolist() == expected.flow.to.tolist()
    assert ends.tolist() == (expected.flow.finish + latency).tolist()


def uneven(grouping, instances=8, rate=1000.0, spare=1.05, **options):
    """Rows whose cost their key decides, from 1 to 64 parts, and hardly more instances than are needed."""
    keys = Zipf(exponent=1.0, keys=1024, seed=3)
    table = np.random.default_rng(2).permutation(np.repeat(np.arange(1, 65), 16)).astype(float)
    drawn = keys.rows(0, 50_000, np.zeros(50_000, np.int64)).column("key").to_numpy()
    table *= instances / rate / spare / table[drawn].mean()
    return Scenario.chain(
        Source("rows", rate, keys=keys),
        Operator("work", PerItem(table), parallelism=instances),
        grouping=grouping,
        **options,
    )


def test_what_a_grouping_knows_of_costs_shortens_the_wait():
    names = ("round_robin", "osg", "tracking_osg", "full_knowledge")
    waits = [simulate(uneven(name), 60.0).total("work", after=20).mean_wait for name in names]
    assert waits == sorted(waits, reverse=True)
    assert waits[2] < 0.7 * waits[0]


def test_an_instance_on_a_slow_machine_gets_fewer_tuples():
    machines = (Machine(cores=1), *(Machine(cores=1, speed=speed) for speed in (1.0, 1.0, 1.0, 0.5)))
    scenario = Scenario(
        (Source("log", 300, machines=(0,)), Operator("work", Exactly(0.01), parallelism=4, machines=(1, 2, 3, 4))),
        (Edge("log", "work", TrackingOSG(window=64)),),
        machines,
    )
    result = simulate(scenario, 60.0)
    table = result.instances.filter(np.array(result.instances["time"]) > 30)
    done = [sum(table.filter(np.array(table["operator"]) == "work")["processed"].to_numpy()[n::4]) for n in range(4)]
    assert done[3] < 0.6 * min(done[:3])
    assert result.latency(after=30).mean < 0.03


def test_matrices_take_their_time_on_a_line_that_is_full():
    """8 bytes a number: 3 and twice 55 cells in 4 rows; the tuples themselves have no size here."""
    scenario = Scenario.chain(
        Source("log", 100, rows=200),
        Operator("work", Exactly(0.001), parallelism=1),
        grouping="osg?window=10",
        network=Network(bytes_per_second=1e6),
    )
    result = simulate(scenario, 10.0)
    messages = result.messages.to_pylist()[0]
    assert messages["matrices"] == 10  # after two windows each
    assert result.machines["sent_bytes"].to_numpy().sum() == 10 * 8 * (3 + 2 * 220) + messages["replies"] * 64


def test_several_edges_with_groupings_of_their_own_have_room_beside_each_other():
    """Between parse and store the sketches have another size, and there are other instances."""
    keys = Zipf(exponent=1.0, keys=200, seed=3)
    parts = (
        Source("log", 100, parallelism=2, keys=keys),
        Operator("parse", PerItem(np.linspace(0.001, 0.04, 200)), parallelism=3),
        Operator("store", PerItem(np.linspace(0.06, 0.002, 200)), parallelism=5),
    )
    first, second = (
        Edge("log", "parse", "tracking_osg?window=32"),
        Edge("parse", "store", "osg?window=32&tolerance=0.3"),
    )
    both = simulate(Scenario(parts, (first, second)), 60.0, trace=True)
    assert [row["sender"] for row in both.messages.to_pylist()] == ["log", "parse"]
    assert min(row["matrices"] for row in both.messages.to_pylist()) > 10
    alone = simulate(Scenario(parts[:2], (first,)), 60.0)
    assert both.messages.to_pylist()[0] == alone.messages.to_pylist()[0]


def test_edges_that_have_nothing_to_do_with_each_other_run_as_if_alone():
    """Their sketches differ in size, so that one bank for both has more room than either needs."""

    def chain(name, keys, instances, grouping):
        costs = PerItem(np.linspace(0.001, 0.05, keys))
        source = Source(f"log {name}", 100, keys=Zipf(exponent=0.8, keys=keys, seed=3), rows=1500)
        work = Operator(f"work {name}", costs, parallelism=instances)
        return (source, work), Edge(source.name, work.name, grouping)

    tracking = "tracking_osg?window=16&rows=2&columns=7"
    ones = [chain("a", 90, 3, "osg?window=16&tolerance=0.4"), chain("b", 70, 5, tracking)]
    both = Scenario(tuple(part for parts, _ in ones for part in parts), tuple(edge for _, edge in ones))
    together = simulate(both, 60.0, trace=True)
    for parts, edge in ones:
        alone = simulate(Scenario(parts, (edge,)), 60.0, trace=True)
        same = together.trace.filter(np.array(together.trace["operator"]) == edge.receiver)
        assert same == alone.trace
        assert alone.messages.to_pylist()[0] in together.messages.to_pylist()


@pytest.mark.parametrize("name", LEARNING)
def test_however_little_room_there_is_at_first_the_run_is_the_same(name, monkeypatch):
    scenario = Scenario.chain(
        Source("log", 200, parallelism=2, keys=list(range(9)), rows=2000),
        Operator("work", PerItem(np.linspace(0.001, 0.05, 9)), parallelism=4),
        grouping=name,
        network=Network(latency=0.7),
    )
    roomy = simulate(scenario, 30.0, trace=True)
    for module, field in ((build, "FIRST_POOL"), (build, "FIRST_TRACE"), (grouped, "FIRST_SLOTS")):
        monkeypatch.setattr(module, field, 1)
    narrow = simulate(scenario, 30.0, trace=True)
    assert narrow.trace == roomy.trace
    assert narrow.messages == roomy.messages


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_tracking_gains_however_many_threads_an_instance_has(threads):
    costs = PerItem(np.linspace(1, 63, 64) / 32 * 0.0075 * threads)
    keys = Zipf(exponent=0.0, keys=64, seed=3)

    def wait(grouping):
        source = Source("log", 1000, keys=keys, arrivals="poisson")
        scenario = Scenario.chain(source, Operator("work", costs, parallelism=8, threads=threads), grouping=grouping)
        return simulate(scenario, 60, seed=1).total("work", after=20).mean_wait

    assert wait("tracking_osg") < 0.7 * wait("round_robin")


def several(grouping, shares, others="shuffle"):
    """Sources of unequal shares, of which the first sends as the grouping says, and the rest by `others`."""
    keys, parts = Zipf(exponent=0.0, keys=64, seed=3), []
    for number, share in enumerate(shares):
        parts.append(Source(f"log {number}", 1000 * share, keys=keys, arrivals="poisson"))
    work = Operator("work", PerItem(np.linspace(1, 63, 64) / 32 * 0.0075), parallelism=8)
    edges = [Edge(one.name, "work", others if number else grouping) for number, one in enumerate(parts)]
    return Scenario((*parts, work), tuple(edges))


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.25, 0.25, 0.25, 0.25), (0.7, 0.2, 0.1)])
def test_tracking_gains_where_other_edges_lead_to_the_same_instances(shares):
    def wait(grouping, others):
        result = simulate(several(grouping, shares, others), 60, seed=1)
        return result.total("work", after=20).mean_wait

    assert wait("tracking_osg", "tracking_osg") < 0.7 * wait("shuffle", "shuffle")
    assert wait("tracking_osg", "shuffle") < 1.05 * wait("shuffle", "shuffle")


def test_full_knowledge_and_flows_know_the_speeds_of_machines():
    machines = (Machine(cores=1), Machine(cores=1), Machine(cores=1, speed=3.0))
    for name in ("full_knowledge", "tracking_osg"):
        scenario = Scenario(
            (Source("log", 195, machines=(0,)), Operator("work", Exactly(0.02), parallelism=2, machines=(1, 2))),
            (Edge("log", "work", name),),
            machines,
        )
        flow = FluidSimulation(scenario)
        flow.advance(30.0)
        flow.sample()
        for result in (simulate(scenario, 30.0, every=30.0), flow.result()):
            done = result.instances.filter(np.array(result.instances["operator"]) == "work")["processed"].to_numpy()
            assert done[1] / done[0] == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("markers", [False, True])
def test_no_row_is_lost_by_a_failure(name, markers):
    scenario = uneven(name, spare=1.3)
    scenario = replace(scenario, operators=(replace(scenario.operators[0], rows=3000), *scenario.operators[1:]))
    result = simulate(
        scenario,
        30.0,
        trace=True,
        checkpoints=Checkpoints(every=0.7, markers=markers),
        failures=[Failure(at=1.9, detection=0.3)],
    )
    assert len(set(np.round(result.trace["born"].to_numpy(), 6).tolist())) == 3000
    assert result.trace.num_rows > 3000
    until = simulate(scenario, 1.9, checkpoints=Checkpoints(every=0.7, markers=markers)).messages.to_pylist()[0]
    # what was sent before the failure stays counted
    assert result.messages.to_pylist()[0]["replies"] > until["replies"]


def test_schedulers_go_back_with_the_checkpoint_and_their_messages_stay_counted():
    stream = (np.arange(400) % 7, np.arange(1, 8) * UNIT, 2 * UNIT, np.ones(3))
    simulation = Simulation(scenario_of(stream, LEARNING[1]), trace=True)
    simulation.advance(0.3)
    simulation.checkpoint()
    saved = simulation._grouped.state()
    simulation.advance(0.2)
    counted = simulation.result().messages
    assert counted["requests"].to_pylist()[0] > saved.schedulers.traffic[0, 1] > 0
    simulation.fail()
    assert simulation.result().messages == counted
    found = simulation._grouped.state()
    for bank, before in ((found.schedulers, saved.schedulers), (found.learners, saved.learners)):
        for name, array in bank._asdict().items():
            assert name == "traffic" or np.array_equal(array, getattr(before, name)), name
    simulation.advance(10.0)
    assert len(set(simulation.trace()["born"].to_pylist())) == 400


def test_after_a_restart_new_instances_share_the_work():
    scenario = uneven("tracking_osg", instances=4, spare=0.9)
    simulation = Simulation(scenario, seed=1)
    simulation.advance(10.0)
    before = simulation.result().messages.to_pylist()[0]["requests"]
    simulation.restart(scenario.rescaled({"work": 8}), pause=1.0)
    assert simulation.result().messages.to_pylist()[0]["requests"] >= before
    simulation.sample()
    simulation.advance(30.0)
    simulation.sample()
    result = simulation.result()
    assert result.instances["processed"].to_numpy()[-8:].min() > 0
    assert result.messages.num_rows == 1
    assert result.messages.to_pylist()[0]["requests"] > before
    assert simulation.drained is False
    assert result.sources["lag"].to_pylist()[-1] < 100


def test_room_is_made_for_matrices_under_way():
    """A journey of 20 s, in which every instance sends its matrices again and again, to each of three schedulers."""
    scenario = Scenario.chain(
        Source("log", 120, parallelism=3, keys=[1, 2, 3]),
        Operator("work", Exactly(0.01), parallelism=4),
        grouping="tracking_osg?window=4&apart=0",
        network=Network(latency=20.0),
    )
    messages = simulate(scenario, 80.0).messages.to_pylist()[0]
    assert messages["matrices"] == pytest.approx(3 * 120 / 8 * 40, rel=0.05)


def test_flows_share_by_speed_what_goes_by_cost():
    scenario = Scenario.chain(
        Source("log", 90), Operator("work", Exactly(0.02), parallelism=2, slowdown=(1.0, 2.0)), grouping="osg"
    )
    flow = FluidSimulation(scenario)
    flow.advance(10.0)
    flow.sample()
    done = flow.result().instances.filter(np.array(flow.result().instances["operator"]) == "work")["processed"]
    assert done.to_numpy().tolist() == pytest.approx([500.0, 250.0], rel=0.02)


def test_round_robin_is_the_one_that_the_loop_knows():
    assert Edge("a", "b", RoundRobin()).built_in == Edge("a", "b", "round_robin").built_in == "round_robin"
    assert Edge("a", "b", RoundRobin()).by_cost() is None


class Seen(Shortest):
    """The same, which the compiled loop does not know: the object is asked."""


@settings(deadline=None, max_examples=10)
@given(
    seed=st.integers(0, 100), senders=st.integers(1, 3), instances=st.integers(1, 4), travels=st.sampled_from([0, 0.02])
)
def test_the_loop_finds_the_shortest_queue_as_the_policy_does(seed, senders, instances, travels):
    source = Source("log", 200, parallelism=senders, arrivals="poisson")
    work = Operator("work", Exponential(0.004 * instances), parallelism=instances)
    runs = [
        simulate(Scenario.chain(source, work, grouping=how, network=Network(latency=travels)), 3.0, seed=seed)
        for how in ("shortest", Shortest(), Seen())
    ]
    assert [Edge("a", "b", how).by_cost() is None for how in ("shortest", Shortest(), Seen())] == [True, True, False]
    assert runs[0].instances.equals(runs[1].instances)
    assert runs[0].instances.equals(runs[2].instances)


def test_full_knowledge_must_be_able_to_know():
    with pytest.raises(OptionError, match="Exactly or PerItem"):
        Scenario.chain(Source("log", 1), Operator("work", Exponential(1.0)), grouping=FullKnowledge())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ogs", "did you mean 'osg'"),
        ("osg?windw=3", "did you mean 'window'"),
        ("osg?seed=-1", "seed of osg must be 0 or more"),
        ("assg?seed=100000000000000000000", "seed of assg"),
        ("tracking_osg?window=100000000000000000000", "at most 2\\^62"),
        (TrackingOSG, r"give TrackingOSG\(\)"),
    ],
)
def test_a_mistake_in_a_grouping_is_told(name, words):
    with pytest.raises(OptionError, match=words):
        Edge("a", "b", name)
