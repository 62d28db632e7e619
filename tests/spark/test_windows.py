"""Which panes windows still need, by formula, beside trying one pane after the other."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.spark.program import Window
from steelyard.spark.windows import first_open, last_end


@given(st.integers(1, 90), st.integers(0, 200), st.integers(-10_000, 10_000))
def test_the_first_open_pane_is_the_first_whose_last_window_is_not_closed(slide, longer, watermark):
    window = Window(slide + longer, slide)
    found = first_open(window, watermark)
    assert last_end(window, found) > watermark
    assert last_end(window, found - 1) <= watermark


def test_rows_long_before_all_others_cost_no_time():
    assert first_open(Window(60_000_000, 1_000_000), 1_700_000_000_000_000) == 1_699_999_941
