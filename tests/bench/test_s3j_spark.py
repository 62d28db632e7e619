"""The similarity join's benchmarks: baselines that give brute force's pairs, and figures that follow from reports."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from steelyard.bench.registry import Run, choose
from steelyard.bench.result import WrongAnswerError
from steelyard.bench.s3j import balancing as s3j_balancing
from steelyard.bench.s3j import baselines as s3j_baselines
from steelyard.bench.s3j import drift as s3j_drift
from steelyard.bench.s3j import speed as s3j_speed
from steelyard.bench.s3j import uniform as s3j_uniform
from steelyard.bench.s3j.balancing import Course, Plan, Watched
from steelyard.bench.s3j.speed import Case, Timed
from steelyard.core import OptionError
from steelyard.similarity import Greedy, WorksetLoad, metric
from steelyard.spark.said import join_progress
from steelyard.workloads.vectors import Vectors

T = 0.02


def vectors(rows: int, dimension: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (rows, dimension))


def frame(spark, points: np.ndarray, windows: np.ndarray | None = None):
    columns = {"id": np.arange(len(points)), "vector": pa.array(points.tolist())}
    if windows is not None:
        columns["window"] = windows
    return spark.createDataFrame(pa.table(columns))


def found(answer) -> list[tuple]:
    table = answer.toArrow()
    return sorted(zip(*(table.column(name).to_pylist() for name in ("left_id", "right_id", "window")), strict=True))


def brute_force(left, right, t: float, windows=None) -> list[tuple]:
    close = np.argwhere(metric("angular").pairwise(left, left if right is None else right) <= t).tolist()
    windows = np.zeros(len(left), dtype=int) if windows is None else windows
    return sorted(
        (i, j, int(windows[i])) for i, j in close if (right is not None or i < j) and windows[i] == windows[j]
    )


def ways(dimension: int, t: float = T):
    joins = {
        "cluster": lambda a, b: s3j_baselines.cluster_join(a, b, t, dimension, tasks=2, cells=20),
        "broadcast": lambda a, b: s3j_baselines.broadcast_join(a, b, t, dimension),
    }
    for form in s3j_baselines.FORMS:
        joins[form] = lambda a, b, form=form: s3j_baselines.cross_join(a, b, t, dimension, form)
    return joins


@pytest.mark.spark
@pytest.mark.parametrize("name", ["cluster", "broadcast", *s3j_baselines.FORMS])
def test_every_baseline_gives_the_pairs_of_brute_force(spark, name):
    left, right = vectors(80, 2, seed=1), vectors(70, 2, seed=2)
    windows = np.arange(80) // 40
    join = ways(2)[name]
    assert found(join(frame(spark, left), None)) == brute_force(left, None, T)
    assert found(join(frame(spark, left, windows), None)) == brute_force(left, None, T, windows)
    assert found(join(frame(spark, left), frame(spark, right))) == brute_force(left, right, T)


@pytest.mark.spark
def test_a_baseline_joins_micro_batches(spark, tmp_path):
    points = vectors(60, 3, seed=4)
    windows = np.arange(60) // 20
    for window in range(3):
        rows = frame(spark, points, windows).where(f"window = {window}")
        rows.coalesce(1).write.parquet(str(tmp_path / f"in/{window}"))
    pairs: list[tuple] = []
    work = s3j_baselines.each_batch(
        lambda batch: ways(3, 0.1)["cluster"](batch, None), lambda answer, number: pairs.extend(found(answer))
    )
    stream = (
        spark.readStream.schema("id bigint, vector array<double>, window bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in/*"))
    )
    query = stream.writeStream.foreachBatch(work).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(pairs) == brute_force(points, None, 0.1, windows)


@pytest.mark.spark
def test_ways_are_compared_and_timed_over_windows(spark, tmp_path):
    case = Case("tiny", vectors(200, 2, seed=3), 2, T, (60, 90))
    one = s3j_speed.timed(spark, tmp_path, case, repetitions=1, patience=1e9, run=Run(quick=True))
    assert one.pairs == len(brute_force(case.vectors, None, T, np.arange(200) // 100))
    assert set(one.seconds) == {"s3j", "clusterjoin", "clusterjoin, 32 cells", "broadcast join"}
    assert one.whole is not None
    assert one.cross_seconds == one.whole


@pytest.mark.spark
def test_moves_change_loads_and_no_pair(spark, tmp_path):
    law = Vectors(distribution="topics", seed=7)
    folders = s3j_balancing.write_windows(tmp_path / "rows", law, 300, 3)
    still, moving = s3j_balancing.both(spark, tmp_path, folders, Run(quick=True))
    assert [report.results for report in still.reports] == [report.results for report in moving.reports]
    assert moving.plans[0].moves > 0
    assert moving.critical(2) < still.critical(2)
    assert all(plan.after <= plan.before for plan in moving.plans)


def test_an_unknown_form_of_a_cross_join_is_named():
    with pytest.raises(OptionError, match="zip_with"):
        s3j_baselines.cross_join(None, None, T, 2, form="zipwith")


def test_a_pair_that_is_given_twice_is_wrong():
    answer = pa.table({"left_id": [1, 2], "right_id": [2, 1], "distance": [0.0, 0.0]})
    with pytest.raises(WrongAnswerError, match="twice"):
        s3j_speed.pairs_of(answer, T)


def test_a_threshold_is_the_quantile_of_distances():
    points = vectors(400, 2, seed=5)
    t = s3j_speed.threshold(points, 0.01)
    assert len(brute_force(points, None, t)) == pytest.approx(0.01 * 400 * 399 / 2, rel=0.01)


def timing(title: str, whole: float | None) -> Timed:
    seconds = {"s3j": [1.0, 1.0, 9.0], "clusterjoin": [2.5], "clusterjoin, 32 cells": [1.5], "broadcast join": [4.0]}
    samples = {"unrolled": {100: 1.0, 200: 4.0}, "zip_with": {100: 2.0, 200: 9.0}}
    return Timed(title, 1_000, 1, T, 10, seconds, samples, whole)


def test_speeds_are_over_the_best_cross_join_and_say_where_it_was_extrapolated(tmp_path):
    kernels = {"kernel_vs_matmul": 0.6, "kernel_vs_matmul_float32": 0.4}
    result = s3j_speed.result_of([timing("2-d", None), timing("128-d", 6.0)], kernels, repetitions=3)
    assert result.metrics["vs_cross_join"] == pytest.approx(100.0)
    assert result.metrics["vs_cross_join_128d"] == 6.0
    assert result.metrics["vs_cross_join_zip_with"] == pytest.approx(233.0)
    assert result.kind_of("vs_cross_join_128d_zip_with") == "simulated"
    assert result.metrics["vs_clusterjoin"] == 2.5
    assert result.metrics["vs_clusterjoin_few_cells"] == 1.5
    assert not result.missed
    assert result.kind_of("vs_cross_join") == "simulated"
    assert result.kind_of("vs_cross_join_128d") == "measured"
    assert "unrolled" in " ".join(result.notes)
    assert "extrapolated" in result.notes[-1]
    assert choose(["s3j-speed"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


def test_the_kernel_is_timed_beside_a_matrix_product():
    found = s3j_speed.kernel_speeds(1, rows=256, repetitions=1)
    assert set(found) == {"kernel_vs_matmul", "kernel_vs_matmul_float32"}
    assert min(found.values()) > 0


def test_the_critical_path_is_that_of_the_busiest_worker(tmp_path):
    report = join_progress(0, loads=(8.0, 1.0, 0.0), task_seconds=(2.0, 1.0, 0.5), state_bytes=1_000)
    evened = join_progress(0, state_bytes=1_000, loads=(4.0, 3.0, 2.0), task_seconds=(1.0, 1.0, 1.0), moved_bytes=50)
    still, moving = Course([report] * 4), Course([report, report, evened, evened], [Plan(1.5, 0.4, 2)])
    loads = [WorksetLoad(0, n, worker=0, load=1.0) for n in range(6)]
    result = s3j_balancing.result_of(still, moving, 10, s3j_uniform.balanced([loads] * 3, workers=3))
    assert result.metrics["critical_path_reduction"] == 0.5
    assert result.metrics["critical_path_reduction_seconds"] == 0.5
    assert result.metrics["moved_bytes"] == 100
    assert not result.missed
    assert result.metrics["uniform_critical_path_reduction_last"] == pytest.approx(2 / 3)
    assert result.kind_of("uniform_moves") == "simulated"
    assert choose(["s3j-balancing"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


def test_plans_are_written_down_with_the_imbalance_before_and_after():
    loads = [WorksetLoad(0, n, worker=0, load=1.0) for n in range(4)]
    watched = Watched(Greedy())
    assert watched.moves(loads, 2) == Greedy().moves(loads, 2)
    assert watched.plans == [Plan(before=2.0, after=0.0, moves=2)]


def test_drift_is_met_by_moves_and_old_centroids_retire(tmp_path):
    run = Run(quick=True)
    moved = s3j_drift.courses(s3j_drift.balancers(), [1], rows=300, windows=9, run=run)
    retired = s3j_drift.courses(s3j_drift.retiring(), [1], rows=300, windows=9, run=run)
    result = s3j_drift.result_of(moved, retired, rows=300)
    assert result.metrics["greedy_critical_path_settled"] < result.metrics["none_critical_path_settled"]
    assert result.metrics["worksets_after_retirement"] < result.metrics["worksets_kept"]
    assert choose(["s3j-drift"])[0].save_picture(result, tmp_path / "a.png").stat().st_size > 10_000


def test_a_join_in_one_process_finds_the_pairs_of_brute_force():
    points = vectors(150, 2, seed=9)
    for balancer in (None, Greedy()):
        join = s3j_drift.LocalJoin(3, 2, T, balancer)
        counts = [join.window(points[k : k + 50], k).pairs for k in (0, 50, 100)]
        assert counts == [len(brute_force(points[k : k + 50], None, T)) for k in (0, 50, 100)]
