"""Documents of rows are what JSON makes of each row by itself."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.resident.documents import documents

TYPES = {
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "t": (pa.int8(), st.integers(-128, 127)),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text(max_size=8)),
    'na"me': (pa.string(), st.text("ab", max_size=3)),
    "x": (pa.float64(), st.floats()),
    "xs": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
}


def alone(row):
    """One row by itself."""
    spoken = {math.inf: "Infinity", -math.inf: "-Infinity"}
    odd = {
        name: spoken.get(value, "NaN")
        for name, value in row.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    return json.dumps({**row, **odd}, separators=(",", ":"), ensure_ascii=False)


@given(st.data())
def test_documents_are_those_of_rows_one_by_one(data):
    names = data.draw(st.lists(st.sampled_from(sorted(TYPES)), unique=True, max_size=4))
    count = data.draw(st.integers(0, 6))
    columns = {
        name: pa.array([data.draw(st.none() | TYPES[name][1]) for _ in range(count)], TYPES[name][0]) for name in names
    }
    rows = pa.table({"other": pa.array(range(count)), **columns})
    cut = data.draw(st.integers(0, count))
    for table in (rows, pa.concat_tables([rows[:cut], rows[cut:]])):
        assert documents(table, names) == [alone(row) for row in table.select(names).to_pylist()]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2024, 5, 1, 2, 3, 4, 567000, tzinfo=UTC), '"2024-05-01T02:03:04.567Z"'),
        (datetime(2024, 5, 1, 2, 3, 4), '"2024-05-01T02:03:04.000"'),
        (date(1969, 12, 31), '"1969-12-31"'),
        (Decimal("1.50"), '"1.50"'),
        (b"\x00\xff", '"AP8="'),
        ('a "quoted"\n\\', '"a \\"quoted\\"\\n\\\\"'),
        ("\u00e9\x7f\u2028", '"\u00e9\x7f\u2028"'),
    ],
)
def test_a_value_is_written_as_spark_writes_it(value, said):
    column = pa.array([value, None])
    assert documents(pa.table({"v": column}), ["v"]) == [f'{{"v":{said}}}', '{"v":null}']
