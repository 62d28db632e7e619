"""Designs of engines: what a technique changes in a simulated query, and what it must not change."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from steelyard.core import OptionError
from steelyard.scaling import Fixed
from steelyard.sim import ENGINES, BatchCosts, Ingestion, Source, engine_query, simulate_batches
from steelyard.sim.engines import BUFFERING, PARTITIONING, RELEASE, SCHEDULING, SLACK, TECHNIQUES
from steelyard.workloads import Zipf

WORK = BatchCosts(map_row=4e-5, map_key=1e-5, reduce_record=2e-5)
INGESTION = Ingestion(count_row=1e-5, sort_key=1e-4, cut_key=1e-4)
SOURCE = Source("log", 20_000, keys=Zipf(1.0, 500))


def query(engine, techniques=()):
    return engine_query(ENGINES[engine], techniques, SOURCE, WORK, INGESTION, tasks=4, cores=8)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_set_of_techniques_processes_the_same_rows(engine):
    every = chain.from_iterable(combinations(TECHNIQUES, size) for size in range(len(TECHNIQUES) + 1))
    rows = {tuple(simulate_batches(query(engine, techniques), 2)["rows"].to_pylist()) for techniques in every}
    assert rows == {(20_000, 20_000)}


def test_who_waits_for_counting_and_sorting():
    """Counted and sorted while rows come, only cutting is left, and early release hides the first part of that."""
    late = query("spark", [PARTITIONING])
    sorted_before = query("spark", [PARTITIONING, BUFFERING])
    released = query("spark", [PARTITIONING, BUFFERING, RELEASE])
    assert late.cut_seconds(20_000, 500) == pytest.approx(20_000 * 1e-5 + 500 * 2e-4)
    assert sorted_before.cut_seconds(20_000, 500) == pytest.approx(500 * 1e-4)
    assert released.cut_seconds(20_000, 500) == pytest.approx(500 * 1e-4 - SLACK)
    assert query("spark").cut_seconds(20_000, 500) == 0


def test_storm_keeps_its_tasks_and_the_others_get_more():
    settled = {
        name: simulate_batches(
            engine_query(
                ENGINES[name],
                [SCHEDULING],
                Source("log", 90_000, keys=[1, 2, 3, 4, 5, 6, 7, 8]),
                WORK,
                INGESTION,
                tasks=4,
                cores=8,
            ),
            15,
        )["blocks"].to_pylist()[-1]
        for name in ENGINES
    }
    assert settled["storm"] == 4
    assert settled["flink"] > 4
    assert settled["spark"] > 4
    assert isinstance(query("storm", TECHNIQUES).elasticity, Fixed)


def test_only_spark_waits_for_all_map_tasks_and_makes_rows_readable():
    assert [name for name in ENGINES if query(name).blocking] == ["spark"]
    assert [name for name in ENGINES if query(name).costs.convert_row] == ["spark"]
    assert query("spark").costs.reduce_task == 3 * query("flink").costs.reduce_task


def test_sixty_per_cent_of_a_batch_in_spark_is_scheduling_and_making_rows_readable():
    """At a load of 1, with the tasks that the profile's figures were set for."""
    spark = ENGINES["spark"].costs(WORK)
    beside = 2 * spark.driver + spark.driver_task * 16 + spark.convert + spark.convert_row * 50_000
    assert beside == pytest.approx(0.6, abs=0.02)


def test_a_mistyped_technique_is_told():
    with pytest.raises(OptionError, match="did you mean 'release'"):
        query("spark", ["relase"])
