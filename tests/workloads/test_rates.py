import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard.core import OptionError
from steelyard.workloads import RATES, Constant, Ramp, Random, Rate, Sinusoid, Spike, Steps, Walk, parse_rate

speeds = st.floats(0.5, 1e5)
spans = st.floats(0.5, 100)


@st.composite
def spikes(draw: st.DrawFn) -> Spike:
    at, seconds, rest = draw(st.floats(0, 50)), draw(spans), draw(spans)
    return Spike(draw(speeds), draw(speeds), at, seconds, draw(st.sampled_from([0.0, at + seconds + rest])))


rates = st.one_of(
    st.builds(Constant, speeds),
    st.builds(Ramp, st.floats(0, 1e5), speeds, spans),
    st.builds(Sinusoid, speeds, st.floats(0, 1), spans),
    spikes(),
    st.builds(Steps, spans, st.lists(speeds, min_size=1, max_size=6).map(tuple)),
    st.builds(
        lambda a, b, s, seed: Walk(a, b, b / 2, a / 9, max(a, b), s, seed), speeds, speeds, spans, st.integers(0, 9)
    ),
    st.builds(lambda a, b, s, seed: Random(min(a, b), max(a, b), s, seed), speeds, speeds, spans, st.integers(0, 99)),
)


@settings(deadline=None)
@example(rate=Spike(1.0, 2.0, at=2e-6, seconds=1.0), until=1.0)
@given(rate=rates, until=st.floats(0.1, 300))
def test_rows_are_the_integral_of_the_rate(rate: Rate, until: float) -> None:
    cells = 200_000
    middles = (np.arange(cells) + 0.5) * until / cells
    quadrature = rate.rate(middles).sum() * until / cells
    # The midpoint rule is wrong by a cell's worth of each jump of the rate, also of those in the first and last cell.
    jumps = np.abs(np.diff(rate.rate(np.array([0.0, *middles, until])))).sum() * until / cells
    assert float(rate.rows_until(until)) == pytest.approx(quadrature, rel=1e-6, abs=jumps + 1e-6)


@settings(deadline=None)
@given(rate=rates, wanted=st.lists(st.floats(0, 1e7), min_size=1, max_size=20))
def test_the_time_of_a_row_is_the_inverse_of_the_integral(rate: Rate, wanted: list[float]) -> None:
    back = rate.rows_until(rate.time_of_row(wanted))
    assert back == pytest.approx(np.array(wanted), rel=1e-6, abs=0.01)


@settings(deadline=None)
@given(rate=rates, moments=st.lists(st.floats(0, 1e4), min_size=2, max_size=50))
def test_rows_never_get_fewer_and_times_never_go_back(rate: Rate, moments: list[float]) -> None:
    ordered = np.sort(moments)
    slack = 1e-9 * rate.rows_until(ordered[-1])
    assert np.all(np.diff(rate.rows_until(ordered)) >= -slack)
    assert np.all(np.diff(rate.time_of_row(np.arange(0, 5000, 7))) >= -1e-9)


@given(rate=rates)
def test_a_stream_begins_at_its_start(rate: Rate) -> None:
    assert float(rate.rows_until(0)) == 0
    assert float(rate.rows_until(-5)) == 0
    assert float(rate.time_of_row(0)) == pytest.approx(0)


def test_a_pause_is_waited_out() -> None:
    pausing = Steps(10, (100, 0))
    assert pausing.time_of_row([999, 1000, 1100]).tolist() == pytest.approx([9.99, 20.0, 21.0])


def test_random_rates_agree_by_seed_and_stay_between_their_bounds() -> None:
    levels = Random(100, 200, 1, seed=7).rate(np.arange(500))
    assert np.array_equal(levels, Random(100, 200, 1, seed=7).rate(np.arange(500)))
    assert not np.array_equal(levels, Random(100, 200, 1, seed=8).rate(np.arange(500)))
    assert levels.min() >= 100
    assert levels.max() <= 200


def test_a_walk_stays_between_its_bounds_and_its_steps_within_theirs() -> None:
    levels = np.array(Walk(500.0, down=30.0, up=20.0, low=300.0, high=520.0, seed=3).levels)
    steps = np.diff(levels)
    assert levels[0] == 500.0
    assert levels.min() == 300.0
    assert levels.max() <= 520.0
    assert (steps >= -30.0).all()
    assert (steps <= 20.0).all()
    assert levels.tolist() != list(Walk(500.0, 30.0, 20.0, 300.0, 520.0, seed=4).levels)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1000", Constant(1000)),
        (250, Constant(250)),
        ("constant:1e5", Constant(100_000)),
        ("sinusoid:1000,0.5,60", Sinusoid(1000, 0.5, 60)),
        ("sinusoid: 1000, period=30", Sinusoid(1000, 0.5, 30)),
        ("ramp:0,1000,60", Ramp(0, 1000, 60)),
        ("spike:100,1000,10,5,60", Spike(100, 1000, 10, 5, 60)),
        ("steps:10,100,0,300", Steps(10, (100, 0, 300))),
        ("random:100,200,5,7", Random(100, 200, 5, 7)),
        ("walk:100,20,30,seed=7", Walk(100.0, 20.0, 30.0, seed=7)),
    ],
)
def test_a_rate_can_be_written_as_text(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fast", "'fast' is not a number"),
        ("sinusiod:1,2,3", "did you mean 'sinusoid'"),
        ("sinusoid:1000,0.5,x", "'x' is not a number"),
        ("sinusoid:1000,perod=3", "did you mean 'period'"),
        ("sinusoid:1000,2", "amplitude must be between 0 and 1"),
        ("ramp:1,2", "lacks seconds"),
        ("constant:1,2", "at most constant:rows_per_second"),
        ("constant:0", "rows_per_second must be above 0"),
        ("nan", "not finite"),
        ("random:5,1", "low must not be above high"),
        ("spike:1,2,10,5,12", "at least at \\+ seconds = 15"),
        ("steps:10,0,0", "at least one rate above 0"),
        ("steps", "seconds must be above 0"),
    ],
)
def test_a_wrong_rate_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        parse_rate(text)


def test_every_rate_has_its_name() -> None:
    assert sorted(RATES) == ["constant", "ramp", "random", "sinusoid", "spike", "steps", "walk"]
