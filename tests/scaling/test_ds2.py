"""DS2."""

from __future__ import annotations

from steelyard.core import Observation, OperatorObservation
from steelyard.scaling import DS2


def observed(*operators):
    return Observation(15.0, 15.0, operators)


def test_one_pass_sets_every_operator():
    source = OperatorObservation("log", 2, {}, processed_per_second=60_000, busy=0.6, arrived_per_second=100_000)
    parse = OperatorObservation("map", 3, {"log": 60_000}, processed_per_second=60_000, busy=0.8)
    exactly = DS2(overprovisioning=0).decide(observed(source, parse))
    assert exactly.parallelism == {"log": 2, "map": 4}
    assert DS2().decide(observed(source, parse)).parallelism == {"log": 3, "map": 5}


def test_the_surplus_comes_on_top_of_whole_instances():
    source = OperatorObservation("log", 1, {}, processed_per_second=100, busy=1.0, arrived_per_second=210)
    assert DS2().decide(observed(source)).parallelism == {"log": 4}


def test_a_filter_lets_its_receiver_expect_less():
    source = OperatorObservation("log", 1, {}, processed_per_second=100, busy=0.5, arrived_per_second=1000)
    keep = OperatorObservation("filter", 1, {"log": 100}, processed_per_second=100, busy=0.5)
    count = OperatorObservation("count", 1, {"filter": 10}, processed_per_second=10, busy=0.5)
    assert DS2(overprovisioning=0).decide(observed(source, keep, count)).parallelism == {
        "log": 5,
        "filter": 5,
        "count": 5,
    }


def test_behind_a_fork_each_receiver_expects_what_comes_to_it():
    """What a sender puts out on all of its edges together is more than any of its receivers gets."""
    source = OperatorObservation("log", 1, {}, processed_per_second=100, busy=0.5, arrived_per_second=200)
    left = OperatorObservation("left", 1, {"log": 100}, processed_per_second=100, busy=0.5)
    right = OperatorObservation("right", 1, {"log": 30}, processed_per_second=30, busy=0.5)
    both = OperatorObservation("both", 1, {"left": 100, "right": 30}, processed_per_second=130, busy=1.0)
    found = DS2(overprovisioning=0).decide(observed(source, left, right, both)).parallelism
    assert found == {"log": 1, "left": 1, "right": 1, "both": 2}


def test_an_operator_that_did_nothing_stays_as_it_is():
    idle = OperatorObservation("log", 7, {}, processed_per_second=0.0, busy=0.0, arrived_per_second=10)
    assert DS2().decide(observed(idle)).parallelism == {"log": 7}
