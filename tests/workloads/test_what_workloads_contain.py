"""Facts of each workload that a reader of its documentation relies on."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.workloads import Arrivals, workload
from steelyard.workloads.vocabulary import vocabulary

ROWS = 50_000
TIMES = Arrivals().times(0, ROWS)


def table(name: str, **parameters: object) -> dict[str, np.ndarray]:
    batch = workload(name, **parameters).rows(0, ROWS, TIMES)
    return {field: batch.column(field).to_numpy(zero_copy_only=False) for field in batch.schema.names}


def hottest(keys: np.ndarray) -> int:
    return int(np.bincount(keys).argmax())


def test_zipf_keys_have_the_shares_of_the_law() -> None:
    keys = table("zipf", exponent=1.0, keys=100)["key"]
    assert (keys == 0).mean() == pytest.approx(1 / sum(1 / r for r in range(1, 101)), abs=0.01)
    assert keys.min() == 0
    assert keys.max() < 100


def test_ten_million_keys_are_all_within_reach() -> None:
    keys = table("zipf", exponent=0.1, keys=10**7)["key"]
    assert len(np.unique(keys)) > 0.99 * ROWS
    assert keys.max() > 0.99 * 10**7


def test_hot_keys_change_when_they_drift_by_rows() -> None:
    keys = table("zipf", exponent=1.5, keys=1000, drift_every=10_000, seed=4)["key"]
    hot = [hottest(part) for part in np.split(keys, 5)]
    assert hot[0] == 0
    assert len(set(hot)) == 5


def test_hot_keys_change_when_they_drift_by_seconds() -> None:
    keys = table("zipf", exponent=1.5, keys=1000, drift_every=10, drift_unit="seconds", seed=4)["key"]
    assert len({hottest(part) for part in np.split(keys, 5)}) == 5  # 1,000 rows per second


@settings(deadline=None)
@given(keys=st.integers(1, 300), seed=st.integers(0, 100))
def test_every_key_is_the_hottest_once_before_one_returns(keys: int, seed: int) -> None:
    drifting = workload("zipf", exponent=4, keys=keys, drift_every=1, seed=seed)
    rotation = drifting._rotation(np.arange(keys, dtype=np.uint64), TIMES[:keys])
    assert sorted(rotation.tolist()) == list(range(keys))


@settings(deadline=None)
@given(st.integers(1, 20_000))
def test_words_of_a_vocabulary_differ(words: int) -> None:
    assert len(vocabulary(words)) == len(vocabulary(words).unique()) == words


def test_tweets_have_ten_to_twenty_words_of_the_vocabulary() -> None:
    tweets = table("tweets", words=500)
    lengths = [len(text.split(" ")) for text in tweets["text"]]
    assert (min(lengths), max(lengths)) == (10, 20)
    known = set(vocabulary(500).to_pylist())
    assert set(" ".join(tweets["text"][:1000]).split(" ")) <= known
    assert tweets["tweet_id"].tolist() == list(range(ROWS))


def test_frequent_words_are_few() -> None:
    words = pa.array(table("words")["word"]).value_counts().to_pylist()
    counts = sorted((row["counts"] for row in words), reverse=True)
    assert 0.2 < sum(counts[:20]) / ROWS < 0.6


def test_taxi_amounts_add_up_to_the_total() -> None:
    trips = table("taxi")
    parts = ("fare_amount", "surcharge", "mta_tax", "tip_amount", "tolls_amount")
    assert np.allclose(sum(trips[part] for part in parts), trips["total_amount"], atol=0.005)
    assert np.all(trips["fare_amount"] > 2.5)
    assert np.all(trips["tip_amount"][trips["payment_type"] == "CSH"] == 0)


def test_taxi_trips_come_in_the_order_of_their_drop_off_and_last_as_long_as_they_say() -> None:
    trips = table("taxi")
    assert np.all(np.diff(trips["dropoff_time"]).astype(np.int64) >= 0)
    lasted = (trips["dropoff_time"] - trips["pickup_time"]).astype("timedelta64[s]").astype(np.int64)
    assert np.array_equal(lasted, trips["trip_time_in_secs"])
    assert 400 < np.median(lasted) < 900


def test_taxis_are_many_and_mildly_skewed() -> None:
    counts = np.array(pa.array(table("taxi")["medallion"]).value_counts().field("counts"))
    assert 10_000 < len(counts) <= 13_000
    assert 2 < counts.max() / counts.mean() < 12


def test_a_job_keeps_its_class_and_priority_for_its_life() -> None:
    events = table("cluster", jobs=100)
    pairs = {tuple(row) for row in zip(events["job_id"], events["scheduling_class"], events["priority"], strict=True)}
    assert len(pairs) == len(np.unique(events["job_id"]))
    assert set(events["scheduling_class"]) == {0, 1, 2, 3}
    assert np.all((events["cpu"] > 0) & (events["cpu"] <= 1) & (events["memory"] > 0) & (events["memory"] <= 1))


def test_jobs_end_and_others_begin() -> None:
    jobs = table("cluster", jobs=100, job_rows=10_000)["job_id"]
    assert not set(jobs[:5_000]) & set(jobs[-5_000:])
    assert len(np.unique(jobs[:1000])) <= 200


def test_orders_have_one_to_seven_lines_numbered_from_one() -> None:
    lines = table("lineitem")
    whole = 28 * (ROWS // 28)
    orders, counts = np.unique(lines["l_orderkey"][:whole], return_counts=True)
    assert orders.tolist() == list(range(1, len(orders) + 1))
    assert np.bincount(counts).tolist() == [0] + [ROWS // 28] * 7
    first = np.flatnonzero(np.diff(lines["l_orderkey"], prepend=0))
    assert np.all(lines["l_linenumber"][first] == 1)


def test_line_items_keep_the_rules_of_tpch() -> None:
    lines = table("lineitem", scale=0.1)
    assert np.all((lines["l_partkey"] >= 1) & (lines["l_partkey"] <= 20_000))
    assert np.all((lines["l_suppkey"] >= 1) & (lines["l_suppkey"] <= 1_000))
    assert np.all((lines["l_quantity"] >= 1) & (lines["l_quantity"] <= 50))
    ship, receipt = (lines[f"l_{day}date"].astype("datetime64[D]") for day in ("ship", "receipt"))
    assert np.all(receipt > ship)
    today = np.datetime64(date(1995, 6, 17))
    assert np.array_equal(lines["l_linestatus"] == "O", ship > today)
    assert np.array_equal(lines["l_returnflag"] == "N", receipt > today)
    price = (90_000 + lines["l_partkey"] // 10 % 20_001 + 100 * (lines["l_partkey"] % 1000)) / 100
    assert np.allclose(lines["l_extendedprice"], lines["l_quantity"] * price)


def test_parts_are_alike_unless_an_exponent_is_given() -> None:
    alike, skewed = (np.bincount(table("lineitem", scale=0.001, exponent=s)["l_partkey"]) for s in (0, 1.5))
    assert alike[1:].max() / ROWS < 0.01
    assert skewed.max() / ROWS > 0.3
