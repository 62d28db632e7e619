"""The simulator against queueing theory, where theory has an answer: within 2 %."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.sim import Edge, Exactly, Exponential, Machine, Operator, PerItem, Samples, Scenario, Source, simulate
from steelyard.sim.queueing import (
    blocked_pair_throughput,
    md1_wait,
    mg1_wait,
    mm1_wait,
    mmc_wait,
    processor_sharing_time,
)
from steelyard.workloads import Zipf

SERVICES = 1000.0
SERVICE = 1 / SERVICES
SECONDS = 2000.0
WARM_UP = 100.0


def poisson(rate, **options):
    return Source("log", rate=rate, arrivals="poisson", **options)


def wait_of(scenario, operator="map", seconds=SECONDS):
    return simulate(scenario, seconds, seed=3).total(operator, after=WARM_UP).mean_wait


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_memoryless_arrivals_and_services_wait_as_in_m_m_1(load):
    scenario = Scenario.chain(poisson(load * SERVICES), Operator("map", Exponential(SERVICE)))
    assert wait_of(scenario) == pytest.approx(mm1_wait(load * SERVICES, SERVICES), rel=0.02)


def test_ages_in_m_m_1_are_exponential():
    result = simulate(Scenario.chain(poisson(700), Operator("map", Exponential(SERVICE))), SECONDS, seed=3)
    latency = result.latency("map", after=WARM_UP)
    mean = 1 / (SERVICES - 700)
    assert latency.mean == pytest.approx(mean, rel=0.02)
    for percentile, age in latency.percentiles.items():
        assert age == pytest.approx(-mean * np.log(1 - percentile / 100), rel=0.03)


def test_services_that_never_vary_wait_half_as_long_as_in_m_d_1():
    scenario = Scenario.chain(poisson(700), Operator("map", Exactly(SERVICE)))
    assert wait_of(scenario) == pytest.approx(md1_wait(700, SERVICES), rel=0.02)


def test_services_by_a_table_of_items_wait_as_pollaczek_and_khinchine_say():
    costs = np.linspace(0.1, 6.4, 64) / 3.25 * SERVICE
    items = Zipf(exponent=0.0, keys=64, seed=5)
    scenario = Scenario.chain(poisson(600, keys=items), Operator("map", PerItem(costs)))
    assert wait_of(scenario) == pytest.approx(mg1_wait(600, costs.mean(), costs.var()), rel=0.02)


def test_services_drawn_from_measured_times_wait_as_pollaczek_and_khinchine_say():
    measured = np.array([0.2, 0.4, 2.4]) * SERVICE
    scenario = Scenario.chain(poisson(600), Operator("map", Samples(measured)))
    assert wait_of(scenario) == pytest.approx(mg1_wait(600, measured.mean(), measured.var()), rel=0.02)


@pytest.mark.parametrize("servers", [2, 5])
def test_threads_of_one_queue_wait_as_in_m_m_c(servers):
    arrivals = 0.7 * servers * SERVICES / servers
    scenario = Scenario.chain(poisson(arrivals), Operator("map", Exponential(servers * SERVICE), threads=servers))
    assert wait_of(scenario) == pytest.approx(mmc_wait(arrivals, SERVICES / servers, servers), rel=0.02)


def test_a_hash_splits_memoryless_arrivals_into_independent_ones():
    scenario = Scenario.chain(
        poisson(2100, keys=Zipf(exponent=0.0, keys=100_000, seed=2)),
        Operator("map", Exponential(SERVICE), instances=3),
        grouping="hash",
    )
    assert wait_of(scenario, seconds=1000.0) == pytest.approx(mm1_wait(700, SERVICES), rel=0.02)


def test_each_of_a_tandem_of_queues_waits_as_if_it_were_alone():
    scenario = Scenario.chain(
        poisson(600), Operator("first", Exponential(SERVICE)), Operator("second", Exponential(0.8 * SERVICE))
    )
    result = simulate(scenario, SECONDS, seed=3)
    assert result.total("first", WARM_UP).mean_wait == pytest.approx(mm1_wait(600, SERVICES), rel=0.02)
    assert result.total("second", WARM_UP).mean_wait == pytest.approx(mm1_wait(600, SERVICES / 0.8), rel=0.02)


@pytest.mark.parametrize("again", [0.3, 0.6])
def test_tuples_that_come_round_at_random_make_a_queue_as_jackson_says(again):
    """With chance `again` a tuple is served once more: so the load is that of 1 / (1 - again) of the rate."""
    arrivals = 0.7 * (1 - again) * SERVICES
    scenario = Scenario(
        (poisson(arrivals), Operator("map", Exponential(SERVICE)), Operator("out", Exactly(0.0))),
        (Edge("log", "map"), Edge("map", "map", share=again, feedback=True), Edge("map", "out", share=1 - again)),
    )
    result = simulate(scenario, SECONDS, seed=3)
    assert result.total("map", WARM_UP).throughput == pytest.approx(arrivals / (1 - again), rel=0.02)
    assert result.total("map", WARM_UP).mean_wait == pytest.approx(mm1_wait(0.7 * SERVICES, SERVICES), rel=0.02)


@pytest.mark.parametrize("law", [Exponential(SERVICE), Exactly(SERVICE), Samples([0.1 * SERVICE, 1.9 * SERVICE])])
def test_tuples_that_share_a_core_stay_as_long_whatever_the_law_of_their_work(law):
    machines = (Machine(cores=1),)
    scenario = Scenario.chain(poisson(700), Operator("map", law, threads=200), machines=machines)
    result = simulate(scenario, SECONDS, seed=3)
    expected = processor_sharing_time(700, SERVICES)
    assert result.latency("map", WARM_UP).mean == pytest.approx(expected, rel=0.02)
    assert result.total("map", WARM_UP).mean_queue == 0


def test_operators_on_one_machine_share_its_cores():
    machines = (Machine(cores=1, speed=2.0),)
    scenario = Scenario(
        (poisson(700), *(Operator(name, Exponential(SERVICE), threads=200) for name in "ab")),
        (Edge("log", "a"), Edge("log", "b")),
        machines,
    )
    result = simulate(scenario, SECONDS, seed=3)
    cpu = np.mean(result.machines["cpu"].to_numpy())
    assert cpu == pytest.approx(0.7, rel=0.02)


@pytest.mark.parametrize("places", [1, 3])
def test_a_full_queue_slows_its_sender_down_as_theory_says(places):
    scenario = Scenario.chain(
        Source("log", rate=2 * SERVICES, service=Exponential(SERVICE)),
        Operator("map", Exponential(SERVICE), capacity=places),
    )
    result = simulate(scenario, SECONDS, seed=3)
    expected = blocked_pair_throughput(SERVICES, places)
    assert result.total("map", WARM_UP).throughput == pytest.approx(expected, rel=0.02)
    source = result.total("log", WARM_UP)
    assert source.utilisation + source.backpressured == pytest.approx(1.0, abs=1e-6)
    assert source.backpressured == pytest.approx(1 - expected / SERVICES, rel=0.03)
