import numpy as np
import pytest

from steelyard.core import OptionError
from steelyard.workloads import WORKLOADS, Arrivals, Constant, Zipf, parse_rate, workload


def test_a_workload_is_made_by_its_name() -> None:
    assert workload("zipf", exponent=1.2, keys=10_000, seed=7) == Zipf(exponent=1.2, keys=10_000, seed=7)


def test_numbers_may_be_text() -> None:
    assert workload("zipf", exponent="1.2", keys="1e4", seed="7") == Zipf(1.2, 10_000, seed=7)


def test_a_large_seed_keeps_all_its_digits() -> None:
    assert workload("zipf", seed=str(2**63 - 1)).seed == 2**63 - 1


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("zpif", {}, "unknown workload 'zpif': did you mean 'zipf'"),
        ("zipf", {"exponnet": 1}, "unknown parameter of workload zipf 'exponnet': did you mean 'exponent'"),
        ("taxi", {"keys": 5}, "There are: exponent, medallions, seed"),
        ("zipf", {"keys": "many"}, "option 'keys' must be a whole number, got 'many'"),
        ("zipf", {"keys": 1.5}, "option 'keys' must be a whole number, got 1.5"),
        ("zipf", {"keys": "inf"}, "option 'keys' must be a whole number, got 'inf'"),
        ("zipf", {"exponent": "nan"}, "option 'exponent' must be a number, got 'nan'"),
        ("zipf", {"keys": 0}, "option 'keys' must be between 1 and 1e\\+07, got 0"),
        ("zipf", {"exponent": -1}, "option 'exponent' must be between 0 and 4, got -1"),
        ("zipf", {"drift_unit": "row"}, "did you mean 'rows'"),
        ("words", {"words": 10**7}, "option 'words' must be between"),
        ("lineitem", {"scale": 0}, "option 'scale' must be between"),
    ],
)
def test_a_wrong_name_or_value_says_what_is_right(name: str, parameters: dict, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        workload(name, **parameters)


def test_every_workload_has_sensible_defaults() -> None:
    assert all(workload(name).name == name for name in WORKLOADS)


def test_without_delays_events_come_in_order_at_the_rate() -> None:
    times = Arrivals(Constant(1000), origin=5_000_000).times(0, 2000)
    assert times[0] == 5_000_000
    assert np.diff(times).tolist() == pytest.approx([1000] * 1999, abs=1)


def test_jitter_puts_events_out_of_order_within_its_bound() -> None:
    plain, jittered = (Arrivals(parse_rate("1000"), jitter=jitter).times(0, 5000) for jitter in (0, 3))
    assert np.any(np.diff(jittered) < 0)
    delay = plain - jittered
    assert delay.min() >= 0
    assert delay.max() <= 3_000_001


def test_a_share_of_the_events_is_late_by_the_delay() -> None:
    plain, some_late = (
        Arrivals(parse_rate("1000"), late_share=share, event_delay=60 * share * 10).times(0, 20_000)
        for share in (0, 0.1)
    )
    late = plain - some_late > 0
    assert late.mean() == pytest.approx(0.1, abs=0.01)
    assert np.abs((plain - some_late)[late] - 60_000_000).max() <= 1


@pytest.mark.parametrize("delays", [{"late_share": 0.1}, {"event_delay": 5.0}])
def test_late_share_and_event_delay_belong_together(delays: dict) -> None:
    with pytest.raises(OptionError, match="belong together"):
        Arrivals(**delays)


@pytest.mark.parametrize("delays", [{"jitter": -1.0}, {"late_share": 1.5, "event_delay": 1.0}])
def test_a_wrong_delay_is_named(delays: dict) -> None:
    with pytest.raises(OptionError, match=next(iter(delays))):
        Arrivals(**delays)
