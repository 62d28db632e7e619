"""What a user's Python gives becomes a column as it is, or is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from steelyard.spark.values import column_of

RECORD = pa.struct({"a": pa.int64(), "b": pa.float64()})
COUNTS = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, np.int64(3), 2.0], pa.int64()),
        ([0.5, None], pa.float64()),
        ([[1, 2], None, []], pa.list_(pa.int32())),
        ([{"a": 1, "b": 0.5}, None, {"a": None, "b": None}], RECORD),
        ([[("x", 1)], None], COUNTS),
        (["a", None], pa.string()),
    ],
)
def test_what_fits_is_kept_as_it_is(values, kind):
    assert column_of(values, kind).to_pylist() == values


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0.5, pa.int64()),
        (np.float32(0.5), pa.int8()),
        (Decimal("1.5"), pa.int64()),
        ([1, 0.5], pa.list_(pa.int32())),
        (np.array([1, 0.5]), pa.list_(pa.int32())),
        ({"a": 1.5, "b": 0.5}, RECORD),
        ((1.5, 0.5), RECORD),
        ([("a", 1.5), ("b", 0.5)], RECORD),
        ({"x": 1.5}, COUNTS),
        ("a", pa.int64()),
        (float("nan"), pa.int64()),
    ],
)
def test_what_does_not_fit_is_refused_and_never_cut(value, kind):
    with pytest.raises((ValueError, TypeError)):
        column_of([value], kind)
