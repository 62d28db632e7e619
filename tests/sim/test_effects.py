"""A grouping that changes nothing in a scenario is told of, in one line, once for each simulation."""

from __future__ import annotations

import warnings

import pytest

from steelyard.core import NoEffectWarning, OptionError
from steelyard.sim import (
    Edge,
    Exactly,
    FluidSimulation,
    MicroBatches,
    Operator,
    Scenario,
    Simulation,
    Source,
    simulate,
    simulate_batches,
)
from steelyard.workloads import Zipf


def chain(grouping, exponent=0.5, instances=8, partitions=2):
    source = Source("orders", 6_000, partitions, keys=Zipf(exponent=exponent, keys=1_000, seed=7))
    return Scenario.chain(source, Operator("enrich", Exactly(0.0001), parallelism=instances), grouping=grouping)


def told(work):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in found if issubclass(one.category, NoEffectWarning)]


@pytest.mark.parametrize("grouping", ["dalton", "osg", "full_knowledge", "pk2"])
@pytest.mark.parametrize("run", [lambda scenario: simulate(scenario, 1.0), FluidSimulation])
def test_a_policy_with_one_instance_to_choose_from_is_told_of(grouping, run):
    assert told(lambda: run(chain(grouping, instances=1))) == [
        f"grouping '{grouping}' of edge orders -> enrich has no effect: 'enrich' has one instance; "
        "give it more instances"
    ]


@pytest.mark.parametrize("grouping", ["shuffle", "hash", "broadcast", "global"])
def test_what_needs_no_choice_is_not_told_of(grouping):
    assert told(lambda: simulate(chain(grouping, instances=1), 1.0)) == []


def test_a_policy_that_has_an_effect_on_another_edge_is_not_told_of():
    source = Source("orders", 1_000, keys=Zipf(exponent=1.5, keys=1_000, seed=7))
    operators = [Operator("enrich", Exactly(0.0001), parallelism=4), Operator("write", Exactly(0.0001))]
    assert told(lambda: simulate(Scenario.chain(source, *operators, grouping="pk2"), 2.0)) == []


def test_a_policy_that_split_no_key_is_told_of():
    """`dalton` splits keys that are more than an instance's share; where none is, it gives the figures of `hash`."""
    alike = [simulate(chain(one), 5.0, seed=1) for one in ("hash", "dalton")]
    assert alike[0].instances == alike[1].instances
    words = (
        "grouping 'dalton' of edge orders -> enrich has no effect: all tuples went where 'hash' sends them, as they do "
        "while no key is frequent enough to be split; try more skewed keys, or more instances"
    )
    assert told(lambda: simulate(chain("dalton"), 5.0)) == [words]
    assert told(lambda: FluidSimulation(chain("dalton"))) == [words.replace("all tuples", "all rows of a sample")]


@pytest.mark.parametrize("run", [lambda scenario: simulate(scenario, 5.0), FluidSimulation])
def test_a_policy_that_split_keys_is_not_told_of(run):
    assert told(lambda: run(chain("dalton", exponent=1.3))) == []


def test_a_simulation_tells_once():
    simulation = Simulation(chain("dalton"))
    simulation.advance(1.0)
    assert len(told(simulation.result)) == 1
    simulation.advance(1.0)
    assert told(simulation.result) == []


def test_the_line_is_the_users_own():
    with pytest.warns(NoEffectWarning) as found:
        simulate(chain("dalton", instances=1), 1.0)
    assert {one.filename for one in found} == {__file__}


def test_a_partitioner_of_one_block_is_told_of():
    query = MicroBatches(Source("log", 1_000, keys=[1, 2, 3]), blocks=1, buckets=1)
    assert told(lambda: simulate_batches(query, 1)) == [
        "partitioner 'prompt' has no effect: there is one block; give blocks=2 or more"
    ]


def test_columns_of_costs_are_refused_where_rows_have_none():
    with pytest.raises(OptionError, match="cost_of='customer' of edge orders -> enrich"):
        Edge("orders", "enrich", "osg?cost_of=customer")
