"""What every grouping must do, whatever its kind."""

import pickle
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.core import OptionError
from steelyard.core.weights import dealt, lowest
from steelyard.grouping import CompiledGrouping, Grouping, Instance, Scheduler, grouping, grouping_names
from steelyard.grouping.protocol import weighs
from steelyard.grouping.shortest import QueueScheduler

NAMES = grouping_names()
COMPILED = [name for name in NAMES if isinstance(grouping(name), CompiledGrouping)]
NO_CLOCK = {"tracking_osg": "tracking_osg?idle_aware=false"}


def policy_of(name):
    return grouping(NO_CLOCK.get(name, name))


def items_of(seed, rows=300):
    return np.random.default_rng(seed).integers(0, 50, rows)


def choose(scheduler, items):
    """With all that only a simulator knows, where a grouping must be told."""
    told = {"queues": np.stack([items * 7 % (3 + n) for n in range(scheduler.instances)], axis=1)}
    return scheduler.choose(items, costs=1.0 + items % 7, **(told if isinstance(scheduler, QueueScheduler) else {}))


@pytest.mark.parametrize("name", NAMES)
def test_it_follows_the_protocols_and_says_its_parameters(name):
    policy = policy_of(name)
    assert isinstance(policy, Grouping)
    assert isinstance(policy.scheduler(3), Scheduler)
    assert isinstance(policy.instance(3, 1), Instance)
    assert eval(repr(policy), vars(sys.modules[type(policy).__module__])) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), instances=st.integers(1, 6))
def test_every_tuple_goes_to_an_instance_that_exists_and_twice_to_the_same(name, seed, instances):
    items = items_of(seed)
    first, second = (choose(policy_of(name).scheduler(instances), items).to for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.dtype == np.int32
    assert 0 <= first.min() <= first.max() < instances


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 300))
def test_a_restored_scheduler_goes_on_as_the_first_would(name, seed, cut):
    items = items_of(seed)
    whole, before, after = (policy_of(name).scheduler(4, number=2, schedulers=3) for _ in range(3))
    expected = choose(whole, items).to[cut:]
    choose(before, items[:cut])
    after.restore(before.state())
    assert choose(after, items[cut:]).to.tolist() == expected.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_empty_batches_are_nothing(name):
    nothing = np.empty(0)
    assert choose(policy_of(name).scheduler(3), nothing.astype(np.int64)).to.tolist() == []
    assert policy_of(name).instance(3, 0).executed(nothing.astype(np.int64), nothing, nothing) == []


@pytest.mark.parametrize("name", COMPILED)
def test_a_scheduler_says_its_policy_and_an_edge_without_tuples_is_nothing(name):
    policy, nothing = policy_of(name), np.empty(0)
    assert repr(policy) in repr(policy.scheduler(3))
    assert ShuffleEdge(nothing.astype(np.int64), nothing, 3).run(name).mean_completion == 0


@pytest.mark.parametrize("name", COMPILED)
def test_a_state_of_another_size_is_refused(name):
    policy = policy_of(name)
    with pytest.raises(OptionError, match="of shape"):
        policy.scheduler(3).restore(policy.scheduler(4).state())
    with pytest.raises(OptionError, match="missing"):
        policy.instance(3, 0).restore({})


@pytest.mark.parametrize("name", COMPILED)
def test_all_tuples_of_a_simulated_edge_end_after_they_came(name):
    items = items_of(3, 2_000)
    edge = ShuffleEdge(items, 1.0 + items % 7, 4, provisioning=1.1, schedulers=2)
    run = edge.run(name)
    assert (run.completion >= edge.times - 1e-9).all()
    assert run.events >= 2 * len(items)
    assert run.table().num_rows == len(items)
    for instance in range(4):  # first in, first out, one at a time
        mine = run.flow.to == instance
        starts = run.flow.finish[mine] - edge.times[mine]
        assert (starts[1:] >= run.flow.finish[mine][:-1] - 1e-6).all()


@pytest.mark.parametrize("name", ["round_robin", "assg", "assg?reshuffle=false"])
def test_round_robin_gives_every_instance_the_same_number_of_tuples(name):
    to = grouping(name).scheduler(3).choose(items_of(1, 300)).to
    assert np.bincount(to).tolist() == [100, 100, 100]
    assert all(sorted(turn) == [0, 1, 2] for turn in to.reshape(-1, 3).tolist())


def test_storms_shuffle_draws_a_new_order_every_round_unless_told_not_to():
    rounds = {tuple(turn) for turn in grouping("assg").scheduler(5).choose(items_of(1, 500)).to.reshape(-1, 5).tolist()}
    assert len(rounds) > 50
    kept = grouping("assg?reshuffle=false").scheduler(5).choose(items_of(1, 500)).to.reshape(-1, 5).tolist()
    assert len({tuple(turn) for turn in kept}) == 1


