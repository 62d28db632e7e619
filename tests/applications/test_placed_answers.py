"""Word counts, log counts and hits of the placed applications are plain Spark's over the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions as F

from steelyard.core.errors import OptionError
from steelyard.sim.placed import deployed
from steelyard.sim.placed.answers import LOGS, WORD_COUNT, answered, queries, stored, sums
from steelyard.workloads import workload

ROWS, VEHICLES, ASKED = 400, 3000, 60


def made(name: str, count: int) -> list[dict]:
    return workload(name, seed=5).rows(0, count, np.zeros(count, dtype=np.int64)).to_pylist()


LINES = [row["text"] for row in made("tweets", ROWS)]
ENTRIES = [{**row, "number": number} for number, row in enumerate(made("logs", ROWS))]
TABLE, QUERIES = made("vehicles", VEHICLES), made("speed_queries", ASKED)


def words_of(setup: str, rows) -> dict[str, int]:
    states = answered(deployed(setup).setup, WORD_COUNT, rows, key=str)
    counts = stored(states, "count")  # no word is counted by two threads
    kept: dict[str, int] = {}
    for thread, state in states.items():
        if thread.operator == "store":
            kept = {word: max(times, kept.get(word, 0)) for word, times in (kept | state).items()} | {
                word: max(times, state.get(word, 0)) for word, times in kept.items()
            }
    assert kept == counts
    return counts


def logs_of(setup: str):
    states = answered(deployed(setup).setup, LOGS, {"spout": ENTRIES})
    return stored(states, "store1"), sums(states, "store2")


def hits_of(setup: str):
    return stored(answered(deployed(setup).setup, queries(TABLE), {"spout": QUERIES}), "file")


def test_answers_do_not_depend_on_how_many_threads_there_are():
    assert words_of("wc-7", {"spout": LINES}) == words_of("wc-large", {"spout": LINES})
    assert words_of("wc-2-sources", {"spout1": LINES[::2], "spout2": LINES[1::2]}) == words_of(
        "wc-30", {"spout": LINES}
    )
    assert logs_of("lsp-33") == logs_of("lsp-large")
    assert hits_of("cq-31") == hits_of("cq-small")


def test_a_component_without_a_function_is_named():
    with pytest.raises(OptionError, match="count"):
        answered(deployed("wc-7").setup, {"split": WORD_COUNT["split"], "store": WORD_COUNT["store"]}, {})


@pytest.mark.spark
def test_answers_are_those_of_plain_spark(spark):
    lines = spark.createDataFrame([(line,) for line in LINES], "text string")
    words = lines.select(F.explode(F.split("text", " ")).alias("word")).groupBy("word").count()
    assert words_of("wc-30", {"spout": LINES}) == {row["word"]: row["count"] for row in words.collect()}

    entries = spark.createDataFrame(
        [(one["number"], one["uri_stem"], one["status"], one["time_taken"]) for one in ENTRIES],
        "number long, uri_stem string, status int, time_taken int",
    )
    kind = F.when(F.col("status") >= 500, "error").when(F.col("status") == 404, "missing")
    found = entries.withColumn("kind", kind.when(F.col("time_taken") > 1000, "slow")).where("kind is not null")
    index, counts = logs_of("lsp-33")
    assert index == {row["number"]: (row["kind"], row["uri_stem"]) for row in found.collect()}
    assert counts == {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
    assert set(counts) == {"error", "missing", "slow"}

    table = spark.createDataFrame(
        [(v["plate"], v["owner"], v["speed"]) for v in TABLE], "plate string, owner string, speed double"
    )
    asked = spark.createDataFrame(
        [(q["query"], q["ending"], q["above"]) for q in QUERIES], "query long, ending string, above double"
    )
    both = asked.join(table, F.col("plate").endswith(F.col("ending")) & (F.col("speed") > F.col("above")))
    hits = {
        row["query"]: tuple(row["owners"])
        for row in both.groupBy("query").agg(F.sort_array(F.collect_list("owner")).alias("owners")).collect()
    }
    ours = hits_of("cq-31")
    assert {query: owners for query, owners in ours.items() if owners} == hits
    assert len(ours) == ASKED
    assert len(hits) > ASKED / 2
