"""The compiled loops of shuffle groupings against their plain twins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.bench.osg.edge import ShuffleEdge
from steelyard.grouping import grouping
from steelyard.kernels import osg_sketch
from steelyard.kernels.osg_sketch import PRIME, coefficients, column
from tests.kernels.twins.osg import PlainQueues
from tests.kernels.twins.osg_sketch import PlainSketch, column_plain

POLICIES = [
    "round_robin",
    "assg",
    "assg?reshuffle=false&seed=9",
    "full_knowledge",
    "full_knowledge?idle_aware=true",
    "osg",
    "osg?clock=cumulated",
    "osg?stability=eq1&resync=0&unseen=zero",
    "osg?send=changed&resync=7&update=conservative&keep=0.25",
    "tracking_osg?resync=3",
    "tracking_osg?resync=2&apart=3.0",
    "tracking_osg?resync=5&items=each&update=conservative&keep=0.5&idle_aware=false",
]


def tuples(rng, rows, items):
    ids = rng.integers(0, items, rows)
    costs = rng.integers(1, 9, items).astype(float)
    return ids, costs[ids]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(-(2**62), 2**62), st.integers(1, 500))
def test_compiled_and_plain_hashes_agree_on_any_item(seed, item, columns):
    hashes = coefficients(3, seed)
    plain = [tuple(row) for row in hashes.tolist()]
    for row in range(3):
        assert column(hashes, row, item, columns) == column_plain(plain, row, item, columns)


def test_two_items_meet_in_a_cell_as_seldom_as_a_2_universal_family_promises():
    columns, draws = 16, 4000
    hashes = coefficients(draws, seed=5)
    for one, other in ((1, 2), (0, PRIME - 1), (17, 4096)):
        met = sum(column(hashes, i, one, columns) == column(hashes, i, other, columns) for i in range(draws))
        assert met / draws < 1 / columns + 4 * (1 / columns / draws) ** 0.5


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_compiled_and_plain_sketches_agree(seed, conservative, masked):
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    hashes = coefficients(rows, seed)
    plain = PlainSketch([tuple(row) for row in hashes.tolist()], columns)
    cells, snapshot = np.zeros((rows, columns, 2)), np.zeros((rows, columns))
    ids, times = tuples(rng, 60, 12)
    for number, (item, time) in enumerate(zip(ids.tolist(), times.tolist(), strict=True)):
        osg_sketch.add(cells[None], 0, hashes, columns, item, time, conservative)
        plain.add(item, time, conservative)
        if number == 30:
            osg_sketch.take_snapshot(cells, snapshot)
            before = plain.snapshot()
    assert cells.tolist() == [[list(cell) for cell in row] for row in plain.cells]
    assert osg_sketch.relative_error(cells, snapshot, masked) == pytest.approx(plain.relative_error(before, masked))
    for item in range(15):
        assert osg_sketch.estimate(cells[None, None], 0, 0, hashes, columns, item, 3.5) == plain.estimate(item, 3.5)


def test_a_snapshot_of_nothing_is_left_by_anything_and_equals_nothing():
    cells, snapshot = np.zeros((1, 2, 2)), np.zeros((1, 2))
    osg_sketch.take_snapshot(cells, snapshot)
    assert osg_sketch.relative_error(cells, snapshot, False) == 0
    osg_sketch.add(cells[None], 0, coefficients(1, 1), 2, 3, 2.0, False)
    assert osg_sketch.relative_error(cells, snapshot, False) == np.inf
    assert osg_sketch.relative_error(cells, snapshot, True) == 0


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_compiled_and_plain_queues_agree(name, seed):
    rng = np.random.default_rng(seed)
    instances, schedulers = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    small = "&columns=5&rows=2&window=8&tolerance=0.3" if "osg" in name else ""
    policy = grouping(name + (small if "?" in name else small.replace("&", "?", 1)))
    ids, times = tuples(rng, 400, 20)
    factors = rng.choice([0.5, 1.0, 2.0], (2, instances))
    latency = float(rng.choice([0.0, 2.5]))
    edge = ShuffleEdge(ids, times, instances, 1.1, schedulers, factors, (0, 200), latency)
    run = edge.run(policy)
    hashes = [tuple(row) for row in policy.hashes().tolist()]
    rule = policy.rule(instances)._replace(schedulers=schedulers)
    plain = PlainQueues(rule, hashes, policy.sketch_shape[1], schedulers, latency)
    costs = times[:, None] * factors[(np.arange(400) >= 200).astype(int)]
    plain.run(ids.tolist(), edge.arrivals.tolist(), costs.tolist())
    assert run.flow.to.tolist() == plain.to
    assert run.flow.finish.tolist() == pytest.approx(plain.finish)