four_weights = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), before=four_weights, weights=four_weights, cut=st.integers(0, 300))
def test_weights_are_obeyed_exactly_or_refused_with_the_reason(name, seed, before, weights, cut):
    policy, items = policy_of(name), items_of(seed)
    scheduler = policy.scheduler(4, number=2, schedulers=3)
    if not weighs(policy):
        if not isinstance(policy, CompiledGrouping):
            assert not hasattr(scheduler, "weigh"), "what a grouping has not, it does not promise"
            return
        with pytest.raises(OptionError, match=f"{policy.name} has no weights"):
            scheduler.weigh(weights)
        return
    scheduler.weigh(before)
    choose(scheduler, items[:cut])
    scheduler.weigh(weights)
    expected = lowest(weights)
    cycles = choose(scheduler, items_of(seed, 5 * sum(expected))).to.reshape(5, -1)
    if lowest(before) != expected:  # otherwise it goes on in the middle of a cycle
        assert [np.bincount(one, minlength=4).tolist() for one in cycles] == [list(expected)] * 5
    assert np.bincount(cycles.ravel(), minlength=4).tolist() == [5 * one for one in expected]
    assert all((one == cycles[0]).all() for one in cycles)
    assert scheduler.weights == expected


@pytest.mark.parametrize("name", [name for name in NAMES if weighs(grouping(name))])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), weights=four_weights, cut=st.integers(0, 100))
def test_a_scheduler_with_weights_goes_on_where_it_was_restored_or_is_given_them_again(name, seed, weights, cut):
    items = items_of(seed)
    whole, before, after = (policy_of(name).scheduler(4, number=1, schedulers=2) for _ in range(3))
    for one in (whole, before):
        one.weigh(weights)
    expected = choose(whole, items).to[cut:]
    choose(before, items[:cut])
    after.restore(before.state())
    after.weigh([3 * one for one in weights])  # the same proportions
    assert choose(after, items[cut:]).to.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((1, 2), "3 instances, got 2 weights"),
        ((0, 0, 0), "not all 0"),
        ((1, -1, 1), "from 0 on"),
        ((1, 0.5, 1), "whole"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        grouping("round_robin").scheduler(3).weigh(weights)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=7).filter(any))
def test_a_cycle_is_what_smooth_weighted_round_robin_gives_row_by_row(weights):
    weights = lowest(weights)
    gained, order = [0] * len(weights), []
    for _ in range(sum(weights)):
        gained = [one + weight for one, weight in zip(gained, weights, strict=True)]
        order.append(gained.index(max(gained)))
        gained[order[-1]] -= sum(weights)
    assert dealt(weights).tolist() == order
    assert Counter(order) == {number: weight for number, weight in enumerate(weights) if weight}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("ogs", f"did you mean 'osg'.*{', '.join(NAMES)}"),
        ("osg?epsilom=0.1", "did you mean 'epsilon'"),
        ("osg?epsilon=small", "'epsilon' of osg must be a number"),
        ("osg?window=1&window=2", "given twice"),
        ("osg?epsilon=0", "above 0 and at most 1"),
        ("osg?delta=1", "below 1"),
        ("osg?columns=-1", "columns of osg must be 0 or more"),
        ("osg?window=0", "window of osg must be 1 or more"),
        ("osg?clock=lapsed", "did you mean 'elapsed'"),
        ("tracking_osg?items=share", "did you mean 'shared'"),
        ("tracking_osg?keep=1", "nothing is ever forgotten"),
        ("tracking_osg?resync=0", "resync of tracking_osg must be 1 or more"),
        (7, "a grouping is a name or an object"),
    ],
)
def test_what_cannot_be_says_what_could(named, message):
    with pytest.raises(OptionError, match=message):
        grouping(named)


def test_what_a_scheduler_needs_it_asks_for():
    with pytest.raises(OptionError, match="give `queues`"):
        grouping("shortest").scheduler(2).choose(items_of(1))
    with pytest.raises(ValueError, match=r"queues are one per tuple and instance, \(300, 2\)"):
        grouping("shortest").scheduler(2).choose(items_of(1), queues=np.zeros(2, np.int64))
    with pytest.raises(OptionError, match="give `costs`"):
        grouping("full_knowledge").scheduler(2).choose(items_of(1))
    with pytest.raises(OptionError, match="give `times`"):
        grouping("tracking_osg").scheduler(2).choose(items_of(1))
    with pytest.raises(ValueError, match="costs are one per tuple"):
        grouping("full_knowledge").scheduler(2).choose(items_of(1), costs=np.ones((300, 3)))
    with pytest.raises(OptionError, match="instances must be from 1"):
        grouping("osg").scheduler(0)
    with pytest.raises(ValueError, match="no instance 2 among 2"):
        grouping("osg").instance(2, 2)
