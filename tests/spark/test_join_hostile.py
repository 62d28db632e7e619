"""Similarity joins of streams that are not as one wishes them, beside brute force over the same batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import steelyard as sy
from steelyard.core import BadRowError, OptionError
from steelyard.similarity import Balancing, EveryWindow, ImbalanceAbove, metric
from steelyard.similarity.balancer import Move
from steelyard.similarity.pairblocks import EVERYTHING
from steelyard.spark import join_engine, join_space
from steelyard.spark.badrows import BadRows
from tests.spark.test_join_blocks import DIMENSION, WIDE
from tests.spark.test_similarity_join import SCHEMA, SECOND, Fed, brute_force, frame, same, self_join, vectors

pytestmark = pytest.mark.spark

WORDS = [f"w{n}" for n in range(12)]
THRESHOLDS = {"angular": (0.02, 0.3), "euclidean": (0.1, 1.0), "jaccard": (0.3, 0.6), "edit": (1.0, 4.0)}

SEEDS = (5, 8, 11)
"""Of the cases that are tried: vectors and text; one stream and two; moves, cuts and blocks in mid-batch."""


@dataclass
class Case:
    """A join and its batches, drawn from a seed."""

    seed: int
    draws: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.draws = draws = np.random.default_rng(self.seed)
        self.metric = list(THRESHOLDS)[self.seed % len(THRESHOLDS)]
        self.threshold = THRESHOLDS[self.metric][int(draws.integers(2))]
        self.two = bool(draws.integers(2))
        self.window, self.slide = 20, (None, 7)[int(draws.integers(2))]
        self.delay = 6
        self.room = (0, join_engine.ROOM)[int(draws.integers(2))]
        trigger = (None, ImbalanceAbove(0.0), EveryWindow())[int(draws.integers(3))]
        split, self.restart, self.shuffled = (bool(draws.integers(2)) for _ in range(3))
        self.policy = Balancing(trigger, split=split) if trigger else None
        self.options: dict[str, Any] = {
            "workers": int(draws.integers(1, 5)),
            "space": ("random", "farthest")[int(draws.integers(2))],
            "balanced_ids": bool(draws.integers(2)),
            "retire_after": (None, 1)[int(draws.integers(2))],
            "crowd": (None, None, 1)[int(draws.integers(3))],
        }
        self.key = ("string", "int", "bigint")[int(draws.integers(3))]
        self.batches = self._batches()

    @property
    def vectors(self) -> bool:
        return self.metric in ("angular", "euclidean")

    @property
    def schema(self) -> str:
        return f"side int, id {self.key}, at timestamp, item {'array<double>' if self.vectors else 'string'}"

    def _batches(self) -> list[list[tuple]]:
        """Rows (side, id, second, item) in the order of their coming, cut into batches of which some are empty."""
        sizes = [0, 20, 0, 25, 1, 20]
        if self.draws.integers(2):
            sizes = sizes[1:]
        now, batches = 0, []
        for size in sizes:
            rows = []
            for _ in range(size):
                now += int(self.draws.integers(3))
                rows.append(self._row(now - int(self.draws.choice([0, 0, 0, 3, 6, 30]))))
            batches.append(rows)
        return batches

    def _row(self, at: int) -> tuple:
        side = int(self.draws.integers(2)) if self.two else 0
        key = int(self.draws.integers(40))  # many come twice
        item = self._item()
        kind = int(self.draws.integers(25))
        if kind == 0:
            item = None
        elif kind == 1 and self.vectors:
            item = [*item, 1.0] if self.draws.integers(2) else [float("nan"), 1.0]
        elif kind == 2:
            return side, None, at, item
        elif kind == 3:
            return side, key if self.key != "string" else str(key), None, item
        return side, key if self.key != "string" else str(key), at, item

    def _item(self) -> Any:
        draws = self.draws
        if self.vectors:
            return [float(x) for x in (draws.uniform(-1, 1, 2).round(1) if draws.integers(2) else (0.5, 0.5))]
        if self.metric == "edit":
            return "".join(draws.choice(list("ab"), int(draws.integers(0, 8))))
        return " ".join(draws.choice(WORDS, int(draws.integers(0, 5))))

    def good(self, row: tuple) -> bool:
        _, key, at, item = row
        if None in (key, at, item) or not self.vectors:
            return None not in (key, at, item)
        return len(item) == 2 and bool(np.isfinite(item).all()) and (self.metric != "angular" or any(item))

    def expected(self) -> tuple[Counter, int, int]:
        """Pairs with the starts of their windows, late rows and bad ones."""
        measure, step = metric(self.metric), self.slide or self.window
        watermark, late, bad = -(10**9), 0, 0
        seen: list[tuple[tuple, int]] = []
        for batch in self.batches:
            closed = (watermark - self.window) // step
            good = [row for row in batch if self.good(row)]
            bad += len(batch) - len(good)
            open_still = [row for row in good if row[2] // step > closed]
            late += len(good) - len(open_still)
            seen += [(row, closed) for row in open_still]
            watermark = max([watermark, *(row[2] - self.delay for row in good)])
        kind = pa.list_(pa.float64()) if self.vectors else pa.string()
        records, _ = measure.records(pa.array([row[3] for row, _ in seen], kind))
        near = measure.pairwise(records, records) <= measure.threshold(self.threshold)
        found: Counter = Counter()
        for i, j in np.argwhere(np.triu(near, 1)).tolist():
            (a, _), (b, closed) = seen[i], seen[j]
            if self.two and a[0] == b[0]:
                continue
            low, high = min(a[2], b[2]), max(a[2], b[2])
            for window in range(max((high - self.window) // step + 1, closed + 1), low // step + 1):
                found[self.named(a, b, window * step)] += 1
        return found, late, bad

    def named(self, a: tuple, b: tuple, start: int) -> tuple:
        if self.two:
            a, b = (a, b) if a[0] == 0 else (b, a)
            return a[1], b[1], start
        return (*sorted((a[1], b[1])), start)

    def frame(self, spark, rows: list[tuple]):
        timed = [
            (side, key, None if at is None else pa.scalar(at * SECOND, pa.timestamp("us", "UTC")).as_py(), item)
            for side, key, at, item in rows
        ]
        made = spark.createDataFrame(timed, self.schema)
        return made.repartition(3) if self.shuffled else made

    def join(self, rows):
        left, right = (rows.where("side = 0"), rows.where("side = 1")) if self.two else (rows, None)
        slide = {"slide": f"{self.slide} seconds"} if self.slide else {}
        return sy.similarity_join(
            left,
            right,
            on="item",
            id="id",
            time="at",
            metric=self.metric,
            threshold=self.threshold,
            window=f"{self.window} seconds",
            watermark=f"{self.delay} seconds",
            **slide,
            **self.options,
        )


def check(spark, path, case: Case) -> None:
    join = case.join(case.frame(spark, []))
    letters = str(path / "letters")
    bad = BadRows("dead_letter", letters)
    fed = Fed(spark, join, path / "join", bad=bad, policy=case.policy)
    reports = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_engine, "ROOM", case.room)
        for batch in case.batches:
            reports.append(fed.give(case.join(case.frame(spark, batch)).rows))
            if case.restart:
                fed.start()
    expected, late, refused = case.expected()
    found = Counter(one if case.two else (*sorted(one[:2]), one[2]) for one in fed.pairs())
    assert found == expected
    assert sum(report.late_rows for report in reports) == late
    assert sum(sum(report.bad_rows.values()) for report in reports) == refused
    assert sum(report.rows for report in reports) == sum(map(len, case.batches))
    assert sum(report.results for report in reports) == expected.total()
    if refused:
        assert spark.read.parquet(letters).count() == refused


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_with_all_that_can_be_wrong_gives_the_pairs_of_brute_force(spark, tmp_path, seed):
    check(spark, tmp_path, Case(seed))


def test_a_first_batch_of_bad_rows_is_refused_as_any_other(spark, tmp_path):
    good = vectors(20, seed=1)
    join = self_join(spark, good, window="1 hour")
    bad = frame(spark, [("a", 0, None), ("b", 0, [float("nan"), 1.0]), ("c", 0, [])])
    rows = self_join(spark, good).rows
    bad_rows = sy.similarity_join(bad, on="vector", id="id", time="at", window="1 hour", threshold=0.02).rows
    with pytest.raises(BadRowError, match="3 rows: no id, no time"):
        Fed(spark, join, tmp_path / "a").give(bad_rows)
    fed = Fed(spark, join, tmp_path / "b", bad=BadRows("dead_letter", str(tmp_path / "letters")))
    report = fed.give(bad_rows)
    assert report.rows == sum(report.bad_rows.values()) == 3
    assert spark.read.parquet(str(tmp_path / "letters")).count() == 3
    fed.give(rows)
    same(fed.pairs(), brute_force(good, good, "angular", 0.02, 3600), ordered=False)
    fed.join = replace(join, program=replace(join.program, workers=5))
    with pytest.raises(OptionError, match="workers"):
        fed.start()


def test_good_rows_behind_a_sample_of_bad_ones_are_joined(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(join_space, "FIRST", 2)
    monkeypatch.setattr(join_space, "SAMPLE", 3)
    good = vectors(20, seed=1)
    rows = frame(spark, [(f"bad{n}", 0, [float("nan"), 1.0]) for n in range(6)] + good).coalesce(1)
    join = sy.similarity_join(rows, on="vector", id="id", time="at", window="1 hour", threshold=0.02, workers=2)
    fed = Fed(spark, join, tmp_path, bad=BadRows("drop"))
    assert sum(fed.give(join.rows).bad_rows.values()) == 6
    same(fed.pairs(), brute_force(good, good, "angular", 0.02, 3600), ordered=False)


class Around:
    """A balancer that sends every workset to the next worker, whatever it is good for."""

    def moves(self, loads, workers):
        return [Move(one.partition, one.workset, one.worker, (one.worker + 1) % workers) for one in loads]


def test_pieces_may_move_in_the_batch_that_went_over_to_blocks(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(join_engine, "ROOM", 0)
    rows = vectors(120, seed=1, dimension=DIMENSION)
    join = self_join(spark, rows, threshold=WIDE, window="1 hour", workers=4)
    fed = Fed(spark, join, tmp_path, policy=Balancing(ImbalanceAbove(0.0), Around()))
    parts = [join.rows.where(f"at >= {a * SECOND} and at < {b * SECOND}") for a, b in ((0, 4), (4, 80), (80, 120))]
    reports = [fed.give(part) for part in parts[:2]]
    assert EVERYTHING in fed.engine.last.assignment
    assert reports[1].moves >= 10  # of all pieces
    fed.start()
    fed.give(parts[2])
    same(fed.pairs(), brute_force(rows, rows, "angular", WIDE, 3600), ordered=False)


def test_very_long_texts_are_joined(spark):
    draws = np.random.default_rng(3)
    words = [f"{n:05d}" for n in range(50_000)]
    texts = [" ".join(draws.choice(words, 17_000)) for _ in range(3)]  # 100 kB each
    texts += [f"{texts[0]} more", texts[1][60:]]
    rows = spark.createDataFrame(list(enumerate(texts)), "id int, text string")
    join = sy.similarity_join(rows, on="text", id="id", metric="jaccard", threshold=0.5, workers=2)
    assert sorted((row.left_id, row.right_id) for row in join.to_df().collect()) == [(0, 3), (1, 4)]


def test_two_joins_run_beside_each_other_and_spark_counts_their_rows_once(spark, tmp_path):
    rows = vectors(60, seed=4)
    refused = [("bad", 1, None), ("bad", 2, [1.0])]
    for part, some in enumerate((rows[:30] + refused, rows[30:])):
        frame(spark, some).coalesce(1).write.parquet(str(tmp_path / f"in/{part}"))

    def stream():
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in/*"))

    queries = {}
    for two in (False, True):
        join = sy.similarity_join(
            stream().where("try_cast(id as int) % 2 = 0 or id = 'bad'") if two else stream(),
            stream().where("try_cast(id as int) % 2 = 1") if two else None,
            on="vector",
            id="id",
            time="at",
            window="1 hour",
            threshold=0.02,
            workers=2,
        )
        join = join.sink("parquet", path=str(tmp_path / f"out{two}")).trigger(available_now=True)
        queries[two] = join.on_bad_rows("dead_letter", str(tmp_path / f"letters{two}")).start()
    for two, query in queries.items():
        assert query.await_termination(120)
        table = spark.read.parquet(str(tmp_path / f"out{two}")).collect()
        left, right = (rows[::2], rows[1::2]) if two else (rows, rows)
        found = [(row.left_id, row.right_id, 0) for row in table]
        same(found, brute_force(left, right, "angular", 0.02, 3600), ordered=two)
        assert sum(one["numInputRows"] for one in query._query.recentProgress) == (2 if two else 1) * 62
        assert spark.read.parquet(str(tmp_path / f"letters{two}")).count() == 2
