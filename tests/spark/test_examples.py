"""Every example runs as it is, and what it shows is what plain Spark, or a few lines of Python, say."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import functions as F
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from steelyard.workloads import Words, Zipf

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_MORE = {"kafka_fares.py"}  # a broker: tests/kafka runs it


def generated(spark, **options):
    return spark.read.format("steelyard").options(**options).load()


def rows_of(frame, *columns):
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def windows(rows, time, key, size, slide, *aggregates):
    """Closed windows of plain Spark: those that the watermark, ten seconds behind, has passed."""
    newest = rows.agg(F.max(time)).first()[0]
    found = rows.groupBy(F.window(time, size, slide), key).agg(*aggregates)
    return found.where(F.col("window.end") <= F.lit(newest) - F.expr("interval 10 seconds"))


def check_costly_rows(spark, seen, out):
    keys = generated(spark, workload="zipf", keys=50, rows=900).select("key")
    expected = keys.withColumn("waited_ms", 1 + F.col("key") * 7 % 13)
    assert rows_of(spark.table("waits"), "key", "waited_ms") == rows_of(expected, "key", "waited_ms")
    done = seen["results"].table("done")
    keys = seen["orders"].rows(0, 600, np.zeros(600, np.int64)).column("key").to_pylist()
    assert Counter(done["key"].to_pylist()) == Counter(keys)
    assert out.count("600 rows") == 2


def check_fares(spark, seen, out):
    trips = generated(spark, workload="taxi", rows=100_000)
    sums = (F.sum("fare_amount").alias("total"), F.count("*").alias("trips"))
    expected = windows(trips, "dropoff_time", "medallion", "1 minute", "10 seconds", *sums)
    right = {(start, key): (total, n) for (start, _), key, total, n in expected.collect()}
    columns = ("window_start", "medallion", "total", "trips")
    found = {row[:2]: row[2:] for row in map(tuple, spark.table("fares").select(*columns).collect())}
    assert found.keys() == right.keys()
    for key, (total, n) in found.items():
        assert (pytest.approx(total), n) == right[key]


def check_generated_stream(spark, seen, out):
    stream = Zipf(exponent=1.4, keys=10_000, drift_every=20_000)
    hottest = []
    for batch in range(5):
        keys = stream.rows(batch * 20_000, 20_000, np.zeros(20_000, np.int64)).column("key").to_numpy()
        told = re.findall(r"key (\d+) with (\d+) rows", out.splitlines()[batch])
        values, counts = np.unique(keys, return_counts=True)
        assert [int(rows) for _, rows in told] == sorted(counts.tolist())[:-4:-1]
        assert all(counts[values == int(key)] == int(rows) for key, rows in told)
        hottest.append(told[0][0])
    assert len(set(hottest)) == 5, "other keys are hot after every batch"


def check_group_ahead(spark, seen, out):
    assert sum(map(int, re.findall(r"^batch \d+: (\d+) rows", out, re.M))) == 100_000
    given = spark.sql("select sum(n) as n from totals group by window_start order by window_start").collect()
    assert len(given) >= 3
    assert {row["n"] for row in given[1:]} == {25_000}, "half a second has so many; the first begins earlier than rows"


def check_hashtags(spark, seen, out):
    tweets = generated(spark, workload="tweets", words=5_000, exponent=1.5, rate=100, rows=9_000)
    tagged = tweets.withColumn("hashtag", F.substring_index("text", " ", 1))
    words = F.sum(F.size(F.split(F.trim("text"), r"\s+"))).alias("words")
    expected = windows(tagged, "event_time", "hashtag", "60 seconds", "20 seconds", words)
    counted = spark.table("hashtags").withColumn("n", F.expr("aggregate(map_values(words), 0L, (a, b) -> a + b)"))
    assert rows_of(counted, "window_end", "hashtag", "n") == rows_of(expected, "window.end", "hashtag", "words")


def check_near_duplicates(spark, seen, out):
    posts = generated(spark, workload="near_duplicates", seed=7, rate=50, rows=3_000).toPandas()
    plain = posts["text"].str.lower().str.replace("[^a-z0-9 ]", "", regex=True).str.strip(" ").to_numpy()
    edits = cdist(plain, plain, scorer=Levenshtein.distance, score_cutoff=3)
    minute = posts["event_time"].dt.floor("1min").to_numpy()
    left, right = np.nonzero(np.triu((edits <= 3) & (minute[:, None] == minute[None, :]), 1))
    ids = posts["id"].to_numpy()
    expected = Counter(
        zip(*np.sort([ids[left], ids[right]], axis=0).tolist(), edits[left, right].tolist(), strict=True)
    )
    found = spark.table("pairs").select("left_id", "right_id", "distance").collect()
    assert Counter((min(a, b), max(a, b), int(distance)) for a, b, distance in found) == expected
    assert expected


def check_own_aggregate(spark, seen, out):
    trips = seen["trips"]
    mean = F.exp(F.avg(F.log("fare_amount")))
    right = {key: (value, n) for key, value, n in trips.groupBy("medallion").agg(mean, F.count("*")).collect()}
    found = seen["means"].select("medallion", "typical", "fast", "trips").collect()
    assert len(found) == len(right)
    for key, typical, fast, n in found:
        assert (pytest.approx(typical), n) == right[key]
        assert fast == pytest.approx(typical)


def check_resident_words(spark, seen, out):
    rows = seen["results"].table("counts").to_pylist()
    words = Words(words=1000, seed=7).rows(0, 50_000, np.zeros(50_000, np.int64)).column("word").to_pylist()
    found = Counter()
    for row in rows:
        found[row["word"]] += row["n"]
    assert found == Counter(words)


def check_learnt_partitioner(spark, seen, out):
    told = [(name, float(mpi)) for name, mpi in re.findall(r"  (\S+) +largest block .* MPI ([\d.]+)", out)]
    assert [name for name, _ in told] == 3 * ["hash", "prompt", "partly?net=false"]
    for hashed, prompt, learnt in zip(told[::3], told[1::3], told[2::3], strict=True):
        assert learnt[1] < prompt[1] < hashed[1]


def check_what_if(spark, seen, out):
    lines = [line for line in out.splitlines() if "tuples/s" in line]
    told = [re.match(r" *(\w+): +([\d,]+) tuples", line).groups() for line in lines]
    rate = {name: float(number.replace(",", "")) for name, number in told}
    assert len(rate) == 7
    assert all(one < 1.05 * 9_000 for one in rate.values()), "no more than comes"
    assert max(rate, key=lambda name: rate[name]) != "hash", "a hot customer overloads one instance"


CHECKS = {name.removeprefix("check_") + ".py": check for name, check in globals().items() if name.startswith("check_")}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in NEEDS_MORE))
def test_an_example_gives_the_right_answer(spark, name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    monkeypatch.setattr("sys.argv", [name])
    seen = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    CHECKS[name](spark, seen, capsys.readouterr().out)
