"""The time of a batch is shared out so that nothing is lost, and items end up with what they take by themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.grouping import TimeSplitter
from steelyard.kernels.osg_batches import OUTLIER
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
        usual = time / count * len(items) if count else 0.0
        believed = min(seconds, OUTLIER * max(whole, usual)) if usual else seconds
        plain.scale(0.5)
        for item, share in zip(items, wanted, strict=True):
            plain.add(item, share * (believed / seconds) if seconds else 0.0, conservative=False)
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


def trained(related, slices=1000):
    """A splitter that has seen slices of four tuples of two items, and what draws the next one."""
    rng = np.random.default_rng(7)
    splitter = TimeSplitter()

    def learn(pause=0.0):
        items = rng.integers(0, 2, 4)
        costs = 0.001 + 0.004 * (items if related else rng.integers(0, 2, 4))
        splitter.split(items, float(costs.sum()) + pause)

    for _ in range(slices):
        learn()
    return splitter, learn


@pytest.mark.parametrize(("related", "least", "most"), [(True, 0.9, 1.0), (False, 0.0, 0.35)])
def test_items_are_trusted_as_far_as_they_tell_costs(related, least, most):
    splitter, learn = trained(related)
    found = []
    for _ in range(200):
        learn()
        found.append(splitter.trust)
    assert least <= float(np.median(found)) <= most


def test_one_pause_does_not_end_the_trust_in_items():
    splitter, learn = trained(related=True)
    before = splitter.trust
    splitter.split(np.zeros(4, np.int64), 2.0)  # a slice of cheap tuples that was held up
    for _ in range(20):
        learn()
    assert splitter.trust > 0.8 * before


def test_an_item_that_takes_far_longer_than_all_others_is_learnt_in_a_few_slices():
    splitter, _ = trained(related=True)
    for _ in range(8):
        splitter.split(np.array([9]), 1.0)
    shares = splitter.split(np.array([9, 0]), 1.001)
    assert shares[0] > 0.9


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
