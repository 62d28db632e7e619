"""The simulator against theory, where theory has an answer: it is inside the interval of independent runs."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.bench.simulator.markov import LONGEST_LINE, LONGEST_QUEUES, blocked_tandem_time, shortest_queue_time
from steelyard.bench.simulator.queueing import (
    blocked_pair_throughput,
    fork_join_time,
    jackson_tuples,
    mm1_wait,
    mmc_wait,
)
from steelyard.bench.simulator.theory import QUICK_PRECISION, QUICK_SECONDS, estimates
from steelyard.bench.simulator.theory_cases import (
    PRODUCT_FORM,
    SERVICE,
    SERVICES,
    cases,
    log_normal_times,
    three_queues,
)
from steelyard.core import OptionError
from steelyard.sim import Edge, Exponential, Operator, Scenario, Source, simulate

SEED = 7


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_theory_is_inside_the_interval_of_the_simulated_figures(case):
    for found in estimates(case, QUICK_SECONDS, SEED):
        assert found.precision <= QUICK_PRECISION, f"{found.figure.name}: too wide an interval to tell anything"
        assert found.inside, f"{found.figure.name}: {found.figure.theory} and {found.mean} ± {found.half}"


def test_branches_that_are_a_little_different_are_outside_the_interval():
    """The check can fail: theory of other branches, a tenth of the tuples apart, is told from what is simulated."""
    simulated, other = three_queues(PRODUCT_FORM), three_queues(((0.0, 0.4, 0.6), *PRODUCT_FORM[1:]))
    found = estimates(simulated, QUICK_SECONDS, SEED)
    apart = [abs(one.mean - figure.theory) > one.half for one, figure in zip(found, other.figures, strict=True)]
    assert apart[2]  # the wait in b
    assert not apart[3]  # all tuples go through c, whichever way they take


def test_ages_in_m_m_1_are_exponential():
    source = Source("log", rate=700, arrivals="poisson")
    result = simulate(Scenario.chain(source, Operator("map", Exponential(SERVICE))), 1000.0, seed=3)
    latency = result.latency("map", after=100.0)
    mean = 1 / (SERVICES - 700)
    for percentile, age in latency.percentiles.items():
        assert age == pytest.approx(-mean * np.log(1 - percentile / 100), rel=0.03)


def test_a_source_that_never_lacks_work_is_busy_or_held_back():
    scenario = Scenario.chain(
        Source("log", rate=2 * SERVICES, service=Exponential(SERVICE)),
        Operator("map", Exponential(SERVICE), capacity=1),
    )
    source = simulate(scenario, 1000.0, seed=3).total("log", after=100.0)
    assert source.utilisation + source.backpressured == pytest.approx(1.0, abs=1e-6)
    assert source.backpressured == pytest.approx(1 - blocked_pair_throughput(SERVICES, 1) / SERVICES, rel=0.03)


def test_chains_that_are_cut_off_give_what_longer_ones_do(monkeypatch):
    found = shortest_queue_time(1.6, 1.0), blocked_tandem_time(0.5, 1.0, 1)
    monkeypatch.setattr("steelyard.bench.simulator.markov.LONGEST_QUEUES", LONGEST_QUEUES * 5 // 4)
    monkeypatch.setattr("steelyard.bench.simulator.markov.LONGEST_LINE", LONGEST_LINE * 5 // 4)
    assert (shortest_queue_time(1.6, 1.0), blocked_tandem_time(0.5, 1.0, 1)) == pytest.approx(found, rel=1e-6)


def test_formulas_agree_where_they_meet():
    # to join the shorter of two queues is better than to choose one at random, and worse than one queue for both
    assert mmc_wait(1.6, 1.0, 2) + 1 < shortest_queue_time(1.6, 1.0) < 1 / (1 - 0.8)
    # with much room between them, two servers in a row are two queues in a row
    _, tuples = jackson_tuples([0.1, 0], [1.0, 1.0], [[0, 1], [0, 0]])
    assert blocked_tandem_time(0.1, 1.0, 4) == pytest.approx(sum(tuples) / 0.1, rel=1e-4)
    # a copy to each of two is done later than one tuple alone
    assert 1 / (1 - 0.6) < fork_join_time(0.6, 1.0, 2) < fork_join_time(0.6, 1.0, 4)
    assert mm1_wait(0.6, 1.0) == pytest.approx(jackson_tuples([0.6], [1.0], [[0]])[1][0] / 0.6 - 1)


def test_quantiles_of_the_log_normal_law_have_its_moments():
    times = log_normal_times()
    assert times.mean() == pytest.approx(SERVICE, rel=1e-3)
    assert times.var() == pytest.approx((np.exp(0.64) - 1) * SERVICE**2, rel=5e-3)


def test_what_no_theory_can_tell_is_said():
    with pytest.raises(OptionError, match="the queue grows for ever"):
        jackson_tuples([1.0], [1.0], [[0.5]])
    with pytest.raises(OptionError, match="2 servers or more"):
        fork_join_time(0.5, 1.0, 1)


def test_a_quarter_of_the_rows_is_neither_lost_nor_doubled_by_two_branches():
    """Drawn on each edge by itself, halves gave three quarters of the rows one or two ways."""
    vertices = (
        Source("log", rate=1000, rows=4000),
        Operator("a", Exponential(SERVICE)),
        Operator("b", Exponential(SERVICE)),
    )
    result = simulate(Scenario(vertices, (Edge("log", "a", share=0.5), Edge("log", "b", share=0.5))), 30.0, seed=1)
    assert result.total("a").processed + result.total("b").processed == 4000
