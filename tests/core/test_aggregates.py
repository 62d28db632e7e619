"""Built-in aggregates: what they read, and the names under which states of them are kept."""

import pytest
from pyspark.sql import types as T

import steelyard as sy
from steelyard.core import OptionError
from steelyard.resident.aggregates import _kept
from steelyard.spark.program import _described

OF_A_COLUMN = (sy.sum, sy.min, sy.max, sy.mean, sy.variance, sy.approx_distinct, sy.collect, sy.top_k)


@pytest.mark.parametrize("make", OF_A_COLUMN)
@pytest.mark.parametrize("column", [None, 3, ("a",)])
def test_only_rows_can_be_counted_without_a_column(make, column):
    with pytest.raises(OptionError, match=f"{make.__name__} takes the name of a column, as in sy.{make.__name__}"):
        make(column)
    assert sy.count().columns == ()
    with pytest.raises(OptionError, match="count takes the name of a column"):
        sy.count(3)


def test_states_are_kept_under_names_that_never_change():
    """Another name here, and no snapshot and no checkpoint of before is gone on with."""
    assert _kept(sy.count()) == "Aggregate(function='count', column=None)"
    assert _kept(sy.sum("fare")) == "Aggregate(function='sum', column='fare')"
    rows = T.StructType().add("fare", "double").add("at", "timestamp")
    assert _described(sy.count(), rows) == "count()"
    assert _described(sy.mean("fare"), rows) == "mean(fare double)"
    assert _described(sy.top_k("fare", k=3), rows) == "top_k(fare double, k=3)"
