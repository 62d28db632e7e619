"""Joins whose records are all near to each other: in blocks of pairs, with the pairs of brute force, and told once."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import steelyard as sy
from steelyard.similarity import Balancing, ImbalanceAbove, metric
from steelyard.similarity.pairblocks import EVERYTHING
from steelyard.spark import join_engine
from tests.spark.test_similarity_join import SECOND, Fed, brute_force, frame, same, vectors

pytestmark = pytest.mark.spark

WIDE, DIMENSION = 0.38, 24
"""In so many dimensions few records are within this angle of each other, and nearly all within twice of it."""


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.WARNING, "steelyard.spark.join_space")
    return lambda: [record for record in caplog.records if "compared in blocks" in record.getMessage()]


def texts(count: int) -> list[str]:
    draws = np.random.default_rng(5)
    words = [f"w{n}" for n in range(60)]
    made = [" ".join(draws.choice(words, draws.integers(4, 8), replace=False)) for _ in range(count)]
    for copy in range(3, count, 4):
        made[copy] = " ".join(made[copy - 1].split()[:-1])
    return made


@pytest.mark.parametrize("two", [False, True])
def test_texts_that_are_all_near_are_compared_in_blocks(spark, told, two):
    words = texts(120)
    rows = spark.createDataFrame(list(enumerate(words)), "id int, text string")
    left, right = (rows.where("id % 2 = 0"), rows.where("id % 2 = 1")) if two else (rows, None)
    join = sy.similarity_join(left, right, on="text", id="id", metric="jaccard", similarity=0.5, workers=3)
    found = join.to_df().collect()
    jaccard = metric("jaccard")
    records, _ = jaccard.records(pa.array(words))
    near = np.triu(jaccard.pairwise(records, records) <= 0.5, 1)
    if two:
        near[::2, ::2] = near[1::2, 1::2] = False
    assert sorted(sorted((row.left_id, row.right_id)) for row in found) == np.argwhere(near).tolist()
    assert all(row.similarity >= 0.5 for row in found)
    assert len(found) > 10
    assert len(told()) == 1
    assert "\n" not in told()[0].getMessage()


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "two": st.booleans(),
        "workers": st.integers(1, 4),
        "slide": st.sampled_from([None, 60]),
        "first": st.sampled_from([4, 40]),  # of few records nobody can tell that all are near
        "room": st.just(0),
        "moves": st.booleans(),
        "restart": st.booleans(),
    }
)


# room for the copies of each task, and not for those of all
LATER = {"seed": 2, "workers": 4, "slide": None, "first": 4, "moves": False, "restart": True}


@given(CASES)
@example({"seed": 1, "two": False, "workers": 3, "slide": 60, "first": 4, "room": 0, "moves": True, "restart": True})
@example({**LATER, "two": True, "room": 1_500_000})
@example({**LATER, "two": False, "room": 500_000})
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
def test_a_stream_that_turns_out_to_be_all_near_goes_over_to_blocks(spark, tmp_path_factory, told, case):
    left = vectors(160, case["seed"], dimension=DIMENSION, prefix="l")
    right = vectors(160, case["seed"] + 1, dimension=DIMENSION, prefix="r") if case["two"] else None
    join = sy.similarity_join(
        frame(spark, left),
        frame(spark, right) if right else None,
        on="vector",
        id="id",
        time="at",
        window="2 minutes",
        slide=f"{case['slide']} seconds" if case["slide"] else None,
        watermark="5 seconds",
        workers=case["workers"],
        threshold=WIDE,
    )
    before = len(told())
    policy = Balancing(ImbalanceAbove(0.0)) if case["moves"] else None
    fed = Fed(spark, join, tmp_path_factory.mktemp("join"), policy=policy)
    reports = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_engine, "ROOM", case["room"])
        for first, last in pairwise([0, case["first"], 120, 160]):
            reports.append(fed.give(join.rows.where(f"at >= {first * SECOND} and at < {last * SECOND}")))
            if case["restart"]:
                fed.start()
    assert (reports[1].members > 8 * reports[1].rows) == (case["room"] > 0)  # by worksets once more, or not
    assert EVERYTHING in fed.engine.last.assignment
    assert len(told()) == before + 1
    expected = brute_force(left, right or left, "angular", WIDE, 120, case["slide"])
    same(fed.pairs(), expected, ordered=bool(right))


def test_a_task_without_room_compares_its_part_without_worksets(spark, told):
    rows = [(key, 0, vector) for key, _, vector in vectors(150, seed=4, dimension=DIMENSION)]
    join = sy.similarity_join(frame(spark, rows), on="vector", id="id", threshold=WIDE, workers=2, crowd=1000)
    found = replace(join, program=replace(join.program, room=0)).to_df().toArrow()
    pairs = [(a, b, 0) for a, b in zip(found["left_id"].to_pylist(), found["right_id"].to_pylist(), strict=True)]
    same(pairs, brute_force(rows, rows, "angular", WIDE, 1), ordered=False)
    assert not told()
