"""Similarity joins on Spark: the pairs of brute force, whatever the batches, the workers and the moves."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import steelyard as sy
from steelyard.core import Action, BadRowError, OptionError, SteelyardError
from steelyard.similarity import Balancing, Bandit, EveryWindow, ImbalanceAbove, metric
from steelyard.spark.badrows import BadRows
from steelyard.spark.join_engine import JoinEngine
from steelyard.spark.join_space import FIRST
from steelyard.spark.sinks import MemorySink

pytestmark = pytest.mark.spark

SECOND = 1_000_000
SCHEMA = "id string, at timestamp, vector array<double>"


def vectors(rows: int, seed: int, dimension: int = 2, prefix: str = "") -> list[tuple]:
    """Rows with a time each second; every fifth vector is a copy of an earlier one."""
    draws = np.random.default_rng(seed)
    points = draws.uniform(-1, 1, (rows, dimension)).round(3)
    for copy in range(5, rows, 5):
        points[copy] = points[copy - draws.integers(1, 5)]
    return [(f"{prefix}{n}", n, [float(x) for x in point]) for n, point in enumerate(points)]


def frame(spark, rows: list[tuple]):
    timed = [(key, pa.scalar(at * SECOND, pa.timestamp("us", "UTC")).as_py(), vector) for key, at, vector in rows]
    return spark.createDataFrame(timed, SCHEMA)


def brute_force(left, right, name: str, t: float, size: int, slide: int | None = None) -> set[tuple]:
    """Pairs of ids with the starts of the windows that hold both, by comparing everything."""
    measure, slide = metric(name), slide or size
    a, _ = measure.records(pa.array([row[2] for row in left]))
    b, _ = measure.records(pa.array([row[2] for row in right]))
    found = set()
    for i, j in np.argwhere(measure.pairwise(a, b) <= measure.threshold(t)).tolist():
        if left is right and i >= j:
            continue
        for start in range((min(left[i][1], right[j][1]) // slide + 1) * slide - size, left[i][1] + size, slide):
            if all(start <= row[1] < start + size for row in (left[i], right[j])) and start % slide == 0:
                found.add((left[i][0], right[j][0], start))
    return found


class Fed:
    """An engine that is given its batches by hand."""

    def __init__(self, spark, join, path, **changes):
        self.spark, self.join, self.path = spark, join, str(path)
        self.settings = replace(join.settings, **changes)
        self.sink = MemorySink("pairs", spark)
        self.batch = 0
        self.start()

    def start(self):
        join, kind = self.join, self.join.rows.schema["id"].dataType
        self.engine = JoinEngine(self.spark, join.program, kind, self.settings, self.sink, self.path, join._signature())

    def give(self, rows):
        report = self.engine.process(rows, self.batch)
        self.batch += 1
        return report

    def pairs(self) -> list[tuple]:
        table = self.sink.table()
        if not table.num_rows:
            return []
        starts = [int(at.timestamp()) for at in table.column("window_start").to_pylist()]
        return list(zip(table.column("left_id").to_pylist(), table.column("right_id").to_pylist(), starts, strict=True))


def self_join(spark, rows, **options):
    given = {"on": "vector", "id": "id", "time": "at", "window": "20 seconds", "workers": 3, "threshold": 0.02}
    return sy.similarity_join(frame(spark, rows), **{**given, **options})


def same(found: list[tuple], expected: set[tuple], *, ordered: bool) -> None:
    turned = [one if ordered else (*sorted(one[:2]), one[2]) for one in found]
    assert len(turned) == len(set(turned)), "a pair twice"
    assert set(turned) == {one if ordered else (*sorted(one[:2]), one[2]) for one in expected}


@pytest.mark.parametrize("name", ["angular", "euclidean", "manhattan", "chebyshev", "cosine"])
def test_a_static_join_gives_the_pairs_of_brute_force(spark, name):
    rows = vectors(150, seed=3, dimension=3)
    join = sy.similarity_join(
        frame(spark, rows), on="vector", id="id", metric=name, threshold=0.15, workers=3, space="farthest"
    )
    found = join.to_df().toArrow()
    pairs = [(a, b, 0) for a, b in zip(found["left_id"].to_pylist(), found["right_id"].to_pylist(), strict=True)]
    untimed = [(key, 0, vector) for key, _, vector in rows]
    same(pairs, brute_force(untimed, untimed, name, 0.15, 1), ordered=False)
    assert found["distance"].to_numpy().max() <= 0.15


@pytest.mark.parametrize("key", ["bigint", "int", "string"])
@pytest.mark.parametrize("two", [True, False])
def test_a_static_join_with_windows_takes_any_ids(spark, key, two):
    rows = [(int(name) * 3 % 101, at, vector) for name, at, vector in vectors(60, seed=8)]
    others = [(1000 + at, at, vector) for _, at, vector in vectors(60, seed=9)] if two else rows
    sides = [frame(spark, [(str(name), *rest) for name, *rest in side]) for side in (rows, others)]
    left, right = (side.withColumn("id", F.col("id").cast(key)) for side in sides)
    join = sy.similarity_join(
        left, right if two else None, on="vector", id="id", time="at", window="20 seconds", threshold=0.05, workers=2
    )
    found = join.to_df().collect()
    pairs = [(int(row.left_id), int(row.right_id), int(row.window_start.timestamp())) for row in found]
    same(pairs, brute_force(rows, others, "angular", 0.05, 20), ordered=two)
    if not two and key != "string":
        assert all(a < b for a, b, _ in pairs)


def test_vectors_of_single_precision_are_joined_by_their_own_values(spark):
    rows = vectors(60, seed=3, dimension=3)
    single = frame(spark, rows).withColumn("vector", F.col("vector").cast("array<float>"))
    found = sy.similarity_join(single, on="vector", id="id", threshold=0.1, workers=2).to_df().toArrow()
    rounded = [(name, 0, np.float32(vector).astype(float).tolist()) for name, _, vector in rows]
    pairs = [(a, b, 0) for a, b in zip(found["left_id"].to_pylist(), found["right_id"].to_pylist(), strict=True)]
    same(pairs, brute_force(rounded, rounded, "angular", 0.1, 1), ordered=False)


def test_the_dimension_is_found_behind_many_bad_rows(spark):
    bad = [(f"bad{n}", 0, [float("nan"), 1.0]) for n in range(FIRST + 5)]
    good = [(name, 0, vector) for name, _, vector in vectors(30, seed=2)]
    rows = frame(spark, bad + good).coalesce(1)
    join = sy.similarity_join(rows, on="vector", id="id", threshold=0.1, workers=2)
    with pytest.raises(Exception, match=r"a row cannot be joined: .*bad0.*on_bad_rows"):
        join.to_df().toArrow()
    found = join.on_bad_rows("drop").to_df().toArrow()
    pairs = [(a, b, 0) for a, b in zip(found["left_id"].to_pylist(), found["right_id"].to_pylist(), strict=True)]
    same(pairs, brute_force(good, good, "angular", 0.1, 1), ordered=False)


@pytest.mark.parametrize(("name", "threshold"), [("edit", 2.0), ("jaccard", 0.4)])
def test_text_is_joined_too(spark, name, threshold):
    words = ["alpha beta gamma", "alpha beta gama", "alpha beta", "delta", "dela", "alpha gamma beta", "zeta"]
    texts = spark.createDataFrame(list(enumerate(words)), "id int, text string")
    found = sy.similarity_join(texts, on="text", id="id", metric=name, threshold=threshold, workers=2).to_df().collect()
    measure = metric(name)
    records, _ = measure.records(pa.array(words))
    close = np.argwhere(np.triu(measure.pairwise(records, records) <= threshold, 1)).tolist()
    assert sorted(sorted((row.left_id, row.right_id)) for row in found) == sorted(close)


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "two": st.booleans(),
        "workers": st.integers(1, 4),
        "threshold": st.sampled_from([0.0, 0.01, 0.1, 1.0]),
        "slide": st.sampled_from([None, 10]),
        "batches": st.integers(1, 3),
        "moves": st.booleans(),
        "split": st.booleans(),
        "restart": st.booleans(),
        "balanced_ids": st.booleans(),
    }
)


# a batch of which a partition has only records that belong to none of its worksets
NONE_NEAR = {"seed": 19, "two": False, "workers": 3, "threshold": 0.1, "slide": None, "batches": 3, "moves": False}


@given(CASES)
@example({**NONE_NEAR, "split": False, "restart": False, "balanced_ids": False})
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_a_stream_gives_the_pairs_of_brute_force(spark, tmp_path_factory, case):
    left = vectors(30, case["seed"], prefix="l")
    right = vectors(30, case["seed"] + 1, prefix="r") if case["two"] else None
    options = {"threshold": case["threshold"], "workers": case["workers"], "balanced_ids": case["balanced_ids"]}
    if case["slide"]:
        options["slide"] = f"{case['slide']} seconds"
    join = sy.similarity_join(
        frame(spark, left),
        frame(spark, right) if right else None,
        on="vector",
        id="id",
        time="at",
        window="20 seconds",
        watermark="1 hour",
        **options,
    )
    policy = Balancing(ImbalanceAbove(0.0), split=case["split"]) if case["moves"] else None
    fed = Fed(spark, join, tmp_path_factory.mktemp("join"), policy=policy)
    bounds = np.linspace(0, 30, case["batches"] + 1).astype(int)
    for first, last in pairwise(bounds):
        fed.give(join.rows.where(f"at >= {first * SECOND} and at < {last * SECOND}"))
        if case["restart"]:
            fed.start()
    expected = brute_force(left, right or left, "angular", case["threshold"], 20, case["slide"])
    same(fed.pairs(), expected, ordered=bool(right))


def test_worksets_move_in_mid_window_and_ship_only_themselves(spark, tmp_path):
    rows = vectors(120, seed=5)
    join = self_join(spark, rows, window="1 hour", threshold=0.01)
    fed = Fed(spark, join, tmp_path / "join", policy=Balancing(ImbalanceAbove(0.0)))
    reports = [fed.give(join.rows.where(f"at >= {n * 40 * SECOND} and at < {(n + 1) * 40 * SECOND}")) for n in range(3)]
    assert sum(report.moves for report in reports) > 0
    assert 0 < sum(report.moved_bytes for report in reports) < sum(report.state_bytes for report in reports)
    assert "imbalance" in reports[0].decision
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.01, 3600), ordered=False)


def test_a_workset_that_is_too_heavy_to_move_is_cut_in_mid_window(spark, tmp_path):
    rows = [(key, at, [1.0, at % 3 / 1e4]) for key, at, _ in vectors(60, seed=1)]  # all in one workset
    join = self_join(spark, rows, window="1 hour")
    fed = Fed(spark, join, tmp_path / "join", policy=Balancing(ImbalanceAbove(0.0), split=True))
    reports = [fed.give(join.rows.where(f"at >= {n * 20 * SECOND} and at < {(n + 1) * 20 * SECOND}")) for n in range(3)]
    assert [report.splits for report in reports] == [1, 0, 0]
    assert sum(load > 0 for load in reports[0].loads) == 1
    assert sum(load > 0 for load in reports[1].loads) == 3
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.02, 3600), ordered=False)


def test_what_a_balancer_learnt_survives_a_restart_and_no_other_policy_gets_it(spark, tmp_path, caplog):
    join = self_join(spark, vectors(60, seed=5), window="1 hour")
    fed = Fed(spark, join, tmp_path / "join", policy=Balancing(ImbalanceAbove(0.0), Bandit()))
    for n in range(3):
        fed.give(join.rows.where(f"at >= {n * 20 * SECOND} and at < {(n + 1) * 20 * SECOND}"))
    known = {name: array.tolist() for name, array in fed.engine.settings.policy.state().items()}
    fed.start()
    assert {name: array.tolist() for name, array in fed.engine.settings.policy.state().items()} == known
    assert known["plans"] != [0]
    for other in (Balancing(ImbalanceAbove(0.0), Bandit(seed=7)), Counting()):
        fed.settings = replace(fed.settings, policy=other)
        fed.start()
        assert not fed.engine.settings.policy.state().get("plans", np.zeros(1)).any()
        assert "the balancing policy begins anew, since another one had learnt" in caplog.text
        caplog.clear()


class Counting:
    """A policy that learns something else."""

    def decide(self, observation):
        return Action()

    def state(self):
        return {"looks": np.zeros(1)}

    def restore(self, state):
        self.looks = state["looks"]


def test_a_closed_window_leaves_nothing_but_its_geometry(spark, tmp_path):
    rows = vectors(60, seed=7)
    join = self_join(spark, rows)
    fed = Fed(spark, join, tmp_path / "join", policy=Balancing(EveryWindow()))
    reports = [fed.give(join.rows.where(f"at >= {n * 20 * SECOND} and at < {(n + 1) * 20 * SECOND}")) for n in range(3)]
    assert reports[0].created > reports[-1].created
    late = fed.give(join.rows.where(f"at < {20 * SECOND}"))
    assert late.late_rows == 20
    assert late.results == 0
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.02, 20), ordered=False)


def test_a_batch_that_was_committed_is_not_joined_again(spark, tmp_path):
    rows = vectors(40, seed=2)
    join = self_join(spark, rows, window="1 hour")
    fed = Fed(spark, join, tmp_path / "join")
    fed.give(join.rows)
    before = fed.pairs()
    fed.start()
    assert fed.engine.process(join.rows, 0) is None
    assert fed.pairs() == before


def test_a_first_batch_that_failed_leaves_no_space_behind(spark, tmp_path):
    rows = vectors(20, seed=1)
    join = self_join(spark, rows, window="1 hour", space="farthest")
    fed = Fed(spark, join, tmp_path / "join")
    nameless = join.rows.withColumn("id", F.lit(None).cast("string"))
    with pytest.raises(BadRowError):
        fed.engine.process(nameless, 0)
    fed.give(join.rows.where(f"at < {10 * SECOND}"))
    fed.start()
    fed.give(join.rows.where(f"at >= {10 * SECOND}"))
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.02, 3600), ordered=False)


def test_bad_rows_are_counted_and_kept_and_an_empty_batch_is_nothing(spark, tmp_path):
    good = vectors(20, seed=1)
    rows = frame(spark, good)
    bad = spark.sql(
        "select cast(null as string) id, timestamp_seconds(1) at, array(1d, 2d) vector union all "
        "select 'a', null, array(1d, 2d) union all select 'b', timestamp_seconds(1), array(0d, 0d) union all "
        "select 'c', timestamp_seconds(1), array(double('NaN'), 1d) union all "
        "select 'd', timestamp_seconds(1), array(1d) union all select 'e', timestamp_seconds(1), null"
    )
    join = sy.similarity_join(
        rows.union(bad), on="vector", id="id", time="at", window="1 hour", threshold=0.02, workers=2
    )
    fed = Fed(spark, join, tmp_path / "a", bad=BadRows("dead_letter", str(tmp_path / "letters")))
    assert fed.give(join.rows.where("false")).rows == 0
    report = fed.give(join.rows)
    assert sum(report.bad_rows.values()) == 6
    reasons = {row.reason for row in spark.read.parquet(str(tmp_path / "letters")).collect()}
    assert {"null id", "null time", "null record"} < reasons
    same(fed.pairs(), brute_force(good, good, "angular", 0.02, 3600), ordered=False)
    with pytest.raises(BadRowError, match="not a record of the metric"):
        Fed(spark, join, tmp_path / "b").give(join.rows)


def test_a_bound_on_memory_is_kept(spark, tmp_path):
    join = self_join(spark, vectors(200, seed=1), window="1 hour", max_bytes=2_000)
    with pytest.raises(Exception, match="max_bytes=2000"):
        Fed(spark, join, tmp_path / "join").give(join.rows)


def test_streams_are_joined_and_a_restart_goes_on(spark, tmp_path):
    rows = vectors(60, seed=4)
    table = frame(spark, rows)
    for part in range(3):
        within = table.where(f"unix_seconds(at) >= {part * 20} and unix_seconds(at) < {(part + 1) * 20}").coalesce(1)
        within.write.parquet(str(tmp_path / f"in/{part}"))

    def join():
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in/*"))
        return (
            sy.similarity_join(stream, on="vector", id="id", time="at", window="1 hour", threshold=0.02, workers=2)
            .sink("parquet", path=str(tmp_path / "out"))
            .checkpoint(str(tmp_path / "checkpoint"))
            .trigger(available_now=True)
        )

    for _ in range(2):
        query = join().start()
        assert query.await_termination(120)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    pairs = [(a, b, 0) for a, b in zip(found["left_id"].to_pylist(), found["right_id"].to_pylist(), strict=True)]
    same(pairs, {(a, b, 0) for a, b, _ in brute_force(rows, rows, "angular", 0.02, 3600)}, ordered=False)
    other = join()
    other = replace(other, program=replace(other.program, t=0.5))
    with pytest.raises(OptionError, match="threshold"):
        other.start()


def test_records_from_before_1970_are_joined_as_all_others(spark, tmp_path):
    rows = [(key, at - 35, vector) for key, at, vector in vectors(60, seed=6)]
    fed = Fed(spark, self_join(spark, rows), tmp_path)
    reports = [fed.give(self_join(spark, rows[start : start + 20]).rows) for start in (0, 20, 40)]
    same(fed.pairs(), brute_force(rows, rows, "angular", 0.02, 20), ordered=False)
    assert any(start < 0 for _, _, start in fed.pairs())
    assert sum(report.late_rows for report in reports) == 0
    assert reports[0].watermark == "1969-12-31T23:59:44.000Z"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "vektor"}, "vektor"),
        ({"metric": "angel"}, "angular"),
        ({"threshold": 2.0}, "threshold is 2.0"),
        ({"threshold": None}, "either threshold"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"slide": "10 seconds", "window": None}, "slide goes with a window"),
        ({"metric": "euclidean", "threshold": None, "similarity": 0.5}, "no similarity"),
    ],
)
def test_a_wrong_option_is_named(spark, options, message):
    with pytest.raises(SteelyardError, match=message):
        self_join(spark, vectors(5, seed=1), **options)


def test_a_function_that_is_no_metric_is_warned_of(spark):
    rows = vectors(30, seed=1)
    with pytest.warns(UserWarning, match="pairs may be missing"):
        sy.similarity_join(
            frame(spark, rows),
            on="vector",
            id="id",
            metric=lambda a, b: float(np.sum((np.asarray(a) - np.asarray(b)) ** 2)),
            threshold=0.1,
        )
