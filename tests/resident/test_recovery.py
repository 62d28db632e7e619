"""Whatever a dataflow does, workers that fail on the way leave its answer as it is."""

import threading
import time
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.resident import Flow, Memory, Rows, Settings, Step, count, run, sum
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
