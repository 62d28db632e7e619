"""The simulator beside reality: figures from runs that are made up, and a short run in threads."""

import numpy as np
import pytest

from steelyard.bench.osg.completion import Edge, Waiting
from steelyard.bench.simulator import reality as sim_reality
from steelyard.bench.simulator.reality import Calibrated, Compared, beside, calibrated, rate_of, simulated, stream


def test_what_queues_nowhere_takes_its_cost_and_its_way():
    items, costs = stream(50, seed=1)
    latency, _ = simulated(items, costs, apart=1.0, known=Calibrated(np.array([0.001]), 0.004))
    assert latency == pytest.approx(costs[items].mean() + 0.005)


def test_rows_that_come_too_fast_are_done_at_the_speed_of_the_slots():
    items, costs = stream(400, seed=1)
    _, rate = simulated(items, costs, apart=1e-4, known=Calibrated(np.zeros(1), 0.0))
    by_slot = [costs[items[slot :: sim_reality.SLOTS]].sum() for slot in range(sim_reality.SLOTS)]
    assert rate == pytest.approx(400 / max(by_slot), rel=0.02)


def test_what_was_measured_beside_waits_is_found_again_in_made_up_completion_times():
    """Rows of 8 ms that come every 2 ms to 4 instances, each with some more time: all but the first queue."""
    more = np.random.default_rng(1).uniform(0.0001, 0.002, 200)
    done = np.zeros(200)
    for row in range(200):
        before = done[row - sim_reality.SLOTS] if row >= sim_reality.SLOTS else 0.0
        done[row] = max(0.002 * row + 0.001, before) + 0.008 + more[row]
    samples = beside(done - 0.002 * np.arange(200), np.full(200, 0.008), 0.002, 0.001)
    np.testing.assert_allclose(samples, more[sim_reality.SLOTS :])
    idle = beside(done - 0.002 * np.arange(200), np.full(200, 0.008), 0.002, 0.008)
    assert len(idle) < len(samples)  # what came later did not all queue
    with pytest.raises(ValueError, match="no row had to wait"):
        beside(np.full(200, 0.008), np.full(200, 0.008), 1.0, 0.001)


def test_a_calibrated_run_in_threads_has_every_row():
    items, costs = stream(40, seed=2)
    work = Waiting({str(item): float(cost) for item, cost in enumerate(costs)})
    edge = Edge([str(item) for item in items], work, sim_reality.SLOTS)
    known = calibrated(edge, items, costs)
    assert known.beside.min() >= 0
    done = edge.run(sim_reality.GROUPING, 0.002)
    assert len(done.seconds) == 40
    assert rate_of(done, 0.002) <= 40 / costs[items].sum() * sim_reality.SLOTS * 1.01
    np.testing.assert_array_equal(done.answers, np.round(costs[items] * 1e6))


def test_the_worst_load_is_the_figure():
    found = [Compared(0.5, 0.010, 0.011, 100, 100), Compared(0.9, 0.020, 0.015, 100, 100), Compared(2.0, 1, 2, 100, 90)]
    result = sim_reality.result_of(found, Calibrated(np.array([0.001]), 0.002), {"rows": 1})
    assert result.metrics["latency_error"] == pytest.approx(0.25)
    assert result.metrics["throughput_error"] == pytest.approx(0.10)
    assert [target.met(result.metrics) for target in result.targets] == [False, True]
