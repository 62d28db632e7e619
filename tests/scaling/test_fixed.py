"""The policy that changes nothing."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.core import Action, BatchObservation
from steelyard.scaling import Fixed


@given(
    blocks=st.integers(1, 1000),
    buckets=st.integers(1, 1000),
    rows=st.integers(0, 10**9),
    seconds=st.floats(0, 100),
)
def test_the_numbers_of_tasks_stay_whatever_the_load(blocks, buckets, rows, seconds):
    assert Fixed().decide(BatchObservation(7, rows, 3, blocks, buckets, seconds, 1.0).at()) == Action()
