"""What an epoch changed is given once, when it ends or when its window closes, with all rows so far."""

import builtins

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import count, max, sum, variance
from steelyard.core.topology import Instance
from steelyard.resident import Flow, Memory, Rows, run
from steelyard.resident.aggregate import PartialAggregate
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.changes import ChangedAggregate
from steelyard.resident.operator import MAX_WATERMARK, InstanceContext
from steelyard.resident.snapshot import packed, unpacked
from steelyard.resident.windows import Window
from steelyard.workloads.workload import TIMESTAMP

SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
HOW = (("n", count()), ("total", sum("value")), ("most", max("value")), ("spread", variance("value")))
SIZE, SLIDE = 10, 5
rows = st.tuples(st.sampled_from(["a", "b", None]), st.integers(-3, 3), st.integers(0, 40))
events = st.lists(st.one_of(st.just("epoch"), st.integers(0, 60), st.lists(rows, min_size=1, max_size=5)), max_size=14)
"""Ends of epochs, watermarks, and batches."""


def started(logic, given=SCHEMA):
    return logic.start(InstanceContext(Instance("one", 0), 1, [given], logic.output([given])))


def windows_of(at):
    return range(at // SLIDE * SLIDE, at - SIZE, -SLIDE)


def start_of(row):
    return (row["window_start"].microsecond + SLIDE) % 1_000_000 - SLIDE


@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("from_partials", [True, False])
@given(told=events)
def test_each_epoch_gives_what_it_changed_once_with_all_rows_so_far(windowed, from_partials, told):
    how = Aggregation(("key",), HOW, Window("at", SIZE, SLIDE) if windowed else None)
    partial = started(PartialAggregate(how))
    logic = ChangedAggregate(how, from_partials)
    step = started(logic, how.partial_schema(SCHEMA) if from_partials else SCHEMA)
    watermark, seen, changed, got = -100, {}, set(), []

    def take(made):
        got.extend(row for one in made for row in one.to_pylist())

    def epoch():
        nonlocal step
        take(step.flush())
        found = {
            (row["key"], (row["window_start"].microsecond + 5) % 1_000_000 - 5 if windowed else None): (
                row["n"],
                row["total"],
                row["most"],
            )
            for row in got
        }
        assert len(found) == len(got), "once in an epoch"
        wanted = {one: (len(seen[one]), builtins.sum(seen[one]), sorted(seen[one])[-1]) for one in changed}
        assert found == wanted
        got.clear()
        changed.clear()
        state, step = step.snapshot(1), started(logic, how.partial_schema(SCHEMA) if from_partials else SCHEMA)
        step.restore(unpacked(packed(state)))

    for event in told:
        if event == "epoch":
            epoch()
        elif isinstance(event, int):
            take(step.on_watermark(event))
            watermark = event if event > watermark else watermark
        else:
            columns = [pa.array(one, kind.type) for one, kind in zip(zip(*event, strict=True), SCHEMA, strict=True)]
            batch = pa.record_batch(columns, schema=SCHEMA)
            for part in partial.process(0, batch) if from_partials else [batch]:
                take(step.process(0, part))
            for key, value, at in event:
                for start in windows_of(at) if windowed else [None]:
                    if start is None or start + SIZE > watermark:
                        seen.setdefault((key, start), []).append(value)
                        changed.add((key, start))
    take(step.on_watermark(MAX_WATERMARK))
    take(step.finish())
    epoch()


@pytest.mark.parametrize("grouping", ["hash", "shuffle"])
def test_a_dataflow_gives_changes_with_its_snapshots_and_at_its_end(tmp_path, grouping):
    table = pa.table({"key": ["a", "b", "a", "c"] * 500, "value": list(range(2000))})
    flow = Flow("changes", parallelism=2)
    made = flow.source(Rows(table)).key_by("key", grouping=grouping)
    made.aggregate(n=count(), spread=variance("value"), emit="epochs").sink(Memory(), name="out")
    found = run(flow.dataflow()).table("out").to_pylist()
    assert {row["key"]: row["n"] for row in found} == {"a": 1000, "b": 500, "c": 500}
    assert len(found) == 3
