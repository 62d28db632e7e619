"""What a user's Python gives becomes a column as it is, or is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from steelyard.core import BatchError
from steelyard.core.arrow import in_one_batch
from steelyard.spark.values import as_column, column_of

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


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        (np.array([3.0, 4.0]), pa.int64(), [3, 4]),
        (np.array([3, 4], np.int32), pa.float64(), [3.0, 4.0]),
        (pa.chunked_array([["a"], [None]]), pa.string(), ["a", None]),
        (pa.array(["a", "b"]).dictionary_encode(), pa.string(), ["a", "b"]),
        (np.array(["a", None], object), pa.string(), ["a", None]),
        ([1, None], pa.int32(), [1, None]),
        (pa.nulls(2), pa.int32(), [None, None]),
        (pa.array([[1], None]), pa.list_(pa.field("element", pa.int64())), [[1], None]),
        (pa.array([[1], [2]]), pa.list_(pa.int32()), [[1], [2]]),
        (np.array([3, 4]), pa.decimal128(20, 1), [Decimal(3), Decimal(4)]),
    ],
)
def test_a_column_of_all_keys_is_kept_as_it_is(values, kind, kept):
    assert as_column(values, kind, 2).to_pylist() == kept
    assert as_column(values, kind, 2).type == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array([3.5, 4.0]), pa.int64()),
        (np.array([3.0, np.nan]), pa.int64()),
        (np.array([1, 2**40]), pa.int32()),
        (np.array([1, 2]), pa.string()),
        (pa.array(["1", "2"]), pa.int64()),
        (np.array([0.1, 0.2]), pa.decimal128(10, 2)),
        (pa.array([[1], [2]]), pa.list_(pa.string())),
        (np.array([1, 2, 3]), pa.int64()),
        (7, pa.int64()),
        ("ab", pa.string()),
    ],
)
def test_a_column_of_all_keys_that_does_not_fit_is_refused(values, kind):
    with pytest.raises((TypeError, ValueError, pa.ArrowException)):
        as_column(values, kind, 2)


def test_more_text_than_a_batch_holds_is_told_with_a_remedy():
    size = 1_200_000_000  # zeros that nobody touches take no memory
    bounds = pa.py_buffer(np.array([0, size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(np.zeros(size, np.uint8))])
    part = pa.RecordBatch.from_arrays([column], ["text"])
    with pytest.raises(BatchError, match=r"more than 2 GB of one column: take more blocks"):
        in_one_batch([part, part], "take more blocks")
