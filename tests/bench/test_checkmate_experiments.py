"""The contest of checkpoint protocols: what it runs on, its contenders, and small runs of each experiment."""

import math
import random

import pytest

from steelyard.bench.checkmate import counts, cycle, failures, hybrid, skew
from steelyard.bench.checkmate.contest import (
    CIC,
    CONTENDERS,
    COOR,
    HYBRID,
    MAPS,
    NONE,
    QUERIES,
    UNC,
    observe,
    rate_of,
)
from steelyard.bench.checkmate.nested import NestedHmnr, Remembering
from steelyard.bench.checkmate.sides import EVEN, HOT_LOAD, SIDES, SKEWED, seconds_of, sides
from steelyard.bench.registry import Run, experiments
from steelyard.bench.timing import line_of
from steelyard.checkpoint import FORCED, LOCAL, Place, Wire
from steelyard.checkpoint.communication_induced import Hmnr
from steelyard.core import OptionError
from steelyard.sim.checkpoints import measured, measured_costs, query
from steelyard.sim.checkpoints.queries import QUERIES as JOBS

NAMES = ("throughput", "overhead", "counts", "time", "latency", "restart", "skew", "cyclic", "hybrid")
OPERATORS = {"q1": 3, "q3": 5, "q8": 4, "q12": 3, "cyclic": 6, "one_sided": 6}


def test_every_experiment_is_there_beside_its_figure():
    known = experiments()
    assert all(known[f"checkmate-{name}"].figure.startswith("Siachamis 2024, chapter 3") for name in NAMES)


@pytest.mark.parametrize("name", JOBS)
def test_queries_have_the_published_instances_on_every_worker(name):
    job = query(name, 7)
    assert job.instances == 7 * OPERATORS[name]
    assert all(math.isfinite(rows) and rows >= 0 for rows in job.flows().values())
    assert job.cyclic == (name in ("cyclic", "one_sided"))


def test_another_query_is_refused():
    with pytest.raises(OptionError, match="query 'q5'"):
        query("q5", 2)


def test_what_was_measured_says_when_and_how():
    found = measured()
    assert found["command"] == "python -m steelyard.bench.checkmate.calibration"
    assert found["measured"].startswith("20")
    costs = measured_costs()
    assert costs.read_message > 0
    assert costs.snapshot_byte > 0
    assert costs.notes["NestedHmnr"].read_byte > costs.notes["Hmnr"].read_byte


def test_nested_maps_decide_as_arrays_do():
    names = tuple(f"{operator}#{worker}" for worker in range(2) for operator in "ab")
    wires = [Wire(number, a, b) for number, (a, b) in enumerate((a, b) for a in names for b in names if a != b)]
    halves = {
        kind: {name: kind(Place.of(name, names, wires), 5.0) for name in names}
        for kind in (Hmnr, NestedHmnr, Remembering)
    }
    draws, forced = random.Random(1), 0
    for _ in range(3_000):
        if draws.random() < 0.2:
            name = draws.choice(names)
            for each in halves.values():
                each[name].took(LOCAL)
            continue
        wire = draws.choice(wires)
        asked = []
        for each in halves.values():
            note = each[wire.sender].note(wire.number)
            asked.append(each[wire.receiver].before_message(wire.number, note))
            if asked[-1]:
                each[wire.receiver].took(FORCED)
            each[wire.receiver].learn(wire.number, note)
        assert len(set(asked)) == 1
        forced += asked[0]
    assert forced > 100


def test_rates_are_lower_where_rows_cost_more():
    job = query("q12", 10)
    rates = [rate_of(job, name) for name in (NONE, COOR, UNC, CIC, MAPS)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == rates[1]


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_runs(name):
    found = observe(query("q12", 3), name, 8.0, failure=6.5)
    assert found.rows > 0
    assert len(found.restarts) == 1
    assert bool(found.taken) == (name != NONE)


def test_a_line_through_two_points_is_never_below_nothing():
    assert line_of([1, 2], [2.0, 1.0]) == (2.0, 0.0)
    assert line_of([10, 20], [1.0, 3.0]) == (0.0, 0.2)


def test_the_published_totals_are_workers_times_operators_times_rounds():
    for (workers, name), totals in counts.PUBLISHED.items():
        if name == COOR:
            for one, (total, invalid) in zip(QUERIES, totals, strict=True):
                assert total == workers * OPERATORS[one] * counts.ROUNDS[one]
                assert not invalid


def test_a_quick_run_has_claims_and_says_that_it_is_simulated(monkeypatch):
    monkeypatch.setattr(failures, "QUERIES", ("q12",))
    result = failures.restart(Run(quick=True))
    assert result.kind == "simulated"
    assert result.metrics["claims"] == sum(result.metrics[f"claims_{one}"] for one in ("hold", "fail", "undecided"))
    assert result.metrics["unc_q12_10_ms"] > result.metrics["coor_q12_10_ms"]


def test_on_a_cycle_coordinated_checkpoints_wait_for_ever():
    job = query("cyclic", 2)
    found = cycle.Simulation(job, CONTENDERS[COOR], rate_of(job, COOR, 0.2), unchecked=True).run(15.0)
    assert found.outcome().rounds == 0
    assert found.outcome(8.0).rows == 0


def test_the_skewed_runs_have_all_four_ratios():
    assert skew.RATIOS == (0.0, 0.1, 0.2, 0.3)
    assert failures.COMPARED[0] == COOR


def test_the_graph_with_two_regions_has_them_on_workers_of_their_own_under_the_load_that_is_said():
    job, rate = sides()
    skewed, even = tuple(range(SKEWED)), tuple(range(SKEWED, SKEWED + EVEN))
    assert {job.hosts(name) for name in job.operators} == {skewed, even}
    assert [hop.receiver for hop in job.hops if job.hosts(hop.sender) != job.hosts(hop.receiver)] == ["sell"]
    assert rate * seconds_of(job, skewed) == pytest.approx(HOT_LOAD)
    assert rate * seconds_of(job, even) == pytest.approx(0.8)


def test_hybrid_is_judged_on_every_graph_beside_the_better_of_its_parts():
    job = query("q12", 2)
    rate = rate_of(job, UNC, 0.3)
    two = sides()[0]
    found = {
        (graph, name): hybrid.seen(of, name, at, 12.0, 20.0)
        for graph, of, at in (("q12", job, rate), (SIDES, two, 300.0))
        for name in (COOR, UNC, HYBRID)
    }
    result = hybrid.result_of(found, 12.0, 20.0)
    assert result.kind == "simulated"
    assert result.metrics["claims"] >= 5
    assert result.metrics["hybrid_p99_even_region_ms"] > 0
    assert all(one.calm.rows and one.whole.restarts for one in found.values())
