"""The benchmarks of aggregation and of the engine's overhead: their data, answers and figures."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from steelyard.bench import Result, Run, Series, charts
from steelyard.bench.engine import aggregate, overhead
from steelyard.bench.progress import Reporter
from steelyard.bench.registry import choose

QUIET = Run(quick=True, progress=Reporter(Console(quiet=True)))


def case(keys, exponent, ours=2.0):
    seconds = {aggregate.PANDAS: 20.0, aggregate.ARROW: 6.0, aggregate.GROUPED: 5.0, aggregate.OURS: ours}
    seconds |= {aggregate.BY_HAND: 3.0, aggregate.BY_HAND_ARROW: 0.6, aggregate.OURS_BLOCK: 0.4}
    return aggregate.Case(keys, exponent, keys, seconds | {aggregate.JVM: 1.0, aggregate.OURS_BUILTIN: 1.1}, tasks=2)


def cost(rows, source, total=1.0):
    return overhead.Cost(rows, source, total, counting=0.02, planning=0.01, placing=0.02)


def test_the_rows_are_all_there_and_the_same_for_one_seed(tmp_path):
    first, again = (aggregate.write_rows(tmp_path / name, 1_001, 20, 1.2, seed=3) for name in ("a", "b"))
    assert pq.read_table(first).num_rows == 1_001
    assert pq.read_table(first) == pq.read_table(again)


@pytest.mark.spark
def test_all_ways_give_the_same_answers(spark, tmp_path):
    folder = aggregate.write_rows(tmp_path / "rows", 3_000, 40, 1.2, seed=1)
    seconds, distinct = aggregate.time_case(spark, folder, dict.fromkeys(aggregate.WAYS, 1))
    assert set(seconds) == set(aggregate.WAYS)
    assert distinct == pq.read_table(folder).column("key").combine_chunks().unique().__len__()
    assert 1 <= aggregate.map_tasks(spark, folder) <= aggregate.FILES


@pytest.mark.spark
def test_a_different_answer_stops_the_benchmark(spark, tmp_path, monkeypatch):
    def without_a_row(rows):
        return aggregate.in_jvm(rows.limit(10))

    ways = {aggregate.JVM: aggregate.in_jvm, aggregate.OURS_BUILTIN: without_a_row}
    monkeypatch.setattr(aggregate, "WAYS", ways)
    folder = aggregate.write_rows(tmp_path / "rows", 100, 5, 1.0, seed=1)
    with pytest.raises(aggregate.WrongAnswerError, match="Steelyard, built-in and plain Spark, built-in"):
        aggregate.time_case(spark, folder, dict.fromkeys(ways, 1))


def test_the_figures_are_those_of_the_headline():
    cases = {(keys, skew): case(keys, skew) for keys in aggregate.KEYS for skew in aggregate.EXPONENTS}
    cases[aggregate.HEADLINE] = case(*aggregate.HEADLINE, ours=1.0)
    result = aggregate.result_of(cases, aggregate.REPETITIONS, slots=2)
    assert result.metrics["python_vs_apply_in_pandas"] == 20.0
    assert result.metrics["python_vs_apply_in_arrow"] == 6.0
    assert result.metrics["builtin_slowdown"] == pytest.approx(1.1)
    assert result.metrics["python_vs_two_stages"] == 3.0
    assert result.metrics["python_vs_grouped_udf"] == 5.0
    for name in ("block_vs_two_stages", "block_vs_two_stages_200k"):
        assert result.metrics[name] == pytest.approx(1.5)
    assert not result.missed
    assert len(result.tables[0].rows) == len(cases)


@pytest.mark.parametrize("every", [True, False])
def test_one_case_and_all_cases_can_be_drawn(tmp_path, every):
    sizes = [(keys, skew) for keys in aggregate.KEYS for skew in aggregate.EXPONENTS] if every else [aggregate.HEADLINE]
    result = aggregate.result_of({size: case(*size) for size in sizes}, aggregate.REPETITIONS, slots=2)
    assert choose(["aggregate"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.spark
def test_a_batch_is_timed_with_either_statistics_and_in_place(spark, tmp_path):
    folder = aggregate.write_rows(tmp_path / "rows", 2_000, 30, 1.2, seed=1)
    costs = overhead.time_size(spark, folder, 2_000, warm_ups=[0.5], repetitions=1)
    assert set(costs) == {"carried", "exact", "in place"}
    assert all(0 < costs[way].share < 1 for way in ("carried", "exact"))
    assert costs["in place"].placing == costs["in place"].planning == 0


@pytest.mark.spark
def test_the_same_rows_are_a_new_window_each_time(spark, tmp_path):
    rows = spark.createDataFrame(pa.table({"key": [1, 1, 2], "value": [5, 7, 9]}))
    stream = overhead.Stream(spark, rows, "carried", tmp_path / "state")
    first, second = stream.next(), stream.next()
    assert (first.rows, first.results) == (3, 0)
    assert (second.rows, second.results) == (3, 2)
    assert second.late_rows == 0


@pytest.mark.spark
def test_memory_is_measured_after_the_warm_up(spark, tmp_path):
    rows = spark.createDataFrame(pa.table({"key": [1], "value": [5]}))
    stream = overhead.Stream(spark, rows, "carried", tmp_path / "state")
    memory = overhead.watch_memory(spark, stream, 1, 2, QUIET)
    assert memory.x == [1, 2]
    assert all(size > 50 for size in memory.y)  # a JVM and a Python


def memory(sizes):
    return Series(f"{overhead.MEMORY}: the driver", list(range(len(sizes))), sizes)


def test_overhead_is_counting_planning_and_placing_over_the_whole():
    costs = {rows: {s: cost(rows, s) for s in overhead.WAYS} for rows in overhead.SIZES}
    costs[overhead.HEADLINE_ROWS]["exact"] = cost(overhead.HEADLINE_ROWS, "exact", total=2.0)
    result = overhead.result_of(costs, memory([100, 100, 100, 100, 105]), repetitions=1, batches=5)
    assert result.metrics["overhead_share_1m"] == pytest.approx(0.05)
    assert result.metrics["carried_vs_exact"] == 2.0
    assert result.metrics["driver_rss_growth"] == 1.05
    assert result.parameters["memory_batches"] == 5
    assert not result.missed


def test_the_memory_of_the_driver_has_a_panel_beside_the_overhead():
    costs = {rows: {s: cost(rows, s) for s in overhead.WAYS} for rows in overhead.SIZES}
    result = overhead.result_of(costs, memory([100.0, 101.0, 99.0]), repetitions=1, batches=3)
    figure = charts.new_figure()
    choose(["engine-overhead"])[0].draw(figure, Result.from_dict(result.to_dict()))
    assert figure.axes[2].lines[0].get_ydata().tolist() == [100.0, 101.0, 99.0]
    assert [len(axes.lines) for axes in figure.axes] == [4, 3, 1]  # the first has the target too
