"""How far a reader is behind: against a log whose every row has its moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.resident.lag import LagMeter


@given(
    grown=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    read=st.lists(st.floats(0, 1), min_size=40, max_size=40),
)
def test_a_row_waits_since_it_came(grown, read):
    """Rows come evenly within a second: row n of a log is as old as the exact time says."""
    meter, came, offset = LagMeter(), [0.0] * grown[0], 0
    for second, rows in enumerate(grown):
        if second:
            came += [second - 1 + row / rows for row in range(rows)]
        offset += int(read[second] * (len(came) - offset))
        seen = meter.look(len(came), offset, float(second))
        assert (seen.end, seen.lag, seen.arrived) == (len(came), len(came) - offset, len(came) - grown[0])
        assert seen.seconds == pytest.approx(second - came[offset] if offset < len(came) else 0.0, abs=1e-9)


def test_of_a_long_wait_every_other_look_is_forgotten_and_the_oldest_row_is_not():
    meter = LagMeter()
    for moment in range(5000):
        seen = meter.look(10 * moment, 0, float(moment))
        assert len(meter._ends) <= 513
    assert seen.seconds == 4999.0
    assert meter.look(50_000, 30_000, 5000.0).seconds == pytest.approx(2000.0, abs=8.0)
    assert meter.look(50_000, 50_000, 5001.0).seconds == 0.0
