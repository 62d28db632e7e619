"""Whatever a dataflow does, workers that fail on the way leave its answer as it is."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.core.topology import Placement
from steelyard.resident import Flow, Memory, Rows, Settings, Step, run
from steelyard.resident.jobs import Job
from steelyard.resident.launchers import ThreadLauncher
from steelyard.resident.sources import Read, Reader
from steelyard.workloads.workload import TIMESTAMP

SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
SECOND = 1_000_000
KINDS = ["windows", "split windows", "running", "join", "windowed join"]

rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(-3, 3), st.integers(0, 20 * SECOND)),
    min_size=10,
    max_size=40,
)


@dataclass(frozen=True)
class Slow(Rows):
    """Takes a moment for each read, so that snapshots come between."""

    def read(self, split, offset, rows):
        time.sleep(0.006)
        return super().read(split, offset, rows)


class Fails(Step):
    """Passes rows on; fails at given batches, counted over all instances and generations."""

    def __init__(self, trouble):
        self._trouble = trouble

    def process(self, port, batch):
        self._trouble.another()
        yield batch


class Trouble:
    def __init__(self, at):
        self._at, self._seen, self._lock = set(at), 0, threading.Lock()

    def another(self):
        with self._lock:
            self._seen += 1
            if self._seen in self._at:
                raise RuntimeError(f"batch {self._seen}")


def read(flow, found, trouble, name):
    columns = zip(*found, strict=True)
    table = pa.table([pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    source = flow.source(Slow(table, pieces=2), time="at", delay="1 minute", batch_rows=3, name=f"read {name}")
    return source.shuffle().process(lambda context: Fails(trouble), name=f"pass {name}", parallelism=2)


def dataflow(kind, left, right, at):
    flow, trouble = Flow(parallelism=2), Trouble(at)
    rows = read(flow, left, trouble, "left")
    if "join" in kind:
        window = "4 seconds" if kind == "windowed join" else None
        made = rows.join(read(flow, right, trouble, "right"), on="key", window=window)
    elif kind == "running":
        made = rows.key_by("key").aggregate(n=count(), total=sum("value"), emit="end")
    else:
        keyed = rows.key_by("key", grouping="pk2" if kind == "split windows" else "hash")
        made = keyed.aggregate(n=count(), total=sum("value"), window="4 seconds", slide="2 seconds")
    made.sink(Memory(), name="out")
    return flow.dataflow()


@settings(max_examples=20)
@given(st.sampled_from(KINDS), rows, rows, st.sets(st.integers(1, 25), min_size=1, max_size=3))
def test_failures_leave_every_answer_as_it_is(tmp_path_factory, kind, left, right, at):
    how = Settings(store=str(tmp_path_factory.mktemp("store")), interval=0.01, heartbeat=0.05, restarts=len(at))
    troubled = run(dataflow(kind, left, right, at), settings=how)
    calm = run(dataflow(kind, left, right, ()))
    got, wanted = (Counter(tuple(row.values()) for row in one.table("out").to_pylist()) for one in (troubled, calm))
    assert got == wanted
    # Where there are fewer batches than the trouble's number, it does not come.
    assert troubled.outcome.restarts <= len(at)
    assert troubled.outcome.restarts or min(at) > 3


@dataclass(frozen=True)
class Uneven(Reader):
    """Splits of different lengths, each in the order of its times: no row is ever late."""

    tables: tuple
    seconds: float = 0.006
    before: Callable = lambda split, offset: None
    schema: pa.Schema = SCHEMA

    def splits(self, parallelism):
        return [str(number) for number in range(len(self.tables))]

    def read(self, split, offset, rows):
        mine = self.tables[int(split)]
        self.before(split, offset)
        time.sleep(self.seconds if len(mine) > rows else 0)
        part = mine[offset : offset + rows]
        after = offset + len(part)
        return Read(batch_of(part) if part else None, after, after >= len(mine))


def batch_of(found):
    columns = zip(*found, strict=True)
    return pa.record_batch([pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def open_windows(reader, at=(), batch_rows=2):
    """Windows that time has not passed stay open; how far it came depends on inputs that end long before others."""
    flow, trouble = Flow(parallelism=2), Trouble(at)
    rows = flow.source(reader, time="at", batch_rows=batch_rows, name="read")
    passed = rows.shuffle().process(lambda context: Fails(trouble), name="pass", parallelism=2)
    counted = passed.key_by("key").aggregate(n=count(), total=sum("value"), window="4 seconds", open_end=True)
    counted.sink(Memory(), name="out")
    return flow.dataflow()


def passed_windows(tables):
    """The same in plain Python: windows that end where the furthest split came to, or before."""
    furthest = max(at for table in tables for *_, at in table)
    sums = {}
    for key, value, at in (row for table in tables for row in table):
        start = at // (4 * SECOND)
        if (start + 1) * 4 * SECOND <= furthest:
            n, total = sums.get((key, start), (0, 0))
            sums[key, start] = n + 1, total + value
    return sorted((key, start, n, total) for (key, start), (n, total) in sums.items())


def given_windows(batches):
    found = pa.Table.from_batches(batches).to_pylist() if batches else []
    return sorted((row["key"], int(row["window_start"].timestamp()) // 4, row["n"], row["total"]) for row in found)


FAR = [("far", 1, 100 * SECOND)]
NEAR = [("near", 1, second * SECOND) for second in range(0, 61, 2)]

sorted_rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(-3, 3), st.integers(0, 60 * SECOND)),
    min_size=1,
    max_size=24,
).map(lambda found: sorted(found, key=lambda row: row[2]))


@settings(max_examples=20)
@given(st.lists(sorted_rows, min_size=2, max_size=5), st.sets(st.integers(1, 40), max_size=3))
@example([FAR, NEAR], {9, 14})
@example([NEAR, FAR, NEAR[:2]], {10, 13, 16})
def test_windows_that_stay_open_are_the_same_ones_whatever_ended_before_a_failure(tmp_path_factory, tables, at):
    how = Settings(store=str(tmp_path_factory.mktemp("store")), interval=0.01, heartbeat=0.05, restarts=len(at))
    troubled = run(open_windows(Uneven(tuple(tables)), at), settings=how)
    assert given_windows(troubled.outcome.results.get("out")) == passed_windows(tables)


class Once:
    """Does something the first time that split 1 is to be read from an offset on."""

    def __init__(self, offset, action):
        self._offset, self._action = offset, action

    def __call__(self, split, offset):
        if split == "1" and offset >= self._offset and self._action is not None:
            action, self._action = self._action, None
            action()


def boom():
    raise RuntimeError("boom")


def test_an_input_that_ended_before_a_failure_is_still_the_furthest(tmp_path):
    reader = Uneven((FAR, NEAR), seconds=0.02, before=Once(20, boom))
    how = Settings(store=str(tmp_path), interval=0.05)
    got = run(open_windows(reader, batch_rows=1), settings=how)
    assert given_windows(got.outcome.results["out"]) == passed_windows((FAR, NEAR))
    assert got.outcome.restarts == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_an_input_that_ended_before_a_move_is_still_the_furthest(tmp_path, workers):
    move = Once(10, lambda: threading.Thread(target=lambda: job.move(Placement.spread(flow, workers))).start())
    flow = open_windows(Uneven((FAR, NEAR), seconds=0.02, before=move), batch_rows=1)
    job = Job(flow, Placement.spread(flow, 2), ThreadLauncher(), Settings(store=str(tmp_path)))
    outcome = job.run()
    assert given_windows(outcome.results["out"]) == passed_windows((FAR, NEAR))
    assert outcome.moves == 1
