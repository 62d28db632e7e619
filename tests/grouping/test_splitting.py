"""The time of a batch is shared out so that nothing is lost, and items end up with what they take by themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.grouping import TimeSplitter
from tests.kernels.twins.osg_sketch import PlainSketch


@given(st.lists(st.tuples(st.lists(st.integers(-5, 5), min_size=1, max_size=9), st.floats(0, 10)), max_size=20))
def test_shares_add_up_and_are_those_of_the_plain_twin(batches):
    splitter = TimeSplitter(columns=3, rows=2, keep=0.5)
    plain = PlainSketch([tuple(pair) for pair in splitter._hashes.tolist()], columns=3)
    for items, seconds in batches:
        shares = splitter.split(np.array(items), seconds)
        count, time = (sum(cell[part] for cell in plain.cells[0]) for part in (0, 1))
        thought = [plain.estimate(item, time / count if count else 0.0) for item in items]
        whole = sum(thought)
        wanted = [seconds * (one / whole) if whole else seconds / len(items) for one in thought]
        plain.scale(0.5)
        for item, share in zip(items, wanted, strict=True):
            plain.add(item, share, conservative=False)
        assert shares == pytest.approx(wanted, abs=1e-9)
        assert shares.sum() == pytest.approx(seconds)


def test_items_get_what_they_take_by_themselves():
    rng = np.random.default_rng(2)
    cost = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    splitter = TimeSplitter()
    for _ in range(3000):
        items = rng.integers(0, len(cost), 8)
        splitter.split(items, float(cost[items].sum()))
    items = np.arange(len(cost))
    shares = splitter.split(items, float(cost.sum()))
    assert shares == pytest.approx(cost, abs=2.0)  # shared out evenly, each would have 10.5


def test_a_splitter_goes_on_with_what_it_knows():
    first, second = TimeSplitter(), TimeSplitter()
    first.split(np.array([1, 2]), 4.0)
    first.split(np.array([1]), 1.0)
    second.restore(first.state())
    assert first.split(np.array([1, 2]), 4.0).tolist() == second.split(np.array([1, 2]), 4.0).tolist()
    with pytest.raises(OptionError, match="cells"):
        TimeSplitter(columns=3).restore(first.state())
    with pytest.raises(OptionError, match="keep must be"):
        TimeSplitter(keep=0)


@given(st.lists(st.tuples(st.lists(st.integers(-5, 5), max_size=4), st.floats(0, 10)), max_size=20))
def test_several_batches_at_once_are_split_as_one_after_the_other(batches):
    together, apart = TimeSplitter(columns=3, rows=2), TimeSplitter(columns=3, rows=2)
    items = np.array([item for some, _ in batches for item in some], np.int64)
    sizes = np.array([len(some) for some, _ in batches], np.int64)
    found = together.split_each(items, sizes, np.array([seconds for _, seconds in batches]))
    wanted = [apart.split(np.array(some, np.int64), seconds) for some, seconds in batches]
    assert np.array_equal(found, np.concatenate([*wanted, np.empty(0)]))
    assert np.array_equal(together.state()["splits"], apart.state()["splits"])
