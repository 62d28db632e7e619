"""Distributors: every row goes somewhere, rows of a key meet where they must, and learnt state is kept."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.dataflow import BROADCAST, FORWARD, GLOBAL, SHUFFLE, Edge, Grouping, Route
from steelyard.core.topology import Instance
from steelyard.resident.routing import distributor

POLICIES = ["dalton", "pk2", "cam", "prompt", "w_choices", "auto"]
keys = st.lists(st.one_of(st.none(), st.sampled_from("abcdef")), max_size=80)


def made(grouping, receivers, sender=1):
    return distributor(Edge("from", "to", grouping), Instance("from", sender), receivers)


def batch_of(found):
    numbers = np.arange(len(found))
    return pa.record_batch({"key": pa.array(found, pa.string()), "n": numbers})


def sent(chooses, batch):
    return [(to, part["key"].to_pylist(), part["n"].to_pylist()) for to, part in chooses.split(batch)]


groupings = st.sampled_from(
    [SHUFFLE, Grouping(Route.HASH, ("key",)), *(Grouping(Route.POLICY, ("key",), name) for name in POLICIES)]
)


@settings(max_examples=60)
@given(keys, groupings, st.integers(1, 4))
def test_every_row_goes_to_one_instance_and_each_instance_keeps_their_order(found, grouping, receivers):
    parts = sent(made(grouping, receivers), batch_of(found))
    assert sorted(n for _, _, numbers in parts for n in numbers) == list(range(len(found)))
    assert all(numbers == sorted(numbers) for _, _, numbers in parts)
    assert all(0 <= to < receivers for to, _, _ in parts)
    assert max(Counter(to for to, _, _ in parts).values(), default=0) <= 1


@given(keys, st.integers(1, 4))
def test_by_hash_the_rows_of_a_key_meet_whichever_instance_sends_them(found, receivers):
    where = {}
    for sender in (0, 1):
        for to, part, _ in sent(made(Grouping(Route.HASH, ("key",)), receivers, sender), batch_of(found)):
            for key in part:
                assert where.setdefault(key, to) == to


def test_wirings_send_the_batch_as_it_is():
    batch = batch_of(["a", "b"])
    assert [(to, part.equals(batch)) for to, part in made(FORWARD, 3).split(batch)] == [(1, True)]
    assert [(to, part.equals(batch)) for to, part in made(GLOBAL, 3).split(batch)] == [(0, True)]
    assert [(to, part.equals(batch)) for to, part in made(BROADCAST, 3).split(batch)] == [(to, True) for to in range(3)]


def test_shuffled_rows_go_in_turn_from_batch_to_batch():
    chooses = distributor(Edge("a", "b", Grouping(Route.SHUFFLE)), Instance("a", 1), 3)
    went = {}
    for rows in (1, 2, 7, 0, 9000):
        batch = pa.record_batch({"n": np.arange(len(went), len(went) + rows)})
        for to, part in chooses.split(batch):
            numbers = part.column("n").to_pylist()
            assert numbers == sorted(numbers)
            went |= dict.fromkeys(numbers, to)
    assert went == {number: (number + 1) % 3 for number in range(9010)}


@pytest.mark.parametrize("name", ["dalton", "cam"])
def test_a_policy_goes_on_with_what_it_has_learnt(name):
    grouping = Grouping(Route.POLICY, ("key",), name)
    first, second = made(grouping, 3), made(grouping, 3)
    batch = batch_of(list("aaaaabbbbcccdde") * 20)
    list(first.split(batch))
    second.restore(first.state())
    assert first.state() == second.state()


def test_what_is_compiled_is_loaded_before_rows_come():
    chooses = made(Grouping(Route.POLICY, ("key",), "dalton"), 3)
    before = chooses.state()
    chooses.prepare(batch_of([]).schema)
    assert chooses.state() == before
