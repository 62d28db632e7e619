"""A job that goes on from its end with more rows gives what they change, and nothing twice; what is late is counted."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count
from steelyard import sum as total_of
from steelyard.resident import Flow, Memory, Settings, Step, run
from steelyard.resident.sources import Read, Reader
from steelyard.workloads.workload import TIMESTAMP

SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
SECOND = 1_000_000
FIRST = [("a", 1, 0), ("a", 2, 1), ("b", 3, 12)]
MORE = [("a", 4, 30), ("c", 5, 31), ("c", 6, 55)]


@dataclass(frozen=True)
class Growing(Reader):
    """One split, which has more rows each time; (key, value, second)."""

    rows: tuple
    before: Callable = lambda offset: True
    schema: pa.Schema = SCHEMA
    grows: ClassVar[bool] = True

    def splits(self, parallelism):
        return ["0"]

    def read(self, split, offset, rows):
        if not self.before(offset):
            return Read(None, offset, False)
        part = self.rows[offset : offset + rows]
        after = offset + len(part)
        columns = [[one[at] * (SECOND if at == 2 else 1) for one in part] for at in range(3)]
        arrays = [pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)]
        return Read(pa.record_batch(arrays, schema=SCHEMA) if part else None, after, after >= len(self.rows))


def counted(rows, how, parallelism=1, grouping="hash", delay="0 seconds", before=lambda offset: True):
    flow = Flow("counted", parallelism=parallelism)
    source = flow.source(Growing(tuple(rows), before), time="at", delay=delay, parallelism=1, batch_rows=2)
    made = source.key_by("key", grouping=grouping).aggregate(n=count(), total=total_of("value"), name="count", **how)
    made.sink(Memory(), name="out")
    return flow.dataflow()


def went_on(store, dataflow, **how):
    """Rows of the sink, without their names, and how many were refused."""
    got = run(dataflow, workers=1, settings=Settings(store=str(store), **how))
    refused = sum(one["refused"] for one in got.outcome.metrics.values())
    found = Counter()
    for row in got.table("out").to_pylist():
        start = row.get("window_start")
        found[(row["key"], None if start is None else int(start.timestamp()), row["n"], row["total"])] += 1
    return found, refused


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("grouping", ["hash", "pk2"])
def test_results_in_the_end_are_given_again_where_rows_have_changed_them(tmp_path, parallelism, grouping):
    def results(rows):
        return went_on(tmp_path, counted(rows, {"emit": "end"}, parallelism, grouping))[0]

    assert results(FIRST) == Counter([("a", None, 2, 3), ("b", None, 1, 3)])
    assert results(FIRST) == Counter()
    assert results(FIRST + MORE) == Counter([("a", None, 3, 7), ("c", None, 2, 11)])
    assert results(FIRST + MORE) == Counter()


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("grouping", ["hash", "pk2"])
def test_later_windows_are_given_and_rows_of_those_before_are_counted(tmp_path, parallelism, grouping):
    def results(rows):
        return went_on(tmp_path, counted(rows, {"window": "10 seconds"}, parallelism, grouping))

    assert results(FIRST) == (Counter([("a", 0, 2, 3), ("b", 10, 1, 3)]), 0)
    late = [("b", 9, 19), ("a", 9, 5)]
    expected = Counter([("a", 30, 1, 4), ("c", 30, 1, 5), ("c", 50, 1, 6)])
    assert results(FIRST + late + MORE) == (expected, 2)
    assert results(FIRST + late + MORE) == (Counter(), 0)


drawn = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-3, 3), st.integers(0, 30)), max_size=12)


@settings(max_examples=15)
@given(drawn, drawn)
def test_windows_are_given_once_whatever_comes_behind_the_end(tmp_path_factory, first, more):
    store = tmp_path_factory.mktemp("store")
    how = {"window": "6 seconds", "slide": "4 seconds"}

    def windows(rows, behind):
        sums = {}
        for key, value, at in rows:
            for start in range(-8, 40, 4):
                if start <= at < start + 6 and start + 6 > behind:
                    n, total = sums.get((key, start), (0, 0))
                    sums[key, start] = n + 1, total + value
        return Counter((key, start, *found) for (key, start), found in sums.items())

    def last_end(at):
        return at - at % 4 + 6

    behind = max((last_end(at) for *_, at in first), default=-100)
    late = sum(last_end(at) <= behind for *_, at in more)
    # Nothing is late by the rows beside it, only by the end.
    assert went_on(store, counted(first, how, delay="1 minute")) == (windows(first, -100), 0)
    assert went_on(store, counted(first + more, how, delay="1 minute")) == (windows(more, behind), late)


def test_a_windowed_join_pairs_new_rows_with_those_of_windows_that_time_has_not_passed(tmp_path):
    def pairs(left, right):
        flow = Flow("pairs")
        sides = [flow.source(Growing(tuple(rows)), time="at", name=name) for name, rows in (("l", left), ("r", right))]
        sides[0].join(sides[1], on="key", window="10 seconds", name="join").sink(Memory(), name="out")
        got = run(flow.dataflow(), workers=1, settings=Settings(store=str(tmp_path)))
        found = sorted((row["value"], row["value_right"]) for row in got.table("out").to_pylist())
        return found, got.outcome.metrics["join#0"]["refused"]

    left, right = [("a", 1, 1), ("a", 2, 12)], [("a", 10, 2), ("a", 20, 13)]
    assert pairs(left, right) == ([(1, 10), (2, 20)], 0)
    assert pairs([*left, ("a", 3, 14), ("a", 4, 3)], right) == ([(3, 20)], 1)
    assert pairs([*left, ("a", 3, 14), ("a", 4, 3)], [*right, ("a", 30, 15)]) == ([(2, 30), (3, 30)], 0)


class Total(Step):
    """Gives in the end how many rows it has had."""

    def __init__(self):
        self._n = 0

    def process(self, port, batch):
        self._n += batch.num_rows
        return ()

    def finish(self):
        return [pa.record_batch({"n": [self._n]})]

    def snapshot(self, number):
        return {"n": self._n}

    def restore(self, state):
        self._n = state.get("n", 0)


def test_a_step_of_ones_own_hears_of_each_end_that_has_rows_before_it(tmp_path):
    def totals(rows, before=lambda offset: True, **how):
        flow = Flow("totals")
        source = flow.source(Growing(tuple(rows), before), time="at")
        source.shuffle().process(lambda context: Total(), {"n": pa.int64()}).sink(Memory(), name="out")
        got = run(flow.dataflow(), workers=1, settings=Settings(store=str(tmp_path), **how))
        return got.table("out")["n"].to_pylist(), got.outcome.restarts

    assert totals(FIRST) == ([3], 0)
    assert totals(FIRST) == ([], 0)
    assert totals(FIRST + MORE) == ([6], 0)
    # Snapshots while it waits for rows, and a failure before there is an end again.
    assert totals(FIRST + MORE, Waits(fails=True), interval=0.02, heartbeat=0.05) == ([], 1)
    assert totals([*FIRST, *MORE, *MORE], Waits(fails=True), interval=0.02, heartbeat=0.05) == ([9], 1)


class Waits:
    """Rows come when some snapshots were taken, and a failure before them."""

    def __init__(self, fails):
        self._fails, self._begun, self._lock = fails, time.monotonic(), threading.Lock()

    def __call__(self, offset):
        with self._lock:
            if time.monotonic() < self._begun + 0.4:
                return False
            if self._fails:
                self._fails = False
                raise RuntimeError("boom")
            return True
