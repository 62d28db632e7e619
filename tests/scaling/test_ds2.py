"""DS2."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from steelyard.core import InstanceObservation, Observation, OperatorObservation
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
    quiet = OperatorObservation("log", 7, {}, idle=1.0, arrived_per_second=0.0)
    after = OperatorObservation("map", 5, {"log": 0.0}, idle=1.0)
    assert DS2().decide(observed(quiet, after)).parallelism == {"log": 7, "map": 5}


def test_the_true_rate_is_the_mean_of_what_each_instance_could_do():
    """One does 100 rows in a second of work and one does 50: 75 each, whatever either of them had to do."""
    each = [
        InstanceObservation("log#0", processed_per_second=90.0, busy=0.9, arrived_per_second=100.0),
        InstanceObservation("log#1", processed_per_second=10.0, busy=0.2, arrived_per_second=100.0),
        InstanceObservation("log#2", idle=1.0, arrived_per_second=100.0),
    ]
    exactly = DS2(overprovisioning=0)
    assert exactly.decide(observed(OperatorObservation.of("log", each, {}))).parallelism == {"log": 4}


@given(
    target=st.floats(1.0, 1e7),
    rates=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=5),
    ratios=st.lists(st.floats(0.01, 3.0), min_size=5, max_size=5),
    reads=st.floats(0.1, 1.0),
)
def test_it_asks_for_the_fewest_that_keep_up_with_what_comes(target, rates, ratios, reads):
    """Against the definition: rows that come, over what an instance can do, from operator to operator."""
    operators, expected, comes = [], {}, target
    for number, (rate, ratio) in enumerate(zip(rates, ratios, strict=False)):
        now = comes * reads  # all of them see the same share of what would come
        senders = {f"o{number - 1}": now} if number else {}
        arrives = {} if number else {"arrived_per_second": target}
        busy = now / rate
        instances = int(busy) + 1
        operators.append(
            OperatorObservation(
                f"o{number}", instances, senders, processed_per_second=now, busy=busy / instances, **arrives
            )
        )
        expected[f"o{number}"] = comes / rate
        comes *= ratio
    found = DS2(overprovisioning=0).decide(observed(*operators)).parallelism
    for name, needed in expected.items():
        assert max(1, ceil(needed * (1 - 1e-8) - 1e-8)) <= found[name] <= max(1, ceil(needed * (1 + 1e-8)))
