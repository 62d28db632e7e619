"""What a benchmark may say, and how it is written down."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench import Published, Result, Series, Table, Target
from steelyard.bench.display import readable
from steelyard.bench.result import plain
from steelyard.core import OptionError

numbers = st.one_of(st.integers(-(10**12), 10**12), st.floats(allow_nan=True, allow_infinity=True))
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), numbers, st.text(max_size=5), numbers.map(float).map(np.float64), st.just(object())
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)


@settings(deadline=None)
@given(values)
def test_whatever_a_benchmark_measures_can_be_written_as_strict_json(value):
    json.dumps(plain(value), allow_nan=False)


@settings(deadline=None)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_meets_exactly_one_side_of_a_bound_or_equals_it(value, bound):
    least = Target("m", at_least=bound).met({"m": value})
    most = Target("m", at_most=bound).met({"m": value})
    assert least or most
    assert (least and most) == (value == bound)


@pytest.mark.parametrize("target", [Target("m", at_least=1), Target("m", at_most=1)])
def test_what_is_not_a_number_meets_no_target(target):
    assert not target.met({"m": float("nan")})


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1, "at_most": 2}])
def test_a_target_has_one_bound(bounds):
    with pytest.raises(ValueError, match="needs either at_least or at_most"):
        Target("m", **bounds)


def test_a_published_figure_has_a_source():
    with pytest.raises(ValueError, match="needs its source"):
        Published(2.0, " ")


@pytest.mark.parametrize(
    "wrong",
    [
        {"targets": [Target("plan_msec", at_most=50)]},
        {"published": [Published(50, "a paper", "plan_msec")]},
        {"kinds": {"plan_msec": "simulated"}},
    ],
)
def test_a_metric_that_was_not_measured_is_named_with_the_nearest(wrong):
    with pytest.raises(OptionError, match="'plan_msec': did you mean 'plan_ms'"):
        Result({}, {"plan_ms": 1.0}, **wrong)


def test_the_record_tells_targets_met_and_missed_and_explains_the_miss_alone():
    result = Result(
        {"keys": 10},
        {"fast": 3.0, "slow": 80},
        targets=[
            Target("fast", at_least=2, explanation="was not needed"),
            Target("slow", at_most=50, explanation="the disk was busy"),
        ],
        kinds={"slow": "simulated"},
        published=[Published("2x to 5x", "a paper, Fig 1", "fast")],
    )
    record = result.to_dict()
    assert [target["met"] for target in record["targets"]] == [True, False]
    assert [target["explanation"] for target in record["targets"]] == ["", "the disk was busy"]
    assert record["kinds"] == {"fast": "measured", "slow": "simulated"}
    assert record["published"] == [{"metric": "fast", "value": "2x to 5x", "source": "a paper, Fig 1"}]


def test_tables_and_series_must_be_rectangular():
    with pytest.raises(ValueError, match="2 columns and a row of 1"):
        Table("t", ("a", "b"), [(1,)])
    with pytest.raises(ValueError, match="2 x and 1 y"):
        Series("s", [1, 2], [1])


@settings(deadline=None)
@given(st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5)))
def test_any_value_can_be_shown(value):
    assert isinstance(readable(value), str)
