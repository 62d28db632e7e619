"""The benchmark of small batches: its data, answers and figures."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steelyard.bench.engine import small_batches
from steelyard.bench.engine.small_batches import OURS, PLAIN, ROCKSDB, Case, Measured, Plan, Way
from steelyard.bench.registry import choose
from steelyard.bench.result import Result, WrongAnswerError

TINY = Case("tiny", "batch_vs_plain", 20, 5, window=10)
PLAN = Plan(turns=3, per_turn=1, warm_ups=1)


def measured(seconds, case=TINY):
    phases = {"process": 0.1, "total": 0.2}
    return [Measured(case, way, tuple(taken), phases if way == OURS else {}) for way, taken in seconds.items()]


def test_every_key_is_live_after_the_first_file_and_a_few_change_after_it(tmp_path):
    case = Case("keys", "batch_vs_plain_1m_keys", rows=10, keys=10, live=100, mode="update")
    first, *others = sorted(case.write(tmp_path / "files", 2, seed=1).iterdir())
    assert sorted(pq.read_table(first).column("key").to_pylist()) == list(range(100))
    assert [len(set(pq.read_table(file).column("key").to_pylist())) for file in others] == [10, 10]


def test_the_ratio_is_against_the_faster_of_both_stores():
    found = measured({PLAIN: [0.4, 0.4, 1.0], ROCKSDB: [0.5, 0.5, 0.5], OURS: [0.2, 0.2, 0.8]})
    result = small_batches.result_of(found, PLAN, slots=2)
    assert result.metrics["batch_vs_plain"] == pytest.approx(0.5)
    assert result.metrics["batch_vs_plain_mean"] == pytest.approx(0.8)
    assert not result.missed


def test_the_picture_is_drawn_from_what_is_saved(tmp_path):
    found = measured({PLAIN: [0.4], ROCKSDB: [0.5], OURS: [0.2]})
    saved = small_batches.result_of(found, PLAN, slots=2).to_dict()
    assert choose(["small-batches"])[0].save_picture(Result.from_dict(saved), tmp_path / "a.png").exists()


def test_a_different_answer_stops_the_benchmark(tmp_path):
    case = Case("keys", "batch_vs_plain_1m_keys", 10, 10, 100, mode="update")
    ways = {name: Way(name, case, tmp_path, spark=None) for name in (PLAIN, OURS)}
    for name, way in ways.items():
        way.updates[0] = pa.table({"key": [1, 2], "n": [1, 1 if name == PLAIN else 2]})
    with pytest.raises(WrongAnswerError, match=f"{OURS} and {PLAIN}"):
        small_batches.require_same(ways)


@pytest.mark.spark
def test_all_ways_give_the_same_windows_and_take_their_turns(spark, tmp_path):
    found = small_batches.measure(spark, TINY, tmp_path / "tiny", PLAN, seed=1)
    assert {name: len(one.seconds) for name, one in found.items()} == dict.fromkeys((PLAIN, ROCKSDB, OURS), 2)
    assert found[OURS].phases["process"] > 0
