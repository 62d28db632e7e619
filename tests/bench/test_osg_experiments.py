"""The experiments on OSG: their streams, their verdicts, and small runs of each."""

import dataclasses
import math
from functools import lru_cache

import numpy as np
import pytest

from steelyard.bench.claims import FAILS, HOLDS, OPEN
from steelyard.bench.osg import distributions as osg_distributions
from steelyard.bench.osg import estimators as osg_estimators
from steelyard.bench.osg import settings as osg_settings
from steelyard.bench.osg import timeseries as osg_timeseries
from steelyard.bench.osg.settings import OSG, ROUND_ROBIN, Setting, Sweep
from steelyard.bench.registry import Run, choose, experiments
from steelyard.grouping.full_knowledge import FullKnowledge

NAMES = (
    "distributions",
    "provisioning",
    "max-time",
    "values",
    "instances",
    "precision",
    "timeseries",
    "estimators",
    "schedulers",
)
BESIDE_NONE = ("estimators", "schedulers")
SMALL = 6_000


def test_streams_have_the_papers_costs():
    edge = Setting(tuples=20_000, exponent=0.0).edge(seed=3)
    assert sorted(set(edge.times.tolist())) == [float(cost) for cost in range(1, 65)]
    assert edge.times.mean() == pytest.approx(32.5, rel=0.02)
    assert len(np.unique(edge.items)) > 4_000


def test_an_item_always_costs_the_same_and_a_seed_chooses_what():
    one, other = (Setting(tuples=5_000).edge(seed) for seed in (1, 2))
    for edge in (one, other):
        costs = {}
        for item, time in zip(edge.items.tolist(), edge.times.tolist(), strict=True):
            assert costs.setdefault(item, time) == time
    assert one.times.mean() != other.times.mean()


def test_one_value_is_the_shortest():
    assert set(Setting(values=2, shortest=0.1, longest=6.4, tuples=2_000).edge(1).times.tolist()) == {0.1, 6.4}


def test_speedups_are_round_robins_time_over_the_groupings():
    found = Sweep({(1, ROUND_ROBIN): [4.0, 9.0], (1, OSG): [2.0, 3.0]})
    assert found.speedups(1, OSG) == [2.0, 3.0]
    assert found.speedup(1, OSG) == 2.5


def line_with(spread):
    flat = np.zeros(osg_timeseries.TUPLES // osg_timeseries.BUCKET)
    return osg_timeseries.Line(flat, flat, flat, np.asarray(spread, float), 0, 0, 0)


def test_recovery_counts_the_tuples_until_queues_stay_in_balance():
    before, after = [1.0] * 37, [1.0] * 38
    assert osg_timeseries.recovery(line_with(before + after), 2.0) == 0
    assert osg_timeseries.recovery(line_with(before + [9.0] * 4 + after[4:]), 2.0) == 4 * 2_000
    back_and_forth = [9.0, 1.0, 9.0, 1.0, 1.0, 9.0, *after[6:]]
    assert osg_timeseries.recovery(line_with(before + back_and_forth), 2.0) == 6 * 2_000
    assert osg_timeseries.recovery(line_with(before + [9.0] * 38), 2.0) == 75_000
    assert osg_timeseries.recovery(line_with(before + [1.0] * 4 + [9.0] * 2 + after[6:]), 2.0) == 6 * 2_000
    assert osg_timeseries.recovery(line_with(before + [1.0] * 10 + [9.0] * 2 + after[12:]), 2.0) == 12 * 2_000
    assert osg_timeseries.recovery(line_with(before + [1.0] * 10 + [9.0] * 28), 2.0) == 75_000


def test_each_stream_adds_its_part_to_the_gap():
    runs = {("x", OSG): [10.0, 20.0], ("x", "Full Knowledge"): [2.0, 4.0], ("x", "new"): [4.0, 10.0]}
    assert np.mean(osg_estimators.by_stream(runs, "x", "new")) == pytest.approx(
        osg_estimators.gap_closed(runs, "x", "new")
    )


def test_full_knowledge_that_begins_late_lies_between_it_and_round_robin():
    edge = Setting(exponent=2.0, tuples=3_000).edge(seed=3)
    late = [osg_distributions.knowing_late(edge, begin) for begin in (0, 1_000, 3_000)]
    assert late[0] == pytest.approx(edge.run(FullKnowledge(idle_aware=True)).mean_completion)
    assert late[2] == pytest.approx(edge.run("round_robin").mean_completion)
    assert late[0] < late[1] < late[2]


def test_the_start_is_a_part_of_the_gap_to_full_knowledge():
    seeds = [1, 2]
    found = Sweep({(2.0, OSG): [30.0, 50.0], (2.0, "Full Knowledge"): [10.0, 20.0]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(osg_distributions, "knowing_late", lambda edge, begin: 20.0)
        start = osg_distributions.started(seeds, found)
    assert start.of_gap == pytest.approx((20 - 15) / (40 - 15))
    assert all(0 < share <= 1 for share in start.share)
    assert "20% of the gap would be left" in str(start)


@pytest.fixture(scope="module")
def small():
    """Runs an experiment with short streams and small windows, each once."""
    with pytest.MonkeyPatch.context() as patch:
        whole = Setting.edge

        def shorter(setting, seed, factors=None, phase_starts=(0,)):
            length = setting.tuples if factors is not None else SMALL
            return whole(dataclasses.replace(setting, tuples=length), seed, factors, phase_starts)

        patch.setattr(Setting, "edge", shorter)
        patch.setattr(osg_settings, "QUICK_STREAMS", 2)
        yield lru_cache(lambda name: experiments()[f"osg-{name}"].function(Run(quick=True)))


@pytest.mark.parametrize("name", NAMES)
def test_a_small_run_has_metrics_verdicts_and_a_picture(name, small, tmp_path):
    result = small(name)
    assert all(math.isfinite(value) for value in result.metrics.values())
    claims = result.tables[0]
    verdicts = [row[claims.columns.index("verdict")] for row in claims.rows]
    assert set(verdicts) <= {HOLDS, FAILS, OPEN}
    assert result.metrics["claims_hold"] == verdicts.count(HOLDS)
    assert all(one.source.startswith("Rivetti") for one in result.published)
    assert result.kind == "simulated"
    assert choose([f"osg-{name}"])[0].save_picture(result, tmp_path / "picture.png").stat().st_size > 10_000


def test_every_experiment_is_a_benchmark_beside_its_figure():
    known = experiments()
    figures = [known[f"osg-{name}"].figure for name in NAMES if name not in BESIDE_NONE]
    assert all(figure.startswith("Rivetti et al. 2016, Fig") for figure in figures)


def test_the_change_of_speeds_throws_osg_out_of_balance_and_tracking_less(small):
    rows = {row[0]: row for row in small("timeseries").tables[1].rows}
    assert set(rows) == set(osg_timeseries.COMPARED)
    assert small("timeseries").metrics["recovery_tuples"] <= small("timeseries").metrics["osg_recovery_tuples"]


def test_no_variant_has_more_memory_than_osg():
    cells = osg_settings.grouping("osg").sketch_shape
    for named in osg_estimators.CANDIDATES.values():
        assert math.prod(osg_settings.grouping(named).sketch_shape) <= math.prod(cells)
