"""A step that goes on from a snapshot gives what the one before it would have given, and computes nothing again."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard import count, sum
from steelyard.core.topology import Instance
from steelyard.resident import join
from steelyard.resident.aggregate import WindowedAggregate
from steelyard.resident.aggregates import Aggregation
from steelyard.resident.join import Join
from steelyard.resident.operator import MAX_WATERMARK, InstanceContext
from steelyard.resident.running import RunningAggregate
from steelyard.resident.snapshot import packed, unpacked
from steelyard.resident.windows import Window
from steelyard.workloads.workload import TIMESTAMP

SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64(), "at": TIMESTAMP})
WINDOW = Window("at", 10, 5)
HOW = (("n", count()), ("total", sum("value")))
LOGICS = {
    "windows": WindowedAggregate(Aggregation(("key",), HOW, WINDOW)),
    "running": RunningAggregate(Aggregation(("key",), HOW), emit="end"),
    "join": Join(("key",), ("key",)),
    "windowed join": Join(("key",), ("key",), (WINDOW, WINDOW)),
}

rows = st.tuples(st.sampled_from(["a", "b", None]), st.integers(-3, 3), st.integers(0, 40))
events = st.lists(
    st.one_of(st.integers(0, 40), st.tuples(st.integers(0, 1), st.lists(rows, min_size=1, max_size=5))), max_size=12
)
"""Watermarks, and batches at an input."""


def started(logic):
    inputs = [SCHEMA] * logic.ports
    return logic.start(InstanceContext(Instance("one", 0), 1, inputs, logic.output(inputs)))


def batch(found):
    columns = zip(*found, strict=True)
    return pa.record_batch([pa.array(one, kind.type) for one, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def fed(step, event, logic):
    """What a step gives for an event, in any order."""
    made = step.on_watermark(event) if isinstance(event, int) else step.process(event[0] % logic.ports, batch(event[1]))
    return Counter(tuple(row.values()) for one in made for row in one.to_pylist())


def moved(step, logic):
    """The step that goes on from a step's snapshot, through bytes."""
    again = started(logic)
    again.restore(unpacked(packed(step.snapshot(1))))
    return again


@pytest.mark.parametrize("name", LOGICS)
@settings(max_examples=50)
@given(events, st.integers(0, 12))
def test_a_step_goes_on_from_its_snapshot_as_if_nothing_had_been(name, found, at):
    logic = LOGICS[name]
    whole, cut, time = started(logic), started(logic), 0
    for number, drawn in enumerate(found):
        if number == at:
            cut = moved(cut, logic)
        time = max(time, drawn) if isinstance(drawn, int) else time  # event time never goes back
        event = time if isinstance(drawn, int) else drawn
        assert fed(cut, event, logic) == fed(whole, event, logic)
    ends = [[*step.on_watermark(MAX_WATERMARK), *step.finish()] for step in (cut, whole)]
    cut_off, undisturbed = (Counter(tuple(row.values()) for one in end for row in one.to_pylist()) for end in ends)
    assert cut_off == undisturbed
    assert cut.refused <= whole.refused


def test_late_rows_stay_late_where_no_window_was_open():
    logic = LOGICS["windows"]
    step = started(logic)
    list(step.on_watermark(100))
    again = moved(step, logic)
    list(again.process(0, batch([("a", 1, 20)])))
    assert again.refused == 1


@pytest.mark.parametrize("name", ["join", "windowed join"])
def test_a_join_pairs_nothing_again_when_it_goes_on(name, monkeypatch):
    logic = LOGICS[name]
    step = started(logic)
    for port in (0, 1):
        list(step.process(port, batch([("a", port, 3)] * 4)))
    again, state = started(logic), step.snapshot(1)

    def matching(*_):
        raise AssertionError("pairs were made before")

    with monkeypatch.context() as patch:
        patch.setattr(join._Side, "matching", matching)
        again.restore(state)
    assert fed(again, (0, [("a", 9, 3)]), logic) == fed(step, (0, [("a", 9, 3)]), logic)
