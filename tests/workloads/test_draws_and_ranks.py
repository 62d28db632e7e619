import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.workloads.draws import Draws, mixed, quantile_table
from steelyard.workloads.ranks import RankTable, rank_table

MANY = np.arange(200_000, dtype=np.uint64)


def splitmix64(state: int) -> int:
    """The published algorithm, in plain Python."""
    word = (1 << 64) - 1
    z = state & word
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
    return z ^ (z >> 31)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_the_mix_is_that_of_splitmix64(words: list[int]) -> None:
    assert mixed(np.array(words, dtype=np.uint64)).tolist() == [splitmix64(word) for word in words]


@given(seed=st.integers(-(2**70), 2**70), below=st.integers(1, 2**32))
def test_integers_stay_below_their_bound(seed: int, below: int) -> None:
    drawn = Draws(seed, MANY[:500]).integers("n", below)
    assert drawn.min() >= 0
    assert drawn.max() < below


def test_uniform_draws_fill_the_unit_interval_evenly() -> None:
    drawn = Draws(5, MANY).uniform("u")
    counts, _ = np.histogram(drawn, bins=100, range=(0, 1))
    # 2,000 expected in each; the chi-square of 99 degrees of freedom is below 160 but once in 10^4 seeds.
    assert ((counts - 2000) ** 2 / 2000).sum() < 160
    assert drawn.min() >= 0
    assert drawn.max() < 1


@pytest.mark.parametrize("other", [Draws(5, MANY).uniform("v"), Draws(6, MANY).uniform("u")])
def test_streams_and_seeds_are_independent(other: np.ndarray) -> None:
    assert abs(np.corrcoef(Draws(5, MANY).uniform("u"), other)[0, 1]) < 0.01


def test_neighbouring_rows_are_independent() -> None:
    drawn = Draws(5, MANY).uniform("u")
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.01


def test_draws_follow_their_quantiles() -> None:
    drawn = Draws(1, MANY).distributed("x", quantile_table(lambda p: p**2))
    assert np.quantile(drawn, [0.25, 0.5, 0.75]) == pytest.approx([0.0625, 0.25, 0.5625], abs=0.005)


@given(
    exponent=st.floats(0, 4),
    keys=st.integers(1, 3000),
    shift=st.floats(0, 50),
    seed=st.integers(0, 1000),
)
def test_the_guide_finds_what_a_plain_search_finds(exponent: float, keys: int, shift: float, seed: int) -> None:
    table = RankTable(exponent, keys, shift)
    inside = table.cumulative[:-1]  # the numbers at which the answer changes
    wanted = np.concatenate([np.random.default_rng(seed).random(200), [0.0, 1 - 2**-53], inside[inside < 1]])
    plain = np.searchsorted(table.cumulative, wanted, side="right")
    assert np.array_equal(table.ranks(wanted), np.minimum(plain, keys - 1))


@pytest.mark.parametrize("exponent", [0.1, 0.5, 1.0, 1.4, 2.0])
def test_shares_of_ranks_are_those_of_zipf(exponent: float) -> None:
    table = rank_table(exponent, 1000)
    seen = np.bincount(table.ranks(Draws(3, MANY).uniform("rank")), minlength=1000) / len(MANY)
    weights = np.arange(1, 1001) ** -exponent
    assert np.abs(seen - weights / weights.sum()).max() < 0.005
    assert table.shares.sum() == pytest.approx(1)


def test_shared_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        rank_table(1.0, 10).cumulative[0] = 0
