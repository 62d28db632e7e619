"""The library's own policies decide in a simulation, unchanged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from steelyard.core import Cooperative, OptionError, TuplePolicy
from steelyard.kernels.xxhash import spark_hash
from steelyard.partition import Hash, Shuffle, partitioner_names, policy, tuple_policy
from steelyard.sim import (
    Edge,
    Exactly,
    Exponential,
    Machine,
    Network,
    Operator,
    Scenario,
    Simulation,
    Source,
    simulate,
)
from steelyard.workloads import Zipf

ROWS, INSTANCES, RATE = 3000, 5, 1000.0
KEYS = Zipf(exponent=1.2, keys=200, seed=4)
TUPLE_POLICIES = [name for name in partitioner_names() if isinstance(policy(name), TuplePolicy)]
ALONE = [name for name in TUPLE_POLICIES if not isinstance(policy(name), Cooperative)]


def items():
    return KEYS.rows(0, ROWS, np.zeros(ROWS, np.int64)).column("key")


def sent_by_source(grouping, source_instances=1):
    source = Source("log", RATE, source_instances, keys=KEYS, rows=ROWS)
    scenario = Scenario.chain(source, Operator("work", Exactly(0.0), parallelism=INSTANCES), grouping=grouping)
    return simulate(scenario, 10.0, trace=True).trace


@pytest.mark.parametrize("name", ALONE)
def test_a_source_sends_each_row_where_its_policy_says(name):
    trace = sent_by_source(name)
    times = (np.arange(ROWS) / RATE * 1000.0).astype(np.int64)
    expected = tuple_policy(name).router(INSTANCES, 0).route(spark_hash(items()), times).block
    assert trace["item"].to_pylist() == items().to_pylist()
    assert trace["instance"].to_pylist() == expected.tolist()


@pytest.mark.parametrize("named", [Hash(), Shuffle()])
def test_what_the_loop_decides_itself_is_what_the_policy_would(named):
    compiled = sent_by_source(named, source_instances=3)
    decided = sent_by_source(Decorated(named), source_instances=3)
    assert compiled == decided


class Decorated:
    """The same policy under another type, so that the loop has to ask."""

    def __init__(self, inner):
        self.inner, self.name = inner, inner.name

    def router(self, blocks, partitioner=0):
        return self.inner.router(blocks, partitioner)


def test_a_policy_between_operators_sees_the_tuples_in_the_order_in_which_they_come_out():
    scenario = Scenario(
        (
            Source("log", RATE, keys=KEYS, rows=ROWS, arrivals="poisson"),
            Operator("parse", Exponential(0.0009)),
            Operator("count", Exactly(0.0), parallelism=INSTANCES),
        ),
        (Edge("log", "parse"), Edge("parse", "count", "cm?window=0")),
    )
    trace = simulate(scenario, 60.0, trace=True).trace
    router = tuple_policy("cm?window=0").router(INSTANCES, 0)
    expected = router.route(spark_hash(pa.array(trace["item"].to_pylist())), np.zeros(ROWS, np.int64)).block
    assert trace["instance"].to_pylist() == expected.tolist()


def test_a_policy_after_a_filter_or_several_threads_is_asked_for_each_tuple():
    scenario = Scenario(
        (
            Source("log", RATE, keys=KEYS, rows=ROWS),
            Operator("filter", Exponential(0.002), threads=3, outputs=0.5),
            Operator("count", Exactly(0.0), parallelism=INSTANCES),
        ),
        (Edge("log", "filter"), Edge("filter", "count", "pk2?window=0")),
    )
    trace = simulate(scenario, 60.0, trace=True).trace
    router = tuple_policy("pk2?window=0").router(INSTANCES, 0)
    kept = pa.array(trace["item"].to_pylist())
    assert 0.4 * ROWS < len(kept) < 0.6 * ROWS
    assert trace["instance"].to_pylist() == router.route(spark_hash(kept), np.zeros(len(kept), np.int64)).block.tolist()


class Talkative(Decorated):
    """Partitioners that cooperate: they all go on from the state of the first."""

    def __init__(self, inner):
        super().__init__(inner)
        self.rounds = []

    def synchronise(self, states, blocks):
        self.rounds.append((sorted(states), blocks))
        return dict.fromkeys(states, states[0])


def test_partitioners_that_cooperate_learn_from_each_other_between_tuples():
    policy = Talkative(Shuffle())
    scenario = Scenario(
        (Source("log", 30, parallelism=3, rows=90), Operator("work", Exactly(0.0), parallelism=5)),
        (Edge("log", "work", policy, exchange_every=0.99),),
    )
    trace = simulate(scenario, 3.5, trace=True).trace
    assert policy.rounds == [([0, 1, 2], 5)] * 3
    # each sends 10 rows between two rounds, in turn from its own number on; then all from the number of the first
    first = [instance for row in range(10) for instance in ((row + sender) % 5 for sender in range(3))]
    assert trace["instance"].to_pylist()[:30] == first
    assert trace["instance"].to_pylist()[30:] == [row % 5 for row in range(20) for _ in range(3)]


@pytest.mark.parametrize("grouping", ["cooperative_dalton", "dalton"])
def test_dalton_runs_with_several_sources(grouping):
    trace = sent_by_source(grouping, source_instances=4)
    assert trace.num_rows == ROWS


def test_a_balancing_policy_beats_hash_on_a_skewed_stream():
    waits = {}
    for grouping in ("hash", "d_choices"):
        source = Source("log", 4500, keys=KEYS, arrivals="poisson")
        scenario = Scenario.chain(source, Operator("work", Exactly(0.001), parallelism=INSTANCES), grouping=grouping)
        waits[grouping] = simulate(scenario, 30.0).latency().mean
    assert waits["d_choices"] < waits["hash"] / 10


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Edge("a", "b", "suffle"), "did you mean 'shuffle'"),
        (lambda: Source("log", 10, arrivals="posson"), "did you mean 'poisson'"),
        (lambda: Operator("map", Exactly(1), slowdown=(1.0, 2.0)), "a number above 0 for each of the 1 instances"),
        (lambda: Scenario((Operator("map", Exactly(1)),)), "has no source"),
        (
            lambda: Scenario((Source("log", 1), Operator("map", Exactly(1)))),
            "'map' is unconnected: no edge",
        ),
        (lambda: Scenario.chain(Source("log", 1), Operator("log", Exactly(1))), "two operators are called 'log'"),
        (
            lambda: Scenario((Source("log", 1), Operator("map", Exactly(1))), (Edge("map", "map"),)),
            "list senders before their receivers",
        ),
        (lambda: Exponential(0.0), "mean of Exponential must be above 0"),
        (lambda: Operator("map", 0.001), r"as Exactly\(0.001\)"),
        (lambda: Operator("map", Exactly(1), parallelism=2.5), "parallelism of 'map' must be a whole number"),
        (lambda: Source("log", None), "rate of source 'log' is rows per second"),
        (lambda: Source("log", 1, keys="zipf"), "keys of source 'log' are whole numbers"),
        (lambda: Machine(cores="4"), "cores of a machine must be a number"),
        (lambda: Network(latency="1ms"), "latency of a network must be a number"),
        (lambda: Scenario((Source("log", 1),), machines=Machine()), "machines of a scenario are a list of Machine"),
        (lambda: Scenario((Source("log", 1),), machines=2), r"got 2: write machines=\[Machine\(cores=4\)\] \* 2"),
        (lambda: Scenario.chain(Source("log", 1), machines=2), r"got 2: write machines=\[Machine\(cores=4\)\] \* 2"),
        (lambda: str(Simulation(Scenario((Source("log", 1),))).result()), "advance the simulation"),
    ],
)
def test_a_mistake_in_a_scenario_is_told_at_once(make, words):
    with pytest.raises(OptionError, match=words):
        make()


@pytest.mark.parametrize("grouping", ["auto", "auto?candidates=hash,prompt&memory=0.5"])
def test_routers_that_observe_lose_no_row_and_go_back_with_a_checkpoint(grouping):
    scenario = Scenario(
        (
            Source("log", RATE, 2, keys=KEYS, rows=ROWS),
            Operator("parse", Exponential(0.0005), 2),
            Operator("count", Exponential(0.003), parallelism=4),
        ),
        (
            Edge("log", "parse", grouping, exchange_every=0.1),
            Edge("parse", "count", grouping, exchange_every=0.25),
        ),
    )
    simulation = Simulation(scenario, trace=True)
    simulation.advance(1.6)
    simulation.checkpoint()
    learnt = simulation._routers.states()
    assert all(state["batches"] > 0 for state in learnt.values())
    simulation.advance(0.5)
    simulation.fail()
    for turn, state in simulation._routers.states().items():
        assert {name: part.tolist() for name, part in state.items()} == {
            name: part.tolist() for name, part in learnt[turn].items()
        }
    simulation.advance(60.0)
    assert simulation.drained
    born = np.round(simulation.trace()["born"].to_numpy(), 6).tolist()
    assert len(set(zip(born, simulation.trace()["item"].to_pylist(), strict=True))) == ROWS


def test_rounds_that_a_router_observes_are_numbered():
    class Noting:
        name = "noting"
        seen: ClassVar[dict[int, list[int]]] = {}

        def router(self, blocks, partitioner=0):
            router, seen = Hash().router(blocks), self.seen.setdefault(partitioner, [])
            router = SimpleNamespace(blocks=blocks, route=router.route, state=router.state, restore=router.restore)
            router.observe = lambda observation: seen.append(observation.number)
            return router

    sent_by_source(Noting(), source_instances=2)
    assert Noting.seen == {0: [0, 1, 2], 1: [0, 1, 2]}


def test_auto_leaves_what_makes_one_instance_slow():
    waits = {}
    for grouping in ("hash", "auto?candidates=hash,prompt,shuffle"):
        source = Source("log", 4500, keys=KEYS, arrivals="poisson")
        scenario = Scenario.chain(source, Operator("work", Exactly(0.001), parallelism=INSTANCES), grouping=grouping)
        waits[grouping] = simulate(scenario, 30.0).latency().mean
    assert waits["auto?candidates=hash,prompt,shuffle"] < waits["hash"] / 2
