"""Elasticity zones: when tasks are added and removed, how many, and of which stage."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.core import BLOCKS, BUCKETS, BatchObservation, Learning, OptionError
from steelyard.scaling import Zones, elasticity, elasticity_names

ROWS, KEYS = 10_000, 1_000

parameters = st.fixed_dictionaries(
    {
        "threshold": st.sampled_from([0.5, 0.9, 1.0]),
        "step": st.sampled_from([0.0, 0.1, 0.3]),
        "patience": st.integers(1, 4),
        "increment": st.sampled_from(["unit", "proportional"]),
        "careful": st.booleans(),
        "least_blocks": st.integers(1, 3),
        "least_buckets": st.integers(1, 3),
        "most_blocks": st.sampled_from([0, 3, 9]),
        "most_buckets": st.sampled_from([0, 3, 9]),
    }
)
batches = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.floats(0, 50)), min_size=1, max_size=40)


class Asked(NamedTuple):
    """Numbers of tasks of the next batch, and why."""

    blocks: int
    buckets: int
    reason: str


def asked(policy, batch):
    """What a batch brings about."""
    action = policy.decide(batch.at())
    tasks = batch.at().parallelism | action.parallelism
    return Asked(tasks[BLOCKS], tasks[BUCKETS], action.reason)


def followed(policy, batches, blocks=4, buckets=4, **seen):
    """The decisions after each batch of (rows, keys, load), every one of which is obeyed."""
    decisions = []
    for number, (rows, keys, load) in enumerate(batches):
        decision = asked(policy, BatchObservation(number, rows, keys, blocks, buckets, load, 1.0, **seen))
        decisions.append(decision)
        blocks, buckets = decision.blocks, decision.buckets
    return decisions


def tasks(decisions):
    return [(decision.blocks, decision.buckets) for decision in decisions]


def steady(load, batches):
    return [(ROWS, KEYS, load)] * batches


class Cluster:
    """A batch takes one over the tasks: what a row and a key cost is such that 4 and 4 tasks are at load 0.85."""

    def __init__(self, policy, blocks=4, buckets=4):
        self.policy, self.blocks, self.buckets = policy, blocks, buckets
        self.loads = []

    def run(self, rows, keys):
        seconds = 0.85 * 4 / 2 * (rows / ROWS / self.blocks + keys / KEYS / self.buckets)
        self.loads.append(seconds)
        decision = asked(
            self.policy, BatchObservation(len(self.loads), rows, keys, self.blocks, self.buckets, seconds, 1.0)
        )
        self.blocks, self.buckets = decision.blocks, decision.buckets
        return decision


# What always holds


@given(parameters, batches, st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 6]))
@settings(deadline=None)
def test_numbers_of_tasks_never_leave_their_bounds(given_parameters, batches, blocks, buckets, slots):
    policy = Zones(**given_parameters)
    most_blocks = policy.most_blocks or max(slots, policy.least_blocks)
    most_buckets = policy.most_buckets or max(slots, policy.least_buckets)
    for decision in followed(policy, batches, blocks, buckets, slots=slots):
        assert policy.least_blocks <= decision.blocks <= most_blocks
        assert policy.least_buckets <= decision.buckets <= most_buckets


@given(batches, st.integers(1, 20), st.integers(1, 20))
@settings(deadline=None)
def test_nothing_changes_while_the_load_stays_in_zone_two(batches, blocks, buckets):
    stable = [(rows, keys, 0.801 + load / 50 * 0.099) for rows, keys, load in batches]
    assert tasks(followed(Zones(patience=1), stable, blocks, buckets)) == [(blocks, buckets)] * len(stable)


@given(parameters, batches)
@settings(deadline=None)
def test_a_change_is_never_reversed_within_the_grace_period(given_parameters, batches):
    policy = Zones(**given_parameters)
    inside = policy.least_blocks, policy.least_buckets
    sizes = [sum(inside), *(sum(pair) for pair in tasks(followed(policy, batches, *inside)))]
    moves = [(batch, np.sign(size)) for batch, size in enumerate(np.diff(sizes)) if size]
    for (batch, way), (later, next_way) in pairwise(moves):
        assert later - batch > policy.patience or way == next_way


@given(parameters, batches)
@settings(deadline=None)
@example(
    {"threshold": 0.5, "step": 0.0, "patience": 1, "increment": "proportional"},
    [(0, 0, 0.0), *[(0, 0, 1.0)] * 4, *[(0, 0, 2.0)] * 6, (1, 0, 2.0), (2, 0, 1.0)],
)
def test_rows_alone_never_move_buckets_and_keys_alone_never_move_blocks(given_parameters, batches):
    policy = Zones(**{**given_parameters, "most_blocks": 0, "most_buckets": 0})
    blocks, buckets = 500, 500  # far from any bound
    for number, (rows, keys, load) in enumerate(batches):
        decision = asked(policy, BatchObservation(number, rows, keys, blocks, buckets, min(load, 1.2), 1.0))
        evidence = decision.reason.partition("; ")[2].partition(":")[0]
        if evidence.startswith("rows") and "keys" not in evidence:
            assert decision.buckets == buckets
        if evidence.startswith("keys"):
            assert decision.blocks == blocks
        blocks, buckets = (min(max(300, tasks), 900) for tasks in (decision.blocks, decision.buckets))


@given(parameters, batches, st.integers(0, 40))
@settings(deadline=None)
def test_a_restored_policy_goes_on_as_the_first_would(given_parameters, batches, cut):
    policy, other = Zones(**given_parameters), Zones(**given_parameters)
    followed(policy, batches[:cut])
    other.restore(policy.state())
    assert followed(other, batches[cut:]) == followed(policy, batches[cut:])


@given(batches)
@settings(deadline=None)
def test_every_change_has_its_reason_in_words(batches):
    before = (4, 4)
    for decision in followed(Zones(patience=1), batches):
        now = (decision.blocks, decision.buckets)
        assert now == before or (decision.reason.startswith("W = ") and "->" in decision.reason)
        before = now


@given(st.floats(0.2, 8.0), st.floats(0.2, 8.0), st.sampled_from(["unit", "proportional"]), st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_a_step_of_the_stream_is_answered_once_and_then_all_is_quiet(more_rows, more_keys, increment, patience):
    cluster = Cluster(Zones(patience=patience, increment=increment))
    for _ in range(3 * patience):
        cluster.run(ROWS, KEYS)
    settled = [
        (cluster.run(ROWS * more_rows, KEYS * more_keys), cluster.blocks, cluster.buckets)[1:] for _ in range(250)
    ]
    assert cluster.loads[-1] <= 0.9
    assert len(set(settled[-100:])) == 1


# Worked examples


def test_three_batches_above_the_threshold_add_tasks_with_the_third():
    assert tasks(followed(Zones(), steady(1.2, 3))) == [(4, 4), (4, 4), (5, 5)]


def test_a_batch_in_the_band_starts_the_count_anew():
    loads = [1.2, 1.2, 0.9, 1.2, 1.2]
    assert tasks(followed(Zones(), [(ROWS, KEYS, load) for load in loads]))[-1] == (4, 4)


def test_the_process_repeats_until_the_load_is_below_the_threshold():
    cluster = Cluster(Zones(patience=1))
    for _ in range(30):
        cluster.run(2 * ROWS, 2 * KEYS)
    first = next(batch for batch, load in enumerate(cluster.loads) if load <= 0.9)
    assert first == 4  # 8 and 8 tasks, one more of each after each batch
    assert all(load <= 0.9 for load in cluster.loads[first:])


def test_a_spike_of_two_is_over_after_one_proportional_change():
    cluster = Cluster(Zones(patience=1, increment="proportional"))
    cluster.run(ROWS, KEYS)
    for _ in range(4):
        cluster.run(2 * ROWS, 2 * KEYS)
    assert [load > 0.9 for load in cluster.loads] == [False, True, False, False, False]
    assert (cluster.blocks, cluster.buckets) == (8, 8)  # ceil(4 * 1.7 / 0.9) of each


@pytest.mark.parametrize(
    ("rows", "keys", "expected"), [(1.5, 1.0, (5, 4)), (1.0, 1.5, (4, 5)), (1.5, 1.5, (5, 5)), (1.04, 1.5, (4, 5))]
)
def test_rows_add_map_tasks_and_keys_add_reduce_tasks(rows, keys, expected):
    batches = [*steady(0.85, 3), *[(round(ROWS * rows), round(KEYS * keys), 1.0)] * 3]
    assert tasks(followed(Zones(), batches))[-1] == expected


@pytest.mark.parametrize(("rows", "keys", "expected"), [(0.5, 1.0, (3, 4)), (1.0, 0.5, (4, 3)), (0.5, 0.5, (3, 3))])
def test_rows_remove_map_tasks_and_keys_remove_reduce_tasks(rows, keys, expected):
    batches = [*steady(0.85, 3), *[(round(ROWS * rows), round(KEYS * keys), 0.5)] * 3]
    assert tasks(followed(Zones(), batches))[-1] == expected


def test_after_a_scale_out_tasks_are_removed_when_the_grace_period_is_over():
    batches = [*steady(1.2, 3), *steady(0.3, 6)]
    sizes = [sum(pair) for pair in tasks(followed(Zones(), batches))]
    assert sizes == [8, 8, 10, 10, 10, 10, 9, 9, 9]


def test_the_slower_stage_gets_a_task_where_neither_rows_nor_keys_rose():
    slow_map = followed(Zones(), steady(1.2, 3), map_seconds=0.9, reduce_seconds=0.3)
    slow_reduce = followed(Zones(), steady(1.2, 3), map_seconds=0.3, reduce_seconds=0.9)
    assert (tasks(slow_map)[-1], tasks(slow_reduce)[-1]) == ((5, 4), (4, 5))


def test_the_faster_stage_loses_a_task_where_neither_rows_nor_keys_fell():
    slow_map = followed(Zones(), steady(0.4, 3), map_seconds=0.3, reduce_seconds=0.1)
    assert tasks(slow_map)[-1] == (4, 3)
    assert tasks(followed(Zones(), steady(0.4, 3), blocks=6, buckets=4))[-1] == (5, 4)  # nobody measured


def test_a_stage_at_its_bound_leaves_the_change_to_the_other():
    batches = [*steady(0.85, 3), *[(2 * ROWS, KEYS, 1.0)] * 3]
    assert tasks(followed(Zones(most_blocks=4), batches))[-1] == (4, 5)


def test_slots_bound_the_tasks_and_the_decision_says_that_nothing_can_change():
    decisions = followed(Zones(patience=1), steady(3.0, 4), slots=5)
    assert tasks(decisions)[-1] == (5, 5)
    assert decisions[-1].reason == "W = 3, above 0.9 for 1 batch; no stage can change"


def test_a_careful_policy_does_not_remove_a_task_that_would_be_added_again():
    assert tasks(followed(Zones(), steady(0.6, 9), 2, 1))[-1] == (2, 1)
    assert tasks(followed(Zones(careful=False), steady(0.6, 3), 2, 1))[-1] == (1, 1)


def test_numbers_outside_the_bounds_are_brought_inside_at_once():
    decision = asked(Zones(least_blocks=2, most_buckets=4), BatchObservation(0, ROWS, KEYS, 1, 9, 0.85, 1.0))
    assert decision == Asked(2, 4, "numbers of tasks brought within their bounds")


def test_without_an_interval_nothing_changes():
    policy = Zones(patience=1)
    for batch in range(5):
        decision = asked(policy, BatchObservation(batch, ROWS, KEYS, 4, 4, 9.0, 0.0))
        assert (decision.blocks, decision.buckets) == (4, 4)
    assert decision.reason == "W is not known: the query has no interval"
    assert policy.needs == ("batch.load",)


def test_an_interval_of_its_own_takes_the_place_of_the_trigger():
    policy = Zones(patience=1, interval=10.0)
    decision = asked(policy, BatchObservation(0, ROWS, KEYS, 4, 4, 12.0, 60.0))
    assert decision.reason == "W = 1.2, above 0.9 for 1 batch; rows and keys as before: blocks 4 -> 5, buckets 4 -> 5"
    assert policy.needs == ("batch",)


# By name


def test_a_name_with_parameters_makes_the_policy():
    policy = elasticity("zones?threshold=0.8&patience=2&increment=proportional&careful=no&most_blocks=16")
    assert repr(policy) == repr(
        Zones(threshold=0.8, patience=2, increment="proportional", careful=False, most_blocks=16)
    )
    assert elasticity(policy) is policy


def test_a_wrong_name_or_parameter_names_the_right_ones():
    with pytest.raises(OptionError, match=f"did you mean 'zones'.*There are: {', '.join(elasticity_names())}"):
        elasticity("zonez")
    with pytest.raises(OptionError, match="did you mean 'patience'"):
        elasticity("zones?patince=2")
    with pytest.raises(OptionError, match="'patience' of zones must be a whole number, got 'two'"):
        elasticity("zones?patience=two")
    with pytest.raises(OptionError, match="given twice"):
        elasticity("zones?step=0.1&step=0.2")
    for thing in (Zones, 3, object()):
        with pytest.raises(OptionError, match="an elasticity policy is a name or an object"):
            elasticity(thing)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("threshold", 0.0),
        ("step", 0.9),
        ("step", -0.1),
        ("patience", 0),
        ("dead_band", -1.0),
        ("increment", "double"),
        ("least_blocks", 0),
        ("least_buckets", 0),
        ("most_blocks", -1),
        ("most_buckets", -1),
        ("interval", float("inf")),
    ],
)
def test_a_parameter_that_cannot_be_names_itself(parameter, value):
    with pytest.raises(OptionError, match=f"{parameter}"):
        Zones(**{parameter: value})


def test_a_bound_below_the_other_is_refused():
    with pytest.raises(OptionError, match="most_blocks of zones must be 0, or at least least_blocks, got 2"):
        Zones(least_blocks=3, most_blocks=2)


def test_zones_have_a_state_to_keep():
    assert isinstance(Zones(), Learning)
